//! The document tools, for Python.

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Deserialize;
use toolbridge::ToolSource as _;
use toolbridge::core::set;
use toolbridge::docs::{DocsError, DocumentsBuilder, LogLevel};
use tracing::Level;

use crate::error::{docs_exception, invalid};
use crate::log;

/// The logger of the lines about calls.
const LOGGER: &str = "toolbridge.documents";

/// Tools over two folders: manuals, which are only read, and a vault, which is written to.
///
/// A model finds a section and has it copied. The text moves inside of the native module: neither the model nor
/// Python sees it. Offer it with `Session(…)`; to an agent or a request with
/// `ClaudeCodeModelSettings(claude_code_documents=…)`; or with `ClaudeCodeModel.set_agent_toolsets([…])`. Each call
/// is one line of JSON for the logger `toolbridge.documents`.
///
/// Args:
///     workspace: The folder in which the two others lie; the current one by default.
///     manuals: The manuals, `<manuals>/<manual_id>/…`; `manuals` in the workspace by default.
///     vault: Where copies go; `vault` in the workspace by default.
///     `allow_file_scope`: Whether whole `.md` files may be read or copied, by calls that say so themselves.
///     `read_only`: Whether the tools that write are left out.
///     `hard_max_sections`: How many sections no call exceeds; 20 by default.
///     `hard_max_chars`: How many characters no call exceeds; 20,000 by default.
///     `hard_max_copy_chars`: How many characters no copy exceeds, and how many one has that does not say; as for reading
///         by default. What is copied costs no tokens, so this may be far more.
///     cache: Where the index of the manuals is kept between runs, a folder outside of both; `False` for nowhere. By default
///         large ones are kept in the user's folder for caches.
///     `log_level`: Which calls are logged: `info` (all), `warn` (those that failed) or `error` (because of the disk).
///     init: Whether the folders are made where they are missing, and an example manual where there is none.
///
/// Raises:
///     `InvalidRequestError`: When a folder or a setting cannot be used.
#[pyclass(frozen, module = "toolbridge")]
pub(crate) struct Documents {
    source: toolbridge::Documents,
    manuals: PathBuf,
    vault: PathBuf,
}

/// Whether the index is kept between runs, or where.
#[derive(FromPyObject)]
enum Cache {
    Kept(bool),
    Dir(PathBuf),
}

#[pymethods]
impl Documents {
    #[new]
    #[pyo3(signature = (
        workspace = None,
        *,
        manuals = None,
        vault = None,
        allow_file_scope = false,
        read_only = false,
        hard_max_sections = None,
        hard_max_chars = None,
        hard_max_copy_chars = None,
        cache = None,
        log_level = None,
        init = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        workspace: Option<PathBuf>,
        manuals: Option<PathBuf>,
        vault: Option<PathBuf>,
        allow_file_scope: bool,
        read_only: bool,
        hard_max_sections: Option<i64>,
        hard_max_chars: Option<i64>,
        hard_max_copy_chars: Option<i64>,
        cache: Option<Cache>,
        log_level: Option<&str>,
        init: bool,
    ) -> PyResult<Self> {
        let mut builder = toolbridge::Documents::builder()
            .allow_file_scope(allow_file_scope)
            .read_only(read_only)
            .log_to(LogLines);
        let hard_max_sections = hard_max_sections.map(|most| count("hard_max_sections", most)).transpose()?;
        let hard_max_chars = hard_max_chars.map(|most| count("hard_max_chars", most)).transpose()?;
        let hard_max_copy_chars =
            hard_max_copy_chars.map(|most| count("hard_max_copy_chars", most)).transpose()?;
        let level = log_level.map(str::parse).transpose();
        let log_level = level.map_err(|error| invalid(format!("`log_level`: {error}")))?;
        builder = match cache {
            Some(Cache::Dir(dir)) => builder.cache(dir),
            Some(Cache::Kept(false)) => builder.without_cache(),
            Some(Cache::Kept(true)) | None => builder,
        };
        set! { builder:
            workspace = workspace,
            manuals = manuals,
            vault = vault,
            hard_max_sections = hard_max_sections,
            hard_max_chars = hard_max_chars,
            hard_max_copy_chars = hard_max_copy_chars,
            log_level = log_level,
        }
        // The disk may take its time.
        py.detach(|| opened(builder, init)).map_err(|error| docs_exception(&error))
    }

    /// The names of the tools.
    #[getter]
    fn tool_names(&self) -> Vec<String> {
        self.source.tools().iter().map(|tool| tool.name.clone()).collect()
    }

    /// Where the manuals are.
    #[getter]
    fn manuals(&self) -> PathBuf {
        self.manuals.clone()
    }

    /// Where copies go.
    #[getter]
    fn vault(&self) -> PathBuf {
        self.vault.clone()
    }

    fn __repr__(&self) -> String {
        format!("Documents(manuals='{}', vault='{}')", self.manuals.display(), self.vault.display())
    }
}

impl Documents {
    /// The source itself, which knows nothing of Python.
    pub(crate) fn source(&self) -> toolbridge::Documents {
        self.source.clone()
    }
}

fn opened(builder: DocumentsBuilder, init: bool) -> Result<Documents, DocsError> {
    if init {
        builder.init()?;
    }
    let (manuals, vault) = (builder.manuals_path(), builder.vault_path());
    Ok(Documents { source: builder.open()?, manuals, vault })
}

fn count(name: &str, most: i64) -> PyResult<usize> {
    usize::try_from(most)
        .map_err(|_| invalid(format!("`{name}` is `{most}`, which is not a whole number from 1 upwards")))
}

/// Takes the lines about calls to Python's logging.
struct LogLines;

impl io::Write for LogLines {
    /// A line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        #[derive(Deserialize)]
        struct Line {
            level: String,
        }
        let said = serde_json::from_slice::<Line>(line).ok().and_then(|said| said.level.parse().ok());
        let level = match said {
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
