//! Each HTTP request is answered; a refusal is a JSON-RPC error, and requests with a foreign `Host` or
//! `Origin` are refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use toolbridge_core::{NoArgs, Toolset};

use crate::json;

/// Runs the target on one input: a method, headers, an empty line, and the body.
pub fn run(input: &[u8]) {
    let Some(request) = request(input) else { return };
    let host = text(&request, "host");
    let origin = request.headers().get("origin").is_some().then(|| text(&request, "origin"));
    let tools = Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build();
    let service =
        toolbridge_core::http::Server::builder(tools.expect("a good tool")).service().expect("no trace");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let response = runtime.block_on(service.handle(request));
    let status = response.status().as_u16();
    if status >= 400 {
        assert!(status < 500, "status {status}");
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = response.into_body().collect().now_or_never().expect("it is there").expect("no error");
        let said = String::from_utf8(body.to_bytes().into()).expect("a refusal is text");
        let said = json::read(&said).expect("a refusal is JSON");
        assert!(said.get("error").is_some_and(json::Node::is_object), "a refusal is an error");
        return;
    }
    assert!(is_this_machine(&host), "accepted with host {host:?}");
    if let Some(origin) = origin {
        let (scheme, place) = origin.split_once("://").expect("an origin has a scheme");
        assert!(
            ["http", "https"].contains(&scheme) && is_this_machine(place),
            "accepted with origin {origin:?}"
        );
    }
}

fn text(request: &Request<Full<Bytes>>, name: &str) -> String {
    request
        .headers()
        .get(name)
        .map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into())
}

fn request(input: &[u8]) -> Option<Request<Full<Bytes>>> {
    let end = input.windows(2).position(|two| two == b"\n\n")?;
    let mut lines = input[..end].split(|byte| *byte == b'\n');
    let mut request = Request::builder().method(lines.next()?).uri("/mcp");
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    request.body(Full::new(Bytes::copy_from_slice(&input[end + 2..]))).ok()
}

/// Whether a host, with or without a port, is this machine.
fn is_this_machine(place: &str) -> bool {
    let (name, port) = match place.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (place, ""),
    };
    let is_known = name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.octets()[0] == 127)
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse() == Ok(Ipv6Addr::LOCALHOST));
    is_known && port.bytes().all(|byte| byte.is_ascii_digit())
}
