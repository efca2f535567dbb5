//! Splits a Markdown text into sections.
//!
//! A CommonMark parser finds the headings; everything else is positions in the source, so that the original
//! bytes are copied.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, TagEnd};

use crate::print::{Hash, Print};

/// The byte order mark: never part of a section.
pub(crate) const BOM: &str = "\u{feff}";

/// A heading with everything below it up to the next heading of the same or a higher level; or the text
/// before the first heading.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(unreachable_pub, reason = "the fuzz targets see it")]
pub struct Section {
    /// 1 to 6, as the heading; 0 for text before the first heading.
    pub level: u8,
    /// The heading's text; empty for text before the first heading.
    pub title: String,
    /// The line it starts at; lines count from 1.
    pub line: usize,
    /// Its last line, its subsections included.
    pub last_line: usize,
    /// Its bytes, its subsections included.
    pub range: Range<usize>,
    /// The end of its heading, where its text begins.
    pub text_start: usize,
    /// The start of its first subsection; its own end if it has none.
    pub own_end: usize,
    /// The section that contains it, by position in the outline.
    pub parent: Option<usize>,
    /// Identifies the section after it has moved.
    pub(crate) print: Print,
}

impl Section {
    /// A section with the end of its text; its lines, end and parent are set later.
    fn new(level: u8, title: String, range: Range<usize>, text_start: usize) -> Self {
        let own_end = range.end;
        let print = Print { text: 0, heading: 0 };
        Self { level, title, line: 0, last_line: 0, range, text_start, own_end, parent: None, print }
    }

    /// Its bytes without its heading and its subsections.
    pub(crate) fn text(&self) -> Range<usize> {
        self.text_start.min(self.own_end)..self.own_end
    }
}

/// The sections of one text, in order; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outline(Vec<Section>);

impl std::ops::Deref for Outline {
    type Target = [Section];
    fn deref(&self) -> &[Section] {
        &self.0
    }
}

impl Outline {
    /// The outline of Markdown.
    pub(crate) fn of(text: &str) -> Self {
        let start = if text.starts_with(BOM) { BOM.len() } else { 0 };
        Self::new(text, start, headings(text, start))
    }

    /// The outline of a text that is one section.
    pub(crate) fn without_headings(text: &str) -> Self {
        let start = if text.starts_with(BOM) { BOM.len() } else { 0 };
        Self::new(text, start, Vec::new())
    }

    fn new(text: &str, start: usize, mut outline: Vec<Section>) -> Self {
        let first = outline.first().map_or(text.len(), |section| section.range.start);
        if outline.is_empty() || !is_blank(&text[start..first]) {
            outline.insert(0, Section::new(0, String::new(), start..text.len(), start));
        }
        let mut end = start;
        let ends: Vec<_> = split_lines(&text[start..])
            .map(|line| {
                end += line.len();
                end
            })
            .collect();
        for section in &mut outline {
            section.line = ends.partition_point(|end| *end <= section.range.start) + 1;
        }
        close(&mut outline, ends.len());
        take_prints(&mut outline, text);
        Self(outline)
    }

    /// The position of the section that starts at `line`; the first one if `line` is `None`.
    pub(crate) fn place(&self, line: Option<usize>) -> Option<usize> {
        match line {
            None => Some(0),
            Some(line) => self.0.binary_search_by_key(&line, |section| section.line).ok(),
        }
    }

    /// The end of the text from a section through `count` headings.
    pub(crate) fn run_end(&self, place: usize, count: usize) -> usize {
        let next = self.0.get(place.saturating_add(count)).map(|next| next.range.start);
        next.unwrap_or(self.0[self.0.len() - 1].range.end)
    }
}

/// Sets the end and the parent of each section.
fn close(outline: &mut [Section], last_line: usize) {
    let mut open: Vec<usize> = Vec::new();
    for place in 0..outline.len() {
        let (level, start, line) = (outline[place].level, outline[place].range.start, outline[place].line);
        if let Some(before) = place.checked_sub(1) {
            outline[before].own_end = start;
        }
        // Text before the first heading ends there, whatever the heading's level.
        while let Some(last) = open.pop_if(|last| outline[*last].level >= level || outline[*last].level == 0)
        {
            outline[last].range.end = start;
            outline[last].last_line = line - 1;
        }
        outline[place].parent = open.last().copied();
        open.push(place);
    }
    for place in open {
        outline[place].last_line = last_line.max(outline[place].line);
    }
}

/// Sets the fingerprints.
fn take_prints(outline: &mut [Section], text: &str) {
    let mut headings: Vec<Hash> = Vec::with_capacity(outline.len());
    for section in outline {
        let above = section.parent.map_or(Hash::START, |parent| headings[parent]);
        let heading = above.with(&[b'/', section.level]).with(section.title.as_bytes());
        headings.push(heading);
        section.print = Print::new(Hash::of(&text.as_bytes()[section.range.clone()]), heading);
    }
}

/// The sections of all headings outside of lists and quotes.
fn headings(text: &str, start: usize) -> Vec<Section> {
    let body = start + front_matter(&text[start..]);
    let parsed = with_line_feeds(&text[body..]);
    let mut headings = Vec::new();
    let mut depth = 0_usize;
    let mut title = String::new();
    for (event, range) in Parser::new_ext(&parsed, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    title.clear();
                }
                depth += 1;
            }
            Event::End(TagEnd::Heading(level)) if depth == 1 => {
                depth = 0;
                let start = body + line_start(&parsed, range.start);
                // The heading's last line may be its underline.
                let text_start = body + line_end(&parsed, range.end);
                let title = std::mem::take(&mut title);
                headings.push(Section::new(level as u8, title, start..text.len(), text_start));
            }
            Event::End(_) => depth -= 1,
            Event::Text(text) | Event::Code(text) => title.push_str(&text),
            Event::SoftBreak | Event::HardBreak => title.push(' '),
            _ => {}
        }
    }
    headings
}

/// CommonMark treats a lone CR as a line end, the parser does not. The length stays the same, so positions do
/// too.
fn with_line_feeds(text: &str) -> Cow<'_, str> {
    if !text.contains('\r') {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().to_vec();
    for place in 0..bytes.len() {
        if bytes[place] == b'\r' && bytes.get(place + 1) != Some(&b'\n') {
            bytes[place] = b'\n';
        }
    }
    Cow::Owned(String::from_utf8(bytes).expect("one ASCII character for another"))
}

fn line_start(text: &str, place: usize) -> usize {
    text[..place].rfind(['\n', '\r']).map_or(0, |end| end + 1)
}

/// The end of the line that contains `place` or ends there, including the line break.
fn line_end(text: &str, place: usize) -> usize {
    match text[..place].chars().next_back() {
        Some('\n' | '\r') => place,
        _ => place + split_lines(&text[place..]).next().map_or(0, str::len),
    }
}

/// The length of YAML or TOML front matter: `---`, lines, `---` or `...`; or `+++`, lines, `+++`. A `---`
/// followed by blank lines may be a thematic break instead; it is front matter only if the next line sets a
/// key.
pub(crate) fn front_matter(text: &str) -> usize {
    let mut lines = split_lines(text);
    let Some(first) = lines.next() else { return 0 };
    let ends: &[&str] = match first.trim_end() {
        "---" => &["---", "..."],
        "+++" => &["+++"],
        _ => return 0,
    };
    let is_yaml = first.starts_with('-');
    let mut end = first.len();
    let (mut blank_before, mut is_started) = (false, false);
    for line in lines {
        if !is_started && is_blank(line) {
            blank_before = true;
        } else if !is_started {
            if blank_before && is_yaml && !sets_a_key(line) {
                return 0;
            }
            is_started = true;
        }
        end += line.len();
        if ends.contains(&line.trim_end()) {
            return end;
        }
    }
    0
}

/// The page's title from its front matter.
pub(crate) fn page_title(text: &str) -> Option<&str> {
    let text = text.strip_prefix(BOM).unwrap_or(text);
    let matter = &text[..front_matter(text)];
    let title = split_lines(matter).find_map(|line| {
        let value = line.strip_prefix("title")?.trim_start();
        Some(value.strip_prefix([':', '='])?.trim())
    })?;
    let bare = |quote: char| title.strip_prefix(quote)?.strip_suffix(quote);
    Some(bare('"').or_else(|| bare('\'')).unwrap_or(title)).filter(|title| !title.is_empty())
}

/// Whether a line has the form `key: …`.
fn sets_a_key(line: &str) -> bool {
    line.split_once(':').is_some_and(|(key, value)| {
        !key.is_empty()
            && key.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '"' | '\''))
            && value.chars().next().is_none_or(char::is_whitespace)
    })
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// The lines with their line breaks: LF, CRLF or a lone CR. There is no empty line after a final line break.
pub(crate) fn split_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.find(['\n', '\r']).map(|end| match &rest.as_bytes()[end..] {
            [b'\r', b'\n', ..] => end + 2,
            _ => end + 1,
        });
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// The maximum length of a shown title: a heading can be a whole paragraph.
const TITLE_CHARS: usize = 80;

/// A title as answers show it: one line, shortened.
pub(crate) fn shortened(title: &str) -> String {
    let line = title.split_whitespace().collect::<Vec<_>>().join(" ");
    match cut(&line, TITLE_CHARS) {
        (_, false) => line,
        (_, true) => format!("{}…", cut(&line, TITLE_CHARS - 1).0),
    }
}

/// At most `max_chars` characters, cut at a line end, and whether anything was cut. If that would drop more
/// than half of the text, the cut is after a word, or else at the limit.
pub(crate) fn cut_at_line(text: &str, max_chars: usize) -> (&str, bool) {
    let (kept, true) = cut(text, max_chars) else { return (text, false) };
    let is_half = |end: &usize| *end * 2 >= kept.len();
    // Do not split a CRLF.
    let whole =
        if text[kept.len()..].starts_with('\n') { kept.strip_suffix('\r').unwrap_or(kept) } else { kept };
    let line = whole.rfind(['\n', '\r']).map(|end| end + 1).filter(is_half);
    let word = || {
        let (start, space) = whole.char_indices().rfind(|(_, char)| char.is_whitespace())?;
        Some(start + space.len_utf8()).filter(is_half)
    };
    let end = line.or_else(word).unwrap_or(whole.len());
    (&text[..if end == 0 { kept.len() } else { end }], true)
}

/// The first `max_chars` characters, and whether anything was cut.
pub(crate) fn cut(text: &str, max_chars: usize) -> (&str, bool) {
    if text.len() <= max_chars {
        return (text, false);
    }
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each section by its line, level, title and exact bytes.
    #[track_caller]
    fn check(text: &str, want: &[(usize, u8, &str, &str)]) {
        let outline = Outline::of(text);
        let shown = outline.iter().map(|one| (one.line, one.level, &*one.title, &text[one.range.clone()]));
        assert_eq!(shown.collect::<Vec<_>>(), want, "{text:?}");
    }

    #[test]
    fn a_section_holds_all_its_descendants() {
        check(
            "# A\na\n## B\nb\n### C\nc\n## D\nd\n# E\n",
            &[
                (1, 1, "A", "# A\na\n## B\nb\n### C\nc\n## D\nd\n"),
                (3, 2, "B", "## B\nb\n### C\nc\n"),
                (5, 3, "C", "### C\nc\n"),
                (7, 2, "D", "## D\nd\n"),
                (9, 1, "E", "# E\n"),
            ],
        );
    }

    #[test]
    fn levels_may_be_skipped_and_start_low() {
        check("### C\n# A\n", &[(1, 3, "C", "### C\n"), (2, 1, "A", "# A\n")]);
        check(
            "# A\n#### D\n## B\n",
            &[(1, 1, "A", "# A\n#### D\n## B\n"), (2, 4, "D", "#### D\n"), (3, 2, "B", "## B\n")],
        );
    }

    #[test]
    fn a_fence_hides_hashes() {
        check(
            "# A\n```\n# no\n```\n~~~~md\n# no\n~~~\n# no\n~~~~\n# B",
            &[(1, 1, "A", "# A\n```\n# no\n```\n~~~~md\n# no\n~~~\n# no\n~~~~\n"), (10, 1, "B", "# B")],
        );
        // A fence that is not closed runs to the end.
        check("# A\n```\n# no\n", &[(1, 1, "A", "# A\n```\n# no\n")]);
    }

    #[test]
    fn setext_headings_are_headings() {
        check(
            "A\n=\na\n\nB\nB\n---\nb\n",
            &[(1, 1, "A", "A\n=\na\n\nB\nB\n---\nb\n"), (5, 2, "B B", "B\nB\n---\nb\n")],
        );
        // A thematic break is not a heading.
        check("# A\n\n---\n\n***\n", &[(1, 1, "A", "# A\n\n---\n\n***\n")]);
    }

    #[test]
    fn indented_code_hides_hashes_and_three_spaces_do_not() {
        check("# A\n\n    # no\n\n   # B\n", &[(1, 1, "A", "# A\n\n    # no\n\n"), (5, 1, "B", "   # B\n")]);
        check("# A\n\n\t# no\n", &[(1, 1, "A", "# A\n\n\t# no\n")]);
    }

    #[test]
    fn html_hides_hashes() {
        check(
            "# A\n<!--\n# no\n\n# no\n-->\n# B\n",
            &[(1, 1, "A", "# A\n<!--\n# no\n\n# no\n-->\n"), (7, 1, "B", "# B\n")],
        );
        check("<div>\n# no\n\n# B\n", &[(1, 0, "", "<div>\n# no\n\n"), (4, 1, "B", "# B\n")]);
        check(
            "<pre>\n\n# no\n\n</pre>\n# B\n",
            &[(1, 0, "", "<pre>\n\n# no\n\n</pre>\n"), (6, 1, "B", "# B\n")],
        );
    }

    #[test]
    fn headings_in_lists_and_quotes_make_no_section() {
        check(
            "# A\n> # no\n\n- # no\n- b\n  ## no\n\n# B\n",
            &[(1, 1, "A", "# A\n> # no\n\n- # no\n- b\n  ## no\n\n"), (8, 1, "B", "# B\n")],
        );
    }

    #[test]
    fn hashes_without_space_or_too_many_are_text() {
        check(
            "#A\n####### no\n\\# no\n# \n#\tB #\n",
            &[(1, 0, "", "#A\n####### no\n\\# no\n"), (4, 1, "", "# \n"), (5, 1, "B", "#\tB #\n")],
        );
    }

    #[test]
    fn a_title_is_the_headings_text() {
        check(
            "# `a` *b* [c](d) &amp; <i>e</i>\\! #\n",
            &[(1, 1, "a b c & e!", "# `a` *b* [c](d) &amp; <i>e</i>\\! #\n")],
        );
    }

    #[test]
    fn the_byte_order_mark_is_part_of_no_section() {
        check("\u{feff}# A\na\n", &[(1, 1, "A", "# A\na\n")]);
        check("\u{feff}text\n# A\n", &[(1, 0, "", "text\n"), (2, 1, "A", "# A\n")]);
        check("\u{feff}", &[(1, 0, "", "")]);
    }

    #[test]
    fn line_ends_may_be_crlf_or_a_lone_cr() {
        check(
            "# A\r\na\r\n## B\r\nb\r\n",
            &[(1, 1, "A", "# A\r\na\r\n## B\r\nb\r\n"), (3, 2, "B", "## B\r\nb\r\n")],
        );
        check("# A\ra\r## B\rb\r", &[(1, 1, "A", "# A\ra\r## B\rb\r"), (3, 2, "B", "## B\rb\r")]);
        check("日\r# A\r\n# B\n", &[(1, 0, "", "日\r"), (2, 1, "A", "# A\r\n"), (3, 1, "B", "# B\n")]);
        check("A\r===\rB\r\n---\r\n", &[(1, 1, "A", "A\r===\rB\r\n---\r\n"), (3, 2, "B", "B\r\n---\r\n")]);
        check("```\r# no\r```\r# A\r", &[(1, 0, "", "```\r# no\r```\r"), (4, 1, "A", "# A\r")]);
    }

    #[test]
    fn other_separators_end_no_line() {
        check(
            "# A\u{2028}# no\u{85}# no\u{b}# no\u{c}# no\n# B\n",
            &[
                (
                    1,
                    1,
                    "A\u{2028}# no\u{85}# no\u{b}# no\u{c}# no",
                    "# A\u{2028}# no\u{85}# no\u{b}# no\u{c}# no\n",
                ),
                (2, 1, "B", "# B\n"),
            ],
        );
    }

    #[test]
    fn a_text_without_headings_is_one_section_at_line_1() {
        check("just\ntext", &[(1, 0, "", "just\ntext")]);
        check("", &[(1, 0, "", "")]);
        check("\n \n", &[(1, 0, "", "\n \n")]);
    }

    #[test]
    fn what_stands_before_the_first_heading_is_a_preamble() {
        check(
            "hello\n\n## B\nb\n# A\n",
            &[(1, 0, "", "hello\n\n"), (3, 2, "B", "## B\nb\n"), (5, 1, "A", "# A\n")],
        );
        // Blank lines alone are not a section.
        check("\n \t\r\n# A\n", &[(3, 1, "A", "# A\n")]);
    }

    #[test]
    fn front_matter_belongs_to_the_preamble() {
        check(
            "---\ntitle: x\n# comment\n---\n# A\n",
            &[(1, 0, "", "---\ntitle: x\n# comment\n---\n"), (5, 1, "A", "# A\n")],
        );
        check(
            "---\r\na: b\r\n...\r\nA\r\n=\r\n",
            &[(1, 0, "", "---\r\na: b\r\n...\r\n"), (4, 1, "A", "A\r\n=\r\n")],
        );
        check("---\n\ntitle: x\n---\n# A\n", &[(1, 0, "", "---\n\ntitle: x\n---\n"), (5, 1, "A", "# A\n")]);
        // A thematic break at the start is not front matter, nor is front matter without an end.
        check("---\n\n# A\n\n---\n", &[(1, 0, "", "---\n\n"), (3, 1, "A", "# A\n\n---\n")]);
        check("---\n# A\n", &[(1, 0, "", "---\n"), (2, 1, "A", "# A\n")]);
        check(
            "# A\n\n---\na: b\n---\n",
            &[(1, 1, "A", "# A\n\n---\na: b\n---\n"), (4, 2, "a: b", "a: b\n---\n")],
        );
    }

    #[test]
    fn lines_and_parents_are_right() {
        let outline = Outline::of("hi\n# A\n## B\nb\n## C\n# D\nd");
        let got: Vec<_> = outline.iter().map(|one| (one.line, one.last_line, one.parent)).collect();
        assert_eq!(got, [(1, 1, None), (2, 5, None), (3, 4, Some(1)), (5, 5, Some(1)), (6, 7, None)]);
        assert_eq!(
            (outline.place(None), outline.place(Some(5)), outline.place(Some(4))),
            (Some(0), Some(3), None)
        );
        assert_eq!(Outline::of("")[0].last_line, 1);
    }

    #[test]
    fn a_run_of_sections_has_each_line_once() {
        let text = "# A\na\n## B\nb\n## C\nc\n# D\n";
        let outline = Outline::of(text);
        let run = |place: usize, count| &text[outline[place].range.start..outline.run_end(place, count)];
        assert_eq!(run(0, 1), "# A\na\n");
        assert_eq!(run(0, 3), "# A\na\n## B\nb\n## C\nc\n");
        assert_eq!(run(1, 3), "## B\nb\n## C\nc\n# D\n");
        assert_eq!(run(1, usize::MAX), "## B\nb\n## C\nc\n# D\n");
    }

    #[test]
    fn a_text_begins_after_its_heading() {
        let text = "# A\na\n\nB\nB\n---\nb\n## C\rc\r# D";
        let outline = Outline::of(text);
        let texts: Vec<_> = outline.iter().map(|one| &text[one.text()]).collect();
        assert_eq!(texts, ["a\n\n", "b\n", "c\r", ""]);
        assert_eq!(&"hi\n# A"[Outline::of("hi\n# A")[0].text()], "hi\n");
    }

    #[test]
    fn a_title_is_shown_up_to_a_length() {
        assert_eq!(shortened("日本"), "日本");
        assert_eq!(shortened("one\ntwo\t three\r\n"), "one two three");
        assert_eq!(shortened(&"日".repeat(80)), "日".repeat(80));
        assert_eq!(shortened(&"日".repeat(81)), "日".repeat(79) + "…");
    }

    #[test]
    fn a_cut_is_at_the_end_of_a_line_or_after_a_word() {
        for (text, max_chars, want) in [
            ("one\ntwo\nthree\n", 9, "one\ntwo\n"),
            ("one\ntwo\n", 7, "one\n"),
            ("one\ntwo\n", 8, "one\ntwo\n"),
            ("one\r\ntwo\r\n", 9, "one\r\n"),
            ("one\rtwo\rthree", 9, "one\rtwo\r"),
            ("a\nlong line of words", 12, "a\nlong line "),
            ("a\nxxxxxxxxxxxxxxxxxxx", 12, "a\nxxxxxxxxxx"),
            ("日本\n日本", 4, "日本\n"),
            ("日本語", 1, "日"),
            ("\r\n\r\n", 1, "\r"),
        ] {
            let (kept, is_cut) = cut_at_line(text, max_chars);
            assert_eq!((kept, is_cut), (want, want.len() < text.len()), "{text:?} {max_chars}");
        }
    }

    #[test]
    fn toml_is_front_matter_too() {
        check(
            "+++\ntitle = \"x\"\n# comment\n+++\n# A\n",
            &[(1, 0, "", "+++\ntitle = \"x\"\n# comment\n+++\n"), (5, 1, "A", "# A\n")],
        );
        check("+++\n\n[extra]\n+++\n# A\n", &[(1, 0, "", "+++\n\n[extra]\n+++\n"), (5, 1, "A", "# A\n")]);
        // The closing marker must match the opening one, and must exist.
        check("+++\na = 1\n---\n# A\n", &[(1, 2, "+++ a = 1", "+++\na = 1\n---\n"), (4, 1, "A", "# A\n")]);
    }

    #[test]
    fn front_matter_names_the_page() {
        for (text, want) in [
            ("---\ntitle: One page\n---\n# A\n", Some("One page")),
            ("\u{feff}---\r\nslug: a\r\ntitle: \"Two: pages\"\r\n---\r\n", Some("Two: pages")),
            ("+++\ntitle = 'Three'\n+++\n", Some("Three")),
            ("---\ntitle:\nsubtitle: x\n---\n", None),
            ("title: no\n", None),
            ("# title: no\n", None),
        ] {
            assert_eq!(page_title(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_print_is_of_the_text_and_of_the_titles_above() {
        let prints = |text: &str| Outline::of(text).iter().map(|one| one.print).collect::<Vec<_>>();
        let (before, after) = (prints("# A\n## B\nb\n## C\nc\n"), prints("# A\n## C\nc\n## B\nb\n"));
        assert_eq!((before[1], before[2]), (after[2], after[1]), "moved");
        assert_eq!(before[0].heading, after[0].heading);
        assert_ne!(before[0].text, after[0].text);
        let changed = prints("# A\n## B\nb!\n## C\nc\n");
        assert_eq!((before[1].heading, before[2]), (changed[1].heading, changed[2]));
        assert_ne!((before[0].text, before[1].text), (changed[0].text, changed[1].text));
        assert_ne!(before[1].heading, prints("# X\n## B\nb\n")[1].heading);
        assert_eq!(prints("").len(), 1);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("日本語", 2), ("日本", true));
        assert_eq!(cut("日本語", 3), ("日本語", false));
        assert_eq!(cut("e\u{301}x", 1), ("e", true));
        assert_eq!(cut("", 1), ("", false));
    }

    #[test]
    fn lines_are_split_with_their_ends() {
        let lines: Vec<_> = split_lines("a\nb\r\nc\r\n\rd").collect();
        assert_eq!(lines, ["a\n", "b\r\n", "c\r\n", "\r", "d"]);
        assert_eq!(split_lines("").count(), 0);
    }

    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "# ", "## ", "### ", "#", "a", "日", " ", "\t", "    ", "\n", "\n\n", "\r\n", "\r", "---", "===",
            "```", "~~~", "> ", "- ", "1. ", "<!--", "-->", "<div>", "</div>", "\u{feff}", "\u{2028}", "`",
            "*", "[a]", "(b)", "[a]: b", "\\", "&amp;", "...", "\0", "|",
        ])
    }

    proptest! {
        #[test]
        fn top_level_sections_tile_the_text(pieces in prop::collection::vec(piece(), 0..60)) {
            let text = pieces.concat();
            let outline = Outline::of(&text);
            let mut at = outline[0].range.start;
            let before = text[..at].strip_prefix(BOM).unwrap_or(&text[..at]);
            prop_assert!(is_blank(before));
            for top in outline.iter().filter(|section| section.parent.is_none()) {
                prop_assert_eq!(top.range.start, at);
                at = top.range.end;
            }
            prop_assert_eq!(at, text.len());
            // The sections without their subsections cover the text too, and every section starts at a line
            // start.
            let mut at = outline[0].range.start;
            for section in outline.iter() {
                prop_assert_eq!(section.range.start, at);
                at = section.own_end;
                let start = section.range.start;
                let lines = split_lines(text[..start].strip_prefix(BOM).unwrap_or(&text[..start])).count();
                prop_assert_eq!(section.line, lines + 1);
            }
            prop_assert_eq!(at, text.len());
        }
    }
}
