//! The search terms of texts and queries.
//!
//! Text is folded first (NFKC, case). Scripts without spaces between words are indexed by pairs of
//! neighbouring characters, all others by word stems.

use std::borrow::Cow;
use std::collections::HashSet;

use rust_stemmers::{Algorithm, Stemmer};

use crate::fold::fold;

/// Stop words of queries.
const FILLERS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in",
    "is", "it", "my", "of", "on", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "with", "you", "your",
];

/// The distinct terms of a query. Stop words are left out, unless there are no other words.
pub(crate) fn query_terms(query: &str) -> Vec<String> {
    let folded = fold(query);
    let stemmer = Stemmer::create(Algorithm::English);
    let mut terms: Vec<Cow<'_, str>> = Vec::new();
    let mut fillers: Vec<&str> = Vec::new();
    for (kind, run) in runs(&folded) {
        match kind {
            Kind::Word if FILLERS.contains(&run) => fillers.push(run),
            Kind::Word => terms.push(stem(&stemmer, run)),
            // A single character is searched as it is, longer runs by their pairs.
            Kind::Unspaced if run.chars().nth(1).is_none() => terms.push(run.into()),
            Kind::Unspaced => terms.extend(pairs(run).map(Cow::from)),
            Kind::Other => {}
        }
    }
    for_each_part(query, |part| terms.push(stem(&stemmer, part).into_owned().into()));
    let chosen =
        if terms.is_empty() { fillers.into_iter().map(|word| stem(&stemmer, word)).collect() } else { terms };
    let mut seen = HashSet::new();
    chosen.into_iter().map(Cow::into_owned).filter(|term| seen.insert(term.clone())).collect()
}

/// An indexed piece of a text.
pub(crate) enum Piece<'a> {
    /// Indexed by its stem.
    Word(&'a str),
    /// Indexed unchanged.
    Term(&'a str),
}

/// Calls `each` with every indexed piece of a text.
pub(crate) fn for_each_piece(text: &str, mut each: impl FnMut(Piece<'_>)) {
    for (kind, run) in runs(&fold(text)) {
        match kind {
            Kind::Word => each(Piece::Word(run)),
            Kind::Unspaced => {
                pairs(run).for_each(|pair| each(Piece::Term(pair)));
                run.char_indices().for_each(|(at, char)| each(Piece::Term(&run[at..at + char.len_utf8()])));
            }
            Kind::Other => {}
        }
    }
    for_each_part(text, |part| each(Piece::Word(part)));
}

/// The position of the first term in folded text, and how many of the terms it contains.
pub(crate) fn terms_in(folded: &str, terms: &[String]) -> (Option<usize>, usize) {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut seen = HashSet::new();
    let mut first = None;
    let mut at = 0;
    for (kind, run) in runs(folded) {
        let mut note = |term: &str, place: usize| {
            if let Some(term) = terms.iter().find(|one| *one == term) {
                first = first.or(Some(place));
                seen.insert(term);
            }
        };
        match kind {
            Kind::Word => note(&stem(&stemmer, run), at),
            Kind::Unspaced => {
                let mut place = at;
                for (pair, char) in pairs(run).zip(run.chars()) {
                    note(pair, place);
                    place += char.len_utf8();
                }
                run.char_indices().for_each(|(place, char)| note(char.encode_utf8(&mut [0; 4]), at + place));
            }
            Kind::Other => {}
        }
        at += run.len();
    }
    (first, seen.len())
}

/// The parts of names such as `getElementById` and `XMLParser`, in lower case.
fn for_each_part(text: &str, mut each: impl FnMut(&str)) {
    for name in text.split(|char: char| !char.is_ascii_alphanumeric()) {
        let bytes = name.as_bytes();
        let is_start = |at: usize| {
            let is_upper = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_uppercase);
            let is_lower = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_lowercase);
            is_upper(at) && (is_lower(at - 1) || is_upper(at - 1) && is_lower(at + 1))
        };
        let mut start = 0;
        for at in (1..bytes.len()).filter(|at| is_start(*at)) {
            each(&name[start..at].to_ascii_lowercase());
            start = at;
        }
        if start > 0 {
            each(&name[start..].to_ascii_lowercase());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Unspaced,
    Other,
}

/// Runs of characters of one kind, in order.
fn runs(text: &str) -> impl Iterator<Item = (Kind, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let kind = kind_of(rest.chars().next()?);
        let end = rest.find(|char| kind_of(char) != kind).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some((kind, run))
    })
}

fn kind_of(char: char) -> Kind {
    match char {
        'a'..='z' | '0'..='9' => Kind::Word,
        '\0'..='\x7f' => Kind::Other,
        // Thai, Lao, Myanmar, Khmer; kana, ideographs, and Hangul, whose particles are attached to words.
        '\u{e00}'..='\u{eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30fa}'
        | '\u{30fc}'..='\u{30ff}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}' => Kind::Unspaced,
        char if char.is_alphanumeric() => Kind::Word,
        _ => Kind::Other,
    }
}

fn pairs(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8()).skip(1);
    starts.zip(ends).map(|(start, end)| &text[start..end])
}

/// A word's stem: `policies` and `policy` have the same one, and so do `class` and `classes`.
pub(crate) fn stem<'a>(stemmer: &Stemmer, word: &'a str) -> Cow<'a, str> {
    if !word.is_ascii() {
        return word.into();
    }
    match stemmer.stem(word) {
        // The stem of `aliases` is `alias`, whose own stem is `alia`: stem twice, so that both match.
        stem if stem.ends_with('s') && stem.len() < word.len() => stemmer.stem(&stem).into_owned().into(),
        stem => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_into_words_and_pairs() {
        let mut terms = Vec::new();
        let stemmer = Stemmer::create(Algorithm::English);
        for_each_piece("Ｗｅｂサーバの Settings_file: 2つ getById", |piece| {
            terms.push(match piece {
                Piece::Word(word) => stem(&stemmer, word).into_owned(),
                Piece::Term(term) => term.to_owned(),
            });
        });
        assert_eq!(
            terms,
            [
                "web", "サー", "ーバ", "バの", "サ", "ー", "バ", "の", "set", "file", "2", "つ", "getbyid",
                "get", "by", "id"
            ]
        );
        assert_eq!(
            query_terms("再起動 再起動 bus Policies policy 鍵"),
            ["再起", "起動", "bus", "polici", "鍵"]
        );
        assert_eq!(query_terms("How do I open the door?"), ["open", "door"]);
        assert_eq!(query_terms("what is this"), ["what", "is", "this"]);
        assert_eq!(query_terms("!? …"), Vec::<String>::new());
    }

    #[test]
    fn words_that_differ_in_their_endings_have_one_stem() {
        let stemmer = Stemmer::create(Algorithm::English);
        for (one, other) in [
            ("policy", "policies"),
            ("key", "keys"),
            ("class", "classes"),
            ("process", "processes"),
            ("match", "matches"),
            ("index", "indexes"),
            ("alias", "aliases"),
            ("cache", "caching"),
            ("install", "installed"),
        ] {
            assert_eq!(stem(&stemmer, one), stem(&stemmer, other));
        }
        assert_eq!(stem(&stemmer, "日s"), "日s");
    }

    #[test]
    fn the_first_term_is_found_in_a_line_by_its_stem() {
        let terms = query_terms("policy 再起動");
        assert_eq!(terms_in("all policies: 再起動", &terms), (Some(4), 3));
        assert_eq!(terms_in("は再起動", &terms), (Some("は".len()), 2));
        assert_eq!(terms_in("nothing", &terms), (None, 0));
    }
}
