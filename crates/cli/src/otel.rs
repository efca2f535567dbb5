//! Spans for an OpenTelemetry collector.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::pin::Pin;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::output::say;

/// A collector that does not answer must hold up neither a program's end nor its next spans.
const PATIENCE: Duration = Duration::from_secs(2);

/// What we take of a collector's answer.
const MOST_ANSWER_BYTES: u64 = 64 * 1024;

/// The variables that name a collector, in the order in which they count.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Where spans are to go, if anywhere.
fn endpoint() -> Option<String> {
    let is_disabled = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|text| text.eq_ignore_ascii_case("true"));
    let mut named =
        ENDPOINTS.iter().filter_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()));
    named.next().filter(|_| !is_disabled)
}

pub(crate) fn is_wanted() -> bool {
    endpoint().is_some()
}

/// Sends what is left when the program ends.
pub(crate) struct Export(SdkTracerProvider);

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(PATIENCE) {
            say(&format!("warning: not all spans could be sent: {error}"));
        }
    }
}

/// Starts to send spans, if the environment names a collector. One that cannot be used is no reason to stop.
pub(crate) fn start() -> Option<(SdkTracer, Export)> {
    let endpoint = endpoint()?;
    if !endpoint.starts_with("http://") {
        say(&format!("warning: spans are not sent: the collector `{endpoint}` is not an http:// address"));
        return None;
    }
    let exporter = match SpanExporter::builder().with_http().with_http_client(PlainHttp).build() {
        Ok(exporter) => exporter,
        Err(error) => {
            say(&format!("warning: spans are not sent: {error}"));
            return None;
        }
    };
    let resource = Resource::builder();
    let resource = if std::env::var_os("OTEL_SERVICE_NAME").is_some() {
        resource
    } else {
        resource.with_service_name("toolbridge")
    };
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    Some((provider.tracer("toolbridge"), Export(provider)))
}

/// HTTP/1.1 to a collector on this machine or network. It runs on the exporter's own thread, and may block it.
#[derive(Debug)]
struct PlainHttp;

impl HttpClient for PlainHttp {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { post(&request) })
    }
}

fn post(request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let authority = request.uri().authority().ok_or("the address has no host")?;
    let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80))
        .to_socket_addrs()?
        .next()
        .ok_or("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;

    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut message = format!("{} {path} HTTP/1.1\r\nhost: {authority}\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        message.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    let length = request.body().len();
    message.extend(format!("content-length: {length}\r\nconnection: close\r\n\r\n").as_bytes());
    message.extend(request.body());
    stream.write_all(&message)?;
    stream.flush()?;

    let mut answer = Vec::new();
    stream.take(MOST_ANSWER_BYTES).read_to_end(&mut answer)?;
    let (status, body) = parts(&answer)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the collector does not speak HTTP/1.1"))?;
    Ok(Response::builder().status(status).body(Bytes::copy_from_slice(body))?)
}

/// The status and the body of an answer.
fn parts(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let line = std::str::from_utf8(&answer[..end]).ok()?.lines().next()?;
    let status = line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, &answer[end + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_body() {
        assert_eq!(parts(b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody"), Some((200, &b"body"[..])));
        assert_eq!(parts(b"HTTP/1.0 503 No\r\n\r\n"), Some((503, &b""[..])));
        assert_eq!(parts(b"SSH-2.0-x\r\n\r\n"), None);
        assert_eq!(parts(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
