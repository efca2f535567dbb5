use std::cell::Cell;
use std::rc::Rc;

use toolbridge::{tool, tools};

/// Holds what must stay on its thread.
#[tool]
async fn holds() -> u8 {
    let number = Rc::new(1);
    std::future::ready(()).await;
    *number
}

struct Shop {
    sold: Cell<u8>,
}

#[tools]
impl Shop {
    /// Tells how much has been sold.
    fn sold(&self) -> u8 {
        self.sold.get()
    }
}

fn main() {}
