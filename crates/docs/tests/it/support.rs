//! Shared by the tests: a separate workspace for each, and calls with checked answers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolbridge_core::tool::{RawJson, Schema, ToolCall};
use toolbridge_core::{CallContext, ToolSource as _};
use toolbridge_docs::{Documents, DocumentsBuilder};

/// Checks that a value fits a schema.
#[track_caller]
pub(crate) fn check_schema(schema: &Value, value: &Value) {
    let fault = Schema::compile(schema).unwrap().fault(value);
    assert!(fault.is_none(), "{fault:?}: {value}");
}

/// A workspace with the manual `m` and an empty vault.
pub(crate) struct Workspace {
    pub(crate) dir: TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("manuals/m")).unwrap();
        fs::create_dir(dir.path().join("vault")).unwrap();
        Self { dir }
    }

    /// A workspace whose manual `m` has one file, `a.md`.
    pub(crate) fn with(text: impl AsRef<[u8]>) -> Self {
        let workspace = Self::new();
        workspace.manual("a.md", text);
        workspace
    }

    /// Writes a file of the manual `m`.
    pub(crate) fn manual(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&format!("manuals/m/{path}"), bytes)
    }

    /// Writes a file of the vault.
    pub(crate) fn note(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&format!("vault/{path}"), bytes)
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Reads a file of the vault.
    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path("vault").join(path)).unwrap()
    }

    #[track_caller]
    pub(crate) fn text(&self, path: &str) -> String {
        String::from_utf8(self.read(path)).unwrap()
    }

    /// Every file and folder of the vault, sorted, without the server's trash.
    pub(crate) fn vault(&self) -> Vec<String> {
        let mut names = names(&self.path("vault"));
        names.retain(|name| !name.starts_with(".system/trash"));
        if !names.iter().any(|name| name.starts_with(".system/")) {
            names.retain(|name| name != ".system");
        }
        names
    }

    /// The trash, oldest first.
    pub(crate) fn trash(&self) -> Vec<String> {
        let folder = self.path("vault/.system/trash");
        if folder.exists() { names(&folder) } else { Vec::new() }
    }

    pub(crate) fn builder(&self) -> DocumentsBuilder {
        Documents::builder().workspace(self.dir.path())
    }

    pub(crate) fn open(&self) -> Client {
        Client::new(self.builder())
    }
}

/// Every name below `dir`, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    fn collect(dir: &Path, prefix: &str, names: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                collect(&entry.path(), &format!("{name}/"), names);
            }
            names.push(name);
        }
    }
    let mut found = Vec::new();
    collect(dir, "", &mut found);
    found.sort();
    found
}

/// Calls tools, and checks each answer for what must hold for all of them.
pub(crate) struct Client {
    pub(crate) documents: Documents,
    runtime: Runtime,
    log: Lines,
}

/// A log in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Client {
    pub(crate) fn new(builder: DocumentsBuilder) -> Self {
        let log = Lines::default();
        let documents = builder.log_to(log.clone()).open().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { documents, runtime, log }
    }

    /// The whole result. Text and structured content are the same JSON, and a success fits the tool's output
    /// schema.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let call = ToolCall::new(tool, RawJson::from(arguments));
        let result = self.runtime.block_on(self.documents.call(call, CallContext::default())).unwrap();
        let result: Value = result.decode().unwrap();
        let structured = &result["structuredContent"];
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(result["content"].as_array().unwrap().len(), 1);
        assert_eq!(&serde_json::from_str::<Value>(text).unwrap(), structured, "{tool}");
        if result["isError"] == false {
            let schema = self.documents.tools().get(tool).unwrap().output_schema.clone();
            let schema = schema.map_or(json!({ "type": "object" }), |schema| schema.decode().unwrap());
            check_schema(&schema, structured);
        }
        result
    }

    /// The answer of a call that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// The error of a call that must fail.
    #[track_caller]
    pub(crate) fn refused(&self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let error = result["structuredContent"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.len() < 1000, "{message}");
        // What is wrong, and what would be right.
        let says_what_is_right =
            ["; ", "expected ", "missing field ", "unknown field ", "must be ", "takes only "]
                .iter()
                .any(|sign| message.contains(sign));
        assert!(says_what_is_right || error["code"] == "io_error", "{tool}: {message}");
        let members: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(matches!(members[..], ["code", "message"] | ["code", "details", "message"]), "{members:?}");
        error
    }

    #[track_caller]
    pub(crate) fn code(&self, tool: &str, arguments: &Value) -> String {
        self.refused(tool, arguments)["code"].as_str().unwrap().to_owned()
    }

    /// Copies a section of `m`.
    #[track_caller]
    pub(crate) fn copy(&self, path: &str, line: impl Into<Value>, to: &str, mode: &str) -> Value {
        self.ok("bridge_copy_section", &copy(path, line, to, mode))
    }

    /// The log lines since the last call.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let bytes = std::mem::take(&mut *self.log.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Stops other threads, also when a check fails.
pub(crate) struct OnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reference from an answer, without its fingerprint.
#[track_caller]
pub(crate) fn place(reference: &Value) -> String {
    let reference = reference.as_str().unwrap_or_else(|| panic!("{reference} is no short reference"));
    match reference.split_once('~') {
        Some((place, print)) => {
            assert_eq!(print.len(), 9, "{reference}");
            place.to_owned()
        }
        None => reference.to_owned(),
    }
}

/// A reference into the manual `m`.
pub(crate) fn reference(path: &str, line: impl Into<Value>) -> Value {
    json!({ "target": "manual", "manual_id": "m", "path": path, "start_line": line.into(), "json_path": null })
}

/// Arguments of `bridge_copy_section`.
pub(crate) fn copy(path: &str, line: impl Into<Value>, to: &str, mode: &str) -> Value {
    json!({ "from_ref": reference(path, line), "to_path": to, "mode": mode })
}

/// Arguments of `bridge_copy_file`, with `allow_file` set.
pub(crate) fn copy_file(path: &str, to: &str, mode: &str) -> Value {
    json!({ "from_path": path, "manual_id": "m", "to_path": to, "mode": mode, "limits": { "allow_file": true } })
}

/// Every call that writes to `path` of the vault.
pub(crate) fn writing(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("vault_create", json!({ "path": path, "content": "x" })),
        ("vault_write", json!({ "path": path, "content": "x", "mode": "append" })),
        ("vault_write", json!({ "path": path, "content": "x", "mode": "overwrite" })),
        ("vault_replace", json!({ "path": path, "find": "x", "replace": "y" })),
        ("bridge_copy_section", copy("a.md", 1, path, "append")),
        ("bridge_copy_section", copy("a.md", 1, path, "overwrite")),
        ("bridge_copy_file", copy_file("a.md", path, "append")),
        ("bridge_copy_file", copy_file("a.md", path, "overwrite")),
    ]
}
