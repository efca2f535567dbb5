//! The attributes `tool` and `tools`. The crate `toolbridge` re-exports and documents them; the code they generate
//! refers to its `__private` module.
//!
//! `setting.rs` parses the attribute, `function.rs` turns a signature into a tool, `method.rs` an `impl` block into
//! several.

use proc_macro::TokenStream;

mod function;
mod method;
mod parameter;
mod setting;

/// Makes a function a tool. See `toolbridge::tool`.
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand(item, |item| function::expand(settings.into(), item))
}

/// Makes the methods of an `impl` block tools. See `toolbridge::tools`.
#[proc_macro_attribute]
pub fn tools(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand(item, |item| method::expand(settings.into(), item))
}

/// All values, or all errors combined into one.
fn all<T>(outcomes: impl IntoIterator<Item = syn::Result<T>>) -> syn::Result<Vec<T>> {
    let mut all = Ok(Vec::new());
    for outcome in outcomes {
        match (&mut all, outcome) {
            (Ok(values), Ok(value)) => values.push(value),
            (Ok(_), Err(error)) => all = Err(error),
            (Err(errors), Err(error)) => errors.combine(error),
            (Err(_), Ok(_)) => {}
        }
    }
    all
}

/// Expands an attribute: the item, and what `write` generates. The item is changed: our attributes must be removed
/// even if something else is wrong with it, because the compiler would report each of them.
fn expand<T: syn::parse::Parse + quote::ToTokens>(
    item: TokenStream,
    write: impl FnOnce(&mut T) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let mut item = match syn::parse::<T>(item) {
        Ok(item) => item,
        Err(error) => return error.to_compile_error().into(),
    };
    let more = write(&mut item).unwrap_or_else(|error| error.to_compile_error());
    let mut all = item.into_token_stream();
    all.extend(more);
    all.into()
}
