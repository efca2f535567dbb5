//! What does not fit does not compile, and the error says what would.

/// `TRYBUILD=overwrite` writes down what the compiler says now; another compiler may word its own part in another way.
#[test]
fn what_does_not_fit_is_an_error_that_says_what_would() {
    trybuild::TestCases::new().compile_fail("tests/compile_errors/*.rs");
}
