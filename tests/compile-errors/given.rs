use toolbridge::{NoArgs, Toolset, tool};

/// Adds two numbers.
#[tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

struct Shop;

fn main() {
    let _ = Toolset::builder().with(add).build();
    let _ = Toolset::builder().with(Shop).build();
    let _ = Toolset::builder().with(|_: NoArgs| "hello").build();
}
