//! Checks the headers `Host` and `Origin`.
//!
//! A web page in a browser can send requests to a server on the user's machine, and can make its own host name
//! resolve to that machine's address. So a request must name an allowed host, and must not come from a page that is
//! not allowed.

use std::net::IpAddr;

use hyper::header::{HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, StatusCode, Uri};

use crate::http::header::one;
use crate::http::refusal::Refusal;

/// The allowed hosts and origins.
#[derive(Debug, Default)]
pub(crate) struct AllowedOrigins {
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
}

impl AllowedOrigins {
    /// Checks `Host` and `Origin`.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = match one(headers, HOST.as_str())? {
            Some(host) => host_and_port(host),
            // HTTP/2 has no such header.
            None => uri.authority().and_then(|host| host_and_port(host.as_str())),
        };
        let Some((host, port)) = host else {
            return Err(Refusal::because(StatusCode::BAD_REQUEST, "the header `Host` must name a host"));
        };
        // A known host without a port is meant with any.
        let is_meant = |known: &String| {
            host_and_port(known).is_some_and(|(name, only)| name == host && (only.is_none() || only == port))
        };
        if !is_loopback(&host) && !self.hosts.iter().any(is_meant) {
            let text = format!("the header `Host` names `{host}`, which is not allowed here");
            return Err(Refusal::because(StatusCode::FORBIDDEN, text));
        }
        let Some(origin) = one(headers, ORIGIN.as_str())? else { return Ok(()) };
        if self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
            return Ok(());
        }
        let (page, default) = match origin.strip_prefix("https://") {
            Some(page) => (Some(page), 443),
            None => (origin.strip_prefix("http://"), 80),
        };
        if let Some((page, page_port)) = page.and_then(host_and_port) {
            let is_same = page == host && page_port.unwrap_or(default) == port.unwrap_or(default);
            if is_same || is_loopback(&page) {
                return Ok(());
            }
        }
        let shown = origin.chars().take(200).collect::<String>();
        let text = format!("the header `Origin` names `{shown}`, which is not allowed here");
        Err(Refusal::because(StatusCode::FORBIDDEN, text))
    }
}

/// A host, and its port if there is one.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    // `user@host` is not allowed.
    let is_plain = !text.contains('@') && !authority.host().is_empty();
    let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    is_plain.then(|| (name, authority.port_u16()))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_and_pages_are_let_in() {
        let allowed = AllowedOrigins {
            hosts: vec!["Example.com".into(), "tools.example:8443".into()],
            origins: vec!["https://app.example".into()],
        };
        let rows: &[(&str, Option<&str>, u16)] = &[
            ("localhost", None, 200),
            ("localhost:8000", None, 200),
            ("LOCALHOST:1", None, 200),
            ("127.0.0.1:8000", None, 200),
            ("127.9.9.9", None, 200),
            ("[::1]:8000", None, 200),
            ("example.com", None, 200),
            ("example.com:99", None, 200),
            ("tools.example:8443", None, 200),
            ("tools.example", None, 403),
            ("tools.example:8444", None, 403),
            ("evil.example", None, 403),
            ("localhost.evil.example", None, 403),
            ("127.0.0.1.evil.example", None, 403),
            ("10.0.0.1", None, 403),
            ("0.0.0.0:8000", None, 403),
            ("evil@localhost", None, 400),
            ("localhost@evil", None, 400),
            ("", None, 400),
            ("a b", None, 400),
            ("localhost:8000", Some("http://localhost:3000"), 200),
            ("localhost:8000", Some("http://[::1]:3000"), 200),
            ("localhost:8000", Some("https://app.example"), 200),
            ("localhost:8000", Some("https://APP.example"), 200),
            ("localhost:8000", Some("https://app.example:444"), 403),
            ("localhost:8000", Some("http://app.example"), 403),
            ("localhost:8000", Some("https://evil.example"), 403),
            ("localhost:8000", Some("https://localhost.evil.example"), 403),
            ("localhost:8000", Some("https://localhost@evil.example"), 403),
            ("localhost:8000", Some("null"), 403),
            ("localhost:8000", Some(""), 403),
            ("localhost:8000", Some("file://localhost"), 403),
            ("example.com", Some("https://example.com"), 200),
            ("example.com:443", Some("https://example.com"), 200),
            ("example.com", Some("https://example.com:8443"), 403),
        ];
        for (host, origin, want) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            let status = match allowed.check(&Uri::from_static("/mcp"), &headers) {
                Ok(()) => 200,
                Err(refusal) => crate::http::Response::from(refusal).status().as_u16(),
            };
            assert_eq!(status, *want, "{host} {origin:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(HOST, "localhost".parse().unwrap());
        twice.append(HOST, "evil.example".parse().unwrap());
        assert!(allowed.check(&Uri::from_static("/mcp"), &twice).is_err(), "a proxy may use the other one");
        let whole = Uri::from_static("http://localhost:8000/mcp");
        assert!(allowed.check(&whole, &HeaderMap::new()).is_ok(), "HTTP/2 names the host in the address");
        assert!(allowed.check(&Uri::from_static("/mcp"), &HeaderMap::new()).is_err());
    }
}
