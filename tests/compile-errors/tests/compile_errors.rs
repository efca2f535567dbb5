//! Wrong uses of the macros do not compile, and the error tells what would be right.

/// `TRYBUILD=overwrite` records the current messages; other compilers may word their own part differently.
#[test]
fn wrong_uses_are_errors_that_say_what_would_be_right() {
    trybuild::TestCases::new().compile_fail("tests/compile_errors/*.rs");
}
