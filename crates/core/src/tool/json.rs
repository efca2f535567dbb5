//! JSON text that is passed on without being decoded.
//!
//! Payloads are passed as [`RawJson`]: a checked slice of the buffer they arrived in. [`envelope`] extracts the few
//! members that a protocol needs from a message in one pass.

use std::borrow::Cow;
use std::{fmt, io};

use bytes::Bytes;
use serde::de::{self, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::ser::{Formatter, Serializer as JsonSerializer};
use serde_json::value::RawValue;

use crate::tool::flaw::{self, Flaw, ResultSpan};
use crate::tool::scan;

/// One valid JSON text, kept as it was written.
///
/// Cloning is cheap: the bytes are shared. Digits, key order and duplicate keys are preserved, because
/// nothing is decoded.
#[derive(Clone)]
pub struct RawJson {
    text: Bytes,
    /// The number of levels of objects and lists, if known.
    depth: Option<usize>,
    /// Whether it is known to be a tool result, so that it is not checked again.
    is_result: bool,
}

/// Only the text is compared.
impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RawJson {}

impl RawJson {
    /// Checks that `text` is one JSON value and keeps it without surrounding white space.
    ///
    /// # Errors
    ///
    /// When `text` is not UTF-8 or not JSON.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        let utf8 = std::str::from_utf8(&text).map_err(de::Error::custom)?;
        let mut walk = Walk { text: utf8, at: 0, is_first: true };
        let begin = walk.skip_space();
        match walk.depth() {
            Ok(depth) if scan::skip_space(&text, walk.at) == text.len() => {
                Ok(Self { depth: Some(depth), ..Self::span(&text, walk.since(begin)) })
            }
            _ => Err(not_json(utf8)),
        }
    }

    /// The JSON text of `value`.
    ///
    /// # Errors
    ///
    /// When `value` cannot be written as JSON (for example a map whose keys are not strings).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(128);
        let depth = write(&mut text, value)?;
        Ok(Self { depth: Some(depth), ..Self::unknown(text) })
    }

    /// Text that has not been measured or checked as a result.
    fn unknown(text: impl Into<Bytes>) -> Self {
        Self { text: text.into(), depth: None, is_result: false }
    }

    /// The part of `buffer` that `value` was parsed from, shared and not copied.
    ///
    /// # Panics
    ///
    /// When `value` is not inside `buffer`.
    #[must_use]
    pub fn span<'a>(buffer: &Bytes, value: impl Into<Span<'a>>) -> Self {
        Self::unknown(buffer.slice_ref(value.into().get().as_bytes()))
    }

    /// The same for a tool result, which is then not checked again.
    ///
    /// # Panics
    ///
    /// When `result` is not inside `buffer`.
    #[must_use]
    pub fn result_span(buffer: &Bytes, result: ResultSpan<'_>) -> Self {
        Self { is_result: true, ..Self::span(buffer, result.0) }
    }

    /// Text that the caller has just written from valid parts. It is only checked in debug builds.
    ///
    /// # Panics
    ///
    /// In debug builds, when it is not JSON.
    #[must_use]
    pub fn written(text: Vec<u8>) -> Self {
        debug_assert!(serde_json::from_slice::<&RawValue>(&text).is_ok(), "what was written is not JSON");
        Self::unknown(text)
    }

    /// The same, for text of a known depth.
    pub(crate) fn written_to_depth(text: Vec<u8>, depth: usize) -> Self {
        Self { depth: Some(depth), ..Self::written(text) }
    }

    /// The same, for text that is a tool result.
    pub(crate) fn written_result(text: Vec<u8>) -> Self {
        let written = Self::written(text);
        debug_assert_eq!(written.clone().into_result().err(), None, "what was written is not a tool result");
        Self { is_result: true, ..written }
    }

    /// The same text, if it is a tool result that every client can read. It is checked at most once.
    ///
    /// # Errors
    ///
    /// When it is not; says what is wrong with it.
    pub fn into_result(mut self) -> Result<Self, Flaw> {
        if !self.is_result {
            let mut walk = Walk { text: self.as_str(), at: 0, is_first: true };
            flaw::result(&mut walk).unwrap_or(Err(Flaw::NotJson))?;
            self.is_result = true;
        }
        Ok(self)
    }

    /// How many levels of objects and lists it has.
    pub(crate) fn depth(&self) -> usize {
        let measured = || scan::value_extent(&self.text, 0).map_or(0, |(_, depth)| depth);
        self.depth.unwrap_or_else(measured)
    }

    /// The same text, which releases its share of a budget when it is dropped.
    #[must_use]
    pub fn held_by(self, share: crate::Share) -> Self {
        Self { text: share.hold(self.text), ..self }
    }

    /// The empty object, `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self { text: Bytes::from_static(b"{}"), depth: Some(1), is_result: false }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).expect("raw JSON is UTF-8 by construction")
    }

    /// The text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text as bytes that share its buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.text.clone()
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.text.first() == Some(&b'{')
    }

    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// When the value does not fit `T`.
    pub fn decode<'a, T: de::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.text)
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self::unknown(value.to_string())
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
        write!(f, "RawJson({} bytes)", self.text.len())
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
        Ok(Self::unknown(text.into_string()))
    }
}

/// Writes a value as compact JSON; returns how many levels of objects and lists it has.
pub(crate) fn write<T: Serialize + ?Sized>(
    text: &mut Vec<u8>,
    value: &T,
) -> Result<usize, serde_json::Error> {
    let mut deepest = 0;
    value
        .serialize(&mut JsonSerializer::with_formatter(text, Measure { depth: 0, deepest: &mut deepest }))?;
    Ok(deepest)
}

/// How much room is reserved for text as a JSON string: a line break now and then needs no other place.
///
/// Large text gets more, which costs no memory until it is filled. glibc returns freed memory to the system beyond twice
/// the largest block that was freed (up to 32 MiB). A call holds its request, the text and the result: if they are equally
/// large, all of it is returned and fetched again for each call, which took as long as the rest of the call.
pub(crate) fn room(text: &str) -> usize {
    const LARGE_BYTES: usize = 128 * 1024;
    const MAX_BYTES: usize = 31 * 1024 * 1024;
    let enough = text.len() + text.len() / 32 + 2;
    if text.len() < LARGE_BYTES { enough } else { enough.max((4 * text.len()).min(MAX_BYTES)) }
}

/// Writes text as a JSON string. Serde looks at one byte at a time, which would be a third of the time of a large call.
pub(crate) fn write_text(into: &mut Vec<u8>, text: &str) {
    into.reserve(room(text));
    let text = text.as_bytes();
    into.push(b'"');
    let mut at = 0;
    loop {
        let next = scan::special(text, at);
        into.extend_from_slice(&text[at..next]);
        match text.get(next) {
            None => break,
            Some(byte @ (b'"' | b'\\')) => into.extend_from_slice(&[b'\\', *byte]),
            Some(b'\n') => into.extend_from_slice(br"\n"),
            Some(b'\t') => into.extend_from_slice(br"\t"),
            Some(b'\r') => into.extend_from_slice(br"\r"),
            Some(0x08) => into.extend_from_slice(br"\b"),
            Some(0x0c) => into.extend_from_slice(br"\f"),
            Some(byte) => into.extend_from_slice(format!(r"\u{byte:04x}").as_bytes()),
        }
        at = next + 1;
    }
    into.push(b'"');
}

/// Counts levels while writing, which costs almost nothing; scanning the text again would.
struct Measure<'a> {
    depth: usize,
    deepest: &'a mut usize,
}

impl Measure<'_> {
    fn open<W: io::Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        self.depth += 1;
        *self.deepest = (*self.deepest).max(self.depth);
        writer.write_all(&[bracket])
    }

    fn close<W: io::Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(&[bracket])
    }
}

/// The default methods write compact JSON.
impl Formatter for Measure<'_> {
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b'[')
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b']')
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b'{')
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b'}')
    }

    fn write_raw_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let depth = scan::value_extent(fragment.as_bytes(), 0).map_or(0, |(_, depth)| depth);
        *self.deepest = (*self.deepest).max(self.depth + depth);
        writer.write_all(fragment.as_bytes())
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
/// The text is scanned once and checked as a whole. Other members are skipped; a duplicate of a requested one is an
/// error. `Ok(None)` means valid JSON that is not an object.
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
    cut(text, |walk| {
        let mut found = Envelope { outer: [None; N], inner: Inner::Missing };
        while let Some(key) = walk.next_key()? {
            if key.is(nest) {
                if !matches!(found.inner, Inner::Missing) {
                    return Err(Fault::Twice(nest.into()));
                }
                found.inner = match walk.enter() {
                    None => walk.value().map(|_| Inner::Other)?,
                    Some(mut inside) => {
                        let members = inside.members(inner)?;
                        walk.at = inside.at;
                        Inner::Object(members)
                    }
                };
            } else {
                walk.put(&key, &mut found.outer, outer)?;
            }
        }
        Ok(found)
    })
}

/// A response split into spans by [`answer`].
#[derive(Debug)]
pub struct Answer<'a, const N: usize> {
    /// The requested members of the response itself.
    pub outer: Members<'a, N>,
    /// The tool result, or what is wrong with it.
    pub result: Option<Result<ResultSpan<'a>, Flaw>>,
}

/// Finds the members `outer` of the object `text`, and its member `result` as a tool result.
///
/// The text is scanned once and checked as a whole. Other members are skipped; a duplicate of a requested one is an
/// error. `Ok(None)` means valid JSON that is not an object.
///
/// # Errors
///
/// When `text` is not JSON, or a requested member is duplicated.
pub fn answer<'a, const N: usize>(
    text: &'a str,
    outer: &[&str; N],
    result: &str,
) -> Result<Option<Answer<'a, N>>, CutError> {
    cut(text, |walk| {
        let mut found = Answer { outer: [None; N], result: None };
        while let Some(key) = walk.next_key()? {
            if !key.is(result) {
                walk.put(&key, &mut found.outer, outer)?;
            } else if found.result.replace(flaw::result(walk)?).is_some() {
                return Err(Fault::Twice(result.into()));
            }
        }
        Ok(found)
    })
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
    cut(text, |walk| walk.members(keys))
}

/// Finds the members `keys` of each object of the list `text`; `None` when it is not a list of objects, or one of
/// these members is duplicated.
#[must_use]
pub fn list_of_members<'a, const N: usize>(text: &'a str, keys: &[&str; N]) -> Option<Vec<Members<'a, N>>> {
    let mut walk = Walk { text, at: 0, is_first: true };
    let mut found = Vec::new();
    if !walk.begin_list() {
        return None;
    }
    while walk.next_item(found.is_empty()).ok()? {
        let mut object = walk.enter()?;
        found.push(object.members(keys).ok()?);
        walk.at = object.at;
    }
    (walk.skip_space() == text.len()).then_some(found)
}

/// Calls `with` on the object `text`; nothing may follow the object.
fn cut<'a, T>(
    text: &'a str,
    with: impl FnOnce(&mut Walk<'a>) -> Result<T, Fault>,
) -> Result<Option<T>, CutError> {
    let mut start = Walk { text, at: 0, is_first: true };
    let (found, end) = match start.enter() {
        Some(mut walk) => (with(&mut walk).map(Some), walk.at),
        None => (start.value().map(|_| None), start.at),
    };
    match found {
        Ok(found) if scan::skip_space(text.as_bytes(), end) == text.len() => Ok(found),
        Err(Fault::Twice(key)) => Err(CutError::Twice { key }),
        Ok(_) | Err(Fault::NotJson) => Err(CutError::NotJson(not_json(text))),
    }
}

/// Why and where a text is not JSON, in serde's words.
fn not_json(text: &str) -> serde_json::Error {
    let error = serde_json::from_str::<IgnoredAny>(text).err();
    error.unwrap_or_else(|| de::Error::custom("the text is not JSON"))
}

/// Iterates over the members of an object.
pub(crate) struct Walk<'a> {
    text: &'a str,
    at: usize,
    is_first: bool,
}

/// Why a walk stops.
pub(crate) enum Fault {
    NotJson,
    Twice(String),
}

/// A member's key as it was written, including its quotes.
pub(crate) struct Key<'a>(&'a str);

impl Key<'_> {
    /// The key, unless it has invalid escapes.
    pub(crate) fn name(&self) -> Option<Cow<'_, str>> {
        let plain = &self.0[1..self.0.len() - 1];
        if plain.contains('\\') {
            serde_json::from_str(self.0).ok().map(Cow::Owned)
        } else {
            Some(plain.into())
        }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name().is_some_and(|own| own == name)
    }
}

impl<'a> Walk<'a> {
    /// Starts at the object at `at`; `None` when there is none.
    pub(crate) fn at(text: &'a str, at: usize) -> Option<Self> {
        Self { text, at, is_first: true }.enter()
    }

    /// The current position.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// Moves to where the next value begins.
    pub(crate) fn skip_space(&mut self) -> usize {
        self.at = scan::skip_space(self.text.as_bytes(), self.at);
        self.at
    }

    /// The text from `begin` to the current position, which is one value.
    pub(crate) fn since(&self, begin: usize) -> Span<'a> {
        Span(&self.text[begin..self.at])
    }

    /// Continues where the walk over a nested object ended.
    pub(crate) fn go_on_behind(&mut self, inside: &Self) {
        self.at = inside.at;
    }

    /// Enters the list that comes next; `false` when there is none.
    pub(crate) fn begin_list(&mut self) -> bool {
        let is_list = self.text.as_bytes().get(self.skip_space()) == Some(&b'[');
        self.at += usize::from(is_list);
        is_list
    }

    /// Moves to the next item of a list; `false` at its end. The item must be consumed before the next call.
    pub(crate) fn next_item(&mut self, is_first: bool) -> Result<bool, Fault> {
        match (self.text.as_bytes().get(self.skip_space()), is_first) {
            (Some(b']'), _) => {
                self.at += 1;
                Ok(false)
            }
            (Some(b','), false) => {
                self.at += 1;
                Ok(true)
            }
            (Some(_), true) => Ok(true),
            _ => Err(Fault::NotJson),
        }
    }

    /// Whether the next value is a string.
    pub(crate) fn is_at_string(&mut self) -> bool {
        self.text.as_bytes().get(self.skip_space()) == Some(&b'"')
    }

    /// Consumes the next value; returns how many levels of objects and lists it has.
    pub(crate) fn depth(&mut self) -> Result<usize, Fault> {
        let (end, depth) = scan::value_extent(self.text.as_bytes(), self.at).ok_or(Fault::NotJson)?;
        self.at = end;
        Ok(depth)
    }

    /// Enters the object that comes next, if there is one. The outer walk continues where the object ends.
    pub(crate) fn enter(&self) -> Option<Self> {
        let at = scan::skip_space(self.text.as_bytes(), self.at);
        (self.text.as_bytes().get(at) == Some(&b'{')).then_some(Self {
            text: self.text,
            at: at + 1,
            is_first: true,
        })
    }

    /// The next member's key; its value must be consumed before the next call.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key<'a>>, Fault> {
        let bytes = self.text.as_bytes();
        let mut at = scan::skip_space(bytes, self.at);
        match bytes.get(at) {
            Some(b'}') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.is_first => at = scan::skip_space(bytes, at + 1),
            Some(b'"') if self.is_first => {}
            _ => return Err(Fault::NotJson),
        }
        let end = scan::string_end(bytes, at).ok_or(Fault::NotJson)?;
        let colon = scan::skip_space(bytes, end);
        if bytes.get(colon) != Some(&b':') {
            return Err(Fault::NotJson);
        }
        (self.at, self.is_first) = (colon + 1, false);
        Ok(Some(Key(&self.text[at..end])))
    }

    /// Consumes the next value.
    pub(crate) fn value(&mut self) -> Result<Span<'a>, Fault> {
        let text = self.text.as_bytes();
        self.value_to(|begin| scan::value_end(text, begin))
    }

    /// Consumes the next value, whose end is computed by `end`.
    pub(crate) fn value_to(&mut self, end: impl FnOnce(usize) -> Option<usize>) -> Result<Span<'a>, Fault> {
        let begin = scan::skip_space(self.text.as_bytes(), self.at);
        self.at = end(begin).ok_or(Fault::NotJson)?;
        Ok(Span(&self.text[begin..self.at]))
    }

    /// Walks to the end of the object and collects the requested members.
    fn members<const N: usize>(&mut self, keys: &[&str; N]) -> Result<Members<'a, N>, Fault> {
        let mut found = [None; N];
        while let Some(key) = self.next_key()? {
            self.put(&key, &mut found, keys)?;
        }
        Ok(found)
    }

    /// Consumes a value, and stores it if it is one of the requested members.
    fn put<const N: usize>(
        &mut self,
        key: &Key<'_>,
        found: &mut Members<'a, N>,
        keys: &[&str; N],
    ) -> Result<(), Fault> {
        let value = self.value()?;
        let name = key.name();
        let Some(place) = keys.iter().position(|known| name.as_deref() == Some(known)) else { return Ok(()) };
        match found[place].replace(value) {
            None => Ok(()),
            Some(_) => Err(Fault::Twice(keys[place].into())),
        }
    }
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
    fn text_is_written_as_serde_does() {
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        for text in ["", "plain", &all, &format!("{}\u{1}😀\"", "é".repeat(100)), &"x\n".repeat(100)] {
            let mut written = Vec::new();
            write_text(&mut written, text);
            assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn spans_share_the_buffer() {
        let buffer = Bytes::from_static(br#" {"a": 1} "#);
        let json = RawJson::parse(buffer.clone()).unwrap();
        assert_eq!(json.as_str(), r#"{"a": 1}"#);
        assert_eq!(json.as_bytes().as_ptr(), buffer[1..].as_ptr());
    }
}
