//! The complete input of the CLI at its start, as seen by a program in its place.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use toolbridge::model::Transport;
use toolbridge::{ClaudeCodeModel, Request};
use toolbridge_scripted::clean_environment;

use super::support::{BOTH, Tools, World, bridge, program};

/// Records its input and exits.
const WITNESS: &str = r#"
mkdir seen
printf '%s\n' "$@" > seen/arguments
env > seen/environment
read -r hello && printf '%s\n' "$hello" > seen/hello
for argument; do
    case "$argument" in
        --mcp-config=*) cp "${argument#*=}" seen/mcp.json ;;
        */settings.json) cp "$argument" seen/settings.json ;;
    esac
done
"#;

/// What the program has recorded. Random paths are replaced with fixed names.
struct Seen {
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    hello: Value,
    mcp: Value,
    settings: Value,
}

async fn seen(world: &World, model: &ClaudeCodeModel, request: Request) -> Seen {
    let error = model.request(request).await.unwrap_err();
    assert_eq!(error.type_name(), "CLIExecutionError", "{error}");
    let folder = world.home.path().join("seen");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let arguments: Vec<_> = read("arguments").lines().map(str::to_owned).collect();
    let config = arguments.iter().find_map(|argument| argument.strip_prefix("--mcp-config=")).unwrap();
    let room = Path::new(config).parent().unwrap().display().to_string();
    assert!(room.starts_with(&world.sessions.path().display().to_string()), "{room}");
    let plain = |text: &str| text.replace(&room, "ROOM");
    // Variables that the shell adds.
    let of_shell = |name: &str| matches!(name, "PWD" | "OLDPWD" | "SHLVL" | "_");
    let environment = read("environment");
    let environment = environment.lines().map(|line| line.split_once('=').unwrap());
    let environment = environment.filter(|(name, _)| !of_shell(name));
    let json = |name: &str| serde_json::from_str(&read(name)).unwrap();
    Seen {
        environment: environment.map(|(name, value)| (name.to_owned(), plain(value))).collect(),
        hello: json("hello"),
        mcp: json("mcp.json"),
        settings: json("settings.json"),
        arguments: arguments.iter().map(|argument| plain(argument)).collect(),
    }
}

#[tokio::test]
async fn the_cli_gets_exactly_this_configuration() {
    for transport in BOTH {
        let world = World::new("text ok");
        let other = json!({ "command": "true", "env": { "TOKEN": "secret-token" } });
        let model = world
            .builder()
            .cli(program(&world, "claude", WITNESS))
            .model("claude-haiku-4-5")
            .system_prompt("secret-system")
            .cli_settings(json!({ "env": { "A": "secret-setting" } }))
            .mcp_server("other", other.clone())
            .build()
            .unwrap();
        let schema = json!({ "type": "object" });
        let tools = Tools::new().toolset();
        let request =
            Request::new("secret-prompt").tools(tools).transport(transport).output_schema(schema.clone());
        let mut seen = seen(&world, &model, request).await;
        assert_eq!(
            seen.arguments,
            [
                "--output-format=stream-json",
                "--input-format=stream-json",
                "--verbose",
                "--model=claude-haiku-4-5",
                "--allowedTools=mcp__tools",
                "--tools=",
                "--no-session-persistence",
                "--setting-sources",
                "",
                "--settings",
                "ROOM/settings.json",
                "--mcp-config=ROOM/mcp.json",
                "--strict-mcp-config",
            ]
        );
        if transport == Transport::Stdio {
            // The session's files have random names.
            for argument in seen.mcp["mcpServers"]["tools"]["args"].as_array_mut().unwrap().iter_mut().skip(1)
            {
                let path = Path::new(argument.as_str().unwrap()).to_owned();
                assert_eq!(path.parent(), Some(world.sessions.path()));
                *argument = json!(path.extension().unwrap().to_str());
            }
        }
        let own = match transport {
            Transport::Stdio => {
                json!({ "type": "stdio", "command": bridge(), "args": ["bridge", "sock", "json"] })
            }
            _ => json!({ "type": "sdk", "name": "tools" }),
        };
        assert_eq!(seen.mcp, json!({ "mcpServers": { "other": other, "tools": own } }), "over {transport}");
        assert_eq!(seen.settings, json!({ "env": { "A": "secret-setting" } }));
        let id = seen.hello["request_id"].take();
        assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{id}");
        let expected = json!({
            "subtype": "initialize",
            "hooks": null,
            "systemPrompt": "secret-system",
            "jsonSchema": schema,
        });
        assert_eq!(seen.hello, json!({ "type": "control_request", "request_id": null, "request": expected }));
        let marker = seen.environment.remove("TOOLBRIDGE_REQUEST").unwrap();
        assert_eq!(marker.len(), 32, "{marker}");
        let ours = [
            ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
            ("CLAUDE_CODE_TMPDIR", "ROOM/tmp"),
            ("ENABLE_TOOL_SEARCH", "false"),
        ];
        let mut want = BTreeMap::from_iter(clean_environment(world.home.path(), &world.scripted.url()));
        want.extend(ours.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(seen.environment, want, "over {transport}");
        world.nothing_is_left();
    }
}
