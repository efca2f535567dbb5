use std::sync::atomic::{AtomicU8, Ordering};

use toolbridge::{NoArgs, Toolset};

fn main() {
    let sold = AtomicU8::new(0);
    let count = async move |_: NoArgs| sold.fetch_add(1, Ordering::Relaxed);
    let _ = Toolset::builder().tool("count", "Counts", count).build();

    let mut names = vec!["a"];
    let push = async move |_: NoArgs| names.push("b");
    let _ = Toolset::builder().tool("push", "Adds a name", push).build();
}
