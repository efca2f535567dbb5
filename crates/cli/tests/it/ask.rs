//! `toolbridge ask` with the real CLI and a scripted model, and `toolbridge doctor`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge_scripted::{ScriptedModel, claude_cli, clean_environment, one_of, processes_of, thorough};

use crate::support::{PATIENCE, Process, eventually, files, run, toolbridge};

const ADD: &str = "text Let me | see.\ncall add {\"a\": 40, \"b\": 2}\n---\ntext The sum is {result}.";

/// `toolbridge ask` with its own home and temporary directory.
fn ask(model: &ScriptedModel, home: &TempDir, args: &[&str]) -> Command {
    let mut command = toolbridge();
    let temp = home.path().join("tmp");
    std::fs::create_dir_all(&temp).unwrap();
    command.env_clear().envs(clean_environment(home.path(), &model.url())).env("TMPDIR", temp);
    command.current_dir(home.path()).arg("ask").arg("--claude").arg(claude_cli()).args(args);
    command
}

#[track_caller]
fn nothing_is_left(home: &TempDir) {
    eventually("nothing is left", PATIENCE, || sessions(home).is_empty() && processes(home.path()) == 0);
}

/// Everything in the temporary directory: session files and request directories.
fn sessions(home: &TempDir) -> Vec<String> {
    files(&home.path().join("tmp"))
}

fn processes(home: &Path) -> usize {
    processes_of(home).count()
}

#[test]
fn the_answer_is_data_on_stdout() {
    // The default is stdio.
    for transport in if thorough() { &["auto", "sdk", "stdio"][..] } else { &["auto", "sdk"] } {
        let (model, home) = (ScriptedModel::start(ADD), TempDir::new().unwrap());
        let args = ["What is 40 + 2?", "--tools", "demo", "--transport", transport];
        let (code, stdout, stderr) = run(&mut ask(&model, &home, &args));
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "The sum is 42.\n", ""), "{transport}");
        assert!(model.requests()[0].tools().contains(&"mcp__tools__add"));
        nothing_is_left(&home);
    }
}

#[test]
fn the_model_gets_the_tools_that_were_named_and_the_prompt_as_it_is() {
    let (model, home) = (ScriptedModel::start("text ok"), TempDir::new().unwrap());
    std::fs::write(home.path().join("secret.txt"), "MARK-FILE").unwrap();
    std::fs::write(home.path().join("CLAUDE.md"), "MARK-MEMORY").unwrap();
    let ask = |args: &[&str]| {
        let (code, stdout, stderr) = run(&mut ask(&model, &home, args));
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        (stdout, model.requests().last().cloned())
    };
    let own = ["echo", "add", "wait", "write_note", "fail", "panic", "blob", "picture", "countdown"];
    let mut own = own.map(|name| format!("mcp__tools__{name}"));
    own.sort();
    for (prompt, tools) in [("see @secret.txt", &own[..]), ("/cost", &[])] {
        let args = [prompt, "--tools", "demo"];
        let (_, request) = ask(if tools.is_empty() { &args[..1] } else { &args });
        let request = request.unwrap();
        assert_eq!(
            (request.prompt().as_str(), request.tools()),
            (prompt, tools.iter().map(String::as_str).collect())
        );
        assert!(!request.body.to_string().contains("MARK-"), "{}", request.body);
    }
    assert!(!home.path().join(".claude/projects").exists(), "there is a transcript");
    nothing_is_left(&home);

    let (_, request) = ask(&["see @secret.txt", "--claude-code", "--tools", "demo"]);
    let request = request.unwrap();
    assert!(request.tools().contains(&"Bash") && request.tools().contains(&"mcp__tools__add"));
    assert!(
        request.body.to_string().contains("MARK-MEMORY") && !request.body.to_string().contains("MARK-FILE")
    );
    assert!(home.path().join(".claude/projects").exists());
    if thorough() {
        let (_, request) = ask(&["see @secret.txt", "--expand-prompts"]);
        // The CLI looks for a file named in a prompt in its working directory.
        assert!(!request.unwrap().body.to_string().contains("MARK-FILE"));
    }
    let (_, request) = ask(&["see @secret.txt", "--expand-prompts", "--claude-code"]);
    assert!(request.unwrap().body.to_string().contains("MARK-FILE"));
    let before = model.requests().len();
    let (stdout, _) = ask(&["/cost", "--expand-prompts"]);
    assert!(stdout.contains("cost") && model.requests().len() == before, "{stdout}");
}

#[test]
fn a_stream_shows_text_and_tool_calls_as_they_come() {
    let (model, home) = (ScriptedModel::start(ADD), TempDir::new().unwrap());
    let (code, stdout, stderr) = run(&mut ask(&model, &home, &["go", "--tools", "demo", "--stream"]));
    assert_eq!((code, stdout.as_str()), (0, "Let me see.\nThe sum is 42.\n"));
    assert_eq!(stderr, "→ mcp__tools__add {\"a\":40,\"b\":2}\n← 42\n");
    nothing_is_left(&home);
}

#[test]
fn json_is_one_object() {
    let (model, home) = (ScriptedModel::start(ADD), TempDir::new().unwrap());
    let (code, stdout, stderr) = run(&mut ask(&model, &home, &["go", "--tools", "demo", "--json"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["text"], "The sum is 42.");
    let kinds: Vec<_> = answer["parts"].as_array().unwrap().iter().map(|part| &part["type"]).collect();
    assert_eq!(kinds, ["text", "tool_call", "tool_result", "text"]);
    assert_eq!(answer["parts"][1]["input"], json!({ "a": 40, "b": 2 }));
    assert_eq!(answer["num_turns"], 2);
    assert!(answer["session_id"].is_string() && answer["total_cost_usd"].is_number());
    assert!(answer["usage"]["output_tokens"].is_number() && answer["duration_ms"].is_number());
}

#[test]
fn the_prompt_may_come_from_stdin_and_the_model_may_be_named() {
    let (model, home) = (ScriptedModel::start("text ok"), TempDir::new().unwrap());
    let mut command = ask(&model, &home, &["-", "--model", "claude-opus-4-5"]);
    let mut child = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    child.0.stdin.take().unwrap().write_all("from stdin: 日本".as_bytes()).unwrap();
    assert!(child.wait_within(PATIENCE).success());
    let requests = model.requests();
    assert_eq!(requests[0].prompt(), "from stdin: 日本");
    assert!(requests[0].body["model"].as_str().unwrap().starts_with("claude-opus-4-5"));
}

#[test]
fn failures_have_a_hint_as_text_and_as_json() {
    let (model, home) = (ScriptedModel::start("error 529 too busy"), TempDir::new().unwrap());
    let (code, stdout, stderr) = run(&mut ask(&model, &home, &["go"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: ") && stderr.contains("too busy"), "{stderr}");
    assert!(stderr.contains("\nhint: try again in a while"), "{stderr}");

    let (code, stdout, stderr) = run(&mut ask(&model, &home, &["go", "--json"]));
    assert_eq!((code, stderr.as_str()), (1, ""));
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(error["error"]["type"], "CLIExecutionError");
    assert!(error["error"]["message"].as_str().unwrap().contains("too busy"));
    assert_eq!(error["error"]["hint"], "try again in a while");

    let mut command = toolbridge();
    command.env_clear().env("HOME", home.path()).env("PATH", home.path()).args(["ask", "hi", "--json"]);
    let (code, stdout, _) = run(&mut command);
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &error["error"]["type"]), (1, &json!("CLINotFoundError")));
    assert!(error["error"]["hint"].as_str().unwrap().contains("npm install"));

    for (args, want) in [
        (&["go", "--timeout", "0.2"][..], "no result within 0.2 s"),
        (&["", "--tools", "demo"], "the prompt is empty"),
    ] {
        let slow = ScriptedModel::start("hang");
        let (code, _, stderr) = run(&mut ask(&slow, &home, args));
        assert!(code == 1 && stderr.contains(want), "{args:?}: {code} {stderr}");
        nothing_is_left(&home);
    }
    let (code, _, stderr) = run(&mut ask(&model, &home, &["go", "--transport", "http"]));
    assert!(code == 2 && stderr.contains("there are `auto`, `stdio` and `sdk`"), "{stderr}");
    let (code, _, _) = run(&mut ask(&model, &home, &["go", "--stream", "--json"]));
    assert_eq!(code, 2);
}

#[test]
fn without_a_login_the_hint_says_how_to_log_in() {
    let (model, home) = (ScriptedModel::start("text never asked"), TempDir::new().unwrap());
    let (code, stdout, stderr) = run(ask(&model, &home, &["hi"]).env_remove("ANTHROPIC_API_KEY"));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("error: Not logged in"), "{stderr}");
    let hint = "log in: run `claude` once, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN";
    assert!(stderr.ends_with(&format!("\nhint: {hint}\n")), "{stderr}");
    let (_, stdout, _) = run(ask(&model, &home, &["hi", "--json"]).env_remove("ANTHROPIC_API_KEY"));
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(error["error"]["hint"], hint, "{error}");
    assert_eq!(model.requests().len(), 0);
}

#[test]
fn the_spinner_does_not_overwrite_text() {
    // `script` gives the program a terminal. The text comes in two pieces, with a long wait between them.
    let model = ScriptedModel::start("text The answer is | 42.\nsleep 300\ntext Really.");
    let home = TempDir::new().unwrap();
    let command = ask(&model, &home, &["go", "--stream"]);
    let line: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = Command::new("script");
    script.args(["-qec", &line.join(" "), "/dev/null"]).env_clear();
    script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(home.path());
    let (code, shown, _) = run(&mut script);
    assert_eq!(code, 0, "{shown}");
    let seen = on_screen(&shown);
    assert_eq!(seen, "The answer is 42.\nReally.\n", "{shown:?}");
    assert!(shown.contains('⠙'), "no spinner in {shown:?}");
}

/// What a terminal shows at the end: `\r` returns to the start of the line, `ESC [ K` clears the rest.
fn on_screen(text: &str) -> String {
    let mut lines = vec![Vec::new()];
    let mut column = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let line: &mut Vec<char> = lines.last_mut().unwrap();
        match c {
            '\r' => column = 0,
            '\n' => {
                lines.push(Vec::new());
                column = 0;
            }
            '\x1b' => {
                assert_eq!((chars.next(), chars.next()), (Some('['), Some('K')));
                line.truncate(column);
            }
            c => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
}

#[test]
fn waiting_for_stdin_can_be_interrupted() {
    // Not with SIGINT: a test in the background may have inherited it as ignored.
    let (model, home) = (ScriptedModel::start("text ok"), TempDir::new().unwrap());
    let mut child = Process(ask(&model, &home, &["-"]).stdin(Stdio::piped()).spawn().unwrap());
    child.signal(Signal::TERM);
    assert!(!child.wait_within(PATIENCE).success());
}

#[test]
fn a_server_refused_by_the_cli_is_an_error() {
    let (model, home) = (ScriptedModel::start("text ok"), TempDir::new().unwrap());
    let claude = home.path().join("claude");
    let answers = r#"{"type":"control_response","response":{"subtype":"success","request_id":"toolbridge_1","response":{}}}
{"type":"control_response","response":{"subtype":"success","request_id":"toolbridge_2","response":{"mcpServers":[{"name":"tools","status":"failed","error":"no"}]}}}"#;
    // Send each answer only after its request.
    let lines: Vec<_> = answers.lines().map(|line| format!("read question; echo '{line}'")).collect();
    // Without a version it would be waited for.
    let version = r#"[ "$1" = --version ] && { echo 2.1.326; exit; }"#;
    std::fs::write(&claude, format!("#!/bin/sh\n{version}\n{}\nexec sleep 600\n", lines.join("\n"))).unwrap();
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&claude, mode).unwrap();
    for transport in ["stdio", "sdk"] {
        let mut command = toolbridge();
        command.args(["ask", "hi", "--tools", "demo", "--json", "--transport", transport, "--timeout", "20"]);
        let (code, stdout, stderr) = run(command.arg("--claude").arg(&claude));
        let error: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout:?} {stderr:?}"));
        assert_eq!((code, &error["error"]["type"]), (1, &json!("BridgeStartupError")), "{error}");
    }
    drop(model);
}

#[test]
fn a_signal_ends_everything_at_once() {
    for (signal, want, usual) in
        [(Signal::INT, 130, "stdio"), (Signal::TERM, 143, "sdk"), (Signal::HUP, 129, "stdio")]
    {
        for transport in ["stdio", "sdk"].into_iter().filter(|one| thorough() || *one == usual) {
            let script = "text Hold on.\ncall wait {\"ms\": 600000}\n---\ntext done";
            let (model, home) = (ScriptedModel::start(script), TempDir::new().unwrap());
            let args = ["go", "--tools", "demo", "--stream", "--transport", transport];
            let mut command = ask(&model, &home, &args);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let mut child = Process(child.unwrap());
            let mut line = String::new();
            BufReader::new(child.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
            assert!(line.starts_with("→ mcp__tools__wait"), "{line}");
            child.signal(signal);
            assert_eq!(child.wait_within(PATIENCE).code(), Some(want), "{transport}");
            nothing_is_left(&home);
        }
    }
}

#[test]
fn a_killed_asker_leaves_no_cli_behind() {
    let script = "call wait {\"ms\": 600000}\n---\ntext done";
    for transport in one_of(&["stdio", "sdk"]) {
        let (model, home) = (ScriptedModel::start(script), TempDir::new().unwrap());
        let args = ["go", "--tools", "demo", "--stream", "--transport", transport];
        let mut command = ask(&model, &home, &args);
        let mut child = Process(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        child.signal(Signal::KILL);
        child.wait_within(PATIENCE);
        eventually("no process is left", PATIENCE, || processes(home.path()) == 0);
        // The next session removes the files.
        let next = ScriptedModel::start("text ok");
        assert_eq!(run(&mut ask(&next, &home, &["go", "--tools", "demo"])).0, 0);
        assert!(sessions(&home).is_empty(), "{:?}", sessions(&home));
    }
}

#[test]
fn the_doctor_reports_every_check_with_a_hint() {
    let (dir, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let doctor_with = |key: Option<&str>, args: &[&str]| {
        let mut command = toolbridge();
        command
            .env_clear()
            .envs(key.map(|key| ("ANTHROPIC_API_KEY", key)))
            .env("HOME", home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", dir.path());
        command.arg("doctor").args(args);
        run(&mut command)
    };
    let doctor = |args: &[&str]| doctor_with(None, args);
    let claude = claude_cli();
    let (code, stdout, stderr) = doctor_with(Some("secret-of-mine"), &["--claude", claude.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 7, "{stdout}");
    assert!(lines.iter().all(|line| line.starts_with("ok    ")), "{stdout}");
    assert!(lines[1].starts_with("ok    Claude Code CLI: 2."), "{stdout}");
    assert_eq!(lines[2], "ok    login: `api_key`; whether it is valid is not checked");
    assert!(!stdout.contains("secret-of-mine"), "{stdout}");
    assert!(lines[6].contains("lists 9 tools after"), "{stdout}");
    assert!(files(dir.path()).is_empty());

    let (code, stdout, _) = doctor(&["--claude", claude.to_str().unwrap()]);
    let no_login = "\nwarn  login: there is none, so the CLI cannot ask a model\n      hint: log in: run `claude` once, or set \
                    ANTHROPIC_API_KEY";
    assert!(code == 0 && stdout.contains(no_login), "{stdout}");

    let (code, stdout, _) = doctor(&["--claude", "/no/claude"]);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("\nfail  Claude Code CLI: cannot find the Claude Code CLI: `/no/claude`"),
        "{stdout}"
    );
    assert!(stdout.contains("\n      hint: install it with `npm install"), "{stdout}");

    let (_, stdout, _) = doctor(&["--claude", "/bin/false", "--json"]);
    let checks: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(checks[1]["health"], "fail");
    assert!(checks[1]["text"].as_str().unwrap().contains("it ends with exit status: 1"), "{checks}");

    let old = home.path().join("claude");
    std::fs::write(&old, "#!/bin/sh\necho '2.1.247 (Claude Code)'\n").unwrap();
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (code, stdout, _) = doctor(&["--claude", old.to_str().unwrap()]);
    let warning = "reads files that a prompt names with `@`; such prompts are refused\n      hint: update it to 2.1.248";
    assert!(
        code == 0 && stdout.contains("\nwarn  Claude Code CLI: 2.1.247 at ") && stdout.contains(warning),
        "{stdout}"
    );

    assert!(stdout.contains("\nwarn  login: this CLI does not tell"), "{stdout}");

    // A session that was killed.
    let mut host = toolbridge();
    let (host, _stdin, _) = crate::support::start_host(host.env("TMPDIR", dir.path()));
    drop(host);
    let (code, stdout, _) = doctor(&["--claude", claude.to_str().unwrap()]);
    assert_eq!(code, 0);
    // Other tests may have live sessions in `/tmp`, where the doctor looks too.
    assert!(stdout.contains("\nwarn  sessions: "), "{stdout}");
    assert!(stdout.contains(" live, 1 stale\n      hint: `toolbridge sessions --clean`"), "{stdout}");
}

#[test]
fn the_cli_of_the_python_environment_is_found() {
    let dir = TempDir::new().unwrap();
    let venv = dir.path().join("venv");
    let cli = venv.join("lib/python3.12/site-packages/claude_agent_sdk/_bundled/claude");
    let program = venv.join("bin/toolbridge");
    for path in [&cli, &program] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
    std::os::unix::fs::symlink(claude_cli(), &cli).unwrap();
    let built = toolbridge();
    // A link to the file: the program must be in that folder, as after `pip install`.
    if std::fs::hard_link(built.get_program(), &program).is_err() {
        std::fs::copy(built.get_program(), &program).unwrap();
    }
    let doctor = |program: &Path, variables: &[(&str, &Path)]| {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", dir.path()).env("PATH", "/usr/bin:/bin");
        run(command.env("TMPDIR", dir.path()).envs(variables.iter().copied()).arg("doctor")).1
    };
    // If there is a CLI on this machine for everybody, it comes first.
    let rest = [doctor(&program, &[]), doctor(built.get_program().as_ref(), &[("VIRTUAL_ENV", &venv)])];
    let everybodys = doctor(built.get_program().as_ref(), &[]);
    if everybodys.contains("\nok    Claude Code CLI") {
        return toolbridge_scripted::report_skipped("this machine has a CLI for everybody");
    }
    for stdout in rest {
        let line = stdout.lines().find(|line| line.contains("Claude Code CLI")).unwrap_or_default();
        assert!(line.starts_with("ok    ") && line.contains(cli.to_str().unwrap()), "{stdout}");
    }
}

#[test]
fn a_time_out_ends_the_command_whatever_it_waits_for() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("claude");
    // It says nothing at all, also ignoring signals, or only its version.
    let hangs = "while :; do sleep 1000; done";
    let deaf = format!("trap '' TERM INT HUP; {hangs}");
    let late = format!("[ \"$1\" = --version ] && exec echo '2.1.300 (Claude Code)'; {deaf}");
    let given = |script: &str, prompt: &str, json: bool| {
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let temp = dir.path().join("tmp");
        std::fs::create_dir_all(&temp).unwrap();
        let mut command = toolbridge();
        command.env_clear().env("HOME", dir.path()).env("PATH", "/usr/bin:/bin").env("TMPDIR", temp);
        command.args(["ask", prompt, "--timeout", "1", "--tools", "demo", "--claude"]).arg(&path);
        command.args(json.then_some("--json"));
        // Its stdin stays open and says nothing.
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let mut process = Process(
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        );
        _ = process.0.stdout.take().unwrap().read_to_string(&mut stdout);
        _ = process.0.stderr.take().unwrap().read_to_string(&mut stderr);
        assert_eq!(process.0.wait().unwrap().code(), Some(1), "{stderr}");
        nothing_is_left(&dir);
        (stdout, stderr)
    };
    let hint = "hint: give the request a longer time-out, or ask for less";
    for (script, prompt) in [(hangs, "hi"), (&deaf, "hi"), (&late, "hi"), (&late, "-")] {
        let (stdout, stderr) = given(script, prompt, false);
        assert_eq!((stdout, stderr), (String::new(), format!("error: no result within 1 s\n{hint}\n")));
    }
    let error: Value = serde_json::from_str(&given(&late, "-", true).0).unwrap();
    assert_eq!(error["error"]["message"], "no result within 1 s");
}

#[test]
fn a_time_out_at_any_moment_leaves_nothing() {
    let (model, home) = (ScriptedModel::start("hang"), TempDir::new().unwrap());
    for millis in (1..=20).chain((25..=100).step_by(15)) {
        let limit = format!("0.{millis:03}");
        let (code, _, stderr) = run(&mut ask(&model, &home, &["go", "--timeout", &limit]));
        assert!(code == 1 && stderr.contains("no result within"), "{limit}: {code} {stderr}");
        nothing_is_left(&home);
    }
}

#[test]
fn the_doctor_checks_the_temporary_directory() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let doctor =
        |temp: &Path| run(toolbridge().env("TMPDIR", temp).args(["doctor", "--claude", "/bin/true"]));
    let (code, stdout, _) = doctor(&dir.path().join("none"));
    assert_eq!(code, 1);
    assert!(stdout.contains("\nfail  temporary directory: "), "{stdout}");
    assert!(stdout.contains("hint: set TMPDIR to a directory that exists and can be written"), "{stdout}");

    // An empty TMPDIR counts as unset, and `/tmp` is not too long.
    let (_, stdout, _) = doctor(Path::new(""));
    assert!(stdout.contains("\nok    socket paths: short enough in `/tmp`"), "{stdout}");

    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (_, stdout, _) = doctor(&open);
    assert!(stdout.contains("\nwarn  temporary directory: ") && stdout.contains("chmod +t"), "{stdout}");

    let long = dir.path().join("x".repeat(150));
    std::fs::create_dir(&long).unwrap();
    let (_, stdout, _) = doctor(&long);
    assert!(stdout.contains("\nwarn  socket paths: too long in"), "{stdout}");
}
