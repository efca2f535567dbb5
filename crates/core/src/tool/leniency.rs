//! Accepts what a handler's type accepts although its schema does not allow it.

use std::collections::HashMap;
use std::ptr;

use serde_json::Value;

use crate::RawJson;
use crate::tool::arguments::read;
use crate::tool::fault::place;
use crate::tool::schema::{Detail, Error, Keyword};
use crate::toolset::handler::Handler;

/// No type accepts this text, and no type has a member of this name, unless it accepts anything.
const NONSENSE: &str = "\u{1a} nothing is called so";

/// Decides about schema errors in arguments that the handler's type accepts.
///
/// Serde knows more than the schema generated from a type, for example an `alias` or a `deserialize_with` that
/// reads numbers from strings. If the type really checks the value in question, its decision counts. If the type
/// would accept anything there, the schema was written by hand and its decision counts. To find out which, the
/// value is replaced with nonsense. Constraints that types do not check, such as bounds, lengths and patterns, are
/// always decided by the schema.
pub(crate) struct Leniency<'a> {
    pub(crate) handler: &'a Handler,
    pub(crate) arguments: &'a Value,
    /// Decisions so far, by keyword and by whether a property is missing, since an array may have many such items.
    /// For a choice, the decision depends on the value too.
    pub(crate) known: HashMap<(*const Keyword, bool, *const Value), bool>,
}

impl Leniency<'_> {
    /// Whether the type has checked what this error is about.
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
            // Renames every member that the schema does not name.
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
        // If the unchanged arguments are refused, for example because of digits that do not fit a number, any
        // change would seem to be refused too.
        Some(
            self.takes(self.arguments)
                && match (error.keyword, &error.detail) {
                    // It must be an alias of this value, and not of another branch's.
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
