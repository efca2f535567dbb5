//! W3C trace context.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A call's place in a trace, as in the W3C header `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace that the call is part of; never 0.
    pub trace_id: u128,
    /// The call's span; never 0.
    pub span_id: u64,
    /// Bit 0 says that the trace is recorded.
    pub flags: u8,
}

/// The text is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a `traceparent` is `00-<32 hexadecimal digits>-<16>-<2>`, and neither id is 0")]
pub struct InvalidTraceParent;

impl TraceParent {
    const RECORDED: u8 = 1;

    /// A new span: in the trace of `of` if given, otherwise in a new trace.
    #[must_use]
    pub fn child(of: Option<Self>) -> Self {
        // A random UUID is never 0, and neither is its second half, which contains the variant.
        let trace = || Self { trace_id: Uuid::new_v4().as_u128(), span_id: 0, flags: Self::RECORDED };
        Self { span_id: Uuid::new_v4().as_u64_pair().1, ..of.unwrap_or_else(trace) }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut parts = text.splitn(5, '-');
        let mut part = |digits: usize| {
            parts.next().filter(|part| part.len() == digits && is_hex(part)).ok_or(InvalidTraceParent)
        };
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may append further fields.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(InvalidTraceParent);
        }
        let parent = Self {
            trace_id: u128::from_str_radix(trace_id, 16).map_err(|_| InvalidTraceParent)?,
            span_id: u64::from_str_radix(span_id, 16).map_err(|_| InvalidTraceParent)?,
            flags: u8::from_str_radix(flags, 16).map_err(|_| InvalidTraceParent)?,
        };
        if parent.trace_id == 0 || parent.span_id == 0 { Err(InvalidTraceParent) } else { Ok(parent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_written_as_the_standard_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        assert_eq!((parent.span_id, parent.flags), (0xb7ad_6b71_6920_3331, 1));
        let later = text.replacen("00", "cc", 1) + "-what-the-future-will-be-like";
        assert_eq!(later.parse(), Ok(parent));
    }

    #[test]
    fn malformed_traceparents_are_refused() {
        let rows = [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        ];
        for row in rows {
            assert_eq!(row.parse::<TraceParent>(), Err(InvalidTraceParent), "{row}");
        }
    }

    #[test]
    fn a_child_stays_in_its_trace_and_has_an_id_of_its_own() {
        let first = TraceParent::child(None);
        let second = TraceParent::child(Some(first));
        assert_eq!(second.trace_id, first.trace_id);
        assert_ne!(second.span_id, first.span_id);
        assert_ne!(TraceParent::child(None).trace_id, first.trace_id);
    }
}
