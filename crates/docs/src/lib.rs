//! Document tools: text that a model wants copied is copied inside the server.
//!
//! [`Documents`] is a tool source over two folders. It only reads from `manuals/`, and it writes to `vault/`. Or it is
//! one over a single folder of notes, which it reads and writes.
//! A model finds a section (`manual_find`, `manual_toc`), has it copied (`bridge_copy_section`) and gets
//! metadata back: the text itself never passes through the model or a log.
//!
//! ```no_run
//! # mod toolbridge { pub use toolbridge_docs as docs; }
//! use toolbridge::docs::Documents;
//!
//! let documents = Documents::builder().workspace("workspace").allow_file_scope(true).open()?;
//! # Ok::<(), toolbridge_docs::DocsError>(())
//! ```
//!
//! Read the files in this order: `path.rs` and `root.rs` (what may be opened, and how), `snapshot.rs`
//! (reading files that may change), `section.rs`, `format.rs` and `print.rs` (what a section is, and how it
//! is recognised), `reference.rs`, `manual.rs` and `excerpt.rs` (reading manuals), `fold.rs`, `term.rs`, `index.rs`,
//! `find.rs` and `snippet.rs` (searching them), `disk.rs`, `temporary.rs`, `lock.rs`, `attributes.rs` and `write.rs`
//! (writing), `vault.rs` and `trash.rs` (the vault), `arguments.rs` and `tools.rs` (the tools, each in a file of its own
//! below `tools/`).
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read the disk as other programs do"))]

#[doc(hidden)]
pub mod fuzzing;

mod arguments;
mod attributes;
mod builder;
mod disk;
mod documents;
mod error;
mod excerpt;
mod find;
mod fold;
mod format;
mod index;
mod limit;
mod lock;
mod log;
mod manual;
mod path;
mod print;
mod reference;
mod refusal;
mod root;
mod section;
mod snapshot;
mod snippet;
mod temporary;
mod term;
mod tools;
mod trash;
mod vault;
mod write;

pub use builder::DocumentsBuilder;
pub use documents::Documents;
pub use error::DocsError;
pub use log::{LogLevel, UnknownLogLevel};
