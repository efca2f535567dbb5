//! The environment in which the commands of a page run.

use std::env;
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

/// A temporary home, temporary directory and PATH.
pub(crate) struct World {
    root: TempDir,
}

impl World {
    /// An empty one, with these programs on the PATH and these files in the home.
    pub(crate) fn new(programs: &[(String, PathBuf)], files: &[(String, String)]) -> Self {
        let world = Self { root: TempDir::new().expect("a temporary directory") };
        for folder in [world.home(), world.temp(), world.bin()] {
            fs::create_dir(folder).expect("a folder");
        }
        for (name, path) in programs {
            assert!(path.is_file(), "there is no program `{}`", path.display());
            symlink(path, world.bin().join(name)).expect("a link");
        }
        for (name, text) in files {
            fs::write(world.home().join(name), text).expect("a file");
        }
        world
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The directory that is `/tmp` on the page.
    pub(crate) fn temp(&self) -> PathBuf {
        self.root.path().join("tmp")
    }

    fn bin(&self) -> PathBuf {
        self.root.path().join("bin")
    }

    fn shell(&self, command: &str, model: Option<&ScriptedModel>) -> Command {
        // Without a model, no server may answer: port 1 refuses.
        let url = model.map_or_else(|| "http://127.0.0.1:1".into(), ScriptedModel::url);
        let path = format!("{}:{}", self.bin().display(), env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1; {command}"));
        shell.env_clear().envs(clean_environment(&self.home(), &url));
        shell.env("PATH", path).env("TMPDIR", self.temp()).current_dir(self.home());
        shell.stdout(Stdio::piped());
        shell
    }

    /// The output of a command, and whether it succeeded.
    pub(crate) fn run(&self, command: &str, model: Option<&ScriptedModel>) -> (String, bool) {
        let mut shell = self.shell(command, model);
        let output = within_patience(command, move || shell.stdin(Stdio::null()).output());
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    /// Starts a command that keeps running, and waits for its first lines.
    pub(crate) fn start(
        &self,
        command: &str,
        model: Option<&ScriptedModel>,
        lines: usize,
    ) -> (Terminal, String) {
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

    /// The printed lines, with the paths that a reader would see.
    pub(crate) fn tidy(&self, printed: &str) -> Vec<String> {
        let paths = [(self.home(), "/home/you"), (self.temp(), "/tmp"), (self.bin(), "/usr/local/bin")];
        let replace =
            |text: String, (path, shown): (PathBuf, &str)| text.replace(&*path.to_string_lossy(), shown);
        let printed = paths.into_iter().fold(printed.to_owned(), replace);
        printed.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Panics if a session left its files behind.
    pub(crate) fn nothing_is_left(&self) {
        let names = fs::read_dir(self.temp()).expect("the temporary directory").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left: Vec<_> = names.filter(|name| name.starts_with("claudecode_ipc")).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// A command that runs until its stdin ends.
pub(crate) struct Terminal {
    command: String,
    child: Option<Child>,
    /// Kept open: a write to a closed stdout would end the command.
    _stdout: BufReader<ChildStdout>,
}

impl Terminal {
    /// Closes its stdin, and waits for its end.
    pub(crate) fn close(mut self) {
        if let Some(mut child) = self.child.take() {
            // `wait` closes stdin first.
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
