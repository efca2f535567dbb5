//! Compares lines of a page with output, with gaps for what differs each time.

/// A gap.
const ANYTHING: &str = "…";

/// Whether lines with gaps match what was printed.
#[must_use]
pub fn shows(shown: &[&str], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&ANYTHING, rest)) => (0..=printed.len()).any(|skipped| shows(rest, &printed[skipped..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(first, more)| line_shows(line, first) && shows(rest, more))
        }
    }
}

fn line_shows(line: &str, printed: &str) -> bool {
    let mut parts = line.split(ANYTHING);
    let Some(mut left) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(before) = last.replace(part) {
            let Some((_, after)) = left.split_once(before) else { return false };
            left = after;
        }
    }
    last.map_or(left.is_empty(), |last| left.ends_with(last))
}

/// A printed line for a page, with gaps for ids and times.
pub(crate) fn with_gaps(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let is_unit = matches!(words[index].trim_end_matches([',', ';']), "ms" | "µs" | "s");
        if is_unit && words[index - 1].parse::<f64>().is_ok() {
            words[index - 1] = ANYTHING.into();
        }
    }
    let line = words.join(" ");
    let mut kept = String::new();
    let mut run = String::new();
    for character in line.chars().chain(['\n']) {
        if character.is_ascii_hexdigit() {
            run.push(character);
            continue;
        }
        kept.push_str(if run.len() == 32 { ANYTHING } else { &run });
        run.clear();
        kept.push(character);
    }
    kept.pop();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_match_anything_and_other_text_only_itself() {
        let rows: [(&[&str], &str, bool); 12] = [
            (&["a"], "a", true),
            (&["a"], "b", false),
            (&["a"], "a\nb", false),
            (&["a", "b"], "a", false),
            (&["took … ms, … times"], "took 1.5 ms, 3 times", true),
            (&["took … ms"], "took 1.5 s", false),
            (&["…end"], "endless end", true),
            (&["a…a"], "a", false),
            (&["…"], "", true),
            (&["a", "…", "d"], "a\nb\nc\nd", true),
            (&["a", "…", "d"], "a\nb\nc", false),
            (&[], "a", false),
        ];
        for (shown, printed, want) in rows {
            let lines: Vec<_> = printed.lines().map(str::to_owned).collect();
            assert_eq!(shows(shown, &lines), want, "{shown:?} {printed:?}");
        }
    }

    #[test]
    fn ids_and_times_are_left_open() {
        let line = "took 1.5 ms, id 0123456789abcdef0123456789abcdef, 17 tools";
        assert_eq!(with_gaps(line), "took … ms, id …, 17 tools");
    }
}
