//! How much of the tests runs.

use std::env;

/// Set to run the tests completely. By default each test takes one of the ways that lead through the same code.
const VARIABLE: &str = "TOOLBRIDGE_TEST_THOROUGH";

/// Whether the tests run completely, as before a release.
#[must_use]
pub fn thorough() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// All of these when thorough; else one, which depends on the name of the calling test alone, so that together
/// the tests use all of them.
#[must_use]
pub fn one_of<T: Copy>(all: &[T]) -> Vec<T> {
    if thorough() {
        return all.to_vec();
    }
    // nextest sets a variable; otherwise the thread of a test has its name.
    let name = env::var("NEXTEST_TEST_NAME").ok();
    let name = name.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    all.get(place(&name, all.len())).copied().into_iter().collect()
}

/// The same in every run and with every compiler: FNV-1a.
fn place(name: &str, count: usize) -> usize {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    // The low bits of neighbouring names are alike.
    (hash >> 16) as usize % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_are_spread_and_stay_where_they_are() {
        let names = (0..100).map(|number| format!("model::tools::a_test_{number}"));
        let first = names.filter(|name| place(name, 2) == 0).count();
        assert!((30..=70).contains(&first), "{first} of 100");
        assert_eq!(place("model::tools::a_users_interrupt_cancels_the_handler", 2), 1);
        assert_eq!(place("", 0), 0);
    }
}
