//! `cargo xtask fuzz rpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| toolbridge_fuzz::rpc::run(input));
