//! What a handler's type takes, though its schema does not say so.

use std::collections::HashMap;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use crate::RawJson;
use crate::arguments::read;
use crate::fault::{known_members, meant_branches};
use crate::handler::Handler;

/// No type takes this text, and none has a member of that name, unless it takes any.
const NONSENSE: &str = "\u{1a} nothing is called so";

/// Decides on errors of the schema in arguments that the handler's type takes.
///
/// Serde knows more than the schema that is made from a type: an `alias`, a `deserialize_with` that reads numbers from
/// strings. Where the type has looked at what the error is about, its word counts; where it would take anything, a
/// schema of its author's own says more, and stands. To find out, nonsense is put there. What types do not check, such
/// as bounds, lengths and patterns, is always for the schema to say.
pub(crate) struct Leniency<'a> {
    schema: &'a Value,
    handler: &'a Handler,
    /// What has been found out, by the part of the schema: an array may have many such items.
    known: HashMap<String, bool>,
}

impl<'a> Leniency<'a> {
    pub(crate) fn new(schema: &'a Value, handler: &'a Handler) -> Self {
        Self { schema, handler, known: HashMap::new() }
    }

    /// Whether the type has decided what this error in `arguments` is about.
    pub(crate) fn allows(&mut self, error: &ValidationError<'_>, arguments: &Value) -> bool {
        if let Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } = error.kind() {
            return meant_branches(error)
                .into_iter()
                .any(|errors| errors.iter().all(|error| self.allows(error, arguments)));
        }
        let part = error.schema_path().as_str();
        if let Some(known) = self.known.get(part) {
            return *known;
        }
        let allows = self.finds_out(error, arguments);
        self.known.insert(part.to_owned(), allows);
        allows
    }

    fn finds_out(&self, error: &ValidationError<'_>, arguments: &Value) -> bool {
        let place = error.instance_path().as_str();
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = arguments.clone();
            changed.pointer_mut(place).map(change);
            self.takes(&changed)
        };
        let refuses_nonsense = || !with(&|value| *value = NONSENSE.into());
        let refuses_others = |is_other: &dyn Fn(&str) -> bool| {
            // Whatever the schema does not name, under another name.
            let rename = |value: &mut Value| {
                let Some(members) = value.as_object_mut() else { return };
                let others: Vec<_> = members.keys().filter(|name| is_other(name)).cloned().collect();
                for name in others {
                    let member = members.remove(&name).expect("it was there");
                    members.insert(format!("{NONSENSE} {name}"), member);
                }
            };
            !with(&rename)
        };
        // Digits that no number of ours holds would make any change seem refused.
        self.takes(arguments)
            && match error.kind() {
                Kind::Type { .. } | Kind::Enum { .. } => refuses_nonsense(),
                // An alias of this value, and not of another branch's.
                Kind::Constant { expected_value } => {
                    refuses_nonsense() && with(&|value| value.clone_from(expected_value))
                }
                Kind::Required { .. } => {
                    let known = known_members(error, self.schema);
                    refuses_others(&|name| !known.contains(&name))
                }
                Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                    refuses_others(&|name| unexpected.iter().any(|other| other == name))
                }
                _ => false,
            }
    }

    fn takes(&self, arguments: &Value) -> bool {
        read(self.handler, &RawJson::from(arguments)).is_ok()
    }
}
