//! `cargo xtask fuzz frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::frames::run(input));
