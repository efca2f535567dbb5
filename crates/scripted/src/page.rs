//! Documentation whose commands a test repeats.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::{ScriptedModel, clean_environment};

/// Longer than any command of a page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Set to have pages rewritten where they do not show what is printed.
const BLESS: &str = "TOOLBRIDGE_BLESS";

/// Starts the comment before a block that says what the model answers there.
const SCRIPT: &str = "<!-- model:";

/// Stands before a block whose command runs on until the end of the page.
const OWN_TERMINAL: &str = "<!-- a terminal of its own -->";

/// What differs each time.
const ANYTHING: &str = "…";

/// A page whose `console` blocks are run, each line after a `$` by a shell, in a home that is empty at first.
///
/// The page has to show what is printed, on stdout and stderr. `…` stands for anything in a line, and a line that
/// is nothing else for any number of lines. A command that fails has to say so, with `error: `, `Error: ` or `fail `
/// at the start of a line. `/tmp/` is the page's own temporary directory, in commands and in what they print, and
/// `/home/you` its home.
///
/// Comments say what a reader need not know: `<!-- model: … -->` before a block has the [`Script`](crate::Script)
/// that plays the model there, and `<!-- a terminal of its own -->` leaves the block's command running.
///
/// With `TOOLBRIDGE_BLESS=1`, what the page does not show rightly is written to it.
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

    /// Has `name` on the PATH.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }

    /// Has a file in the home.
    #[must_use]
    pub fn file(mut self, name: &str, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Runs `program` where a command starts with `prefix`: what cargo would build and run is built already.
    #[must_use]
    pub fn instead_of(mut self, prefix: &str, program: &str) -> Self {
        self.prefixes.push((prefix.into(), program.into()));
        self
    }

    /// Only the blocks whose first command starts so; the others are another test's.
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
        let console = blocks(&text).into_iter().map(|block| block.steps[0].command.clone());
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
        let world = World::new(&self);
        let mut text = self.text();
        let mut terminals = Vec::new();
        let (mut wrong, mut count) = (String::new(), 0);
        let mine = |block: &Block| {
            self.starts.is_empty()
                || self.starts.iter().any(|start| block.steps[0].command.starts_with(start))
        };
        let mut changes = Vec::new();
        for block in blocks(&text).into_iter().filter(mine) {
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
                assert_eq!(success, !failed, "`{}` ended otherwise than it says:\n{wrong}", step.command);
            }
        }
        terminals.into_iter().for_each(Terminal::close);
        world.nothing_is_left();
        if env::var_os(BLESS).is_some() && !changes.is_empty() {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // From the end, so that the lines before stay where they are.
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

/// `Error: ` is what `main` makes of an `Err`, `fail  WHAT: …` a line of `toolbridge doctor`.
fn tells_of_a_failure(line: &str) -> bool {
    line.starts_with("error: ")
        || line.starts_with("Error: ")
        || line.starts_with("fail  ") && line.contains(": ")
}

/// Whether lines with gaps are what was printed.
#[must_use]
pub fn shows(shown: &[&str], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&ANYTHING, rest)) => (0..=printed.len()).any(|skipped| shows(rest, &printed[skipped..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(first, more)| line_shows(line, first) && shows(rest, more))
        }
    }
}

fn line_shows(line: &str, printed: &str) -> bool {
    let mut parts = line.split(ANYTHING);
    let Some(mut left) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(before) = last.replace(part) {
            let Some((_, after)) = left.split_once(before) else { return false };
            left = after;
        }
    }
    last.map_or(left.is_empty(), |last| left.ends_with(last))
}

/// A printed line for a page: what will differ the next time is left open.
fn with_gaps(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let is_unit = matches!(words[index].trim_end_matches([',', ';']), "ms" | "µs" | "s");
        if is_unit && words[index - 1].parse::<f64>().is_ok() {
            words[index - 1] = ANYTHING.into();
        }
    }
    let line = words.join(" ");
    let mut kept = String::new();
    let mut run = String::new();
    for character in line.chars().chain(['\n']) {
        if character.is_ascii_hexdigit() {
            run.push(character);
            continue;
        }
        kept.push_str(if run.len() == 32 { ANYTHING } else { &run });
        run.clear();
        kept.push(character);
    }
    kept.pop();
    kept
}

struct Block {
    script: Option<String>,
    stays: bool,
    steps: Vec<Step>,
}

struct Step {
    command: String,
    /// The line of the command, from 1: where what it shows begins, from 0.
    line: usize,
    shown: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut script, mut stays) = (None::<String>, false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(start) = line.strip_prefix(SCRIPT) {
            let mut said = start.to_owned();
            while !said.contains("-->") {
                let (_, more) =
                    lines.next().unwrap_or_else(|| panic!("the comment of line {} ends", number + 1));
                said = said + "\n" + more;
            }
            script = Some(said.replace("-->", ""));
        } else if line == OWN_TERMINAL {
            stays = true;
        } else if line == "```console" {
            let mut steps: Vec<Step> = Vec::new();
            for (number, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
                if let Some(command) = line.strip_prefix("$ ") {
                    let command = command.split("  # ").next().unwrap_or_default().trim_end().to_owned();
                    steps.push(Step { command, line: number + 1, shown: vec![] });
                } else {
                    let step = steps.last_mut().unwrap_or_else(|| panic!("line {}: no `$ ` yet", number + 1));
                    step.shown.push(line.to_owned());
                }
            }
            assert!(!steps.is_empty(), "the block of line {} has no command", number + 1);
            found.push(Block { script: script.take(), stays, steps });
            stays = false;
        }
    }
    found
}

/// Where the commands of a page run.
struct World {
    root: TempDir,
}

impl World {
    fn new(page: &Page) -> Self {
        let world = Self { root: TempDir::new().expect("a temporary directory") };
        for folder in [world.home(), world.temp(), world.bin()] {
            fs::create_dir(folder).expect("a folder");
        }
        for (name, path) in &page.programs {
            assert!(path.is_file(), "there is no program `{}`", path.display());
            symlink(path, world.bin().join(name)).expect("a link");
        }
        for (name, text) in &page.files {
            fs::write(world.home().join(name), text).expect("a file");
        }
        world
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn temp(&self) -> PathBuf {
        self.root.path().join("tmp")
    }

    fn bin(&self) -> PathBuf {
        self.root.path().join("bin")
    }

    fn shell(&self, command: &str, model: Option<&ScriptedModel>) -> Command {
        // Without a model nothing may answer: port 1 refuses.
        let url = model.map_or_else(|| "http://127.0.0.1:1".into(), ScriptedModel::url);
        let path = format!("{}:{}", self.bin().display(), env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1; {command}"));
        shell.env_clear().envs(clean_environment(&self.home(), &url));
        shell.env("PATH", path).env("TMPDIR", self.temp()).current_dir(self.home());
        shell.stdout(Stdio::piped());
        shell
    }

    /// What a command prints, and whether it says that it went well.
    fn run(&self, command: &str, model: Option<&ScriptedModel>) -> (String, bool) {
        let mut shell = self.shell(command, model);
        let output = within_patience(command, move || shell.stdin(Stdio::null()).output());
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    /// Starts a command that goes on, and waits for its first lines.
    fn start(&self, command: &str, model: Option<&ScriptedModel>, lines: usize) -> (Terminal, String) {
        let mut child = self.shell(command, model).stdin(Stdio::piped()).spawn().expect("a shell");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (printed, stdout) = within_patience(command, move || {
            let mut printed = String::new();
            for _ in 0..lines.max(1) {
                stdout.read_line(&mut printed)?;
            }
            Ok((printed, stdout))
        });
        (Terminal { command: command.into(), child: Some(child), _stdout: stdout }, printed)
    }

    /// What was printed, by lines, with the paths that a reader would see.
    fn tidy(&self, printed: &str) -> Vec<String> {
        let home = self.home().display().to_string();
        let temp = self.temp().display().to_string();
        let bin = self.bin().display().to_string();
        let printed =
            printed.replace(&home, "/home/you").replace(&temp, "/tmp").replace(&bin, "/usr/local/bin");
        printed.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    fn nothing_is_left(&self) {
        let names = fs::read_dir(self.temp()).expect("the temporary directory").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left: Vec<_> = names.filter(|name| name.starts_with("claudecode_ipc")).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// A command that goes on until its stdin ends.
struct Terminal {
    command: String,
    child: Option<Child>,
    /// Whoever prints to nobody is ended by it.
    _stdout: BufReader<ChildStdout>,
}

impl Terminal {
    fn close(mut self) {
        if let Some(mut child) = self.child.take() {
            // Waiting closes stdin first.
            within_patience(&self.command, move || child.wait());
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

fn within_patience<T: Send + 'static>(
    command: &str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> T {
    let (done, answer) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    match answer.recv_timeout(PATIENCE) {
        Ok(result) => result.unwrap_or_else(|error| panic!("`{command}`: {error}")),
        Err(error) => panic!("`{command}` has not ended within {PATIENCE:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stand_for_anything_and_nothing_else_does() {
        let rows: [(&[&str], &str, bool); 12] = [
            (&["a"], "a", true),
            (&["a"], "b", false),
            (&["a"], "a\nb", false),
            (&["a", "b"], "a", false),
            (&["took … ms, … times"], "took 1.5 ms, 3 times", true),
            (&["took … ms"], "took 1.5 s", false),
            (&["…end"], "endless end", true),
            (&["a…a"], "a", false),
            (&["…"], "", true),
            (&["a", "…", "d"], "a\nb\nc\nd", true),
            (&["a", "…", "d"], "a\nb\nc", false),
            (&[], "a", false),
        ];
        for (shown, printed, want) in rows {
            let lines: Vec<_> = printed.lines().map(str::to_owned).collect();
            assert_eq!(shows(shown, &lines), want, "{shown:?} {printed:?}");
        }
    }

    #[test]
    fn a_page_is_run_and_what_it_does_not_show_is_found() {
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
            thread::spawn(move || Page::new(path).repeat()).join().expect_err("it is not so");
        }
    }

    #[test]
    fn ids_and_times_are_left_open() {
        let line = "took 1.5 ms, id 0123456789abcdef0123456789abcdef, 17 tools";
        assert_eq!(with_gaps(line), "took … ms, id …, 17 tools");
    }
}
