//! Authentication and permissions, and the errors without them.

use std::path::Path;

use toolbridge_core::tool::Hint as _;
use toolbridge_core::{NoArgs, Toolset};
use toolbridge_nats::{self as nats, ConnectFiles, ConnectOptions, NatsError, Tools};

use crate::support::{Server, call, free_port, text, within};

fn own() -> Toolset {
    Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap()
}

fn credentials(path: &Path) -> Result<ConnectOptions, NatsError> {
    ConnectFiles { credentials: Some(path.into()), ..ConnectFiles::default() }.options()
}

fn nkey(path: &Path) -> Result<ConnectOptions, NatsError> {
    ConnectFiles { nkey: Some(path.into()), ..ConnectFiles::default() }.options()
}

/// Offers and calls a tool.
async fn works(url: &str, options: ConnectOptions) {
    let host = nats::Host::builder(own(), "shop").at(url).options(options.clone()).start().await.unwrap();
    let tools = within(Tools::connect(url, "shop").options(options).into_future()).await.unwrap();
    assert_eq!(text(&call(&tools, "hello", "{}").await.unwrap()), "hello");
    host.drain().await;
}

async fn fails(url: &str, options: ConnectOptions) -> NatsError {
    nats::Host::builder(own(), "shop").at(url).options(options).start().await.unwrap_err()
}

#[tokio::test]
async fn a_token_or_a_user_may_be_in_the_address() {
    let server = Server::with("authorization { token: \"s3cr3t/x\" }\n");
    let address = |who: &str| format!("nats://{who}@127.0.0.1:{}", server.port);
    works(&address("s3cr3t%2Fx"), ConnectOptions::new()).await;
    works(&server.url(), ConnectOptions::with_token("s3cr3t/x".into())).await;
    for error in [
        fails(&server.url(), ConnectOptions::new()).await,
        fails(&address("wrong"), ConnectOptions::new()).await,
    ] {
        assert!(matches!(error, NatsError::Refused { .. }), "{error:?}");
        assert!(!error.to_string().contains("wrong") && error.hint().unwrap().contains("token"));
    }
    let server = Server::with("authorization { user: ann, password: \"p@ss\" }\n");
    works(&format!("nats://ann:p%40ss@127.0.0.1:{}", server.port), ConnectOptions::new()).await;
    works(&server.url(), ConnectOptions::with_user_and_password("ann".into(), "p@ss".into())).await;
}

#[tokio::test]
async fn an_nkey_is_read_from_its_file() {
    let key = nkeys::KeyPair::new_user();
    let server = Server::with(&format!("authorization {{ users: [{{ nkey: {} }}] }}\n", key.public_key()));
    let file = server.folder.path().join("user.nk");
    std::fs::write(&file, format!("# a comment\n{}\n", key.seed().unwrap())).unwrap();
    works(&server.url(), nkey(&file).unwrap()).await;
    let other = nkeys::KeyPair::new_user();
    std::fs::write(&file, other.seed().unwrap()).unwrap();
    let error = fails(&server.url(), nkey(&file).unwrap()).await;
    assert!(matches!(error, NatsError::Refused { .. }), "{error:?}");
    std::fs::write(&file, "nonsense").unwrap();
    let error = nkey(&file).unwrap_err();
    assert!(matches!(&error, NatsError::File { path, .. } if *path == file), "{error:?}");
}

#[tokio::test]
async fn a_credentials_file_determines_user_and_account() {
    let (operator, account, user) =
        (nkeys::KeyPair::new_operator(), nkeys::KeyPair::new_account(), nkeys::KeyPair::new_user());
    let operator_token = jwt(&operator, &operator.public_key(), r#""type":"operator","version":2"#);
    let limits = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1}"#;
    let account_token =
        jwt(&operator, &account.public_key(), &format!(r#"{limits},"type":"account","version":2"#));
    let user_token = jwt(
        &account,
        &user.public_key(),
        r#""pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1,"type":"user","version":2"#,
    );
    let server = Server::with(&format!(
        "operator: {operator_token}\nresolver: MEMORY\nresolver_preload: {{ {}: {account_token} }}\n",
        account.public_key()
    ));
    let file = server.folder.path().join("user.creds");
    let seed = user.seed().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(&file, text).unwrap();
    works(&server.url(), credentials(&file).unwrap()).await;
    assert!(matches!(fails(&server.url(), ConnectOptions::new()).await, NatsError::Refused { .. }));
    let missing = server.folder.path().join("missing.creds");
    let error = credentials(&missing).unwrap_err();
    assert!(matches!(&error, NatsError::File { path, .. } if *path == missing), "{error:?}");
}

/// A JWT in the format of NATS.
fn jwt(by: &nkeys::KeyPair, of: &str, claims: &str) -> String {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let by_key = by.public_key();
    let body = format!(
        r#"{{"jti":"x","iat":1700000000,"iss":"{by_key}","name":"n","sub":"{of}","nats":{{{claims}}}}}"#
    );
    let signed = format!("{head}.{}", encode(body.as_bytes()));
    let signature = by.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", encode(&signature))
}

#[tokio::test]
async fn hosts_and_callers_need_no_more_than_the_page_says() {
    let page = include_str!("../../../../docs/NATS.md");
    let config = page.split("```hocon\n").nth(1).unwrap().split("```").next().unwrap();
    let server = Server::with(config);
    let host = ConnectOptions::with_user_and_password("gpu-host".into(), "host-secret".into())
        .custom_inbox_prefix("_INBOX.gpu-host");
    let caller = ConnectOptions::with_user_and_password("ann".into(), "ann-secret".into())
        .custom_inbox_prefix("_INBOX.ann");
    let running =
        nats::Host::builder(own(), "gpu").at(server.url()).host("gpu-1").options(host).start().await.unwrap();
    let tools =
        within(Tools::connect(server.url(), "gpu").options(caller.clone()).into_future()).await.unwrap();
    assert_eq!(text(&call(&tools, "hello", "{}").await.unwrap()), "hello");
    // A caller cannot be a host, nor call other names.
    let error =
        nats::Host::builder(own(), "gpu").at(server.url()).options(caller.clone()).start().await.unwrap_err();
    assert!(matches!(error, NatsError::Forbidden { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("docs/NATS.md"));
    let error =
        within(Tools::connect(server.url(), "other").options(caller).into_future()).await.unwrap_err();
    assert!(matches!(error, NatsError::Forbidden { .. }), "{error:?}");
    running.drain().await;
}

#[tokio::test]
async fn an_unreachable_server_is_named_without_secrets() {
    let port = free_port();
    let error = fails(&format!("nats://ann:hidden@127.0.0.1:{port}"), ConnectOptions::new()).await;
    assert!(matches!(error, NatsError::Connect { .. }), "{error:?}");
    assert!(
        error.to_string().contains(&format!("nats://127.0.0.1:{port}"))
            && !error.to_string().contains("hidden")
    );
    assert_eq!(error.hint(), Some("start `nats-server`, or check host and port"));
}

#[tokio::test]
async fn a_tls_connection_needs_the_right_authority() {
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls");
    let server =
        Server::with(&format!("tls {{ cert_file: \"{tls}/server.pem\", key_file: \"{tls}/server.key\" }}\n"));
    let url = format!("tls://localhost:{}", server.port);
    let known =
        ConnectFiles { root_certificates: Some(format!("{tls}/ca.pem").into()), ..ConnectFiles::default() };
    works(&url, known.options().unwrap()).await;
    let error = fails(&url, ConnectOptions::new()).await;
    assert!(matches!(error, NatsError::Tls { .. }), "{error:?}");
    let server = Server::with(&format!(
        "tls {{ cert_file: \"{tls}/server.pem\", key_file: \"{tls}/server.key\", ca_file: \"{tls}/ca.pem\", verify: true }}\n"
    ));
    let url = format!("tls://localhost:{}", server.port);
    let own = (format!("{tls}/client.pem").into(), format!("{tls}/client.key").into());
    works(&url, ConnectFiles { client_certificate: Some(own), ..known.clone() }.options().unwrap()).await;
    let error = fails(&url, known.options().unwrap()).await;
    assert!(matches!(error, NatsError::Tls { .. } | NatsError::Connect { .. }), "{error:?}");
    // A client that requires TLS refuses a server without it.
    let plain = Server::start();
    let error = fails(&plain.url(), ConnectOptions::new().require_tls(true)).await;
    assert!(matches!(error, NatsError::Tls { .. }), "{error:?}");
}
