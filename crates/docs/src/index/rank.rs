//! Ranks the sections that match a query.
//!
//! A section's score is BM25 of all its fields as one text, and BM25 of each heading on top. What its title and those above
//! add is multiplied by the share of the query's words in them: one word of many says little about what a section is about.
//! For the same reason the sum is multiplied by a root of the share of the query's words in the section.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use super::posting::Posting;
use super::terms::TermId;
use super::{BODY, Doc, DocId, FIELDS, Index, Mark, PAGE, number};
use crate::path::RelPath;

/// The BM25 parameters: how quickly repeated words stop counting, and how much long texts are penalised.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// How much a word in each field counts as a word of the text, in halves.
const HALVES: [u32; FIELDS] = [2, 1, 1, 2];
/// What each field adds on its own. The titles of everything above say less than the section's own.
const EXTRA: [f64; FIELDS] = [1.0, 0.5, 1.0, 0.0];

/// A word in no section is replaced by similarly spelled ones. These are the minimum lengths for one
/// difference, and for two.
const ONE_TYPO_CHARS: usize = 4;
const TWO_TYPOS_CHARS: usize = 8;
/// The maximum number of such words.
const MOST_ALIKE: usize = 3;

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Matches {
    /// Best first; equal scores in the order of the files.
    pub(crate) best: Vec<Match>,
    /// How many sections contain one of the words.
    pub(crate) total: usize,
    /// The terms that were searched, after typing errors were replaced.
    pub(crate) terms: Vec<String>,
}

/// A section that matches.
#[derive(Debug, Clone)]
pub(crate) struct Match {
    pub(crate) path: RelPath,
    /// What its file was when it was read.
    pub(crate) mark: Mark,
    /// Its position in the file.
    pub(crate) section: usize,
    /// The title from the file's front matter; empty if there is none.
    pub(crate) page: Box<str>,
    pub(crate) score: f64,
}

/// A term that is searched.
#[derive(Debug, Clone, Copy)]
struct Sought {
    term: TermId,
    /// How many sections contain it.
    docs: usize,
}

impl Index {
    /// The best `most` sections, within a folder if one is given.
    pub(crate) fn search(&self, terms: &[String], folder: Option<&RelPath>, most: usize) -> Matches {
        let sought: Vec<_> = terms.iter().map(|term| self.sought(term)).collect();
        let bm25 = Bm25::new(self);
        let places = self.places(folder);
        let is_within = |doc: &Doc| {
            doc.is_live && (folder.is_none() || places.contains(&self.files[doc.file as usize].place))
        };
        let mut sums = vec![Sum::default(); self.docs.len()];
        for alternatives in &sought {
            // Words in place of one count as one word: a rare one of them is not what was asked for.
            let rarity = bm25.rarity(alternatives.iter().map(|sought| sought.docs).sum());
            let mut best = BTreeMap::<DocId, Score>::new();
            for posting in alternatives.iter().flat_map(|sought| self.postings(sought.term)) {
                let doc = &self.docs[posting.doc as usize];
                if !is_within(doc) {
                    continue;
                }
                let score = bm25.score(rarity, posting, doc);
                if alternatives.len() == 1 {
                    sums[posting.doc as usize].add(score);
                } else {
                    best.entry(posting.doc).or_default().raise(score);
                }
            }
            for (doc, score) in best {
                sums[doc as usize].add(score);
            }
        }
        let asked = sought.len().max(1);
        let found = (0..).zip(&sums).filter(|(_, sum)| sum.found > 0);
        let found: Vec<(DocId, f64)> = found.map(|(doc, sum)| (doc, sum.score(asked))).collect();
        let total = found.len();
        let terms = sought.iter().flatten().map(|sought| self.terms.get(sought.term).to_owned()).collect();
        let best = self.best(found, most).into_iter().map(|(doc, score)| self.matched(doc, score)).collect();
        Matches { best, total, terms }
    }

    fn best(&self, mut found: Vec<(DocId, f64)>, most: usize) -> Vec<(DocId, f64)> {
        let place = |doc: DocId| (self.files[self.docs[doc as usize].file as usize].place, doc);
        let compare = |one: &(DocId, f64), other: &(DocId, f64)| -> Ordering {
            other.1.total_cmp(&one.1).then_with(|| place(one.0).cmp(&place(other.0)))
        };
        if most < found.len() {
            found.select_nth_unstable_by(most, compare);
            found.truncate(most);
        }
        found.sort_unstable_by(compare);
        found
    }

    fn matched(&self, doc: DocId, score: f64) -> Match {
        let file = &self.files[self.docs[doc as usize].file as usize];
        let section = (doc - file.docs.start) as usize;
        Match { path: file.path.clone(), mark: file.mark, section, page: file.title.clone(), score }
    }

    /// The places of the files in a folder, or of all.
    fn places(&self, folder: Option<&RelPath>) -> Range<u32> {
        let Some(folder) = folder else { return 0..number(self.order.len()) };
        let path = |file: &u32| &self.files[*file as usize].path;
        let start = self.order.partition_point(|file| path(file) < folder);
        let count = self.order[start..].partition_point(|file| path(file).is_at_or_below(folder));
        number(start)..number(start + count)
    }

    /// The term, or similar ones if it is in no section.
    fn sought(&self, text: &str) -> Vec<Sought> {
        let exact = self.terms.find(text).and_then(|term| self.living(term));
        exact.map_or_else(|| self.alike(text), |exact| vec![exact])
    }

    /// The term, if a section contains it.
    fn living(&self, term: TermId) -> Option<Sought> {
        let postings = self.postings(term);
        let docs = postings.filter(|posting| self.docs[posting.doc as usize].is_live).count();
        (docs > 0).then_some(Sought { term, docs })
    }

    /// The most similar terms for one that does not exist; of those, the most frequent ones.
    fn alike(&self, text: &str) -> Vec<Sought> {
        let most = match text.len() {
            _ if !text.bytes().all(|byte| byte.is_ascii_lowercase()) => return Vec::new(),
            TWO_TYPOS_CHARS.. => 2,
            ONE_TYPO_CHARS.. => 1,
            _ => return Vec::new(),
        };
        let wanted = letters(text);
        let mut near: Vec<(usize, &str, TermId)> = Vec::new();
        for (id, other) in (0..).zip(self.terms.iter()) {
            // The letters rule out most terms without a full comparison.
            let may_be = other.len().abs_diff(text.len()) <= most
                && (letters(other) ^ wanted).count_ones() as usize <= 2 * most;
            if may_be
                && let typos = strsim::osa_distance(text, other)
                && typos <= most
            {
                near.push((typos, other, id));
            }
        }
        near.sort_unstable();
        let mut alike: Vec<(usize, Sought)> =
            near.into_iter().filter_map(|(typos, _, id)| Some((typos, self.living(id)?))).collect();
        let fewest = alike.first().map_or(0, |(typos, _)| *typos);
        alike.retain(|(typos, _)| *typos == fewest);
        // They are in alphabetical order, which the sort keeps for those that are equally frequent.
        alike.sort_by_key(|(_, sought)| std::cmp::Reverse(sought.docs));
        alike.truncate(MOST_ALIKE);
        alike.into_iter().map(|(_, sought)| sought).collect()
    }
}

/// The letters of a word, one bit each.
fn letters(word: &str) -> u32 {
    word.bytes().fold(0, |bits, byte| bits | 1 << (byte & 31))
}

/// A section's score for a word. What headings add is apart: it depends on the other words.
#[derive(Debug, Clone, Copy, Default)]
struct Score {
    text: f64,
    headings: f64,
}

impl Score {
    fn raise(&mut self, other: Self) {
        *self = Self { text: self.text.max(other.text), headings: self.headings.max(other.headings) };
    }
}

/// A section's score for the words so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    score: Score,
    /// How many of the words are in the section, and in its headings.
    found: u32,
    titled: u32,
}

impl Sum {
    #[inline]
    fn add(&mut self, score: Score) {
        self.score.text += score.text;
        self.score.headings += score.headings;
        self.found += 1;
        self.titled += u32::from(score.headings > 0.0);
    }

    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    fn score(&self, asked: usize) -> f64 {
        let share = |words: u32| f64::from(words) / asked as f64;
        let score = self.score.text + self.score.headings * share(self.titled);
        score * share(self.found).sqrt().sqrt()
    }
}

/// Scores sections for a word.
struct Bm25 {
    docs: f64,
    /// The mean length of a section's text, in half words.
    length: f64,
    /// The mean length of each field that is not empty.
    mean: [f64; FIELDS],
}

#[expect(clippy::cast_precision_loss, reason = "a score needs no more digits")]
impl Bm25 {
    fn new(index: &Index) -> Self {
        // How many words each field has, and how many sections have it.
        let (mut docs, mut words, mut fields) = (0, [0_u64; FIELDS], [0_u64; FIELDS]);
        for doc in index.docs.iter().filter(|doc| doc.is_live) {
            docs += 1;
            for (field, length) in doc.words().into_iter().enumerate() {
                words[field] += u64::from(length);
                fields[field] += u64::from(length > 0);
            }
        }
        let mean = std::array::from_fn(|field| words[field] as f64 / fields[field].max(1) as f64);
        let halves: u64 = words.iter().zip(HALVES).map(|(words, halves)| words * u64::from(halves)).sum();
        let docs = f64::from(docs);
        Self { docs, length: halves as f64 / docs.max(1.0), mean }
    }

    fn rarity(&self, docs: usize) -> f64 {
        let docs = (docs as f64).min(self.docs);
        ((self.docs - docs + 0.5) / (docs + 0.5)).ln_1p()
    }

    #[inline]
    fn score(&self, rarity: f64, posting: Posting, doc: &Doc) -> Score {
        let words = doc.words();
        let halves = |words: [u32; FIELDS]| {
            words
                .into_iter()
                .zip(HALVES)
                .fold(0_u32, |sum, (words, halves)| sum.saturating_add(words.saturating_mul(halves)))
        };
        let count = f64::from(halves(posting.counts.map(u32::from))) / 2.0;
        let mut text = rarity * saturated(count, f64::from(halves(words)), self.length);
        let mut headings = 0.0;
        for field in (0..BODY).filter(|field| posting.counts[*field] > 0) {
            let count = f64::from(posting.counts[field]);
            let extra = EXTRA[field] * rarity * saturated(count, f64::from(words[field]), self.mean[field]);
            // All sections of a page have its title, so it says which page, and not which section.
            if field == PAGE { text += extra } else { headings += extra }
        }
        Score { text, headings }
    }
}

/// How much a number of words counts in a text of this length: less and less, and less in a longer one.
fn saturated(count: f64, length: f64, mean: f64) -> f64 {
    count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean))
}

#[cfg(test)]
mod tests {
    use super::super::Draft;
    use super::*;
    use crate::term::query_terms;

    /// Indexes each text as a separate file.
    fn index(texts: &[(&str, &str)]) -> Index {
        let mut draft = Draft::default();
        for (place, (title, body)) in texts.iter().enumerate() {
            draft.index([title, "", "", body]);
            draft.end_file(RelPath::parse(&format!("m/{place:04}.md")).unwrap(), Mark::default(), true, "");
        }
        let mut index = Index::default();
        index.add(draft);
        index.arrange(0);
        index
    }

    /// The sections found, best first.
    fn found(index: &Index, query: &str) -> Vec<DocId> {
        let best = index.search(&query_terms(query), None, 100).best;
        best.into_iter().map(|one| one.path.name()[..4].parse().unwrap()).collect()
    }

    /// Every section, scored one by one.
    fn all_ranked(index: &Index, query: &str) -> Vec<(String, f64)> {
        let sought: Vec<_> = query_terms(query).iter().map(|term| index.sought(term)).collect();
        let bm25 = Bm25::new(index);
        let mut ranked = Vec::new();
        for (number, doc) in (0..).zip(&index.docs).filter(|(_, doc)| doc.is_live) {
            let mut sum = Sum::default();
            for alternatives in &sought {
                let rarity = bm25.rarity(alternatives.iter().map(|sought| sought.docs).sum());
                let postings = alternatives
                    .iter()
                    .filter_map(|sought| index.postings(sought.term).find(|posting| posting.doc == number));
                let scores = postings.map(|posting| bm25.score(rarity, posting, doc));
                let raised = |one: Score, other: Score| Score {
                    text: one.text.max(other.text),
                    headings: one.headings.max(other.headings),
                };
                if let Some(best) = scores.reduce(raised) {
                    sum.add(best);
                }
            }
            if sum.found > 0 {
                ranked.push((format!("m/{number:04}.md"), sum.score(sought.len())));
            }
        }
        ranked.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        ranked
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn the_best_are_those_of_scoring_every_document(
            texts in proptest::collection::vec(("(lock |key |door )?", "((lock|key|keys|door|doors|it) ){0,9}"), 1..60),
            query in "((lock|key|door|dooor|none) ){1,4}",
            most in 0..20_usize,
            removed in proptest::collection::btree_set(0..60_u32, 0..5),
        ) {
            let texts: Vec<_> = texts.iter().map(|(title, body)| (title.as_str(), body.as_str())).collect();
            let mut index = index(&texts);
            index.bury(removed.into_iter().filter(|file| (*file as usize) < index.files.len()).collect());
            let want = all_ranked(&index, &query);
            let got = index.search(&query_terms(&query), None, most);
            proptest::prop_assert_eq!(got.total, want.len());
            let got: Vec<_> = got.best.into_iter().map(|one| (one.path.as_str().to_owned(), one.score)).collect();
            proptest::prop_assert_eq!(got, &want[..most.min(want.len())]);
        }
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
    fn a_word_in_no_document_is_replaced_by_similar_ones() {
        let index = index(&[("Receive messages", ""), ("Send messages", ""), ("Environment", "")]);
        assert_eq!(found(&index, "recieve"), [0]);
        assert_eq!(found(&index, "enviroment"), [2]);
        assert_eq!(found(&index, "massages").len(), 2);
        // Short words, numbers and words without a similar one are kept as they are.
        for query in ["sen", "1234", "lorry", "日本"] {
            assert_eq!(found(&index, query), Vec::<DocId>::new(), "{query}");
        }
        // An existing word is not replaced.
        assert_eq!(index.search(&query_terms("send"), None, 1).terms, ["send"]);
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
    fn a_word_that_is_rare_in_titles_counts_more_there() {
        let filler = [("", "lock"), ("", "lock"), ("", "lock"), ("", "it"), ("", "it")];
        let index = index(&[&filler[..], &[("", "lock lock lock"), ("Lock", "it")]].concat());
        assert_eq!(found(&index, "lock")[0], 6);
    }

    #[test]
    fn a_heading_counts_by_the_share_of_the_words_in_it() {
        let index = index(&[("Lock", "it"), ("", "turn the brass key in it"), ("", "it"), ("", "it")]);
        assert_eq!(found(&index, "lock")[0], 0);
        assert_eq!(found(&index, "turn brass key lock"), [1, 0]);
    }

    #[test]
    fn words_in_place_of_one_are_as_rare_as_all_of_them() {
        let index = index(&[("", "lock it"), ("", "lock it"), ("", "loch it"), ("", "it"), ("", "it")]);
        assert_eq!(found(&index, "locj"), [0, 1, 2]);
    }

    #[test]
    fn rare_words_short_texts_and_titles_count_more() {
        let long = format!("lock {}", "filler ".repeat(200));
        let index = index(&[("", &long), ("", "lock it"), ("Lock", "it"), ("", "it"), ("", "it key")]);
        assert_eq!(found(&index, "lock"), [2, 1, 0]);
        // Rare in texts; in titles both words are.
        let place = |doc| found(&index, "lock key").iter().position(|found| *found == doc);
        assert!(place(4) < place(1) && place(1) < place(0));
    }

    #[test]
    fn what_was_removed_is_not_found_and_does_not_count() {
        let mut index = index(&[("", "lock one"), ("", "lock two")]);
        index.bury(vec![0]);
        assert_eq!(found(&index, "lock"), [1]);
        assert_eq!(found(&index, "one"), Vec::<DocId>::new());
        let bm25 = Bm25::new(&index);
        assert_eq!((bm25.docs.to_bits(), bm25.length.to_bits()), (1_f64.to_bits(), 4_f64.to_bits()));
    }

    #[test]
    fn a_folder_is_not_one_whose_name_begins_alike() {
        let mut draft = Draft::default();
        for path in ["m-1/a.md", "m/a.md", "m/b/c.md", "m0/a.md", "a.md"] {
            draft.index(["lock", "", "", ""]);
            draft.end_file(RelPath::parse(path).unwrap(), Mark::default(), true, "");
        }
        let mut index = Index::default();
        index.add(draft);
        index.arrange(0);
        for (folder, want) in [("m", 2), ("m-1", 1), ("m0", 1), ("m/b", 1), ("none", 0)] {
            let folder = RelPath::parse(folder).unwrap();
            assert_eq!(index.search(&query_terms("lock"), Some(&folder), 9).total, want, "{folder:?}");
        }
    }
}
