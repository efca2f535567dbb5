//! The command line: its output streams and exit codes.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Host, PATIENCE, Process, config_of, files, path, run, start_host, toolbridge};

#[test]
fn an_invalid_timeout_is_wrong_usage() {
    for time in ["-5", "0", "-0.0", "nan", "inf", "1e300", "1e-300", "soon", ""] {
        let (code, stdout, stderr) = run(toolbridge().args(["ask", "hi", "--timeout", time]));
        assert_eq!((code, stdout.as_str()), (2, ""), "{time}: {stderr}");
        let want = format!(
            "error: invalid value '{time}' for '--timeout <SECONDS>': it must be a number of seconds above 0, such as 600"
        );
        assert!(stderr.starts_with(&want) || time.is_empty(), "{time}: {stderr}");
    }
}

#[test]
fn help_and_version_go_to_stdout_and_wrong_usage_is_an_error() {
    let (code, stdout, stderr) = run(toolbridge().arg("--version"));
    assert_eq!(
        (code, stdout, stderr),
        (0, format!("toolbridge {}\n", env!("CARGO_PKG_VERSION")), String::new())
    );
    for command in
        ["ask", "bridge", "call", "demo", "docs", "doctor", "generate", "serve", "sessions", "trace"]
    {
        let (code, stdout, stderr) = run(toolbridge().args([command, "--help"]));
        assert_eq!((code, stderr.as_str()), (0, ""), "{command}");
        assert!(
            stdout.contains("Usage: toolbridge ") && stdout.contains("toolbridge "),
            "{command}: {stdout}"
        );
    }
    let (_, stdout, _) = run(toolbridge().args(["ask", "--help"]));
    let (all, rest) = stdout.split_once("With --tools docs:").unwrap();
    let (with_docs, _) = rest.split_once("Examples:").unwrap();
    for option in ["--transport", "--stream", "--json", "--claude", "--model", "--timeout", "--trace"] {
        assert!(all.contains(option) && !with_docs.contains(option), "{option}: {stdout}");
    }
    assert!(with_docs.contains("--vault"), "{stdout}");
    let (code, stdout, _) = run(toolbridge().arg("--help"));
    assert!(code == 0 && stdout.contains("Examples:"), "{stdout}");

    for wrong in [
        &["bridge"][..],
        &["bridge", "/tmp/s"],
        &["bridge", "/tmp/s", "/tmp/f", "more"],
        &["bridge", "--nonsense", "/tmp/f"],
        &["nonsense"],
        &["demo", "--serve", "--json"],
        &["generate", "tea"],
        &["call"],
        &["sessions", "--log", "loud"],
        &[],
    ] {
        let (code, stdout, stderr) = run(toolbridge().args(wrong));
        assert_eq!((code, stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(stderr.contains("Usage: ") || stderr.contains("possible values"), "{wrong:?}: {stderr}");
        assert!(wrong.is_empty() || stderr.starts_with("error: "), "{wrong:?}: {stderr}");
    }
}

#[test]
fn the_man_page_and_completions_are_generated() {
    for (what, sign) in [
        ("man", ".TH toolbridge 1"),
        ("bash", "complete -F"),
        ("zsh", "#compdef toolbridge"),
        ("fish", "complete -c toolbridge"),
    ] {
        let (code, stdout, stderr) = run(toolbridge().args(["generate", what]));
        assert_eq!((code, stderr.as_str()), (0, ""), "{what}");
        assert!(stdout.contains(sign), "{what}");
    }
}

/// Every command, and every flag in its `--help`.
fn commands_and_flags() -> Vec<(String, Vec<String>)> {
    let help = |args: &[&str]| {
        let (code, stdout, _) = run(toolbridge().args(args).arg("--help"));
        assert_eq!(code, 0, "{args:?}");
        stdout
    };
    let flags = |help: &str| -> Vec<String> {
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let words = lines
            .flat_map(|line| line.split([' ', ',', '[', '=', '\t']).map(str::to_owned).collect::<Vec<_>>());
        words.filter(|word| word.starts_with("--") && word.len() > 2).collect()
    };
    let top = help(&[]);
    let listed =
        top.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    names.into_iter().map(|name| (name.clone(), flags(&help(&[&name])))).collect()
}

#[test]
fn the_man_page_and_completions_know_every_command_and_flag() {
    let commands = commands_and_flags();
    assert!(commands.iter().map(|(_, flags)| flags.len()).sum::<usize>() > 25, "{commands:?}");
    for what in ["man", "bash", "zsh", "fish"] {
        let (_, text, _) = run(toolbridge().args(["generate", what]));
        // Fish writes `-l flag`, roff `\-\-flag`.
        let text = text.replace("\\-", "-").replace("-l ", "--");
        for (command, flags) in &commands {
            assert!(text.contains(command.as_str()), "{what} does not know `{command}`");
            for flag in flags {
                assert!(text.contains(flag.as_str()), "{what} does not know `{command} {flag}`");
            }
        }
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = toolbridge().args(["generate", "bash"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_demo_works_and_says_what_to_do_next() {
    let dir = TempDir::new().unwrap();
    let (code, stdout, stderr) = run(toolbridge().arg("demo").env("TMPDIR", dir.path()));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.starts_with("23 tools live in this process ("), "{stdout}");
    assert_eq!(stdout.matches("\nok   ").count(), 18, "{stdout}");
    for part in [
        "grüß dich",
        "42",
        "a picture, image/png",
        "(4 progress reports)",
        "error, as expected: no such order (type: DemoError)",
        "64 × wait",
        "then cancelled",
        "its handler was ended",
        "copied inside the server; the text did not come back",
        "everything worked",
        "\nNext:\n",
        "µs",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout}");
    }
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn the_demo_can_print_json() {
    let dir = TempDir::new().unwrap();
    let (code, stdout, _) = run(toolbridge().args(["demo", "--json"]).env("TMPDIR", dir.path()));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["ok"], &report["tools"]), (0, &json!(true), &json!(23)));
    let calls = report["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 18);
    assert!(calls.iter().all(|call| call["ok"] == true && call["ms"].as_f64().unwrap() >= 0.0), "{stdout}");
    assert!(report["round_trip_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_host_prints_its_paths_and_ends_on_every_kind_of_end() {
    for signal in [None, Some(Signal::INT), Some(Signal::TERM), Some(Signal::HUP)] {
        let mut host = Host::start();
        assert_eq!(
            host.config,
            config_of(Path::new(env!("CARGO_BIN_EXE_toolbridge")), &host.socket, &host.schema)
        );
        assert_eq!(host.files().len(), 2);
        // A bridge is connected, and a handler is blocked.
        let mut client = host.client();
        client.start_call("wait", json!({ "ms": 600_000 }));
        client.call("echo", json!({ "text": "" }));
        match signal {
            None => drop(host.stdin.take()),
            Some(signal) => host.process.signal(signal),
        }
        assert_eq!(host.process.wait_within(PATIENCE).code(), Some(0), "{signal:?}");
        assert_eq!(host.files(), Vec::<String>::new(), "{signal:?}");
    }
}

#[test]
fn another_bridge_can_be_named_and_a_wrong_one_is_an_error() {
    let dir = TempDir::new().unwrap();
    let mut command = toolbridge();
    command.env("TMPDIR", dir.path()).env("TOOLBRIDGE_BRIDGE", "/bin/cat");
    let (process, stdin, hello) = start_host(&mut command);
    assert_eq!(
        hello["mcp_config"],
        config_of(Path::new("/bin/cat"), path(&hello["socket"]), path(&hello["schema"]))
    );
    drop((stdin, process));
    let mut command = toolbridge();
    command.args(["demo", "--serve"]).env("TMPDIR", dir.path()).env("TOOLBRIDGE_BRIDGE", "/etc/passwd");
    assert_eq!(
        run(&mut command),
        (
            1,
            String::new(),
            "error: no bridge executable: `/etc/passwd`, named by TOOLBRIDGE_BRIDGE, is not an executable file\n\
             hint: call `toolbridge::run_bridge_if_asked()` first in `main`, or install the `toolbridge` executable, \
             or set TOOLBRIDGE_BRIDGE to its path\n"
                .into()
        )
    );
}

#[test]
fn a_tool_of_a_live_session_can_be_called_by_hand() {
    let host = Host::start();
    let call = |args: &[&str]| run(toolbridge().arg("call").arg(&host.socket).args(args));
    assert_eq!(call(&["add", r#"{"a":40,"b":2}"#]), (0, "42\n".into(), String::new()));
    let json = r#"{"content":[{"type":"text","text":"42"}],"isError":false}"#;
    assert_eq!(call(&["--json", "add", r#"{"a":40,"b":2}"#]), (0, format!("{json}\n"), String::new()));
    let (code, stdout, stderr) = call(&["countdown", r#"{"from":1}"#]);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "lift-off\n", "progress: 0 of 1 1 left\nprogress: 1 of 1 done\n")
    );
    let (code, stdout, _) = call(&["picture"]);
    assert!(code == 0 && stdout.contains("image/png"), "{stdout}");

    let rows = [
        (
            &["fail", r#"{"message":"no"}"#][..],
            "error: no (type: DemoError)\nhint: the error is the tool's own; the connection works\n",
        ),
        (
            &["nothing"],
            "error: there is no tool `nothing` (type: ToolNotFoundError)\nhint: `toolbridge sessions` lists the tools of each session\n",
        ),
        (
            &["add", "{"],
            "error: the arguments are not a JSON object: EOF while parsing an object at line 1 column 1\nhint: quote them for the shell: '{\"name\": \"value\"}'\n",
        ),
        (
            &["add", "[1]"],
            "error: the arguments are not a JSON object: `[1]`\nhint: quote them for the shell: '{\"name\": \"value\"}'\n",
        ),
    ];
    for (args, want) in rows {
        assert_eq!(call(args), (1, String::new(), want.into()), "{args:?}");
    }
    let (code, _, stderr) = run(toolbridge().args(["call", "/nowhere/x.sock", "add"]));
    assert_eq!(
        (code, stderr.as_str()),
        (
            1,
            "error: cannot reach the parent process at `/nowhere/x.sock`: No such file or directory (os error 2) \
             (type: IPCConnectionError)\nhint: `toolbridge sessions` lists the live sessions\n"
        )
    );
}

#[test]
fn sessions_are_listed_and_stale_ones_removed() {
    let host = Host::start();
    let stale = host.dir.path().join("claudecode_ipc_0123456789ab8def8123456789abcdef.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let sessions =
        |args: &[&str]| run(toolbridge().arg("sessions").args(args).env("TMPDIR", host.dir.path()));

    let (code, stdout, stderr) = sessions(&[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let row = |state: &str, path: &std::path::Path| {
        stdout.lines().any(|line| line.starts_with(state) && line.contains(&*path.to_string_lossy()))
    };
    assert!(row("live ", &host.socket) && row("stale ", &stale), "{stdout}");
    assert!(
        stdout.contains("echo, add, wait")
            && stdout.ends_with("`toolbridge sessions --clean` removes the stale ones\n")
    );

    let (_, stdout, _) = sessions(&["--json"]);
    let listed: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    let states: Vec<_> = listed
        .iter()
        .filter(|session| {
            session["socket"].as_str().unwrap().starts_with(&*host.dir.path().to_string_lossy())
        })
        .map(|session| session["state"].as_str().unwrap())
        .collect();
    assert_eq!(states.len(), 2);
    assert!(states.contains(&"live") && states.contains(&"stale"), "{states:?}");

    let (code, stdout, _) = sessions(&["--clean"]);
    assert!(code == 0 && stdout.contains("removed "), "{stdout}");
    assert!(!stale.exists() && host.socket.exists() && host.schema.exists());
}

#[test]
fn a_temporary_directory_that_cannot_be_used_is_one_clear_error() {
    let (code, stdout, stderr) = run(toolbridge().args(["demo", "--serve"]).env("TMPDIR", "/nowhere/at/all"));
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (
            1,
            "",
            "error: cannot start a session in `/nowhere/at/all`: cannot read the directory: No such file or directory \
             (os error 2)\nhint: set TMPDIR to a directory that exists, can be written and has space\n"
        )
    );
}

#[test]
fn a_temporary_directory_with_a_long_path_is_replaced_by_a_short_one_and_it_says_so() {
    let dir = TempDir::new().unwrap();
    let long = dir.path().join("x".repeat(150));
    std::fs::create_dir(&long).unwrap();
    let mut command = toolbridge();
    command.env("TMPDIR", &long).stderr(Stdio::piped());
    let (mut process, stdin, hello) = start_host(&mut command);
    let socket = std::path::PathBuf::from(hello["socket"].as_str().unwrap());
    assert_eq!(socket.parent().unwrap(), std::path::Path::new("/tmp"));
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    let mut warning = String::new();
    stderr.read_line(&mut warning).unwrap();
    assert!(
        warning.contains("WARN") && warning.contains("socket path would be too long, using /tmp instead"),
        "{warning}"
    );
    // `sessions` looks in both.
    let (_, stdout, _) = run(toolbridge().arg("sessions").env("TMPDIR", &long));
    assert!(stdout.contains(&*socket.to_string_lossy()), "{stdout}");
    drop(stdin);
    assert!(process.wait_within(PATIENCE).success());
    assert!(!socket.exists());
}

#[test]
fn a_temporary_directory_whose_path_is_not_utf8_is_one_clear_error_and_no_panic() {
    let dir = TempDir::new().unwrap();
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"t\xffmp"));
    std::fs::create_dir(&odd).unwrap();
    let (code, stdout, stderr) = run(toolbridge().args(["demo", "--serve"]).env("TMPDIR", &odd));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(lines[0].starts_with("error: the path of the session, `"), "{stderr}");
    assert!(lines[0].contains("is not UTF-8"), "{stderr}");
    assert_eq!(lines[1], "hint: set TMPDIR to a directory whose path is UTF-8");
    assert_eq!(files(&odd), Vec::<String>::new());
    // Where no config is written, such a path works like any other.
    let (code, stdout, stderr) = run(toolbridge().args(["demo", "--json"]).env("TMPDIR", &odd));
    assert_eq!(code, 0, "{stdout} {stderr}");
    assert_eq!(files(&odd), Vec::<String>::new());
    // A session whose directory gets such a path is still listed.
    let host = Host::start();
    std::fs::remove_dir(&odd).unwrap();
    std::fs::rename(host.dir.path(), &odd).unwrap();
    let (code, stdout, stderr) = run(toolbridge().args(["sessions", "--json"]).env("TMPDIR", &odd));
    std::fs::rename(&odd, host.dir.path()).unwrap();
    assert_eq!(code, 0, "{stderr}");
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    let place = listed.as_array().unwrap().iter().position(|one| one["state"] == "live");
    assert!(listed[place.unwrap()]["socket"].as_str().unwrap().contains("/t\u{fffd}mp/"), "{listed}");
}

#[test]
fn a_program_can_be_its_own_bridge() {
    // `toolbridge` itself is such a program; here under another name, with no `toolbridge` beside it.
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("my-program");
    // Not copied by this process: a child that another thread forks would inherit the descriptor, and exec
    // fails while the file is open for writing.
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg(env!("CARGO_BIN_EXE_toolbridge")).arg(&program).status().unwrap().success());
    let mut command = std::process::Command::new(&program);
    command
        .args(["demo", "--serve"])
        .env("TMPDIR", dir.path())
        .env_remove("TOOLBRIDGE_BRIDGE")
        .env("PATH", "");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let hello: Value = serde_json::from_str(&line).unwrap();
    let _process = Process(child);
    assert_eq!(hello["mcp_config"], config_of(&program, path(&hello["socket"]), path(&hello["schema"])));
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for (signal, want) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let dir = TempDir::new().unwrap();
        let child = toolbridge().arg("demo").env("TMPDIR", dir.path()).stdout(Stdio::null()).spawn().unwrap();
        let mut demo = Process(child);
        crate::support::eventually("the demo has a session", PATIENCE, || files(dir.path()).len() == 3);
        demo.signal(signal);
        assert_eq!(demo.wait_within(PATIENCE).code(), Some(want));
        assert_eq!(files(dir.path()), Vec::<String>::new());
    }
}

#[test]
fn sessions_of_other_implementations_are_listed_as_they_are_named() {
    let dir = TempDir::new().unwrap();
    let id = "01234567-89ab-4def-8123-456789abcdef";
    let socket = dir.path().join(format!("claudecode_ipc_{id}.sock"));
    let schema = dir.path().join(format!("claudecode_ipc_schema_{id}.json"));
    let _listener = UnixListener::bind(&socket).unwrap();
    std::fs::write(&schema, r#"[{"name":"greet","description":"","input_schema":{}}]"#).unwrap();
    std::fs::set_permissions(&schema, Permissions::from_mode(0o644)).unwrap();
    let (_, stdout, _) = run(toolbridge().arg("sessions").env("TMPDIR", dir.path()));
    let row = stdout.lines().find(|line| line.contains(&*socket.to_string_lossy()));
    assert!(row.is_some_and(|row| row.starts_with("live ") && row.ends_with("  greet")), "{stdout}");
}
