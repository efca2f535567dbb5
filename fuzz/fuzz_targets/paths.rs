//! `cargo xtask fuzz paths`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::paths::run(input));
