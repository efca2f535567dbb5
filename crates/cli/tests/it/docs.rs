//! `toolbridge docs` as an MCP server, and the document tools under a model in the real CLI.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::docs::DocumentsBuilder;
use toolbridge_scripted::{Block, ModelRequest, ScriptedModel, Turn, claude_cli, clean_environment, one_of};

use crate::support::{McpClient, PATIENCE, files, run, toolbridge};

/// The manuals of the repository, copied to a temporary workspace.
fn workspace() -> TempDir {
    let dir = TempDir::new().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace");
    let copied = Command::new("cp").arg("-r").arg(source.join(".")).arg(dir.path()).status().unwrap();
    assert!(copied.success());
    dir
}

/// The variables that settings are read from.
fn variables() -> Vec<String> {
    let names = RefCell::new(Vec::new());
    _ = DocumentsBuilder::from_vars(|name| {
        names.borrow_mut().push(name.to_owned());
        None
    })
    .unwrap();
    names.into_inner()
}

fn docs(workspace: &Path) -> Command {
    let mut command = toolbridge();
    for name in variables() {
        command.env_remove(name);
    }
    command.arg("docs").arg("--workspace").arg(workspace);
    command
}

fn serving(command: Command) -> McpClient {
    let mut client = McpClient::start_command(command);
    client.initialize();
    client
}

fn tools(client: &mut McpClient) -> Vec<String> {
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The structured content of a call, which must equal its text.
#[track_caller]
fn answer(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let answer = client.call(tool, arguments);
    let result = &answer["result"];
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"], "{answer}");
    result["structuredContent"].clone()
}

/// The section about rinsing, as in its file.
fn rinse(workspace: &Path) -> String {
    let text = std::fs::read_to_string(workspace.join("manuals/espresso-machine/guide.md")).unwrap();
    let (start, end) = (text.find("## Rinse").unwrap(), text.find("# Make a coffee").unwrap());
    text[start..end].to_owned()
}

/// The size that every conversation pays for.
#[test]
fn the_tools_are_described_in_ten_kilobytes() {
    let workspace = workspace();
    let mut client = serving(docs(workspace.path()));
    client.start_request("tools/list", json!({}));
    let line = client.receive_line();
    assert!(line.contains("\"vault_undo\"") && line.len() <= 10_000, "{} bytes: {line}", line.len());
}

#[test]
fn a_section_is_found_and_copied_by_any_client() {
    let workspace = workspace();
    let mut client = serving(docs(workspace.path()));
    assert_eq!(tools(&mut client).len(), 14);
    let found = answer(&mut client, "manual_find", json!({ "query": "rinse before the first coffee" }));
    assert_eq!(found["items"][0]["title"], "Rinse", "{found}");
    let copied = answer(
        &mut client,
        "bridge_copy_section",
        json!({ "from_ref": found["items"][0]["ref"], "to_path": "notes/rinse.md", "mode": "overwrite" }),
    );
    let bytes = std::fs::read(workspace.path().join("vault/notes/rinse.md")).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), rinse(workspace.path()));
    assert_eq!(copied["written_bytes"], rinse(workspace.path()).len());
    let refused = answer(&mut client, "vault_read", json!({ "path": "../manuals/x.md" }));
    assert_eq!(refused["code"], "invalid_path");

    client.end_input();
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
    let log = client.stderr();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = lines.iter().map(|line| (&line["tool"], &line["ok"])).collect();
    let want = [("manual_find", true), ("bridge_copy_section", true), ("vault_read", false)];
    assert_eq!(json!(seen), json!(want), "{log}");
    assert_eq!(lines[1]["written_path"], "notes/rinse.md");
    assert!(!log.contains("two cups"), "{log}");
}

#[test]
fn signals_end_it_and_read_only_offers_no_writing_tool() {
    let workspace = workspace();
    let mut command = docs(workspace.path());
    command.arg("--read-only");
    let mut client = serving(command);
    let names = tools(&mut client);
    let want = [
        "manual_find",
        "manual_list",
        "manual_ls",
        "manual_read",
        "manual_toc",
        "vault_find",
        "vault_ls",
        "vault_read",
    ];
    let mut sorted = names;
    sorted.sort();
    assert_eq!(sorted, want);
    client.bridge.signal(Signal::TERM);
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}

#[test]
fn init_creates_missing_folders_and_a_missing_root_is_an_error() {
    let dir = TempDir::new().unwrap();
    let (code, stdout, stderr) = run(&mut docs(&dir.path().join("none")));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: ") && stderr.contains("notes folder"), "{stderr}");
    assert!(stderr.contains("\nhint: ") && stderr.contains("--init"), "{stderr}");

    let (code, stdout, stderr) = run(docs(dir.path()).arg("--init"));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert_eq!(files(dir.path()), ["manuals", "vault"]);
    let (manuals, vault) = (dir.path().join("manuals"), dir.path().join("vault"));
    let (manuals, vault) = (manuals.display(), vault.display());
    assert_eq!(stderr, format!("created `{manuals}`, `{vault}`, `{manuals}/getting-started/guide.md`\n"));
    let again = || run(docs(dir.path()).arg("--init"));
    let nothing = format!("`{manuals}` and `{vault}` exist already; nothing was changed\n");
    assert_eq!(again(), (0, String::new(), nothing));
    std::fs::remove_dir(dir.path().join("vault")).unwrap();
    assert_eq!(again(), (0, String::new(), format!("created `{vault}`\n")));
    let mut client = serving(docs(dir.path()));
    let listed = answer(&mut client, "manual_list", json!({}));
    assert_eq!(listed["items"], json!([{ "manual_id": "getting-started" }]));
}

#[test]
fn flags_override_the_environment_and_invalid_values_are_named() {
    let workspace = workspace();
    let mut command = docs(workspace.path());
    command.env("WORKSPACE_ROOT", "/nowhere").env("LOG_LEVEL", "info").args(["--log-level", "error"]);
    let mut client = serving(command);
    answer(&mut client, "manual_list", json!({}));
    client.end_input();
    client.bridge.wait_within(PATIENCE);
    assert_eq!(client.stderr(), "");

    let (code, _, stderr) = run(docs(workspace.path()).env("ALLOW_FILE_SCOPE", "maybe"));
    assert!(code == 1 && stderr.contains("ALLOW_FILE_SCOPE") && stderr.contains("maybe"), "{stderr}");
    let (code, _, stderr) = run(docs(workspace.path()).args(["--hard-max-chars", "0"]));
    assert!(code == 1 && stderr.contains('0'), "{stderr}");
    let (code, _, stderr) = run(docs(workspace.path()).args(["--daily", "../daily"]));
    assert!(code == 1 && stderr.contains("`../daily`") && stderr.contains("such as `journal`"), "{stderr}");
    let mut command = docs(workspace.path());
    command.env("DOCS_DAILY", "off").args(["--daily", "journal"]);
    let mut client = serving(command);
    for (path, code) in [("journal/plan.md", json!("forbidden")), ("daily/plan.md", Value::Null)] {
        assert_eq!(
            answer(&mut client, "vault_create", json!({ "path": path, "content": "x" }))["code"],
            code
        );
    }
    let (code, _, stderr) = run(docs(workspace.path()).args(["--log-level", "loud"]));
    assert!(code == 2 && stderr.contains("`error`, `warn` or `info`"), "{stderr}");
}

#[test]
fn the_help_names_every_variable_that_is_read() {
    let (code, help, _) = run(toolbridge().args(["docs", "--help"]));
    assert_eq!(code, 0);
    for name in variables() {
        assert!(
            help.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').any(|word| word == name),
            "{name}: {help}"
        );
    }
}

/// A folder as Obsidian keeps it: front matter, tags, wiki links, attachments, settings, daily notes.
fn obsidian() -> TempDir {
    let dir = TempDir::new().unwrap();
    for (path, text) in [
        (
            "Home.md",
            "---\ntags: [start]\n---\n\n# Home\n\nSee [[Garden/Tomatoes|tomatoes]] and ![[plan.png]].\n",
        ),
        (
            "Garden/Tomatoes.md",
            "---\naliases: [Tomato]\n---\n# Tomatoes\n\nWater them. #garden\n\n## Pests\n\nAphids, see [[Home]].\n",
        ),
        ("Daily/2025-01-31.md", "# Friday\n\n- [ ] buy seeds\n"),
        ("attachments/plan.png", "a picture"),
        (".obsidian/workspace.json", "{\"secret\":\"aphids\"}"),
    ] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// `toolbridge docs DIR`, without any other setting.
fn on(dir: &Path) -> Command {
    let mut command = toolbridge();
    for name in variables() {
        command.env_remove(name);
    }
    command.arg("docs").arg(dir);
    command
}

#[test]
fn a_folder_of_notes_is_read_and_written_as_it_is() {
    let notes = obsidian();
    let before = files(notes.path());
    let mut client = serving(on(notes.path()));
    assert_eq!(tools(&mut client).len(), 14);
    let listed = answer(&mut client, "manual_list", json!({}));
    let manuals = [".", "Daily", "Garden", "attachments"].map(|id| json!({ "manual_id": id }));
    assert_eq!(listed["items"], json!(manuals));
    let found = answer(&mut client, "manual_find", json!({ "query": "aphids" }));
    assert_eq!((&found["total"], &found["items"][0]["title"]), (&json!(1), &json!("Pests")), "{found}");
    let home = answer(&mut client, "manual_find", json!({ "query": "tomatoes plan", "manual_id": "." }));
    assert!(home["items"][0]["ref"].as_str().unwrap().starts_with("./Home.md#L5~"), "{home}");
    for (from, to, mode) in [
        (&found["items"][0]["ref"], "Daily/2025-01-31.md", "append"),
        (&home["items"][0]["ref"], "Garden/Start.md", "overwrite"),
        // To the end of the note that it is taken from.
        (&found["items"][0]["ref"], "Garden/Tomatoes.md", "append"),
    ] {
        let copy = json!({ "from_ref": from, "to_path": to, "mode": mode });
        let copied = answer(&mut client, "bridge_copy_section", copy);
        assert_eq!((&copied["written_path"], &copied["truncated"]), (&json!(to), &json!(false)), "{copied}");
    }
    let text = |path: &str| std::fs::read_to_string(notes.path().join(path)).unwrap();
    let pests = "## Pests\n\nAphids, see [[Home]].\n";
    assert_eq!(text("Daily/2025-01-31.md"), format!("# Friday\n\n- [ ] buy seeds\n{pests}"));
    assert_eq!(text("Garden/Start.md"), "# Home\n\nSee [[Garden/Tomatoes|tomatoes]] and ![[plan.png]].\n");
    let tomatoes = "---\naliases: [Tomato]\n---\n# Tomatoes\n\nWater them. #garden\n\n";
    assert_eq!(text("Garden/Tomatoes.md"), format!("{tomatoes}{pests}{pests}"));
    let settings = answer(&mut client, "vault_read", json!({ "path": ".obsidian/workspace.json" }));
    assert_eq!(settings["code"], "forbidden");
    // Nothing was overwritten, so nothing is kept, and nothing else was made.
    let mut want = before;
    assert_eq!(files(notes.path()), want);
    let write = json!({ "path": "Home.md", "content": "# Gone\n", "mode": "overwrite" });
    answer(&mut client, "vault_write", write);
    answer(&mut client, "vault_undo", json!({ "path": "Home.md" }));
    assert!(text("Home.md").contains("![[plan.png]]"));
    want.push(".system".into());
    want.sort();
    assert_eq!(files(notes.path()), want);
    client.end_input();
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
    assert!(!client.stderr().contains("Aphids"));
}

#[test]
fn a_folder_is_named_once_and_must_exist() {
    let notes = obsidian();
    let (code, _, stderr) = run(on(notes.path()).arg("--workspace").arg(notes.path()));
    assert!(code == 2 && stderr.contains("--workspace"), "{stderr}");
    let (code, _, stderr) = run(&mut on(&notes.path().join("none")));
    assert!(code == 1 && stderr.contains("does not exist") && stderr.contains("\nhint: "), "{stderr}");
    // Never the current folder without being asked.
    let (code, _, stderr) = run(toolbridge().arg("docs").current_dir(notes.path()));
    assert!(code == 1 && stderr.contains("toolbridge docs ~/notes"), "{stderr}");
    let workspace = workspace();
    let mut client = serving(on(workspace.path()));
    let listed = answer(&mut client, "manual_list", json!({}));
    assert_eq!(listed["items"][0]["manual_id"], "espresso-machine", "a workspace is one here too");
}

/// A scripted model: finds the section, has it copied, and stops.
fn librarian(request: &ModelRequest) -> Turn {
    let result = |place: &str| {
        let results = request.tool_results();
        let found: Value = serde_json::from_str(&results[0].text()).unwrap_or_default();
        found.pointer(place).cloned().unwrap_or_default()
    };
    match request.turn() {
        0 => Turn::blocks(vec![Block::call(
            "mcp__tools__manual_find",
            json!({ "query": "descale E4 citric acid" }),
        )]),
        1 => {
            let from = result("/items/0/ref");
            let copy = json!({ "from_ref": from, "to_path": "descale.md", "mode": "overwrite" });
            Turn::blocks(vec![Block::call("mcp__tools__bridge_copy_section", copy)])
        }
        _ => Turn::text(format!("copied {} bytes", result("/written_bytes"))),
    }
}

#[test]
fn a_model_has_a_section_copied_and_never_sees_it() {
    for transport in one_of(&["stdio", "sdk"]) {
        let (model, home, workspace) =
            (ScriptedModel::start_with(librarian), TempDir::new().unwrap(), workspace());
        let temp = home.path().join("tmp");
        std::fs::create_dir(&temp).unwrap();
        let mut command = toolbridge();
        command.env_clear().envs(clean_environment(home.path(), &model.url())).env("TMPDIR", &temp);
        command.current_dir(home.path()).args(["ask", "go", "--tools", "docs", "--json"]);
        command.args(["--transport", transport, "--claude"]).arg(claude_cli());
        command.arg("--workspace").arg(workspace.path());
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let copied = std::fs::read_to_string(workspace.path().join("vault/descale.md")).unwrap();
        let manual: PathBuf = workspace.path().join("manuals/espresso-machine/maintenance.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        assert!(manual.contains(&copied) && copied.lines().count() > 3, "{copied}");
        let printed: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(printed["text"], format!("copied {} bytes", copied.len()));

        // Only the snippet that `manual_find` shows may have reached the model: a part of a line.
        let (_, body) = copied.trim_end().split_once("\n\n").unwrap();
        let requests = model.requests();
        assert_eq!(requests.len(), 3);
        let seen = requests.iter().map(|request| request.body.to_string()).chain([stdout, stderr]);
        for seen in seen {
            assert!(!seen.contains(json!(body).as_str().unwrap()), "the section reached the model");
            assert!(!seen.contains(&body[body.len() / 2..]), "half of the section reached the model");
        }
        let answer = requests[2].tool_results()[0].text();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let mut keys: Vec<_> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["title", "truncated", "written_bytes", "written_path", "written_sections"]);
    }
}
