//! Frames are read from any bytes in any pieces according to their lengths, and written back unchanged.

use bytes::Bytes;
use futures_util::FutureExt as _;
use toolbridge_core::fuzzing::{Budget, FrameReader, write_frame};
use toolbridge_core::ipc::{IpcError, MAX_MESSAGE_SIZE};

use crate::input::{Pieces, block_on, cuts};

/// The frames of a stream, and how it ended.
type Read = (Vec<Bytes>, End);

#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    Torn(usize),
    Empty,
    TooLarge(usize),
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let want = slowly(input);
    for cuts in cuts(input) {
        let got = block_on(read(Pieces::new(input, &cuts)));
        assert_eq!(got, want, "cut at {cuts:?}");
    }
    let mut again = Vec::new();
    for frame in &want.0 {
        let (head, rest) = frame.split_at(frame.len() / 3);
        let (payload, tail) = rest.split_at(rest.len() / 2);
        let written = write_frame(&mut again, head, payload, tail).now_or_never();
        written.expect("memory takes everything at once").expect("what was read can be written");
    }
    assert_eq!(again, input[..again.len()], "written again");
}

async fn read(io: Pieces<'_>) -> Read {
    let mut reader = FrameReader::new(io, Budget::new(MAX_MESSAGE_SIZE));
    let mut frames = Vec::new();
    let end = loop {
        match reader.read_frame().await {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => break End::Closed,
            Err(IpcError::Torn { bytes }) => break End::Torn(bytes),
            Err(IpcError::Invalid { .. }) => break End::Empty,
            Err(IpcError::MessageSize { size, .. }) => break End::TooLarge(size),
            Err(other) => panic!("no such error is possible here: {other}"),
        }
    };
    (frames, end)
}

fn slowly(input: &[u8]) -> Read {
    let mut frames = Vec::new();
    let mut rest = input;
    let end = loop {
        let [a, b, c, d, after @ ..] = rest else {
            break if rest.is_empty() { End::Closed } else { End::Torn(rest.len()) };
        };
        let size = [a, b, c, d].into_iter().fold(0, |size, byte| size * 256 + usize::from(*byte));
        if size > MAX_MESSAGE_SIZE {
            break End::TooLarge(size);
        }
        if size == 0 {
            break End::Empty;
        }
        if after.len() < size {
            break End::Torn(rest.len());
        }
        frames.push(Bytes::copy_from_slice(&after[..size]));
        rest = &after[size..];
    };
    (frames, end)
}
