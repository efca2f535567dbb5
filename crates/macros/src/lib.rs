//! The attributes `tool` and `tools`. The crate `toolbridge` re-exports and documents them; what they write refers to its
//! `__private`.
//!
//! `setting.rs` reads what stands in the attribute, `function.rs` makes a tool out of a signature, `method.rs` several out of an
//! `impl` block.

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

/// All values, or all errors as one.
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

/// What an attribute writes besides the item that it stands on. The item is changed: attributes that are ours must go, whether
/// or not something else is wrong with it, for the compiler would complain of each of them.
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
