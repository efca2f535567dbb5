//! Which sections contain a term, and how often, as few bytes.

use super::{BODY, DocId, FIELDS};

/// A section that contains a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) doc: DocId,
    /// Occurrences in each field, capped at 255.
    pub(super) counts: [u8; FIELDS],
}

/// Most terms of a section occur once, in its body.
const ONCE: [u8; FIELDS] = [0, 0, 0, 1];
/// With a bit for each field in which it occurs.
const ONCE_EACH: u8 = 0xe0;
const COUNTED: u8 = 0xf0;

/// Writes postings as bytes: as numbers they would be larger than the text.
///
/// Each begins with its distance from the one before, and whether it occurs [once](ONCE). If not, a byte says how often: the
/// count in the body, or the fields in which it occurs once each, or the fields whose counts follow.
pub(super) fn put(bytes: &mut Vec<u8>, last: DocId, Posting { doc, counts }: Posting) {
    let mut number = u64::from(doc - last) << 1 | u64::from(counts != ONCE);
    // Seven bits per byte, lowest first; the highest bit is set if more follow.
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    match counts {
        ONCE => {}
        [0, 0, 0, count @ ..ONCE_EACH] => bytes.push(count),
        counts => {
            let used = (0..FIELDS).filter(|field| counts[*field] > 0);
            let fields = used.clone().fold(0, |bits, field| bits | 1 << field);
            if counts.iter().all(|count| *count <= 1) {
                bytes.push(ONCE_EACH | fields);
            } else {
                bytes.push(COUNTED | fields);
                bytes.extend(used.map(|field| counts[field]));
            }
        }
    }
}

/// Reads the postings that were [written](put) one after the other.
#[derive(Debug)]
pub(super) struct Postings<'a> {
    bytes: &'a [u8],
    doc: DocId,
}

impl<'a> Postings<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, doc: 0 }
    }
}

impl Postings<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }
}

impl Iterator for Postings<'_> {
    type Item = Posting;

    #[inline]
    fn next(&mut self) -> Option<Posting> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        self.doc += DocId::try_from(number >> 1).ok()?;
        let mut counts = ONCE;
        if number & 1 == 1 {
            counts[BODY] = self.byte()?;
            if counts[BODY] >= ONCE_EACH {
                let how = std::mem::take(&mut counts[BODY]);
                for field in (0..FIELDS).filter(|field| how >> field & 1 == 1) {
                    counts[field] = if how >= COUNTED { self.byte()? } else { 1 };
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
            prop_oneof![any::<[u8; FIELDS]>(), prop::array::uniform4(0..2_u8), any::<u8>().prop_map(|count| [0, 0, 0, count]), Just(ONCE)],
            0..50,
        )) {
            let postings: Vec<_> = docs.into_iter().map(|(doc, counts)| Posting { doc, counts }).collect();
            let (mut bytes, mut last) = (Vec::new(), 0);
            for posting in &postings {
                put(&mut bytes, last, *posting);
                last = posting.doc;
            }
            prop_assert_eq!(Postings::of(&bytes).collect::<Vec<_>>(), postings);
        }
    }
}
