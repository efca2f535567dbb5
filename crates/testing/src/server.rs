//! A server on loopback: one thread for all connections; dropping the server ends it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

pub(crate) type Request = hyper::Request<Incoming>;
pub(crate) type Response = hyper::Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Server {
    /// Serves on a free port; an error of the handler closes its connection.
    pub(crate) fn start<H, F>(handler: H) -> io::Result<Self>
    where
        H: Fn(Request) -> F + Clone + Send + 'static,
        F: Future<Output = io::Result<Response>> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let accepting = async move {
            let listener = TcpListener::from_std(listener).expect("a listener that does not block");
            loop {
                // The client has disconnected, or no descriptor is left: try the next one.
                let Ok((stream, _)) = listener.accept().await else { continue };
                _ = stream.set_nodelay(true);
                let (stream, service) = (TokioIo::new(stream), service_fn(handler.clone()));
                // A connection error only closes the connection.
                tokio::spawn(http1::Builder::new().serve_connection(stream, service));
            }
        };
        let thread = thread::Builder::new().name("scripted-model".into()).spawn(move || {
            runtime.spawn(accepting);
            // Dropping the runtime drops its tasks, even blocked ones.
            _ = runtime.block_on(stopped);
        })?;
        Ok(Self { address, running: Some((stop, thread)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    struct Gone(mpsc::Sender<&'static str>);

    impl Drop for Gone {
        fn drop(&mut self) {
            _ = self.0.send("gone");
        }
    }

    #[test]
    fn a_disconnected_client_ends_a_hanging_answer() {
        let (sender, told) = mpsc::channel();
        let server = Server::start(move |_| {
            let gone = Gone(sender.clone());
            async move {
                _ = gone.0.send("asked");
                pending().await
            }
        })
        .unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok("asked"));
        drop(client);
        assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok("gone"));
    }
}
