use toolbridge::{State, tool};

struct Order;

/// Takes what serde cannot read.
#[tool]
fn takes(_order: Order) {}

/// Takes a text that it does not own.
#[tool]
fn borrows(_text: &str) {}

/// Takes a pattern.
#[tool]
fn pattern((_a, _b): (u8, u8)) {}

/// Takes a state that cannot be cloned.
#[tool]
fn state(State(_order): State<Order>) {}

fn main() {}
