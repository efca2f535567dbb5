//! Optional extras of a copy: links adjusted to the new location, pictures, and a line of origin.

use std::cell::LazyCell;
use std::collections::HashMap;

use crate::answer::Carried;
use crate::arguments::Extra;
use crate::documents::Shared;
use crate::excerpt::Excerpt;
use crate::link::{Anchors, Definitions, Fate, Place, Role, encode_path, needs_definitions, relink, resolve};
use crate::path::RelPath;
use crate::section::{Outline, front_matter, split_lines};
use crate::vault::Use;

/// The folder for pictures, next to the note.
const PICTURES: &str = "pictures";

/// Which files are copied as pictures, and the size limits.
const PICTURE_ENDINGS: [&str; 9] = ["png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "bmp", "ico"];
const MOST_PICTURES: usize = 50;
const MAX_PICTURE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_PICTURES_BYTES: u64 = 64 * 1024 * 1024;

/// Prepares texts for one target. Copied pictures are removed on drop, unless the copy is [done](Self::done).
pub(crate) struct Carrier<'a> {
    shared: &'a Shared,
    to: &'a RelPath,
    with: &'a [Extra],
    left: usize,
    /// The copied location of each picture, by its path in the manuals; `None` if it could not be copied.
    placed: HashMap<String, Option<String>>,
    placed_bytes: u64,
    made: Vec<RelPath>,
    is_folder_new: bool,
}

impl<'a> Carrier<'a> {
    pub(crate) fn new(shared: &'a Shared, to: &'a RelPath, with: Option<&'a [Extra]>) -> Self {
        Self {
            shared,
            to,
            with: with.unwrap_or_default(),
            left: 0,
            placed: HashMap::new(),
            placed_bytes: 0,
            made: Vec::new(),
            is_folder_new: false,
        }
    }

    fn has(&self, extra: Extra) -> bool {
        self.with.contains(&extra)
    }

    /// Adjusts a text of `from` for the target; `is_continued` if an earlier call copied the text before it.
    pub(crate) fn prepare(
        &mut self,
        from: &RelPath,
        mut excerpt: Excerpt,
        is_continued: bool,
        room: usize,
    ) -> Excerpt {
        excerpt.text = self.relinked(from, excerpt.text, room);
        if self.has(Extra::Origin) && !is_continued {
            excerpt.text = with_origin(&excerpt.text, from, excerpt.title.as_deref());
        }
        excerpt
    }

    fn relinked(&mut self, from: &RelPath, text: String, room: usize) -> String {
        if !(text.contains('[') || text.contains('<')) {
            return text;
        }
        let whole = needs_definitions(&text)
            .then(|| {
                self.shared.manuals.reopen(from).and_then(|source| self.shared.manuals.text(source)).ok()
            })
            .flatten();
        let definitions = whole.as_ref().map(|reading| Definitions::of(&reading.text, from.name()));
        let anchors = LazyCell::new(|| Anchors::of(&text));
        let carry = self.has(Extra::Links);
        let linked = relink(&text, definitions.as_ref(), carry, room, |role, dest| match Place::of(dest) {
            Place::Anywhere => Fate::Stay,
            Place::Here(name) if anchors.has(name) => Fate::Stay,
            Place::Here(name) => {
                let names: Vec<_> = from.names().map(str::to_owned).collect();
                self.lead(&names, &format!("#{name}"))
            }
            Place::File(path, rest) => {
                let folder = from.split().0;
                let folder: Vec<_> = folder.iter().flat_map(RelPath::names).collect();
                match resolve(&folder, path) {
                    Some(names) => match self.picture(role, &names) {
                        Some(placed) => Fate::Become(placed),
                        None => self.lead(&names, rest),
                    },
                    None => Fate::Lose,
                }
            }
        });
        self.left += linked.left;
        linked.text
    }

    /// The relative path from the note to a file of the manuals.
    fn lead(&self, names: &[String], rest: &str) -> Fate {
        match &self.shared.route {
            Some(route) if self.has(Extra::Links) => {
                let up = "../".repeat(self.to.names().count() - 1);
                Fate::Become(format!("{up}{route}/{}{rest}", encode_path(names)))
            }
            _ => Fate::Lose,
        }
    }

    /// Copies a picture next to the note and returns its path there.
    fn picture(&mut self, role: Role, names: &[String]) -> Option<String> {
        if role != Role::Picture || !self.has(Extra::Pictures) {
            return None;
        }
        let path = RelPath::parse(&names.join("/")).ok()?;
        if let Some(known) = self.placed.get(path.as_str()) {
            return known.clone();
        }
        let placed = self.place(&path);
        self.placed.insert(path.into(), placed.clone());
        placed
    }

    fn place(&mut self, path: &RelPath) -> Option<String> {
        let ending = path.name().rsplit_once('.')?.1.to_lowercase();
        let is_full = self.placed.values().flatten().count() >= MOST_PICTURES;
        if is_full || !PICTURE_ENDINGS.contains(&ending.as_str()) {
            return None;
        }
        let room = MAX_PICTURE_BYTES.min(MAX_PICTURES_BYTES - self.placed_bytes);
        let bytes = self.shared.manuals.picture(path, room).ok()??;
        let folder = match self.to.split().0 {
            Some(folder) => RelPath::child(Some(&folder), PICTURES)?,
            None => RelPath::child(None, PICTURES)?,
        };
        let target = RelPath::child(Some(&folder), path.name())?;
        let vault = &self.shared.vault;
        // The folder for daily notes accepts no pictures.
        let target = vault.admit(target.as_str(), Use::Create).ok()?;
        if self.made.is_empty() {
            self.is_folder_new = vault.root.folder(Some(&folder)).is_err();
        }
        let (placed, is_new) = vault.receive_picture(&target, &bytes).ok()?;
        self.placed_bytes += bytes.len() as u64;
        let dest = encode_path(&[PICTURES.to_owned(), placed.name().to_owned()]);
        if is_new {
            self.made.push(placed);
        }
        Some(dest)
    }

    /// Keeps the copied pictures; call this once the copy is written.
    pub(crate) fn done(mut self) -> Carried {
        self.made.clear();
        let some = |count: usize| (count > 0).then_some(count);
        Carried { links_left: some(self.left), pictures: some(self.placed.values().flatten().count()) }
    }
}

impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        for path in &self.made {
            self.shared.vault.take_back(path, self.is_folder_new);
        }
    }
}

/// Adds a line of origin below the heading, so that it belongs to the section.
fn with_origin(text: &str, from: &RelPath, title: Option<&str>) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let section = title.map(|title| format!(", section \"{title}\"")).unwrap_or_default();
    let line = format!("> From {}{section}{end}", from.as_str());
    let outline = Outline::of(text);
    let first = &outline[0];
    let at = if first.level == 0 { front_matter(text) } else { first.text_start };
    let (above, below) = text.split_at(at);
    let own_line = match above {
        "" => "",
        above if above.ends_with(['\n', '\r']) => end,
        _ => return format!("{above}{end}{end}{line}"),
    };
    let is_apart = below.is_empty() || split_lines(below).next().is_some_and(|line| line.trim().is_empty());
    format!("{above}{own_line}{line}{}{below}", if is_apart { "" } else { end })
}
