//! The targets.

mod frame;
mod line;
mod message;
mod path;
mod rpc;
mod section;
mod splice;

/// A function of bytes that panics when a property does not hold.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its folder under `fuzz/corpus/`.
    pub name: &'static str,
    /// What holds.
    pub property: &'static str,
    /// What inputs are made of.
    pub words: &'static [&'static [u8]],
    /// Returns a number that stands for what happened, so that new outcomes are noticed.
    pub run: fn(&[u8]) -> u64,
}

/// All of them.
pub static TARGETS: [Target; 7] = [
    Target {
        name: "frames",
        property: "frames come out of any bytes in any pieces as their lengths say, and go in again the same",
        words: frame::WORDS,
        run: frame::run,
    },
    Target {
        name: "messages",
        property: "requests and replies on the socket are told apart as a slow reader does, and payloads are kept",
        words: message::WORDS,
        run: message::run,
    },
    Target {
        name: "lines",
        property: "lines come out of any bytes in any pieces, and one that is too long harms no other",
        words: line::WORDS,
        run: line::run,
    },
    Target {
        name: "rpc",
        property: "each JSON-RPC line goes where a slow reader sends it, its payload byte for byte",
        words: rpc::WORDS,
        run: rpc::run,
    },
    Target {
        name: "splice",
        property: "an answer around a raw result is one line of JSON with the result's own members in it",
        words: splice::WORDS,
        run: splice::run,
    },
    Target {
        name: "paths",
        property: "no path leaves the vault, and each has one normal form",
        words: path::WORDS,
        run: path::run,
    },
    Target {
        name: "sections",
        property: "sections tile their text, nest, and are copied byte for byte",
        words: section::WORDS,
        run: section::run,
    },
];
