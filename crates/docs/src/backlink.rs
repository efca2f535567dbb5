//! Links that change when a note is moved: those of other notes to it, and its own.
//!
//! Each note is replaced as a whole, so a crash leaves it with its old links or with its new ones. The entry of the
//! move in the trash lists the changes, and is written before the note is moved: the next start finishes what a killed
//! process has begun. Undoing a move takes back exactly these; in a note that was changed since,
//! it adjusts the links as a move does.

use std::io;
use std::os::fd::AsFd as _;

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::link::{Edit, Fate, Place, Role, edited, lead, locate, retarget};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::print::Hash;
use crate::refusal::Refusal;
use crate::root::Stamp;
use crate::snapshot;
use crate::vault::{CHANGE, Vault, admit, check_new_size};
use crate::write::NotDurable;

/// The links of at most this many notes are changed by a move.
const MOST_NOTES: usize = 1000;

/// What was done to links.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Relinked {
    /// How many links were changed.
    pub(crate) changed: usize,
    /// How many links of the note itself could not be changed.
    pub(crate) left: usize,
    /// How many other notes still have links to the old path.
    pub(crate) linked_from: usize,
}

/// Why links are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// For a move that is just made.
    Move,
    /// For one of which a killed process has changed some links.
    Finish,
    /// The changes are taken back.
    Undo,
}

/// The changed links of a note.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// Where the note is after the move.
    path: String,
    /// The hash of its text with the changed links.
    after: u64,
    /// In the changed text: where a link is, its length, and its text before.
    edits: Vec<(usize, usize, String)>,
}

impl Change {
    /// `None` if there are no edits.
    fn new(path: &RelPath, text: &str, mut edits: Vec<Edit>) -> Option<Self> {
        if edits.is_empty() {
            return None;
        }
        edits.sort_by_key(|edit| edit.at.start);
        let mut undo = Vec::with_capacity(edits.len());
        let (mut added, mut removed) = (0, 0);
        for Edit { at, new } in &edits {
            undo.push((at.start + added - removed, new.len(), text[at.clone()].to_owned()));
            added += new.len();
            removed += at.len();
        }
        let after = Hash::of(edited(text, edits).as_bytes()).number();
        Some(Self { path: path.as_str().to_owned(), after, edits: undo })
    }

    /// The edits that restore the text; `None` if it was changed since.
    fn undo(&self, text: &str) -> Option<Vec<Edit>> {
        if Hash::of(text.as_bytes()).number() != self.after {
            return None;
        }
        let mut edits: Vec<Edit> = Vec::new();
        for (start, length, old) in &self.edits {
            let at = *start..start.checked_add(*length)?;
            // The list is a file that others could have changed.
            let is_in_order = edits.last().is_none_or(|before| before.at.end <= at.start);
            text.get(at.clone()).filter(|_| is_in_order)?;
            edits.push(Edit { at, new: old.clone() });
        }
        Some(edits)
    }
}

/// A file that is moved, or deleted.
pub(crate) struct Backlinks<'a> {
    from: &'a RelPath,
    /// `None` if it is deleted: then no link can be changed.
    to: Option<&'a RelPath>,
    /// A part of the name that every link to the file has, however it is encoded.
    key: &'a str,
    /// What a link in double brackets becomes; `None` if it cannot be known.
    wiki: Option<String>,
    /// All files of the vault.
    files: Vec<RelPath>,
}

impl<'a> Backlinks<'a> {
    fn new(from: &'a RelPath, to: Option<&'a RelPath>, files: Vec<RelPath>) -> Self {
        let is_other = |note: &&RelPath| *note != from && Some(*note) != to;
        let is_taken = |name: &str| files.iter().filter(is_other).any(|note| wiki_name(note.name()) == name);
        let wiki = to.and_then(|to| {
            let (old, new) = (wiki_name(from.name()), wiki_name(to.name()));
            if old == new {
                return Some(old.to_owned());
            }
            // Several notes have the name: the link may mean another one.
            let path = if is_taken(new) { wiki_name(to.as_str()) } else { new };
            (!is_taken(old)).then(|| path.to_owned())
        });
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
        let runs = wiki_name(from.name()).split(|char: char| !u8::try_from(char).is_ok_and(is_plain));
        Self { from, to, key: runs.max_by_key(|run| run.len()).unwrap_or_default(), wiki, files }
    }

    /// The edits of another note, and how many of its links stay wrong.
    fn edits(&self, note: &RelPath, text: &str) -> (Vec<Edit>, usize) {
        if !text.contains(self.key) {
            return (Vec::new(), 0);
        }
        let folder = folder_names(note);
        retarget(text, |role, dest| match (role, Place::of(dest)) {
            (Role::Wiki, _) => self.wiki(dest),
            (_, Place::File(path, rest)) => match locate(&folder, path) {
                Some((0, names)) if names.iter().eq(self.from.names()) => match self.to {
                    Some(to) => Fate::Become(lead(&folder, 0, &owned(to)) + rest),
                    None => Fate::Lose,
                },
                _ => Fate::Stay,
            },
            _ => Fate::Stay,
        })
    }

    /// The edits of the moved note itself.
    fn own_edits(&self, text: &str) -> (Vec<Edit>, usize) {
        let Some(to) = self.to else { return (Vec::new(), 0) };
        let (old, new) = (folder_names(self.from), folder_names(to));
        retarget(text, |role, dest| match (role, Place::of(dest)) {
            (Role::Wiki, _) => self.wiki(dest),
            (_, Place::File(path, rest)) => match locate(&old, path) {
                Some((above, names)) => {
                    let is_itself = above == 0 && names.iter().eq(self.from.names());
                    if !is_itself && old == new {
                        return Fate::Stay;
                    }
                    let end = if path.ends_with('/') { "/" } else { "" };
                    let names = if is_itself { owned(to) } else { names };
                    Fate::Become(format!("{}{end}{rest}", lead(&new, above, &names)))
                }
                None if old == new => Fate::Stay,
                None => Fate::Lose,
            },
            _ => Fate::Stay,
        })
    }

    fn wiki(&self, dest: &str) -> Fate {
        let name = wiki_name(dest);
        if name == wiki_name(self.from.as_str()) && name.contains('/') {
            return match self.to {
                Some(to) => Fate::Become(wiki_name(to.as_str()).to_owned()),
                None => Fate::Lose,
            };
        }
        match &self.wiki {
            _ if name != wiki_name(self.from.name()) => Fate::Stay,
            Some(new) if new == name => Fate::Stay,
            Some(new) => Fate::Become(new.clone()),
            None => Fate::Lose,
        }
    }
}

fn folder_names(path: &RelPath) -> Vec<&str> {
    let mut names: Vec<_> = path.names().collect();
    names.pop();
    names
}

fn owned(path: &RelPath) -> Vec<String> {
    path.names().map(str::to_owned).collect()
}

/// A note's name or path as links in double brackets have it.
fn wiki_name(path: &str) -> &str {
    path.strip_suffix(".md").unwrap_or(path)
}

impl Vault {
    pub(crate) fn backlinks<'a>(&self, from: &'a RelPath, to: Option<&'a RelPath>) -> Backlinks<'a> {
        let entries = self.root.walk(None).unwrap_or_default();
        let files = entries.into_iter().map(|entry| entry.path).collect();
        Backlinks::new(from, to, files)
    }

    /// Finds the links of notes that lead to the old path, and those of the note that is to be moved. Notes that cannot be read are
    /// skipped.
    pub(crate) fn find_links(&self, links: &Backlinks<'_>) -> (Vec<Change>, Relinked) {
        let (mut changes, mut relinked) = (Vec::new(), Relinked::default());
        let is_linking = |note: &&RelPath| Format::of(note).is_some_and(Format::is_markdown);
        for note in links.files.iter().filter(is_linking) {
            let Ok(text) = snapshot::read(note.as_str(), || self.root.read(note)) else { continue };
            if note == links.from {
                let (edits, left) = links.own_edits(&text);
                relinked.left = left;
                changes.extend(links.to.and_then(|to| Change::new(to, &text, edits)));
                continue;
            }
            let (edits, left) = links.edits(note, &text);
            // A note of a day may only grow.
            let is_fixed = changes.len() > MOST_NOTES || admit(note.as_str(), CHANGE).is_err();
            relinked.linked_from += usize::from(left > 0 || is_fixed && !edits.is_empty());
            if !is_fixed {
                changes.extend(Change::new(note, &text, edits));
            }
        }
        (changes, relinked)
    }

    /// Adjusts the links of the moved note, or takes these changes back. The caller has its turn.
    pub(crate) fn relink_own(
        &self,
        links: &Backlinks<'_>,
        changes: &[Change],
        way: Way,
        relinked: &mut Relinked,
    ) {
        let Some(to) = links.to else { return };
        let after = if way == Way::Undo { links.from } else { to };
        let Some(change) = changes.iter().find(|change| change.path == after.as_str()) else { return };
        let edits = |text: &str| {
            let own = links.own_edits(text).0;
            match way {
                Way::Move => own,
                // Unless they are changed already; changing them twice would be wrong.
                Way::Finish
                    if Change::new(to, text, own.clone()).is_some_and(|new| new.after == change.after) =>
                {
                    own
                }
                Way::Finish => Vec::new(),
                Way::Undo => change.undo(text).unwrap_or(own),
            }
        };
        match self.rewrite(to, edits) {
            Some(count) => relinked.changed += count,
            None => relinked.left += change.edits.len(),
        }
    }

    /// Adjusts the links of other notes, or takes these changes back. The caller has no turn: otherwise two moves
    /// could wait for each other.
    pub(crate) fn relink_others(
        &self,
        links: &Backlinks<'_>,
        changes: &[Change],
        way: Way,
        relinked: &mut Relinked,
    ) {
        let moved = [Some(links.from), links.to].map(|path| path.map(RelPath::as_str));
        for change in changes.iter().filter(|change| !moved.contains(&Some(&change.path))) {
            let Ok(note) = admit(&change.path, CHANGE) else { continue };
            let undo = |text: &str| change.undo(text).filter(|_| way == Way::Undo);
            let edits = |text: &str| undo(text).unwrap_or_else(|| links.edits(&note, text).0);
            match self.turns.take(&note, || self.rewrite(&note, edits)) {
                Some(count) => relinked.changed += count,
                None => relinked.linked_from += 1,
            }
        }
    }

    /// Applies edits to a note and returns their number; `None` if that is not possible.
    fn rewrite(&self, path: &RelPath, edits: impl FnOnce(&str) -> Vec<Edit>) -> Option<usize> {
        let failed = |error: io::Error| self.failed(path, &error);
        let work = || -> Result<Option<usize>, Refusal> {
            let (folder, name) = path.split();
            let folder = self.root.folder(folder.as_ref()).map_err(failed)?;
            let Some(old) = Locked::to_replace(folder.as_fd(), name).map_err(failed)? else {
                return Ok(None);
            };
            let text =
                snapshot::read(path.as_str(), || Ok((old.file.try_clone()?, Stamp::of_file(&old.file)?)))?;
            let edits = edits(&text);
            let count = edits.len();
            if count > 0 {
                let new = edited(&text, edits);
                check_new_size(path, new.len() as u64)?;
                let replaced = self.swept(folder.as_fd(), || old.replace(&[new.as_bytes()]));
                // In place, though it may not survive a crash.
                replaced
                    .map(drop)
                    .or_else(|error| NotDurable::of(&error).map(drop).ok_or(error))
                    .map_err(failed)?;
            }
            Ok(Some(count))
        };
        work().unwrap_or_else(|refusal| {
            tracing::warn!(path = path.as_str(), reason = refusal.message, "links are not changed");
            None
        })
    }
}
