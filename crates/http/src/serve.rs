//! A small server for programs without one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolbridge_mcp::wire::LAST_ANSWERS;

use crate::body::{Response, full};
use crate::error::HttpError;
use crate::refusal::Refusal;
use crate::service::McpService;

/// The pause after a failure to accept: there may be no descriptor left until other connections are closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `service` at `/mcp` over HTTP/1.1 until `shutdown`; `/healthz` answers `ok`, and `/metrics` has metrics
/// if [`Builder::metrics`](crate::Builder::metrics) is set. Encryption is left to a proxy.
///
/// On shutdown, running calls have a second to finish. Dropping the future ends everything immediately.
///
/// # Errors
///
/// When other machines can reach the listener and requests are not authorized.
pub async fn serve(
    listener: TcpListener,
    service: McpService,
    shutdown: impl Future<Output = ()>,
) -> Result<(), HttpError> {
    let address = listener.local_addr().map_err(HttpError::Listen)?;
    if !address.ip().is_loopback() && !service.is_protected() {
        return Err(HttpError::Unprotected { address });
    }
    let _end = EndOnDrop(service.clone());
    let places = Arc::new(Semaphore::new(service.0.limits.connections));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (accepted, place) = accept(&listener, &places) => match accepted {
                Ok(stream) => {
                    let service = service.clone();
                    connections.spawn(async move {
                        let _place = place;
                        connection(stream, service).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    service.shutdown().await;
    let rest = async { while connections.join_next().await.is_some() {} };
    _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
    Ok(())
}

/// Ends the calls of a server that is dropped.
struct EndOnDrop(McpService);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.0.closing.cancel();
        self.0.0.ended.cancel();
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (std::io::Result<TcpStream>, Option<tokio::sync::OwnedSemaphorePermit>) {
    let place = Arc::clone(places).acquire_owned().await.ok();
    (listener.accept().await.map(|(stream, _)| stream), place)
}

async fn connection(stream: TcpStream, service: McpService) {
    // Events are small, and should be sent without delay.
    _ = stream.set_nodelay(true);
    let closing = service.0.closing.clone();
    let limit = service.0.limits.read;
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(route(&service, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn route(service: &McpService, request: Request<Incoming>) -> Response {
    let text = "text/plain; charset=utf-8";
    match request.uri().path() {
        "/mcp" => service.handle(request).await,
        "/healthz" | "/metrics" if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            Refusal::method("GET, HEAD").into()
        }
        "/healthz" => full(StatusCode::OK, text, "ok"),
        "/metrics" if service.0.has_metrics => match service.0.admit(&request).await {
            Ok(_) => full(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", service.metrics()),
            Err(refusal) => refusal.into(),
        },
        _ => Refusal::because(StatusCode::NOT_FOUND, "there is nothing here; MCP is at `/mcp`").into(),
    }
}
