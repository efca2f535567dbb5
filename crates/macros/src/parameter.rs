//! One parameter of a function, and the code generated for it.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Ident, Pat, PatType, Result, Type};

/// A parameter, classified as far as its syntax allows.
pub(crate) struct FunctionParameter {
    kind: Kind,
    type_: Type,
    /// Doc comments and the attributes of serde and schemars.
    attributes: Vec<Attribute>,
    number: usize,
}

enum Kind {
    /// It has no name or is borrowed, so it can only come from the call.
    Call { borrowed: bool },
    /// It has attributes of serde or schemars, so it is an argument.
    Argument(Ident),
    /// The compiler decides by its type: see `core/function.rs`.
    Either(Ident),
}

impl FunctionParameter {
    /// Removes our attributes from the parameter.
    pub(crate) fn take(parameter: &mut PatType, number: usize) -> Result<Self> {
        let ours = |attribute: &Attribute| {
            let path = attribute.path();
            path.is_ident("doc") || path.is_ident("serde") || path.is_ident("schemars")
        };
        let (attributes, others) = std::mem::take(&mut parameter.attrs).into_iter().partition(ours);
        parameter.attrs = others;
        let mut this =
            Self { kind: Kind::Call { borrowed: false }, type_: *parameter.ty.clone(), attributes, number };
        this.kind = this.classify(&parameter.pat)?;
        Ok(this)
    }

    fn classify(&mut self, pattern: &Pat) -> Result<Kind> {
        let format = self.attributes.iter().find(|attribute| !attribute.path().is_ident("doc"));
        if let Type::ImplTrait(_) = &self.type_ {
            let message = "the model has to know the type: write a concrete one, such as `String`";
            return Err(Error::new_spanned(&self.type_, message));
        }
        let name = match (pattern, &self.type_) {
            (_, Type::Reference(reference)) => {
                if reference.mutability.is_some() {
                    let message = "a borrowed parameter cannot be `&mut`, because calls share it: take `&CallContext`, \
                                   or an owned argument";
                    return Err(Error::new_spanned(&self.type_, message));
                }
                self.type_ = *reference.elem.clone();
                return self.only_from_call(true);
            }
            (Pat::Ident(name), _) if name.by_ref.is_none() && name.subpat.is_none() => &name.ident,
            _ => return self.only_from_call(false),
        };
        Ok(match format {
            Some(_) => Kind::Argument(name.clone()),
            None => Kind::Either(name.clone()),
        })
    }

    fn only_from_call(&self, borrowed: bool) -> Result<Kind> {
        match self.attributes.iter().find(|attribute| !attribute.path().is_ident("doc")) {
            None => Ok(Kind::Call { borrowed }),
            Some(attribute) => Err(Error::new_spanned(
                attribute,
                "this is for arguments, which have a name and own their value: `text: String`",
            )),
        }
    }

    /// The type parameter of the arguments struct, if the field's type is not known yet.
    pub(crate) fn generic(&self) -> Option<Ident> {
        matches!(self.kind, Kind::Either(_)).then(|| format_ident!("__P{}", self.number))
    }

    /// The field in the arguments struct.
    pub(crate) fn field(&self) -> Option<TokenStream> {
        let attributes = &self.attributes;
        let (name, type_) = match &self.kind {
            Kind::Call { .. } => return None,
            Kind::Argument(name) => (name, self.type_.to_token_stream()),
            Kind::Either(name) => (name, self.generic().to_token_stream()),
        };
        Some(quote!(#(#attributes)* #name: #type_))
    }

    fn origin(&self) -> Ident {
        format_ident!("__place{}", self.number)
    }

    fn value(&self) -> Ident {
        format_ident!("__value{}", self.number)
    }

    /// Code that asks the compiler where the parameter comes from.
    pub(crate) fn ask(&self, private: &TokenStream) -> Option<TokenStream> {
        let (origin, type_) = (self.origin(), &self.type_);
        matches!(self.kind, Kind::Either(_)).then(
            || quote_spanned!(type_.span()=> let #origin = (&&&#private::Probe::<#type_>::NEW).origin();),
        )
    }

    /// The name of the field, and whether it is an argument, if only the compiler knows.
    pub(crate) fn entry(&self) -> Option<TokenStream> {
        let Kind::Either(name) = &self.kind else { return None };
        let (name, origin) = (name.unraw().to_string(), self.origin());
        Some(quote_spanned!(self.type_.span()=> (#name, #origin.is_argument())))
    }

    /// Code that takes the value from `__arguments` or `__context`.
    pub(crate) fn extract(&self, private: &TokenStream) -> TokenStream {
        let (value, type_) = (self.value(), &self.type_);
        match &self.kind {
            Kind::Call { .. } => {
                let get = quote_spanned!(type_.span()=> <#type_ as #private::FromContext>::from_context);
                quote!(let #value = #get(&__context)?;)
            }
            Kind::Argument(name) => quote!(let #value = __arguments.#name;),
            Kind::Either(name) => {
                let origin = self.origin();
                quote!(let #value = #origin.value(__arguments.#name, &__context)?;)
            }
        }
    }

    /// The value, as the function takes it.
    pub(crate) fn pass(&self) -> TokenStream {
        let value = self.value();
        match self.kind {
            Kind::Call { borrowed: true } => quote!(&#value),
            _ => value.into_token_stream(),
        }
    }
}
