//! The handle of a kept result.

use std::fmt;

use uuid::Uuid;

/// The prefix of every handle, by which an unknown handle is recognised.
const PREFIX: &str = "parked:";
/// Digits that are not easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Enough for 128 bits.
const LENGTH: usize = 26;

/// A name that cannot be guessed: 122 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle(u128);

impl Handle {
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4().as_u128())
    }

    /// Whether a text may contain a handle.
    pub(crate) fn may_be_in(text: &str) -> bool {
        text.contains(PREFIX)
    }

    /// Parses a handle; `None` if the text is anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        if digits.len() != LENGTH {
            return None;
        }
        let value = |value: u128, byte: u8| {
            let digit = DIGITS.iter().position(|digit| *digit == byte)?;
            Some(value << 5 | digit as u128)
        };
        digits.bytes().try_fold(0, value).map(Self)
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for place in (0..LENGTH).rev() {
            let digit = (self.0 >> (place * 5)) as usize % DIGITS.len();
            write!(f, "{}", char::from(DIGITS[digit]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_can_be_parsed_and_is_distinguished_from_other_text() {
        for handle in [Handle::new(), Handle(0), Handle(u128::MAX)] {
            assert_eq!(Handle::parse(&handle.to_string()), Some(handle));
        }
        assert_ne!(Handle::new(), Handle::new());
        let long = format!("{}0", Handle(7));
        for text in ["", "parked:", "parked:0", &long, "see parked:", "parked:0000000000000000000000000o"] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
