//! Times, sizes and counts for people.

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn time(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{us:.0} µs"),
        1_000_000..100_000_000 => format!("{:.2} ms", us / 1e3),
        100_000_000..1_000_000_000 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn size(bytes: u64) -> String {
    let amount = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", amount / 1e3),
        _ => format!("{:.1} MB", amount / 1e6),
    }
}

/// That many calls.
pub(super) fn calls(count: usize) -> String {
    if count == 1 { "1 call".into() } else { format!("{count} calls") }
}

/// What is there, or a dash.
pub(super) fn maybe(amount: Option<u64>, shown: fn(u64) -> String) -> String {
    amount.map_or_else(|| "–".into(), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_about_three_digits_and_counts_are_english() {
        let rows = [(7, "7 ns"), (85_400, "85 µs"), (2_345_678, "2.35 ms"), (202_345_678, "202 ms")];
        for (ns, want) in rows {
            assert_eq!(time(ns), want);
        }
        assert_eq!(time(61_234_567_890), "61.23 s");
        assert_eq!([size(13), size(1_234), size(1_048_576)], ["13 B", "1.2 kB", "1.0 MB"]);
        assert_eq!([calls(0), calls(1), calls(2)], ["0 calls", "1 call", "2 calls"]);
    }
}
