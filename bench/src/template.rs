//! A message that differs from call to call only in the call's id.

use anyhow::{Result, ensure};

/// All ids have as many digits as this one, so that they are always at the same offsets.
pub(crate) const FIRST_ID: u32 = 10_000_000;

const ID_BYTES: usize = 8;

/// How many bytes at the end are checked each time.
const TAIL_BYTES: usize = 32;

/// A message, and the offsets of the id in it: in the envelope, and in the payload, so that the answer to
/// another call is never accepted.
#[derive(Default)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Template {
    /// A message of the call with this id.
    pub(crate) fn new(bytes: Vec<u8>, id: u32) -> Self {
        let digits = id.to_string();
        let windows = bytes.windows(ID_BYTES).enumerate();
        let places = windows.filter(|(_, window)| *window == digits.as_bytes()).map(|(place, _)| place);
        let places = places.collect();
        Self { bytes, places }
    }

    /// The message with another id.
    pub(crate) fn with(&mut self, id: u32) -> &[u8] {
        let digits = id.to_string();
        debug_assert_eq!(digits.len(), ID_BYTES, "ids have a fixed width");
        for place in &self.places {
            self.bytes[*place..][..ID_BYTES].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How often it contains the id.
    pub(crate) fn ids(&self) -> usize {
        self.places.len()
    }

    /// The id in a message of this form.
    pub(crate) fn id_in(&self, message: &[u8]) -> Option<u32> {
        let digits = message.get(*self.places.first()?..)?.get(..ID_BYTES)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Checks a message's length, ids, first and last bytes; all of it if `thorough`.
    pub(crate) fn check(&mut self, id: u32, message: &[u8], thorough: bool) -> Result<()> {
        let head = self.places.first().map_or(0, |place| place + ID_BYTES);
        self.with(id);
        let (want, places) = (&self.bytes, &self.places);
        let tail = want.len().saturating_sub(TAIL_BYTES);
        let right = message.len() == want.len()
            && message[..head] == want[..head]
            && message[tail..] == want[tail..]
            && places.iter().all(|place| message[*place..][..ID_BYTES] == want[*place..][..ID_BYTES])
            && (!thorough || message == want);
        let shown = String::from_utf8_lossy(&message[..message.len().min(200)]);
        ensure!(right, "a wrong answer to call {id}: {} bytes, not {}: {shown}", message.len(), want.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: u32) -> Vec<u8> {
        format!(r#"{{"text":"{id} and so on, for some more bytes","id":{id}}}"#).into_bytes()
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let mut template = Template::new(answer(FIRST_ID), FIRST_ID);
        assert_eq!(template.ids(), 2);
        assert_eq!(template.with(FIRST_ID + 7), answer(FIRST_ID + 7));
        assert_eq!(template.id_in(&answer(FIRST_ID + 9)), Some(FIRST_ID + 9));
        assert_eq!(template.id_in(b"{}"), None);
    }

    #[test]
    fn only_the_right_answer_passes() {
        let mut template = Template::new(answer(FIRST_ID), FIRST_ID);
        let (one, two) = (FIRST_ID + 1, FIRST_ID + 2);
        assert!(template.check(one, &answer(one), true).is_ok());
        assert!(template.check(one, &answer(two), false).is_err());
        assert!(template.check(one, b"", false).is_err());
        // The payload of one call in the envelope of another.
        let mut mixed = answer(one);
        mixed[9..17].copy_from_slice(b"10000002");
        assert!(template.check(one, &mixed, false).is_err());
        // A changed byte in the middle.
        let mut changed = answer(one);
        changed[20] = b'X';
        assert!(template.check(one, &changed, true).is_err());
    }
}
