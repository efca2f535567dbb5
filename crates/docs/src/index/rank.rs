//! Ranks the documents that match a query.
//!
//! A document's score is BM25 of all its fields as one text, and BM25 of each heading on top. What its title and those above
//! add is multiplied by the share of the query's words in them: one word of many says little about what a section is about.
//! For the same reason the sum is multiplied by a root of the share of the query's words in the document.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::posting::{Posting, Postings};
use super::segment::{
    BLOCK_TERMS, Broken, DocId, Live, SHAPE_BYTES, Segment, Term, Totals, compare_paths, letters,
};
use super::{BODY, FIELDS, PAGE};

/// The BM25 parameters: how quickly repeated words stop counting, and how much long texts are penalised.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// How much a word in each field counts as a word of the text, in halves.
const HALVES: [u32; FIELDS] = [2, 1, 1, 2];
/// What each field adds on its own. The titles of everything above say less than the section's own.
const EXTRA: [f64; FIELDS] = [1.0, 0.5, 1.0, 0.0];

/// A word in no document is replaced by similarly spelled ones. These are the minimum lengths for one
/// difference, and for two.
const ONE_TYPO_CHARS: usize = 4;
const TWO_TYPOS_CHARS: usize = 8;
/// The maximum number of such words.
const MOST_ALIKE: usize = 3;

/// Documents are scored in windows of this size, so that the scores stay in the processor's cache.
const WINDOW: DocId = 1024;
const WINDOW_DOCS: usize = WINDOW as usize;
/// For texts of up to this many half words, the length penalty is computed in advance.
const COMMON_LENGTH: u32 = 2048;

/// Segments, each with its live files.
pub(crate) type Parts = [(Arc<Segment>, Live)];

/// A matching document and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Match {
    /// The segment's position.
    pub(crate) part: usize,
    pub(crate) doc: DocId,
    pub(crate) score: f64,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    /// Best first; equal scores in the order of the files.
    pub(crate) best: Vec<Match>,
    /// How many documents contain as many of the words as the one that contains the most.
    pub(crate) total: u64,
}

/// The words of a query; a word that is in no document is replaced by similarly spelled ones.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    parts: &'a Parts,
    /// For each word, its alternatives.
    sought: Vec<Vec<Sought<'a>>>,
}

#[derive(Debug)]
struct Sought<'a> {
    term: String,
    /// How many documents contain it.
    documents: u32,
    /// Its postings in each part.
    lists: Vec<Cow<'a, [u8]>>,
}

impl<'a> Sought<'a> {
    fn new(parts: &'a Parts, term: &str) -> Result<Self, Broken> {
        let mut sought = Self { term: term.to_owned(), documents: 0, lists: Vec::new() };
        for (segment, live) in parts {
            let list = match segment.term(term)? {
                Some(Term { postings, mut documents, .. }) => {
                    let list = postings.read(&segment.blob)?;
                    if !live.is_whole() {
                        let live = Postings::of(&list).filter(|posting| live.has_doc(posting.doc));
                        documents = live.fold(0, |sum, _| sum + 1);
                    }
                    sought.documents += documents;
                    list
                }
                None => Cow::Borrowed(&[][..]),
            };
            sought.lists.push(list);
        }
        Ok(sought)
    }
}

impl<'a> Query<'a> {
    pub(crate) fn new(parts: &'a Parts, terms: &[String]) -> Result<Self, Broken> {
        let mut sought = Vec::with_capacity(terms.len());
        for term in terms {
            let exact = Sought::new(parts, term)?;
            sought.push(if exact.documents > 0 { vec![exact] } else { alike(parts, term)? });
        }
        Ok(Self { parts, sought })
    }

    /// The terms that are searched.
    pub(crate) fn terms(&self) -> Vec<String> {
        self.sought.iter().flatten().map(|sought| sought.term.clone()).collect()
    }

    /// The best `most` documents, within a folder if one is given.
    pub(crate) fn search(&self, folder: Option<&str>, most: usize) -> Matches {
        let totals = self.parts.iter().fold(Totals::default(), |sum, (_, live)| sum.and(&live.totals));
        let bm25 = Bm25::new(&totals);
        let mut total = 0;
        let mut best = Vec::new();
        for (part, (segment, live)) in self.parts.iter().enumerate() {
            let files = segment.files_below(folder);
            if files.is_empty() {
                continue;
            }
            let docs = segment.docs_in(files.start).start..segment.docs_in(files.end - 1).end;
            let found = self.search_part(part, docs, most, &bm25, &mut total);
            debug_assert!(found.iter().all(|(_, doc)| live.has_doc(*doc)), "removed documents are not found");
            best.extend(found.into_iter().map(|(score, doc)| Match { part, doc, score }));
        }
        let path = |one: &Match| {
            let segment = &self.parts[one.part].0;
            segment.file(segment.file_of(one.doc)).path
        };
        best.sort_by(|one, other| {
            let by_place = || compare_paths(path(one), path(other)).then(one.doc.cmp(&other.doc));
            other.score.total_cmp(&one.score).then_with(by_place)
        });
        best.truncate(most);
        Matches { best, total }
    }

    /// Searches one part. Its documents are numbered in the order of their files.
    fn search_part(
        &self,
        part: usize,
        docs: Range<DocId>,
        most: usize,
        bm25: &Bm25,
        total: &mut u64,
    ) -> Vec<(f64, DocId)> {
        let (segment, live) = &self.parts[part];
        let mut cursors: Vec<Vec<_>> = Vec::new();
        for alternatives in &self.sought {
            // Words in place of one count as one word: a rare one of them is not what was asked for.
            let rarity = bm25.rarity(alternatives.iter().map(|sought| sought.documents).sum());
            cursors.push(
                alternatives.iter().map(|sought| Cursor::new(sought, part, docs.start, rarity)).collect(),
            );
        }
        let is_whole = live.is_whole();
        let mut top = Top::new(most);
        let mut window = Window::new(self.sought.len());
        // Ends when no cursor has postings left.
        while let Some(start) =
            cursors.iter().flatten().filter_map(|cursor| cursor.next.map(|it| it.doc)).min()
        {
            if start >= docs.end {
                break;
            }
            let end = docs.end.min(start.saturating_add(WINDOW));
            for alternatives in &mut cursors {
                let is_one = alternatives.len() == 1;
                for cursor in alternatives.iter_mut() {
                    let rarity = cursor.rarity;
                    cursor.pass(end, |posting| {
                        if is_whole || live.has_doc(posting.doc) {
                            let score = bm25.score(rarity, posting, segment);
                            let slot = (posting.doc - start) as usize;
                            if is_one { window.add(slot, score) } else { window.offer(slot, score) }
                        }
                    });
                }
                if !is_one {
                    window.settle();
                }
            }
            window.drain(|slot, score| {
                *total += 1;
                top.push(score, start + slot);
            });
        }
        top.finish()
    }
}

/// An iterator over a word's postings with its current position.
struct Cursor<'a> {
    postings: Postings<'a>,
    next: Option<Posting>,
    rarity: f64,
}

impl<'a> Cursor<'a> {
    fn new(sought: &'a Sought<'_>, part: usize, from: DocId, rarity: f64) -> Self {
        let mut postings = Postings::of(&sought.lists[part]);
        let next = postings.find(|posting| posting.doc >= from);
        Self { postings, next, rarity }
    }

    /// Calls `each` with the postings of all documents before `end`. The position is copied, so that it can stay
    /// in registers.
    #[inline]
    fn pass(&mut self, end: DocId, mut each: impl FnMut(Posting)) {
        let mut postings = self.postings.clone();
        let mut next = self.next;
        while let Some(posting) = next.filter(|posting| posting.doc < end) {
            next = postings.next();
            each(posting);
        }
        (self.postings, self.next) = (postings, next);
    }
}

/// A document's score for a word. What headings add is apart: it depends on the other words.
#[derive(Debug, Clone, Copy, Default)]
struct Score {
    text: f64,
    headings: f64,
}

/// Scores documents for a word.
struct Bm25 {
    docs: f64,
    /// The mean length of a document's text, in half words.
    length: f64,
    /// The mean length of each field that is not empty.
    mean: [f64; FIELDS],
    /// Length penalties of texts by their length.
    norms: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "a score needs no more digits")]
impl Bm25 {
    fn new(totals: &Totals) -> Self {
        let mean =
            std::array::from_fn(|field| totals.words[field] as f64 / totals.fields[field].max(1) as f64);
        let docs = totals.docs as f64;
        let words = totals.words.iter().zip(HALVES).map(|(words, halves)| words * u64::from(halves));
        let length = words.sum::<u64>() as f64 / docs.max(1.0);
        let norms = (0..COMMON_LENGTH).map(|halves| norm(f64::from(halves), length)).collect();
        Self { docs, length, mean, norms }
    }

    fn rarity(&self, documents: u32) -> f64 {
        let documents = f64::from(documents).min(self.docs);
        ((self.docs - documents + 0.5) / (documents + 0.5)).ln_1p()
    }

    #[inline]
    fn score(&self, rarity: f64, posting: Posting, segment: &Segment) -> Score {
        let lengths = segment.lengths(posting.doc);
        let halves = |words: [u32; FIELDS]| -> u32 {
            words
                .into_iter()
                .zip(HALVES)
                .fold(0, |sum, (words, halves)| sum.saturating_add(words.saturating_mul(halves)))
        };
        let length = halves(lengths);
        let norm_of_text = match self.norms.get(length as usize) {
            Some(norm) => *norm,
            None => norm(f64::from(length), self.length),
        };
        let count = f64::from(halves(posting.counts.map(u32::from))) / 2.0;
        let mut text = rarity * saturated(count, norm_of_text);
        let mut headings = 0.0;
        if posting.counts[..BODY] != [0; BODY] {
            for field in (0..BODY).filter(|field| posting.counts[*field] > 0) {
                let norm = norm(f64::from(lengths[field]), self.mean[field]);
                let count = f64::from(posting.counts[field]);
                let extra = EXTRA[field] * rarity * saturated(count, norm);
                // All sections of a page have its title, so it says which page, and not which section.
                if field == PAGE { text += extra } else { headings += extra }
            }
        }
        Score { text, headings }
    }
}

fn saturated(count: f64, norm: f64) -> f64 {
    count * (K1 + 1.0) / (count + norm)
}

fn norm(length: f64, mean: f64) -> f64 {
    K1 * (1.0 - B + B * length / mean)
}

/// What the share of the query's words in a document multiplies its score by.
fn in_document(share: f64) -> f64 {
    share.sqrt().sqrt()
}

/// The scores of the documents in the current window.
struct Window {
    /// The share of the query's words, by their number.
    shares: Vec<f64>,
    sums: Vec<Sum>,
    /// Which of them have a score, one bit each.
    touched: [u64; WINDOW_DOCS / 64],
    /// The best score among the alternatives of the current word, which count as one word.
    best: Vec<Score>,
    offered: Vec<usize>,
}

/// The score so far.
#[derive(Clone, Copy, Default)]
struct Sum {
    score: Score,
    /// How many of the words are in the document, and in its headings.
    found: u32,
    titled: u32,
}

impl Window {
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    fn new(asked: usize) -> Self {
        Self {
            shares: (0..=asked).map(|words| words as f64 / asked.max(1) as f64).collect(),
            sums: vec![Sum::default(); WINDOW_DOCS],
            touched: [0; WINDOW_DOCS / 64],
            best: vec![Score::default(); WINDOW_DOCS],
            offered: Vec::new(),
        }
    }

    #[inline]
    fn add(&mut self, slot: usize, score: Score) {
        let sum = &mut self.sums[slot];
        sum.score.text += score.text;
        sum.score.headings += score.headings;
        sum.found += 1;
        sum.titled += u32::from(score.headings > 0.0);
        self.touched[slot / 64] |= 1 << (slot % 64);
    }

    fn offer(&mut self, slot: usize, score: Score) {
        let best = &mut self.best[slot];
        if best.text == 0.0 {
            self.offered.push(slot);
        }
        *best = Score { text: best.text.max(score.text), headings: best.headings.max(score.headings) };
    }

    /// Adds the current word's scores to the totals.
    fn settle(&mut self) {
        for slot in std::mem::take(&mut self.offered) {
            let score = std::mem::take(&mut self.best[slot]);
            self.add(slot, score);
        }
    }

    /// Reports the scores and resets the window.
    fn drain(&mut self, mut each: impl FnMut(DocId, f64)) {
        for (word, first) in (0..self.touched.len()).zip((0..).step_by(64)) {
            let mut bits = std::mem::take(&mut self.touched[word]);
            while bits != 0 {
                let place = first + bits.trailing_zeros();
                bits &= bits - 1;
                let Sum { score, found, titled } = std::mem::take(&mut self.sums[place as usize]);
                let score = score.text + score.headings * self.shares[titled as usize];
                each(place, score * in_document(self.shares[found as usize]));
            }
        }
    }
}

/// The best matches. Documents arrive in order, and of equal scores the earlier ones stay.
struct Top {
    most: usize,
    items: Vec<(f64, DocId)>,
    /// Lower or equal scores are not among the best.
    least: f64,
}

impl Top {
    fn new(most: usize) -> Self {
        Self { most, items: Vec::new(), least: f64::NEG_INFINITY }
    }

    #[inline]
    fn push(&mut self, score: f64, doc: DocId) {
        if score > self.least {
            self.items.push((score, doc));
            if self.items.len() >= 2 * self.most + 64 {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if self.most == 0 {
            self.items.clear();
        } else if self.items.len() > self.most {
            self.items.select_nth_unstable_by(self.most - 1, compare);
            self.items.truncate(self.most);
            self.least = self.items[self.most - 1].0;
        }
    }

    fn finish(mut self) -> Vec<(f64, DocId)> {
        self.cut();
        self.items
    }
}

fn compare(one: &(f64, DocId), other: &(f64, DocId)) -> Ordering {
    other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
}

/// The most similar terms for one that does not exist; of those, the most frequent ones.
fn alike<'a>(parts: &'a Parts, term: &str) -> Result<Vec<Sought<'a>>, Broken> {
    let most = match term.len() {
        _ if !term.bytes().all(|byte| byte.is_ascii_lowercase()) => return Ok(Vec::new()),
        TWO_TYPOS_CHARS.. => 2,
        ONE_TYPO_CHARS.. => 1,
        _ => return Ok(Vec::new()),
    };
    let wanted = letters(term);
    let mut near: Vec<(usize, String)> = Vec::new();
    for (segment, _) in parts {
        let shapes = segment.shapes.read(&segment.blob)?;
        let mut block = (usize::MAX, Vec::new());
        for (place, shape) in shapes.chunks_exact(SHAPE_BYTES).enumerate() {
            // The letters rule out most terms without a full comparison.
            let letters = u32::from_le_bytes([shape[0], shape[1], shape[2], shape[3]]);
            if usize::from(shape[4]).abs_diff(term.len()) > most
                || (letters ^ wanted).count_ones() as usize > 2 * most
            {
                continue;
            }
            if block.0 != place / BLOCK_TERMS {
                block = (place / BLOCK_TERMS, segment.block(place / BLOCK_TERMS)?);
            }
            let Some(other) = block.1.get(place % BLOCK_TERMS) else { continue };
            let typos = strsim::osa_distance(term, &other.text);
            if typos <= most && !near.iter().any(|(_, known)| *known == other.text) {
                near.push((typos, other.text.clone()));
            }
        }
    }
    near.sort_unstable();
    let mut alike: Vec<(usize, Sought<'a>)> = Vec::new();
    for (typos, other) in near {
        if alike.first().is_some_and(|(fewest, _)| *fewest < typos) {
            break;
        }
        let sought = Sought::new(parts, &other)?;
        if sought.documents > 0 {
            alike.push((typos, sought));
        }
    }
    // Terms arrive in alphabetical order; the sort is stable, so ties keep it.
    alike.sort_by_key(|(_, sought)| std::cmp::Reverse(sought.documents));
    alike.truncate(MOST_ALIKE);
    Ok(alike.into_iter().map(|(_, sought)| sought).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Blob, Doc, Draft, Mark, NewDoc, NewFile};
    use super::*;
    use crate::term::query_terms;

    /// Indexes each text as a separate file.
    fn index(texts: &[(&str, &str)]) -> Vec<(Arc<Segment>, Live)> {
        let mut draft = Draft::default();
        for (place, (title, body)) in texts.iter().enumerate() {
            let doc = Doc { section: None, title: String::new(), parent: None, body: 0..body.len() };
            let docs = vec![NewDoc { doc, title: (*title).to_owned(), context: String::new() }];
            let mark = Mark::default();
            let path = format!("m/{place:04}.md");
            draft.add(NewFile { path, mark, is_settled: true, title: String::new(), docs }, body);
        }
        let mut bytes = Vec::new();
        draft.write(&mut bytes, "").unwrap();
        let segment = Segment::open(Blob::Memory(bytes), "").unwrap();
        let live = Live::all(&segment);
        vec![(Arc::new(segment), live)]
    }

    /// The documents found, best first.
    fn found(index: &Parts, query: &str) -> Vec<DocId> {
        let query = Query::new(index, &query_terms(query)).unwrap();
        query.search(None, 100).best.into_iter().map(|one| one.doc).collect()
    }

    /// Every document, scored one by one.
    fn all_ranked(index: &Parts, query: &str) -> Vec<(DocId, f64)> {
        let query = Query::new(index, &query_terms(query)).unwrap();
        let (segment, live) = &index[0];
        let bm25 = Bm25::new(&live.totals);
        let asked = f64::from(u32::try_from(query.sought.len()).unwrap());
        let mut ranked = Vec::new();
        for doc in (0..u32::try_from(live.totals.docs).unwrap() + 10).filter(|doc| live.has_doc(*doc)) {
            let (mut sum, mut found, mut titled) = (Score::default(), 0.0, 0.0);
            for alternatives in &query.sought {
                let rarity = bm25.rarity(alternatives.iter().map(|sought| sought.documents).sum());
                let postings = alternatives
                    .iter()
                    .filter_map(|sought| Postings::of(&sought.lists[0]).find(|posting| posting.doc == doc));
                let scores: Vec<_> = postings.map(|posting| bm25.score(rarity, posting, segment)).collect();
                let headings = scores.iter().map(|score| score.headings).fold(0.0, f64::max);
                sum.text += scores.iter().map(|score| score.text).fold(0.0, f64::max);
                sum.headings += headings;
                found += f64::from(u8::from(!scores.is_empty()));
                titled += f64::from(u8::from(headings > 0.0));
            }
            if found > 0.0 {
                let score = sum.text + sum.headings * (titled / asked);
                ranked.push((doc, score * in_document(found / asked)));
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
            removed in proptest::collection::vec(0..60_u32, 0..5),
        ) {
            let texts: Vec<_> = texts.iter().map(|(title, body)| (title.as_str(), body.as_str())).collect();
            let mut index = index(&texts);
            let (segment, live) = &mut index[0];
            for file in removed.into_iter().filter(|file| *file < segment.file_count()) {
                live.bury(segment, file);
            }
            let want = all_ranked(&index, &query);
            let got = Query::new(&index, &query_terms(&query)).unwrap().search(None, most);
            let got: Vec<_> = got.best.into_iter().map(|one| (one.doc, one.score)).collect();
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
        assert_eq!(Query::new(&index, &query_terms("send")).unwrap().terms(), ["send"]);
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
        let (segment, live) = &mut index[0];
        live.bury(segment, 0);
        live.bury(segment, 0);
        assert_eq!(found(&index, "lock"), [1]);
        assert_eq!(found(&index, "one"), Vec::<DocId>::new());
        let totals = index[0].1.totals;
        assert_eq!((totals.docs, totals.words), (1, [0, 0, 0, 2]));
    }
}
