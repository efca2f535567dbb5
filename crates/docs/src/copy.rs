//! Copies from the manuals into the vault. The text stays inside the server.

use serde_json::json;

use crate::answer::{CopiedFile, CopiedSection, FileType};
use crate::arguments::{Along, CopyFile, CopySection, Mode, Ref, Spot};
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

/// Copies one section of an `.md`, or a whole `.json`, or several of them. All are read before anything is
/// written.
pub(crate) fn copy_section(
    shared: &Shared,
    request: &CopySection,
) -> Result<(CopiedSection, Option<Note>), Refusal> {
    let Shared { manuals, vault, .. } = shared;
    let to = match &request.under {
        None => Vault::destination(&request.to_path, request.mode)?,
        Some(_) if request.mode == Mode::Overwrite => {
            return Err(Refusal::parameter("`under` adds to a section; it needs the mode `append`"));
        }
        // An append-only file may not be changed in its middle.
        Some(_) => Vault::destination(&request.to_path, Mode::Overwrite)?,
    };
    let refs = &request.from_ref.0;
    let most = manuals.hard.sections(None);
    if refs.len() > most {
        return Err(Refusal::forbidden(format!(
            "`from_ref` names {} sections, the limit is {most}",
            refs.len()
        ))
        .with(json!({ "sections": refs.len(), "limit_sections": most })));
    }
    let taken =
        refs.iter().map(|reference| take(manuals, reference, request)).collect::<Result<Vec<_>, _>>()?;
    let mut carrier = Carrier::new(shared, &to, request.with.as_deref());
    let mut excerpts = taken.into_iter().zip(refs).map(|(taken, reference)| {
        let Taken { from, excerpt, format, room } = taken;
        if format.is_markdown() {
            carrier.prepare(&from, excerpt, reference.spot.offset > 0, room)
        } else {
            excerpt
        }
    });
    let mut all = excerpts.next().ok_or_else(|| Refusal::parameter("`from_ref` names nothing"))?;
    for more in excerpts {
        if !all.text.is_empty() && !all.text.ends_with(['\n', '\r']) {
            all.text.push('\n');
        }
        all.text.push_str(&more.text);
        all.truncated |= more.truncated;
        all.has_bom = false;
        // Report only the first continuation: it is enough to show that something was cut.
        all.next = all.next.or(more.next);
        all.title = match (all.title, more.title) {
            (Some(one), Some(other)) => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
    }
    let written_sections = refs.len() as u64;
    let note = match &request.under {
        None => put(vault, &to, request.mode, &all)?,
        Some(title) => {
            let written_bytes = vault.receive_under(&to, title, &all.text)?;
            let truncated = all.truncated;
            Note {
                written_path: to.as_str().to_owned(),
                mode: request.mode,
                written_bytes,
                written_sections: None,
                truncated,
            }
        }
    };
    let note = Note { written_sections: Some(written_sections), ..note };
    let Note { written_path, written_bytes, truncated, .. } = note.clone();
    let (title, next) = (all.title, all.next);
    let copied = CopiedSection {
        written_path,
        written_bytes,
        written_sections,
        truncated,
        title,
        next,
        carried: carrier.done(),
    };
    Ok((copied, Some(note)))
}

/// A text that was read, and its source.
struct Taken {
    from: RelPath,
    excerpt: Excerpt,
    format: Format,
    /// How many bytes may be added to the text.
    room: usize,
}

/// Reads one section, or a whole `.json`; `next` becomes a full reference.
fn take(manuals: &Manuals, reference: &Ref, request: &CopySection) -> Result<Taken, Refusal> {
    let source = manuals.open_ref(reference)?;
    let (file_type, format, from) = (source.file_type, source.format, source.path.clone());
    check_with(&from, format, request.with.as_deref())?;
    let max_chars = manuals.hard.copied_chars(request.limits, file_type);
    let spot = &reference.spot;
    let take = match file_type {
        FileType::Md => Take::Section(manuals.hard.copied_sections(request.limits)),
        // A later line asks for a part, but a `.json` is only copied whole.
        FileType::Json if spot.line.is_some_and(|line| line > 1) => {
            return Err(Refusal::new(
                Code::InvalidScope,
                "a `.json` file has no sections and is copied as a whole; leave `start_line` out",
            ));
        }
        FileType::Json => Take::File(None),
    };
    let excerpt = manuals.take(source, spot, take, max_chars)?;
    let next = excerpt.next.map(|next| format!("{}{next}", from.as_str()));
    Ok(Taken { from, excerpt: Excerpt { next, ..excerpt }, format, room: max_chars.chars })
}

/// Only Markdown has links and pictures to copy.
fn check_with(from: &RelPath, format: Format, with: Option<&[Along]>) -> Result<(), Refusal> {
    if format.is_markdown() || with.is_none_or(<[_]>::is_empty) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::InvalidScope,
        format!("`{from}` is no Markdown and is copied as it is; leave `with` out"),
    ))
}

/// Copies a whole file.
pub(crate) fn copy_file(shared: &Shared, request: &CopyFile) -> Result<(CopiedFile, Option<Note>), Refusal> {
    let Shared { manuals, vault, .. } = shared;
    let to = Vault::destination(&request.to_path, request.mode)?;
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
    let take = Take::File(manuals.hard.copied_sections(request.limits));
    let mut excerpt = manuals.take(source, &spot, take, max_chars)?;
    let mut carrier = Carrier::new(shared, &to, request.with.as_deref());
    if format.is_markdown() {
        excerpt = carrier.prepare(&from, excerpt, spot.offset > 0, max_chars.chars);
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
    let written_bytes = vault.receive(to, mode, &excerpt.text, bom)?;
    let truncated = excerpt.truncated;
    Ok(Note { written_path: to.as_str().to_owned(), mode, written_bytes, written_sections: None, truncated })
}
