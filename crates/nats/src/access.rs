//! Connects and authenticates to a NATS server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};

use crate::NatsError;
use crate::link::{Link, Status};
use crate::subject;

/// The longest pause before a lost connection is retried.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(250);

/// The credentials and TLS settings for a NATS server. A user and password, or a token, can be part of the
/// address instead: `nats://user:password@host`, `nats://token@host`.
///
/// ```
/// # use toolbridge_nats as nats;
/// let access = nats::Access::new().credentials_file("gpu.creds").root_certificates("ca.pem");
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Access {
    credentials: Option<PathBuf>,
    nkey: Option<PathBuf>,
    token: Option<String>,
    user: Option<(String, String)>,
    roots: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    has_tls: bool,
    tls_first: bool,
    inbox: Option<String>,
}

impl Access {
    /// No credentials, and the default TLS settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// A credentials file, as written by `nsc`: the user's JWT and its key. It also determines the client's
    /// account.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials = Some(path.into());
        self
    }

    /// A file with the seed of an nkey, which begins with `SU`.
    pub fn nkey_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.nkey = Some(path.into());
        self
    }

    /// A token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// A user and a password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// A file with the certificate authorities to trust, instead of the system's. Requires TLS.
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots = Some(path.into());
        self.has_tls = true;
        self
    }

    /// Files with the client certificate and its key. Requires TLS.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self.has_tls = true;
        self
    }

    /// Requires TLS, as an address that begins with `tls://` does.
    pub fn require_tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// Does the TLS handshake first, for servers with `handshake_first`.
    pub fn tls_first(mut self) -> Self {
        self.tls_first = true;
        self
    }

    /// The prefix of this client's inbox subjects, by default `_INBOX`. With a prefix per user, such as
    /// `_INBOX.ann`, no user needs permission to read the inboxes of others.
    pub fn inbox_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.inbox = Some(prefix.into());
        self
    }

    /// Connects; `name` is shown in the server's reports.
    pub(crate) async fn connect(&self, addresses: &str, name: String) -> Result<Link, NatsError> {
        let servers = servers(addresses)?;
        let url = shown(&servers);
        let status = Arc::new(Status::default());
        let mut options = ConnectOptions::new()
            .name(name)
            .request_timeout(None)
            .reconnect_delay_callback(|attempt| {
                let pause = Duration::from_millis(1 << attempt.min(10));
                // Jitter: many clients that were disconnected together do not all reconnect together.
                pause.min(MAX_RECONNECT_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
            })
            .event_callback({
                let status = Arc::clone(&status);
                move |event: Event| {
                    status.note(&event);
                    std::future::ready(())
                }
            });
        options = self.with_credentials(options, &servers).await?;
        if self.has_tls || servers.iter().any(ServerAddr::tls_required) {
            options = options.require_tls(true);
        }
        if self.tls_first {
            options = options.tls_first();
        }
        if let Some(roots) = &self.roots {
            readable(roots)?;
            options = options.add_root_certificates(roots.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            readable(certificate)?;
            readable(key)?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        if let Some(prefix) = &self.inbox {
            options = options.custom_inbox_prefix(prefix);
        }
        let client = options.connect(servers).await.map_err(|error| failure(&error, url.clone()))?;
        Ok(Link { client, status, url })
    }

    /// Adds the credentials.
    async fn with_credentials(
        &self,
        options: ConnectOptions,
        servers: &[ServerAddr],
    ) -> Result<ConnectOptions, NatsError> {
        let bad = |path: &Path, reason: String| NatsError::File { path: path.into(), reason };
        if let Some(path) = &self.credentials {
            let made = options.credentials_file(path).await;
            return made.map_err(|error| bad(path, format!("it is not a credentials file: {error}")));
        }
        if let Some(path) = &self.nkey {
            let text = std::fs::read_to_string(path).map_err(|error| bad(path, error.to_string()))?;
            let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
            let none = || bad(path, "there is no seed of a user's nkey in it, which begins with `SU`".into());
            return Ok(options.nkey(seed.ok_or_else(none)?.to_owned()));
        }
        if let Some(token) = &self.token {
            return Ok(options.token(token.clone()));
        }
        if let Some((name, password)) = &self.user {
            return Ok(options.user_and_password(name.clone(), password.clone()));
        }
        let plain = |text: &str| subject::text(text).unwrap_or_else(|| text.to_owned());
        let in_address = servers.iter().find_map(|server| Some((server.username()?, server.password())));
        Ok(match in_address {
            Some((name, Some(password))) => options.user_and_password(plain(name), plain(password)),
            Some((token, None)) => options.token(plain(token)),
            None => options,
        })
    }
}

/// Without secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("credentials", &self.credentials)
            .field("nkey", &self.nkey)
            .field("roots", &self.roots)
            .field("inbox", &self.inbox)
            .finish_non_exhaustive()
    }
}

fn readable(path: &Path) -> Result<(), NatsError> {
    let opened = std::fs::File::open(path).map(drop);
    opened.map_err(|error| NatsError::File { path: path.into(), reason: error.to_string() })
}

fn servers(addresses: &str) -> Result<Vec<ServerAddr>, NatsError> {
    let parse = |address: &str| {
        let server: ServerAddr = address
            .trim()
            .parse()
            .map_err(|error: std::io::Error| NatsError::Url { reason: error.to_string() })?;
        match server.scheme() {
            "nats" | "tls" if !server.host().is_empty() => Ok(server),
            "nats" | "tls" => Err(NatsError::Url { reason: "there is no host in it".into() }),
            scheme => Err(NatsError::Url {
                reason: format!("the scheme `{scheme}` is not supported, only `nats` and `tls`"),
            }),
        }
    };
    addresses.split(',').map(parse).collect()
}

/// The servers, without secrets.
fn shown(servers: &[ServerAddr]) -> String {
    let one = |server: &ServerAddr| format!("{}://{}:{}", server.scheme(), server.host(), server.port());
    servers.iter().map(one).collect::<Vec<_>>().join(",")
}

fn failure(error: &ConnectError, url: String) -> NatsError {
    let reason = toolbridge_core::with_causes(error);
    match error.kind() {
        ConnectErrorKind::ServerParse => NatsError::Url { reason },
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            NatsError::Refused { url, reason }
        }
        ConnectErrorKind::Tls => NatsError::Tls { url, reason },
        // rustls's certificate errors arrive as I/O errors.
        ConnectErrorKind::Io
            if ["certificate", "tls", "corrupt message"]
                .iter()
                .any(|word| reason.to_lowercase().contains(word)) =>
        {
            NatsError::Tls { url, reason }
        }
        _ => NatsError::Connect { url, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let list = servers("nats://ann:secret@a:1, tls://hidden@b,c").unwrap();
        assert_eq!(shown(&list), "nats://a:1,tls://b:4222,nats://c:4222");
    }

    #[test]
    fn an_invalid_address_is_an_error() {
        for (address, want) in [("http://a", "http"), ("ws://a", "`ws`"), ("nats://", ""), ("nats://a b", "")]
        {
            let Err(error) = servers(address) else { panic!("{address}") };
            assert!(matches!(error, NatsError::Url { .. }) && error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let access = Access::new().token("hidden").user("ann", "hidden");
        assert!(!format!("{access:?}").contains("hidden"));
    }
}
