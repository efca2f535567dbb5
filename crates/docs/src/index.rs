//! An index of words in memory, ranked by BM25.
//!
//! Text is folded first (NFKC, case). Scripts that put no spaces between words are indexed by pairs of
//! neighbouring characters, everything else by words.

use std::collections::{HashMap, HashSet};

use crate::fold::fold;

/// How fast more of the same word stops to matter, and how much long texts are held back.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// How many times a word of the title counts.
const TITLE_WEIGHT: usize = 3;

/// Words of questions, not of answers.
const FILLERS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in",
    "is", "it", "my", "of", "on", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "with", "you", "your",
];

/// A document's number in the index.
pub(crate) type DocId = u32;

/// Which words are in which documents.
#[derive(Debug, Default)]
pub(crate) struct Index {
    terms: HashMap<Box<str>, usize>,
    /// By term.
    postings: Vec<Vec<Posting>>,
    /// Each document's length in words; `None` when it was removed.
    lengths: Vec<Option<u32>>,
    live: usize,
    live_words: u64,
}

#[derive(Debug, Clone, Copy)]
struct Posting {
    doc: DocId,
    count: u32,
}

/// What is said about one text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) title: &'a str,
    /// The titles of what it lies in.
    pub(crate) context: &'a str,
    pub(crate) body: &'a str,
}

/// A document that matches, and how well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Match {
    pub(crate) doc: DocId,
    pub(crate) score: f64,
}

impl Index {
    pub(crate) fn add(&mut self, words: Words<'_>) -> DocId {
        let doc = DocId::try_from(self.lengths.len()).expect("fewer than four billion sections");
        // Each term once for each time it counts.
        let mut found = Vec::new();
        for (text, weight) in [(words.title, TITLE_WEIGHT), (words.context, 1), (words.body, 1)] {
            for_each_term(&fold(text), |term| {
                let term = self.term(term);
                found.extend(std::iter::repeat_n(term, weight));
            });
        }
        let length = u32::try_from(found.len()).unwrap_or(u32::MAX);
        found.sort_unstable();
        for same in found.chunk_by(|one, other| one == other) {
            let count = u32::try_from(same.len()).unwrap_or(u32::MAX);
            self.postings[same[0]].push(Posting { doc, count });
        }
        self.lengths.push(Some(length));
        self.live += 1;
        self.live_words += u64::from(length);
        doc
    }

    pub(crate) fn remove(&mut self, doc: DocId) {
        if let Some(length) = self.lengths[doc as usize].take() {
            self.live -= 1;
            self.live_words -= u64::from(length);
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

    /// The documents that `admits` lets through and that have any of the terms, in no order.
    pub(crate) fn search(&self, terms: &[String], admits: impl Fn(DocId) -> bool) -> Vec<Match> {
        #[expect(clippy::cast_precision_loss, reason = "a score needs no more digits")]
        let (live, mean) = (self.live as f64, self.live_words as f64 / (self.live.max(1) as f64));
        let mut scores: HashMap<DocId, (f64, u32)> = HashMap::new();
        for term in terms {
            let Some(place) = self.terms.get(term.as_str()) else { continue };
            let found = || {
                self.postings[*place].iter().filter_map(|posting| {
                    self.lengths[posting.doc as usize].map(|length| (posting, f64::from(length)))
                })
            };
            #[expect(clippy::cast_precision_loss, reason = "a score needs no more digits")]
            let documents = found().count() as f64;
            let rarity = ((live - documents + 0.5) / (documents + 0.5)).ln_1p();
            for (posting, length) in found().filter(|(posting, _)| admits(posting.doc)) {
                let count = f64::from(posting.count);
                let score = rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean));
                let (sum, found) = scores.entry(posting.doc).or_default();
                *sum += score;
                *found += 1;
            }
        }
        // A section with more of the words ranks higher: one pair of characters alone says little.
        #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
        let asked = terms.len().max(1) as f64;
        let share = |(doc, (score, found)): (DocId, (f64, u32))| Match {
            doc,
            score: score * f64::from(found) / asked,
        };
        scores.into_iter().map(share).collect()
    }
}

/// The terms of a query, each once. Words that are in every question are left out, unless there are no others.
pub(crate) fn query_terms(query: &str) -> Vec<String> {
    let folded = fold(query);
    let mut terms: Vec<&str> = Vec::new();
    let mut fillers: Vec<&str> = Vec::new();
    for (kind, run) in runs(&folded) {
        match kind {
            Kind::Word if FILLERS.contains(&run) => fillers.push(run),
            Kind::Word => terms.push(stem(run)),
            // One character is asked for itself, more of them by their pairs.
            Kind::Unspaced if run.chars().nth(1).is_none() => terms.push(run),
            Kind::Unspaced => terms.extend(pairs(run)),
            Kind::Other => {}
        }
    }
    let mut seen = HashSet::new();
    let chosen = if terms.is_empty() { fillers.into_iter().map(stem).collect() } else { terms };
    chosen.into_iter().filter(|term| seen.insert(*term)).map(str::to_owned).collect()
}

/// The terms that folded text is found by.
fn for_each_term(folded: &str, mut each: impl FnMut(&str)) {
    for (kind, run) in runs(folded) {
        match kind {
            Kind::Word => each(stem(run)),
            Kind::Unspaced => {
                pairs(run).for_each(&mut each);
                run.char_indices().for_each(|(at, char)| each(&run[at..at + char.len_utf8()]));
            }
            Kind::Other => {}
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

/// A word without the ending that only says "more than one": `policies` and `policy` are one.
fn stem(word: &str) -> &str {
    const LONG_ENOUGH: usize = 4;

    if word.len() < LONG_ENOUGH || !word.is_ascii() {
        return word;
    }
    let word = match word.strip_suffix("ies") {
        Some(start) if start.len() >= 3 => return start,
        _ if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") => word,
        _ => word.strip_suffix('s').unwrap_or(word),
    };
    if word.len() < LONG_ENOUGH { word } else { word.strip_suffix('y').unwrap_or(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(texts: &[(&str, &str)]) -> Index {
        let mut index = Index::default();
        for (title, body) in texts {
            index.add(Words { title, context: "", body });
        }
        index
    }

    /// The documents found, best first.
    fn found(index: &Index, query: &str) -> Vec<DocId> {
        let mut found = index.search(&query_terms(query), |_| true);
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        found.into_iter().map(|one| one.doc).collect()
    }

    #[test]
    fn text_is_cut_into_words_and_pairs() {
        let mut terms = Vec::new();
        for_each_term(&fold("Ｗｅｂサーバの Settings_file: 2つ"), |term| terms.push(term.to_owned()));
        assert_eq!(
            terms,
            ["web", "サー", "ーバ", "バの", "サ", "ー", "バ", "の", "setting", "file", "2", "つ"]
        );
        assert_eq!(
            query_terms("再起動 再起動 bus Policies policy 鍵"),
            ["再起", "起動", "bus", "polic", "鍵"]
        );
        assert_eq!(query_terms("How do I open the door?"), ["open", "door"]);
        assert_eq!(query_terms("what is this"), ["what", "is", "this"]);
        assert_eq!(query_terms("!? …"), Vec::<String>::new());
    }

    #[test]
    fn a_plural_has_the_stem_of_its_singular() {
        for (one, more) in
            [("policy", "policies"), ("key", "keys"), ("file", "files"), ("city", "cities"), ("day", "days")]
        {
            assert_eq!(stem(one), stem(more));
        }
        for word in ["bus", "class", "status", "this", "is", "s", "日s"] {
            assert_eq!(stem(word), word);
        }
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
        assert_eq!((index.live, index.live_words), (1, 2));
        assert!(!index.is_mostly_dead());
    }
}
