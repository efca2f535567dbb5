//! Extracts text from a file of a manual.

use serde_json::json;

use crate::arguments::Scope;
use crate::limit::MaxChars;
use crate::manual::Reading;
use crate::print::{Hash, Print};
use crate::reference::{Spot, suffix};
use crate::refusal::{Refusal, shown};
use crate::section::{BOM, Outline, Section, cut, cut_at_line, shortened};

/// How much of a source to take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) scope: Scope,
    /// The most headings; a `.json` has none.
    pub(crate) max_sections: usize,
    pub(crate) max_chars: MaxChars,
}

/// Text extracted from a source.
#[derive(Debug)]
pub(crate) struct Excerpt<'a> {
    pub(crate) text: &'a str,
    pub(crate) truncated: bool,
    /// Whether it is the start of a whole file that begins with a byte order mark.
    pub(crate) has_bom: bool,
    /// The section's title; `None` for a whole file.
    pub(crate) title: Option<String>,
    /// The suffix to append to the file's path to continue after a cut.
    pub(crate) next: Option<String>,
    /// Whether it continues a line that an earlier call has cut.
    pub(crate) is_mid_line: bool,
}

impl<'a> Excerpt<'a> {
    pub(crate) fn of(reading: &'a Reading, spot: &Spot, extent: Extent) -> Result<Self, Refusal> {
        let text = reading.snapshot.text.as_str();
        let outline = reading.format.outline(text);
        let is_json = reading.format.is_json();
        let is_rest = spot.offset > 0;
        let has_bom = extent.scope == Scope::File && !is_rest && text.starts_with(BOM);
        let (start, mut end, line, print, title) = if extent.scope == Scope::File {
            let print = Print::new(Hash::of(text.as_bytes()), Hash::START);
            if is_rest && spot.print != Some(print) {
                return Err(Refusal::conflict(format!(
                    "`{}` is not the file that the first part came from; start again, without the part after the path",
                    reading.shown_path()
                )));
            }
            // The section that a reference names must exist even if the whole file is read.
            if !is_rest && !is_json {
                find(&outline, reading, spot)?;
            }
            (0, text.len(), 1, print, None)
        } else {
            let section = &outline[find(&outline, reading, spot)?];
            let end = match extent.scope {
                Scope::Snippet => section.own_end,
                Scope::Section => section.range.end,
                Scope::Sections | Scope::File => text.len(),
            };
            (section.range.start, end, section.line, section.print, Some(reading.title(section)))
        };
        let at = start.saturating_add(if has_bom { BOM.len() } else { spot.offset });
        // The rest of a section may start inside one of its subsections.
        let first = outline.iter().rposition(|one| one.range.start <= at).unwrap_or(0);
        let run_end = outline.run_end(first, extent.max_sections);
        let is_part = extent.scope != Scope::Snippet && run_end < end;
        if is_part {
            end = run_end;
        }
        if at > end {
            let hint = match extent.scope {
                Scope::Snippet => "set `scope` to `section` to continue with its subsections",
                _ => "leave that out to begin at its start",
            };
            let (path, offset) = (reading.path.as_str(), spot.offset);
            let message = format!("`{path}{}` has no text at `+{offset}`; {hint}", suffix(line, print));
            return Err(Refusal::not_found(message));
        }
        let Some(left) = text.get(at..end) else {
            return Err(Refusal::parameter(
                "the number after `+` is in the middle of a character; take it from `next`",
            ));
        };
        let max_chars = extent.max_chars.chars;
        let (kept, is_cut) = if is_json {
            // Copied unchanged, so its byte order mark counts as a character.
            let mark = usize::from(has_bom);
            let (kept, is_cut) = cut(left, max_chars - mark);
            if is_cut && !is_rest && !extent.max_chars.is_asked_for {
                return Err(half_a_json(reading, left.chars().count() + mark, max_chars));
            }
            (kept, is_cut)
        } else {
            cut_at_line(left, max_chars)
        };
        let truncated = is_cut || is_part;
        Ok(Self {
            text: kept,
            truncated,
            has_bom,
            title,
            next: truncated.then(|| format!("{}+{}", suffix(line, print), at + kept.len() - start)),
            is_mid_line: is_rest && !matches!(text.as_bytes()[at - 1], b'\n' | b'\r'),
        })
    }
}

fn half_a_json(reading: &Reading, size: usize, limit: usize) -> Refusal {
    let raise = "set HARD_MAX_CHARS (for copies HARD_MAX_COPY_CHARS) on the server, or accept a part with `limits.max_chars`";
    Refusal::forbidden(format!(
        "`{}` has {size} characters, the limit is {limit}, and half a `.json` file is not JSON; {raise}",
        reading.shown_path()
    ))
    .with(json!({ "size_chars": size, "limit_chars": limit, "raise": raise }))
}

/// Finds the requested section and returns its position in the outline. With a fingerprint, a section that has moved
/// is found again; one that was changed or removed is never replaced by another.
fn find(outline: &Outline, reading: &Reading, spot: &Spot) -> Result<usize, Refusal> {
    let line = spot.line.unwrap_or(1);
    let nearest = |is_meant: &dyn Fn(&Section) -> bool| {
        let places = (0..outline.len()).filter(|place| is_meant(&outline[*place]));
        places.min_by_key(|place| outline[*place].line.abs_diff(line))
    };
    let missed = |place: usize, what: String, refuse: fn(String) -> Refusal| {
        let (reference, title) = (reading.cited(&outline[place]), reading.title(&outline[place]));
        refuse(format!("{what}; the nearest is `{}`: {}", shown(&title), shown(&reference)))
            .with(json!({ "nearest": { "ref": reference, "title": title } }))
    };
    let path = reading.shown_path();
    let Some(print) = spot.print else {
        return outline.place(spot.line).ok_or_else(|| {
            let before = nearest(&|section| section.line <= line).unwrap_or(0);
            let what = format!("no section of `{path}` starts at line {line}");
            missed(before, what, Refusal::not_found)
        });
    };
    // Of sections with the same text, any will do.
    if let Some(place) = nearest(&|section| section.print.text == print.text) {
        return Ok(place);
    }
    if let Some(changed) = nearest(&|section| section.print.heading == print.heading) {
        let what = format!("the section of `{path}` has changed since it was found; look at it again");
        return Err(missed(changed, what, Refusal::conflict));
    }
    let what = format!("the section is no longer in `{path}`");
    Err(missed(nearest(&|_| true).unwrap_or(0), what, Refusal::not_found))
}

impl Reading {
    /// A section as answers cite it.
    fn cited(&self, section: &Section) -> String {
        format!("{}{}", self.path.as_str(), suffix(section.line, section.print))
    }

    fn title(&self, section: &Section) -> String {
        shown_title(self.path.name(), section)
    }

    fn shown_path(&self) -> String {
        shown(self.path.below_first())
    }
}

/// A section's title as answers show it; the file's name for text before the first heading.
pub(crate) fn shown_title(file: &str, section: &Section) -> String {
    shortened(if section.level == 0 { file } else { &section.title })
}
