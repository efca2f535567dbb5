//! Tests that cannot do their work on this machine.

use std::fs::File;
use std::io::Write as _;
use std::panic::Location;

/// Reports that the calling test, or a part of it, is skipped: at once, and at the end of `cargo xtask test`.
///
/// # Panics
///
/// When the file that `TOOLBRIDGE_SKIPPED` names cannot be written: the report would be lost.
#[track_caller]
pub fn report_skipped(reason: &str) {
    report_skipped_in(crate_of(Location::caller().file()), reason);
}

/// The same for a test of another crate.
#[expect(clippy::expect_used, reason = "a test that cannot report it fails")]
pub(crate) fn report_skipped_in(krate: &str, reason: &str) {
    // The test by its crate and its name, as in docs/FAULTS.md.
    let line = format!("{krate}::{}: {reason}\n", std::thread::current().name().unwrap_or("a test"));
    // Not with `eprintln`, whose output is hidden for a test that passes.
    _ = std::io::stderr().write_all(format!("skipped: {line}").as_bytes());
    if let Some(path) = std::env::var_os("TOOLBRIDGE_SKIPPED") {
        let mut file = File::options().append(true).open(path).expect("the list of skipped tests");
        file.write_all(line.as_bytes()).expect("the list of skipped tests");
    }
}

fn crate_of(file: &str) -> &str {
    file.split('/').skip_while(|part| *part != "crates").nth(1).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_crate() {
        for file in ["crates/docs/src/write.rs", "/work/crates/docs/tests/it/main.rs"] {
            assert_eq!(crate_of(file), "docs");
        }
        assert_eq!(crate_of("fuzz/src/main.rs"), "fuzz/src/main.rs");
    }
}
