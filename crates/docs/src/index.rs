//! An index of words in memory, ranked by BM25.
//!
//! Text is folded first (NFKC, case). Scripts that put no spaces between words are indexed by pairs of
//! neighbouring characters, everything else by the stems of words. Each part of a text (its title, those above it, its
//! body) is ranked by itself, and what it gets is added up: a word in a short title says more than one in a long body.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use rust_stemmers::{Algorithm, Stemmer};

use crate::fold::fold;

/// How fast more of the same word stops to matter, and how much long texts are held back.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The parts of a text: its title, the titles above it, the page's title, the body.
const FIELDS: usize = 4;
/// What a word in each of them is worth: a title is about all that stands below it.
const WEIGHTS: [f64; FIELDS] = [2.0, 0.5, 1.0, 1.0];

/// Words of questions, not of answers.
const FILLERS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in",
    "is", "it", "my", "of", "on", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "with", "you", "your",
];

/// A word that no text has is looked for as one that is spelled like it: from so many characters on with one
/// difference, and with two.
const ONE_TYPO_CHARS: usize = 4;
const TWO_TYPOS_CHARS: usize = 8;
/// How many such words at most, and what one difference leaves of what each is worth.
const MOST_ALIKE: usize = 3;
const TYPO_WEIGHT: f64 = 0.7;

/// A document's number in the index.
pub(crate) type DocId = u32;

/// Which words are in which documents.
#[derive(Debug, Default)]
pub(crate) struct Index {
    terms: HashMap<Box<str>, usize>,
    /// By term.
    postings: Vec<Vec<Posting>>,
    /// Each document's parts, by their lengths in words; `None` when it was removed.
    lengths: Vec<Option<[u32; FIELDS]>>,
    live: usize,
    live_words: [u64; FIELDS],
    /// How many documents have such a part at all.
    live_fields: [u64; FIELDS],
}

#[derive(Debug, Clone, Copy)]
struct Posting {
    doc: DocId,
    /// How often in each part. More than 255 times is not more than that.
    counts: [u8; FIELDS],
}

/// What is said about one text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Words<'a> {
    pub(crate) title: &'a str,
    /// The titles of what it lies in.
    pub(crate) context: &'a str,
    /// What the page is called, if that is said in front of it.
    pub(crate) page: &'a str,
    pub(crate) body: &'a str,
}

/// A word that is looked for, with those that it may have been meant to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sought(pub(crate) Vec<(String, f64)>);

/// A document that matches, and how well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Match {
    pub(crate) doc: DocId,
    pub(crate) score: f64,
    /// How many of the words it has.
    pub(crate) found: u32,
}

impl Index {
    pub(crate) fn add(&mut self, words: Words<'_>) -> DocId {
        let doc = DocId::try_from(self.lengths.len()).expect("fewer than four billion sections");
        let stemmer = Stemmer::create(Algorithm::English);
        // Each term once for each time it is there, with the part it is in.
        let mut found = Vec::new();
        let mut lengths = [0; FIELDS];
        for (field, text) in [words.title, words.context, words.page, words.body].into_iter().enumerate() {
            let before = found.len();
            for_each_term(text, &stemmer, |term| found.push((self.term(term), field)));
            lengths[field] = u32::try_from(found.len() - before).unwrap_or(u32::MAX);
            self.live_words[field] += u64::from(lengths[field]);
            self.live_fields[field] += u64::from(lengths[field] > 0);
        }
        found.sort_unstable();
        for same in found.chunk_by(|one, other| one.0 == other.0) {
            let mut counts = [0_u8; FIELDS];
            for (_, field) in same {
                counts[*field] = counts[*field].saturating_add(1);
            }
            self.postings[same[0].0].push(Posting { doc, counts });
        }
        self.lengths.push(Some(lengths));
        self.live += 1;
        doc
    }

    pub(crate) fn remove(&mut self, doc: DocId) {
        if let Some(lengths) = self.lengths[doc as usize].take() {
            self.live -= 1;
            for (field, length) in lengths.into_iter().enumerate() {
                self.live_words[field] -= u64::from(length);
                self.live_fields[field] -= u64::from(length > 0);
            }
        }
    }

    /// Whether most of it is removed documents.
    pub(crate) fn is_mostly_dead(&self) -> bool {
        self.lengths.len() > 2 * self.live + 1000
    }

    fn term(&mut self, term: &str) -> usize {
        if let Some(place) = self.terms.get(term) {
            return *place;
        }
        self.postings.push(Vec::new());
        self.terms.insert(term.into(), self.postings.len() - 1);
        self.postings.len() - 1
    }

    fn is_live(&self, posting: Posting) -> bool {
        self.lengths[posting.doc as usize].is_some()
    }

    /// The terms of a query as they are looked for: one that no document has, as those that are spelled like it.
    pub(crate) fn sought(&self, terms: &[String]) -> Vec<Sought> {
        let is_there = |place: &usize| self.postings[*place].iter().any(|posting| self.is_live(*posting));
        let sought = |term: &String| match self.terms.get(term.as_str()).filter(|place| is_there(place)) {
            Some(_) => Sought(vec![(term.clone(), 1.0)]),
            None => Sought(self.alike(term)),
        };
        terms.iter().map(sought).collect()
    }

    /// The terms that differ least from one that is not there; of those, the ones that most documents have.
    fn alike(&self, term: &str) -> Vec<(String, f64)> {
        let most = match term.len() {
            _ if !term.bytes().all(|byte| byte.is_ascii_lowercase()) => return Vec::new(),
            TWO_TYPOS_CHARS.. => 2,
            ONE_TYPO_CHARS.. => 1,
            _ => return Vec::new(),
        };
        let letters = letters(term);
        let mut alike: Vec<_> = self
            .terms
            .iter()
            .filter(|(other, _)| {
                // Most are told apart without being compared.
                other.len().abs_diff(term.len()) <= most
                    && (self::letters(other) ^ letters).count_ones() as usize <= 2 * most
            })
            .filter_map(|(other, place)| {
                let typos = strsim::osa_distance(term, other);
                let documents =
                    self.postings[*place].iter().filter(|posting| self.is_live(**posting)).count();
                (typos <= most && documents > 0).then_some((typos, documents, other))
            })
            .collect();
        alike.sort_unstable_by(|one, other| (one.0, other.1, one.2).cmp(&(other.0, one.1, other.2)));
        let fewest = alike.first().map_or(0, |(typos, ..)| *typos);
        let best = alike.into_iter().take_while(|(typos, ..)| *typos == fewest).take(MOST_ALIKE);
        let weight = |typos: usize| TYPO_WEIGHT.powi(i32::try_from(typos).unwrap_or(i32::MAX));
        best.map(|(typos, _, other)| (other.to_string(), weight(typos))).collect()
    }

    /// The documents that `admits` lets through and that have any of the words, in no order.
    #[expect(clippy::cast_precision_loss, reason = "a score needs no more digits")]
    pub(crate) fn search(&self, sought: &[Sought], admits: impl Fn(DocId) -> bool) -> Vec<Match> {
        let live = self.live as f64;
        let mean: [f64; FIELDS] = std::array::from_fn(|field| {
            self.live_words[field] as f64 / self.live_fields[field].max(1) as f64
        });
        let mut scores: HashMap<DocId, (f64, u32)> = HashMap::new();
        for Sought(alternatives) in sought {
            // The best of the alternatives counts: they are one word.
            let mut best: HashMap<DocId, f64> = HashMap::new();
            for (term, weight) in alternatives {
                let Some(place) = self.terms.get(term.as_str()) else { continue };
                let found = || self.postings[*place].iter().filter(|posting| self.is_live(**posting));
                let documents = found().count() as f64;
                let rarity = ((live - documents + 0.5) / (documents + 0.5)).ln_1p();
                for posting in found().filter(|posting| admits(posting.doc)) {
                    let Some(lengths) = self.lengths[posting.doc as usize] else { continue };
                    let score: f64 = (0..FIELDS)
                        .filter(|field| posting.counts[*field] > 0)
                        .map(|field| {
                            let (count, length) =
                                (f64::from(posting.counts[field]), f64::from(lengths[field]));
                            WEIGHTS[field] * rarity * count * (K1 + 1.0)
                                / (count + K1 * (1.0 - B + B * length / mean[field]))
                        })
                        .sum();
                    let best = best.entry(posting.doc).or_default();
                    *best = best.max(score * weight);
                }
            }
            for (doc, score) in best {
                let (sum, found) = scores.entry(doc).or_default();
                *sum += score;
                *found += 1;
            }
        }
        // A section with more of the words ranks higher: one pair of characters alone says little.
        let asked = sought.len().max(1) as f64;
        let share = |(doc, (score, found)): (DocId, (f64, u32))| Match {
            doc,
            score: score * (f64::from(found) / asked).sqrt(),
            found,
        };
        scores.into_iter().map(share).collect()
    }
}

/// Which letters a word has, one bit for each.
fn letters(word: &str) -> u32 {
    word.bytes().fold(0, |bits, byte| bits | 1 << (byte & 31))
}

/// The terms of a query, each once. Words that are in every question are left out, unless there are no others.
pub(crate) fn query_terms(query: &str) -> Vec<String> {
    let folded = fold(query);
    let stemmer = Stemmer::create(Algorithm::English);
    let mut terms: Vec<Cow<'_, str>> = Vec::new();
    let mut fillers: Vec<&str> = Vec::new();
    for (kind, run) in runs(&folded) {
        match kind {
            Kind::Word if FILLERS.contains(&run) => fillers.push(run),
            Kind::Word => terms.push(stem(&stemmer, run)),
            // One character is asked for itself, more of them by their pairs.
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

/// The terms that a text is found by.
fn for_each_term(text: &str, stemmer: &Stemmer, mut each: impl FnMut(&str)) {
    for (kind, run) in runs(&fold(text)) {
        match kind {
            Kind::Word => each(&stem(stemmer, run)),
            Kind::Unspaced => {
                pairs(run).for_each(&mut each);
                run.char_indices().for_each(|(at, char)| each(&run[at..at + char.len_utf8()]));
            }
            Kind::Other => {}
        }
    }
    for_each_part(text, |part| each(&stem(stemmer, part)));
}

/// Where the first of the terms is in folded text, and how many of them are in it.
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

/// The parts of names such as `getElementById` and `XMLParser`, in small letters.
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

/// The runs of one kind, in order.
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
        // Thai, Lao, Myanmar, Khmer; kana, ideographs, Hangul, whose particles cling to the words.
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

/// A word without its endings: `policies` and `policy` are one, and so are `class` and `classes`.
fn stem<'a>(stemmer: &Stemmer, word: &'a str) -> Cow<'a, str> {
    if !word.is_ascii() {
        return word.into();
    }
    match stemmer.stem(word) {
        // `aliases` is `alias`, and `alias` is taken for more than one `alia`: so both are that.
        stem if stem.ends_with('s') && stem.len() < word.len() => stemmer.stem(&stem).into_owned().into(),
        stem => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(texts: &[(&str, &str)]) -> Index {
        let mut index = Index::default();
        for (title, body) in texts {
            index.add(Words { title, body, ..Words::default() });
        }
        index
    }

    /// The documents found, best first.
    fn found(index: &Index, query: &str) -> Vec<DocId> {
        let mut found = index.search(&index.sought(&query_terms(query)), |_| true);
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.into_iter().map(|one| one.doc).collect()
    }

    #[test]
    fn text_is_cut_into_words_and_pairs() {
        let mut terms = Vec::new();
        let stemmer = Stemmer::create(Algorithm::English);
        for_each_term("Ｗｅｂサーバの Settings_file: 2つ getById", &stemmer, |term| {
            terms.push(term.to_owned());
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
    fn a_name_is_found_by_its_parts_and_the_parts_by_the_name() {
        let index =
            index(&[("getElementById", ""), ("Other", "get an element by its id"), ("XMLParser", "")]);
        assert_eq!(found(&index, "getElementById"), [0, 1]);
        assert_eq!(found(&index, "getelementbyid"), [0]);
        assert_eq!(found(&index, "element")[0], 0);
        assert_eq!(found(&index, "xml parser"), [2]);
    }

    #[test]
    fn a_word_that_nobody_has_is_looked_for_as_one_that_is_spelled_like_it() {
        let index = index(&[("Receive messages", ""), ("Send messages", ""), ("Environment", "")]);
        assert_eq!(found(&index, "recieve"), [0]);
        assert_eq!(found(&index, "enviroment"), [2]);
        assert_eq!(found(&index, "massages").len(), 2);
        // Short words, numbers and what is not like any stay as they are.
        for query in ["sen", "1234", "lorry", "日本"] {
            assert_eq!(found(&index, query), Vec::<DocId>::new(), "{query}");
        }
        // A word that is there is what is meant.
        assert_eq!(index.sought(&query_terms("send")), [Sought(vec![("send".into(), 1.0)])]);
    }

    #[test]
    fn the_first_term_is_found_in_a_line_by_its_stem() {
        let terms = query_terms("policy 再起動");
        assert_eq!(terms_in("all policies: 再起動", &terms), (Some(4), 3));
        assert_eq!(terms_in("は再起動", &terms), (Some("は".len()), 2));
        assert_eq!(terms_in("nothing", &terms), (None, 0));
    }

    #[test]
    fn japanese_is_found_without_word_spaces() {
        let index = index(&[
            ("概要", "このサーバは設定ファイルを読みます。"),
            ("再起動", "サーバを再起動する手順です。"),
            ("停止", "起動していないときは何もしません。"),
        ]);
        assert_eq!(found(&index, "再起動"), [1, 2]);
        assert_eq!(found(&index, "ｻｰﾊﾞ の再起動")[0], 1);
        assert_eq!(found(&index, "設"), [0]);
        assert_eq!(found(&index, "鍵"), Vec::<DocId>::new());
    }

    #[test]
    fn english_is_found_by_case_and_number_alike() {
        let index = index(&[
            ("Access policies", "Who may do what."),
            ("Backup", "Every policy is saved at night."),
            ("Restore", "Get a file back."),
        ]);
        assert_eq!(found(&index, "POLICY"), [0, 1]);
        assert_eq!(found(&index, "files"), [2]);
        assert_eq!(found(&index, "restore backup")[..].len(), 2);
    }

    #[test]
    fn rare_words_short_texts_and_titles_count_more() {
        let long = format!("lock {}", "filler ".repeat(200));
        let index = index(&[("", &long), ("", "lock it"), ("Lock", "it"), ("", "it"), ("", "it key")]);
        assert_eq!(found(&index, "lock"), [2, 1, 0]);
        assert_eq!(found(&index, "lock key")[0], 4);
    }

    #[test]
    fn what_was_removed_is_not_found_and_does_not_count() {
        let mut index = index(&[("", "lock one"), ("", "lock two")]);
        index.remove(0);
        index.remove(0);
        assert_eq!(found(&index, "lock"), [1]);
        assert_eq!(found(&index, "one"), Vec::<DocId>::new());
        assert_eq!((index.live, index.live_words), (1, [0, 0, 0, 2]));
        assert!(!index.is_mostly_dead());
    }
}
