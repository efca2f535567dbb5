//! The document tools, for Python.

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Deserialize;
use toolbridge::docs::{DocsError, DocumentsBuilder, LogLevel};
use toolbridge::{ToolSource as _, set};
use tracing::Level;

use crate::error::{Result, invalid};
use crate::log;

/// The logger for the lines about calls.
const LOGGER: &str = "toolbridge.documents";

/// Tools over two folders, manuals, which are read-only, and a vault, which is written to; or over a single folder of notes.
///
/// A model finds a section and has it copied. The text is copied inside the native module: neither the model
/// nor Python sees it. Pass it to `Session(…)`; to an agent or a request with
/// `ClaudeCodeModelSettings(claude_code_documents=…)`; or with `ClaudeCodeModel.set_agent_toolsets([…])`.
/// Each call is logged as one line of JSON by the logger `toolbridge.documents`.
///
/// Args:
///     workspace: The folder that contains the two others; the current directory by default. If it is named, and has no
///         folder `manuals`, it is a single folder of notes, which is read and written: each folder in it is a manual, and
///         its own notes are in the manual `.`.
///     manuals: The manuals, `<manuals>/<manual_id>/…`; `manuals` in the workspace by default.
///     vault: The folder that copies are written to; `vault` in the workspace by default. The first write creates it if it
///         does not exist.
///     daily: The folder of the vault that takes only daily notes, `YYYY-MM-DD.md`, which can only be appended to; `daily` by
///         default, `"off"` for none.
///     `allow_file_scope`: Whether whole `.md` files may be read or copied, by calls that set `allow_file`.
///     `read_only`: Whether the tools that write are left out.
///     `hard_max_sections`: The maximum number of sections of manuals that a call reads or copies, and of hits of a
///         search; 20 by default.
///     `hard_max_chars`: The maximum number of characters that a call reads; 20,000 by default.
///     `hard_max_copy_chars`: The maximum number of characters per copy, and the default for copies that set no limit;
///         as for reading by default. Copied text costs no tokens, so this may be much larger.
///     `log_level`: Which calls are logged: `info` (all), `warn` (failed ones) or `error` (disk errors).
///     init: Whether to create missing folders, and an example manual if there is none.
///
/// Raises:
///     `InvalidRequestError`: If a folder or a setting is invalid.
#[pyclass(frozen, module = "toolbridge")]
pub(crate) struct Documents {
    source: toolbridge::docs::Documents,
    manuals: PathBuf,
    vault: PathBuf,
}

#[pymethods]
impl Documents {
    #[new]
    #[pyo3(signature = (
        workspace = None,
        *,
        manuals = None,
        vault = None,
        daily = None,
        allow_file_scope = false,
        read_only = false,
        hard_max_sections = None,
        hard_max_chars = None,
        hard_max_copy_chars = None,
        log_level = None,
        init = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        workspace: Option<PathBuf>,
        manuals: Option<PathBuf>,
        vault: Option<PathBuf>,
        daily: Option<String>,
        allow_file_scope: bool,
        read_only: bool,
        hard_max_sections: Option<i64>,
        hard_max_chars: Option<i64>,
        hard_max_copy_chars: Option<i64>,
        log_level: Option<&str>,
        init: bool,
    ) -> Result<Self> {
        let mut builder = toolbridge::docs::Documents::builder()
            .allow_file_scope(allow_file_scope)
            .read_only(read_only)
            .log_to(LogLines);
        let hard_max_sections = hard_max_sections.map(|most| count("hard_max_sections", most)).transpose()?;
        let hard_max_chars = hard_max_chars.map(|most| count("hard_max_chars", most)).transpose()?;
        let hard_max_copy_chars =
            hard_max_copy_chars.map(|most| count("hard_max_copy_chars", most)).transpose()?;
        let level = log_level.map(str::parse).transpose();
        let log_level = level.map_err(|error| invalid(format!("`log_level`: {error}")))?;
        set! { builder:
            workspace = workspace,
            manuals = manuals,
            vault = vault,
            daily = daily,
            hard_max_sections = hard_max_sections,
            hard_max_chars = hard_max_chars,
            hard_max_copy_chars = hard_max_copy_chars,
            log_level = log_level,
        }
        // Disk access can be slow, so release the interpreter.
        Ok(py.detach(|| opened(builder, init))?)
    }

    /// The names of the tools.
    #[getter]
    fn tool_names(&self) -> Vec<String> {
        self.source.tools().iter().map(|tool| tool.name.clone()).collect()
    }

    /// The path of the manuals.
    #[getter]
    fn manuals(&self) -> PathBuf {
        self.manuals.clone()
    }

    /// The path of the vault.
    #[getter]
    fn vault(&self) -> PathBuf {
        self.vault.clone()
    }

    fn __repr__(&self) -> String {
        format!("Documents(manuals='{}', vault='{}')", self.manuals.display(), self.vault.display())
    }
}

impl Documents {
    /// The underlying tool source, independent of Python.
    pub(crate) fn source(&self) -> toolbridge::docs::Documents {
        self.source.clone()
    }
}

fn opened(builder: DocumentsBuilder, init: bool) -> std::result::Result<Documents, DocsError> {
    if init {
        builder.init()?;
    }
    let (manuals, vault) = (builder.manuals_path(), builder.vault_path());
    Ok(Documents { source: builder.open()?, manuals, vault })
}

pub(crate) fn count(name: &str, most: i64) -> Result<usize> {
    usize::try_from(most)
        .map_err(|_| invalid(format!("`{name}` is `{most}`, which is not a whole number from 1 upwards")))
}

/// Forwards the lines about calls to Python's logging.
struct LogLines;

impl io::Write for LogLines {
    /// Each call of `write` receives one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        #[derive(Deserialize)]
        struct Line {
            level: String,
        }
        let level = serde_json::from_slice::<Line>(line).ok().and_then(|line| line.level.parse().ok());
        let level = match level {
            Some(LogLevel::Error) => Level::ERROR,
            Some(LogLevel::Warn) => Level::WARN,
            _ => Level::INFO,
        };
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        log::send(log::Record { logger: LOGGER, level, message: text, file: "", line: 0 });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
