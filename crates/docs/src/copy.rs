//! Copies from the manuals into the vault. The text stays inside the server.

use crate::answer::{CopiedFile, CopiedSection, FileType};
use crate::arguments::{CopyFile, CopySection, Extra, Limits, Mode, Ref, Spot};
use crate::carry::Carrier;
use crate::documents::Shared;
use crate::excerpt::{Excerpt, Take};
use crate::format::Format;
use crate::log::Note;
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::section::BOM;
use crate::vault::Vault;

/// Copies one section of an `.md`, or a whole `.json`.
pub(crate) fn copy_section(
    shared: &Shared,
    request: &CopySection,
) -> Result<(CopiedSection, Option<Note>), Refusal> {
    let Shared { manuals, vault, .. } = shared;
    let to = vault.destination(&request.to_path, request.mode)?;
    let SourceText { from, mut excerpt, format } = read_source(manuals, &request.from_ref, request)?;
    let mut carrier = Carrier::new(shared, &to, request.with.as_deref());
    if format.is_markdown() {
        let room = room(manuals, request.limits, &excerpt);
        excerpt = carrier.prepare(&from, excerpt, request.from_ref.spot.offset > 0, room);
    }
    let note = Note { written_sections: Some(1), ..put(vault, &to, request.mode, &excerpt)? };
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    let Excerpt { title, next, .. } = excerpt;
    let copied = CopiedSection {
        written_path,
        written_bytes,
        written_sections: 1,
        truncated,
        title,
        next,
        carried: carrier.done(),
    };
    Ok((copied, Some(note)))
}

/// A text that was read, and its source.
struct SourceText {
    from: RelPath,
    excerpt: Excerpt,
    format: Format,
}

/// How many bytes links may add to the text. The limit of a call that sets none is for the source, so that the links of
/// a part that it cuts are still adjusted.
fn room(manuals: &Manuals, limits: Option<Limits>, excerpt: &Excerpt) -> usize {
    let most = manuals.hard.copied_chars(limits, FileType::Json).chars;
    most.saturating_sub(excerpt.text.chars().count())
}

/// Reads one section, or a whole `.json`; `next` becomes a full reference.
fn read_source(manuals: &Manuals, reference: &Ref, request: &CopySection) -> Result<SourceText, Refusal> {
    let source = manuals.open_ref(reference)?;
    let (file_type, format, from) = (source.file_type, source.format, source.path.clone());
    check_with(&from, format, request.with.as_deref())?;
    let max_chars = manuals.hard.copied_chars(request.limits, file_type);
    let spot = &reference.spot;
    let max_sections = manuals.hard.sections(request.limits);
    let take = match file_type {
        FileType::Md => Take::Section(max_sections),
        // A later line asks for a part, but a `.json` is only copied whole.
        FileType::Json if spot.line.is_some_and(|line| line > 1) => {
            return Err(Refusal::new(
                Code::InvalidScope,
                "a `.json` file has no sections and is copied as a whole; leave `start_line` out",
            ));
        }
        FileType::Json => Take::File(max_sections),
    };
    let excerpt = manuals.take(source, spot, take, max_chars)?;
    let next = excerpt.next.map(|next| format!("{}{next}", from.as_str()));
    Ok(SourceText { from, excerpt: Excerpt { next, ..excerpt }, format })
}

/// Only Markdown has links and pictures to copy.
fn check_with(from: &RelPath, format: Format, with: Option<&[Extra]>) -> Result<(), Refusal> {
    if format.is_markdown() || with.is_none_or(<[_]>::is_empty) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::InvalidScope,
        format!("`{from}` is not Markdown, so it is copied as it is; leave `with` out"),
    ))
}

/// Copies a whole file.
pub(crate) fn copy_file(shared: &Shared, request: &CopyFile) -> Result<(CopiedFile, Option<Note>), Refusal> {
    let Shared { manuals, vault, .. } = shared;
    let to = vault.destination(&request.to_path, request.mode)?;
    let (from_path, spot) = match Spot::split(&request.from_path) {
        // More than a path is accepted only if it is the `next` of a copy that was cut.
        (path, spot) if spot.offset > 0 => (path, spot),
        _ => (request.from_path.as_str(), Spot::default()),
    };
    let source = manuals.open(&request.manual_id, from_path)?;
    let (file_type, format, from) = (source.file_type, source.format, source.path.clone());
    check_with(&from, format, request.with.as_deref())?;
    if file_type == FileType::Md {
        manuals.admit_file(request.limits)?;
    }
    let max_chars = manuals.hard.copied_chars(request.limits, file_type);
    let take = Take::File(manuals.hard.sections(request.limits));
    let mut excerpt = manuals.take(source, &spot, take, max_chars)?;
    let mut carrier = Carrier::new(shared, &to, request.with.as_deref());
    if format.is_markdown() {
        let room = room(manuals, request.limits, &excerpt);
        excerpt = carrier.prepare(&from, excerpt, spot.offset > 0, room);
    }
    let note = put(vault, &to, request.mode, &excerpt)?;
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    let next = excerpt.next.map(|next| format!("{from_path}{next}"));
    let copied = CopiedFile { written_path, written_bytes, truncated, next, carried: carrier.done() };
    Ok((copied, Some(note)))
}

fn put(vault: &Vault, to: &RelPath, mode: Mode, excerpt: &Excerpt) -> Result<Note, Refusal> {
    // The byte order mark of a file that is copied whole.
    let bom = if excerpt.has_bom { BOM } else { "" };
    let written_bytes = vault.receive(to, mode, &excerpt.text, bom, excerpt.is_mid_line)?;
    let truncated = excerpt.truncated;
    Ok(Note { written_path: to.as_str().to_owned(), mode, written_bytes, written_sections: None, truncated })
}
