//! `${VARIABLE}` and `${VARIABLE:-default}`, as the CLI expands them.

/// Replaces variables by their values. The error is the name of a variable without value and default.
pub(crate) fn expand(text: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, behind)) = after.split_once('}') else { break };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        expanded.push_str(before);
        match (variables(name), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) if name.is_empty() => expanded.push_str("${}"),
            (None, None) => return Err(name.to_owned()),
        }
        rest = behind;
    }
    Ok(expanded + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_defaults_are_put_in() {
        let variables = |name: &str| match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${A}".into()),
            _ => None,
        };
        let rows = [
            ("plain", Ok("plain")),
            ("${A}", Ok("1")),
            ("a${A}b${A}c", Ok("a1b1c")),
            ("${NO:-d}${NO:-}", Ok("d")),
            ("${NO:-http://h:-1}", Ok("http://h:-1")),
            ("${A:-d}", Ok("1")),
            ("[${EMPTY:-d}]", Ok("[]")),
            ("${NESTED}", Ok("${A}")),
            ("$A {A} ${A", Ok("$A {A} ${A")),
            ("x ${NO}", Err("NO")),
            ("${} ${A}", Ok("${} 1")),
        ];
        for (text, want) in rows {
            let want = want.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(expand(text, &variables), want, "{text}");
        }
    }
}
