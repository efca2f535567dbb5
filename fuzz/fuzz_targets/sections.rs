//! `cargo xtask fuzz sections`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::sections::run(input));
