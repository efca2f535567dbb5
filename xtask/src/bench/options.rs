//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

use super::contender::Contender;

pub(crate) const USAGE: &str = "usage: cargo xtask bench [options]
  --quick           rough figures, to see that it works
  --floor-only      without the peers and the Python package, which need the network the first time
  --with A,B        of those, only these: bridge+python, python-bridge, python-mcp, fastmcp, node-sdk
  --only A,B        only these parts: calls, start, memory, python, first, growth, documents
  --json            one JSON object on stdout instead of tables
  --beside A,B      shows the goals of earlier runs too: files that hold what --json printed
  --svg DIR         draws charts into DIR
  --write FILE.md   puts the tables between the markers in FILE.md";

/// The parts that can be measured on their own.
pub(crate) const PARTS: [&str; 7] = ["calls", "start", "memory", "python", "first", "growth", "documents"];

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) json: bool,
    pub(crate) beside: Vec<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) write: Option<PathBuf>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) parts: Vec<String>,
}

impl Options {
    /// `None` when only help is wanted.
    ///
    /// # Errors
    ///
    /// When the command line is not understood.
    pub(crate) fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            quick: false,
            json: false,
            beside: Vec::new(),
            svg: None,
            write: None,
            contenders: Contender::ALL.into(),
            parts: PARTS.map(str::to_owned).into(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value\n{USAGE}"));
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--floor-only" => options.contenders = Contender::native(),
                "--with" => options.contenders = Contender::named(value()?)?,
                "--beside" => options.beside = value()?.split(',').map(PathBuf::from).collect(),
                "--svg" => options.svg = Some(value()?.into()),
                "--write" => options.write = Some(value()?.into()),
                "--only" => {
                    options.parts = value()?.split(',').map(str::to_owned).collect();
                    for part in &options.parts {
                        ensure!(PARTS.contains(&part.as_str()), "there is no part `{part}`\n{USAGE}");
                    }
                }
                "--help" | "-h" => return Ok(None),
                other => bail!("unknown option `{other}`\n{USAGE}"),
            }
        }
        Ok(Some(options))
    }

    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.iter().any(|wanted| wanted == part)
    }

    /// What a reader of the figures must know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.quick {
            notes.push("a quick run, so its figures are rough".to_owned());
        }
        let missing = Contender::ALL.into_iter().filter(|one| !self.contenders.contains(one));
        let missing: Vec<_> = missing.map(Contender::name).collect();
        if !missing.is_empty() {
            notes.push(format!("left out, as was asked: {}", missing.join(", ")));
        }
        if self.parts.len() < PARTS.len() {
            notes.push(format!("only {}, as was asked", self.parts.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Option<Options>> {
        Options::parse(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_left_out_is_said() {
        let all = parse("").unwrap().unwrap();
        assert!(all.notes().is_empty() && all.wants("growth"));
        let some = parse("--quick --floor-only --only calls,start").unwrap().unwrap();
        assert_eq!(some.notes().len(), 3);
        assert!(some.wants("start") && !some.wants("growth"));
        assert!(some.notes()[1].contains("fastmcp"), "{:?}", some.notes());
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for wrong in ["--only nothing", "--with nobody", "--svg", "--slow"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("--help").unwrap().is_none());
    }
}
