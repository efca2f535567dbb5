//! A test of an agent, offline: the real CLI, no account, and a script in place of the model.

use toolbridge::model::ClaudeCodeError;
use toolbridge::testing::ScriptedModel;
use toolbridge::{ClaudeCodeModel, Request, Toolset};

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

/// The agent that is tested. It takes its model from its caller.
async fn answer(model: &ClaudeCodeModel, question: &str) -> Result<String, ClaudeCodeError> {
    let tools = Toolset::builder().with(add {}).build()?;
    Ok(model.request(Request::new(question).tools(tools)).await?.text())
}

#[tokio::main] // in a file of tests: #[tokio::test]
async fn main() -> Result<(), ClaudeCodeError> {
    let scripted = ScriptedModel::start(
        r#"
        call add {"a": 40, "b": 2}
        ---
        text 40 + 2 is {result}.
        "#,
    );

    assert_eq!(answer(&scripted.model()?, "What is 40 + 2?").await?, "40 + 2 is 42.0.");

    // The model was asked twice: with the question, and with what the tool answered.
    let [first, second] = &scripted.requests()[..] else { panic!("not two requests") };
    assert_eq!(first.prompt(), "What is 40 + 2?");
    assert_eq!(first.tools(), ["mcp__tools__add"]);
    let [result] = &second.tool_results()[..] else { panic!("not one result") };
    assert_eq!((result.is_error, &*result.text()), (false, "42.0"));
    Ok(())
}
