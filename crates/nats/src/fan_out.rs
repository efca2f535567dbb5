//! One call to all hosts, with their results joined.

use serde::Serialize;
use toolbridge_core::json::members;
use toolbridge_core::{RawJson, ToolError};

/// The answer of one host.
#[derive(Serialize)]
struct Of<'a> {
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failed<'a>>,
}

#[derive(Serialize)]
struct Failed<'a> {
    #[serde(rename = "type")]
    type_name: &'a str,
    message: String,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// Joins the results of all hosts: their blocks one after the other, each host's below its name, and all
/// results in an array as the structured content. It is an error if no host has a result.
pub(crate) fn join(answers: &[(String, Result<RawJson, ToolError>)]) -> Result<RawJson, ToolError> {
    let unusable = |error: serde_json::Error| {
        ToolError::new("NatsError", format!("the results cannot be joined: {error}"))
    };
    let mut blocks: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for (host, answer) in answers {
        let block = |text: &str| serde_json::to_string(&Text { r#type: "text", text }).map_err(unusable);
        match answer {
            Ok(result) => {
                blocks.push(block(&format!("{host}:"))?);
                if let Ok(Some([Some(content)])) = members(result.as_str(), &["content"]) {
                    let list = content.get().strip_prefix('[').and_then(|list| list.strip_suffix(']'));
                    blocks.extend(list.filter(|list| !list.trim().is_empty()).map(str::to_owned));
                }
                all.push(Of { host, result: Some(result), error: None });
            }
            Err(error) => {
                blocks.push(block(&format!("{host}: {error} (type: {})", error.type_name()))?);
                let error = Failed { type_name: error.type_name(), message: error.to_string() };
                all.push(Of { host, result: None, error: Some(error) });
            }
        }
    }
    let structured = serde_json::to_string(&all).map_err(unusable)?;
    let has_failed = answers.iter().all(|(_, answer)| answer.is_err());
    let text = format!(
        r#"{{"content":[{}],"structuredContent":{{"results":{structured}}},"isError":{has_failed}}}"#,
        blocks.join(",")
    );
    RawJson::parse(text).map_err(unusable)
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
