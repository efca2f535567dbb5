//! Properties that hold for any input bytes.
//!
//! A target is a function of bytes that panics when its property does not hold; most compare the product with
//! a slow and obvious implementation. `cargo xtask fuzz` lets libFuzzer generate inputs for them, starting
//! from those under `fuzz/corpus/`.

pub mod frames;
pub mod lines;
pub mod messages;
pub mod paths;
pub mod requests;
pub mod rpc;
pub mod sections;
pub mod splice;

mod input;
mod json;

/// A target, with the name of its folder under `fuzz/corpus/`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 8] = [
    ("frames", frames::run),
    ("lines", lines::run),
    ("messages", messages::run),
    ("paths", paths::run),
    ("requests", requests::run),
    ("rpc", rpc::run),
    ("sections", sections::run),
    ("splice", splice::run),
];
