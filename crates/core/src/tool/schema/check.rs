//! Checks values against a schema.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::number::is_multiple;
use super::{
    ARRAY, BOOLEAN, Draft, FRACTION, INTEGER, Id, Keyword, Limit, NULL, Num, OBJECT, Object, STRING, Schema,
};
use crate::tool::fault::Choice;

/// How deep subschemas may be applied inside each other: the stack is limited.
const MAX_NESTING: usize = 1000;

/// How many errors inside `anyOf` and `oneOf` are examined to find the one to report.
const MAX_ERRORS: usize = 100_000;

/// What is wrong with a part of a value.
pub(crate) struct Error<'a> {
    pub(crate) keyword: &'a Keyword,
    /// The properties next to the keyword in its schema.
    pub(crate) beside: Option<&'a Object>,
    /// The part itself; its address identifies its place in the whole value.
    pub(crate) value: &'a Value,
    /// Its depth in the whole value.
    pub(crate) depth: usize,
    pub(crate) detail: Detail<'a>,
}

pub(crate) enum Detail<'a> {
    None,
    /// The property that is missing.
    Missing(&'a str),
    /// The properties that are not allowed.
    Extra(Vec<&'a str>),
    /// The errors of the branches of a choice, none of which fits.
    Choice(Choice<'a>),
}

/// A keyword applied to a value.
#[derive(Clone, Copy)]
struct Spot<'a> {
    id: Id,
    keyword: &'a Keyword,
    value: &'a Value,
}

/// A member of an object, or an item of an array.
#[derive(Clone, Copy)]
enum Step<'a> {
    Name(&'a str),
    Item(usize),
}

pub(crate) type Errors<'a> = Vec<Rc<Error<'a>>>;

/// What the checker looks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Mode {
    /// Whether there are errors.
    Verdict,
    /// The first error to report, unless it is allowed.
    First,
    /// All errors, inside of a choice.
    All,
}

struct Checker<'a, 'f> {
    schema: &'a Schema,
    mode: Mode,
    allows: &'f mut dyn FnMut(&Error<'a>) -> bool,
    /// Results for nodes that may be checked again with the same value: without them, a choice between recursive
    /// schemas would take exponential time.
    known: HashMap<(Id, *const Value, Mode), Errors<'a>>,
    nesting: usize,
    depth: usize,
    errors: usize,
    /// The value is too deep or has too many errors; the results are no longer valid.
    gave_up: bool,
}

impl Schema {
    /// Finds what is wrong with a value, except for errors that are allowed. The error is `None` when finding it
    /// would take too long.
    pub(crate) fn check<'a>(
        &'a self,
        value: &'a Value,
        allows: &mut dyn FnMut(&Error<'a>) -> bool,
    ) -> Result<(), Option<Rc<Error<'a>>>> {
        let mut checker = self.checker(Mode::First, 0, allows);
        let mut errors = checker.check_for(Mode::Verdict, 0, value);
        if !errors.is_empty() {
            errors = checker.check(0, value);
        }
        match errors.pop() {
            _ if checker.gave_up => Err(None),
            Some(error) => Err(Some(error)),
            None => Ok(()),
        }
    }

    /// Whether checking terminates.
    pub(super) fn ends(&self) -> bool {
        let mut none = |_: &Error<'_>| false;
        (0..self.nodes.len()).all(|id| {
            let mut checker = self.checker(Mode::All, 0, &mut none);
            checker.check(id, &Value::Null);
            !checker.gave_up
        })
    }

    fn checker<'a, 'f>(
        &'a self,
        mode: Mode,
        nesting: usize,
        allows: &'f mut dyn FnMut(&Error<'a>) -> bool,
    ) -> Checker<'a, 'f> {
        let known = HashMap::new();
        Checker { schema: self, mode, allows, known, nesting, depth: 0, errors: 0, gave_up: false }
    }
}

impl<'a> Checker<'a, '_> {
    fn fits(&mut self, id: Id, value: &'a Value) -> bool {
        self.check_for(Mode::Verdict, id, value).is_empty()
    }

    fn check_for(&mut self, mode: Mode, id: Id, value: &'a Value) -> Errors<'a> {
        let mode = mem::replace(&mut self.mode, mode);
        let errors = self.check(id, value);
        self.mode = mode;
        errors
    }

    fn check(&mut self, id: Id, value: &'a Value) -> Errors<'a> {
        let node = &self.schema.nodes[id];
        let part = (id, std::ptr::from_ref(value), self.mode);
        if let Some(known) = node.is_shared.then(|| self.known.get(&part)).flatten() {
            return known.clone();
        }
        let mut errors = Vec::new();
        self.gave_up |= self.nesting == MAX_NESTING;
        self.nesting += 1;
        for keyword in &node.keywords {
            if self.is_done(&errors) {
                break;
            }
            self.apply(Spot { id, keyword, value }, &mut errors);
        }
        self.nesting -= 1;
        if node.is_shared {
            self.known.insert(part, errors.clone());
        }
        errors
    }

    fn is_done(&self, errors: &Errors<'_>) -> bool {
        self.gave_up || self.mode != Mode::All && !errors.is_empty()
    }

    fn fail(&mut self, spot: Spot<'a>, detail: Detail<'a>, errors: &mut Errors<'a>) {
        let Spot { id, keyword, value } = spot;
        let beside = self.schema.nodes[id].object();
        let error = Error { keyword, beside, value, depth: self.depth, detail };
        if self.mode == Mode::First && (self.allows)(&error) {
            return;
        }
        self.errors += usize::from(self.mode == Mode::All);
        self.gave_up |= self.errors > MAX_ERRORS;
        errors.push(Rc::new(error));
    }

    fn apply(&mut self, spot: Spot<'a>, errors: &mut Errors<'a>) {
        let value = spot.value;
        match (spot.keyword, value) {
            (Keyword::Object(object), Value::Object(members)) => self.object(spot, object, members, errors),
            (Keyword::Items { first, others }, Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.inside(first.get(i).copied().or(*others), item, errors);
                }
            }
            (Keyword::AllOf(all), _) => {
                for id in all {
                    errors.extend(if self.is_done(errors) { Vec::new() } else { self.check(*id, value) });
                }
            }
            (Keyword::AnyOf(branches), _) if !branches.iter().any(|id| self.fits(*id, value)) => {
                self.choice(spot, branches, errors);
            }
            _ => self.apply_other(spot, errors),
        }
    }

    /// The keywords that are rarely nested, apart from [`apply`](Self::apply): what is not optimised has room on the
    /// stack for all cases of a function at each level.
    fn apply_other(&mut self, spot: Spot<'a>, errors: &mut Errors<'a>) {
        let value = spot.value;
        match (spot.keyword, value) {
            (Keyword::PropertyNames(id), Value::Object(members)) => {
                let extra = members.keys().map(String::as_str).filter(|name| !self.fits_name(*id, name));
                let extra = extra.collect();
                self.extra(spot, extra, errors);
            }
            (Keyword::Dependent(name, id, _), Value::Object(members)) if members.contains_key(name) => {
                errors.extend(self.check(*id, value));
            }
            (Keyword::OneOf(branches), _) => {
                match branches.iter().filter(|id| self.fits(**id, value)).take(2).count() {
                    0 => self.choice(spot, branches, errors),
                    1 => {}
                    _ => self.fail(spot, Detail::None, errors),
                }
            }
            (Keyword::If(condition, then, otherwise), _) => {
                let branch = if self.fits(*condition, value) { then } else { otherwise };
                errors.extend(branch.map(|id| self.check(id, value)).unwrap_or_default());
            }
            (Keyword::Unevaluated(OBJECT, id), Value::Object(members)) => {
                let extra =
                    members.iter().filter(|(name, part)| self.is_extra(spot, Step::Name(name), *id, part));
                let extra = extra.map(|(name, _)| name.as_str()).collect();
                self.extra(spot, extra, errors);
            }
            (keyword, _) if !self.holds(spot, keyword) => self.fail(spot, Detail::None, errors),
            _ => {}
        }
    }

    /// Whether a keyword without further details holds.
    fn holds(&mut self, spot: Spot<'a>, keyword: &'a Keyword) -> bool {
        match (keyword, spot.value) {
            (Keyword::Contains { item, least, most }, Value::Array(items)) => {
                let fitting = items.iter().filter(|one| self.fits(*item, one)).count() as u64;
                (*least..=*most).contains(&fitting)
            }
            (Keyword::Not(id, _), value) => !self.fits(*id, value),
            (Keyword::Unevaluated(ARRAY, id), Value::Array(items)) => {
                let mut items = items.iter().enumerate();
                !items.any(|(i, part)| self.is_extra(spot, Step::Item(i), *id, part))
            }
            (Keyword::Type(kinds, _), value) => kinds & kind(value) != 0,
            (Keyword::Enum(options), value) => options.iter().any(|option| order(option, value).is_eq()),
            (Keyword::Limit(Limit(_, kinds, is_wrong, ..), limit), value) if kinds & kind(value) != 0 => {
                !is_wrong(measure(value).compare(Num::of(limit)))
            }
            (Keyword::MultipleOf(divisor), Value::Number(number)) => is_multiple(number, divisor),
            (Keyword::Pattern(pattern), Value::String(text)) => pattern.matches(text),
            (Keyword::UniqueItems, Value::Array(items)) => {
                let mut sorted: Vec<_> = items.iter().collect();
                sorted.sort_unstable_by(|a, b| order(a, b));
                sorted.windows(2).all(|pair| order(pair[0], pair[1]).is_ne())
            }
            _ => true,
        }
    }

    fn object(
        &mut self,
        spot: Spot<'a>,
        object: &'a Object,
        members: &'a Map<String, Value>,
        errors: &mut Errors<'a>,
    ) {
        let schema = self.schema;
        let is_never = |id: &Id| matches!(schema.nodes[*id].keywords[..], [Keyword::Type(0, _)]);
        let others = object.others.filter(|id| !is_never(id));
        if others != object.others {
            let extra = members.keys().map(String::as_str).filter(|name| !object.knows(name));
            self.extra(spot, extra.collect(), errors);
        }
        for name in object.required.iter().map(|place| &object.members[*place].0) {
            if !self.is_done(errors) && !members.contains_key(name) {
                self.fail(spot, Detail::Missing(name), errors);
            }
        }
        let mut next = 0;
        for (name, member) in members {
            let place = object.place(name, next);
            next = place.map_or(next, |place| place + 1);
            let named = place.and_then(|place| object.members[place].1);
            self.inside(named, member, errors);
            let mut is_known = named.is_some();
            for (_, id) in object.patterns.iter().filter(|(pattern, _)| pattern.matches(name)) {
                is_known = true;
                self.inside(Some(*id), member, errors);
            }
            self.inside(others.filter(|_| !is_known), member, errors);
        }
    }

    /// Checks a part of the value, if there is a schema for it.
    fn inside(&mut self, id: Option<Id>, part: &'a Value, errors: &mut Errors<'a>) {
        if let Some(id) = id
            && !self.is_done(errors)
        {
            self.depth += 1;
            errors.extend(self.check(id, part));
            self.depth -= 1;
        }
    }

    fn fits_name(&mut self, id: Id, name: &str) -> bool {
        let (name, mut none) = (name.into(), |_: &Error<'_>| false);
        let mut checker = self.schema.checker(Mode::Verdict, self.nesting, &mut none);
        let fits = checker.check(id, &name).is_empty();
        self.gave_up |= checker.gave_up;
        fits
    }

    fn extra(&mut self, spot: Spot<'a>, names: Vec<&'a str>, errors: &mut Errors<'a>) {
        if !names.is_empty() {
            self.fail(spot, Detail::Extra(names), errors);
        }
    }

    fn choice(&mut self, spot: Spot<'a>, branches: &'a [Id], errors: &mut Errors<'a>) {
        let detail = if self.mode == Mode::Verdict {
            Detail::None
        } else {
            let branches = branches.iter().map(|id| self.check_for(Mode::All, *id, spot.value));
            Detail::Choice(Choice::new(branches.collect(), spot.value, self.depth))
        };
        self.fail(spot, detail, errors);
    }

    /// Whether a member or an item is only covered by `unevaluatedProperties` or `unevaluatedItems`, and does not
    /// fit that.
    fn is_extra(&mut self, spot: Spot<'a>, step: Step<'_>, id: Id, part: &'a Value) -> bool {
        !self.evaluates(spot.id, spot.value, step, &mut HashSet::new()) && !self.fits(id, part)
    }

    /// Whether a schema that the value fits has evaluated this member or item. `seen` holds the schemas already
    /// visited.
    fn evaluates(&mut self, id: Id, value: &'a Value, step: Step<'_>, seen: &mut HashSet<Id>) -> bool {
        let (schema, is_first) = (self.schema, seen.is_empty());
        if !seen.insert(id) {
            return false;
        }
        let mut inside = |me: &mut Self, id: Id| me.fits(id, value) && me.evaluates(id, value, step, seen);
        let any = |keyword: &'a Keyword| match (keyword, step) {
            (Keyword::Object(object), Step::Name(name)) => object.others.is_some() || object.knows(name),
            (Keyword::Items { first, others }, Step::Item(i)) => others.is_some() || i < first.len(),
            (Keyword::Contains { item, .. }, Step::Item(i)) => {
                schema.draft == Draft::D2020 && self.fits(*item, &value[i])
            }
            (Keyword::Unevaluated(OBJECT, _), Step::Name(_))
            | (Keyword::Unevaluated(ARRAY, _), Step::Item(_)) => !is_first,
            (Keyword::Dependent(name, id, true), _) => value.get(name).is_some() && inside(self, *id),
            (Keyword::If(condition, then, otherwise), _) => {
                let branch = if self.fits(*condition, value) { then } else { otherwise };
                inside(self, *condition) || branch.is_some_and(|id| inside(self, id))
            }
            (Keyword::AllOf(ids) | Keyword::AnyOf(ids) | Keyword::OneOf(ids), _) => {
                ids.iter().any(|id| inside(self, *id))
            }
            _ => false,
        };
        schema.nodes[id].keywords.iter().any(any)
    }
}

/// The value of a number, or the size of any other value.
fn measure(value: &Value) -> Num {
    let count = match value {
        Value::Number(number) => return Num::of(number),
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        Value::Null | Value::Bool(_) => 0,
    };
    Num::Integer(count as i128)
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::Bool(_) => BOOLEAN,
        Value::Null => NULL,
        Value::Number(number) if Num::of(number).is_integer() => INTEGER,
        Value::Number(_) => FRACTION,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// A total order of all values, in which values are equal if JSON Schema considers them equal.
fn order(a: &Value, b: &Value) -> Ordering {
    fn all<T>(a: &[T], b: &[T], order: impl Fn(&T, &T) -> Ordering) -> Ordering {
        let pairs = a.iter().zip(b);
        a.len().cmp(&b.len()).then_with(|| {
            pairs.map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        })
    }
    fn sorted(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
        let mut members: Vec<_> = members.iter().collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        members
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Num::of(a).compare(Num::of(b)),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => all(a, b, order),
        (Value::Object(a), Value::Object(b)) => {
            all(&sorted(a), &sorted(b), |a, b| a.0.cmp(b.0).then_with(|| order(a.1, b.1)))
        }
        _ => kind(a).cmp(&kind(b)),
    }
}
