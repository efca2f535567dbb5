//! Lines are read from any bytes in any pieces, and one that is too long affects no other.

use futures_util::FutureExt as _;
use toolbridge_core::mcp::{Incoming as _, LineReader, LineTooLong};

use crate::input::{Pieces, cuts};

/// Runs the target on one input: the first byte is the limit, the rest is the stream.
pub fn run(input: &[u8]) {
    let Some((limit, bytes)) = input.split_first() else { return };
    let limit = usize::from(*limit).max(1);
    let want = slowly(bytes, limit);
    for cuts in cuts(bytes) {
        let mut reader = LineReader::with_limit(Pieces::new(bytes, &cuts), limit);
        let mut got = Vec::new();
        while let Some(line) =
            reader.next().now_or_never().expect("memory never waits").expect("memory never fails")
        {
            got.push(line.map(|line| line.to_vec()));
        }
        assert_eq!(got, want, "limit {limit}, cut at {cuts:?}");
    }
}

fn slowly(bytes: &[u8], limit: usize) -> Vec<Result<Vec<u8>, LineTooLong>> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            if content.len() > limit {
                Some(Err(LineTooLong))
            } else if content.trim_ascii().is_empty() {
                None
            } else {
                Some(Ok(content.to_vec()))
            }
        })
        .collect()
}
