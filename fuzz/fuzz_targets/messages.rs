//! `cargo xtask fuzz messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::messages::run(input));
