//! The terms of an index, numbered.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::number;

/// A term's number, in the order in which terms were first seen.
pub(super) type TermId = u32;

/// All terms in one text: most occur once, so that anything else would be larger than they are.
#[derive(Debug, Default)]
pub(super) struct Terms {
    text: String,
    /// Where each term ends in the text.
    ends: Vec<u32>,
    ids: HashTable<TermId>,
    hasher: DefaultHashBuilder,
}

impl Terms {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: TermId) -> &str {
        term(&self.text, &self.ends, id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..number(self.len())).map(|id| self.get(id))
    }

    pub(super) fn find(&self, text: &str) -> Option<TermId> {
        self.ids.find(self.hasher.hash_one(text), |id| self.get(*id) == text).copied()
    }

    /// The number of a term, which is added if it is new.
    pub(super) fn intern(&mut self, text: &str) -> TermId {
        if let Some(id) = self.find(text) {
            return id;
        }
        let id = number(self.len());
        self.text.push_str(text);
        self.ends.push(number(self.text.len()));
        let (hasher, all, ends) = (&self.hasher, &self.text, &self.ends);
        self.ids.insert_unique(hasher.hash_one(text), id, |id| hasher.hash_one(term(all, ends, *id)));
        id
    }

    pub(super) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

#[inline]
fn term<'a>(text: &'a str, ends: &[u32], id: TermId) -> &'a str {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &text[start as usize..ends[id] as usize]
}
