//! Doc comments as text for the model.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The text of doc comments, without the space that each line begins with.
pub(crate) fn of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let text: Vec<String> =
        lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    text.join("\n").trim().to_owned()
}
