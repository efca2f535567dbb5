//! HTTP to one server: connections, TLS, proxies, redirects.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::client::http::HttpError;

/// The timeout for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of redirects for one request.
const MAX_REDIRECTS: usize = 10;

type Connector = hyper_rustls::HttpsConnector<Way>;

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends requests to one server.
#[derive(Clone)]
pub(crate) struct Fetch {
    client: Client<Connector, Full<Bytes>>,
    /// Sent with each request.
    headers: HeaderMap,
}

impl Fetch {
    /// Does not connect yet. Returns what is wrong if the settings cannot be used.
    pub(crate) fn new(url: &Uri, headers: HeaderMap) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let way = match Matcher::from_env().intercept(url) {
            None => Way::Direct(tcp),
            Some(proxy) if proxy.uri().scheme() == Some(&Scheme::HTTP) => {
                let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                Way::Proxy(match proxy.basic_auth() {
                    Some(auth) => tunnel.with_auth(auth.clone()),
                    None => tunnel,
                })
            }
            Some(_) => return Err("the proxy set in the environment does not begin with `http://`".into()),
        };
        let client = Client::builder(TokioExecutor::new()).build(connector(way)?);
        Ok(Self { client, headers })
    }

    /// Sends a request and follows redirects on the same host only: the headers must not go to another host.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, HttpError> {
        let lost = |error: http::Error| HttpError::Lost(error.to_string());
        let mut url: Uri = url.try_into().map_err(|error| lost(http::Error::from(error)))?;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::builder().method(method.clone()).uri(url.clone());
            if let Some(all) = request.headers_mut() {
                all.extend(self.headers.clone());
                all.extend(headers.clone());
            }
            let request = request.body(Full::new(body.clone())).map_err(lost)?;
            let response = self.client.request(request).await?;
            // Only the redirects that keep the method.
            let is_redirect =
                matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            url = match is_redirect.then(|| redirected(&url, response.headers())).flatten() {
                Some(url) => url,
                None => return Ok(response),
            };
        }
        Err(HttpError::Lost(format!("it has sent more than {MAX_REDIRECTS} redirects")))
    }
}

/// The target of a redirect, if it is on the same host.
fn redirected(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let to: Uri = headers.get(LOCATION)?.as_bytes().try_into().ok()?;
    let is_same = match to.authority() {
        None => to.path().starts_with('/') && !to.path().starts_with("//"),
        Some(authority) => to.scheme() == from.scheme() && Some(authority) == from.authority(),
    };
    let mut parts = from.clone().into_parts();
    parts.path_and_query = to.path_and_query().cloned();
    is_same.then(|| Uri::from_parts(parts).ok()).flatten()
}

fn connector(way: Way) -> Result<Connector, String> {
    use std::sync::Arc;

    use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
    use rustls::ClientConfig;
    use rustls::crypto::ring;

    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_native_roots()
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(way))
}

/// The TCP connection to the server, direct or through a proxy.
#[derive(Clone)]
pub(crate) enum Way {
    Direct(HttpConnector),
    Proxy(Tunnel<HttpConnector>),
}

impl Service<Uri> for Way {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Self::Proxy(tunnel) => tunnel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Self::Direct(tcp) => {
                let connecting = tcp.call(to);
                Box::pin(async { Ok(connecting.await?) })
            }
            Self::Proxy(tunnel) => {
                let connecting = tunnel.call(with_port(to));
                Box::pin(async { Ok(connecting.await?) })
            }
        }
    }
}

/// Adds the port: a tunnel would use 443 for any host without one.
fn with_port(to: Uri) -> Uri {
    let port = if to.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let authority = match (to.port(), to.host()) {
        (None, Some(host)) => Authority::try_from(format!("{host}:{port}")).ok(),
        _ => None,
    };
    let Some(authority) = authority else { return to };
    let mut parts = to.into_parts();
    parts.authority = Some(authority);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    Uri::from_parts(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_host() {
        let from = Uri::from_static("http://shop.example:8080/mcp?key=1");
        let to = |location: &'static str| {
            let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
            redirected(&from, &headers).map(|url| url.to_string())
        };
        assert_eq!(to("/mcp/").as_deref(), Some("http://shop.example:8080/mcp/"));
        assert_eq!(to("http://shop.example:8080/mcp/?a").as_deref(), Some("http://shop.example:8080/mcp/?a"));
        for elsewhere in ["http://shop.example/mcp/", "https://shop.example:8080/", "//other/mcp", "mcp/", ""]
        {
            assert_eq!(to(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_tunnel_goes_to_the_port_of_the_scheme() {
        let port = |url: &'static str| with_port(Uri::from_static(url)).port_u16();
        assert_eq!(port("http://shop.example/mcp"), Some(80));
        assert_eq!(port("https://shop.example"), Some(443));
        assert_eq!(port("https://[::1]:8080/"), Some(8080));
    }
}
