//! Links in a text that is copied elsewhere: counts those that would break, and adjusts them to their
//! old targets.
//!
//! A CommonMark parser finds the links and their destinations; only the bytes of destinations are changed. A
//! reference link whose definition is changed or not copied gets an inline destination: otherwise a
//! definition of the same name in the target file would apply to it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::section::{Outline, front_matter, with_line_feeds};

/// Longer destinations or titles are not made inline: each use would repeat them.
const MAX_CARRIED_BYTES: usize = 2000;

/// What to do with a destination.
pub(crate) enum Fate {
    /// Keep it: it is valid from anywhere.
    Stay,
    /// Leave it: it will be broken, and cannot be adjusted.
    Lose,
    /// Replace it by this one, which leads to the same target.
    Become(String),
}

/// What a link points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Link,
    Picture,
}

/// A change of a text: these bytes are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) new: String,
}

/// Applies edits that do not overlap.
pub(crate) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.at.start);
    let mut new = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        new.push_str(&text[at..edit.at.start]);
        new.push_str(&edit.new);
        at = edit.at.end;
    }
    new.push_str(&text[at..]);
    new
}

/// A text with its links adjusted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    pub(crate) text: String,
    /// How many links are broken.
    pub(crate) left: usize,
}

/// The definitions of the source file, which a text may use.
pub(crate) struct Definitions<'a> {
    body: &'a str,
    links: Parser<'a>,
    /// The prefix for footnote labels in the copy.
    stem: String,
}

impl<'a> Definitions<'a> {
    pub(crate) fn of(whole: &'a str, file_name: &str) -> Self {
        let body = &whole[front_matter(whole)..];
        let stem = file_name.rsplit_once('.').map_or(file_name, |(stem, _)| stem);
        let plain = |char: char| if char.is_alphanumeric() { char } else { '-' };
        Self { body, links: Parser::new_ext(body, Options::empty()), stem: stem.chars().map(plain).collect() }
    }

    fn link(&self, label: &str) -> Option<(String, String)> {
        let found = self.links.reference_definitions().get(label)?;
        let title = found.title.as_deref().unwrap_or_default();
        (found.dest.len() + title.len() <= MAX_CARRIED_BYTES)
            .then(|| (found.dest.to_string(), title.to_owned()))
    }

    /// The definitions of these footnotes, unchanged.
    fn footnotes(&self, labels: &BTreeSet<String>) -> Vec<(String, &'a str)> {
        if labels.is_empty() {
            return Vec::new();
        }
        let events = Parser::new_ext(self.body, Options::ENABLE_FOOTNOTES).into_offset_iter();
        let found = events.filter_map(|(event, range)| match event {
            Event::Start(Tag::FootnoteDefinition(label)) if labels.contains(&*label) => {
                Some((label.to_string(), self.body[range].trim_end()))
            }
            _ => None,
        });
        found.filter(|(_, text)| text.len() <= MAX_CARRIED_BYTES).collect()
    }
}

/// Whether a text may use definitions that it does not contain.
pub(crate) fn needs_definitions(text: &str) -> bool {
    let parsed = with_line_feeds(text);
    let needs = RefCell::new(false);
    let mut note = |_: BrokenLink<'_>| -> Option<(CowStr<'_>, CowStr<'_>)> {
        *needs.borrow_mut() = true;
        None
    };
    let options = Options::ENABLE_OLD_FOOTNOTES;
    let parser = Parser::new_with_broken_link_callback(&parsed, options, Some(&mut note));
    let has_footnote = parser.into_iter().any(|event| matches!(event, Event::FootnoteReference(_)));
    has_footnote || needs.into_inner()
}

/// Applies `fate` to each destination. The text may grow by `room` bytes; a change that does not fit is not
/// made.
///
/// With `carry`, the `definitions` that the text uses are copied too; without it, they are left out.
pub(crate) fn relink(
    text: &str,
    definitions: Option<&Definitions<'_>>,
    carry: bool,
    mut room: usize,
    mut fate: impl FnMut(Role, &str) -> Fate,
) -> Linked {
    let missing = missing_footnotes(text);
    let footnotes = definitions.map_or(Vec::new(), |definitions| definitions.footnotes(&missing));
    let mut left = 0;
    let mut text = text.to_owned();
    let mut carried = BTreeSet::new();
    for (label, definition) in footnotes {
        let end = if text.ends_with(['\n', '\r']) { "" } else { "\n" };
        let added = format!("{end}\n{definition}\n");
        if carry && added.len() <= room {
            room -= added.len();
            text.push_str(&added);
            carried.insert(label);
        } else {
            left += 1;
        }
    }
    let stem = definitions.map_or("", |definitions| definitions.stem.as_str());
    let mut edits = Vec::new();
    for found in finds(&text, definitions) {
        let edit = match &found {
            Find::Footnote { at, label } if carried.contains(label) => {
                Some((at.clone(), format!("[^{stem}-{label}]")))
            }
            Find::Footnote { .. } => None,
            Find::Destination { role, dest, spot } => {
                let is_outside = matches!(spot, Spot::Use { is_outside: true, .. });
                let edit = match fate(*role, dest) {
                    Fate::Stay if !is_outside => continue,
                    Fate::Stay if carry => spot.edit(dest),
                    Fate::Become(new) => spot.edit(&new),
                    Fate::Stay | Fate::Lose => None,
                };
                left += usize::from(edit.is_none());
                edit
            }
        };
        if let Some((at, new)) = edit {
            if new.len() > room + at.len() {
                left += 1;
            } else {
                room = room + at.len() - new.len();
                edits.push(Edit { at, new });
            }
        }
    }
    Linked { text: edited(&text, edits), left }
}

/// A link or footnote in a text.
enum Find {
    Destination { role: Role, dest: String, spot: Spot },
    Footnote { at: Range<usize>, label: String },
}

/// Where a destination is, or has to be inserted.
enum Spot {
    /// The bytes of the destination.
    Inline(Range<usize>),
    /// An attribute's value.
    Attribute(Range<usize>),
    /// A reference link: the bytes to replace by an inline destination.
    Use { at: Range<usize>, title: String, is_outside: bool },
    /// Its position could not be determined.
    Unknown,
}

impl Spot {
    fn edit(&self, dest: &str) -> Option<(Range<usize>, String)> {
        let encoded = encode(dest, &[]);
        match self {
            Self::Inline(at) => Some((at.clone(), encoded)),
            Self::Attribute(at) => Some((at.clone(), encoded.replace('&', "&amp;"))),
            Self::Use { at, title, .. } if title.is_empty() => Some((at.clone(), format!("({encoded})"))),
            Self::Use { at, title, .. } => {
                let title = title.replace('\\', "\\\\").replace('"', "\\\"");
                Some((at.clone(), format!("({encoded} \"{title}\")")))
            }
            Self::Unknown => None,
        }
    }
}

fn missing_footnotes(text: &str) -> BTreeSet<String> {
    let parsed = with_line_feeds(text);
    let (mut used, mut defined) = (BTreeSet::new(), BTreeSet::new());
    for event in Parser::new_ext(&parsed, Options::ENABLE_OLD_FOOTNOTES) {
        match event {
            Event::FootnoteReference(label) => _ = used.insert(label.to_string()),
            Event::Start(Tag::FootnoteDefinition(label)) => _ = defined.insert(label.to_string()),
            _ => {}
        }
    }
    used.difference(&defined).cloned().collect()
}

/// A link whose end has not been reached.
struct Open {
    role: Role,
    link_type: LinkType,
    dest: String,
    title: String,
    start: usize,
    /// The end of the last item inside it.
    inner_end: usize,
}

fn finds(text: &str, definitions: Option<&Definitions<'_>>) -> Vec<Find> {
    let body = front_matter(text);
    let parsed = with_line_feeds(&text[body..]);
    let mut look_up = |broken: BrokenLink<'_>| -> Option<(CowStr<'_>, CowStr<'_>)> {
        let (dest, title) = definitions?.link(&broken.reference)?;
        Some((dest.into(), title.into()))
    };
    let parser =
        Parser::new_with_broken_link_callback(&parsed, Options::ENABLE_OLD_FOOTNOTES, Some(&mut look_up));
    let mut finds = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(
                ref tag @ (Tag::Link { link_type, ref dest_url, ref title, .. }
                | Tag::Image { link_type, ref dest_url, ref title, .. }),
            ) => {
                let (role, mark) =
                    if matches!(tag, Tag::Image { .. }) { (Role::Picture, 2) } else { (Role::Link, 1) };
                open.push(Open {
                    role,
                    link_type,
                    dest: dest_url.to_string(),
                    title: title.to_string(),
                    start: range.start,
                    inner_end: range.start + mark,
                });
                continue;
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if let Some(link) = open.pop() {
                    finds.extend(found(&parsed, body, link, range.end));
                }
            }
            Event::Html(_) | Event::InlineHtml(_) => finds.extend(attributes(&parsed, body, range.clone())),
            Event::FootnoteReference(ref label) => {
                let at = body + range.start..body + range.end;
                finds.push(Find::Footnote { at, label: label.to_string() });
            }
            Event::Start(Tag::FootnoteDefinition(ref label)) => {
                let at = body + range.start..body + range.start + label.len() + "[^]".len();
                if text[at.clone()].starts_with("[^") {
                    finds.push(Find::Footnote { at, label: label.to_string() });
                }
            }
            _ => {}
        }
        if let Some(link) = open.last_mut() {
            link.inner_end = link.inner_end.max(range.end);
        }
    }
    finds
}

fn found(parsed: &str, body: usize, link: Open, end: usize) -> Option<Find> {
    let Open { role, link_type, dest, title, inner_end, start } = link;
    let tail = |mark: &str| {
        let from = inner_end.clamp(start, end);
        parsed[from..end].find(mark).map(|at| from + at)
    };
    let is_outside = matches!(
        link_type,
        LinkType::ReferenceUnknown | LinkType::CollapsedUnknown | LinkType::ShortcutUnknown
    );
    let in_place = |from: usize, to: usize| Spot::Use { at: body + from..body + to, title, is_outside };
    let spot = match link_type {
        LinkType::Inline => tail("](")
            .and_then(|at| destination(parsed, at + 2, end, &dest))
            .map_or(Spot::Unknown, |range| Spot::Inline(body + range.start..body + range.end)),
        LinkType::Reference | LinkType::ReferenceUnknown => {
            tail("][").map_or(Spot::Unknown, |at| in_place(at + 1, end))
        }
        LinkType::Collapsed | LinkType::CollapsedUnknown => {
            // The parser's range may or may not include the empty label.
            let close = tail("][]").map_or(end, |at| at + 1);
            if parsed[close..].starts_with("[]") { in_place(close, close + 2) } else { Spot::Unknown }
        }
        LinkType::Shortcut | LinkType::ShortcutUnknown => in_place(end, end),
        LinkType::Autolink | LinkType::Email | LinkType::WikiLink { .. } => return None,
    };
    Some(Find::Destination { role, dest, spot })
}

/// The position of an inline link's destination, which starts at `from` or after spaces.
fn destination(text: &str, from: usize, end: usize, dest: &str) -> Option<Range<usize>> {
    let rest = text.get(from..end)?;
    let start = from + rest.len() - rest.trim_start().len();
    let rest = &text[start..end];
    let (length, bare) = if let Some(inner) = rest.strip_prefix('<') {
        let close = inner.find('>')?;
        (close + 2, &inner[..close])
    } else {
        let (mut depth, mut length, mut is_escaped) = (0_usize, 0, false);
        for char in rest.chars() {
            match char {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '(' => depth += 1,
                ')' if depth == 0 => break,
                ')' => depth -= 1,
                char if char.is_whitespace() => break,
                _ => {}
            }
            length += char.len_utf8();
        }
        (length, &rest[..length])
    };
    // If it has escapes or entities, the parser's decoded text cannot be compared.
    (bare == dest || bare.contains(['\\', '&'])).then(|| start..start + length)
}

/// The values of `src` and `href` attributes in HTML.
fn attributes(text: &str, body: usize, range: Range<usize>) -> Vec<Find> {
    let html = &text[range.clone()];
    let mut finds = Vec::new();
    for (name, role) in [("src", Role::Picture), ("href", Role::Link)] {
        for (at, _) in html.match_indices(name) {
            let is_name = html[..at].ends_with(|char: char| char.is_ascii_whitespace());
            let rest = &html[at + name.len()..];
            let Some(quote @ ('"' | '\'')) = rest.strip_prefix('=').and_then(|rest| rest.chars().next())
            else {
                continue;
            };
            let start = at + name.len() + 2;
            if let Some(length) = html[start..].find(quote).filter(|_| is_name) {
                let value = html[start..start + length].replace("&amp;", "&");
                let at = body + range.start + start;
                finds.push(Find::Destination { role, dest: value, spot: Spot::Attribute(at..at + length) });
            }
        }
    }
    finds
}

/// The target of a link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// The web, a mail address, the root of a site: valid from anywhere.
    Anywhere,
    /// A heading of the same text.
    Here(&'a str),
    /// A file, and the part after its path.
    File(&'a str, &'a str),
}

impl<'a> Place<'a> {
    pub(crate) fn of(dest: &'a str) -> Self {
        let is_scheme = |name: &str| {
            name.len() > 1
                && name.starts_with(|char: char| char.is_ascii_alphabetic())
                && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '+' | '.' | '-'))
        };
        if dest.is_empty()
            || dest.starts_with('/')
            || dest.split_once(':').is_some_and(|(name, _)| is_scheme(name))
        {
            return Self::Anywhere;
        }
        if let Some(heading) = dest.strip_prefix('#') {
            return Self::Here(heading);
        }
        let end = dest.find(['?', '#']).unwrap_or(dest.len());
        Self::File(&dest[..end], &dest[end..])
    }
}

/// The anchors that links within a text can use.
pub(crate) struct Anchors<'a> {
    text: &'a str,
    headings: HashSet<String>,
}

impl<'a> Anchors<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let outline = Outline::of(text);
        let headings = outline.iter().filter(|section| section.level > 0).map(|section| slug(&section.title));
        Self { text, headings: headings.collect() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headings.contains(&slug(name))
            || ["id", "name"].iter().any(|attribute| self.text.contains(&format!("{attribute}=\"{name}\"")))
    }
}

/// A heading's anchor, as most sites generate it.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Resolves a path relative to the folder `from` of the same tree; `None` if it leaves the tree, or if a name cannot be
/// read.
pub(crate) fn resolve(from: &[&str], path: &str) -> Option<Vec<String>> {
    let mut names: Vec<_> = from.iter().map(|name| (*name).to_owned()).collect();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => _ = names.pop()?,
            name => names.push(decode(name).filter(|name| !name.contains('/') && name != "..")?),
        }
    }
    Some(names)
}

/// A path for a link: characters that would end it or have a meaning there are percent-encoded.
pub(crate) fn encode_path(names: &[String]) -> String {
    let encoded: Vec<_> = names.iter().map(|name| encode(name, &['%', '#', '?'])).collect();
    encoded.join("/")
}

fn encode(text: &str, more: &[char]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for char in text.chars() {
        let is_special = char.is_whitespace()
            || char.is_control()
            || matches!(char, '(' | ')' | '<' | '>' | '"' | '\'' | '\\' | '[' | ']' | '`' | '*' | '|')
            || more.contains(&char);
        if is_special {
            let mut bytes = [0; 4];
            char.encode_utf8(&mut bytes).bytes().for_each(|byte| encoded.push_str(&format!("%{byte:02X}")));
        } else {
            encoded.push(char);
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Changes every link to a file into `X/…`.
    fn moved(text: &str, whole: &str, carry: bool) -> (String, usize) {
        let definitions = Definitions::of(whole, "ch 1.md");
        let linked = relink(text, Some(&definitions), carry, 10_000, |_, dest| match Place::of(dest) {
            Place::File(path, rest) if carry => Fate::Become(format!("X/{path}{rest}")),
            Place::File(..) => Fate::Lose,
            _ => Fate::Stay,
        });
        (linked.text, linked.left)
    }

    #[track_caller]
    fn check(text: &str, outside: &str, want: &str, left: usize) {
        let whole = format!("{text}\n\n{outside}\n");
        assert_eq!(moved(text, &whole, true), (want.to_owned(), 0), "{text}");
        // Without `carry` the text is unchanged and the broken links are counted.
        assert_eq!(moved(text, &whole, false), (text.to_owned(), left), "{text}");
    }

    #[test]
    fn only_destinations_change() {
        check("[a](b.md) *[`c`](d.md#e \"t\")*", "", "[a](X/b.md) *[`c`](X/d.md#e \"t\")*", 2);
        check("![p](p.png) [![i](i.png)](l.md)", "", "![p](X/p.png) [![i](X/i.png)](X/l.md)", 3);
        check("[a]( <b c.md> 't')", "", "[a]( X/b%20c.md 't')", 1);
        check("[a](b(c).md)", "", "[a](X/b%28c%29.md)", 1);
        check("[x](a\\)b.md)", "", "[x](X/a%29b.md)", 1);
        check(
            "[]()[a](https://a.b/c.md)[m](mailto:a@b)<https://a.b>",
            "",
            "[]()[a](https://a.b/c.md)[m](mailto:a@b)<https://a.b>",
            0,
        );
        check("[a](/site.md) [b](#here)", "", "[a](/site.md) [b](#here)", 0);
        check(
            "`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n```\n",
            "",
            "`[a](b.md)`\n\n    [a](b.md)\n\n```\n[a](b.md)\n```\n",
            0,
        );
        check(
            "<img alt=x src=\"p.png\"> <a href='b.md?x&amp;y'>",
            "",
            "<img alt=x src=\"X/p.png\"> <a href='X/b.md?x&amp;y'>",
            2,
        );
        check("日本 [語](本.md)\r\n[a](b.md)\r", "", "日本 [語](X/本.md)\r\n[a](X/b.md)\r", 2);
        check(
            "---\ntitle: \"[a](b.md)\"\n---\n[a](b.md)",
            "",
            "---\ntitle: \"[a](b.md)\"\n---\n[a](X/b.md)",
            1,
        );
    }

    #[test]
    fn a_definition_that_stays_behind_becomes_inline() {
        let outside = "[one]: https://a.b/c \"The \\\"one\\\"\"\n[two]: <d e.md>\n[三]: f.md";
        check(
            "[one] [t][one] [One][] [no]",
            outside,
            "[one](https://a.b/c \"The \\\"one\\\"\") [t](https://a.b/c \"The \\\"one\\\"\") [One](https://a.b/c \"The \\\"one\\\"\") [no]",
            3,
        );
        check("![*a* b][two] [三]", outside, "![*a* b](X/d%20e.md) [三](X/f.md)", 2);
        // A definition that is copied too stays in use, unless it has to change.
        let inside = "[one] [two]\n\n[one]: https://a.b\n[two]: c.md\n";
        check(inside, "", "[one] [two](X/c.md)\n\n[one]: https://a.b\n[two]: c.md\n", 1);
        let long = format!("[one]: https://a.b/{}", "x".repeat(3000));
        assert_eq!(moved("[one]", &format!("[one]\n\n{long}"), true), ("[one]".to_owned(), 0));
    }

    #[test]
    fn a_footnote_comes_along_under_a_name_of_its_own() {
        let outside = "[^1]: See [x](y.md),\n    and more.\n\n[^2]: Other.\n";
        check("Text[^1].", outside, "Text[^ch-1-1].\n\n[^ch-1-1]: See [x](X/y.md),\n    and more.\n", 1);
        check("Text[^1].\n\n[^1]: Here.\n", "", "Text[^1].\n\n[^1]: Here.\n", 0);
        check("Text[^3].", outside, "Text[^3].", 0);
    }

    #[test]
    fn what_grows_too_much_is_left() {
        let text = "[a] ".repeat(50);
        let whole = format!("{text}\n\n[a]: https://example.com/{}", "x".repeat(1000));
        let definitions = Definitions::of(&whole, "a.md");
        let linked = relink(&text, Some(&definitions), true, 5000, |_, _| Fate::Stay);
        assert_eq!((linked.left, linked.text.len() <= text.len() + 5000), (46, true));
    }

    #[test]
    fn a_destination_is_a_place() {
        for (dest, want) in [
            ("", Place::Anywhere),
            ("https://a.b", Place::Anywhere),
            ("//a.b", Place::Anywhere),
            ("mailto:a@b", Place::Anywhere),
            ("/a.md", Place::Anywhere),
            ("#a", Place::Here("a")),
            ("a.md", Place::File("a.md", "")),
            ("../a.md?x#y", Place::File("../a.md", "?x#y")),
            ("a:b/c.md", Place::File("a:b/c.md", "")),
        ] {
            assert_eq!(Place::of(dest), want, "{dest}");
        }
        for (path, want) in [
            ("c.md", Some("m/b/c.md")),
            ("./../c.md", Some("m/c.md")),
            ("../../n/c%20d.md", Some("n/c d.md")),
            ("../../../c.md", None),
            ("%2e%2e/c.md", None),
            ("a%2Fb.md", None),
            ("a%FF.md", None),
            ("100%.md", Some("m/b/100%.md")),
        ] {
            assert_eq!(resolve(&["m", "b"], path).map(|names| names.join("/")).as_deref(), want, "{path}");
        }
        let anchors = Anchors::of("# The `Big` one: 日本\n\n<a id=\"x_1\"></a>\n");
        for (name, want) in [("the-big-one-日本", true), ("x_1", true), ("the", false)] {
            assert_eq!(anchors.has(name), want, "{name}");
        }
    }

    proptest! {
        /// For any text, only destinations change, so a text without links stays the same.
        #[test]
        fn a_text_whose_links_stay_is_the_same(text in "(\\PC|[\\[\\]()<>!^:#\n\r\"' *`\\\\]){0,80}") {
            let definitions = Definitions::of(&text, "a.md");
            let linked = relink(&text, Some(&definitions), true, 1000, |_, _| Fate::Stay);
            prop_assert_eq!(linked.text, text.clone());
            let lost = relink(&text, Some(&definitions), false, 1000, |_, _| Fate::Lose);
            prop_assert_eq!(lost.text, text.clone());
            // This must not panic either.
            relink(&text, None, true, 1000, |_, dest| Fate::Become(format!("../{dest}")));
            needs_definitions(&text);
        }
    }
}
