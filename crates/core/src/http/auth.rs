//! Authorization of requests.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, StatusCode};

use crate::http::header::one;
use crate::http::refusal::Refusal;
use crate::http::token_file::TokenFile;

/// The authenticated caller, if requests are authorized; a session belongs to the caller that opened it.
#[derive(Clone, PartialEq)]
pub(crate) struct Principal(Option<Arc<str>>);

/// It may be a token, which must not be logged.
impl std::fmt::Debug for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Authenticated" } else { "Anonymous" })
    }
}

type Check = dyn Fn(HeaderMap) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync;

/// Decides which requests are admitted.
pub(crate) enum Authorizer {
    Anyone,
    Tokens(TokenFile),
    Own(Box<Check>),
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anyone => "Anyone",
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
            Self::Anyone => Ok(Principal(None)),
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
                        tracing::error!(%error, "all requests are refused");
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

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = one(headers, AUTHORIZATION.as_str())? else { return Ok(None) };
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
    Ok(token.map(|(_, token)| token.trim()))
}
