//! Who may ask.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, StatusCode};

use crate::header::one;
use crate::refusal::Refusal;
use crate::token_file::TokenFile;

/// Who asks, where that is checked; a session belongs to whoever opened it.
#[derive(Clone, PartialEq)]
pub(crate) struct Principal(Option<Arc<str>>);

/// It may be a token, which belongs into no log.
impl std::fmt::Debug for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Somebody" } else { "Anybody" })
    }
}

type Check = dyn Fn(HeaderMap) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync;

/// Decides who may ask.
pub(crate) enum Authorizer {
    Everybody,
    Tokens(TokenFile),
    Own(Box<Check>),
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Everybody => "Everybody",
            Self::Tokens(_) => "Tokens",
            Self::Own(_) => "Own",
        })
    }
}

impl Authorizer {
    pub(crate) fn own<F, E>(check: impl Fn(HeaderMap) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Display,
    {
        Self::Own(Box::new(move |headers| {
            let check = check(headers);
            Box::pin(async move { check.await.map_err(|error| error.to_string()) })
        }))
    }

    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Principal, Refusal> {
        match self {
            Self::Everybody => Ok(Principal(None)),
            Self::Tokens(file) => {
                let Some(token) = bearer(headers)? else {
                    return Err(unauthorized("Bearer", "the header `Authorization: Bearer …` is needed"));
                };
                match file.knows(token) {
                    Ok(true) => Ok(Principal(Some(token.into()))),
                    Ok(false) => {
                        Err(unauthorized(r#"Bearer error="invalid_token""#, "this token is not known"))
                    }
                    Err(error) => {
                        // The client learns nothing about our files.
                        tracing::error!(%error, "nobody is let in");
                        let text = "the tokens of this server cannot be read now";
                        Err(Refusal::server(StatusCode::SERVICE_UNAVAILABLE, text))
                    }
                }
            }
            Self::Own(check) => match check(headers.clone()).await {
                Ok(principal) => Ok(Principal(Some(principal.into()))),
                Err(text) => Err(unauthorized("Bearer", text)),
            },
        }
    }
}

fn unauthorized(challenge: &'static str, text: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::server(StatusCode::UNAUTHORIZED, text)
        .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

/// The token that a request brings.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = one(headers, AUTHORIZATION.as_str())? else { return Ok(None) };
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
    Ok(token.map(|(_, token)| token.trim()))
}
