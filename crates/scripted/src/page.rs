//! Documentation whose commands a test runs again.
//!
//! Not trycmd, which has no shell, no background processes and no model for a command.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::ScriptedModel;
use crate::console::{Console, consoles};
use crate::gap::{shows, with_gaps};
use crate::world::{Terminal, World};

/// Set to rewrite pages that do not show the actual output.
const BLESS: &str = "TOOLBRIDGE_BLESS";

/// A page whose `console` blocks are run, each line after a `$` by a shell, in a home that is empty at first.
///
/// The page has to show the output on stdout and stderr. `…` matches anything in a line, and a line that
/// consists of it matches any number of lines. A command that fails has to print `error: `, `Error: ` or
/// `fail  ` at the start of a line. `/tmp/` is the page's own temporary directory, in commands and in output,
/// and `/home/you` its home.
///
/// Comments contain what a reader need not see: `<!-- model: … -->` before a block has the
/// [`Script`](crate::Script) of the model there, and `<!-- a terminal of its own -->` keeps the block's
/// command running.
///
/// With `TOOLBRIDGE_BLESS=1`, wrong output on the page is replaced; that run still fails, so that the change
/// is reviewed.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    programs: Vec<(String, PathBuf)>,
    files: Vec<(String, String)>,
    prefixes: Vec<(String, String)>,
    starts: Vec<String>,
}

impl Page {
    /// The page at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), programs: vec![], files: vec![], prefixes: vec![], starts: vec![] }
    }

    /// Puts `name` on the PATH.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }

    /// Puts a file into the home.
    #[must_use]
    pub fn file(mut self, name: &str, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Runs `program` instead of `prefix` in commands: what cargo would build is already built.
    #[must_use]
    pub fn instead_of(mut self, prefix: &str, program: &str) -> Self {
        self.prefixes.push((prefix.into(), program.into()));
        self
    }

    /// Only the blocks whose first command starts with one of these; other tests run the others.
    #[must_use]
    pub fn only(mut self, starts: &[&str]) -> Self {
        self.starts.extend(starts.iter().map(|start| (*start).to_owned()));
        self
    }

    /// The first command of each `console` block, and each line of the `sh` blocks, which no test runs.
    ///
    /// # Panics
    ///
    /// If the page cannot be read.
    #[must_use]
    pub fn commands(&self) -> (Vec<String>, Vec<String>) {
        let text = self.text();
        let console = consoles(&text).into_iter().map(|block| block.steps[0].command.clone());
        let mut in_sh = false;
        let sh = text.lines().filter(|line| {
            let was = in_sh;
            in_sh = if was { *line != "```" } else { *line == "```sh" };
            was && in_sh
        });
        (console.collect(), sh.map(str::to_owned).collect())
    }

    /// Runs the page's commands, and returns how many those were.
    ///
    /// # Panics
    ///
    /// At the end, if the page does not show what they printed.
    #[must_use]
    pub fn repeat(self) -> usize {
        let world = World::new(&self.programs, &self.files);
        let mut text = self.text();
        let mut terminals = Vec::new();
        let (mut wrong, mut count) = (String::new(), 0);
        let mine = |block: &Console| {
            self.starts.is_empty()
                || self.starts.iter().any(|start| block.steps[0].command.starts_with(start))
        };
        let mut changes = Vec::new();
        for block in consoles(&text).into_iter().filter(mine) {
            let model = block.script.map(ScriptedModel::start);
            for step in block.steps {
                let command = self.prepare(&step.command, &world);
                let (printed, success) = if block.stays {
                    let (terminal, printed) = world.start(&command, model.as_ref(), step.shown.len());
                    terminals.push(terminal);
                    (printed, true)
                } else {
                    world.run(&command, model.as_ref())
                };
                count += 1;
                let printed = world.tidy(&printed);
                let failed = printed.iter().any(|line| tells_of_a_failure(line));
                let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
                if !shows(&shown, &printed) {
                    _ = writeln!(
                        wrong,
                        "line {}: $ {}\n--- shown\n{}\n--- printed\n{}\n---",
                        step.line,
                        step.command,
                        shown.join("\n"),
                        printed.join("\n")
                    );
                    changes.push((step.line, shown.len(), printed));
                }
                assert_eq!(success, !failed, "`{}` does not end as its output says:\n{wrong}", step.command);
            }
        }
        terminals.into_iter().for_each(Terminal::close);
        world.nothing_is_left();
        if env::var_os(BLESS).is_some() && !changes.is_empty() {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // From the end, so that earlier line numbers stay valid.
            for (line, length, printed) in changes.into_iter().rev() {
                lines.splice(line..line + length, printed.into_iter().map(|line| with_gaps(&line)));
            }
            text = lines.join("\n") + "\n";
            fs::write(&self.path, text).expect("the page can be written");
        }
        assert!(
            wrong.is_empty(),
            "{} does not show what is printed; {BLESS}=1 rewrites it.\n{wrong}",
            self.path.display()
        );
        count
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    fn prepare(&self, command: &str, world: &World) -> String {
        let replaced = self.prefixes.iter().find_map(|(prefix, program)| {
            command.strip_prefix(prefix.as_str()).map(|rest| format!("{program}{rest}"))
        });
        let command = replaced.unwrap_or_else(|| command.to_owned());
        command.replace("/tmp/", &format!("{}/", world.temp().display()))
    }
}

/// `Error: ` is what `main` prints for an `Err`, `fail  WHAT: …` a line of `toolbridge doctor`.
fn tells_of_a_failure(line: &str) -> bool {
    line.starts_with("error: ")
        || line.starts_with("Error: ")
        || line.starts_with("fail  ") && line.contains(": ")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_page_is_run_and_wrong_output_is_found() {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("page.md");
        let page = "```sh\nlogin\n```\n```console\n$ echo one > f; cat f  # a comment\none\n$ echo $TMPDIR/x; echo 5 ms\n/tmp/x\n… ms\n```\n";
        fs::write(&path, page).expect("a file");
        assert_eq!(Page::new(&path).repeat(), 2);
        let (console, sh) = Page::new(&path).commands();
        assert_eq!((console, sh), (vec!["echo one > f; cat f".into()], vec!["login".into()]));
        assert_eq!(Page::new(&path).only(&["ls"]).repeat(), 0);
        for wrong in
            [page.replace("\none", "\ntwo"), page.replace("\none", ""), page.replace("cat f", "false")]
        {
            fs::write(&path, wrong).expect("a file");
            let path = path.clone();
            thread::spawn(move || Page::new(path).repeat()).join().expect_err("the page is wrong");
        }
    }
}
