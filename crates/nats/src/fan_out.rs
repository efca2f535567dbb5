//! One call to all hosts, with their results joined.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolbridge_core::ToolError;
use toolbridge_core::tool::RawJson;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResultContent<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
}

/// Joins the results of all hosts: their blocks one after the other, each host's below its name, and all
/// results in an array as the structured content. It is an error if no host has a result.
pub(crate) fn join(answers: &[(String, Result<RawJson, ToolError>)]) -> Result<RawJson, ToolError> {
    let json = |text: &str| Value::from(text).to_string();
    let block = |text: String| format!(r#"{{"type":"text","text":{}}}"#, json(&text));
    let (mut blocks, mut results) = (Vec::new(), Vec::new());
    for (host, answer) in answers {
        let (what, shown) = match answer {
            Ok(result) => {
                blocks.push(block(format!("{host}:")));
                let ResultContent { content } = result.decode().unwrap_or_default();
                blocks.extend(content.into_iter().map(|block| block.get().to_owned()));
                ("result", result.to_string())
            }
            Err(error) => {
                let kind = error.type_name();
                blocks.push(block(format!("{host}: {error} (type: {kind})")));
                let message = json(&error.to_string());
                ("error", format!(r#"{{"type":{},"message":{message}}}"#, json(kind)))
            }
        };
        results.push(format!(r#"{{"host":{},"{what}":{shown}}}"#, json(host)));
    }
    let has_failed = answers.iter().all(|(_, answer)| answer.is_err());
    let (blocks, results) = (blocks.join(","), results.join(","));
    let text = format!(
        r#"{{"content":[{blocks}],"structuredContent":{{"results":[{results}]}},"isError":{has_failed}}}"#
    );
    RawJson::parse(text)
        .map_err(|error| ToolError::new("NatsError", format!("the results cannot be joined: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_blocks_and_its_result() {
        let raw = |text: &str| Ok(RawJson::parse(text.to_owned()).unwrap());
        let joined = join(&[
            (
                "a".into(),
                raw(r#"{"content":[{"type":"text","text":"[1]"},{"type":"x","n":1.50}],"isError":false}"#),
            ),
            ("b".into(), Err(ToolError::new("QuotaError", "too \"much\""))),
        ]);
        let want = concat!(
            r#"{"content":[{"type":"text","text":"a:"},{"type":"text","text":"[1]"},{"type":"x","n":1.50},"#,
            r#"{"type":"text","text":"b: too \"much\" (type: QuotaError)"}],"structuredContent":{"results":["#,
            r#"{"host":"a","result":{"content":[{"type":"text","text":"[1]"},{"type":"x","n":1.50}],"isError":false}},"#,
            r#"{"host":"b","error":{"type":"QuotaError","message":"too \"much\""}}]},"isError":false}"#
        );
        let joined = joined.unwrap();
        assert_eq!(joined.as_str(), want);
        joined.into_result().unwrap();
        let failed = join(&[("b".into(), Err(ToolError::new("E", "x")))]).unwrap();
        assert!(failed.as_str().ends_with(r#""isError":true}"#));
    }
}
