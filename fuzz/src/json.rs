//! JSON as `serde_json` reads it, value by value, for comparison: duplicate members and unpaired surrogate
//! escapes are kept.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A value, as written.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a>(&'a str);

/// One value, with optional white space around it; `None` for anything else.
pub(crate) fn read(text: &str) -> Option<Node<'_>> {
    serde_json::from_str::<&RawValue>(text).ok().map(|raw| Node(raw.get()))
}

impl<'a> Node<'a> {
    pub(crate) fn text(self) -> &'a str {
        self.0
    }

    fn starts_with(self, start: char) -> bool {
        self.0.starts_with(start)
    }

    pub(crate) fn is_object(self) -> bool {
        self.starts_with('{')
    }

    pub(crate) fn is_null(self) -> bool {
        self.starts_with('n')
    }

    pub(crate) fn is_text(self) -> bool {
        self.starts_with('"')
    }

    pub(crate) fn is_number(self) -> bool {
        self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit())
    }

    /// `None` also for unpaired surrogate escapes.
    pub(crate) fn as_text(self) -> Option<String> {
        serde_json::from_str(self.0).ok()
    }

    /// The members of an object, with their keys.
    pub(crate) fn members(self) -> Vec<(Option<String>, Self)> {
        serde_json::from_str(self.0).map(|Members(members)| members).unwrap_or_default()
    }

    /// The items of an array.
    pub(crate) fn items(self) -> Vec<Self> {
        let items: Vec<&RawValue> = serde_json::from_str(self.0).unwrap_or_default();
        items.into_iter().map(|raw| Self(raw.get())).collect()
    }

    /// Every member with that name.
    pub(crate) fn all(self, key: &str) -> Vec<Self> {
        let same = self.members().into_iter().filter(|(name, _)| name.as_deref() == Some(key));
        same.map(|(_, value)| value).collect()
    }

    /// The first member with that name.
    pub(crate) fn get(self, key: &str) -> Option<Self> {
        self.all(key).first().copied()
    }
}

struct Members<'a>(Vec<(Option<String>, Node<'a>)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Members<'de> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            self.0.push((Node(key.get()).as_text(), Node(value.get())));
        }
        Ok(self)
    }
}
