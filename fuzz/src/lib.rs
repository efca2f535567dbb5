//! Whatever bytes come in, these properties hold.
//!
//! A target is a function of bytes that panics when its property does not hold; most compare what the product
//! does with a slow and obvious way to do the same. `cargo xtask fuzz` has libFuzzer make inputs for them, from those
//! under `fuzz/corpus/`.

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

/// A target, by the name that its folder under `fuzz/corpus/` has too.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
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
