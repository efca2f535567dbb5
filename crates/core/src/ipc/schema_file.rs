//! The schema file, from which a bridge reads its tools.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::{RawJson, ToolList, ToolSpec};
use serde_json::value::RawValue;

use crate::ipc::IpcError;
use crate::ipc::files::open_itself;
use crate::ipc::message::object;
use crate::ipc::user::{User, strangeness};

/// Reads a schema file. A process that can write to it decides what a model is told, so it must be a regular file
/// of this user or of root, not a link, and writable only by its owner.
///
/// # Errors
///
/// [`IpcError::SchemaFile`] when it is not such a file, cannot be read, is not a JSON array of tools, or has an
/// empty or a duplicate name.
pub fn read_schema_file(path: &Path) -> Result<ToolList, IpcError> {
    let bad = |reason: String| IpcError::SchemaFile { path: path.into(), reason };
    let text = read_trusted(path, User::of_this_process()).map_err(bad)?;
    parse_schema_file(&text).map_err(bad)
}

fn read_trusted(path: &Path, user: User) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    // Checked by name first: opening a device can have side effects, and the error for a socket would be unclear.
    check_file(&fs::symlink_metadata(path).map_err(unreadable)?, user)?;
    // The file may have been replaced meanwhile.
    let mut file = open_itself(path).map_err(unreadable)?;
    check_file(&file.metadata().map_err(unreadable)?, user)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(unreadable)?;
    Ok(text)
}

/// Refuses files that other users could have written.
fn check_file(meta: &Metadata, user: User) -> Result<(), String> {
    let kind = meta.file_type();
    if kind.is_symlink() {
        return Err("is a symbolic link".into());
    }
    if !kind.is_file() {
        return Err("is not a regular file".into());
    }
    let uid = meta.uid();
    if !user.trusts(uid) {
        let own = user.uid();
        return Err(if uid == own {
            format!("belongs to user {uid}, {}", strangeness(uid, own))
        } else {
            format!("belongs to user {uid}, not to this user or root")
        });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("can be written by other users, its mode is {mode:04o}; `chmod 600` it"));
    }
    Ok(())
}

/// Reads the text of a schema file; the error is a phrase that follows the file's name.
fn parse_schema_file(text: &[u8]) -> Result<ToolList, String> {
    let items: Vec<&RawValue> = serde_json::from_slice(text).map_err(|error| {
        if error.is_data() { "is not a JSON array".into() } else { format!("is not JSON: {error}") }
    })?;
    let tool = |(item, number): (&RawValue, usize)| {
        let tool: ToolSpec = object(item.get())
            .map_err(|error| format!("has a tool that cannot be used, number {number}: {error}"))?;
        if tool.name.is_empty() {
            return Err(format!("has a tool with an empty name, number {number}"));
        }
        Ok(tool)
    };
    let tools = items.into_iter().zip(1..).map(tool).collect::<Result<_, _>>()?;
    ToolList::new(tools).map_err(|error| format!("cannot be used: {error}"))
}

/// The text of a schema file for `tools`.
pub(crate) fn write_schema_file(tools: &ToolList) -> Vec<u8> {
    let quoted = |text: &str| serde_json::Value::from(text);
    let tool = |tool: &ToolSpec| {
        let ToolSpec { name, description, input_schema, .. } = tool;
        let title = tool.title.as_deref().map(|title| quoted(title).to_string());
        let (name, description) = (quoted(name), quoted(description));
        let mut text =
            format!(r#"{{"name":{name},"description":{description},"input_schema":{input_schema}"#);
        for (key, value) in [
            ("title", title.as_deref()),
            ("output_schema", tool.output_schema.as_ref().map(RawJson::as_str)),
            ("annotations", tool.annotations.as_ref().map(RawJson::as_str)),
            ("meta", tool.meta.as_ref().map(RawJson::as_str)),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(r#","{key}":{value}"#));
            }
        }
        text + "}"
    };
    format!("[{}]", tools.iter().map(tool).collect::<Vec<_>>().join(",")).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_with_only_the_three_fields_loads_and_comes_back_the_same() {
        let text = r#"[{"name":"a","description":"A","input_schema":{"type": "object"}}]"#;
        let tools = parse_schema_file(text.as_bytes()).unwrap();
        assert_eq!(write_schema_file(&tools), text.as_bytes());
    }

    #[test]
    fn everything_optional_survives() {
        let text = r#"[{"name":"a","description":"A","input_schema":{},"title":"T","output_schema":{"x":1},"annotations":{"readOnlyHint":true,"new":1},"meta":{"m":[]}}]"#;
        let tools = parse_schema_file(text.as_bytes()).unwrap();
        assert_eq!(write_schema_file(&tools), text.as_bytes());
    }

    #[test]
    fn unknown_fields_and_nulls_are_fine() {
        let text = r#"[{"name":"a","description":"","input_schema":{},"title":null,"meta":null,"new":5}]"#;
        assert!(parse_schema_file(text.as_bytes()).unwrap().get("a").unwrap().meta.is_none());
    }

    #[test]
    fn a_bad_file_says_what_is_wrong() {
        let tool = r#"{"name":"a","description":"","input_schema":{}}"#;
        let rows = [
            ("{", "is not a JSON array"),
            ("[", "is not JSON: EOF while parsing a list at line 1 column 1"),
            ("", "is not JSON: EOF while parsing a value at line 1 column 0"),
            ("{}", "is not a JSON array"),
            (
                "[1]",
                "has a tool that cannot be used, number 1: invalid type: integer `1`, expected an object at line 1 column 1",
            ),
            (&format!("[{tool},{tool}]"), "cannot be used: two tools are called `a`"),
            (
                r#"[{"name":"","description":"","input_schema":{}}]"#,
                "has a tool with an empty name, number 1",
            ),
            (
                r#"[{"description":"","input_schema":{}}]"#,
                "has a tool that cannot be used, number 1: missing field `name` at line 1 column 36",
            ),
            (
                r#"[{"name":"a","description":"","input_schema":[]}]"#,
                "has a tool that cannot be used, number 1: it is not a JSON object at line 1 column 47",
            ),
        ];
        for (text, want) in rows {
            assert_eq!(parse_schema_file(text.as_bytes()).unwrap_err(), want, "{text}");
        }
        assert!(parse_schema_file(b"[\"\xff\"]").is_err());
    }

    /// Reads a file on a separate thread, since a blocking read would never return.
    fn read(path: &Path) -> Result<usize, String> {
        let (path, (done, is_done)) = (path.to_owned(), std::sync::mpsc::channel());
        std::thread::spawn(move || done.send(read_schema_file(&path)));
        let read = is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("an answer in time");
        match read {
            Ok(tools) => Ok(tools.len()),
            Err(IpcError::SchemaFile { reason, .. }) => Err(reason),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_a_regular_file_is_read_and_nothing_is_waited_for() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for other in [path("fifo"), path("socket"), path("folder"), "/dev/null".into()] {
            assert_eq!(read(&other), Err("is not a regular file".into()), "{}", other.display());
        }
        fs::write(path("folder/file"), "[]").unwrap();
        fs::set_permissions(path("folder/file"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("folder/file", path("link")).unwrap();
        assert_eq!(read(&path("link")), Err("is a symbolic link".into()));
        // Directories in the path may be links: the temporary directory is one on some systems.
        std::os::unix::fs::symlink("folder", path("way")).unwrap();
        assert_eq!(read(&path("way/file")), Ok(0));
        let missing = read(&path("missing")).unwrap_err();
        assert_eq!(missing, "cannot be read: No such file or directory (os error 2)");
    }

    #[test]
    fn a_file_to_which_others_can_write_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[]").unwrap();
        for mode in [0o600, 0o400, 0o644, 0o640, 0o755, 0o620, 0o664, 0o602, 0o666] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let want = match mode & 0o022 {
                0 => Ok(0),
                _ => Err(format!("can be written by other users, its mode is {mode:04o}; `chmod 600` it")),
            };
            assert_eq!(read(file.path()), want);
        }
    }
}
