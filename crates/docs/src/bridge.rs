//! Copies from the manuals into the vault. The text does not leave the server.

use crate::answer::{CopiedFile, CopiedSection, FileType};
use crate::excerpt::{Excerpt, Take};
use crate::manual::Manuals;
use crate::refusal::{Code, Refusal};
use crate::request::{CopyFile, CopySection};
use crate::section::BOM;
use crate::vault::Vault;

/// Copies one section of an `.md`, or a whole `.json`.
pub(crate) fn copy_section(
    manuals: &Manuals,
    vault: &Vault,
    request: &CopySection,
) -> Result<CopiedSection, Refusal> {
    let to = Vault::destination(&request.to_path, request.mode)?;
    let source = manuals.open_ref(&request.from_ref)?;
    let max_chars = manuals.hard.chars(request.limits, source.file_type);
    let start_line = request.from_ref.start_line;
    let take = match source.file_type {
        FileType::Md => Take::Section(manuals.hard.copied_sections(request.limits)),
        // Whoever names a later line wants a part of it, and would get all.
        FileType::Json if start_line.is_some_and(|line| line.get() > 1) => {
            return Err(Refusal::new(
                Code::InvalidScope,
                "a `.json` file has no sections and is copied as a whole; leave `start_line` out",
            ));
        }
        FileType::Json => Take::File(None),
    };
    let excerpt = manuals.take(source, start_line, take, max_chars)?;
    let written_bytes = vault.receive(&to, &excerpt.text, bom(&excerpt))?;
    Ok(CopiedSection {
        written_path: to.path.as_str().to_owned(),
        written_bytes,
        written_sections: 1,
        truncated: excerpt.truncated,
        mode: to.mode,
    })
}

/// Copies a whole file.
pub(crate) fn copy_file(manuals: &Manuals, vault: &Vault, request: &CopyFile) -> Result<CopiedFile, Refusal> {
    let to = Vault::destination(&request.to_path, request.mode)?;
    let source = manuals.open(&request.manual_id, &request.from_path)?;
    if source.file_type == FileType::Md {
        manuals.admit_file(request.limits)?;
    }
    let max_chars = manuals.hard.chars(request.limits, source.file_type);
    let take = Take::File(manuals.hard.copied_sections(request.limits));
    let excerpt = manuals.take(source, None, take, max_chars)?;
    let written_bytes = vault.receive(&to, &excerpt.text, bom(&excerpt))?;
    Ok(CopiedFile {
        written_path: to.path.as_str().to_owned(),
        written_bytes,
        truncated: excerpt.truncated,
        mode: to.mode,
    })
}

/// What goes before a file that is copied as a whole.
fn bom(excerpt: &Excerpt) -> &'static str {
    if excerpt.has_bom { BOM } else { "" }
}
