//! A small server for programs without one.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::mcp::front::LAST_ANSWERS;
use crate::tool::with_causes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::http::body::{Response, full};
use crate::http::error::HttpError;
use crate::http::refusal::Refusal;
use crate::http::service::McpService;
use crate::http::stall::Stallable;

/// The pause after a failure to accept: there may be no descriptor left until other connections are closed.
const PAUSE: Duration = Duration::from_millis(100);

/// The open files of a process beside its connections.
const OTHER_DESCRIPTORS: u64 = 1024;

/// How much of an answer the system may hold for a client that has not read it.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

impl McpService {
    /// Serves at `/mcp` over HTTP/1.1 until `until`; `/healthz` answers `ok`, and `/metrics` has metrics if
    /// [`Server::metrics`](crate::http::Server::metrics) is set. Encryption is left to a proxy.
    ///
    /// The limit of open files of this process is raised to what the number of connections needs, as far as the system
    /// allows it.
    ///
    /// At the end, running calls have a second to finish. Dropping the future ends everything immediately.
    ///
    /// # Errors
    ///
    /// When other machines can reach the listener and requests are not authorized.
    pub async fn serve(
        self,
        listener: TcpListener,
        until: impl Future<Output = ()>,
    ) -> Result<(), HttpError> {
        let address = listener.local_addr().map_err(HttpError::Listen)?;
        if !address.ip().is_loopback() && !self.is_protected() {
            return Err(HttpError::Unprotected { address });
        }
        let _ends = [&self.0.closing, &self.0.runner.ended].map(|end| end.clone().drop_guard());
        raise_descriptor_limit(self.0.limits.connections);
        let slots = Arc::new(Semaphore::new(self.0.limits.connections));
        let mut connections = JoinSet::new();
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                biased;
                () = &mut until => break,
                Some(_) = connections.join_next() => {}
                (accepted, slot) = accept(&listener, &slots) => match accepted {
                    Ok(stream) => {
                        let service = self.clone();
                        connections.spawn(async move {
                            let _slot = slot;
                            if let Err(error) = connection(stream, service).await {
                                tracing::debug!(error = with_causes(&error), "a connection ended early");
                                tokio::task::spawn_blocking(give_memory_back);
                            }
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
        self.shutdown().await;
        let rest = async { while connections.join_next().await.is_some() {} };
        _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
        Ok(())
    }
}

/// Raises this process's limit of open files to what so many connections need, as far as the system allows it.
fn raise_descriptor_limit(connections: usize) {
    let wanted = connections as u64 + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let possible = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    if current >= wanted {
        return;
    }
    let raised = Rlimit { current: Some(possible.max(current)), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() || possible < wanted {
        tracing::warn!(
            wanted,
            possible,
            "the limit of open files is too low for all connections (`ulimit -n`)"
        );
    }
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (io::Result<TcpStream>, Option<tokio::sync::OwnedSemaphorePermit>) {
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    (listener.accept().await.map(|(stream, _)| stream), slot)
}

async fn connection(stream: TcpStream, service: McpService) -> Result<(), hyper::Error> {
    // Events are small, and should be sent without delay.
    _ = stream.set_nodelay(true);
    // The system says that it takes more only when a third of its buffer is free. Of a buffer of megabytes, a slow client
    // does not read that much in time.
    _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
    let closing = service.0.closing.clone();
    let limits = service.0.limits;
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(route(&service, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read)
        .serve_connection(TokioIo::new(Stallable::new(stream, limits.write)), answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Returns free memory to the system: glibc would keep the memory of answers that were not read.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn give_memory_back() {
    #[expect(unsafe_code, reason = "the C library's allocator is asked to trim its heap")]
    // SAFETY: there are no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_memory_back() {}

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
