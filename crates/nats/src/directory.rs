//! The live hosts of a name, and their combined tools.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;
use toolbridge_core::{ToolList, ToolSpec};

/// A host that has not answered for this long is removed.
const SILENCE: Duration = Duration::from_secs(6);

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

/// A tool that hosts describe differently.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disagreement {
    /// The tool.
    pub tool: String,
    /// The version whose description is listed. Calls go to hosts with the same description.
    pub listed: String,
    /// The hosts with another description, with their versions.
    pub others: Vec<(String, String)>,
}

/// A host's answer to a ping, from the services API.
#[derive(Debug, Deserialize)]
pub(crate) struct Pong {
    metadata: HashMap<String, String>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    version: String,
    started: u64,
    revision: u64,
    seen: Instant,
    /// The list of tools, and its revision.
    list: Option<(u64, ToolList)>,
}

/// The hosts by instance.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    hosts: BTreeMap<String, Entry>,
}

/// The combined tools of the hosts.
#[derive(Debug, Default)]
pub(crate) struct Union {
    pub(crate) list: ToolList,
    pub(crate) disagreements: Vec<Disagreement>,
    /// For each tool, the hosts that have it as it is listed.
    pub(crate) hosts: HashMap<String, Vec<String>>,
    /// The live processes.
    pub(crate) instances: Arc<[String]>,
}

impl Directory {
    /// Notes that a host is live; returns its instance and revision if its list has to be requested.
    pub(crate) fn note(&mut self, pong: &Pong) -> Option<(String, u64)> {
        let meta = |key: &str| pong.metadata.get(key).cloned();
        // Another service may have the same name.
        meta("toolbridge")?;
        let (instance, name) = (meta("instance")?, meta("host")?);
        let number = |key: &str| meta(key)?.parse::<u64>().ok();
        let (revision, started) = (number("revision")?, number("started").unwrap_or_default());
        let entry = self.hosts.entry(instance.clone()).or_insert_with(|| Entry {
            name,
            version: meta("version").unwrap_or_default(),
            started,
            revision,
            seen: Instant::now(),
            list: None,
        });
        entry.seen = Instant::now();
        entry.revision = entry.revision.max(revision);
        let is_known = entry.list.as_ref().is_some_and(|(listed, _)| *listed >= entry.revision);
        (!is_known).then_some((instance, entry.revision))
    }

    /// Stores a host's list, unless a newer one is known.
    pub(crate) fn set_list(&mut self, instance: &str, revision: u64, list: ToolList) {
        if let Some(entry) = self.hosts.get_mut(instance)
            && entry.list.as_ref().is_none_or(|(known, _)| *known < revision)
        {
            entry.list = Some((revision, list));
        }
    }

    pub(crate) fn remove(&mut self, instance: &str) -> bool {
        self.hosts.remove(instance).is_some()
    }

    /// Removes the hosts of a name that has no subscriber.
    pub(crate) fn remove_named(&mut self, name: &str) -> bool {
        let before = self.hosts.len();
        self.hosts.retain(|_, entry| entry.name != name);
        self.hosts.len() < before
    }

    /// Removes all hosts.
    pub(crate) fn clear(&mut self) {
        self.hosts.clear();
    }

    /// Removes hosts that have not been seen for long; returns whether there were any.
    pub(crate) fn sweep(&mut self, now: Instant) -> bool {
        let before = self.hosts.len();
        self.hosts.retain(|_, entry| now.saturating_duration_since(entry.seen) < SILENCE);
        self.hosts.len() < before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn has_named(&self, name: &str) -> bool {
        self.hosts.values().any(|entry| entry.name == name)
    }

    pub(crate) fn live(&self) -> Vec<LiveHost> {
        let live = |(instance, entry): (&String, &Entry)| LiveHost {
            name: entry.name.clone(),
            instance: instance.clone(),
            version: entry.version.clone(),
            tools: entry.list.as_ref().map_or(0, |(_, list)| list.len()),
        };
        self.hosts.iter().map(live).collect()
    }

    /// The combined tools of the hosts of that name, or of all hosts. If hosts describe a tool differently,
    /// the newest version is listed; with equal versions, the host that was started last.
    pub(crate) fn union(&self, only: Option<&str>) -> Union {
        let mut hosts: Vec<_> = self
            .hosts
            .values()
            .filter(|entry| only.is_none_or(|name| entry.name == name))
            .filter_map(|entry| Some((entry, &entry.list.as_ref()?.1)))
            .collect();
        hosts.sort_by_key(|(entry, _)| Reverse((order(&entry.version), entry.started)));
        let list = ToolList::of(hosts.iter().flat_map(|(_, list)| list.iter()));
        let instances = self.hosts.keys().cloned().collect();
        let mut union = Union { list, instances, ..Union::default() };
        for tool in union.list.iter() {
            let has = |list: &ToolList| list.get(&tool.name).map(|other: &ToolSpec| other == tool);
            let mut same = Vec::new();
            let mut others = Vec::new();
            let mut listed = None;
            for (entry, list) in &hosts {
                match has(list) {
                    Some(true) => {
                        listed.get_or_insert(&entry.version);
                        same.push(entry.name.clone());
                    }
                    Some(false) => others.push((entry.name.clone(), entry.version.clone())),
                    None => {}
                }
            }
            same.sort_unstable();
            same.dedup();
            union.hosts.insert(tool.name.clone(), same);
            if !others.is_empty() {
                let listed = listed.cloned().unwrap_or_default();
                union.disagreements.push(Disagreement { tool: tool.name.clone(), listed, others });
            }
        }
        union
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
    use toolbridge_core::RawJson;

    use super::*;

    fn pong(instance: &str, host: &str, version: &str, revision: u64) -> Pong {
        let metadata = [
            ("toolbridge", "1"),
            ("instance", instance),
            ("host", host),
            ("version", version),
            ("revision", &revision.to_string()),
        ];
        Pong { metadata: metadata.map(|(key, value)| (key.into(), value.into())).into() }
    }

    fn list(tools: &[(&str, &str)]) -> ToolList {
        let tool = |(name, says): &(&str, &str)| ToolSpec::new(*name, *says, RawJson::empty_object());
        ToolList::new(tools.iter().map(tool).collect()).unwrap()
    }

    #[tokio::test]
    async fn hosts_are_combined_and_the_newest_version_wins() {
        let mut directory = Directory::default();
        for (instance, host, version) in
            [("1", "a", "1.9.0"), ("2", "b", "1.10.0"), ("3", "c", "1.10.0-rc.1")]
        {
            assert_eq!(directory.note(&pong(instance, host, version, 1)), Some((instance.into(), 1)));
        }
        directory.set_list("1", 1, list(&[("x", "old"), ("only_a", ""), ("same", "")]));
        directory.set_list("2", 1, list(&[("x", "new"), ("same", "")]));
        directory.set_list("3", 1, list(&[("x", "candidate"), ("same", "")]));
        let union = directory.union(None);
        assert_eq!(union.list.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["x", "same", "only_a"]);
        assert_eq!(union.list.get("x").unwrap().description, "new");
        assert_eq!(union.hosts["x"], ["b"]);
        assert_eq!(union.hosts["same"], ["a", "b", "c"]);
        let [disagreement] = &union.disagreements[..] else { panic!("{:?}", union.disagreements) };
        assert_eq!((&*disagreement.tool, &*disagreement.listed), ("x", "1.10.0"));
        let others =
            [("c", "1.10.0-rc.1"), ("a", "1.9.0")].map(|(host, version)| (host.into(), version.into()));
        assert_eq!(disagreement.others, others);
        assert_eq!(directory.union(Some("a")).list.get("x").unwrap().description, "old");
    }

    #[tokio::test]
    async fn a_list_is_asked_for_when_it_has_changed_and_not_otherwise() {
        let mut directory = Directory::default();
        assert!(directory.note(&pong("1", "a", "1", 1)).is_some());
        directory.set_list("1", 1, list(&[]));
        assert!(directory.note(&pong("1", "a", "1", 1)).is_none());
        assert!(directory.note(&pong("1", "a", "1", 2)).is_some());
        directory.set_list("1", 1, list(&[]));
        assert!(directory.note(&pong("1", "a", "1", 2)).is_some(), "the list was too old");
        directory.set_list("1", 2, list(&[]));
        assert!(directory.note(&pong("1", "a", "1", 1)).is_none(), "a late answer");
        assert!(directory.note(&Pong { metadata: HashMap::new() }).is_none(), "another service");
        assert_eq!(directory.live().len(), 1);
    }

    #[tokio::test]
    async fn a_host_that_is_silent_is_gone() {
        let mut directory = Directory::default();
        directory.note(&pong("1", "a", "1", 1));
        assert!(!directory.sweep(Instant::now()));
        assert!(directory.sweep(Instant::now() + SILENCE) && directory.is_empty());
    }
}
