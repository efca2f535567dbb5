//! `cargo xtask fuzz requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::requests::run(input));
