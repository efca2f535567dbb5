//! Turns the methods of an `impl` block into tools.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, ImplItem, ImplItemFn, ItemImpl, Meta, ReceiverKind, Result};

use crate::all;
use crate::function::{conditions, lints, private, take_parameters, tool};
use crate::setting::Settings;

pub(crate) fn expand(settings: TokenStream, block: &mut ItemImpl) -> Result<TokenStream> {
    let tools = block.items.iter_mut().filter_map(|item| match item {
        ImplItem::Fn(method) => one(method).transpose(),
        _ => None,
    });
    // Done first, so that our attributes are removed even after an error.
    let found = all(tools);
    if !settings.is_empty() {
        return Err(Error::new_spanned(
            settings,
            "`tools` takes no settings; put them into `#[tool(…)]` on a method",
        ));
    }
    check(block)?;
    let found = found?;
    if found.is_empty() {
        let message = "no method takes `&self`, so this block has no tools";
        return Err(Error::new_spanned(&block.self_ty, message));
    }

    let private = private();
    let state = &block.self_ty;
    let (generics, _, bounds) = block.generics.split_for_impl();
    let conditions: Vec<_> = conditions(&block.attrs).collect();
    let share = quote_spanned!(state.span()=> #private::share(self));
    Ok(quote! {
        #(#conditions)*
        #[automatically_derived]
        impl #generics #private::IntoTools for #state #bounds {
            fn into_tools(self) -> ::std::vec::Vec<#private::Tool> {
                let __state = #share;
                let mut __tools = ::std::vec::Vec::new();
                #(#found)*
                __tools
            }
        }

        #(#conditions)*
        #[automatically_derived]
        impl #generics #state #bounds {
            /// The methods as tools, which share this value.
            ///
            /// # Errors
            ///
            /// When two of them have the same name, or a schema is not a JSON Schema of an object.
            #[allow(dead_code, unreachable_pub)]
            pub fn into_toolset(self) -> ::core::result::Result<#private::Toolset, #private::RegistrationError> {
                #private::Toolset::builder().with(self).build()
            }
        }
    })
}

fn check(block: &ItemImpl) -> Result<()> {
    if let Some((trait_, _)) = &block.trait_ {
        let message = "the tools of a type are its own methods: put this on an `impl` block without a trait";
        return Err(Error::new_spanned(trait_, message));
    }
    if let Some(lifetime) = block.generics.lifetimes().next() {
        let message = "tools can live arbitrarily long, so their state cannot borrow: hold an `Arc`";
        return Err(Error::new_spanned(lifetime, message));
    }
    Ok(())
}

/// A statement that adds the tool of the method, if it is one.
fn one(method: &mut ImplItemFn) -> Result<Option<TokenStream>> {
    // Imported, or with its full path.
    let is_ours = |attribute: &Attribute| {
        attribute.path().segments.last().is_some_and(|segment| segment.ident == "tool")
    };
    let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut method.attrs).into_iter().partition(is_ours);
    method.attrs = others;
    let settings = ours.first().map(|attribute| match &attribute.meta {
        Meta::Path(_) => Settings::parse(TokenStream::new()),
        Meta::List(list) => Settings::parse(list.tokens.clone()),
        Meta::NameValue(pair) => Err(Error::new_spanned(pair, "expected `#[tool(…)]`")),
    });
    if let Some(Ok(Settings { skip: Some(_), .. })) = settings {
        return Ok(None);
    }

    let by_reference = match method.sig.receiver().map(|receiver| &receiver.kind) {
        Some(ReceiverKind::Reference(_, _, None)) => true,
        // An associated function such as `new`, or a method that consumes the value.
        None | Some(ReceiverKind::Value) if settings.is_none() => return Ok(None),
        _ => false,
    };
    let parameters = take_parameters(&mut method.sig);
    let settings = settings.transpose()?.unwrap_or_default();
    if let Some(second) = ours.get(1) {
        return Err(Error::new_spanned(second, "one `#[tool(…)]` is enough: write all settings into it"));
    }
    if !by_reference {
        let message = "a tool takes `&self`, because calls share the value (a `Mutex` lets them change it); \
                       mark other methods with `#[tool(skip)]`";
        let receiver = method.sig.receiver().map(ToTokens::to_token_stream);
        return Err(Error::new_spanned(
            receiver.unwrap_or_else(|| method.sig.ident.to_token_stream()),
            message,
        ));
    }
    let name = &method.sig.ident;
    let first = Some(quote!(&__this));
    let tool = tool(&settings, &method.attrs, &method.sig, &parameters?, &quote!(Self::#name), first)?;
    method.attrs.push(lints());
    let conditions = conditions(&method.attrs);
    Ok(Some(quote! {
        #(#conditions)*
        {
            let __this = ::std::sync::Arc::clone(&__state);
            __tools.push(#tool);
        }
    }))
}
