use toolbridge::{NoArgs, Toolset};

struct Order;

fn main() {
    let _ = Toolset::builder().tool("order", "Shows an order", |_: NoArgs| Order).build();
    let _ = Toolset::builder().tool("add", "Adds", |a: f64, b: f64| a + b).build();
    let sold = std::sync::atomic::AtomicU8::new(0);
    let _ = Toolset::builder().tool("sold", "Tells", async move |_: NoArgs| sold.load(std::sync::atomic::Ordering::Relaxed)).build();
}
