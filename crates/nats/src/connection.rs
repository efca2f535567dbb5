//! The connection to a NATS server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, ServerAddr, ServerError,
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::NatsError;

/// The longest pause before a lost connection is tried again.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Files and names for a connection, as a command line or a configuration has them.
/// [`options`](Self::options) makes async-nats' [`ConnectOptions`] of them.
#[derive(Debug, Clone, Default)]
pub struct ConnectFiles {
    /// A credentials file, as written by `nsc`: the user's JWT and its key. It also determines the client's
    /// account.
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an nkey, which begins with `SU`.
    pub nkey: Option<PathBuf>,
    /// The certificate authorities to trust, instead of the system's.
    pub root_certificates: Option<PathBuf>,
    /// The client certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The prefix of inbox subjects. With a prefix per user, such as `_INBOX.ann`, no user needs permission to
    /// read the inboxes of others.
    pub inbox_prefix: Option<String>,
}

impl ConnectFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When one of them cannot be used.
    pub fn options(&self) -> Result<ConnectOptions, NatsError> {
        let bad = |path: &Path, reason: String| NatsError::File { path: path.into(), reason };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| bad(path, error.to_string()));
        let mut options = ConnectOptions::new();
        if let Some(path) = &self.credentials {
            let not_one = |error| bad(path, format!("it is not a credentials file: {error}"));
            options = options.credentials(&read(path)?).map_err(not_one)?;
        } else if let Some(path) = &self.nkey {
            let text = read(path)?;
            let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
            let none = || bad(path, "there is no seed of a user's nkey in it, which begins with `SU`".into());
            options = options.nkey(seed.ok_or_else(none)?.to_owned());
        }
        if let Some(roots) = &self.root_certificates {
            read(roots)?;
            options = options.add_root_certificates(roots.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.client_certificate {
            read(certificate).and(read(key))?;
            options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        if let Some(prefix) = &self.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        Ok(options)
    }
}

/// A connection to a NATS server. A lost one is made again, to another server of the cluster if necessary.
#[derive(Debug)]
pub(crate) struct NatsConnection {
    pub(crate) client: Client,
    /// The servers, without secrets.
    pub(crate) url: String,
    status: watch::Receiver<Status>,
}

/// What the connection's events have said.
#[derive(Debug)]
struct Status {
    /// Since when it is up, if it is.
    up: Option<Instant>,
    /// The last error of the server.
    refused: Option<String>,
}

impl Status {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Connected => self.up = Some(Instant::now()),
            Event::Disconnected => {
                tracing::warn!("the connection to NATS is lost; reconnecting");
                self.up = None;
            }
            Event::Closed => self.up = None,
            Event::SlowConsumer(_) => tracing::warn!("a message from NATS was lost: too many are unread"),
            Event::ServerError(ServerError::Other(reason)) => {
                tracing::warn!(reason, "the NATS server reported an error");
                self.refused = Some(reason.clone());
            }
            event => tracing::debug!(%event, "NATS"),
        }
    }
}

impl NatsConnection {
    /// Connects; `name` is shown in the server's reports.
    pub(crate) async fn open(
        options: ConnectOptions,
        addresses: &str,
        name: String,
    ) -> Result<Self, NatsError> {
        let (noting, status) = watch::channel(Status { up: Some(Instant::now()), refused: None });
        let mut options = options
            .name(name)
            .reconnect_delay_callback(|attempt| {
                let pause = Duration::from_millis(1 << attempt.min(10));
                // Jitter: many clients that were disconnected together do not all reconnect together.
                pause.min(MAX_RECONNECT_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
            })
            .event_callback(move |event| {
                noting.send_modify(|status| status.note(&event));
                std::future::ready(())
            });
        let (servers, user) = servers(addresses)?;
        options = match user {
            Some((name, Some(password))) => options.user_and_password(name, password),
            Some((token, None)) => options.token(token),
            None => options,
        };
        let shown =
            |server: &ServerAddr| format!("{}://{}:{}", server.scheme(), server.host(), server.port());
        let url = servers.iter().map(shown).collect::<Vec<_>>().join(",");
        let client = options.connect(servers).await.map_err(|error| failure(&error, url.clone()))?;
        Ok(Self { client, url, status })
    }

    /// Waits until the connection is up, for at most `limit`; returns whether it is.
    pub(crate) async fn is_up_within(&self, limit: Duration) -> bool {
        let mut status = self.status.clone();
        timeout(limit, status.wait_for(|status| status.up.is_some())).await.is_ok_and(|up| up.is_ok())
    }

    /// Since when the connection is up, if it is.
    pub(crate) fn up(&self) -> Option<Instant> {
        self.status.borrow().up
    }

    /// The last error of the server.
    pub(crate) fn refused(&self) -> Option<String> {
        self.status.borrow().refused.clone()
    }

    /// Sends a message if that is possible without waiting; otherwise it is lost.
    pub(crate) fn post(
        &self,
        subject: impl async_nats::subject::ToSubject,
        headers: HeaderMap,
        payload: Bytes,
    ) {
        let sending = self.client.publish_with_headers(subject, headers, payload);
        if let Some(Err(error)) = tokio::task::coop::unconstrained(sending).now_or_never() {
            tracing::debug!(%error, "a message was not sent");
        }
    }
}

/// A user and a password, or a token.
type User = (String, Option<String>);

/// The servers of a list, without secrets, and the secrets.
fn servers(addresses: &str) -> Result<(Vec<ServerAddr>, Option<User>), NatsError> {
    let bad = |reason: String| NatsError::Url { reason };
    let mut user = None;
    let mut servers = Vec::new();
    for address in addresses.split(',') {
        let server: ServerAddr =
            address.trim().parse().map_err(|error: std::io::Error| bad(error.to_string()))?;
        if !matches!(server.scheme(), "nats" | "tls") || server.host().is_empty() {
            return Err(bad(format!("only `nats://HOST` and `tls://HOST` are, not `{}:`", server.scheme())));
        }
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let own = server.username().map(|name| (plain(name), server.password().map(plain)));
        user = user.or(own);
        let mut url = server.into_inner();
        // These only fail for addresses without a host.
        _ = url.set_username("");
        _ = url.set_password(None);
        servers.push(ServerAddr::from_url(url).map_err(|error| bad(error.to_string()))?);
    }
    Ok((servers, user))
}

fn failure(error: &ConnectError, url: String) -> NatsError {
    let reason = toolbridge_core::tool::with_causes(error);
    // rustls's certificate errors arrive as I/O errors.
    let is_about_tls =
        || ["certificate", "tls", "corrupt message"].iter().any(|word| reason.to_lowercase().contains(word));
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            NatsError::Refused { url, reason }
        }
        ConnectErrorKind::Tls => NatsError::Tls { url, reason },
        ConnectErrorKind::Io if is_about_tls() => NatsError::Tls { url, reason },
        _ => NatsError::Connect { url, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secrets_of_an_address_are_taken_out_of_it() {
        let (list, user) = servers("nats://joe:p%40ss@a:1, tls://hidden@b,c").unwrap();
        assert_eq!(user, Some(("joe".into(), Some("p@ss".into()))));
        let shown = format!("{list:?}");
        assert!(!shown.contains("p%40ss") && !shown.contains("hidden") && !shown.contains("joe"), "{shown}");
        assert_eq!(servers("nats://s3cr3t%2Fx@a").unwrap().1, Some(("s3cr3t/x".into(), None)));
    }

    #[test]
    fn an_invalid_address_is_an_error() {
        for (address, want) in
            [("http://a", "http"), ("ws://a", "`ws:`"), ("nats://", ""), ("nats://a b", "")]
        {
            let Err(error) = servers(address) else { panic!("{address}") };
            assert!(matches!(error, NatsError::Url { .. }) && error.to_string().contains(want), "{error}");
        }
    }
}
