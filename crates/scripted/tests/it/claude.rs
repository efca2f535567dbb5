//! The real CLI accepts the scripted model as a real one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolbridge_scripted::{ModelRequest, ScriptedModel, claude_cli, clean_environment};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `claude -p PROMPT`; returns the objects that it printed.
fn run(model: &ScriptedModel, prompt: &str, args: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let stderr = home.path().join("stderr");
    let child = Command::new(claude_cli())
        .args(["-p", prompt, "--output-format", "stream-json", "--verbose"])
        .args(args)
        .env_clear()
        .envs(clean_environment(home.path(), &model.url()))
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let deadline = Instant::now() + TIMEOUT;
    let mut printed = Vec::new();
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => printed.extend(serde_json::from_str(&line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("no end: {printed:?} {:?}", std::fs::read_to_string(&stderr))
            }
        }
    }
    assert!(!printed.is_empty(), "nothing printed: {:?}", std::fs::read_to_string(&stderr));
    printed
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn result(printed: &[Value]) -> &Value {
    printed.iter().find(|object| object["type"] == "result").expect("a result")
}

#[test]
fn it_says_what_the_script_says() {
    let model = ScriptedModel::start("think They greet.\ntext Hello |there.");
    let printed = run(&model, "hi", &[]);
    assert_eq!(result(&printed)["result"], "Hello there.", "{printed:?}");
    assert_eq!(result(&printed)["is_error"], false);
    let [request] = &model.requests()[..] else { panic!("not one request: {:?}", model.requests()) };
    assert_eq!(request.prompt(), "hi");
    assert!(request.tools().contains(&"Bash"), "{:?}", request.tools());
    assert!(request.system().contains("Claude"));
}

#[test]
fn it_calls_tools_and_sends_the_results() {
    let model = ScriptedModel::start(
        r#"
        think Two commands.
        text Let me | see.
        call Bash {"command": "echo forty-two; echo ünder"}
        sleep 20
        call Bash {"command": "exit 3"} as toolu_mine
        ---
        text It said {result}.
        "#,
    );
    let printed = run(&model, "call them", &["--allowedTools", "Bash"]);
    assert_eq!(result(&printed)["result"], "It said forty-two\nünder.", "{printed:?}");
    let requests = model.requests();
    assert_eq!(requests.iter().map(ModelRequest::turn).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(requests[1].prompt(), "call them");
    let mut results = requests[1].tool_results();
    results.sort_by_key(|result| result.is_error);
    let [said, failed] = &results[..] else { panic!("not two results: {results:?}") };
    assert_eq!((&*said.tool_use_id, said.is_error), ("toolu_0_0", false));
    assert_eq!((&*failed.tool_use_id, failed.is_error), ("toolu_mine", true));
    assert_eq!(model.overruns(), 0);
}

#[test]
fn it_reports_errors_of_the_model() {
    for script in ["error 529 too much to do", "error 400 too much to do"] {
        let model = ScriptedModel::start(script);
        let printed = run(&model, "hi", &[]);
        let result = result(&printed);
        assert_eq!(result["is_error"], true, "{result}");
        assert!(result["result"].as_str().unwrap().contains("too much to do"), "{result}");
    }
}

#[test]
fn it_survives_a_model_that_breaks() {
    for script in ["drop", "garbage"] {
        let model = ScriptedModel::start(script);
        let printed = run(&model, "hi", &[]);
        assert_eq!(result(&printed)["is_error"], true, "{script}: {printed:?}");
    }
}
