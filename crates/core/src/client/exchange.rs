//! Passes payloads around rmcp, whose types would lose digits, the order of keys and unknown members.
//!
//! rmcp numbers requests, and implements the protocol's versions. A request of ours carries a [`Raw`], which
//! the transport writes out. The text of its result is kept here, under the request's id, and rmcp gets an
//! empty result instead. A call over pipes does not use rmcp at all: its line is written here, and its answer
//! goes directly to the caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::json::members;
use crate::{Budget, CallContext, Progress, RawJson};
use bytes::Bytes;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    NumberOrString, ProgressToken, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerResult,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The limit for large answers that callers have not read yet.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// The first of our own request ids. rmcp counts from 0 and makes few requests.
const FIRST_ID: u32 = 1_000_000;

/// A result as it was written, or an error.
pub(crate) type Answer = Result<RawJson, ErrorData>;

/// The parts of a request that rmcp does not handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Raw {
    /// A call's arguments.
    pub(crate) arguments: Option<RawJson>,
    /// Receives the call's progress.
    pub(crate) progress: Option<CallContext>,
}

/// The pending requests of one connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    under_way: Mutex<HashMap<RequestId, UnderWay>>,
    answers: Budget,
    /// Why the connection cannot be used any more.
    fault: OnceLock<String>,
    /// How many bytes the server has read, once it has ended.
    read: OnceLock<u64>,
    /// The metadata that rmcp adds to every request.
    common_meta: OnceLock<RequestMetaObject>,
    next_id: AtomicU32,
}

#[derive(Debug)]
struct UnderWay {
    /// The offset of its first byte in the stream of all written bytes.
    place: u64,
    progress: Option<CallContext>,
    asker: Asker,
}

#[derive(Debug)]
enum Asker {
    Rmcp {
        is_call: bool,
        result: Option<RawJson>,
    },
    /// A call made without rmcp.
    Call(oneshot::Sender<Answer>),
}

impl Default for Exchange {
    fn default() -> Self {
        let answers = Budget::new(MAX_ANSWER_BYTES);
        Self {
            under_way: Mutex::default(),
            answers,
            fault: OnceLock::new(),
            read: OnceLock::new(),
            common_meta: OnceLock::new(),
            next_id: AtomicU32::new(FIRST_ID),
        }
    }
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes an answered request and returns its result.
    pub(crate) fn take(&self, id: &RequestId) -> Option<RawJson> {
        match self.lock().remove(id)?.asker {
            Asker::Rmcp { result, .. } => result,
            Asker::Call(_) => None,
        }
    }

    /// Whether the server has ended without reading anything of a request.
    pub(crate) fn is_unread(&self, id: &RequestId) -> bool {
        let place = self.lock().get(id).map(|request| request.place);
        // A request without an offset was never written, and will not be: rmcp has seen the end.
        self.read.get().is_some_and(|read| place.is_none_or(|place| place >= *read))
    }

    /// Sets how many bytes the server read before it ended.
    pub(crate) fn has_read(&self, bytes: u64) {
        _ = self.read.set(bytes);
    }

    /// Marks the connection as unusable.
    pub(crate) fn give_up(&self, why: String) {
        _ = self.fault.set(why);
    }

    /// Why the connection is unusable.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// A message from rmcp as one line, and the id of a request of ours in it.
    pub(crate) fn write(&self, mut message: ClientJsonRpcMessage) -> Result<Written, serde_json::Error> {
        let JsonRpcMessage::Request(request) = &mut message else { return Ok((line_of(&message)?, None)) };
        let id = request.id.clone();
        let Some(raw) = request.request.extensions_mut().remove::<Raw>() else {
            return Ok((line_of(&message)?, None));
        };
        let meta = request.request.get_meta_mut();
        set_progress(meta, raw.progress.as_ref().map(|_| &id));
        if raw.arguments.is_none() {
            self.common_meta.get_or_init(|| meta.clone());
        }
        let line = match (&request.request, &raw.arguments) {
            (ClientRequest::CallToolRequest(call), Some(arguments)) => {
                write_call(&id, &call.params.name, arguments, request.request.get_meta())
            }
            _ => line_of(&message),
        }?;
        let asker = Asker::Rmcp { is_call: raw.arguments.is_some(), result: None };
        self.begin(id.clone(), raw.progress, asker);
        Ok((line, Some(id)))
    }

    /// A call made without rmcp, and the receiver of its answer.
    pub(crate) fn call(
        &self,
        name: &str,
        arguments: &RawJson,
        about: RequestMetaObject,
        progress: Option<CallContext>,
    ) -> Result<(Vec<u8>, RequestId, oneshot::Receiver<Answer>), serde_json::Error> {
        let id = RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed).max(FIRST_ID).into());
        let mut meta = self.common_meta.get().cloned().unwrap_or_default();
        meta.extend(about);
        set_progress(&mut meta, progress.as_ref().map(|_| &id));
        let line = write_call(&id, name, arguments, &meta)?;
        let (tell, answer) = oneshot::channel();
        self.begin(id.clone(), progress, Asker::Call(tell));
        Ok((line, id, answer))
    }

    fn begin(&self, id: RequestId, progress: Option<CallContext>, asker: Asker) {
        self.lock().insert(id, UnderWay { place: u64::MAX, progress, asker });
    }

    /// Sets the offset of a request in the stream of all written bytes.
    pub(crate) fn set_offset(&self, id: &RequestId, place: u64) {
        if let Some(request) = self.lock().get_mut(id) {
            request.place = place;
        }
    }

    /// Parses a message of the server; `None` if it is not for rmcp.
    pub(crate) fn read(&self, text: &Bytes) -> Result<Option<ServerJsonRpcMessage>, serde_json::Error> {
        match self.sift(text) {
            Sifted::Same => serde_json::from_slice(text).map(Some),
            Sifted::Nothing => Ok(None),
            Sifted::Instead(message) => Ok(Some(*message)),
        }
    }

    /// Takes out what is not for rmcp.
    pub(crate) fn sift(&self, text: &Bytes) -> Sifted {
        match self.keep(text) {
            Kept::Nothing => Sifted::Same,
            Kept::All => Sifted::Nothing,
            // Over HTTP, rmcp reads from the list of tools which arguments to send as headers.
            Kept::Result { is_call: false, .. }
                if serde_json::from_slice::<ServerJsonRpcMessage>(text).is_ok() =>
            {
                Sifted::Same
            }
            Kept::Result { id, .. } => {
                Sifted::Instead(ServerJsonRpcMessage::response(ServerResult::empty(()), id).into())
            }
            Kept::Error { id, error } => Sifted::Instead(ServerJsonRpcMessage::error(error, Some(id)).into()),
        }
    }

    fn keep(&self, text: &Bytes) -> Kept {
        let keys = &["id", "method", "result", "error", "params"];
        let found = std::str::from_utf8(text).ok().and_then(|text| members(text, keys).ok().flatten());
        match found {
            Some([Some(id), None, Some(result), _, _]) => {
                let Some(id) = id.decode().ok().and_then(|id| self.asked(id)) else { return Kept::Nothing };
                let result = self.answers.hold(RawJson::span(text, result), text.len());
                self.answered(id, result.ok_or_else(too_much))
            }
            Some([Some(id), None, None, Some(error), _]) => {
                let id = id.decode().ok().and_then(|id| self.asked(id));
                match (id, error.decode()) {
                    (Some(id), Ok(error)) => self.answered(id, Err(error)),
                    _ => Kept::Nothing,
                }
            }
            Some([None, Some(method), _, _, Some(params)])
                if method.get() == r#""notifications/progress""# =>
            {
                if let Ok(Report { token, progress }) = params.decode::<Report>()
                    && let Some(id) = self.asked(token)
                    && let Some(UnderWay { progress: Some(context), .. }) = self.lock().get(&id)
                {
                    context.progress(progress.progress, progress.total, progress.message.as_deref());
                }
                Kept::All
            }
            _ => Kept::Nothing,
        }
    }

    fn answered(&self, id: RequestId, answer: Answer) -> Kept {
        let mut under_way = self.lock();
        match under_way.get_mut(&id).map(|request| &mut request.asker) {
            Some(Asker::Rmcp { is_call, result }) => match answer {
                Ok(answer) => {
                    *result = Some(answer);
                    Kept::Result { id, is_call: *is_call }
                }
                Err(error) => Kept::Error { id, error },
            },
            Some(Asker::Call(_)) => {
                let request = under_way.remove(&id);
                drop(under_way);
                if let Some(UnderWay { asker: Asker::Call(asker), .. }) = request {
                    _ = asker.send(answer);
                }
                Kept::All
            }
            None => Kept::Nothing,
        }
    }

    /// The request with that id; some servers return a number as a string.
    fn asked(&self, id: RequestId) -> Option<RequestId> {
        let under_way = self.lock();
        if under_way.contains_key(&id) {
            return Some(id);
        }
        let NumberOrString::String(text) = &id else { return None };
        let id = NumberOrString::Number(text.parse().ok()?);
        under_way.contains_key(&id).then_some(id)
    }
}

/// A line, and the id of a request of ours in it.
type Written = (Vec<u8>, Option<RequestId>);

/// What rmcp gets instead of a message.
pub(crate) enum Sifted {
    Same,
    Nothing,
    Instead(Box<ServerJsonRpcMessage>),
}

/// What was taken out of a message.
enum Kept {
    Nothing,
    All,
    Result { id: RequestId, is_call: bool },
    Error { id: RequestId, error: ErrorData },
}

fn too_much() -> ErrorData {
    let limit = MAX_ANSWER_BYTES;
    let text = format!("unread answers hold {limit} bytes, which is the limit");
    ErrorData::internal_error(text, None)
}

/// Uses the request's id as its progress token, so that progress can be matched to the request.
fn set_progress(meta: &mut RequestMetaObject, id: Option<&RequestId>) {
    match id {
        Some(id) => meta.set_progress_token(ProgressToken(id.clone())),
        None => _ = meta.remove("progressToken"),
    }
}

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "progressToken")]
    token: RequestId,
    #[serde(flatten)]
    progress: Progress,
}

fn write_call(
    id: &RequestId,
    name: &str,
    arguments: &RawJson,
    meta: &RequestMetaObject,
) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Request<'a> {
        jsonrpc: &'a str,
        id: &'a RequestId,
        method: &'a str,
        params: Params<'a>,
    }
    #[derive(Serialize)]
    struct Params<'a> {
        name: &'a str,
        arguments: &'a RawJson,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a RequestMetaObject>,
    }
    let meta = Some(meta).filter(|meta| !meta.is_empty());
    let params = Params { name, arguments, meta };
    line_of(&Request { jsonrpc: "2.0", id, method: "tools/call", params })
}

/// A message with its line break.
fn line_of(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    // Line breaks can only occur between tokens of raw arguments, where a space means the same.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Ok(line)
}
