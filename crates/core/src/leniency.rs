//! What a handler's type takes, though its schema does not say so.

use std::collections::HashMap;
use std::ptr;

use serde_json::Value;

use crate::RawJson;
use crate::arguments::read;
use crate::fault::place;
use crate::handler::Handler;
use crate::schema::{Detail, Error, Keyword};

/// No type takes this text, and none has a member of that name, unless it takes any.
const NONSENSE: &str = "\u{1a} nothing is called so";

/// Decides on errors of the schema in arguments that the handler's type takes.
///
/// Serde knows more than the schema that is made from a type: an `alias`, a `deserialize_with` that reads numbers from
/// strings. Where the type has looked at what the error is about, its word counts; where it would take anything, a
/// schema of its author's own says more, and stands. To find out, nonsense is put there. What types do not check, such
/// as bounds, lengths and patterns, is always for the schema to say.
pub(crate) struct Leniency<'a> {
    pub(crate) handler: &'a Handler,
    pub(crate) arguments: &'a Value,
    /// What has been found out, by the keyword and whether something is missing: an array may have many such items. That of
    /// a choice depends on the value.
    pub(crate) known: HashMap<(*const Keyword, bool, *const Value), bool>,
}

impl Leniency<'_> {
    /// Whether the type has decided what this error in the arguments is about.
    pub(crate) fn allows(&mut self, error: &Error<'_>) -> bool {
        let choice = match &error.detail {
            Detail::Choice(choice) => Some(choice),
            _ => None,
        };
        let is_missing = matches!(error.detail, Detail::Missing(_));
        let value = choice.map_or(ptr::null(), |_| ptr::from_ref(error.value));
        let key = (ptr::from_ref(error.keyword), is_missing, value);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let allows = match choice {
            Some(choice) => choice.branches.iter().any(|all| all.iter().all(|error| self.allows(error))),
            None => self.finds_out(error).unwrap_or(false),
        };
        self.known.insert(key, allows);
        allows
    }

    fn finds_out(&self, error: &Error<'_>) -> Option<bool> {
        let place = place(self.arguments, error.value)?;
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = self.arguments.clone();
            changed.pointer_mut(&place).map(change);
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
        Some(
            self.takes(self.arguments)
                && match (error.keyword, &error.detail) {
                    // An alias of this value, and not of another branch's.
                    (Keyword::Enum(one), _) if one.len() == 1 => {
                        refuses_nonsense() && with(&|value| value.clone_from(&one[0]))
                    }
                    (Keyword::Type(..) | Keyword::Enum(_), _) => refuses_nonsense(),
                    (Keyword::Object(object), Detail::Missing(_)) if !object.is_empty() => {
                        refuses_others(&|name| !object.names().any(|known| known == name))
                    }
                    (_, Detail::Extra(unexpected)) => refuses_others(&|name| unexpected.contains(&name)),
                    _ => false,
                },
        )
    }

    fn takes(&self, arguments: &Value) -> bool {
        read(self.handler, &RawJson::from(arguments)).is_ok()
    }
}
