//! `cargo xtask fuzz splice`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::splice::run(input));
