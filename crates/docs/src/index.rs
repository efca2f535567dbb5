//! The word index: which sections contain which words, ranked by BM25.
//!
//! The index consists of segments. A segment holds the sections of some files. It is written once, has the
//! same format in memory and on disk, and never changes; a file that changes later is marked dead in it and
//! is alive in a newer segment. Read in this order: `code.rs` and `posting.rs` (numbers as bytes),
//! `segment.rs` (the format, and reading it), `draft.rs` (building a segment), `merge.rs` (merging segments),
//! `rank.rs` (searching).

mod code;
mod draft;
mod merge;
mod posting;
mod rank;
mod segment;

pub(crate) use self::draft::{Draft, NewDoc, NewFile};
pub(crate) use self::merge::{Unmerged, merge};
pub(crate) use self::rank::{Match, Query};
pub(crate) use self::segment::{Blob, Broken, Doc, FileId, Live, Mark, Segment, compare_paths};

/// The fields of a document: its title, the titles above it, the page's title, the body.
const FIELDS: usize = 4;
/// The title of the whole page.
const PAGE: usize = 2;
/// The field that contains nearly all words.
const BODY: usize = 3;
