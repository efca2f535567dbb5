//! What is wrong with a value, in words that help whoever wrote it.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::error::or_near;
use crate::name::nearest;

/// How many allowed values, or wrong members, are named.
const MAX_NAMED: usize = 10;

/// How much of a member's name is shown; it may be anything.
const MAX_NAME_CHARS: usize = 60;

/// Where a value does not fit, and why. The value itself is not told: it may be large, and it may be secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// A JSON pointer; `/` is the whole.
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        let path = path.into();
        Self { path: if path.is_empty() { "/".into() } else { path }, reason: reason.into() }
    }

    /// That something does not fit, where to look for it would take too long.
    pub(crate) fn unknown() -> Self {
        Self::new("/", "the value does not fit the schema")
    }

    /// What an error of the validator's says: of the branches of a choice, what is wrong in the one that was meant.
    pub(crate) fn of(error: &ValidationError<'_>, schema: &Value) -> Self {
        let meant = meant(error);
        Self::new(meant[0].instance_path().as_str(), reason(&meant, schema))
    }
}

/// Whether the validator would collect so many errors that nobody should wait for it: it looks into every branch of every
/// choice, and in a schema that refers to itself each level of the value may multiply them.
pub(crate) fn is_costly(schema: &Value, value: &Value) -> bool {
    const MAX_PARTS: u64 = 50_000;
    Parts { root: schema, known: HashMap::new() }.of(schema, value) > MAX_PARTS
}

/// Counts how often parts of a value are looked at, each pair of a part and its schema once.
struct Parts<'a> {
    root: &'a Value,
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'a> Parts<'a> {
    fn of(&mut self, schema: &'a Value, value: &'a Value) -> u64 {
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        // Should it lead back to itself.
        self.known.insert(pair, 1);
        let mut inner = Vec::new();
        let target = schema["$ref"].as_str().and_then(|place| self.root.pointer(place.strip_prefix('#')?));
        inner.extend(target.map(|target| (target, value)));
        for keyword in ["anyOf", "oneOf", "allOf"] {
            inner.extend(schema[keyword].as_array().into_iter().flatten().map(|branch| (branch, value)));
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            let named = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            inner.extend(named.map(|schema| (schema, member)));
        }
        if let Some(schema) = schema.get("items") {
            inner.extend(value.as_array().into_iter().flatten().map(|item| (schema, item)));
        }
        let parts =
            inner.into_iter().fold(1_u64, |sum, (schema, value)| sum.saturating_add(self.of(schema, value)));
        self.known.insert(pair, parts);
        parts
    }
}

/// How badly a branch of a choice fits: the less, the more likely it was meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Misfit {
    /// Something in it is wrong; the deeper, the better it fits.
    Inside(Reverse<usize>),
    /// Its tag is another one.
    Tag,
    /// It is for another kind of value, such as null.
    Kind,
}

/// A branch of a choice.
struct Branch<'e> {
    misfit: Misfit,
    /// Everything that is wrong in it.
    errors: &'e [ValidationError<'static>],
    /// What is told of it.
    meant: Vec<&'e ValidationError<'e>>,
}

impl<'e> Branch<'e> {
    fn new(errors: &'e [ValidationError<'static>], place: &str) -> Option<Self> {
        let told: Vec<_> = errors.iter().map(meant).collect();
        let is_here = |error: &ValidationError<'_>| error.instance_path().as_str() == place;
        let is_kind = |error: &ValidationError<'_>| matches!(error.kind(), Kind::Type { .. });
        let is_choice =
            |error: &ValidationError<'_>| matches!(error.kind(), Kind::Enum { .. } | Kind::Constant { .. });
        // Of a name that is wrong, that the right one is missing says more than that it is there.
        let is_extra =
            |error: &ValidationError<'_>| matches!(error.kind(), Kind::AdditionalProperties { .. });
        if let Some(kind) = told.iter().find(|meant| is_kind(meant[0]) && is_here(meant[0])) {
            let choice = told.iter().find(|meant| is_choice(meant[0]) && is_here(meant[0]));
            return Some(Self { misfit: Misfit::Kind, errors, meant: choice.unwrap_or(kind).clone() });
        }
        if let Some(tag) = errors.iter().find(|error| is_tag(error, place)) {
            return Some(Self { misfit: Misfit::Tag, errors, meant: vec![tag] });
        }
        let innermost =
            told.into_iter().min_by_key(|meant| (Reverse(depth(meant[0])), is_extra(meant[0])))?;
        Some(Self { misfit: Misfit::Inside(Reverse(depth(innermost[0]))), errors, meant: innermost })
    }
}

/// Whether a constant was expected in a member of the value at `place`: the tag of an enum, most likely.
fn is_tag(error: &ValidationError<'_>, place: &str) -> bool {
    matches!(error.kind(), Kind::Constant { .. })
        && (error.instance_path().as_str().strip_prefix(place))
            .is_some_and(|member| member.matches('/').count() == 1)
}

/// The branches of a choice that fit best, all equally well; none for an error that is not about a choice.
fn likeliest<'e>(error: &'e ValidationError<'_>) -> Vec<Branch<'e>> {
    let (Kind::AnyOf { context } | Kind::OneOfNotValid { context }) = error.kind() else { return Vec::new() };
    let place = error.instance_path().as_str();
    let mut branches: Vec<_> = context.iter().filter_map(|errors| Branch::new(errors, place)).collect();
    let least = branches.iter().map(|branch| branch.misfit).min();
    branches.retain(|branch| Some(branch.misfit) == least);
    branches
}

/// What is wrong in each branch of a choice that may have been meant; none for an error that is not about a choice.
pub(crate) fn meant_branches<'e>(error: &'e ValidationError<'_>) -> Vec<&'e [ValidationError<'static>]> {
    likeliest(error).into_iter().map(|branch| branch.errors).collect()
}

/// The innermost errors that say what is wrong: one, or one for each branch that may have been meant, all of the same
/// place.
fn meant<'e>(error: &'e ValidationError<'_>) -> Vec<&'e ValidationError<'e>> {
    let mut branches = likeliest(error).into_iter().map(|branch| branch.meant);
    let Some(mut meant) = branches.next() else { return vec![error] };
    let place = meant[0].instance_path().as_str();
    meant.extend(branches.filter(|other| other[0].instance_path().as_str() == place).flatten());
    meant
}

fn depth(error: &ValidationError<'_>) -> usize {
    error.instance_path().as_str().matches('/').count()
}

/// What errors of one place say together: each is a way in which the value would have been right.
fn reason(errors: &[&ValidationError<'_>], schema: &Value) -> String {
    let (mut values, mut types, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for error in errors {
        match error.kind() {
            Kind::Enum { options } => {
                values.extend(options.as_array().into_iter().flatten().map(Value::to_string));
            }
            Kind::Constant { expected_value } => values.push(expected_value.to_string()),
            Kind::Type { kind: TypeKind::Single(kind) } => types.push(format!("\"{kind}\"")),
            Kind::Type { kind: TypeKind::Multiple(kinds) } => {
                types.extend(kinds.iter().map(|kind| format!("\"{kind}\"")));
            }
            Kind::Required { property } => members.push(property.to_string()),
            _ => {}
        }
    }
    for names in [&mut values, &mut types, &mut members] {
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
    }
    match (&values[..], &types[..], &members[..]) {
        ([value], ..) => format!("the value is not {value}"),
        ([_, ..], ..) => format!("the value is not one of {}", listed(&values)),
        (_, [_, _, ..], _) => format!("the value is not of types {}", listed(&types)),
        (_, _, [_, _, ..]) => format!("one of the properties {} is required", listed(&members)),
        _ => match errors[0].kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                extra(unexpected, &known_members(errors[0], schema))
            }
            Kind::FalseSchema if errors[0].schema_path().as_str().ends_with("/additionalProperties") => {
                "there are no properties".into()
            }
            _ => errors[0].masked_with("the value").to_string(),
        },
    }
}

fn extra(unexpected: &[String], known: &[&str]) -> String {
    let quoted = |name: &String| {
        let mut shown: String = name.chars().take(MAX_NAME_CHARS).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        format!("`{shown}`")
    };
    match unexpected {
        [one] => {
            let near = or_near(&nearest(one, known.iter().copied()));
            format!("there is no property {}{near}", quoted(one))
        }
        many => format!("there are no properties {}", listed(&many.iter().map(quoted).collect::<Vec<_>>())),
    }
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_NAMED)].join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The members that are named beside the keyword which `error` is about.
pub(crate) fn known_members<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Vec<&'s str> {
    let part = error.schema_path().as_str().rsplit_once('/').and_then(|(part, _)| schema.pointer(part));
    let members = part.and_then(|part| part["properties"].as_object());
    members.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, rows: &[(Value, &str, &str)]) {
        let validator = jsonschema::validator_for(schema).unwrap();
        for (value, path, reason) in rows {
            let error = validator.validate(value).expect_err("a fault");
            assert_eq!(Fault::of(&error, schema), Fault::new(*path, *reason), "{value}");
        }
    }

    #[test]
    fn a_choice_of_values_names_them_and_not_the_value() {
        let many: Vec<_> = (0..25).map(|number| format!("v{number}")).collect();
        check(
            &json!({ "properties": {
                "few": { "enum": ["a", 5, null] },
                "many": { "enum": many },
                "one": { "const": "x" },
                "described": { "oneOf": [{ "const": "a", "type": "string" }, { "const": "b", "type": "string" }] },
                "optional": { "anyOf": [{ "enum": ["a", "b"] }, { "type": "null" }] },
            } }),
            &[
                (json!({"few": "secret"}), "/few", r#"the value is not one of "a", 5, null"#),
                (
                    json!({"many": "secret"}),
                    "/many",
                    r#"the value is not one of "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9" and 15 more"#,
                ),
                (json!({"one": "secret"}), "/one", r#"the value is not "x""#),
                (json!({"described": "secret"}), "/described", r#"the value is not one of "a", "b""#),
                (json!({"described": 1}), "/described", r#"the value is not one of "a", "b""#),
                (json!({"optional": "secret"}), "/optional", r#"the value is not one of "a", "b""#),
            ],
        );
    }

    #[test]
    fn the_error_of_a_choice_is_the_innermost_one_of_the_branch_that_was_meant() {
        let circle = json!({
            "type": "object",
            "properties": { "kind": { "const": "circle" }, "r": { "type": "number" }, "at": { "$ref": "#/$defs/point" } },
            "required": ["kind", "r"],
        });
        let square = json!({
            "type": "object",
            "properties": { "kind": { "const": "square" }, "side": { "type": "number", "maximum": 9 } },
            "required": ["kind", "side"],
        });
        let named = |name: &str| {
            json!({
                "type": "object",
                "properties": { name: { "$ref": "#/$defs/point" } },
                "required": [name],
                "additionalProperties": false,
            })
        };
        let none = json!({ "type": "null" });
        let point = json!({
            "type": "object",
            "properties": { "left": { "type": "integer" } },
            "required": ["left"],
            "additionalProperties": false,
        });
        check(
            &json!({
                "properties": {
                    "shape": { "anyOf": [{ "$ref": "#/$defs/shape" }, none] },
                    "point": { "anyOf": [{ "$ref": "#/$defs/point" }, none] },
                    "named": { "oneOf": [named("A"), named("B"), { "type": "string", "enum": ["C", "D"] }] },
                    "loose": { "anyOf": [{ "type": "integer" }, { "$ref": "#/$defs/point" }, none] },
                },
                "$defs": { "point": point, "shape": { "oneOf": [circle, square] } },
            }),
            &[
                (json!({"shape": {"kind": "circle"}}), "/shape", r#""r" is a required property"#),
                (
                    json!({"shape": {"kind": "circle", "r": "x"}}),
                    "/shape/r",
                    r#"the value is not of type "number""#,
                ),
                (
                    json!({"shape": {"kind": "cirle", "r": 1}}),
                    "/shape/kind",
                    r#"the value is not one of "circle", "square""#,
                ),
                (json!({"shape": {"r": 1}}), "/shape", r#""kind" is a required property"#),
                (
                    json!({"shape": {"kind": "square", "side": 10}}),
                    "/shape/side",
                    "the value is greater than the maximum of 9",
                ),
                (
                    json!({"shape": {"kind": "circle", "r": 1, "at": {"left": 0.5}}}),
                    "/shape/at/left",
                    r#"the value is not of type "integer""#,
                ),
                (json!({"shape": "circle"}), "/shape", r#"the value is not of types "object", "null""#),
                (json!({"point": {"left": "x"}}), "/point/left", r#"the value is not of type "integer""#),
                (json!({"point": {}}), "/point", r#""left" is a required property"#),
                (
                    json!({"point": {"left": 1, "lft": 1}}),
                    "/point",
                    "there is no property `lft`; did you mean `left`?",
                ),
                (json!({"point": {"left": 1, "a": 1, "b": 2}}), "/point", "there are no properties `a`, `b`"),
                (json!({"point": 5}), "/point", r#"the value is not of types "object", "null""#),
                (
                    json!({"named": {"A": {"left": "x"}}}),
                    "/named/A/left",
                    r#"the value is not of type "integer""#,
                ),
                (json!({"named": {"E": {}}}), "/named", r#"one of the properties "A", "B" is required"#),
                (json!({"named": "E"}), "/named", r#"the value is not one of "C", "D""#),
                (json!({"loose": {"left": "x"}}), "/loose/left", r#"the value is not of type "integer""#),
                (json!({"loose": "x"}), "/loose", r#"the value is not of types "integer", "object", "null""#),
            ],
        );
    }

    #[test]
    fn members_that_are_not_allowed_are_named_and_a_long_name_is_cut() {
        let shown = format!("there is no property `{}…`", "é".repeat(MAX_NAME_CHARS));
        check(
            &json!({ "properties": { "a": {} }, "additionalProperties": false }),
            &[
                (json!({ "é".repeat(200): 1 }), "/", &shown),
                (json!({"A": 1}), "/", "there is no property `A`; did you mean `a`?"),
            ],
        );
        check(
            &json!({ "additionalProperties": false }),
            &[(json!({"a": 1}), "/", "there are no properties")],
        );
    }
}
