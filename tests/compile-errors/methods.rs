use toolbridge::tools;

struct Shop;

#[tools]
impl Shop {
    /// Changes the shop.
    fn change(&mut self) {}

    fn undescribed(&self) {}

    /// Is nobody's.
    #[tool(read_only)]
    fn nobodys() {}

    /// Is generic.
    fn generic<T>(&self, _value: T) {}
}

struct Empty;

#[tools]
impl Empty {
    fn new() -> Self {
        Self
    }
}

struct Borrowed<'a>(&'a str);

#[tools]
impl<'a> Borrowed<'a> {
    /// Is a tool.
    fn text(&self) -> String {
        self.0.to_owned()
    }
}

#[tools]
impl Drop for Shop {
    fn drop(&mut self) {}
}

#[tools(read_only)]
impl Shop {
    /// Is a tool.
    fn fine(&self) {}
}

fn main() {}
