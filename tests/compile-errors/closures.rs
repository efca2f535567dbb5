use toolbridge::{NoArgs, Toolset};

struct Order;

fn main() {
    let _ = Toolset::builder().tool("order", "Shows an order", |_: NoArgs| Order).build();
    let _ = Toolset::builder().tool("add", "Adds", |a: f64, b: f64| a + b).build();
}
