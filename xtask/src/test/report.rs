//! Reports while parts run, and at the end.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use xtask::project::Project;

/// How a part ended.
pub(crate) enum Outcome {
    Passed,
    Failed(Error),
}

impl Outcome {
    pub(crate) fn of(done: Result<()>) -> Self {
        done.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

/// Where a part's commands write: to stdout and stderr if it is the only part, otherwise to a file.
pub(crate) struct Output(Option<File>);

impl Output {
    /// Runs a command that must succeed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        if let Some(file) = &self.0 {
            command.stdout(file.try_clone()?).stderr(file.try_clone()?);
        }
        let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
        ensure!(status.success(), "{} failed with {status}", shown(command));
        Ok(())
    }

    /// Runs a command that must succeed, and print nothing on stderr.
    pub(crate) fn run_without_warning(&self, command: &mut Command) -> Result<()> {
        let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
        match &self.0 {
            Some(file) => (&*file).write_all(&done.stderr)?,
            None => std::io::stderr().write_all(&done.stderr)?,
        }
        ensure!(done.status.success(), "{} failed with {}", shown(command), done.status);
        ensure!(done.stderr.is_empty(), "{} has warnings", shown(command));
        Ok(())
    }
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    format!("`{program} {}`", words.join(" "))
}

/// All parts of a run.
pub(crate) struct Report {
    folder: PathBuf,
    count: usize,
    started: Instant,
    ended: Mutex<Vec<(String, Duration, Option<Error>)>>,
}

impl Report {
    /// Starts a run of `count` parts, and removes the output of the last run.
    pub(crate) fn begin(project: &Project, count: usize) -> Result<Self> {
        let folder = project.target.join("test");
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
        Ok(Self { folder, count, started: Instant::now(), ended: Mutex::default() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Where the commands of a part write.
    pub(crate) fn output(&self, name: &str) -> Result<Output> {
        let file = (self.count > 1).then(|| File::create(self.file(name))).transpose()?;
        Ok(Output(file))
    }

    /// Reports the start of a part.
    pub(crate) fn begin_part(&self, name: &str, what: &str) -> Result<Output> {
        eprintln!("{:>5}   {name}: {what}", seconds(self.started.elapsed()));
        self.output(name)
    }

    /// Reports how a part ended, and shows the output if it failed.
    pub(crate) fn ended(&self, name: &str, took: Duration, outcome: Outcome) {
        let at = seconds(self.started.elapsed());
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let error = match outcome {
            Outcome::Passed => {
                eprintln!("{at:>5} {} {name}: {}", paint("✓", 32), seconds(took));
                None
            }
            Outcome::Failed(error) => {
                let said = std::fs::read(self.file(name)).unwrap_or_default();
                eprintln!("{at:>5} {} {name}: {error:#}", paint("✗", 31));
                eprint!("{}", String::from_utf8_lossy(&said));
                Some(error)
            }
        };
        ended.push((name.to_owned(), took, error));
    }

    /// Prints the summary; returns whether all parts passed.
    pub(crate) fn finish(&self, skipped: &[String]) -> bool {
        eprintln!("\n{}", self.summary(skipped));
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().all(|(_, _, error)| error.is_none())
    }

    /// The times, the failures, the skipped tests with their reasons, and the counts.
    pub(crate) fn summary(&self, skipped: &[String]) -> String {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for (name, took, error) in &*ended {
            let mark = if error.is_none() { "" } else { "  failed" };
            lines.push(format!("  {name:<14} {:>6}{mark}", seconds(*took)));
        }
        lines.push(format!("  {:<14} {:>6}\n", "together", seconds(self.started.elapsed())));
        let failed: Vec<_> =
            ended.iter().filter_map(|(name, _, error)| Some((name, error.as_ref()?))).collect();
        for (name, error) in &failed {
            lines.push(format!("{name}: {error:#}"));
            // A part that ran alone has none: its output was shown.
            let file = Some(self.file(name)).filter(|file| file.exists());
            lines.extend(file.map(|file| format!("  its output: {}", file.display())));
        }
        if !skipped.is_empty() {
            lines.push("skipped tests:".to_owned());
            lines.extend(skipped.iter().map(|test| format!("  {test}")));
        }
        let tests = if skipped.len() == 1 { "test" } else { "tests" };
        let (passed, failed) = (ended.len() - failed.len(), failed.len());
        lines.push(format!("parts: {passed} passed, {failed} failed; {} {tests} skipped", skipped.len()));
        lines.join("\n")
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn paint(text: &str, colour: u8) -> String {
    if std::io::stderr().is_terminal() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}
