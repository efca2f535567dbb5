//! Explains why a value does not fit its schema, in words that help the author of the value.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::rc::Rc;

use serde_json::Value;

use crate::tool::error::or_near;
use crate::tool::name::nearest;
use crate::tool::schema::{Detail, Error, Errors, Keyword, Limit, Object, Schema};

/// How many allowed values or unexpected members are listed.
const MAX_NAMED: usize = 10;

/// How much of a member's name is shown; it comes from the caller and may be long.
const MAX_NAME_CHARS: usize = 60;

/// Where a value does not fit, and why. The value itself is not shown: it may be large, and it may be secret.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// A JSON pointer; `/` is the root.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

impl Fault {
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        let path = path.into();
        Self { path: if path.is_empty() { "/".into() } else { path }, reason: reason.into() }
    }

    /// The value does not fit, but finding out where would take too long.
    pub(crate) fn unknown() -> Self {
        Self::new("/", "the value does not fit the schema")
    }
}

impl Schema {
    /// Where `value` does not fit, and why.
    #[must_use]
    pub fn fault(&self, value: &Value) -> Option<Fault> {
        self.fault_but_for(value, &mut |_| false)
    }

    /// The same, except for errors that `is_none` accepts.
    pub(crate) fn fault_but_for<'a>(
        &'a self,
        value: &'a Value,
        is_none: &mut dyn FnMut(&Error<'a>) -> bool,
    ) -> Option<Fault> {
        let Some(error) = self.check(value, is_none).err()? else { return Some(Fault::unknown()) };
        let meant = meant(&error);
        Some(Fault::new(place(value, meant[0].value)?, reason(&meant)))
    }
}

/// The JSON pointer to a part of a value.
pub(crate) fn place(whole: &Value, part: &Value) -> Option<String> {
    if std::ptr::eq(whole, part) {
        return Some(String::new());
    }
    match whole {
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| Some(format!("/{index}{}", place(item, part)?)))
        }
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let rest = place(member, part)?;
            Some(format!("/{}{rest}", name.replace('~', "~0").replace('/', "~1")))
        }),
        _ => None,
    }
}

/// How badly a branch of `anyOf` or `oneOf` fits; the branch with the smallest distance was most likely meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// Something inside it is wrong; the deeper, the better it fits.
    Inside(Reverse<usize>),
    /// Its tag is different.
    Tag,
    /// It is for another type of value, such as null.
    Kind,
}

/// The best-fitting branches of `anyOf` or `oneOf`; all fit equally well.
pub(crate) struct Choice<'a> {
    /// All errors of each branch.
    pub(crate) branches: Vec<Errors<'a>>,
    /// The innermost errors to report, all at the same place.
    meant: Errors<'a>,
}

impl<'a> Choice<'a> {
    /// From the errors of branches that do not fit a value at that depth.
    pub(crate) fn new(branches: Vec<Errors<'a>>, value: &Value, depth: usize) -> Self {
        let judged = branches.into_iter().filter_map(|errors| {
            let (distance, meant) = judge(&errors, value, depth)?;
            Some((distance, meant, errors))
        });
        let mut judged: Vec<_> = judged.collect();
        let least = judged.iter().map(|(distance, ..)| *distance).min();
        judged.retain(|(distance, ..)| Some(*distance) == least);
        let (mut seen, mut meant) = (HashSet::new(), Errors::new());
        for error in judged.iter().flat_map(|(_, meant, _)| meant) {
            let is_same_place = meant.first().is_none_or(|first| std::ptr::eq(first.value, error.value));
            if is_same_place && seen.insert(Rc::as_ptr(error)) {
                meant.push(error.clone());
            }
        }
        Self { branches: judged.into_iter().map(|(.., errors)| errors).collect(), meant }
    }
}

/// How badly a branch fits, and which of its errors to report.
fn judge<'a>(errors: &Errors<'a>, value: &Value, depth: usize) -> Option<(Distance, Errors<'a>)> {
    let told: Vec<_> = errors.iter().map(meant).collect();
    let is_here = |meant: &&Errors<'_>| std::ptr::eq(meant[0].value, value);
    let here = |is: fn(&Keyword) -> bool| told.iter().filter(is_here).find(|meant| is(meant[0].keyword));
    if let Some(kind) = here(|keyword| matches!(keyword, Keyword::Type(..))) {
        let choice = here(|keyword| matches!(keyword, Keyword::Enum(_)));
        return Some((Distance::Kind, choice.unwrap_or(kind).clone()));
    }
    // A constant in a direct member is most likely the tag of an enum.
    let is_tag = |error: &&Rc<Error<'_>>| {
        matches!(error.keyword, Keyword::Enum(one) if one.len() == 1) && error.depth == depth + 1
    };
    if let Some(tag) = errors.iter().find(is_tag) {
        return Some((Distance::Tag, vec![tag.clone()]));
    }
    // For a misspelt name, reporting the missing property says more than reporting the unexpected one.
    let is_extra = |error: &Error<'_>| matches!(error.detail, Detail::Extra(_));
    let innermost = told.into_iter().min_by_key(|meant| (Reverse(meant[0].depth), is_extra(&meant[0])))?;
    Some((Distance::Inside(Reverse(innermost[0].depth)), innermost))
}

/// The innermost errors to report: one, or one for each branch that may have been meant.
fn meant<'a>(error: &Rc<Error<'a>>) -> Errors<'a> {
    match &error.detail {
        Detail::Choice(choice) if !choice.meant.is_empty() => choice.meant.clone(),
        _ => vec![error.clone()],
    }
}

/// One text for errors at the same place: each names something that would have been right.
pub(crate) fn reason(errors: &[Rc<Error<'_>>]) -> String {
    let (mut values, mut types, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for error in errors {
        match (error.keyword, &error.detail) {
            (Keyword::Enum(options), _) => values.extend(options.iter().map(Value::to_string)),
            (Keyword::Type(_, names), _) => types.extend(names.iter().map(|name| format!("\"{name}\""))),
            (_, Detail::Missing(name)) => members.push(Value::from(*name).to_string()),
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
        (_, [kind], _) => format!("the value is not of type {kind}"),
        (_, [_, _, ..], _) => format!("the value is not of types {}", listed(&types)),
        (_, _, [member]) => format!("{member} is a required property"),
        (_, _, [_, _, ..]) => format!("one of the properties {} is required", listed(&members)),
        _ => reason_of(&errors[0]),
    }
}

fn reason_of(error: &Error<'_>) -> String {
    match (error.keyword, &error.detail) {
        (Keyword::Object(object), Detail::Extra(_)) if object.is_empty() => "there are no properties".into(),
        (_, Detail::Extra(names)) => extra(names, error),
        (Keyword::Type(..), _) => "False schema does not allow the value".into(),
        (Keyword::Limit(Limit(.., words, units), limit), _) => {
            let unit = units[usize::from(limit.as_f64() != Some(1.0))];
            format!("the value {words} {limit}{unit}")
        }
        (Keyword::MultipleOf(divisor), _) => format!("the value is not a multiple of {divisor}"),
        (Keyword::Pattern(pattern), _) => format!("the value does not match \"{}\"", pattern.text),
        (Keyword::UniqueItems, _) => "the value has non-unique elements".into(),
        (Keyword::Contains { least, most: u64::MAX, .. }, _) => {
            format!("the value has less than {least} items that fit `contains`")
        }
        (Keyword::Contains { least, most, .. }, _) => {
            format!("the value does not have {least} to {most} items that fit `contains`")
        }
        (Keyword::Not(_, schema), _) => format!("{schema} is not allowed for the value"),
        (Keyword::Unevaluated(..), _) => "Unevaluated items are not allowed".into(),
        (Keyword::OneOf(_), Detail::None) => {
            "the value is valid under more than one of the schemas listed in the 'oneOf' keyword".into()
        }
        _ => Fault::unknown().reason,
    }
}

fn extra(unexpected: &[&str], error: &Error<'_>) -> String {
    let quoted = |name: &&str| {
        let mut shown: String = name.chars().take(MAX_NAME_CHARS).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        format!("`{shown}`")
    };
    match unexpected {
        [one] => {
            let known = error.beside.into_iter().flat_map(Object::names);
            let near = or_near(&nearest(one, known));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, rows: &[(Value, &str, &str)]) {
        let schema = Schema::compile(schema).unwrap();
        for (value, path, reason) in rows {
            assert_eq!(schema.fault(value), Some(Fault::new(*path, *reason)), "{value}");
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
