//! Copies from the manuals into the vault. The text stays inside the server.

use crate::answer::{CopiedFile, CopiedSection, FileType};
use crate::arguments::{CopyFile, CopySection, Mode, Spot};
use crate::documents::Shared;
use crate::excerpt::{Excerpt, Take};
use crate::log::Note;
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::section::BOM;
use crate::vault::Vault;

/// Copies one section of an `.md`, or a whole `.json`.
pub(crate) fn copy_section(
    shared: &Shared,
    request: &CopySection,
) -> Result<(CopiedSection, Option<Note>), Refusal> {
    let Shared { manuals, vault, .. } = shared;
    let to = vault.destination(&request.to_path, request.mode)?;
    let source = manuals.open_ref(&request.from_ref)?;
    let from = source.path.clone();
    let spot = &request.from_ref.spot;
    let max_sections = manuals.hard.sections(request.limits);
    let take = match source.file_type {
        FileType::Md => Take::Section(max_sections),
        FileType::Json => Take::File(max_sections),
    };
    let max_chars = manuals.hard.copied_chars(request.limits, source.file_type);
    let excerpt = manuals.take(source, spot, take, max_chars)?;
    let note = Note { written_sections: Some(1), ..put(vault, &to, request.mode, &excerpt)? };
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    let Excerpt { title, next, .. } = excerpt;
    let next = next.map(|next| format!("{}{next}", from.as_str()));
    let copied = CopiedSection { written_path, written_bytes, written_sections: 1, truncated, title, next };
    Ok((copied, Some(note)))
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
    if source.file_type == FileType::Md {
        manuals.admit_file(request.limits)?;
    }
    let max_chars = manuals.hard.copied_chars(request.limits, source.file_type);
    let take = Take::File(manuals.hard.sections(request.limits));
    let excerpt = manuals.take(source, &spot, take, max_chars)?;
    let note = put(vault, &to, request.mode, &excerpt)?;
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    let next = excerpt.next.map(|next| format!("{from_path}{next}"));
    Ok((CopiedFile { written_path, written_bytes, truncated, next }, Some(note)))
}

fn put(vault: &Vault, to: &RelPath, mode: Mode, excerpt: &Excerpt) -> Result<Note, Refusal> {
    // The byte order mark of a file that is copied whole.
    let bom = if excerpt.has_bom { BOM } else { "" };
    let written_bytes = vault.receive(to, mode, &excerpt.text, bom, excerpt.is_mid_line)?;
    let truncated = excerpt.truncated;
    Ok(Note { written_path: to.as_str().to_owned(), mode, written_bytes, written_sections: None, truncated })
}
