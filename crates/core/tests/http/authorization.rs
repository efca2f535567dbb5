//! Authorization of requests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use toolbridge_core::http::{self, HttpError};
use toolbridge_core::tool::Hint as _;
use toolbridge_core::{NoArgs, Toolset};

use crate::client::{Client, Server};

fn tools() -> Toolset {
    Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap()
}

fn write(dir: &TempDir, text: &str, mode: u32) -> PathBuf {
    let path = dir.path().join("tokens");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

async fn status(client: &mut Client, authorization: Option<&str>) -> (u16, Option<String>) {
    match authorization {
        Some(value) => client.set("authorization", value),
        None => client.unset("authorization"),
    }
    let answer = client.ask_stateless("tools/list", json!({})).await;
    let challenge = answer.headers.get("www-authenticate");
    (answer.status.as_u16(), challenge.map(|challenge| challenge.to_str().unwrap().to_owned()))
}

#[tokio::test]
async fn only_known_tokens_are_let_in() {
    let dir = TempDir::new().unwrap();
    let path = write(&dir, "# for the office\nfirst-token\n\n  second-token  \n", 0o600);
    let server =
        Server::start(http::Server::builder(tools()).bearer_tokens_from(&path).unwrap().metrics()).await;
    let mut client = server.client().await;
    let (plain, invalid) = (Some("Bearer".to_owned()), Some(r#"Bearer error="invalid_token""#.to_owned()));
    let rows = [
        (Some("Bearer first-token"), (200, None)),
        (Some("bearer second-token"), (200, None)),
        (None, (401, plain.clone())),
        (Some("first-token"), (401, plain.clone())),
        (Some("Basic first-token"), (401, plain.clone())),
        (Some("Bearer"), (401, plain)),
        (Some("Bearer "), (401, None)),
        (Some("Bearer first-toke"), (401, invalid.clone())),
        (Some("Bearer first-tokenx"), (401, invalid.clone())),
        (Some("Bearer FIRST-token"), (401, invalid.clone())),
        (Some("Bearer # for the office"), (401, invalid.clone())),
    ];
    for (authorization, want) in rows {
        let got = status(&mut client, authorization).await;
        assert_eq!(got.0, want.0, "{authorization:?}");
        assert!(want.1.is_none() || got.1 == want.1, "{authorization:?}: {got:?}");
    }
    let mut keeper = server.client().await;
    keeper.set("authorization", "Bearer first-token");
    keeper.initialize("2025-11-25").await;
    assert!(!format!("{:?}", server.service).contains("first-token"), "it could be logged");
    // The file has changed.
    write(&dir, "third-token\n", 0o600);
    assert_eq!(status(&mut client, Some("Bearer third-token")).await.0, 200);
    assert_eq!(status(&mut client, Some("Bearer first-token")).await, (401, invalid));
    // While the file is readable by others or missing, all requests are refused.
    write(&dir, "third-token\n", 0o644);
    assert_eq!(status(&mut client, Some("Bearer third-token")).await.0, 503);
    write(&dir, "third-token\n", 0o600);
    assert_eq!(status(&mut client, Some("Bearer third-token")).await.0, 200);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(status(&mut client, Some("Bearer third-token")).await.0, 503);
    write(&dir, "third-token\n", 0o600);
    assert_eq!(status(&mut client, Some("Bearer third-token")).await.0, 200);
}

#[tokio::test]
async fn a_file_of_tokens_must_be_ours_alone() {
    let dir = TempDir::new().unwrap();
    let fails = |path: &Path| http::Server::builder(tools()).bearer_tokens_from(path).map(drop).unwrap_err();
    for mode in [0o644, 0o640, 0o604, 0o660] {
        let error = fails(&write(&dir, "token\n", mode));
        assert!(matches!(error, HttpError::TokensMode { mode: seen, .. } if seen == mode), "{error}");
        assert_eq!(error.hint(), Some("run `chmod 600` on it"));
    }
    let error = fails(&write(&dir, "# nothing\n\n", 0o600));
    assert!(matches!(error, HttpError::NoTokens { .. }), "{error}");
    let error = fails(dir.path());
    assert!(matches!(error, HttpError::TokensOwner { .. }), "{error}");
    let error = fails(Path::new("/nonexistent/tokens"));
    assert!(error.to_string().starts_with("cannot read the tokens in `/nonexistent/tokens`: "), "{error}");
    http::Server::builder(tools()).bearer_tokens_from(write(&dir, "token", 0o400)).map(drop).unwrap();
}

#[tokio::test]
async fn a_session_belongs_to_the_caller_that_opened_it() {
    let builder = http::Server::builder(tools()).authorize(async |headers| {
        let user = headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
        user.ok_or("the user is missing")
    });
    let server = Server::start(builder).await;
    let mut anonymous = server.client().await;
    let refused = anonymous.ask("ping", json!({})).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (401, -32000));
    assert!(refused.text.contains("the user is missing"), "{}", refused.text);
    let mut alice = server.client().await;
    alice.set("x-user", "alice");
    alice.initialize("2025-11-25").await;
    let mut bob = alice.another().await;
    bob.set("x-user", "bob");
    for method in ["GET", "DELETE"] {
        assert_eq!(bob.send(method, "").await.status, 404, "{method}");
    }
    assert_eq!(bob.call("hello", json!({})).await.status, 404);
    assert_eq!(alice.call("hello", json!({})).await.said(), "hello");
}

#[tokio::test]
async fn other_machines_need_authorization() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = http::Server::builder(tools()).serve(listener, std::future::pending());
    let error = crate::client::in_time(served).await.unwrap_err();
    assert!(matches!(error, HttpError::Unprotected { .. }), "{error}");
    assert!(error.hint().unwrap().contains("`.bearer_tokens_from(FILE)`"));
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let dir = TempDir::new().unwrap();
    let protected = http::Server::builder(tools()).bearer_tokens_from(write(&dir, "token", 0o600)).unwrap();
    protected.serve(listener, std::future::ready(())).await.unwrap();
}
