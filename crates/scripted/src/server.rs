//! A server on loopback: a thread per connection, all of them ended by dropping the server.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::http::{self, Request};

/// How long a connection may be idle; longer than a tool call of any test, since the CLI keeps it open.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long dropping the server waits for its threads.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    open: Arc<Open>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a port of its own; an error of the handler closes its connection.
    pub(crate) fn start<H>(handler: H) -> io::Result<Self>
    where
        H: Fn(&Request, &mut Exchange<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let open = Arc::<Open>::default();
        let (handler, shared) = (Arc::new(handler), Arc::clone(&open));
        let accept = move || {
            for stream in listener.incoming() {
                if shared.lock().stopped {
                    break;
                }
                // A client that is gone again, or no descriptor left: the next one may do better.
                let Ok(connection) = stream.and_then(|stream| Connection::new(stream, &shared)) else {
                    continue;
                };
                let handler = Arc::clone(&handler);
                thread::spawn(move || connection.serve(&*handler));
            }
        };
        Ok(Self { address, open, accepting: Some(thread::spawn(accept)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.open.stop();
        // Accepting ends only with a connection.
        if TcpStream::connect_timeout(&self.address, END_TIMEOUT).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
        self.open.wait_until_empty();
    }
}

/// The open connections, and whether there may be any.
#[derive(Debug, Default)]
struct Open {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    next: u64,
    streams: HashMap<u64, TcpStream>,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: TcpStream) -> io::Result<u64> {
        let mut state = self.lock();
        if state.stopped {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.next += 1;
        let id = state.next;
        state.streams.insert(id, stream);
        self.changed.notify_all();
        Ok(id)
    }

    fn remove(&self, id: u64) {
        if let Some(stream) = self.lock().streams.remove(&id) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        for stream in state.streams.values() {
            // Ends the reads and writes that its thread waits in.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    fn wait_until_empty(&self) {
        let busy = |state: &mut State| !state.streams.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), END_TIMEOUT, busy));
    }

    /// Waits, and fails as soon as the server is stopped.
    fn sleep(&self, duration: Duration) -> io::Result<()> {
        let going_on = |state: &mut State| !state.stopped;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), duration, going_on)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

struct Connection {
    stream: TcpStream,
    open: Arc<Open>,
    id: u64,
}

impl Connection {
    fn new(stream: TcpStream, open: &Arc<Open>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let id = open.add(stream.try_clone()?)?;
        Ok(Self { stream, open: Arc::clone(open), id })
    }

    fn serve(&self, handler: &impl Fn(&Request, &mut Exchange<'_>) -> io::Result<()>) {
        let mut reader = BufReader::new(&self.stream);
        // A request that cannot be read, or not answered, leaves nothing to say but to close.
        while let Ok(Some(request)) = http::read_request(&mut reader) {
            let mut exchange = Exchange { stream: &self.stream, open: &self.open, request: &request };
            if handler(&request, &mut exchange).is_err() || request.last {
                break;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.remove(self.id);
    }
}

/// The answering side of one request.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    stream: &'a TcpStream,
    open: &'a Open,
    request: &'a Request,
}

impl Exchange<'_> {
    /// Answers in one piece.
    pub(crate) fn answer(&mut self, status: u16, content_type: &str, body: &[u8]) -> io::Result<()> {
        http::write_answer(&mut self.stream, self.request, status, content_type, body)
    }

    /// Starts an answer that comes in chunks.
    pub(crate) fn start_chunks(&mut self, content_type: &str) -> io::Result<()> {
        http::start_chunks(&mut self.stream, self.request, content_type)
    }

    /// Sends a chunk now; an empty one is the end.
    pub(crate) fn chunk(&mut self, data: &[u8]) -> io::Result<()> {
        http::write_chunk(&mut self.stream, data)
    }

    /// Waits, and fails as soon as the server is stopped.
    pub(crate) fn sleep(&self, duration: Duration) -> io::Result<()> {
        self.open.sleep(duration)
    }

    /// Waits until the client goes or the server is stopped: an error in any case.
    pub(crate) fn hang(&mut self) -> io::Result<()> {
        loop {
            match self.stream.read(&mut [0; 1024]) {
                Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_client_that_goes_ends_what_hangs() {
        let server = Server::start(|_, exchange| exchange.hang()).unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let wait = |busy: fn(&mut State) -> bool| {
            let waited = server.open.changed.wait_timeout_while(server.open.lock(), END_TIMEOUT, busy);
            !waited.unwrap().1.timed_out()
        };
        assert!(wait(|state| state.streams.is_empty()), "the connection is not there");
        drop(client);
        assert!(wait(|state| !state.streams.is_empty()), "the connection is still there");
    }
}
