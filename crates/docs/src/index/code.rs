//! Variable-length encoding of numbers and texts: small numbers take few bytes.

use super::segment::Broken;

/// Seven bits per byte, lowest first; the highest bit is set if more bytes follow.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Decodes numbers and texts from bytes. Invalid input returns `Broken` and never panics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taker<'a>(pub(super) &'a [u8]);

impl<'a> Taker<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Broken> {
        // Fast path: most numbers fit in one byte.
        if let [byte @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let [byte] = self.array::<1>()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Broken)?;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Broken> {
        T::try_from(self.number()?).map_err(|_| Broken)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Broken)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Broken> {
        let count = self.small()?;
        std::str::from_utf8(self.bytes(count)?).map_err(|_| Broken)
    }
}
