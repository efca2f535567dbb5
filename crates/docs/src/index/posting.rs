//! Compact lists of the documents that contain a word, and how often.

use super::code::{Taker, put};
use super::segment::DocId;
use super::{BODY, FIELDS};

/// A document that contains a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) doc: DocId,
    /// Occurrences in each field, capped at 255.
    pub(super) counts: [u8; FIELDS],
}

/// The two lowest bits of a posting's first number encode its counts; most words occur once, in the body.
const ONCE_IN_BODY: u64 = 0;
const IN_BODY: u64 = 1;
const ANYWHERE: u64 = 2;

/// Postings sorted by document, encoded as bytes.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) bytes: Vec<u8>,
    /// How many documents contain the word.
    pub(super) documents: u32,
    last: DocId,
}

impl List {
    /// Empties it and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.documents, self.last) = (0, 0);
    }

    /// Adds a posting; documents must be added in order.
    pub(super) fn push(&mut self, Posting { doc, counts }: Posting) {
        let delta = u64::from(doc - self.last) << 2;
        match counts {
            [0, 0, 0, 1] => put(&mut self.bytes, delta | ONCE_IN_BODY),
            [0, 0, 0, count] => {
                put(&mut self.bytes, delta | IN_BODY);
                self.bytes.push(count);
            }
            counts => {
                put(&mut self.bytes, delta | ANYWHERE);
                let used = (0..FIELDS).filter(|field| counts[*field] > 0);
                self.bytes.push(used.clone().fold(0, |mask, field| mask | 1 << field));
                self.bytes.extend(used.map(|field| counts[field]));
            }
        }
        self.last = doc;
        self.documents += 1;
    }
}

/// Iterates over the bytes of a [`List`]. Their checksum was verified on reading, so invalid bytes just end
/// the iteration.
#[derive(Debug, Clone)]
pub(super) struct Postings<'a> {
    bytes: Taker<'a>,
    doc: DocId,
}

impl<'a> Postings<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes: Taker(bytes), doc: 0 }
    }
}

impl Iterator for Postings<'_> {
    type Item = Posting;

    #[inline]
    fn next(&mut self) -> Option<Posting> {
        // Most postings are a byte, or a byte and a count; without a branch, because which of them cannot be predicted.
        if let [first @ ..0x80, second, ..] = self.bytes.0
            && u64::from(first & 3) <= IN_BODY
        {
            let has_count = first & 1 == 1;
            let mut counts = [0; FIELDS];
            counts[BODY] = if has_count { *second } else { 1 };
            self.doc = self.doc.checked_add(DocId::from(first >> 2))?;
            self.bytes.0 = &self.bytes.0[1 + usize::from(has_count)..];
            return Some(Posting { doc: self.doc, counts });
        }
        let number = self.bytes.number().ok()?;
        self.doc = self.doc.checked_add(DocId::try_from(number >> 2).ok()?)?;
        let mut counts = [0; FIELDS];
        match number & 3 {
            ONCE_IN_BODY => counts[BODY] = 1,
            IN_BODY => [counts[BODY]] = self.bytes.array::<1>().ok()?,
            _ => {
                let [mask] = self.bytes.array::<1>().ok()?;
                let mut left = mask & ((1 << FIELDS) - 1);
                while left != 0 {
                    [counts[left.trailing_zeros() as usize]] = self.bytes.array::<1>().ok()?;
                    left &= left - 1;
                }
            }
        }
        Some(Posting { doc: self.doc, counts })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn postings_are_read_as_they_were_written(docs in prop::collection::btree_map(
            prop_oneof![any::<u32>(), 0..200_u32],
            prop_oneof![any::<[u8; FIELDS]>(), any::<u8>().prop_map(|count| [0, 0, 0, count]), Just([0, 0, 0, 1])],
            0..50,
        )) {
            let postings: Vec<_> = docs.into_iter().map(|(doc, counts)| Posting { doc, counts }).collect();
            let mut list = List::default();
            for posting in &postings {
                list.push(*posting);
            }
            prop_assert_eq!(list.documents as usize, postings.len());
            prop_assert_eq!(Postings::of(&list.bytes).collect::<Vec<_>>(), postings);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            Postings::of(&bytes).for_each(drop);
        }
    }
}
