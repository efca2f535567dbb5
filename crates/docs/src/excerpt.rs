//! Extracts text from a file of a manual.

use std::ops::Range;

use serde_json::json;

use crate::answer::FileType;
use crate::arguments::Spot;
use crate::limit::MaxChars;
use crate::manual::{Reading, Source, file_name};
use crate::print::{Hash, Print};
use crate::refusal::{Refusal, shown};
use crate::section::{BOM, Outline, Section, cut, cut_at_line, shortened};

/// Text extracted from a source.
#[derive(Debug)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    pub(crate) truncated: bool,
    /// Whether the file begins with a byte order mark.
    pub(crate) has_bom: bool,
    /// The section's title; `None` for a whole file.
    pub(crate) title: Option<String>,
    /// The suffix to append to the file's path to continue after a cut.
    pub(crate) next: Option<String>,
    /// Whether it continues a line that an earlier call has cut.
    pub(crate) is_mid_line: bool,
}

/// How much of a source to take; the numbers limit the headings. A `.json` has none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Take {
    /// A section's text up to its first subsection.
    Own,
    /// A section with its subsections.
    Section(usize),
    /// From a section on, across all levels.
    Sections(usize),
    File(usize),
}

/// The selected part of a source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    /// The section's position in the outline.
    pub(crate) place: usize,
    pub(crate) range: Range<usize>,
    /// Whether more text of the same kind follows.
    pub(crate) more: bool,
}

/// Selects the bytes of a source to take.
pub(crate) fn pick(outline: &Outline, source: &Source, spot: &Spot, take: Take) -> Result<Picked, Refusal> {
    let place = find(outline, source, spot)?;
    let section = &outline[place];
    let start = section.range.start.saturating_add(spot.offset);
    // The rest of a section may start inside one of its subsections.
    let at = outline.iter().rposition(|one| one.range.start <= start).unwrap_or(place);
    let (end, more) = match take {
        Take::Own => (section.own_end, false),
        Take::Sections(count) => {
            let (run, more) = outline.run(at, count);
            (run.end, more)
        }
        Take::Section(count) => match outline.run(at, count) {
            (run, true) if run.end < section.range.end => (run.end, true),
            _ => (section.range.end, false),
        },
        Take::File(_) => (section.range.end, false),
    };
    if start > end {
        let hint = match take {
            Take::Own if start <= section.range.end => {
                "set `scope` to `section` to continue with its subsections"
            }
            _ => "leave that out to begin at its start",
        };
        return Err(Refusal::not_found(format!(
            "`{}` has no text at `+{}`; {hint}",
            cited(source, section),
            spot.offset
        )));
    }
    Ok(Picked { place, range: start..end, more })
}

/// Finds the requested section and returns its position in the outline. With a fingerprint, a section that has moved
/// is found again; one that was changed or removed is never replaced by another.
fn find(outline: &Outline, source: &Source, spot: &Spot) -> Result<usize, Refusal> {
    let here = outline.place(spot.line);
    let line = spot.line.unwrap_or(1);
    let nearest_of = |is_meant: &dyn Fn(&Section) -> bool| {
        let places = (0..outline.len()).filter(|place| is_meant(&outline[*place]));
        places.min_by_key(|place| outline[*place].line.abs_diff(line))
    };
    let path = || shown(source.path.below_first());
    let missed = |nearest: Option<usize>, what: String, refuse: fn(String) -> Refusal| {
        let Some(place) = nearest else { return refuse(what) };
        let (reference, title) = (cited(source, &outline[place]), title(source, &outline[place]));
        refuse(format!("{what}; the nearest is `{}`: {}", shown(&title), shown(&reference)))
            .with(json!({ "nearest": { "ref": reference, "title": title } }))
    };
    let Some(print) = spot.print else {
        let Some(place) = here else {
            let nearest = nearest_of(&|section| section.line <= line).or(Some(0));
            let what = format!("no section of `{}` starts at line {line}", path());
            return Err(missed(nearest, what, Refusal::not_found));
        };
        let is_called =
            |section: &Section| spot.title.as_ref().is_none_or(|it| shortened(it) == title(source, section));
        if is_called(&outline[place]) {
            return Ok(place);
        }
        let nearest = nearest_of(&is_called).or(Some(place));
        let what = format!("the section at line {line} of `{}` has another title than the reference", path());
        return Err(missed(nearest, what, Refusal::conflict));
    };
    let is_same = |section: &Section| section.print.text == print.text;
    let is_under_the_same_heading = |section: &Section| section.print.heading == print.heading;
    let found = here
        .filter(|place| is_same(&outline[*place]))
        .or_else(|| nearest_of(&|section| is_same(section) && is_under_the_same_heading(section)))
        .or_else(|| nearest_of(&is_same));
    if let Some(place) = found {
        return Ok(place);
    }
    let changed = nearest_of(&is_under_the_same_heading);
    if changed.is_some() {
        let what = format!("the section of `{}` has changed since it was found; look at it again", path());
        return Err(missed(changed, what, Refusal::conflict));
    }
    let what = format!("the section is no longer in `{}`", path());
    Err(missed(nearest_of(&|_| true), what, Refusal::not_found))
}

/// A section as answers cite it.
pub(crate) fn cited(source: &Source, section: &Section) -> String {
    format!("{}{}", source.path.as_str(), suffix(section.line, section.print))
}

/// The part of a reference after the file's path.
pub(crate) fn suffix(line: usize, print: Print) -> String {
    format!("#L{line}~{print}")
}

fn title(source: &Source, section: &Section) -> String {
    shown_title(source.path.as_str(), section)
}

/// A section's title as answers show it; the file's name for text before the first heading.
pub(crate) fn shown_title(path: &str, section: &Section) -> String {
    shortened(if section.level == 0 { file_name(path) } else { &section.title })
}

impl Excerpt {
    /// An excerpt of a section; `text` starts at the selected range.
    pub(crate) fn of(
        text: &str,
        source: &Source,
        outline: &Outline,
        picked: &Picked,
        max_chars: MaxChars,
    ) -> Result<Self, Refusal> {
        let section = &outline[picked.place];
        if text.is_empty() && !picked.range.is_empty() {
            return Err(Refusal::parameter(
                "the number after `+` is in the middle of a character; take it from `next`",
            ));
        }
        let (text, is_cut) = cut_at_line(text, max_chars.chars);
        let truncated = is_cut || picked.more;
        let taken = picked.range.start - section.range.start + text.len();
        let next = truncated.then(|| format!("{}+{taken}", suffix(section.line, section.print)));
        Ok(Self {
            text: text.to_owned(),
            truncated,
            has_bom: false,
            title: Some(title(source, section)),
            next,
            is_mid_line: false,
        })
    }

    /// An excerpt of a whole file, or of its text up to `end`; a later call continues where the last one
    /// ended.
    pub(crate) fn whole(
        reading: Reading,
        end: Option<usize>,
        spot: &Spot,
        max_chars: MaxChars,
    ) -> Result<Self, Refusal> {
        let Reading { source, mut text, .. } = reading;
        let print = Print::new(Hash::of(text.as_bytes()), Hash::START);
        if let Some(end) = end {
            text.truncate(end);
        }
        if spot.offset > 0 {
            return Self::rest(&source, &text, print, spot, end.is_some(), max_chars);
        }
        let has_bom = text.starts_with(BOM);
        if has_bom {
            text.drain(..BOM.len());
        }
        let is_json = source.file_type == FileType::Json;
        // A `.json` is copied unchanged, so its byte order mark counts as a character.
        let mark = usize::from(has_bom && is_json);
        let cut = if is_json { cut } else { cut_at_line };
        let (kept, truncated) = cut(&text, max_chars.chars - mark);
        if truncated && is_json && !max_chars.is_asked_for {
            let size = text.chars().count() + mark;
            let limit = max_chars.chars;
            let raise = "set HARD_MAX_CHARS (for copies HARD_MAX_COPY_CHARS) on the server, or accept a part with `limits.max_chars`";
            return Err(Refusal::forbidden(format!(
                "`{}` has {size} characters, the limit is {limit}, and half a `.json` file is not JSON; {raise}",
                shown(source.path.below_first())
            ))
            .with(json!({ "size_chars": size, "limit_chars": limit, "raise": raise })));
        }
        let kept = kept.len();
        text.truncate(kept);
        let truncated = truncated || end.is_some();
        let next = truncated.then(|| {
            let taken = kept + if has_bom { BOM.len() } else { 0 };
            format!("{}+{taken}", suffix(1, print))
        });
        Ok(Self { text, truncated, has_bom, title: None, next, is_mid_line: false })
    }

    /// The rest of a whole file.
    fn rest(
        source: &Source,
        text: &str,
        print: Print,
        spot: &Spot,
        is_part: bool,
        max_chars: MaxChars,
    ) -> Result<Self, Refusal> {
        if spot.print != Some(print) {
            return Err(Refusal::conflict(format!(
                "`{}` is not the file that the first part came from; start again, without the part after the path",
                shown(source.path.below_first())
            )));
        }
        let Some(left) = text.get(spot.offset..) else {
            return Err(Refusal::parameter(format!(
                "`+{}` is not a position in the file; take it from `next`",
                spot.offset
            )));
        };
        let (kept, is_cut) = cut_at_line(left, max_chars.chars);
        let is_mid_line = is_mid_line(text.as_bytes()[spot.offset - 1]);
        let truncated = is_cut || is_part;
        let next = truncated.then(|| format!("{}+{}", suffix(1, print), spot.offset + kept.len()));
        Ok(Self { text: kept.to_owned(), truncated, has_bom: false, title: None, next, is_mid_line })
    }
}

/// Whether text after this byte is in the middle of a line.
pub(crate) fn is_mid_line(before: u8) -> bool {
    !matches!(before, b'\n' | b'\r')
}

/// The longest prefix that is valid UTF-8, of text that was cut at an arbitrary byte.
pub(crate) fn valid_prefix(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
