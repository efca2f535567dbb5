//! Turns a function into a tool.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Safety, Signature};

use crate::all;
use crate::parameter::FunctionParameter;
use crate::setting::Settings;

/// The path of everything that generated code refers to.
pub(crate) fn private() -> TokenStream {
    quote!(::toolbridge::__private)
}

/// The function is kept. Next to it, a struct with braces of the same name is added, which is the tool; functions
/// and such structs have separate namespaces.
pub(crate) fn expand(settings: TokenStream, function: &mut ItemFn) -> Result<TokenStream> {
    let parameters = take_parameters(&mut function.sig);
    let settings = Settings::parse(settings)?;
    let name = &function.sig.ident;
    if let Some(skip) = settings.skip {
        let message = "`skip` is for methods below `#[tools]`; a function needs no attribute";
        return Err(Error::new(skip, message));
    }
    if let Some(receiver) = function.sig.receiver() {
        let message = "to make a method a tool, put `#[toolbridge::tools]` on its `impl` block";
        return Err(Error::new_spanned(receiver, message));
    }
    let tool = tool(&settings, &function.attrs, &function.sig, &parameters?, &name.to_token_stream(), None)?;

    function.attrs.push(lints());
    let name = &function.sig.ident;
    let private = private();
    let visibility = &function.vis;
    let conditions: Vec<_> = conditions(&function.attrs).collect();
    let summary = format!("The tool [`{name}`](fn@{name}): `Toolset::builder().with({name} {{}})`.");
    Ok(quote! {
        #(#conditions)*
        #[doc = #summary]
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy)]
        #visibility struct #name {}

        #(#conditions)*
        #[automatically_derived]
        impl ::core::convert::From<#name> for #private::Tool {
            fn from(_: #name) -> Self {
                #tool
            }
        }

        #(#conditions)*
        #[automatically_derived]
        impl #private::IntoTools for #name {
            fn into_tools(self) -> ::std::vec::Vec<#private::Tool> {
                ::std::vec![#private::Tool::from(self)]
            }
        }
    })
}

/// Allows lints that do not apply to tools: a tool owns its arguments even if it does not consume them, and `async`
/// decides where it runs.
pub(crate) fn lints() -> Attribute {
    syn::parse_quote!(#[allow(clippy::needless_pass_by_value, clippy::unused_async)])
}

/// The `#[cfg(…)]` attributes, which must be repeated on everything generated for the item.
pub(crate) fn conditions(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"))
}

/// Removes our attributes from all parameters, and returns all errors together.
pub(crate) fn take_parameters(signature: &mut Signature) -> Result<Vec<FunctionParameter>> {
    let typed = signature.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    all(typed.enumerate().map(|(number, typed)| FunctionParameter::take(typed, number)))
}

fn check(signature: &Signature) -> Result<()> {
    if let Some(generic) = signature.generics.params.first() {
        let message = match generic {
            GenericParam::Lifetime(_) => "a tool owns its arguments, so it has no lifetimes: `text: String`",
            _ => "a tool cannot be generic: the model has to know the types of its arguments",
        };
        return Err(Error::new_spanned(generic, message));
    }
    if let Safety::Unsafe(word) = &signature.safety {
        return Err(Error::new_spanned(
            word,
            "a model may call a tool at any time, so it cannot be `unsafe`",
        ));
    }
    Ok(())
}

/// An expression for the tool that calls `callee`, with `first` before all other arguments.
pub(crate) fn tool(
    settings: &Settings,
    attributes: &[Attribute],
    signature: &Signature,
    parameters: &[FunctionParameter],
    callee: &TokenStream,
    first: Option<TokenStream>,
) -> Result<TokenStream> {
    check(signature)?;
    let name = settings.name(&signature.ident)?;
    let description = settings.description(attributes, &signature.ident, first.is_some())?;
    let calls = &settings.calls;

    let private = private();
    let serde = quote!(#private::serde).to_string();
    let schemars = quote!(#private::schemars).to_string();
    let generics: Vec<_> = parameters.iter().filter_map(FunctionParameter::generic).collect();
    let unknown = generics.iter().map(|_| quote!(_));
    let fields = parameters.iter().filter_map(FunctionParameter::field);
    let questions = parameters.iter().filter_map(|parameter| parameter.ask(&private));
    let entries = parameters.iter().filter_map(FunctionParameter::entry);
    let extracts = parameters.iter().map(|parameter| parameter.extract(&private));
    let passed = first.iter().cloned().chain(parameters.iter().map(FunctionParameter::pass));

    let waited = signature.asyncness.map(|_| quote!(.await));
    let returned = match &signature.output {
        ReturnType::Default => signature.ident.span(),
        ReturnType::Type(_, returned) => returned.span(),
    };
    let finish = quote_spanned!(returned=> (&&&&&#private::Reply::to(&__returned)).finish(__returned));
    let body = quote! {
        #(#extracts)*
        let __returned = #callee(#(#passed),*)#waited;
        #finish
    };
    let body = if signature.asyncness.is_some() {
        // Each call needs its own reference to the state: its future outlives the closure's borrow of it.
        let hold = first.map(|_| quote!(let __this = ::std::sync::Arc::clone(&__this);));
        let sendable = quote_spanned!(signature.ident.span()=> #private::sendable);
        quote!(#hold #sendable(async move { #body }))
    } else {
        body
    };
    Ok(quote! {{
        #[allow(unused_imports)]
        use #private::{
            AskArguments as _, AskCall as _, AskNobody as _, Parameter as _, ReplyByItself as _, ReplyNoError as _,
            ReplyNothing as _, ReplyWritten as _, ReplyWrittenOrError as _,
        };

        #[derive(#private::serde::Deserialize, #private::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        struct __Arguments<#(#generics),*> {
            #(#fields,)*
        }

        #(#questions)*
        #private::tool(
            #name,
            #description,
            &[#(#entries),*],
            move |__arguments: __Arguments<#(#unknown),*>, __context: #private::CallContext| {
                #body
            },
        )
        #calls
    }})
}
