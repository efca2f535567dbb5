//! Kinds of files besides Markdown and JSON: where their sections are, and what their text is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::FileType;
use crate::path::RelPath;
use crate::refusal::{Code, Refusal, shown};
use crate::section::{Heading, Outline, split_lines};

/// What a file's name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    Md,
    /// Markdown with code of its own.
    #[serde(rename = "md")]
    Mdx,
    Json,
    /// Plain text: one section.
    Txt,
    /// reStructuredText: sections by their underlined titles, copied as they are.
    Rst,
    /// A notebook: its cells as Markdown.
    Ipynb,
    /// An HTML page: its text as Markdown.
    Html,
}

/// Whether HTML pages are read.
const HAS_HTML: bool = cfg!(feature = "html");

impl Format {
    pub(crate) fn of(path: &RelPath) -> Option<Self> {
        Self::named(path).filter(|format| HAS_HTML || *format != Self::Html)
    }

    fn named(path: &RelPath) -> Option<Self> {
        const KNOWN: [(&str, Format); 9] = [
            ("md", Format::Md),
            ("markdown", Format::Md),
            ("mdx", Format::Mdx),
            ("json", Format::Json),
            ("txt", Format::Txt),
            ("rst", Format::Rst),
            ("ipynb", Format::Ipynb),
            ("html", Format::Html),
            ("htm", Format::Html),
        ];
        let (_, ending) = path.name().rsplit_once('.')?;
        KNOWN.into_iter().find_map(|(known, format)| ending.eq_ignore_ascii_case(known).then_some(format))
    }

    /// Says that a file of a manual is not read because of its ending.
    pub(crate) fn unknown(path: &RelPath) -> Refusal {
        let name = shown(path.below_first());
        if Self::named(path) == Some(Self::Html) {
            return Refusal::parameter(format!(
                "`{name}` is HTML, which this build does not read; build it with the cargo feature `html`"
            ));
        }
        let html = if HAS_HTML { ", `.html`, `.htm`" } else { "" };
        Refusal::parameter(format!(
            "`{name}` is none of `.md`, `.markdown`, `.mdx`, `.json`, `.rst`, `.txt`, `.ipynb`{html}, \
             and manuals have no other files"
        ))
    }

    /// Which rules apply: those for files with sections, or those for files taken as a whole.
    pub(crate) fn file_type(self) -> FileType {
        if self == Self::Json { FileType::Json } else { FileType::Md }
    }

    /// Whether the text is converted, so that its positions differ from those in the file.
    pub(crate) fn is_converted(self) -> bool {
        matches!(self, Self::Ipynb | Self::Html)
    }

    /// The text that is read and copied.
    pub(crate) fn text(self, path: &RelPath, content: String) -> Result<String, Refusal> {
        let refusal =
            |why: String| Refusal::new(Code::IoError, format!("`{}` {why}", shown(path.as_str()))).lasting();
        match self {
            Self::Ipynb => notebook(&content).map_err(|error| refusal(format!("is not a notebook: {error}"))),
            #[cfg(feature = "html")]
            Self::Html => crate::html::markdown(&content)
                .map_err(|error| refusal(format!("cannot be converted: {error}"))),
            _ => Ok(content),
        }
    }

    pub(crate) fn outline(self, text: &str) -> Outline {
        match self {
            Self::Md | Self::Ipynb | Self::Html => Outline::of(text),
            Self::Mdx => Outline::of_mdx(text),
            Self::Rst => Outline::with(text, titles(text)),
            Self::Txt | Self::Json => Outline::with(text, Vec::new()),
        }
    }
}

/// The titles of reStructuredText: a line of text underlined, or over- and underlined, with one punctuation
/// character. Levels follow the order in which the characters first appear.
fn titles(text: &str) -> Vec<Heading> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in split_lines(text) {
        lines.push((at, line.trim_end(), at + line.len()));
        at += line.len();
    }
    let line = |place: usize| lines.get(place).map_or("", |(_, line, _)| *line);
    let mut levels: Vec<(char, bool)> = Vec::new();
    let mut titles = Vec::new();
    let mut place = 0;
    while place < lines.len() {
        let is_free = place == 0 || line(place - 1).is_empty();
        let over = adornment(line(place));
        let found = match over {
            _ if !is_free => None,
            Some((char, length)) => {
                let (title, under) = (line(place + 1).trim(), adornment(line(place + 2)));
                let is_title =
                    under == Some((char, length)) && is_title(title) && title.chars().count() <= length;
                is_title.then_some((char, true, title, 3))
            }
            None => {
                let title = line(place);
                let is_flush = !title.starts_with(char::is_whitespace);
                // An underline may be shorter than its title, but not very short.
                let under =
                    adornment(line(place + 1)).filter(|(_, length)| *length >= title.chars().count().min(4));
                under.filter(|_| is_flush && is_title(title)).map(|(char, _)| (char, false, title, 2))
            }
        };
        let Some((char, is_over, title, count)) = found else {
            place += 1;
            continue;
        };
        let level = levels.iter().position(|known| *known == (char, is_over)).unwrap_or_else(|| {
            levels.push((char, is_over));
            levels.len() - 1
        });
        let level = u8::try_from(level + 1).unwrap_or(u8::MAX);
        let (start, text_start) = (lines[place].0, lines[place + count - 1].2);
        titles.push(Heading { level, title: title.to_owned(), start, text_start });
        place += count;
    }
    titles
}

fn is_title(line: &str) -> bool {
    !line.is_empty() && adornment(line).is_none()
}

/// A line of one repeated punctuation character, and its length.
fn adornment(line: &str) -> Option<(char, usize)> {
    let char = line.chars().next().filter(char::is_ascii_punctuation)?;
    (line.len() >= 2 && line.chars().all(|other| other == char)).then_some((char, line.len()))
}

#[derive(Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Cell {
    cell_type: String,
    source: Source,
}

/// One text, or a list of its lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    Whole(String),
    Lines(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    language_info: Language,
    kernelspec: Kernel,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Language {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Kernel {
    language: String,
}

/// Converts a notebook to Markdown: text cells unchanged, code in fences, no output.
fn notebook(content: &str) -> Result<String, serde_json::Error> {
    let Notebook { cells, metadata } = serde_json::from_str(content.trim_start_matches('\u{feff}'))?;
    let named = [metadata.language_info.name, metadata.kernelspec.language];
    let language = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let language: String =
        language.chars().filter(|char| char.is_alphanumeric() || "+#-_.".contains(*char)).collect();
    let mut text = String::new();
    for Cell { cell_type, source } in cells {
        let source = match source {
            Source::Whole(text) => text,
            Source::Lines(lines) => lines.concat(),
        };
        if source.trim().is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let source = source.trim_end_matches('\n');
        if cell_type == "markdown" {
            text.push_str(source);
            text.push('\n');
        } else {
            let language = if cell_type == "code" { language.as_str() } else { "" };
            let longest = source.split(|char| char != '`').map(str::len).max().unwrap_or_default();
            let fence = "`".repeat(longest.max(2) + 1);
            text.push_str(&format!("{fence}{language}\n{source}\n{fence}\n"));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(format: Format, text: &str) -> Vec<(usize, u8, String, String)> {
        let outline = format.outline(text);
        let section = |one: &crate::section::Section| {
            (one.line, one.level, one.title.clone(), text[one.range.clone()].to_owned())
        };
        outline.iter().map(section).collect()
    }

    fn row(line: usize, level: u8, title: &str, text: &str) -> (usize, u8, String, String) {
        (line, level, title.to_owned(), text.to_owned())
    }

    #[test]
    fn titles_of_restructured_text_are_sections() {
        let text = "=====\n Top\n=====\n\nIntro\n\nOne\n---\nfirst\r\n\r\nDeep\n~~~~\n\nTwo\n---\n";
        assert_eq!(
            shown(Format::Rst, text),
            [
                row(1, 1, "Top", text),
                row(7, 2, "One", "One\n---\nfirst\r\n\r\nDeep\n~~~~\n\n"),
                row(11, 3, "Deep", "Deep\n~~~~\n\n"),
                row(14, 2, "Two", "Two\n---\n"),
            ]
        );
        // An over- and underlined title is another level than one that is only underlined.
        assert_eq!(
            shown(Format::Rst, "==\nA\n==\n\nB\n==\n").iter().map(|row| row.1).collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn rules_tables_code_and_paragraphs_are_not_titles() {
        for text in [
            "text\n\n----\n\ntext\n",
            "====  ====\na     b\n====  ====\n",
            "+---+\n| a |\n+---+\n",
            "Code::\n\n    Not a title\n    -----------\n",
            "a paragraph\nof two lines\n------------\n",
            "Long title\n--\n",
            ".. note::\n\n   Inside\n   ------\n",
            "",
        ] {
            let shown = shown(Format::Rst, text);
            assert!(shown.len() == 1 && shown[0].1 == 0, "{text:?}: {shown:?}");
        }
    }

    #[test]
    fn plain_text_is_one_section() {
        assert_eq!(shown(Format::Txt, "# no\n\nTitle\n=====\n"), [row(1, 0, "", "# no\n\nTitle\n=====\n")]);
    }

    #[test]
    fn a_notebook_is_its_cells_as_markdown() {
        let cells = serde_json::json!({
            "nbformat": 4,
            "metadata": { "language_info": { "name": "python" } },
            "cells": [
                { "cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "\n", "Text"] },
                { "cell_type": "code", "source": "# no heading\nprint('```')\n", "outputs": [{ "text": "secret" }] },
                { "cell_type": "code", "source": [] },
                { "cell_type": "raw", "source": "raw" },
                { "cell_type": "markdown", "source": "## Part" },
            ],
        });
        let text = notebook(&cells.to_string()).unwrap();
        assert_eq!(
            text,
            "# Title\n\nText\n\n````python\n# no heading\nprint('```')\n````\n\n```\nraw\n```\n\n## Part\n"
        );
        let titles: Vec<_> = shown(Format::Ipynb, &text).into_iter().map(|row| row.2).collect();
        assert_eq!(titles, ["Title", "Part"]);
        let path = RelPath::parse("m/a.ipynb").unwrap();
        for wrong in ["", "{}", "[]", "{\"cells\":[{}]}", "{\"worksheets\":[]}"] {
            let refusal = Format::Ipynb.text(&path, wrong.into()).unwrap_err();
            assert!(
                refusal.is_lasting && refusal.message.contains("is not a notebook"),
                "{}",
                refusal.message
            );
        }
    }

    #[test]
    fn html_in_a_build_without_it_names_the_feature() {
        for name in ["m/a.html", "m/a.HTM"] {
            let path = RelPath::parse(name).unwrap();
            assert_eq!(Format::of(&path).is_some(), cfg!(feature = "html"));
            assert!(Format::unknown(&path).message.ends_with("build it with the cargo feature `html`"));
        }
        let other = Format::unknown(&RelPath::parse("m/a.pdf").unwrap()).message;
        assert_eq!(other.contains("`.html`"), cfg!(feature = "html"), "{other}");
    }

    proptest! {
        /// For any text, the top-level sections cover it without gaps or overlaps.
        #[test]
        fn sections_of_restructured_text_tile_it(text in "([a-c=~\\- \n\r]){0,60}") {
            let outline = Format::Rst.outline(&text);
            let tops = outline.iter().filter(|section| section.parent.is_none());
            let joined: String = tops.map(|section| &text[section.range.clone()]).collect();
            // Blank lines before the first title belong to no section.
            prop_assert!(text.ends_with(&joined) && text[..text.len() - joined.len()].trim().is_empty());
        }
    }
}
