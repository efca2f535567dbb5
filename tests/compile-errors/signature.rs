use toolbridge::{CallContext, tool};

/// Is generic.
#[tool]
fn generic<T>(_value: T) {}

/// Borrows.
#[tool]
fn borrows<'a>(_text: std::borrow::Cow<'a, str>) {}

/// Takes anything.
#[tool]
fn anything(_text: impl Into<String>) {}

/// Is not safe.
#[tool]
unsafe fn danger() {}

/// Changes the context.
#[tool]
fn changes(_context: &mut CallContext) {}

/// Gives a default to what is no argument.
#[tool]
fn default(#[serde(default)] _context: &CallContext) {}

/// Is not a function.
#[tool]
struct Nothing;

struct Shop;

impl Shop {
    /// Is a method.
    #[tool]
    fn method(&self) {}
}

fn main() {}
