//! What a model may see and do by default, and which settings enable the rest.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::json;
use toolbridge::model::{ClaudeCodeError, ExecutionKind, Input, Message, Settings};
use toolbridge::tool::Hint as _;
use toolbridge::{ClaudeCodeModel, Request, Session};
use toolbridge_scripted::{Turn, claude_cli, clean_environment, thorough};

use super::support::{PICTURE, Tools, World, bridge, notified, processes_of, program, transports};
use super::traps::{Traps, files_below, left_in};

#[tokio::test]
async fn by_default_a_model_has_only_the_given_tools() {
    for transport in transports() {
        let world = World::new("call add {\"a\": 1, \"b\": 1}\ncall large {}\ncall huge {}\n---\ntext done");
        let traps = Traps::new(&world);
        let before = files_below(world.home.path());
        let model = world.builder().working_directory(&traps.project).build().unwrap();
        let inputs = [Input::text("go"), Input::image(PICTURE, "image/png")];
        let request = Request::with_inputs(inputs).tools(Tools::new().toolset()).transport(transport);
        assert_eq!(model.request(request).await.unwrap().text(), "done");

        let requests = world.scripted.requests();
        let mut own: Vec<_> =
            Tools::new().toolset().names().iter().map(|name| format!("mcp__tools__{name}")).collect();
        own.sort();
        assert_eq!(requests[0].tools(), own, "over {transport}");
        assert_eq!(Traps::seen(&world), [""; 0], "over {transport}");
        assert_eq!(traps.sprung(), [""; 0], "over {transport}");
        // No coding prompt; the CLI always adds a line or two.
        let system = requests[0].body["system"].to_string();
        assert!(system.len() < 400, "{system}");
        // No transcript, no image, no result, no log.
        assert_eq!(left_in(world.home.path(), &before), [""; 0].map(PathBuf::from), "over {transport}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn the_default_working_directory_reveals_nothing() {
    let world = World::new("text ok");
    let mut model =
        ClaudeCodeModel::builder().cli(claude_cli()).session_dir(world.sessions.path()).inherit_env(false);
    for (name, value) in clean_environment(world.home.path(), &world.scripted.url()) {
        model = model.env(name, value);
    }
    model.build().unwrap().request("hi").await.unwrap();
    let sent = world.scripted.requests()[0].body.to_string();
    let here = std::env::current_dir().unwrap();
    assert!(!sent.contains(here.to_str().unwrap()), "{sent}");
    world.nothing_is_left();
}

#[tokio::test]
async fn claude_code_enables_everything_and_single_settings_enable_parts() {
    let ask = async |settings: Settings, strict: Option<bool>| {
        let world = World::new("text ok");
        let traps = Traps::new(&world);
        let before = files_below(world.home.path());
        let mut builder = world.builder().working_directory(&traps.project);
        if let Some(strict) = strict {
            builder = builder.strict_mcp_config(strict);
        }
        builder.build().unwrap().request(Request::new("hi").settings(settings)).await.unwrap();
        let requests = world.scripted.requests();
        let tools = requests[0].tools().into_iter().map(String::from).collect::<Vec<_>>();
        let kept =
            left_in(world.home.path(), &before).iter().any(|path| path.extension() == Some("jsonl".as_ref()));
        world.nothing_is_left();
        (Traps::seen(&world), traps.sprung(), tools, requests[0].body["system"].to_string().len(), kept)
    };

    let (seen, sprung, tools, system, kept) = ask(Settings::default().claude_code(true), None).await;
    for mark in ["MARK-PROJECT-MEMORY", "MARK-USER-MEMORY", "MARK-SKILL", "MARK-AGENT"] {
        assert!(seen.contains(&mark), "{seen:?}");
    }
    for trap in ["project-SessionStart", "user-SessionStart", "project-server", "user-server"] {
        assert!(sprung.iter().any(|name| name == trap), "{sprung:?}");
    }
    assert!(tools.contains(&"Bash".into()) && tools.contains(&"Edit".into()), "{tools:?}");
    assert!(system > 2000 && kept, "{system}");

    // Several parts at once enable nothing else.
    let parts = Settings::default().builtin_tools(["Read"]).coding_prompt(true).keep_session(true);
    let (seen, sprung, tools, system, kept) = ask(parts, None).await;
    assert!(system > 2000 && seen.iter().all(|mark| *mark == "MARK-UNTRACKED"), "{system}: {seen:?}");
    assert_eq!((sprung, tools, kept), (vec![], vec!["Read".into()], true));

    let (seen, sprung, tools, ..) = ask(Settings::default().setting_sources(["project"]), None).await;
    assert!(seen.contains(&"MARK-PROJECT-MEMORY") && !seen.contains(&"MARK-USER-MEMORY"), "{seen:?}");
    assert!(sprung.contains(&"project-SessionStart".into()), "{sprung:?}");
    assert!(!sprung.contains(&"project-server".into()), "{sprung:?}");
    assert_eq!(tools, [""; 0]);

    let (_, sprung, ..) = ask(Settings::default().setting_sources(["project"]), Some(false)).await;
    assert!(sprung.contains(&"project-server".into()), "{sprung:?}");

    if !thorough() {
        return;
    }
    let (seen, sprung, tools, _, kept) = ask(Settings::default().builtin_tools(["Read"]), None).await;
    assert_eq!((seen, sprung, tools, kept), (vec![], vec![], vec!["Read".into()], false));

    let (seen, sprung, tools, system, kept) = ask(Settings::default().coding_prompt(true), None).await;
    assert!(system > 2000, "{system}");
    let seen: Vec<_> = seen.into_iter().filter(|mark| *mark != "MARK-UNTRACKED").collect();
    assert_eq!((seen, sprung, tools, kept), (vec![], vec![], vec![], false));

    let (seen, sprung, tools, _, kept) = ask(Settings::default().keep_session(true), None).await;
    assert_eq!((seen, sprung, tools, kept), (vec![], vec![], vec![], true));
}

#[tokio::test]
async fn a_prompt_is_never_expanded_by_default() {
    let world = World::answering(|_| Turn::text("ok"));
    let traps = Traps::new(&world);
    let file = traps.project.join("secret.txt");
    let mention = format!("see @{}", file.display());
    let model = world.builder().working_directory(&traps.project).build().unwrap();
    let quoted = format!("@\"{}\" and @secret.txt", file.display());
    let last = || world.scripted.requests().last().unwrap().prompt();
    let prompts = [&*mention, &quoted, "/cost", "/order", " /cost", "!touch x", "#remember"];
    // A conversation sends prompts as a request does, with one start of the CLI.
    let mut conversation = model.conversation().open().await.unwrap();
    for prompt in prompts {
        conversation.send(prompt).await.unwrap();
        assert_eq!(last(), prompt);
    }
    conversation.close().await;
    for prompt in if thorough() { &prompts[..] } else { &[] } {
        model.request(*prompt).await.unwrap();
        assert_eq!(last(), *prompt);
    }
    // In the history before the prompt, and next to an image.
    let history = [Message::user(&mention), Message::assistant(&mention)];
    let inputs = [Input::text(&mention), Input::image(PICTURE, "image/png"), Input::text("/cost")];
    model.request(Request::with_inputs(inputs).history(history)).await.unwrap();
    assert_eq!(Traps::seen(&world), [""; 0]);
    assert_eq!(traps.sprung(), [""; 0]);
    // In Claude Code mode, too.
    let whole = Settings::default().claude_code(true);
    let mut conversation = model.conversation().settings(whole.clone()).open().await.unwrap();
    for prompt in [&*mention, "/order"] {
        conversation.send(prompt).await.unwrap();
        if thorough() {
            model.request(Request::new(prompt).settings(whole.clone())).await.unwrap();
        }
    }
    conversation.close().await;
    assert!(!Traps::seen(&world).contains(&"MARK-FILE"));
    assert!(!traps.sprung().contains(&"project-skill".into()));
    world.nothing_is_left();
}

#[tokio::test]
async fn expanding_prompts_can_be_enabled() {
    let world = World::new("text ok");
    let traps = Traps::new(&world);
    let model = world.builder().working_directory(&traps.project).expand_prompts(true).build().unwrap();
    let answers = model.request("/cost").await.unwrap();
    assert!(answers.text().contains("cost"), "{}", answers.text());
    assert_eq!(world.scripted.requests().len(), 0, "a command of the CLI's");
    model.request("see @secret.txt").await.unwrap();
    assert!(Traps::seen(&world).contains(&"MARK-FILE"));
    world.nothing_is_left();
}

#[tokio::test]
async fn an_old_cli_does_not_get_a_prompt_that_it_would_expand() {
    let world = World::new("text ok");
    let cli = world.home.path().join("old");
    let real = claude_cli();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 2.1.247; exit; }}\nexec {} \"$@\"\n",
        real.display()
    );
    super::traps::write(&cli, &script);
    std::fs::set_permissions(&cli, std::fs::Permissions::from_mode(0o755)).unwrap();
    let model = world.builder().cli(&cli).build().unwrap();
    let history = Request::new("and?").history([Message::user("see @/etc/passwd")]);
    for request in [Request::new("see @/etc/passwd"), Request::new("/cost"), history] {
        let error = model.request(request).await.unwrap_err();
        assert!(matches!(&error, ClaudeCodeError::PromptExpansion { .. }), "{error}");
        assert!(error.to_string().starts_with("Claude Code 2.1.247 would expand `"), "{error}");
    }
    assert!(world.scripted.requests().is_empty());
    assert_eq!(model.request("write to ada@example.com").await.unwrap().text(), "ok");
    let expand = Settings::default().expand_prompts(true);
    model.request(Request::new("see @/nowhere").settings(expand)).await.unwrap();
    world.nothing_is_left();
}

#[tokio::test]
async fn secrets_are_in_private_files_and_not_on_the_command_line() {
    for transport in transports() {
        let world = World::new("call hang {}\n---\ntext done");
        let tools = Tools::new();
        let other = Session::builder(Tools::new().toolset()).bridge(bridge()).start().await.unwrap();
        let mut entry = serde_json::to_value(other.mcp_server().unwrap()).unwrap();
        entry["env"]["TOKEN"] = json!("secret-token");
        entry["headers"] = json!({ "Authorization": "secret-header" });
        let model = world
            .builder()
            .system_prompt("secret-system")
            .append_system_prompt("secret-addition")
            .cli_settings(json!({ "env": { "A": "secret-setting" } }))
            .mcp_server("other", entry)
            .build()
            .unwrap();
        let schema = json!({ "type": "object", "description": "secret-schema" });
        let request =
            Request::new("secret-prompt").tools(tools.toolset()).transport(transport).output_schema(schema);
        tokio::select! {
            outcome = model.request(request) => panic!("{outcome:?}"),
            () = async {
                notified("the tool starts", &tools.0.hanging).await;
                let lines: Vec<_> = processes_of(world.home.path()).collect();
                assert!(lines.iter().any(|line| line.contains("--mcp-config=")), "{lines:#?}");
                assert!(!lines.concat().contains("secret"), "{lines:#?}");
                let rooms = files_below(world.sessions.path());
                let secrets = rooms.iter().filter(|path| path.extension() == Some("json".as_ref()));
                for path in secrets {
                    let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
                    assert_eq!(mode, 0o600, "{}", path.display());
                }
            } => {}
        }
        let sent = world.scripted.requests()[0].system();
        assert!(sent.contains("secret-system") && sent.contains("secret-addition"), "{sent}");
        other.stop().await;
        world.nothing_is_left_soon();
    }
}

#[tokio::test]
async fn resuming_a_conversation_that_was_not_stored_is_explained() {
    let world = World::new("text ok\n---\ntext more");
    let model = world.model();
    let id = model.request_with_metadata("hi").await.unwrap().metadata.session_id.unwrap();
    let resume = Settings::default().resume(id);
    let error = model.request(Request::new("more").settings(resume)).await.unwrap_err();
    let ClaudeCodeError::CliExecution { kind, .. } = &error else { panic!("{error}") };
    assert_eq!(*kind, ExecutionKind::NoConversation);
    assert!(error.hint().unwrap().contains("keep a conversation when it begins"), "{error:?}");
    world.nothing_is_left();
    // `a_conversation_with_history_is_stored_with_it` resumes a stored one too.
    if !thorough() {
        return;
    }

    let id = "0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50";
    let keep = Settings::default().session_id(id);
    let kept = model.request_with_metadata(Request::new("hi").settings(keep)).await.unwrap();
    assert_eq!(kept.metadata.session_id.as_deref(), Some(id));
    let resume = Settings::default().resume(id);
    model.request(Request::new("more").settings(resume)).await.unwrap();
    world.nothing_is_left();
}

#[tokio::test]
async fn a_cli_without_a_version_gets_plain_prompts() {
    let world = World::new("text ok");
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"hi"}"#;
    let cli = program(&world, "claude", &format!("echo '{line}'"));
    let script = std::fs::read_to_string(&cli).unwrap().replace("echo 2.1.326", "echo tomorrow");
    std::fs::write(&cli, script).unwrap();
    let model = world.builder().cli(&cli).build().unwrap();
    assert_eq!(model.request("hi").await.unwrap().text(), "hi");
    let error = model.request("see @x").await.unwrap_err().to_string();
    assert!(error.starts_with("Claude Code of an unknown version would expand `@x`"), "{error}");
}
