//! Checks MCP's headers, and that they agree with the message.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{HeaderMap, StatusCode};
use rmcp::ErrorData;
use rmcp::model::ProtocolVersion;
use serde_json::Value;

use crate::http::body::{EVENTS, JSON};
use crate::http::refusal::Refusal;
use crate::mcp::protocol::{KNOWN_VERSIONS, VERSION_KEY};
use crate::mcp::rpc::invalid_params;
use crate::{RawJson, ToolSpec};

pub(crate) const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The single value of a header; `None` if it is missing.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| {
            Refusal::because(StatusCode::BAD_REQUEST, format!("the header `{name}` is not plain text"))
        }),
        (Some(_), Some(_)) => {
            let text = format!("the header `{name}` appears more than once");
            Err(Refusal::because(StatusCode::BAD_REQUEST, text))
        }
    }
}

/// Whether the client accepts all of these types.
fn accepts(headers: &HeaderMap, kinds: &[&str]) -> bool {
    let mut accepted = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let ranges = value.to_str().unwrap_or_default().split(',');
        accepted.extend(ranges.map(|range| range.split(';').next().unwrap_or_default().trim()));
    }
    kinds.iter().all(|kind| {
        let group = kind.split('/').next().unwrap_or_default();
        accepted.iter().any(|one| {
            one.eq_ignore_ascii_case(kind)
                || *one == "*/*"
                || one.strip_suffix("/*").is_some_and(|one| one.eq_ignore_ascii_case(group))
        })
    })
}

/// Checks the headers of a `POST`.
pub(crate) fn check_post(headers: &HeaderMap) -> Result<(), Refusal> {
    if !accepts(headers, &[JSON, EVENTS]) {
        let text = format!("the header `Accept` must have both `{JSON}` and `{EVENTS}`");
        return Err(Refusal::because(StatusCode::NOT_ACCEPTABLE, text));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON) {
        let text = format!("the header `Content-Type` must be `{JSON}`");
        return Err(Refusal::because(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Ok(())
}

/// Checks the headers of a `GET`.
pub(crate) fn check_get(headers: &HeaderMap) -> Result<(), Refusal> {
    if !accepts(headers, &[EVENTS]) {
        let text = format!("the header `Accept` must have `{EVENTS}`");
        return Err(Refusal::because(StatusCode::NOT_ACCEPTABLE, text));
    }
    Ok(())
}

/// The version in the headers, unchecked.
pub(crate) fn named_version(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    one(headers, VERSION)
}

/// The version in the headers, which must be a supported one.
pub(crate) fn version(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let version = one(headers, VERSION)?;
    if let Some(version) = version.filter(|version| !is_known(version)) {
        let versions: Vec<_> = KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
        let shown = version.chars().take(40).collect::<String>();
        let text = format!(
            "the header `MCP-Protocol-Version` names `{shown}`; supported are {}",
            versions.join(", ")
        );
        return Err(Refusal::because(StatusCode::BAD_REQUEST, text));
    }
    Ok(version)
}

fn is_known(version: &str) -> bool {
    KNOWN_VERSIONS.iter().any(|known| known.as_str() == version)
}

/// Whether requests of this version carry all metadata themselves, without sessions.
pub(crate) fn is_stateless(version: &str) -> bool {
    KNOWN_VERSIONS.iter().any(|known| known.as_str() == version && !known.has_initialize())
}

/// The version in a request's `_meta`, unchecked.
pub(crate) fn version_of(meta: &RawJson) -> Option<String> {
    meta.member(VERSION_KEY)
}

/// Whether a request is one without a session. Its headers and its body, with this version, method and tool, must agree
/// on that, and on its content.
pub(crate) fn check_request(
    headers: &HeaderMap,
    in_body: Option<&str>,
    method: &str,
    tool: Option<&str>,
) -> Result<bool, Refusal> {
    let mismatch =
        |text: String| Refusal::new(StatusCode::BAD_REQUEST, ErrorData::header_mismatch(text, None));
    let agrees = |header: &str, named: Option<&str>, place: &str, said: &str| match named {
        None => Err(mismatch(format!("the header `{header}: {said}` is missing, and {place} names it"))),
        Some(named) if named != said => {
            Err(mismatch(format!("the header `{header}` names `{named}`, and {place} `{said}`")))
        }
        Some(_) => Ok(()),
    };
    let named = match in_body {
        // An unsupported version in the body gets a response that lists the supported ones.
        Some(_) => one(headers, VERSION)?,
        None => version(headers)?,
    };
    if let Some(in_body) = in_body {
        agrees("MCP-Protocol-Version", named, "`_meta`", in_body)?;
    }
    if !named.is_some_and(is_stateless) {
        // An unknown version is refused later, with an error that names it.
        let is_sessionless = in_body.is_some_and(|version| !is_known(version) || is_stateless(version));
        return Ok(is_sessionless || method == "server/discover");
    }
    let named = coded(headers, METHOD).map_err(mismatch)?;
    agrees("Mcp-Method", named.as_deref(), "the message", method)?;
    if let Some(tool) = tool {
        let named = coded(headers, NAME).map_err(mismatch)?;
        agrees("Mcp-Name", named.as_deref(), "the message", tool)?;
    }
    Ok(true)
}

/// A header's value, which is in Base64 if it cannot be written plainly.
fn coded(headers: &HeaderMap, name: &str) -> Result<Option<String>, String> {
    let wrong = || format!("the header `{name}` must have one value, plain or as `=?base64?…?=`");
    let Some(value) = one(headers, name).map_err(|_| wrong())? else { return Ok(None) };
    let Some(code) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Some(value.to_owned()));
    };
    let bytes = BASE64_STANDARD.decode(code).map_err(|_| wrong())?;
    String::from_utf8(bytes).map(Some).map_err(|_| wrong())
}

/// Checks the headers that repeat arguments, for tools whose schema requires them with `x-mcp-header`.
pub(crate) fn check_arguments(
    headers: &HeaderMap,
    tool: &ToolSpec,
    arguments: &RawJson,
) -> Result<(), Refusal> {
    // Few tools do, so most schemas need not be decoded.
    if !tool.input_schema.as_str().contains("x-mcp-header") {
        return Ok(());
    }
    let Ok(schema) = tool.input_schema.decode::<Value>() else { return Ok(()) };
    let unread = |error| Refusal::new(StatusCode::BAD_REQUEST, invalid_params(format!("{error}")));
    let arguments = arguments.decode::<Value>().map_err(unread)?;
    check_members(headers, &schema, Some(&arguments))
        .map_err(|text| Refusal::new(StatusCode::BAD_REQUEST, ErrorData::header_mismatch(text, None)))
}

fn check_members(headers: &HeaderMap, schema: &Value, value: Option<&Value>) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (member, schema) in properties {
        let value = value.and_then(|value| value.get(member));
        if let Some(header) =
            schema.get("x-mcp-header").and_then(Value::as_str).filter(|name| !name.is_empty())
        {
            let header = format!("mcp-param-{}", header.to_ascii_lowercase());
            let said = match value {
                Some(Value::String(text)) => Some(text.clone()),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
                _ => None,
            };
            match (coded(headers, &header)?, said) {
                (None, Some(_)) => return Err(format!("the header `{header}` with `{member}` is missing")),
                (Some(_), None) => return Err(format!("there is a header `{header}`, and no `{member}`")),
                (Some(named), Some(said)) if !is_same(&named, &said) => {
                    return Err(format!("the header `{header}` says `{named}`, and `{member}` is `{said}`"));
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
        check_members(headers, schema, value)?;
    }
    Ok(())
}

/// `1.0` and `1` are the same number.
fn is_same(named: &str, said: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    named == said
        || matches!((number(named), number(said)), (Some(named), Some(said)) if named.to_bits() == said.to_bits())
}
