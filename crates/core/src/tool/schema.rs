//! JSON Schemas, compiled once.
//!
//! The crate `jsonschema` would add forty dependencies and a quarter of all compile time; the tests compare with
//! it.

mod check;
mod number;
mod pattern;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Display;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

pub(crate) use check::{Detail, Error, Errors};
pub(crate) use number::Num;
pub(crate) use pattern::Pattern;

/// A JSON Schema of draft 2020-12, 2019-09 or 7.
///
/// A schema with an unsupported keyword is refused. Unknown keywords and `format` only describe, and are ignored.
/// References must point into the schema itself.
#[derive(Debug)]
pub struct Schema {
    /// The first node is the root.
    pub(crate) nodes: Vec<Node>,
    draft: Draft,
    /// Whether scanning the text may be enough to check a value.
    pub(crate) is_plain: bool,
}

/// The index of a node in [`Schema::nodes`].
pub(crate) type Id = usize;

/// A subschema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// In the order in which their errors are reported.
    pub(crate) keywords: Vec<Keyword>,
    /// Whether the same value may be checked against it more than once.
    is_shared: bool,
}

impl Node {
    pub(crate) fn object(&self) -> Option<&Object> {
        self.keywords.iter().find_map(|keyword| match keyword {
            Keyword::Object(object) => Some(object),
            _ => None,
        })
    }
}

/// One check.
#[derive(Debug)]
pub(crate) enum Keyword {
    /// The allowed types, and their names; empty for the schema `false`.
    Type(u8, Vec<&'static str>),
    /// `enum`, or one value for `const`.
    Enum(Vec<Value>),
    Limit(&'static Limit, Number),
    MultipleOf(Number),
    Pattern(Pattern),
    UniqueItems,
    Object(Object),
    PropertyNames(Id),
    /// What an object with that property must fit, and whether that counts as evaluated for
    /// `unevaluatedProperties`.
    Dependent(String, Id, bool),
    Items {
        first: Vec<Id>,
        others: Option<Id>,
    },
    Contains {
        item: Id,
        least: u64,
        most: u64,
    },
    /// `allOf`, or one schema for `$ref`.
    AllOf(Vec<Id>),
    AnyOf(Vec<Id>),
    OneOf(Vec<Id>),
    /// With the schema's text, for the error.
    Not(Id, String),
    If(Id, Option<Id>, Option<Id>),
    /// `unevaluatedProperties` or `unevaluatedItems`, for that kind of value.
    Unevaluated(u8, Id),
}

/// `properties`, `required`, `patternProperties` and `additionalProperties`.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// The names in `properties` and `required`. A name without a schema is only required.
    pub(crate) members: Vec<(String, Option<Id>)>,
    places: HashMap<String, usize>,
    /// Indices into `members`.
    pub(crate) required: Vec<usize>,
    pub(crate) patterns: Vec<(Pattern, Id)>,
    pub(crate) others: Option<Id>,
}

impl Object {
    /// The index of the member of that name, which is most likely `next`.
    pub(crate) fn place(&self, name: &str, next: usize) -> Option<usize> {
        match self.members.get(next) {
            Some((likely, _)) if likely == name => Some(next),
            _ => self.places.get(name).copied(),
        }
    }

    fn place_or_new(&mut self, name: &str) -> usize {
        self.place(name, usize::MAX).unwrap_or_else(|| {
            self.members.push((name.into(), None));
            self.places.insert(name.into(), self.members.len() - 1);
            self.members.len() - 1
        })
    }

    /// Whether the schema mentions the member of that name, so that it is not an additional one.
    fn knows(&self, name: &str) -> bool {
        let place = self.place(name, usize::MAX);
        place.is_some_and(|place| self.members[place].1.is_some())
            || self.patterns.iter().any(|(pattern, _)| pattern.matches(name))
    }

    /// Whether no property is mentioned.
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty() && self.names().next().is_none()
    }

    /// The members that have a schema.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter(|(_, schema)| schema.is_some()).map(|(name, _)| name.as_str())
    }
}

pub(crate) const STRING: u8 = 1;
pub(crate) const BOOLEAN: u8 = 2;
pub(crate) const NULL: u8 = 4;
pub(crate) const INTEGER: u8 = 8;
pub(crate) const FRACTION: u8 = 16;
pub(crate) const ARRAY: u8 = 32;
pub(crate) const OBJECT: u8 = 64;

const TYPES: [(&str, u8); 7] = [
    ("string", STRING),
    ("boolean", BOOLEAN),
    ("null", NULL),
    ("integer", INTEGER),
    ("number", NUMBER),
    ("array", ARRAY),
    ("object", OBJECT),
];

/// A keyword that limits a number, or the size of a value of the given type: which ordering of value and limit is
/// wrong, the words for that, and the singular and plural of the unit.
#[derive(Debug)]
pub(crate) struct Limit(
    pub(crate) &'static str,
    pub(crate) u8,
    pub(crate) fn(Ordering) -> bool,
    pub(crate) &'static str,
    pub(crate) [&'static str; 2],
);

const NUMBER: u8 = INTEGER | FRACTION;
const CHARACTERS: [&str; 2] = [" character", " characters"];
const ITEMS: [&str; 2] = [" item", " items"];
const PROPERTIES: [&str; 2] = [" property", " properties"];

static LIMITS: [Limit; 10] = [
    Limit("minimum", NUMBER, Ordering::is_lt, "is less than the minimum of", [""; 2]),
    Limit("maximum", NUMBER, Ordering::is_gt, "is greater than the maximum of", [""; 2]),
    Limit("exclusiveMinimum", NUMBER, Ordering::is_le, "is less than or equal to the minimum of", [""; 2]),
    Limit("exclusiveMaximum", NUMBER, Ordering::is_ge, "is greater than or equal to the maximum of", [""; 2]),
    Limit("minLength", STRING, Ordering::is_lt, "is shorter than", CHARACTERS),
    Limit("maxLength", STRING, Ordering::is_gt, "is longer than", CHARACTERS),
    Limit("minItems", ARRAY, Ordering::is_lt, "has less than", ITEMS),
    Limit("maxItems", ARRAY, Ordering::is_gt, "has more than", ITEMS),
    Limit("minProperties", OBJECT, Ordering::is_lt, "has less than", PROPERTIES),
    Limit("maxProperties", OBJECT, Ordering::is_gt, "has more than", PROPERTIES),
];

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Draft {
    D7,
    D2019,
    D2020,
}

/// The first draft that has this keyword; an older one would ignore it.
fn since(keyword: &str) -> Draft {
    match keyword {
        "prefixItems" => Draft::D2020,
        "dependentRequired"
        | "dependentSchemas"
        | "minContains"
        | "maxContains"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Draft::D2019,
        _ => Draft::D7,
    }
}

impl Schema {
    /// # Errors
    ///
    /// When it is not a JSON Schema, or uses something that is not supported; says where and what.
    pub fn compile(root: &Value) -> Result<Self, String> {
        let draft = draft(root.get("$schema")).map_err(|reason| format!("/$schema{reason}"))?;
        let mut compiler =
            Compiler { root, draft, nodes: Vec::new(), known: HashMap::new(), found: Vec::new() };
        compiler.node(root).map_err(|reason| reason.trim_start_matches(": ").to_owned())?;
        while let Some((schema, place)) = compiler.found.pop() {
            compiler.node(schema).map_err(|reason| format!("{place}{reason}"))?;
        }
        let mut nodes = compiler.nodes;
        let is_looked_at_again = |keyword: &Keyword| matches!(keyword, Keyword::Unevaluated(..));
        if nodes.iter().any(|node| node.keywords.iter().any(is_looked_at_again)) {
            for node in &mut nodes {
                node.is_shared = true;
            }
        }
        let mut schema = Self { nodes, draft, is_plain: false };
        schema.is_plain = schema.is_plain();
        // A schema that applies itself to the same value again never ends, whatever the value is.
        if schema.ends() { Ok(schema) } else { Err("it refers to itself without end".into()) }
    }
}

fn draft(schema: Option<&Value>) -> Result<Draft, String> {
    let Some(name) = schema else { return Ok(Draft::D2020) };
    let plain = name.as_str().unwrap_or_default().trim_end_matches('#');
    match plain.trim_start_matches("https://").trim_start_matches("http://") {
        "json-schema.org/draft/2020-12/schema" => Ok(Draft::D2020),
        "json-schema.org/draft/2019-09/schema" => Ok(Draft::D2019),
        "json-schema.org/draft-07/schema" => Ok(Draft::D7),
        _ => Err(format!(": {name} is not supported; drafts 2020-12, 2019-09 and 7 are")),
    }
}

struct Compiler<'a> {
    root: &'a Value,
    draft: Draft,
    nodes: Vec<Node>,
    /// Each schema seen so far, and whether it has been compiled.
    known: HashMap<*const Value, (Id, bool)>,
    /// The targets of references, and their places.
    found: Vec<(&'a Value, &'a str)>,
}

/// Prepends a step to the place of an error.
fn at(step: impl Display) -> impl Fn(String) -> String {
    move |reason| format!("/{}{reason}", step.to_string().replace('~', "~0").replace('/', "~1"))
}

fn wrong<T>(wanted: &str) -> Result<T, String> {
    Err(format!(": it is not {wanted}"))
}

impl<'a> Compiler<'a> {
    /// The node of a schema, which may not be compiled yet.
    fn id(&mut self, schema: &'a Value) -> Id {
        let next = self.nodes.len();
        let (id, _) = *self.known.entry(schema).or_insert((next, false));
        if id == next {
            self.nodes.push(Node::default());
        }
        id
    }

    fn node(&mut self, schema: &'a Value) -> Result<Id, String> {
        let id = self.id(schema);
        if self.known.insert(schema, (id, true)) != Some((id, true)) {
            let mut keywords = Vec::new();
            match schema {
                Value::Bool(true) => {}
                Value::Bool(false) => keywords.push(Keyword::Type(0, Vec::new())),
                Value::Object(members) => {
                    // In draft 7, keywords beside a reference are ignored.
                    let alone = self.draft == Draft::D7 && members.contains_key("$ref");
                    for (name, value) in members.iter().filter(|(name, _)| !alone || *name == "$ref") {
                        self.keyword(name, value, members, &mut keywords).map_err(at(name))?;
                    }
                }
                _ => return wrong("an object or a boolean"),
            }
            self.nodes[id].keywords = keywords;
        }
        Ok(id)
    }

    fn keyword(
        &mut self,
        name: &'a str,
        value: &'a Value,
        beside: &'a Map<String, Value>,
        keywords: &mut Vec<Keyword>,
    ) -> Result<(), String> {
        if since(name) > self.draft {
            return Err(": the draft has no such keyword".into());
        }
        let is_root = self.root.as_object().is_some_and(|root| std::ptr::eq(root, beside));
        let keyword = match name {
            "type" => {
                let several = value.as_array().filter(|names| !names.is_empty());
                let names = several.map_or(std::slice::from_ref(value), Vec::as_slice);
                let (mut kinds, mut known) = (0, Vec::new());
                for name in names {
                    let of_name = TYPES.iter().find(|(known, _)| name == known);
                    let (name, kind) = of_name.ok_or_else(|| format!(": {name} is not a type"))?;
                    kinds |= kind;
                    known.push(*name);
                }
                Keyword::Type(kinds, known)
            }
            "const" => Keyword::Enum(vec![value.clone()]),
            "enum" => Keyword::Enum(read(value)?),
            "multipleOf" => match read::<Number>(value)? {
                number if Num::of(&number).compare(Num::Integer(0)).is_gt() => Keyword::MultipleOf(number),
                _ => return wrong("greater than 0"),
            },
            "pattern" => Keyword::Pattern(Pattern::new(read(value)?)?),
            "uniqueItems" if !read::<bool>(value)? => return Ok(()),
            "uniqueItems" => Keyword::UniqueItems,
            "properties" | "required" | "patternProperties" | "additionalProperties" => {
                let known = keywords.iter().position(|one| matches!(one, Keyword::Object(_)));
                let mut keyword =
                    known.map_or(Keyword::Object(Object::default()), |known| keywords.swap_remove(known));
                if let Keyword::Object(object) = &mut keyword {
                    self.members(name, value, object)?;
                }
                keyword
            }
            "propertyNames" => Keyword::PropertyNames(self.node(value)?),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                for (property, value) in object(value)? {
                    let is_list = name == "dependentRequired" || name == "dependencies" && value.is_array();
                    let id = if is_list { self.required(value) } else { self.node(value) };
                    let id = id.map_err(at(property))?;
                    keywords.push(Keyword::Dependent(property.clone(), id, name != "dependencies"));
                }
                return Ok(());
            }
            "items" if value.is_array() && beside.contains_key("prefixItems") => return wrong("a schema"),
            "prefixItems" | "items" if name == "prefixItems" || value.is_array() => {
                let others = if name == "items" { "additionalItems" } else { "items" };
                let others = beside.get(others).map(|items| self.id(items));
                Keyword::Items { first: self.list(value)?, others }
            }
            "items" => match self.node(value)? {
                _ if beside.contains_key("prefixItems") => return Ok(()),
                others => Keyword::Items { first: Vec::new(), others: Some(others) },
            },
            "contains" => {
                let limit = |name: &str| beside.get(name).and_then(|limit| size(limit).ok());
                let (least, most) = (limit("minContains"), limit("maxContains"));
                let (least, most) = (least.unwrap_or(1), most.unwrap_or(u64::MAX));
                Keyword::Contains { item: self.node(value)?, least, most }
            }
            "$ref" => Keyword::AllOf(vec![self.reference(read(value)?)?]),
            "allOf" => Keyword::AllOf(self.list(value)?),
            "anyOf" => Keyword::AnyOf(self.list(value)?),
            "oneOf" => Keyword::OneOf(self.list(value)?),
            "not" => Keyword::Not(self.node(value)?, value.to_string()),
            "if" => {
                let [then, otherwise] = ["then", "else"].map(|name| beside.get(name).map(|one| self.id(one)));
                Keyword::If(self.node(value)?, then, otherwise)
            }
            "unevaluatedProperties" => Keyword::Unevaluated(OBJECT, self.node(value)?),
            "unevaluatedItems" => Keyword::Unevaluated(ARRAY, self.node(value)?),
            "then" | "else" | "additionalItems" => return self.node(value).map(drop),
            "minContains" | "maxContains" => return size(value).map(drop),
            "$defs" | "definitions" => return self.map(value).map(drop),
            "$dynamicRef" | "$recursiveRef" => return Err(": it is not supported; use `$ref`".into()),
            "$id" if !is_root => return Err(": it is supported for the whole schema only".into()),
            "$schema" if draft(Some(value))? != self.draft => {
                return Err(": the root schema uses another draft".into());
            }
            name => {
                let Some(limit) = LIMITS.iter().find(|limit| limit.0 == name) else { return Ok(()) };
                if limit.1 != NUMBER {
                    size(value)?;
                }
                Keyword::Limit(limit, read(value)?)
            }
        };
        keywords.push(keyword);
        Ok(())
    }

    fn members(&mut self, name: &str, value: &'a Value, object: &mut Object) -> Result<(), String> {
        match name {
            "properties" => {
                for (name, schema) in self.map(value)? {
                    let place = object.place_or_new(name);
                    object.members[place].1 = Some(schema);
                }
            }
            "required" => {
                for name in read::<Vec<&str>>(value)? {
                    let place = object.place_or_new(name);
                    object.required.push(place);
                }
            }
            "patternProperties" => {
                for (pattern, schema) in self.map(value)? {
                    object.patterns.push((Pattern::new(pattern).map_err(at(pattern))?, schema));
                }
            }
            _ => object.others = Some(self.node(value)?),
        }
        Ok(())
    }

    /// A schema that only requires these properties.
    fn required(&mut self, names: &'a Value) -> Result<Id, String> {
        let mut object = Object::default();
        self.members("required", names, &mut object)?;
        self.nodes.push(Node { keywords: vec![Keyword::Object(object)], is_shared: false });
        Ok(self.nodes.len() - 1)
    }

    fn list(&mut self, value: &'a Value) -> Result<Vec<Id>, String> {
        match value.as_array() {
            Some(schemas) if !schemas.is_empty() => {
                schemas.iter().enumerate().map(|(i, one)| self.node(one).map_err(at(i))).collect()
            }
            _ => wrong("an array of schemas"),
        }
    }

    fn map(&mut self, value: &'a Value) -> Result<Vec<(&'a str, Id)>, String> {
        let member = |(name, one): (&'a String, _)| Ok((name.as_str(), self.node(one).map_err(at(name))?));
        object(value)?.iter().map(member).collect()
    }

    /// The node that a reference within this schema points to: `#`, `#/a/place` or `#name`.
    fn reference(&mut self, reference: &'a str) -> Result<Id, String> {
        let own_name = self.root["$id"].as_str().map_or("", |name| name.trim_end_matches('#'));
        let place = match reference.strip_prefix(own_name).unwrap_or(reference) {
            "" => "",
            inside => inside.strip_prefix('#').ok_or(": other documents are not read")?,
        };
        let target = decoded(place).and_then(|place| match place.as_str() {
            "" => Some(self.root),
            pointer if pointer.starts_with('/') => self.root.pointer(pointer),
            anchor => self.anchor(anchor),
        });
        let target = target.ok_or(": the target does not exist or is not unique")?;
        let id = self.id(target);
        self.nodes[id].is_shared = true;
        self.found.push((target, place));
        Ok(id)
    }

    fn anchor(&self, name: &str) -> Option<&'a Value> {
        let (mut found, mut parts) = (None, vec![self.root]);
        while let Some(part) = parts.pop() {
            if ["$anchor", "$dynamicAnchor"].iter().any(|key| part.get(key).is_some_and(|own| own == name))
                && found.replace(part).is_some()
            {
                return None;
            }
            parts.extend(part.as_array().into_iter().flatten());
            parts.extend(part.as_object().into_iter().flat_map(Map::values));
        }
        found
    }
}

/// Decodes %-escapes.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().map_or_else(|| wrong("an object"), Ok)
}

fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!(": {error}"))
}

/// A non-negative integer; `2.0` is one, too.
fn size(value: &Value) -> Result<u64, String> {
    match Num::of(&read(value)?) {
        Num::Integer(size) => u64::try_from(size).or_else(|_| wrong("a non-negative integer")),
        Num::Float(_) => wrong("a non-negative integer"),
    }
}

#[cfg(test)]
mod tests;
