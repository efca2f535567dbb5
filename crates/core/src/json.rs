//! JSON text that is passed on without being decoded.
//!
//! Payloads travel as [`RawJson`]: a checked span of the buffer they arrived in. [`envelope`] cuts the
//! few members a protocol needs out of a message in one pass over it.

use std::fmt;

use bytes::Bytes;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// One valid JSON text, kept as it was written.
///
/// Cloning is cheap: the bytes are shared. Digits, key order and duplicate keys survive, because nothing
/// is decoded.
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
        let utf8 = std::str::from_utf8(&text).map_err(de::Error::custom)?;
        let value: &RawValue = serde_json::from_str(utf8)?;
        Ok(Self::span(&text, value))
    }

    /// The JSON text of `value`.
    ///
    /// # Errors
    ///
    /// When `value` cannot be written as JSON (a map whose keys are not strings, say).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self(text.into()))
    }

    /// The part of `buffer` that `value` was parsed from, shared and not copied.
    ///
    /// # Panics
    ///
    /// When `value` does not lie inside `buffer`.
    #[must_use]
    pub fn span(buffer: &Bytes, value: &RawValue) -> Self {
        Self(buffer.slice_ref(value.get().as_bytes()))
    }

    /// Text that the caller has just written out of valid parts. It is not checked again, but in debug
    /// builds.
    ///
    /// # Panics
    ///
    /// In debug builds, when it is not JSON.
    #[must_use]
    pub fn written(text: Vec<u8>) -> Self {
        debug_assert!(serde_json::from_slice::<&RawValue>(&text).is_ok(), "what was written is not JSON");
        Self(text.into())
    }

    /// The same text, which gives its share of a budget back when it is dropped.
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

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Short on purpose: payloads do not belong into logs.
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

/// Members of a JSON object as raw spans, in the order of the keys asked for.
pub type Members<'a, const N: usize> = [Option<&'a RawValue>; N];

/// A message cut into spans by [`envelope`].
#[derive(Debug)]
pub struct Envelope<'a, const N: usize, const M: usize> {
    /// The members asked for of the message itself.
    pub outer: Members<'a, N>,
    /// The member that holds the parameters.
    pub inner: Inner<'a, M>,
}

/// What stood in an [`Envelope`]'s parameters.
#[derive(Debug)]
pub enum Inner<'a, const M: usize> {
    /// There were none.
    Missing,
    /// An object, and its members asked for.
    Object(Members<'a, M>),
    /// Something that is no object.
    Other,
}

/// Cuts the members `outer` out of the object `text`, and the members `inner` out of its member `nest`.
///
/// The text is gone through once and is checked as a whole. Other members are skipped; one of those
/// asked for that stands twice is an error. `Ok(None)` means valid JSON that is not an object.
///
/// # Errors
///
/// When `text` is not JSON, or names a member twice.
pub fn envelope<'a, const N: usize, const M: usize>(
    text: &'a str,
    outer: &[&str; N],
    nest: &str,
    inner: &[&str; M],
) -> Result<Option<Envelope<'a, N, M>>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = EnvelopeSeed { outer, nest, inner }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(found)
}

/// Cuts the members `keys` out of the object `text`. `Ok(None)` means valid JSON that is not an object.
///
/// # Errors
///
/// When `text` is not JSON, or names a member twice.
pub fn members<'a, const N: usize>(
    text: &'a str,
    keys: &[&str; N],
) -> Result<Option<Members<'a, N>>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = MembersSeed { keys }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(match found {
        Inner::Object(members) => Some(members),
        Inner::Missing | Inner::Other => None,
    })
}

struct EnvelopeSeed<'k, const N: usize, const M: usize> {
    outer: &'k [&'k str; N],
    nest: &'k str,
    inner: &'k [&'k str; M],
}

struct MembersSeed<'k, const N: usize> {
    keys: &'k [&'k str; N],
}

/// Finds a key's place in a list without allocating it; `keys.len()` stands for `nest`.
struct KeySeed<'k> {
    keys: &'k [&'k str],
    nest: Option<&'k str>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        let place = self.keys.iter().position(|known| *known == key);
        Ok(place.or((self.nest == Some(key)).then_some(self.keys.len())))
    }
}

/// Everything but an object is read over; both visitors below say so in the same words.
macro_rules! not_an_object {
    ($other:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok($other)
        }
    };
}

impl<'de, const N: usize> DeserializeSeed<'de> for MembersSeed<'_, N> {
    type Value = Inner<'de, N>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for MembersSeed<'_, N> {
    type Value = Inner<'de, N>;
    not_an_object!(Inner::Other);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = map.next_key_seed(KeySeed { keys: self.keys, nest: None })? {
            match place {
                Some(place) => put(&mut found, place, map.next_value()?, self.keys)?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Inner::Object(found))
    }
}

impl<'de, const N: usize, const M: usize> DeserializeSeed<'de> for EnvelopeSeed<'_, N, M> {
    type Value = Option<Envelope<'de, N, M>>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, const N: usize, const M: usize> Visitor<'de> for EnvelopeSeed<'_, N, M> {
    type Value = Option<Envelope<'de, N, M>>;
    not_an_object!(None);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Envelope { outer: [None; N], inner: Inner::Missing };
        while let Some(place) = map.next_key_seed(KeySeed { keys: self.outer, nest: Some(self.nest) })? {
            match place {
                Some(place) if place < N => put(&mut found.outer, place, map.next_value()?, self.outer)?,
                Some(_) if !matches!(found.inner, Inner::Missing) => return Err(twice(self.nest)),
                Some(_) => found.inner = map.next_value_seed(MembersSeed { keys: self.inner })?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Some(found))
    }
}

fn put<'de, const N: usize, E: de::Error>(
    found: &mut Members<'de, N>,
    place: usize,
    value: &'de RawValue,
    keys: &[&str; N],
) -> Result<(), E> {
    match found[place].replace(value) {
        None => Ok(()),
        Some(_) => Err(twice(keys[place])),
    }
}

fn twice<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("member `{key}` stands twice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        match envelope(text, &["id", "method"], "params", &["name", "arguments"]) {
            Err(error) => format!("error: {error}"),
            Ok(None) => "no object".into(),
            Ok(Some(found)) => {
                let show = |value: Option<&RawValue>| value.map_or("-", RawValue::get).to_owned();
                let inner = match &found.inner {
                    Inner::Missing => "missing".into(),
                    Inner::Other => "other".into(),
                    Inner::Object(members) => members.map(show).join(" "),
                };
                format!("{} | {inner}", found.outer.map(show).join(" "))
            }
        }
    }

    #[test]
    fn an_envelope_is_cut_in_one_pass() {
        let rows = [
            (
                r#"{"id":1,"method":"m","params":{"name":"n","arguments":{"a": [1, 2]}}}"#,
                r#"1 "m" | "n" {"a": [1, 2]}"#,
            ),
            (r#"{"params":{"arguments":{}},"x":{"id":9}}"#, "- - | - {}"),
            (r#"{"params":[{"name":1}],"id":"a"}"#, r#""a" - | other"#),
            (r#"{"params":null}"#, "- - | other"),
            (r#"{"params":"text"}"#, "- - | other"),
            ("{}", "- - | missing"),
            ("[1,{}]", "no object"),
            ("7", "no object"),
            (r#"{"id":18446744073709551615,"method":1e400}"#, "18446744073709551615 1e400 | missing"),
            (r#"{"id":1,"id":2}"#, "error: member `id` stands twice at line 1 column 15"),
            (r#"{"params":{},"params":{}}"#, "error: member `params` stands twice at line 1 column 21"),
            (r#"{"i\u0064":1}"#, "1 - | missing"),
        ];
        for (text, want) in rows {
            assert_eq!(cut(text), want, "{text}");
        }
        for broken in ["", "{", r#"{"id":}"#, "{} {}", r#"{"id":NaN}"#, "{\"id\":\"\n\"}", r#"{"x":tru}"#] {
            assert!(cut(broken).starts_with("error: "), "{broken}: {}", cut(broken));
        }
    }

    #[test]
    fn deep_nesting_passes_without_recursion() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#"{{"params":{{"arguments":{deep}}}}}"#);
        let found = envelope(&text, &["id"], "params", &["arguments"]).unwrap().unwrap();
        let Inner::Object([Some(arguments)]) = found.inner else { panic!("no arguments") };
        assert_eq!(arguments.get().len(), deep.len());
    }

    #[test]
    fn spans_share_the_buffer() {
        let buffer = Bytes::from_static(br#" {"a": 1} "#);
        let json = RawJson::parse(buffer.clone()).unwrap();
        assert_eq!(json.as_str(), r#"{"a": 1}"#);
        assert_eq!(json.as_bytes().as_ptr(), buffer[1..].as_ptr());
    }
}
