//! The live hosts of a name, and their combined tools.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolbridge_core::tool::ToolList;

use crate::wire::Hello;

/// A host that has not answered for this long is removed.
const SILENCE: Duration = Duration::from_secs(6);

/// How long a host that has suddenly disappeared has to come back.
const COME_BACK: Duration = Duration::from_secs(3);

/// The hosts that are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// Any host with free capacity.
    Any,
    /// The host of that name.
    One(String),
    /// Every host.
    All,
}

impl Address {
    /// `shop`, `shop@host-7` and `shop@*`: the name, and the hosts.
    pub(crate) fn of(name: &str) -> (&str, Self) {
        match name.split_once('@') {
            None => (name, Self::Any),
            Some((name, "*")) => (name, Self::All),
            Some((name, host)) => (name, Self::One(host.into())),
        }
    }
}

/// A live host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveHost {
    /// Its name.
    pub name: String,
    /// A unique id of its process.
    pub instance: String,
    /// Its version.
    pub version: String,
    /// The number of its tools.
    pub tools: usize,
}

#[derive(Debug)]
struct KnownHost {
    hello: Hello,
    seen: Instant,
    tools: ToolList,
}

/// The combined tools of the hosts that are called.
#[derive(Debug, Default)]
pub(crate) struct Union {
    pub(crate) list: ToolList,
    /// Which hosts describe which tools differently.
    pub(crate) disagreements: Vec<String>,
    /// For each tool, the hosts that have it as it is listed.
    pub(crate) hosts: HashMap<String, Vec<Hello>>,
}

/// The hosts by instance, and their union.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    hosts: BTreeMap<String, KnownHost>,
    /// When a host last disappeared.
    lost: Option<Instant>,
    pub(crate) union: Arc<Union>,
}

impl Directory {
    /// Notes that a host is live; returns whether its tools have to be requested.
    pub(crate) fn note(&mut self, hello: &Hello) -> bool {
        let Some(host) = self.hosts.get_mut(&hello.instance) else { return true };
        host.seen = Instant::now();
        host.hello.revision < hello.revision
    }

    /// Stores a host's tools, unless newer ones are known.
    pub(crate) fn add(&mut self, hello: Hello, tools: ToolList) {
        if self.note(&hello) {
            self.hosts.insert(hello.instance.clone(), KnownHost { hello, seen: Instant::now(), tools });
        }
    }

    pub(crate) fn remove(&mut self, instance: &str) {
        self.hosts.remove(instance);
    }

    /// Removes a host that was there a moment ago, and does not take a call now.
    pub(crate) fn lose(&mut self, instance: &str) {
        self.remove(instance);
        self.lost = Some(Instant::now());
    }

    /// Whether a host may come back soon.
    pub(crate) fn has_lost_a_host(&self) -> bool {
        self.lost.is_some_and(|lost| lost.elapsed() < COME_BACK)
    }

    /// Removes hosts that have not been seen for long.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.hosts.retain(|_, host| now.saturating_duration_since(host.seen) < SILENCE);
    }

    pub(crate) fn live(&self) -> Vec<LiveHost> {
        let live = |host: &KnownHost| LiveHost {
            name: host.hello.host.clone(),
            instance: host.hello.instance.clone(),
            version: host.hello.version.clone(),
            tools: host.tools.len(),
        };
        self.hosts.values().map(live).collect()
    }

    /// The hosts at `address`.
    pub(crate) fn at(&self, address: &Address) -> impl Iterator<Item = (&Hello, &ToolList)> {
        let at = |host: &&KnownHost| match address {
            Address::One(name) => host.hello.host == *name,
            Address::Any | Address::All => true,
        };
        self.hosts.values().filter(at).map(|host| (&host.hello, &host.tools))
    }

    /// Combines the tools of the hosts at `address`; returns whether the list has changed. If hosts describe a
    /// tool differently, the newest version is listed; with equal versions, the host that was started last. If
    /// there is no host, the list stays, so that calls can say why they fail.
    pub(crate) fn combine(&mut self, address: &Address) -> bool {
        let mut hosts: Vec<_> = self.at(address).collect();
        hosts.sort_by_key(|(hello, _)| Reverse((order(&hello.version), hello.started)));
        let old = Arc::clone(&self.union);
        let mut new = Union::default();
        let mut tools = ToolList::of(hosts.iter().flat_map(|(_, list)| list.iter())).to_vec();
        for tool in &tools {
            let mut same: Vec<Hello> = Vec::new();
            for (hello, tools) in &hosts {
                let Hello { host, version, .. } = hello;
                match tools.get(&tool.name) {
                    Some(other) if other == tool => same.push(Hello::clone(hello)),
                    Some(_) => new.disagreements.push(format!("`{}` of `{host}` {version}", tool.name)),
                    None => {}
                }
            }
            same.sort_by(|one, other| one.host.cmp(&other.host));
            new.hosts.insert(tool.name.clone(), same);
        }
        for tool in new.disagreements.iter().filter(|tool| !old.disagreements.contains(tool)) {
            tracing::warn!(
                tool,
                "a host describes a tool differently than the newest version; it is not called"
            );
        }
        if *address == Address::All {
            // An output schema holds for each host's result, but not for the joined one.
            for tool in &mut tools {
                tool.output_schema = None;
            }
        }
        let has_changed = !hosts.is_empty() && *tools != *old.list;
        new.list = if has_changed { ToolList::new(tools).unwrap_or_default() } else { old.list.clone() };
        self.union = Arc::new(new);
        has_changed
    }
}

/// The sort key of a version: by its numbers, and a release after its pre-releases.
fn order(version: &str) -> (Vec<u64>, bool, &str) {
    let version = version.strip_prefix('v').unwrap_or(version);
    let (numbers, before) =
        version.split_once('-').map_or((version, None), |(numbers, before)| (numbers, Some(before)));
    let numbers = numbers.split(['.', '+']).map_while(|number| number.parse().ok()).collect();
    (numbers, before.is_none(), before.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use toolbridge_core::tool::{RawJson, ToolSpec};

    use super::*;

    fn hello(instance: &str, host: &str, version: &str, revision: u64) -> Hello {
        let (instance, host, version) = (instance.into(), host.into(), version.into());
        Hello { instance, host, version, started: 0, revision, is_leaving: false }
    }

    fn list(tools: &[(&str, &str)]) -> ToolList {
        let tool = |(name, says): &(&str, &str)| ToolSpec::new(*name, *says, RawJson::empty_object());
        ToolList::new(tools.iter().map(tool).collect()).unwrap()
    }

    fn hosts(union: &Union, tool: &str) -> Vec<String> {
        union.hosts[tool].iter().map(|hello| hello.host.clone()).collect()
    }

    #[tokio::test]
    async fn hosts_are_combined_and_the_newest_version_wins() {
        let mut directory = Directory::default();
        let lists = [
            (hello("1", "a", "1.9.0", 1), list(&[("x", "old"), ("only_a", ""), ("same", "")])),
            (hello("2", "b", "1.10.0", 1), list(&[("x", "new"), ("same", "")])),
            (hello("3", "c", "1.10.0-rc.1", 1), list(&[("x", "candidate"), ("same", "")])),
        ];
        for (hello, list) in lists {
            assert!(directory.note(&hello));
            directory.add(hello, list);
        }
        assert!(directory.combine(&Address::Any) && !directory.combine(&Address::Any));
        let union = Arc::clone(&directory.union);
        assert_eq!(union.list.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["x", "same", "only_a"]);
        assert_eq!(union.list.get("x").unwrap().description, "new");
        assert_eq!(hosts(&union, "x"), ["b"]);
        assert_eq!(hosts(&union, "same"), ["a", "b", "c"]);
        assert_eq!(union.disagreements, ["`x` of `c` 1.10.0-rc.1", "`x` of `a` 1.9.0"]);
        directory.combine(&Address::One("a".into()));
        assert_eq!(directory.union.list.get("x").unwrap().description, "old");
        // Without the host, the list stays, and the tools have no hosts.
        directory.remove("1");
        assert!(!directory.combine(&Address::One("a".into())));
        assert_eq!((directory.union.list.len(), directory.union.hosts.len()), (3, 0));
    }

    #[tokio::test]
    async fn tools_are_requested_when_they_have_changed_and_not_otherwise() {
        let mut directory = Directory::default();
        let [first, second] = [1, 2].map(|revision| hello("1", "a", "1", revision));
        assert!(directory.note(&first));
        directory.add(first.clone(), list(&[]));
        assert!(!directory.note(&first) && directory.note(&second));
        directory.add(second.clone(), list(&[("x", "")]));
        assert!(!directory.note(&second) && !directory.note(&first), "a late answer");
        directory.add(first, list(&[]));
        assert_eq!(directory.live()[0].tools, 1, "a late list");
        assert_eq!(directory.live().len(), 1);
    }

    #[tokio::test]
    async fn a_host_that_is_silent_is_gone() {
        let mut directory = Directory::default();
        directory.add(hello("1", "a", "1", 1), list(&[]));
        directory.sweep(Instant::now());
        assert_eq!(directory.live().len(), 1);
        directory.sweep(Instant::now() + SILENCE);
        assert_eq!(directory.live().len(), 0);
    }

    #[test]
    fn a_name_may_say_which_host() {
        assert_eq!(Address::of("shop"), ("shop", Address::Any));
        assert_eq!(Address::of("shop@host-7"), ("shop", Address::One("host-7".into())));
        assert_eq!(Address::of("shop@*"), ("shop", Address::All));
    }
}
