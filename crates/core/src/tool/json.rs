//! JSON text that is passed on without being decoded.
//!
//! Payloads are passed as [`RawJson`]: a checked slice of the buffer they arrived in.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::tool::result::check_result;

/// One valid JSON text, kept as it was written.
///
/// Cloning is cheap: the bytes are shared. Digits, key order and duplicate keys are preserved, because
/// nothing is decoded.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// Checks that `text` is one JSON value and keeps it without surrounding white space.
    ///
    /// # Errors
    ///
    /// When `text` is not UTF-8 or not JSON.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        let value: &RawValue = serde_json::from_slice(&text)?;
        Ok(Self::span(&text, value))
    }

    /// The JSON text of `value`.
    ///
    /// # Errors
    ///
    /// When `value` cannot be written as JSON (for example a map whose keys are not strings).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self(text.into()))
    }

    /// The part of `buffer` that `value` was parsed from, shared and not copied.
    ///
    /// # Panics
    ///
    /// When `value` is not inside `buffer`.
    #[must_use]
    pub fn span(buffer: &Bytes, value: &RawValue) -> Self {
        Self(buffer.slice_ref(value.get().as_bytes()))
    }

    /// Text that the caller has just written from valid parts. It is only checked in debug builds.
    ///
    /// # Panics
    ///
    /// In debug builds, when it is not JSON.
    #[must_use]
    pub fn written(text: Vec<u8>) -> Self {
        debug_assert!(serde_json::from_slice::<&RawValue>(&text).is_ok(), "what was written is not JSON");
        Self(text.into())
    }

    /// The same text, if it is a tool result that every client can read.
    ///
    /// # Errors
    ///
    /// When it is not; says what is wrong with it.
    pub fn into_result(self) -> Result<Self, String> {
        check_result(self.as_str())?;
        Ok(self)
    }

    /// The same text, which releases its share of a budget when it is dropped.
    #[must_use]
    pub(crate) fn held_by(self, share: crate::Share) -> Self {
        Self(share.hold(self.0))
    }

    /// The empty object, `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("raw JSON is UTF-8 by construction")
    }

    /// The text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text as bytes that share its buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// The member of that name of an object, if it fits `T`.
    pub(crate) fn member<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let members: BTreeMap<String, &RawValue> = self.decode().ok()?;
        serde_json::from_str(members.get(name)?.get()).ok()
    }

    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// When the value does not fit `T`.
    pub fn decode<'a, T: de::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<serde_json::Value> for RawJson {
    fn from(value: serde_json::Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Short on purpose: payloads do not belong in logs.
impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

/// Works from JSON text only, not from serde's in-memory buffers, which it uses for `flatten` and most tagged
/// enums.
impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Box<str> = Box::<RawValue>::deserialize(deserializer)?.into();
        Ok(Self(text.into_string().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_passes_without_recursion() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(RawJson::parse(deep.clone()).unwrap().as_str(), deep);
    }

    #[test]
    fn spans_share_the_buffer() {
        let buffer = Bytes::from_static(br#" {"a": 1} "#);
        let json = RawJson::parse(buffer.clone()).unwrap();
        assert_eq!(json.as_str(), r#"{"a": 1}"#);
        assert_eq!(json.as_bytes().as_ptr(), buffer[1..].as_ptr());
    }
}
