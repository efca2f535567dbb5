//! HTML pages as Markdown.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown, Node};
use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink as _};
use html5ever::{Attribute, ExpandedName, LocalName, ParseOpts, QualName, local_name, ns, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use crate::limit::MAX_SOURCE_BYTES;

/// The conversion is recursive. Browsers allow 512.
const MAX_DEPTH: usize = 256;

/// Elements and attributes. A few hundred bytes of memory each.
const MAX_NODES: usize = 1_000_000;

/// The parser compares each attribute of a tag with all before it: so many comparisons take about a second.
const MAX_COMPARISONS: u64 = 400_000_000;

/// The converter moves all that follows when it joins two elements such as `<i>a</i><i>b</i>`: so many bytes take about
/// a second.
const MAX_MOVED_BYTES: u64 = 1 << 35;

/// How much is parsed before the limits are checked again.
const CHUNK: usize = 1024;

/// Why a page is not converted.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("its elements are nested more than {MAX_DEPTH} deep")]
    Depth,
    #[error("it has more than {MAX_NODES} elements and attributes")]
    Nodes,
    #[error("it has tags with too many attributes")]
    Attributes,
    #[error("it has too many identical adjacent elements")]
    Siblings,
    #[error("as Markdown it would have more than {MAX_SOURCE_BYTES} bytes")]
    Text,
}

/// A page as Markdown: its title as front matter, then its text without navigation and scripts.
pub(crate) fn markdown(content: &str) -> Result<String, TooMuch> {
    check_attributes(content)?;
    let document = parse(content)?;
    let (title, mains) = clean(&document)?;
    // Around the main part are menus and help texts of the generator.
    let page = if let [main] = &mains[..] { main } else { &document };
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder().options(options).add_handler(vec!["table"], table).build();
    let text = converter.tree_to_markdown(page);
    let matter = title.map(|title| format!("---\ntitle: {}\n---\n\n", quoted(&title))).unwrap_or_default();
    if text.len() as u64 > MAX_SOURCE_BYTES {
        return Err(TooMuch::Text);
    }
    let text = text.trim_end();
    let end = if text.is_empty() { "" } else { "\n" };
    Ok(format!("{matter}{text}{end}"))
}

/// Without the spaces that make all cells of a column equally wide.
fn table(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    let mut table = handlers.fallback(element)?;
    let lines = table.content.lines().map(|line| {
        if !line.starts_with('|') {
            return Cow::Borrowed(line);
        }
        let is_rule = line.chars().all(|char| matches!(char, '|' | '-' | ' '));
        let word = |word| if is_rule && word != "|" { "---" } else { word };
        Cow::Owned(line.split(' ').filter(|word| !word.is_empty()).map(word).collect::<Vec<_>>().join(" "))
    });
    table.content = format!("\n\n{}\n\n", lines.collect::<Vec<_>>().join("\n").trim_matches('\n'));
    Some(table)
}

/// As YAML. A backslash is itself only between single quotes.
fn quoted(title: &str) -> String {
    if title.contains(['"', '\\']) {
        format!("'{}'", title.replace('\'', "’"))
    } else {
        format!("\"{title}\"")
    }
}

/// Parses in chunks, because the parser takes time and memory that grow with the square of nested tags.
fn parse(content: &str) -> Result<Handle, TooMuch> {
    let mut parser = parse_document(Sink::default(), ParseOpts::default());
    let mut rest = content;
    while !rest.is_empty() {
        let end = (CHUNK..rest.len()).find(|place| rest.is_char_boundary(*place)).unwrap_or(rest.len());
        let (chunk, after) = rest.split_at(end);
        parser.process(chunk.into());
        parser.tokenizer.sink.sink.check()?;
        rest = after;
    }
    Ok(parser.finish())
}

/// A tree of which the size is known while it grows.
#[derive(Default)]
struct Sink {
    dom: RcDom,
    nodes: Cell<usize>,
    /// The element created last; its ancestors are the open elements.
    last: RefCell<Option<Handle>>,
}

impl Sink {
    fn check(&self) -> Result<(), TooMuch> {
        if self.nodes.get() > MAX_NODES {
            return Err(TooMuch::Nodes);
        }
        let mut depth = 0;
        let mut next = self.last.borrow().clone();
        while let Some(node) = next {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(TooMuch::Depth);
            }
            next = parent(&node);
        }
        Ok(())
    }
}

fn parent(node: &Handle) -> Option<Handle> {
    let parent = node.parent.take();
    let upgraded = parent.as_ref().and_then(Weak::upgrade);
    node.parent.set(parent);
    upgraded
}

impl TreeSink for Sink {
    type Handle = Handle;
    type Output = Handle;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> Handle {
        self.dom.document
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.nodes.set(self.nodes.get() + 1 + attrs.len());
        let element = self.dom.create_element(name, attrs, flags);
        self.last.replace(Some(Rc::clone(&element)));
        element
    }

    /// The template itself, so that its contents count as nested in it.
    fn get_template_contents(&self, target: &Handle) -> Handle {
        Rc::clone(target)
    }

    /// Not collected: there may be one for each byte.
    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.dom.elem_name(target)
    }

    fn create_comment(&self, text: StrTendril) -> Handle {
        self.dom.create_comment(text)
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        self.dom.create_pi(target, data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.dom.append(parent, child);
    }

    fn append_based_on_parent_node(&self, element: &Handle, before: &Handle, child: NodeOrText<Handle>) {
        if parent(element).is_some() {
            self.append_before_sibling(element, child);
        } else {
            self.append(before, child);
        }
    }

    fn append_doctype_to_document(&self, name: StrTendril, public_id: StrTendril, system_id: StrTendril) {
        self.dom.append_doctype_to_document(name, public_id, system_id);
    }

    fn same_node(&self, one: &Handle, other: &Handle) -> bool {
        self.dom.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.dom.set_quirks_mode(mode);
    }

    /// Text and elements misplaced in a table. They belong before it, but `RcDom` searches for that place among all
    /// children each time; here they come after it.
    fn append_before_sibling(&self, sibling: &Handle, node: NodeOrText<Handle>) {
        if let NodeOrText::AppendNode(node) = &node {
            self.dom.remove_from_parent(node);
        }
        match parent(sibling) {
            Some(parent) => self.dom.append(&parent, node),
            None => self.dom.append_before_sibling(sibling, node),
        }
    }

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        self.dom.add_attrs_if_missing(target, attrs);
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.dom.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.dom.reparent_children(node, new_parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, node: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(node)
    }
}

/// Removes what is not text of the page, makes code plain text, and returns the page's title and its main parts.
fn clean(document: &Handle) -> Result<(Option<String>, Vec<Handle>), TooMuch> {
    let mut title = None;
    let mut mains = Vec::new();
    let mut open = vec![(Rc::clone(document), 0, 0)];
    let (mut indentation, mut moved) = (0, 0_u64);
    while let Some((node, depth, mut indent)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(TooMuch::Depth);
        }
        // Each line in a list or quote is indented.
        indentation += indent;
        if indentation > MAX_SOURCE_BYTES {
            return Err(TooMuch::Text);
        }
        node.children.borrow_mut().retain(is_text_of_page);
        match name(&node).map(|name| &**name) {
            Some("head") => {
                let children = node.children.take();
                let found = children.iter().find(|child| name_is(child, "title")).map(text_of);
                let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
                title = title.or(found.map(words).filter(|title| !title.is_empty()));
            }
            Some("pre") => {
                let text = text_of(&node);
                indentation += indent * text.matches('\n').count() as u64;
                let inner = node.children.borrow().iter().find(|child| name_is(child, "code")).cloned();
                let code = inner.unwrap_or_else(new_code);
                set_text(&code, &text);
                set_child(&node, code);
            }
            Some("code") => set_text(&node, &text_of(&node)),
            name => {
                if name == Some("main") || *attribute(&node, &local_name!("role")) == *"main" {
                    mains.push(Rc::clone(&node));
                }
                if name == Some("table") && width_of_cells(&node) > MAX_SOURCE_BYTES {
                    return Err(TooMuch::Text);
                }
                indent += if matches!(name, Some("blockquote" | "li")) { 4 } else { 0 };
                let children = node.children.borrow();
                moved = moved.saturating_add(bytes_moved(&children));
                if moved > MAX_MOVED_BYTES {
                    return Err(TooMuch::Siblings);
                }
                open.extend(children.iter().map(|child| (Rc::clone(child), depth + 1, indent)));
            }
        }
    }
    Ok((title, mains))
}

/// Refuses a page whose tags have so many attributes that parsing it would take too long.
fn check_attributes(content: &str) -> Result<(), TooMuch> {
    let mut rest = content;
    let mut comparisons = 0;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let tag = rest.strip_prefix('/').unwrap_or(rest);
        if !tag.starts_with(|char: char| char.is_ascii_alphabetic()) {
            continue;
        }
        let (count, length) = attributes_of(tag);
        comparisons += count * count;
        if comparisons > MAX_COMPARISONS {
            return Err(TooMuch::Attributes);
        }
        // What is in these is no tag.
        let raw = ["script", "style"].into_iter().find(|name| {
            tag.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
                && tag.len() == rest.len()
        });
        rest = &tag[length..];
        if let Some(name) = raw {
            let end = rest.match_indices("</").find(|(at, _)| {
                rest.get(at + 2..at + 2 + name.len()).is_some_and(|end| end.eq_ignore_ascii_case(name))
            });
            rest = end.map_or("", |(at, _)| &rest[at..]);
        }
    }
    Ok(())
}

/// About how many attributes a tag has, and where it ends.
fn attributes_of(tag: &str) -> (u64, usize) {
    let (mut count, mut is_apart, mut is_value, mut quote) = (0, false, false, None);
    for (at, byte) in tag.bytes().enumerate() {
        match byte {
            _ if quote.is_some() => {
                if quote == Some(byte) {
                    (quote, is_apart) = (None, true);
                }
            }
            b'>' => return (count, at),
            b'"' | b'\'' if is_value => quote = Some(byte),
            byte if byte.is_ascii_whitespace() => is_apart = true,
            b'/' => (is_apart, is_value) = (true, false),
            b'=' => is_value = true,
            _ => {
                count += u64::from(is_apart && !is_value);
                (is_apart, is_value) = (false, false);
            }
        }
        if quote.is_some() {
            is_value = false;
        }
    }
    (count, tag.len())
}

/// How many bytes the converter moves to join equal neighbours; it does so for elements in a line of text.
fn bytes_moved(children: &[Handle]) -> u64 {
    const APART: [&str; 19] = [
        "a",
        "p",
        "div",
        "li",
        "tr",
        "td",
        "th",
        "dt",
        "dd",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "section",
        "article",
        "blockquote",
        "pre",
    ];
    let kind = |node| match name(node).map(|name| &**name) {
        Some("em") => Some("i"),
        Some("strong") => Some("b"),
        name => name.filter(|name| !APART.contains(name)),
    };
    let (mut joined, mut text) = (0, 0);
    for pair in children.windows(2) {
        if kind(&pair[0]).is_some_and(|one| kind(&pair[1]) == Some(one)) {
            joined += 1;
            let inner = pair[1].children.borrow();
            text += match inner.first().map(|child| &child.data) {
                Some(NodeData::Text { contents }) if inner.len() == 1 => contents.borrow().len() as u64,
                _ if name_is(&pair[1], "code") => size_of_text(&pair[1]),
                _ => 0,
            };
        }
    }
    joined * (text + size_of_val(children) as u64)
}

/// The value of an attribute; empty if there is none.
fn attribute(node: &Handle, wanted: &LocalName) -> StrTendril {
    let NodeData::Element { attrs, .. } = &node.data else { return StrTendril::new() };
    let attrs = attrs.borrow();
    attrs.iter().find(|attr| attr.name.local == *wanted).map(|attr| attr.value.clone()).unwrap_or_default()
}

fn name(node: &Handle) -> Option<&LocalName> {
    match &node.data {
        NodeData::Element { name, .. } => Some(&name.local),
        _ => None,
    }
}

fn name_is(node: &Handle, wanted: &str) -> bool {
    name(node).is_some_and(|name| **name == *wanted)
}

fn is_text_of_page(node: &Handle) -> bool {
    const OTHER: [&str; 11] = [
        "button", "canvas", "iframe", "nav", "noscript", "script", "select", "style", "svg", "template",
        "textarea",
    ];
    let Some(name) = name(node) else { return true };
    // Generators add links to themselves to headings: `¶`, `§`, `#`. Others have only an icon made by a style.
    let is_mark = || {
        let text = text_of(node);
        let is_empty = text.trim().is_empty() && node.children.borrow().iter().all(|it| !name_is(it, "img"));
        let is_to_itself = attribute(node, &local_name!("href")).starts_with('#');
        is_empty || is_to_itself && !text.contains(char::is_alphanumeric)
    };
    let is_menu = matches!(&*attribute(node, &local_name!("role")), "navigation" | "search");
    let is_other = OTHER.contains(&&**name) || is_menu || *name == local_name!("a") && is_mark();
    !is_other
}

/// How large a table is when all its cells are as wide as the widest, as the converter makes those of a column.
fn width_of_cells(table: &Handle) -> u64 {
    let (mut rows, mut columns, mut widest) = (0, 0, 0);
    let mut open = vec![Rc::clone(table)];
    while let Some(node) = open.pop() {
        let children = node.children.borrow();
        if name_is(&node, "tr") {
            rows += 1;
            columns = columns.max(children.iter().filter(|child| name(child).is_some()).count() as u64);
        } else if name_is(&node, "td") || name_is(&node, "th") {
            widest = widest.max(size_of_text(&node));
        }
        open.extend(children.iter().cloned());
    }
    widest.saturating_mul(columns).saturating_mul(rows)
}

/// Bytes of text and of attributes, which may be addresses of links.
fn size_of_text(node: &Handle) -> u64 {
    let mut size = 0;
    let mut open = vec![Rc::clone(node)];
    while let Some(node) = open.pop() {
        size += match &node.data {
            NodeData::Text { contents } => contents.borrow().len(),
            NodeData::Element { attrs, .. } => attrs.borrow().iter().map(|attr| attr.value.len()).sum(),
            _ => 0,
        };
        open.extend(node.children.borrow().iter().cloned());
    }
    size as u64
}

/// The text in a node, with line feeds for `<br>`.
fn text_of(node: &Handle) -> String {
    let mut text = String::new();
    let mut open = vec![Rc::clone(node)];
    while let Some(node) = open.pop() {
        if let NodeData::Text { contents } = &node.data {
            text.push_str(&contents.borrow());
        } else if name_is(&node, "br") {
            text.push('\n');
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    text
}

fn new_code() -> Handle {
    Node::new(NodeData::Element {
        name: QualName::new(None, ns!(html), local_name!("code")),
        attrs: RefCell::default(),
        template_contents: RefCell::default(),
        mathml_annotation_xml_integration_point: false,
    })
}

fn set_text(node: &Handle, text: &str) {
    set_child(node, Node::new(NodeData::Text { contents: RefCell::new(text.into()) }));
}

fn set_child(node: &Handle, child: Handle) {
    child.parent.set(Some(Rc::downgrade(node)));
    node.children.replace(vec![child]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_its_text_as_markdown() {
        for (html, want) in [
            ("", ""),
            ("plain", "plain\n"),
            ("<title> A\n &amp; B </title><h1>A</h1>", "---\ntitle: \"A & B\"\n---\n\n# A\n"),
            ("<title>it's \"x\\y\"</title>", "---\ntitle: 'it’s \"x\\y\"'\n---\n\n"),
            ("<title> </title><p>x", "x\n"),
            ("<h2>Use<a class=headerlink href=#use>¶</a></h2>", "## Use\n"),
            ("<p>menu<main><h1>A</h1><p>b <a href=x><i class=icon></i></a></main><p>help", "# A\n\nb\n"),
            ("<main>a</main><div role=main>b</div>", "a\n\nb\n"),
            ("<a href=x><img src=y></a>", "[![](y)](x)\n"),
            ("<h2><a href=#use>Use</a></h2>", "## [Use](#use)\n"),
            ("<ul><li>a<ol><li>b</ol></ul>", "- a\n  1. b\n"),
            ("<table>a<tr><td>b</table>c", "b\n\nac\n"),
            (
                "<table><tr><th>long name<th>b<tr><td>c<td>d | <b>e</b></table>",
                "| long name | b |\n| --- | --- |\n| c | d &#124; **e** |\n",
            ),
            ("<dl><dt>f(x)<dd>does</dl>", "f(x)\n\ndoes\n"),
            ("<table><tr><th>a<tr><td>b</table>", "| a |\n| --- |\n| b |\n"),
            // Code has no markup, whatever is around it.
            ("<pre>a <b>b</b>\n  <a href=x>c</a><br># d</pre>", "```\na b\n  c\n# d\n```\n"),
            ("<pre><code class=language-rust>fn <i>f</i>()\n</code></pre>", "```rust\nfn f()\n```\n"),
            ("<p>See <code>a<b>*</b>b</code>.", "See `a*b`.\n"),
            // Text that looks like Markdown is none.
            ("<p># no heading", "\\# no heading\n"),
        ] {
            assert_eq!(markdown(html).unwrap(), want, "{html}");
        }
    }

    #[test]
    fn scripts_styles_and_navigation_are_no_text() {
        let hidden = [
            "<script>no</script>",
            "<style>no</style>",
            "<nav><p>no</nav>",
            "<div role=navigation>no</div>",
            "<noscript>no</noscript>",
            "<template><p>no</template>",
            "<svg><title>no</title><text>no</text></svg>",
            "<button>no</button>",
            "<select><option>no</select>",
            "<!-- no -->",
        ];
        for html in hidden {
            for page in [format!("{html}<p>yes"), format!("<body><p>yes</p><div>{html}</div>")] {
                assert_eq!(markdown(&page).unwrap(), "yes\n", "{page}");
            }
        }
    }

    /// On the stack that threads of a runtime have.
    #[test]
    fn deep_nesting_is_refused_before_the_stack_is_full() {
        let tags =
            ["<div>", "<b id=x>", "<ul><li>", "<blockquote>", "<table><td>", "<template>", "<svg>", "<em>"];
        let test = move || {
            for tag in tags {
                for open in [String::new(), "<table>".into(), "<p>".into()] {
                    let page = open + &tag.repeat(100_000);
                    assert_eq!(markdown(&page).map(|text| text.len()), Err(TooMuch::Depth), "{tag}");
                }
                let most = MAX_DEPTH / tag.matches('<').count() / 2 - 2;
                assert!(markdown(&format!("{}x", tag.repeat(most))).is_ok(), "{tag}");
            }
            let deepest = format!("{}x", "<blockquote>".repeat(MAX_DEPTH - 3));
            assert!(markdown(&deepest).unwrap().ends_with("> x\n"));
            assert_eq!(markdown(&format!("<blockquote>{deepest}")), Err(TooMuch::Depth));
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
    }

    /// Each paragraph opens all unclosed formatting again, with its attributes.
    #[test]
    fn a_page_that_grows_when_parsed_is_refused() {
        let tags: String = (0..100).map(|number| format!("<b id={number}>")).collect();
        let attributes: String = (0..2000).map(|number| format!(" a{number}")).collect();
        for open in [tags, format!("<b{attributes}>")] {
            let page = format!("<p>{open}</p>{}", "<p>x</p>".repeat(100_000));
            assert_eq!(markdown(&page).map(|text| text.len()), Err(TooMuch::Nodes));
        }
    }

    #[test]
    fn a_page_that_would_take_too_long_is_refused() {
        let attributes: String = (0..30_000).map(|number| format!(" a{number}='>'")).collect();
        for page in [
            format!("<p{attributes}>x"),
            format!("<p>x</p{attributes}>"),
            format!("<p{}", "/a".repeat(30_000)),
        ] {
            assert_eq!(markdown(&page).map(|text| text.len()), Err(TooMuch::Attributes));
        }
        for tag in ["i", "code", "nobr", "x-y"] {
            let page = format!("<{tag}>x</{tag}>").repeat(100_000);
            assert_eq!(markdown(&page).map(|text| text.len()), Err(TooMuch::Siblings), "{tag}");
        }
        assert_eq!(
            markdown(&"<em>x</em><i>y</i>".repeat(50_000)).map(|text| text.len()),
            Err(TooMuch::Siblings)
        );
    }

    /// What looks like a tag with many attributes, and what only has many.
    #[test]
    fn a_long_page_without_such_tags_is_converted() {
        let words = "a ".repeat(30_000);
        for (page, want) in [
            (format!("<script>if (a <b) {{ {words} }}</script>x"), "x\n".to_owned()),
            (format!("<!-- <b {words} -->x"), "x\n".to_owned()),
            (format!("<i title='{words}'>x</i>"), "*x*\n".to_owned()),
            (format!("1 < 2 {words}x"), format!("1 < 2 {words}x\n")),
            ("<p>x</p>".repeat(50_000), "x\n\n".repeat(50_000).trim_end().to_owned() + "\n"),
            ("<b a b='c' d=\"e\">x</b> ".repeat(5_000), "**x** ".repeat(5_000).trim_end().to_owned() + "\n"),
        ] {
            assert_eq!(markdown(&page), Ok(want), "{}", &page[..20]);
        }
    }

    #[test]
    fn a_page_that_grows_when_converted_is_refused() {
        let wide = format!("<table><tr><td>{}{}", "x".repeat(10_000), "<tr><td>x".repeat(10_000));
        assert_eq!(markdown(&wide).map(|text| text.len()), Err(TooMuch::Text));
        let quotes = "<blockquote>".repeat(200);
        for lines in [format!("<pre>{}</pre>x", "\n".repeat(100_000)), "x<br>".repeat(100_000)] {
            let page = format!("{quotes}{lines}");
            assert_eq!(markdown(&page).map(|text| text.len()), Err(TooMuch::Text));
        }
    }

    /// Where the page is cut for the parser does not matter.
    #[test]
    fn a_long_page_is_converted_whole() {
        let words = "größer &amp; 日本語 <b>bold</b> ".repeat(2000);
        let want = "größer & 日本語 **bold** ".repeat(2000);
        assert_eq!(markdown(&format!("<p>{words}")).unwrap(), format!("{}\n", want.trim_end()));
    }

    proptest! {
        #[test]
        fn no_page_panics(parts in prop::collection::vec(prop::sample::select(vec![
            "<p>", "</p>", "<b>", "</b>", "<a href=#>", "</a>", "<table>", "<tr>", "<td>", "</table>", "<ul>", "<li>",
            "</ul>", "<pre>", "</pre>", "<code>", "</code>", "<h1>", "</h1>", "<svg>", "<math>", "</svg>", "<template>",
            "</template>", "<select>", "<option>", "<head>", "<title>", "</title>", "<frameset>", "<br>", "<img src=a>",
            "<?pi ?>", "<![CDATA[x]]>", "<!doctype>", "<!--", "-->", "&#0;", "&lt", "<", "x", " ", "\n", "|", "é", "\0",
            "<body>", "</body>", "</html>", "<script>", "</script>", "<form>", "<dl>", "<dt>", "<th>", "<caption>", "<hr>",
        ]), 0..40)) {
            markdown(&parts.concat()).unwrap();
        }
    }
}
