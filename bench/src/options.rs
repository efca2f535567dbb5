//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use xtask::project::DIST;

use crate::contender::Contender;

/// Compares toolbridge with a relay that does nothing, and with others.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    /// Measure roughly, only to see that it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The cargo profile with which ours is built.
    #[arg(long, value_name = "NAME", default_value = DIST)]
    pub(crate) profile: String,
    /// Leave out the peers and the Python package, which need the network the first time.
    #[arg(long, conflicts_with = "with")]
    floor_only: bool,
    /// Only these peers.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    with: Option<Vec<Contender>>,
    /// Only these parts.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    only: Vec<Part>,
    /// How many files are searched [default: 100,000, and 1,000 with --quick].
    #[arg(long, value_name = "N")]
    pub(crate) search_files: Option<usize>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the goals of earlier runs too: files with the output of --json.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) beside: Vec<PathBuf>,
    /// Measure an earlier build too: DIR contains its `toolbridge-bridge` and `bench-parent`.
    #[arg(long, value_name = "DIR")]
    pub(crate) before: Option<PathBuf>,
    /// Draw charts into DIR.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the tables between the markers in FILE.md.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) write: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Calls,
    Start,
    Memory,
    Python,
    First,
    Growth,
    Documents,
    Search,
    Http,
    Proxy,
    Nats,
    Talk,
}

impl Options {
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// The contenders that need no environment, and the selected ones.
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        let is_wanted = |one: &Contender| match &self.with {
            Some(names) => names.contains(one),
            None => !self.floor_only,
        };
        let all = Contender::value_variants()
            .iter()
            .copied()
            .filter(|one| self.before.is_some() || !one.is_earlier());
        all.filter(|one| one.runtime.is_none() || is_wanted(one)).collect()
    }

    /// Notes on the figures for the reader.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.quick {
            notes.push("a quick run, so its figures are rough".to_owned());
        }
        let compared = self.contenders();
        let missing =
            Contender::value_variants().iter().filter(|one| !compared.contains(one) && !one.is_earlier());
        let missing: Vec<_> = missing.map(|one| one.name).collect();
        if !missing.is_empty() {
            notes.push(format!("left out, as was asked: {}", missing.join(", ")));
        }
        if Part::value_variants().iter().any(|part| !self.wants(*part)) {
            let parts = self.only.iter().filter_map(ValueEnum::to_possible_value);
            let parts: Vec<_> = parts.map(|part| part.get_name().to_owned()).collect();
            notes.push(format!("only {}, as was asked", parts.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("bench").chain(args.split_whitespace()))
    }

    #[test]
    fn omitted_parts_are_noted() {
        let all = parse("").unwrap();
        assert!(all.notes().is_empty() && all.wants(Part::Growth));
        let some = parse("--quick --floor-only --only calls,start").unwrap();
        assert_eq!(some.notes().len(), 3);
        assert!(some.wants(Part::Start) && !some.wants(Part::Growth));
        assert!(some.notes()[1].contains("fastmcp"), "{:?}", some.notes());
        assert_eq!(some.notes()[2], "only calls, start, as was asked");
    }

    #[test]
    fn unknown_options_are_errors() {
        for wrong in ["--only nothing", "--with nobody", "--svg", "--slow"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("--help").unwrap_err().exit_code(), 0);
    }

    #[test]
    fn the_native_ones_are_always_compared() {
        let native = parse("--floor-only").unwrap().contenders();
        assert_eq!(parse("--with floor").unwrap().contenders(), native);
        let some = parse("--with fastmcp").unwrap().contenders();
        assert_eq!(some.len(), native.len() + 1);
        assert!(some.contains(&Contender::FastMcp));
        let earlier = parse("--floor-only --before old").unwrap().contenders();
        assert_eq!(earlier.len(), native.len() + 2);
    }
}
