//! Parses the settings in `#[tool(…)]`.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser as _;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token, Type};

const KNOWN: &str = "`name`, `title`, `description`, `read_only`, `parallel`, `destructive`, `idempotent`, `open_world`, `timeout`, \
                     `output`, `always_load`, `max_result_chars`";

#[derive(Default)]
pub(crate) struct Settings {
    name: Option<LitStr>,
    description: Option<LitStr>,
    /// The calls of `Tool`'s methods for the other settings.
    pub(crate) calls: TokenStream,
    /// The place of `skip`, which says that this method is not a tool.
    pub(crate) skip: Option<Span>,
}

impl Settings {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut settings = Self::default();
        let mut seen = HashSet::new();
        let parser = syn::meta::parser(|meta| {
            let Some(key) = meta.path.get_ident().map(Ident::to_string) else {
                return Err(meta.error(format!("unknown setting; there are {KNOWN}")));
            };
            if !seen.insert(key.clone()) {
                return Err(meta.error(format!("duplicate setting `{key}`")));
            }
            settings.set(&key, &meta)
        });
        parser.parse2(tokens)?;
        Ok(settings)
    }

    fn set(&mut self, key: &str, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match key {
            "name" => self.name = Some(text(meta, "name = \"look_up\"").and_then(checked_name)?),
            "description" => self.description = Some(text(meta, "description = \"Looks an order up\"")?),
            "title" => {
                let title = text(meta, "title = \"Look up\"")?;
                self.calls.extend(quote!(.title(#title)));
            }
            "read_only" | "parallel" => {
                let (method, is_set) = (&meta.path, flag(meta)?);
                if is_set {
                    self.calls.extend(quote!(.#method()));
                }
            }
            "destructive" | "idempotent" | "open_world" | "always_load" => {
                let (method, value) = (&meta.path, flag(meta)?);
                self.calls.extend(quote!(.#method(#value)));
            }
            "timeout" => {
                let limit = text(meta, "timeout = \"5s\"")?;
                let millis = millis(&limit)?;
                self.calls.extend(quote!(.timeout(::core::time::Duration::from_millis(#millis))));
            }
            "output" => {
                let promised: Type = meta.value()?.parse()?;
                self.calls.extend(quote!(.output::<#promised>()));
            }
            "max_result_chars" => {
                let example = "expected a number: `max_result_chars = 100_000`";
                match meta.value()?.parse::<Lit>().map_err(|_| meta.error(example))? {
                    Lit::Int(chars) if chars.base10_parse::<u32>().is_ok() => {
                        self.calls.extend(quote!(.max_result_chars(#chars)));
                    }
                    other => return Err(Error::new_spanned(other, example)),
                }
            }
            "skip" => self.skip = Some(meta.path.segments[0].ident.span()),
            _ => return Err(meta.error(format!("there is no setting `{key}`; there are {KNOWN}"))),
        }
        Ok(())
    }

    /// The tool's name: from the attribute, or the function's.
    pub(crate) fn name(&self, function: &Ident) -> Result<LitStr> {
        let own = || checked_name(LitStr::new(&function.unraw().to_string(), function.span()));
        self.name.clone().map_or_else(own, Ok)
    }

    /// The tool's description: from the attribute, or the function's doc comment.
    pub(crate) fn description(
        &self,
        attributes: &[Attribute],
        function: &Ident,
        is_method: bool,
    ) -> Result<LitStr> {
        let documented = documentation(attributes);
        match &self.description {
            Some(text) if text.value().trim().is_empty() => {
                Err(Error::new_spanned(text, "the description is empty: say what the tool does"))
            }
            Some(text) => Ok(text.clone()),
            None if documented.is_empty() => Err(Error::new_spanned(
                function,
                format!(
                    "the model has to know what `{}` does: write a doc comment (`/// Looks an order up.`), or \
                     `#[tool(description = \"…\")]`{}",
                    function.unraw(),
                    if is_method { "; or `#[tool(skip)]`, if it is not a tool" } else { "" },
                ),
            )),
            None => Ok(LitStr::new(&documented, function.span())),
        }
    }
}

/// The text of doc comments, without the leading space of each line.
fn documentation(attributes: &[Attribute]) -> String {
    let pairs = attributes.iter().filter_map(|attribute| attribute.meta.require_name_value().ok());
    let lines = pairs.filter(|pair| pair.path.is_ident("doc")).filter_map(|pair| match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    });
    let text: Vec<_> =
        lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    text.join("\n").trim().to_owned()
}

/// `key` or `key = true` or `key = false`.
fn flag(meta: &ParseNestedMeta<'_>) -> Result<bool> {
    if !meta.input.peek(Token![=]) {
        return Ok(true);
    }
    match meta.value()?.parse::<Lit>()? {
        Lit::Bool(value) => Ok(value.value),
        other => Err(Error::new_spanned(other, "expected `true` or `false`, or nothing, which means `true`")),
    }
}

fn text(meta: &ParseNestedMeta<'_>, example: &str) -> Result<LitStr> {
    let expected = format!("expected a text: `{example}`");
    if !meta.input.peek(Token![=]) {
        return Err(meta.error(expected));
    }
    match meta.value()?.parse::<Lit>() {
        Ok(Lit::Str(text)) => Ok(text),
        Ok(other) => Err(Error::new_spanned(other, expected)),
        Err(_) => Err(meta.error(expected)),
    }
}

fn checked_name(name: LitStr) -> Result<LitStr> {
    let text = name.value();
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if !text.is_empty() && text.chars().all(fits) {
        return Ok(name);
    }
    let message = format!(
        "`{text}` cannot be the name of a tool: `#[tool(name = \"…\")]` has the characters `A-Z a-z 0-9 _ -`"
    );
    Err(Error::new_spanned(name, message))
}

fn millis(limit: &LitStr) -> Result<u64> {
    let text = limit.value();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let units = [("ms", 1), ("s", 1_000), ("min", 60_000)];
    let unit = units.iter().find_map(|(name, millis)| (text[digits..] == **name).then_some(*millis));
    let count = text[..digits].parse::<u64>().ok();
    let millis = count.zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    millis.filter(|millis| *millis > 0).ok_or_else(|| {
        let message = format!(
            "`{text}` is not a duration: write a whole number and `ms`, `s` or `min`, such as `\"5s\"`"
        );
        Error::new_spanned(limit, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        let rows = [
            ("250ms", Some(250)),
            ("5s", Some(5_000)),
            ("2min", Some(120_000)),
            ("0s", None),
            ("5", None),
            ("s", None),
            ("", None),
            ("1.5s", None),
            ("-1s", None),
            ("5 s", None),
            ("1h", None),
            ("18446744073709551615s", None),
        ];
        for (text, want) in rows {
            assert_eq!(millis(&LitStr::new(text, Span::call_site())).ok(), want, "{text}");
        }
    }
}
