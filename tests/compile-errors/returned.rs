use toolbridge::tool;

struct Order;

/// Returns what serde cannot write.
#[tool]
fn returns() -> Order {
    Order
}

/// Returns it in a `Result`.
#[tool]
async fn fallible() -> Result<Order, std::io::Error> {
    Ok(Order)
}

/// Fails with what is no error, though serde could write it.
#[tool]
fn fails() -> Result<u8, Vec<u8>> {
    Ok(1)
}

fn main() {}
