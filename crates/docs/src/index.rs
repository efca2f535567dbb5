//! The index of words: which sections have which words, ranked by BM25.
//!
//! It is made of segments. A segment holds what was found in some files, is written once, in one form whether it lies in
//! memory or in a file, and is never changed; a file that has changed since is dead in it, and alive in a newer one. To be
//! read in this order: `code.rs` and `posting.rs` (numbers as bytes), `segment.rs` (the form, and reading it), `draft.rs`
//! (gathering what goes into one), `merge.rs` (several into one), `rank.rs` (searching).

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

/// The parts of a text: its title, the titles above it, the page's title, the body. Each part is ranked by itself, and what
/// it gets is added up: a word in a short title says more than one in a long body.
const FIELDS: usize = 4;
/// The part that nearly all words are in.
const BODY: usize = 3;
