//! `serve --nats` offers tools to other machines, `serve --nats-tools` uses theirs.

/// How tools are offered over NATS.
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "this executable cannot do it"))]
pub(crate) struct NatsFront {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) host: Option<String>,
    pub(crate) max_calls: Option<usize>,
}

/// The service name in a tools URL, without the host.
pub(crate) fn name_in(url: &str) -> &str {
    let name = url.rsplit('/').next().unwrap_or_default();
    name.split('@').next().unwrap_or_default()
}

#[cfg(feature = "nats")]
pub(crate) use with::{serve, tools};
#[cfg(not(feature = "nats"))]
pub(crate) use without::{serve, tools};

#[cfg(feature = "nats")]
mod with {
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::Arc;

    use anyhow::Result;
    use serde_json::json;
    use toolbridge::nats::{ConnectFiles, ConnectOptions, Host, NatsError, Tools};
    use toolbridge::tool::ServerInfo;
    use toolbridge::{ToolSource, set};

    use super::NatsFront;
    use crate::args::NatsAccess;
    use crate::output::{print, say};

    fn options(args: &NatsAccess) -> Result<ConnectOptions, NatsError> {
        let files = ConnectFiles {
            credentials: args.nats_creds.clone(),
            nkey: args.nats_nkey.clone(),
            root_certificates: args.nats_ca.clone(),
            client_certificate: args.nats_cert.clone().zip(args.nats_key.clone()),
            inbox_prefix: args.nats_inbox.clone(),
        };
        files.options()
    }

    /// The tools of the hosts that a URL names, and the service name.
    pub(crate) async fn tools(url: &str, args: &NatsAccess) -> Result<(String, Tools)> {
        let tools = Tools::from_url(url)?.options(options(args)?).await?;
        Ok((tools.name().to_owned(), tools))
    }

    /// Offers tools until a signal arrives; running calls may finish.
    pub(crate) async fn serve(
        tools: Arc<dyn ToolSource>,
        info: ServerInfo,
        front: NatsFront,
        trace: Option<&Path>,
        args: &NatsAccess,
        signalled: impl Future<Output = ExitCode>,
    ) -> Result<()> {
        let count = tools.tools().len();
        let NatsFront { url, name, host, max_calls } = front;
        let mut builder = Host::builder(tools, name.clone()).at(url).info(info).options(options(args)?);
        set!(builder: host = host, max_calls = max_calls, trace = trace);
        let host = builder.start().await?;
        say(&format!("{count} tools as `{name}` at {}, from host `{}`", host.url(), host.name()));
        let hello = json!({ "nats": host.url(), "name": name, "host": host.name() });
        print(format!("{hello}\n").as_bytes())?;
        signalled.await;
        host.drain().await;
        Ok(())
    }
}

#[cfg(not(feature = "nats"))]
mod without {
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::Arc;

    use anyhow::Result;
    use toolbridge::ToolSource;
    use toolbridge::source::Combined;
    use toolbridge::tool::ServerInfo;

    use super::NatsFront;
    use crate::args::NatsAccess;
    use crate::output::WithHint;

    fn missing() -> anyhow::Error {
        let error = "this executable was built without NATS".into();
        let hint = "build it with `cargo build --release --package toolbridge-cli --features nats`, or take the one from the Python package";
        WithHint { error, hint }.into()
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(crate) async fn tools(_: &str, _: &NatsAccess) -> Result<(String, Combined)> {
        Err(missing())
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(crate) async fn serve(
        _: Arc<dyn ToolSource>,
        _: ServerInfo,
        _: NatsFront,
        _: Option<&Path>,
        _: &NatsAccess,
        _: impl Future<Output = ExitCode>,
    ) -> Result<()> {
        Err(missing())
    }
}
