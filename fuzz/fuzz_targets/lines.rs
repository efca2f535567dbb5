//! `cargo xtask fuzz lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::lines::run(input));
