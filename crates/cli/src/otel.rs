//! Exports spans to an OpenTelemetry collector.

use std::pin::Pin;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::output::say;

/// The timeout for a collector, so that it delays neither the program's exit nor later spans for long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The limit for a collector's response.
const MOST_ANSWER_BYTES: u64 = 64 * 1024;

/// The variables that name a collector, in order of precedence.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The collector's URL, if one is configured.
pub(crate) fn endpoint() -> Option<String> {
    let is_disabled = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|text| text.eq_ignore_ascii_case("true"));
    let mut named =
        ENDPOINTS.iter().filter_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()));
    named.next().filter(|_| !is_disabled)
}

/// Sends the remaining spans when dropped.
pub(crate) struct Export(SdkTracerProvider);

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(PATIENCE) {
            say(&format!("warning: not all spans could be sent: {error}"));
        }
    }
}

/// Starts to export spans if the environment names a collector. An unusable collector is only a warning.
pub(crate) fn start() -> Option<(SdkTracer, Export)> {
    let endpoint = endpoint()?;
    if !endpoint.starts_with("http://") {
        say(&format!("warning: spans are not sent: the collector `{endpoint}` is not an http:// address"));
        return None;
    }
    let exporter = match SpanExporter::builder().with_http().with_http_client(PlainHttp::new()).build() {
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

/// HTTP/1.1 to a collector on this machine or network. It runs on the exporter's own thread, so it may block.
#[derive(Debug)]
struct PlainHttp(ureq::Agent);

impl PlainHttp {
    fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            // The exporter checks the status itself.
            .http_status_as_error(false)
            .max_idle_connections(0)
            .proxy(None);
        Self(config.build().into())
    }
}

impl HttpClient for PlainHttp {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let (head, mut body) = self.0.run(request.map(|body| body.to_vec()))?.into_parts();
            let body = body.with_config().limit(MOST_ANSWER_BYTES).read_to_vec()?;
            Ok(Response::from_parts(head, body.into()))
        })
    }
}
