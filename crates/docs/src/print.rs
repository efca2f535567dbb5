//! Fingerprints of sections: a reference contains one besides the line, to recognise the section.

use std::fmt;
use std::str::FromStr;

/// Digits without look-alikes.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BITS: u32 = 5;
const TEXT_DIGITS: u32 = 6;
const HEADING_DIGITS: u32 = 3;

/// A section's fingerprint: of its text, subsections included, and of the titles above it. It is short
/// because a model has to repeat it, and long enough to tell the sections of one file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Print {
    pub(crate) text: u32,
    pub(crate) heading: u32,
}

impl Print {
    pub(crate) fn new(text: Hash, heading: Hash) -> Self {
        Self { text: text.digits(TEXT_DIGITS), heading: heading.digits(HEADING_DIGITS) }
    }
}

impl fmt::Display for Print {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u64::from(self.text) << (HEADING_DIGITS * BITS) | u64::from(self.heading);
        (0..TEXT_DIGITS + HEADING_DIGITS).rev().try_for_each(|place| {
            let digit = number >> (place * BITS) & ((1 << BITS) - 1);
            write!(f, "{}", char::from(DIGITS[usize::try_from(digit).unwrap_or_default()]))
        })
    }
}

impl FromStr for Print {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_whole = text.len() == (TEXT_DIGITS + HEADING_DIGITS) as usize;
        let number = text.bytes().try_fold(0_u64, |number, byte| {
            let digit = DIGITS.iter().position(|digit| *digit == byte)?;
            Some(number << BITS | digit as u64)
        });
        let part = |number: u64| u32::try_from(number).map_err(|_| ());
        let number = number.filter(|_| is_whole).ok_or(())?;
        let heading = number & ((1 << (HEADING_DIGITS * BITS)) - 1);
        Ok(Self { text: part(number >> (HEADING_DIGITS * BITS))?, heading: part(heading)? })
    }
}

/// FNV-1a: references outlive a process, and the standard library's hashers may change with each version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) const START: Self = Self(0xcbf2_9ce4_8422_2325);

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::START.with(bytes)
    }

    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    fn digits(self, digits: u32) -> u32 {
        let bits = digits * BITS;
        // The upper half is mixed better.
        u32::try_from((self.0 ^ self.0 >> 32) & ((1 << bits) - 1)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_print_is_nine_characters_that_can_be_read_again() {
        let print = Print::new(Hash::of(b"a"), Hash::of(b"b"));
        let shown = print.to_string();
        assert_eq!((shown.len(), shown.parse()), (9, Ok(print)));
        assert_eq!(Print { text: 0, heading: 0 }.to_string(), "000000000");
        for text in ["", "00000000", "0000000000", "00000000A", "00000000o", "00000000é"] {
            assert!(text.parse::<Print>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_hash_is_the_one_that_everybody_knows() {
        assert_eq!(Hash::of(b"foobar"), Hash(0x8594_4171_f739_67e8));
    }
}
