use toolbridge::{State, tool};

struct Order;

/// Takes what serde cannot read.
#[tool]
fn takes(order: Order) {}

/// Takes a text that it does not own.
#[tool]
fn borrows(text: &str) {}

/// Takes a pattern.
#[tool]
fn pattern((a, b): (u8, u8)) {}

/// Takes a state that cannot be cloned.
#[tool]
fn state(State(order): State<Order>) {}

fn main() {}
