//! Copies from the manuals into the vault. The text does not leave the server.

use crate::answer::{CopiedFile, CopiedSection, FileType};
use crate::arguments::{CopyFile, CopySection, Mode};
use crate::excerpt::{Excerpt, Take};
use crate::log::Note;
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::section::BOM;
use crate::vault::Vault;

/// Copies one section of an `.md`, or a whole `.json`.
pub(crate) fn copy_section(
    manuals: &Manuals,
    vault: &Vault,
    request: &CopySection,
) -> Result<(CopiedSection, Option<Note>), Refusal> {
    let to = Vault::destination(&request.to_path, request.mode)?;
    let source = manuals.open_ref(&request.from_ref)?;
    let max_chars = manuals.hard.chars(request.limits, source.file_type);
    let start_line = request.from_ref.start_line;
    let take = match source.file_type {
        FileType::Md => Take::Section(manuals.hard.copied_sections(request.limits)),
        // A later line asks for a part, but would get the whole.
        FileType::Json if start_line.is_some_and(|line| line.get() > 1) => {
            return Err(Refusal::new(
                Code::InvalidScope,
                "a `.json` file has no sections and is copied as a whole; leave `start_line` out",
            ));
        }
        FileType::Json => Take::File(None),
    };
    let excerpt = manuals.take(source, start_line, take, max_chars)?;
    let note = Note { written_sections: Some(1), ..put(vault, to, request.mode, &excerpt)? };
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    Ok((CopiedSection { written_path, written_bytes, written_sections: 1, truncated }, Some(note)))
}

/// Copies a whole file.
pub(crate) fn copy_file(
    manuals: &Manuals,
    vault: &Vault,
    request: &CopyFile,
) -> Result<(CopiedFile, Option<Note>), Refusal> {
    let to = Vault::destination(&request.to_path, request.mode)?;
    let source = manuals.open(&request.manual_id, &request.from_path)?;
    if source.file_type == FileType::Md {
        manuals.admit_file(request.limits)?;
    }
    let max_chars = manuals.hard.chars(request.limits, source.file_type);
    let take = Take::File(manuals.hard.copied_sections(request.limits));
    let note = put(vault, to, request.mode, &manuals.take(source, None, take, max_chars)?)?;
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    Ok((CopiedFile { written_path, written_bytes, truncated }, Some(note)))
}

fn put(vault: &Vault, to: RelPath, mode: Mode, excerpt: &Excerpt) -> Result<Note, Refusal> {
    // Of a file that is copied as a whole.
    let bom = if excerpt.has_bom { BOM } else { "" };
    let written_bytes = vault.receive(&to, mode, &excerpt.text, bom)?;
    let truncated = excerpt.truncated;
    Ok(Note { written_path: to.into(), mode, written_bytes, written_sections: None, truncated })
}
