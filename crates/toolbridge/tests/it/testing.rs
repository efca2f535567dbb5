//! The library for testing agents: the real CLI, without an account, isolated from the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use toolbridge::model::{ClaudeCodeModelBuilder, Transport};
use toolbridge::testing::{ScriptedModel, ToolResultBlock};
use toolbridge::{Request, Toolset};
use toolbridge_scripted::{Page, claude_cli, processes_of};

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

fn with_add(prompt: &str) -> Request {
    Request::new(prompt).tools(Toolset::builder().with(add {}).build().unwrap())
}

/// The CLI of our tests is not where users have it.
fn builder(scripted: &ScriptedModel) -> ClaudeCodeModelBuilder {
    scripted.builder().cli(claude_cli())
}

/// An example; cargo builds them before it runs the tests.
fn example(name: &str) -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

#[tokio::test]
async fn a_tool_is_called_and_what_the_model_saw_is_recorded() {
    for transport in [Transport::Auto, Transport::Stdio] {
        let scripted = ScriptedModel::start("call add {\"a\": 40, \"b\": 2}\n---\ntext The sum is {result}.");
        // The test's executable is no bridge: without one, only the SDK transport works.
        let model = match transport {
            Transport::Stdio => builder(&scripted).bridge(example("own_bridge")),
            _ => builder(&scripted),
        };
        let model = model.system_prompt("You are a clerk.").build().unwrap();
        let answer = model.request(with_add("What is 40 + 2?").transport(transport)).await.unwrap();
        assert_eq!(answer.text(), "The sum is 42.0.");
        let [first, second] = &scripted.requests()[..] else { panic!("{:?}", scripted.requests()) };
        assert_eq!((&*first.prompt(), first.tools()), ("What is 40 + 2?", vec!["mcp__tools__add"]));
        assert!(first.system().contains("You are a clerk."), "{}", first.system());
        let results: Vec<_> = second.tool_results().iter().map(ToolResultBlock::text).collect();
        assert_eq!((results, scripted.overruns()), (vec!["42.0".to_owned()], 0));
    }
}

#[tokio::test]
async fn streams_that_are_left_early_leave_no_folder() {
    let mut homes = Vec::new();
    for _ in 0..8 {
        let scripted = ScriptedModel::start("text one | two | three");
        homes.push(scripted.home().to_path_buf());
        let mut stream = builder(&scripted).build().unwrap().request_stream("go").await.unwrap();
        assert!(stream.next().await.unwrap().is_ok());
    }
    for home in &homes {
        let until = Instant::now() + Duration::from_secs(60);
        while processes_of(home).count() > 0 {
            assert!(Instant::now() < until, "a CLI still runs");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(!home.exists(), "{}", home.display());
    }
}

#[tokio::test]
async fn a_bare_name_is_a_tool_of_the_server_that_has_it() {
    let scripted = ScriptedModel::start("call add {\"a\": 1, \"b\": 2}\n---\ntext {result}");
    let model = builder(&scripted).build().unwrap();
    let answer = model.request(with_add("go").server_name("desk")).await.unwrap();
    assert_eq!(answer.text(), "3.0");
    assert_eq!(scripted.requests()[0].tools(), ["mcp__desk__add"]);
}

#[tokio::test]
async fn a_request_past_the_scripts_end_fails_and_says_so() {
    let scripted = ScriptedModel::start("call add {\"a\": 40, \"b\": 2}");
    let model = builder(&scripted).build().unwrap();
    let error = model.request(with_add("go")).await.unwrap_err().to_string();
    assert!(error.contains("the script has ended: it has no turn 2"), "{error}");
    // The CLI may retry.
    let overruns = scripted.overruns();
    assert!(overruns >= 1 && scripted.requests().len() == 1 + overruns, "{overruns}");
}

#[tokio::test]
async fn the_cli_sees_nothing_of_the_machine_but_the_path() {
    let scripted = ScriptedModel::start("call Bash {\"command\": \"env\"}\n---\ntext {result}");
    let model = builder(&scripted)
        .builtin_tools(["Bash"])
        .allowed_tools(["Bash"])
        .working_directory(scripted.home())
        .build()
        .unwrap();
    let seen = model.request(Request::new("go")).await.unwrap().text();
    // Cargo sets this variable for every test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !seen.contains("CARGO_MANIFEST_DIR"));
    let home = scripted.home().to_owned();
    assert!(seen.lines().any(|line| Path::new(line.trim_start_matches("HOME=")) == home), "{seen}");
    drop(scripted);
    assert!(!home.exists());
}

#[test]
#[should_panic(expected = "line 2 of the script: `say` is not a keyword; a line starts with `text`")]
fn a_script_with_a_mistake_names_the_line() {
    drop(ScriptedModel::start("text hello\nsay goodbye"));
}

#[test]
fn the_commands_of_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TESTING.md");
    let command = "cargo run --quiet --example testing";
    let page = Page::new(page).program("testing", example("testing")).program("claude", claude_cli());
    assert_eq!(page.instead_of(command, "testing").only(&[command]).repeat(), 1);
}
