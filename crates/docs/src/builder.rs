//! Settings, and where they come from.
#![expect(clippy::disallowed_methods, reason = "the roots are set at the start; calls cannot change them")]

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::documents::{Documents, Shared};
use crate::error::DocsError;
use crate::find::Search;
use crate::limit::HardLimits;
use crate::log::{Log, LogLevel};
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::{Refusal, shown};
use crate::root::Root;
use crate::vault::Vault;
use crate::write;

const EXPECTED_BOOL: &str = "`true`, `false`, `1` or `0`";
const EXPECTED_DAILY: &str = "`off` or a relative path of plain names, such as `journal`";
const EXPECTED_COUNT: &str = "a whole number from 1 upwards";

const EXAMPLE_MANUAL: &str = "getting-started";
const EXAMPLE_FILE: &str = "guide.md";
const EXAMPLE_TEXT: &str = include_str!("guide.md");

/// The settings of [`Documents`]; [`open`](Self::open) applies them.
#[derive(Debug, Default)]
#[must_use]
pub struct DocumentsBuilder {
    workspace: Option<PathBuf>,
    manuals: Option<PathBuf>,
    vault: Option<PathBuf>,
    allow_file_scope: bool,
    read_only: bool,
    hard: HardLimits,
    log: Log,
    daily: Option<String>,
}

impl DocumentsBuilder {
    /// Reads the settings from the environment: `WORKSPACE_ROOT`, `MANUALS_ROOT`, `VAULT_ROOT`, `DOCS_DAILY`,
    /// `ALLOW_FILE_SCOPE`, `HARD_MAX_SECTIONS`, `HARD_MAX_CHARS`, `HARD_MAX_COPY_CHARS`, `LOG_LEVEL`. A variable that is
    /// unset or empty leaves the default.
    ///
    /// # Errors
    ///
    /// Fails if a variable has an invalid value.
    pub fn from_env() -> Result<Self, DocsError> {
        Self::from_vars(|name| std::env::var_os(name))
    }

    /// Like [`from_env`](Self::from_env), with the variables looked up by `variable`.
    ///
    /// # Errors
    ///
    /// Fails if a variable has an invalid value.
    pub fn from_vars(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, DocsError> {
        let get = |name| variable(name).filter(|value| !value.is_empty());
        let mut builder = Self {
            workspace: get("WORKSPACE_ROOT").map(Into::into),
            manuals: get("MANUALS_ROOT").map(Into::into),
            vault: get("VAULT_ROOT").map(Into::into),
            ..Self::default()
        };
        let Self { allow_file_scope, hard, log, daily, .. } = &mut builder;
        let whether = |text: &str| match text {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        };
        let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
        let folder = |text: &str| daily_folder(text).ok().map(|_| Some(text.to_owned()));
        set(daily, "DOCS_DAILY", get, EXPECTED_DAILY, folder)?;
        set(allow_file_scope, "ALLOW_FILE_SCOPE", get, EXPECTED_BOOL, whether)?;
        set(&mut hard.max_sections, "HARD_MAX_SECTIONS", get, EXPECTED_COUNT, count)?;
        set(&mut hard.max_chars, "HARD_MAX_CHARS", get, EXPECTED_COUNT, count)?;
        let some = |text: &str| count(text).map(Some);
        set(&mut hard.max_copy_chars, "HARD_MAX_COPY_CHARS", get, EXPECTED_COUNT, some)?;
        set(&mut log.level, "LOG_LEVEL", get, LogLevel::EXPECTED, |text| text.parse().ok())?;
        Ok(builder)
    }

    /// The folder that contains the two roots; `.` by default. If it is named, and has no folder `manuals`, it is a single
    /// folder of notes: it is read and written, and each folder in it is a manual. Its own notes are in the manual `.`.
    pub fn workspace(mut self, dir: impl Into<PathBuf>) -> Self {
        self.workspace = Some(dir.into());
        self
    }

    /// The manuals, `<dir>/<manual_id>/…`; `manuals` in the workspace by default.
    pub fn manuals(mut self, dir: impl Into<PathBuf>) -> Self {
        self.manuals = Some(dir.into());
        self
    }

    /// The folder that copies are written to; `vault` in the workspace by default. The first write creates it if it does
    /// not exist.
    pub fn vault(mut self, dir: impl Into<PathBuf>) -> Self {
        self.vault = Some(dir.into());
        self
    }

    /// The folder of the vault that takes only daily notes, `YYYY-MM-DD.md`, which can only be appended to; `daily` by
    /// default, `off` for none.
    pub fn daily(mut self, folder: impl Into<String>) -> Self {
        self.daily = Some(folder.into());
        self
    }

    /// Whether whole `.md` files may be read or copied, by calls that set `allow_file`.
    pub fn allow_file_scope(mut self, allow: bool) -> Self {
        self.allow_file_scope = allow;
        self
    }

    /// Whether the tools that write are left out.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// The maximum number of sections of manuals that a call reads or copies, and of hits of a search; 20 by default.
    pub fn hard_max_sections(mut self, most: usize) -> Self {
        self.hard.max_sections = most;
        self
    }

    /// The maximum number of characters that a call reads; 20,000 by default.
    pub fn hard_max_chars(mut self, most: usize) -> Self {
        self.hard.max_chars = most;
        self
    }

    /// The maximum number of characters per copy, and the default for copies that set no limit. If unset,
    /// copies have the limits of reading. Copied text costs no tokens, so this may be much larger.
    pub fn hard_max_copy_chars(mut self, most: usize) -> Self {
        self.hard.max_copy_chars = Some(most);
        self
    }

    /// Which calls are logged; all by default.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log.level = level;
        self
    }

    /// Where log lines are written; stderr by default. Each line is written with one call.
    pub fn log_to(mut self, sink: impl io::Write + Send + 'static) -> Self {
        self.log.sink = Mutex::new(Box::new(sink));
        self
    }

    /// The path of the manuals.
    #[must_use]
    pub fn manuals_path(&self) -> PathBuf {
        self.single_folder().unwrap_or_else(|| self.two_folders().0)
    }

    /// The path of the vault.
    #[must_use]
    pub fn vault_path(&self) -> PathBuf {
        self.single_folder().unwrap_or_else(|| self.two_folders().1)
    }

    /// The workspace, if it is manuals and vault in one.
    fn single_folder(&self) -> Option<PathBuf> {
        let workspace = self.workspace.clone().filter(|_| self.manuals.is_none() && self.vault.is_none())?;
        let manuals = std::fs::symlink_metadata(self.two_folders().0);
        manuals.is_err_and(|error| error.kind() == io::ErrorKind::NotFound).then_some(workspace)
    }

    fn two_folders(&self) -> (PathBuf, PathBuf) {
        let workspace = self.workspace.as_deref().unwrap_or(Path::new("."));
        let or = |dir: &Option<PathBuf>, name: &str| dir.clone().unwrap_or_else(|| workspace.join(name));
        (or(&self.manuals, "manuals"), or(&self.vault, "vault"))
    }

    /// Creates the two folders if they are missing, and an example manual if there is none. Existing files
    /// are not changed. Returns what was created.
    ///
    /// # Errors
    ///
    /// Fails if a folder or file cannot be created.
    pub fn init(&self) -> Result<Vec<PathBuf>, DocsError> {
        let (manuals, vault) = self.two_folders();
        let mut created = Vec::new();
        for path in [&manuals, &vault] {
            let is_there = path.is_dir();
            std::fs::create_dir_all(path).map_err(|source| DocsError::Init { path: path.clone(), source })?;
            created.extend((!is_there).then(|| path.clone()));
        }
        let example = manuals.join(EXAMPLE_MANUAL).join(EXAMPLE_FILE);
        match make_example(&manuals) {
            Ok(is_new) => created.extend(is_new.then_some(example)),
            Err(source) => return Err(DocsError::Init { path: example, source }),
        }
        Ok(created)
    }

    /// Opens the two roots, or the single folder. Symbolic links in their paths are resolved only here.
    ///
    /// # Errors
    ///
    /// Fails if the manuals are missing, if a root is not a folder, if one contains the other, if a limit is zero, or if the folder for daily
    /// notes is not a relative path of plain names.
    pub fn open(self) -> Result<Documents, DocsError> {
        for (name, value) in [
            ("hard_max_sections", self.hard.max_sections),
            ("hard_max_chars", self.hard.max_chars),
            ("hard_max_copy_chars", self.hard.max_copy_chars.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(DocsError::InvalidSetting { name, value: "0".into(), expected: EXPECTED_COUNT });
            }
        }
        let daily = self.daily.as_deref().unwrap_or("daily");
        let daily = daily_folder(daily).map_err(|_| DocsError::InvalidSetting {
            name: "daily",
            value: shown(daily),
            expected: EXPECTED_DAILY,
        })?;
        let (manuals, vault) = match self.single_folder() {
            Some(folder) => {
                let root = Arc::new(open_root("notes", &folder)?);
                (Arc::clone(&root), root)
            }
            None => self.open_two()?,
        };
        let is_single = Arc::ptr_eq(&manuals, &vault);
        let (hard, allow_file_scope) = (self.hard, self.allow_file_scope);
        let manuals = Manuals { root: manuals, hard, allow_file_scope, has_top: is_single };
        let (manuals, search) = (Arc::new(manuals), Arc::<Search>::default());
        let (notes, note_search) = if is_single {
            (Arc::clone(&manuals), Arc::clone(&search))
        } else {
            let notes = Manuals { root: Arc::clone(&vault), hard, allow_file_scope, has_top: true };
            (Arc::new(notes), Arc::default())
        };
        let vault = Vault { root: vault, hard, daily };
        let shared = Shared { manuals, search, vault, notes, note_search, log: self.log };
        Ok(Documents::new(shared, self.read_only))
    }

    fn open_two(&self) -> Result<(Arc<Root>, Arc<Root>), DocsError> {
        let (manuals_path, vault_path) = self.two_folders();
        let manuals = open_root("manuals", &manuals_path)?;
        let failed = |source| DocsError::OpenRoot { root: "vault", path: vault_path.clone(), source };
        let vault = Root::open_later(&vault_path).map_err(failed)?;
        let (one, other) = (place(&manuals.path), place(&vault.path));
        if other.starts_with(&one) || vault.exists().map_err(failed)? && one.starts_with(&other) {
            return Err(DocsError::OverlappingRoots { manuals: manuals_path, vault: vault_path });
        }
        Ok((Arc::new(manuals), Arc::new(vault)))
    }
}

/// Where a folder is, without links; of one that does not exist, where the nearest folder above it is.
fn place(folder: &Path) -> PathBuf {
    folder.ancestors().find_map(|path| std::fs::canonicalize(path).ok()).unwrap_or_default()
}

/// The folder for daily notes, if there is one.
fn daily_folder(text: &str) -> Result<Option<RelPath>, Refusal> {
    if text == "off" {
        return Ok(None);
    }
    RelPath::parse(text.strip_suffix('/').unwrap_or(text)).map(Some)
}

fn open_root(root: &'static str, path: &Path) -> Result<Root, DocsError> {
    Root::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => DocsError::MissingRoot { root, path: path.to_owned() },
        _ => DocsError::OpenRoot { root, path: path.to_owned(), source },
    })
}

/// Returns whether there was no manual.
fn make_example(manuals: &Path) -> io::Result<bool> {
    let root = Root::open(manuals)?;
    if root.list(None)?.iter().any(|entry| entry.is_dir) {
        return Ok(false);
    }
    let manual = RelPath::child(None, EXAMPLE_MANUAL);
    let folder = root.make_folder(manual.as_ref())?;
    write::create(folder.dir.as_fd(), EXAMPLE_FILE, &[EXAMPLE_TEXT.as_bytes()])?;
    folder.keep();
    Ok(true)
}

/// Sets a setting from an environment variable, if the variable is set.
fn set<T>(
    setting: &mut T,
    name: &'static str,
    get: impl Fn(&'static str) -> Option<OsString>,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<(), DocsError> {
    let Some(value) = get(name) else { return Ok(()) };
    let invalid = || {
        let value = value.to_string_lossy().into_owned();
        DocsError::InvalidSetting { name, value, expected }
    };
    *setting = value.to_str().and_then(parse).ok_or_else(invalid)?;
    Ok(())
}
