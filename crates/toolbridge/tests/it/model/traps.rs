//! A home and a project full of content that a model must not get by default.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::support::World;

/// Words in files of the user and the project; none of them may reach the model.
const MARKS: [&str; 12] = [
    "MARK-PROJECT-MEMORY",
    "MARK-LOCAL-MEMORY",
    "MARK-PROJECT-RULE",
    "MARK-USER-MEMORY",
    "MARK-SKILL",
    "MARK-COMMAND",
    "MARK-AGENT",
    "MARK-STYLE",
    "MARK-UNTRACKED",
    "MARK-FILE",
    "mcp__project__",
    "mcp__user__",
];

pub(crate) struct Traps {
    pub(crate) project: PathBuf,
    sprung: PathBuf,
    /// Not below the home: the CLI treats the parents of a project as part of it.
    _place: TempDir,
}

impl Traps {
    /// Creates the traps in the world's home and in a project.
    pub(crate) fn new(world: &World) -> Self {
        let home = world.home.path();
        let place = TempDir::new().unwrap();
        let (project, sprung) = (place.path().join("project"), place.path().join("sprung"));
        let traps = Self { project, sprung, _place: place };
        fs::create_dir(&traps.sprung).unwrap();
        for (owner, dir) in [("project", &traps.project), ("user", &home.to_owned())] {
            traps.set(owner, &dir.join(".claude"));
            let server = json!({ "command": "sh", "args": ["-c", traps.spring(&format!("{owner}-server"))] });
            let servers = json!({ "mcpServers": { owner: server } });
            let file = if owner == "user" { ".claude.json" } else { ".mcp.json" };
            write(&dir.join(file), &servers.to_string());
        }
        write(&home.join(".claude/CLAUDE.md"), "MARK-USER-MEMORY");
        for (file, mark) in [
            ("CLAUDE.md", "MARK-PROJECT-MEMORY"),
            ("CLAUDE.local.md", "MARK-LOCAL-MEMORY"),
            (".claude/rules/rule.md", "MARK-PROJECT-RULE"),
            ("MARK-UNTRACKED.txt", ""),
            ("secret.txt", "MARK-FILE"),
        ] {
            write(&traps.project.join(file), mark);
        }
        let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(&traps.project).status();
        assert!(git.unwrap().success());
        traps
    }

    fn set(&self, owner: &str, claude: &Path) {
        let hook = |event: &str| json!([{ "hooks": [{ "type": "command", "command": self.spring(&format!("{owner}-{event}")) }] }]);
        let events = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"];
        let hooks: serde_json::Map<_, _> =
            events.map(|event| (event.to_owned(), hook(event))).into_iter().collect();
        let settings = json!({
            "hooks": hooks,
            "permissions": { "allow": ["Bash", "Skill"] },
            "outputStyle": "mine",
            "enableAllProjectMcpServers": true,
        });
        write(&claude.join("settings.json"), &settings.to_string());
        let shell = format!("!`{}`", self.spring(&format!("{owner}-skill")));
        write(
            &claude.join(format!("skills/{owner}/SKILL.md")),
            &format!("---\nname: {owner}\ndescription: MARK-SKILL\n---\n{shell}\n"),
        );
        write(&claude.join("commands/order.md"), &format!("---\ndescription: MARK-COMMAND\n---\n{shell}\n"));
        write(&claude.join("agents/helper.md"), "---\nname: helper\ndescription: MARK-AGENT\n---\nHelp.\n");
        write(&claude.join("output-styles/mine.md"), "---\nname: mine\ndescription: x\n---\nMARK-STYLE\n");
    }

    /// A command that leaves a trace.
    pub(crate) fn spring(&self, name: &str) -> String {
        format!("touch {}", self.sprung.join(name).display())
    }

    /// The commands of the user and the project that ran.
    pub(crate) fn sprung(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.sprung).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The words of the user and the project that reached the model.
    pub(crate) fn seen(world: &World) -> Vec<&'static str> {
        let requests = world.scripted.requests();
        assert!(!requests.is_empty(), "the model was not asked");
        let sent: String = requests.iter().map(|request| request.body.to_string()).collect();
        MARKS.into_iter().filter(|mark| sent.contains(mark)).collect()
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The files below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Whether the CLI itself creates this file in a new home.
fn is_the_clis_own(path: &Path, home: &Path) -> bool {
    let below = path.strip_prefix(home).unwrap().to_str().unwrap();
    below == ".claude.json"
        || [".claude/backups/", ".claude/plugins/store/"].iter().any(|dir| below.starts_with(dir))
}

/// The new files in a home, without the CLI's own state.
pub(crate) fn left_in(home: &Path, before: &[PathBuf]) -> Vec<PathBuf> {
    files_below(home)
        .into_iter()
        .filter(|path| !before.contains(path) && !is_the_clis_own(path, home))
        .collect()
}
