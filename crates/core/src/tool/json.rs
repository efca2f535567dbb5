//! JSON text that is passed on without being decoded.
//!
//! Payloads are passed as [`RawJson`]: a checked slice of the buffer they arrived in. [`envelope`] extracts the few
//! members that a protocol needs from a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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
    pub fn span<'a>(buffer: &Bytes, value: impl Into<Span<'a>>) -> Self {
        Self(buffer.slice_ref(value.into().get().as_bytes()))
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
    pub fn held_by(self, share: crate::Share) -> Self {
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

/// One valid JSON value inside a text.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a>(&'a str);

impl<'a> Span<'a> {
    /// The value as it was written.
    #[must_use]
    pub fn get(self) -> &'a str {
        self.0
    }

    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// When the value does not fit `T`.
    pub fn decode<T: de::Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }
}

impl<'a> From<&'a RawValue> for Span<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self(value.get())
    }
}

/// Members of a JSON object, in the order of the keys asked for.
pub type Members<'a, const N: usize> = [Option<Span<'a>>; N];

/// A message split into spans by [`envelope`].
#[derive(Debug)]
pub struct Envelope<'a, const N: usize, const M: usize> {
    /// The requested members of the message itself.
    pub outer: Members<'a, N>,
    /// The member that contains the parameters.
    pub inner: Inner<'a, M>,
}

/// The parameters in an [`Envelope`].
#[derive(Debug)]
pub enum Inner<'a, const M: usize> {
    /// There were none.
    Missing,
    /// An object, with its requested members.
    Object(Members<'a, M>),
    /// Not an object.
    Other,
}

/// Why a text cannot be split.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// It is not JSON.
    #[error(transparent)]
    NotJson(serde_json::Error),
    /// One of the requested members is duplicated.
    #[error("duplicate member `{key}`")]
    Twice {
        /// The member's key.
        key: String,
    },
}

/// Finds the members `outer` of the object `text`, and the members `inner` of its member `nest`.
///
/// Other members are skipped; a duplicate of a requested one is an error. `Ok(None)` means valid JSON that is not an
/// object.
///
/// # Errors
///
/// When `text` is not JSON, or a requested member is duplicated.
pub fn envelope<'a, const N: usize, const M: usize>(
    text: &'a str,
    outer: &[&str; N],
    nest: &str,
    inner: &[&str; M],
) -> Result<Option<Envelope<'a, N, M>>, CutError> {
    let Some(found) = Object::read(text)? else { return Ok(None) };
    let inner = match found.get(nest)? {
        None => Inner::Missing,
        Some(value) => members(value.get(), inner)?.map_or(Inner::Other, Inner::Object),
    };
    Ok(Some(Envelope { outer: found.all(outer)?, inner }))
}

/// Finds the members `keys` of the object `text`. `Ok(None)` means valid JSON that is not an object.
///
/// # Errors
///
/// When `text` is not JSON, or a requested member is duplicated.
pub fn members<'a, const N: usize>(
    text: &'a str,
    keys: &[&str; N],
) -> Result<Option<Members<'a, N>>, CutError> {
    Object::read(text)?.map(|found| found.all(keys)).transpose()
}

/// The members of an object, in order.
struct Object<'a>(Vec<(Cow<'a, str>, Span<'a>)>);

impl<'a> Object<'a> {
    fn read(text: &'a str) -> Result<Option<Self>, CutError> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map(Some).map_err(CutError::NotJson);
        }
        serde_json::from_str::<IgnoredAny>(text).map(|_| None).map_err(CutError::NotJson)
    }

    fn get(&self, key: &str) -> Result<Option<Span<'a>>, CutError> {
        let mut found = self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| *value);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(CutError::Twice { key: key.into() }),
            (first, None) => Ok(first),
        }
    }

    fn all<const N: usize>(&self, keys: &[&str; N]) -> Result<Members<'a, N>, CutError> {
        let mut all = [None; N];
        for (place, key) in all.iter_mut().zip(keys) {
            *place = self.get(key)?;
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some((key, value)) = map.next_entry::<Cow<'_, str>, &RawValue>()? {
                    all.push((key, Span(value.get())));
                }
                Ok(Object(all))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// How deep a result may be nested; the result itself is the first level. Many clients parse JSON recursively, and
/// fail or overflow their stack a little deeper.
pub const MAX_RESULT_DEPTH: usize = 128;

/// Checks that an object is an MCP `CallToolResult` that every client can read; says what is wrong with it.
fn check_result(text: &str) -> Result<(), String> {
    type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
    #[derive(Deserialize)]
    struct CallToolResult<'a> {
        #[serde(borrow)]
        content: Vec<Members<'a>>,
    }

    let wrong = |what: &str| {
        Err(format!(
            "{what}; a result is an object whose `content` is a list of at least one block, an object with a `type`"
        ))
    };
    if !text.starts_with('{') {
        return wrong("it is not an object");
    }
    let blocks = match serde_json::from_str::<CallToolResult<'_>>(text) {
        Ok(result) => result.content,
        Err(error) => {
            let members: Members<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let Some(content) = members.get("content") else { return wrong("it has no `content`") };
            let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content.get()) else {
                return wrong("its `content` is not a list");
            };
            return match blocks.iter().position(|block| !block.get().starts_with('{')) {
                Some(place) => wrong(&format!("`content[{place}]` is not an object")),
                None => Err(error.to_string()),
            };
        }
    };
    if blocks.is_empty() {
        return wrong("its `content` is empty");
    }
    for (place, block) in blocks.iter().enumerate() {
        let string = |key: &str| block.get(key).filter(|value| value.get().starts_with('"'));
        let Some(kind) = string("type") else {
            return wrong(&format!("`content[{place}]` has no `type` that is a string"));
        };
        let is_text = serde_json::from_str(kind.get()).is_ok_and(|kind: Cow<'_, str>| kind == "text");
        if is_text && string("text").is_none() {
            return wrong(&format!("`content[{place}]` is a text block without a `text` that is a string"));
        }
    }
    match depth(text.as_bytes()) {
        0..=MAX_RESULT_DEPTH => Ok(()),
        depth => Err(format!("it is nested {depth} levels deep, the limit is {MAX_RESULT_DEPTH}")),
    }
}

/// How many levels of objects and lists a JSON text has.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth -= 1,
            // Written so that the compiler makes a tight loop of it: with an iterator it takes eight times as long.
            b'"' => loop {
                match json.get(at) {
                    Some(b'\\') => at += 2,
                    Some(b'"') | None => break at += 1,
                    Some(_) => at += 1,
                }
            },
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        match envelope(text, &["id", "method"], "params", &["name", "arguments"]) {
            Err(error) => format!("error: {error}"),
            Ok(None) => "no object".into(),
            Ok(Some(found)) => {
                let show = |value: Option<Span<'_>>| value.map_or("-", Span::get).to_owned();
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
            (r#"{"id":1,"id":2}"#, "error: duplicate member `id`"),
            (r#"{"params":{},"params":{}}"#, "error: duplicate member `params`"),
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

    const RIGHT: &str =
        "a result is an object whose `content` is a list of at least one block, an object with a `type`";

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = RawJson::parse(text.to_owned()).unwrap().into_result();
        match got {
            Ok(result) => assert_eq!((result.as_str(), want), (text.trim(), "")),
            Err(flaw) => {
                let (said, right) = flaw.split_once("; ").unwrap_or((&flaw, RIGHT));
                assert_eq!((said, right), (want, RIGHT), "{text}");
            }
        }
    }

    #[test]
    fn a_result_has_blocks_and_each_has_a_type() {
        check(r#"{"content":[{"type":"text","text":"a"}]}"#, "");
        check(
            r#" { "isError" : true , "content" : [ { "text" : [ ] , "type" : "x" } , {"type":""} ] , "x" : 1 } "#,
            "",
        );
        check(r#"{"c\u006fntent":[{"\u0074ype":"text","text":""}]}"#, "");
        for other in ["[]", "null", "7", r#""content""#, r#"[{"content":[{"type":"new"}]}]"#] {
            check(other, "it is not an object");
        }
        for other in ["{}", r#"{"contents":[]}"#, r#"{"x":{"content":[{"type":"new"}]}}"#] {
            check(other, "it has no `content`");
        }
        for other in ["null", "7", r#""text""#, "{}", r#"{"type":"new"}"#] {
            check(&format!(r#"{{"content":{other}}}"#), "its `content` is not a list");
        }
        check(r#"{"content":[]}"#, "its `content` is empty");
        check(r#"{"content":[ ],"isError":true}"#, "its `content` is empty");
        for other in ["null", "7", r#""text""#, "[]", r#"[{"type":"new"}]"#] {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` is not an object");
            check(&format!(r#"{{"content":[{{"type":"new"}},{other}]}}"#), "`content[1]` is not an object");
        }
        for other in
            ["{}", r#"{"text":"type"}"#, r#"{"type":null}"#, r#"{"type":["text"]}"#, r#"{"x":{"type":"a"}}"#]
        {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` has no `type` that is a string");
        }
        for other in [
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":null}"#,
            r#"{"text":5,"type":"text"}"#,
            r#"{"type":"t\u0065xt","text":["a"]}"#,
        ] {
            let text = format!(r#"{{"content":[{{"type":"new","text":1}},{other}]}}"#);
            check(&text, "`content[1]` is a text block without a `text` that is a string");
        }
        // Clients differ in which duplicate they take.
        check(
            r#"{"content":[{"type":"new"}],"content":[]}"#,
            "duplicate field `content` at line 1 column 37",
        );
    }

    #[test]
    fn nesting_has_a_limit_wherever_it_is() {
        let rows = [
            // The depth of `DEEP`, and the text around it.
            (1, r#"{"content":[{"type":"new"}],"structuredContent":DEEP}"#),
            (1, r#"{"_meta":DEEP,"content":[{"type":"new"}]}"#),
            (3, r#"{"content":[{"type":"new"},{"type":"new","x":DEEP}]}"#),
            (2, r#"{"content":[{"type":"new"}],"x":{"y":1,"z":DEEP}}"#),
        ];
        for (around, text) in rows {
            for (depth, want) in [
                (MAX_RESULT_DEPTH, String::new()),
                (MAX_RESULT_DEPTH + 1, "it is nested 129 levels deep, the limit is 128".into()),
                (100_000, "it is nested 100000 levels deep, the limit is 128".into()),
            ] {
                let levels = depth - around;
                for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                    let middle = if open == "[" { "" } else { "1" };
                    let deep = format!("{}{middle}{}", open.repeat(levels), close.repeat(levels));
                    check(&text.replace("DEEP", &deep), &want);
                }
            }
        }
    }
}
