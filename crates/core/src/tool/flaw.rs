//! Finds what is wrong with a tool result from its JSON text, without decoding it.

use crate::tool::json::{Fault, Span, Walk};

/// How deep a result may be nested; the result itself is the first level. Many clients parse JSON recursively, and
/// fail or overflow their stack a little deeper.
pub const MAX_RESULT_DEPTH: usize = 128;

/// Why a JSON text is not an MCP `CallToolResult` that every client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The text is not JSON.
    #[error("it is not JSON; {RIGHT}")]
    NotJson,
    /// It is something else, such as a number.
    #[error("it is not an object; {RIGHT}")]
    NoObject,
    /// There is no `content`.
    #[error("it has no `content`; {RIGHT}")]
    NoContent,
    /// The `content` is something else, such as a string.
    #[error("its `content` is not a list; {RIGHT}")]
    NoList,
    /// The `content` has no blocks.
    #[error("its `content` is empty; {RIGHT}")]
    NoBlock,
    /// A block is something else, such as a string.
    #[error("`content[{place}]` is not an object; {RIGHT}")]
    NotABlock {
        /// Its index, from 0.
        place: usize,
    },
    /// A block has no `type`.
    #[error("`content[{place}]` has no `type` that is a string; {RIGHT}")]
    NoType {
        /// Its index, from 0.
        place: usize,
    },
    /// A text block has no text.
    #[error("`content[{place}]` is a text block without a `text` that is a string; {RIGHT}")]
    NoText {
        /// Its index, from 0.
        place: usize,
    },
    /// Objects and lists are nested too deeply.
    #[error("it is nested {depth} levels deep, the limit is {MAX_RESULT_DEPTH}")]
    TooDeep {
        /// How deep it is.
        depth: usize,
    },
}

const RIGHT: &str =
    "a result is an object whose `content` is a list of at least one block, an object with a `type`";

/// A tool result inside a text, already checked.
#[derive(Debug, Clone, Copy)]
pub struct ResultSpan<'a>(pub(crate) Span<'a>);

/// Checks the next value as a tool result. Nothing is decoded, and each byte is visited once. Where a member is
/// duplicated, each occurrence must be right, since clients differ in which one they take.
pub(crate) fn result<'a>(walk: &mut Walk<'a>) -> Result<Result<ResultSpan<'a>, Flaw>, Fault> {
    let begin = walk.skip_space();
    let Some(mut members) = walk.enter() else {
        walk.value()?;
        return Ok(Err(Flaw::NoObject));
    };
    let (mut flaw, mut has_content, mut deepest) = (None, false, 1);
    while let Some(key) = members.next_key()? {
        if key.is("content") {
            has_content = true;
            let (found, depth) = content(&mut members)?;
            flaw = flaw.or(found);
            deepest = deepest.max(1 + depth);
        } else {
            deepest = deepest.max(1 + members.depth()?);
        }
    }
    walk.go_on_behind(&members);
    let flaw = flaw
        .or((!has_content).then_some(Flaw::NoContent))
        .or((deepest > MAX_RESULT_DEPTH).then_some(Flaw::TooDeep { depth: deepest }));
    Ok(flaw.map_or_else(|| Ok(ResultSpan(walk.since(begin))), Err))
}

/// What is wrong with the next value as a list of blocks, and how deep it is nested.
fn content(walk: &mut Walk<'_>) -> Result<(Option<Flaw>, usize), Fault> {
    if !walk.begin_list() {
        return Ok((Some(Flaw::NoList), walk.depth()?));
    }
    let (mut flaw, mut deepest) = (None, 1);
    let mut place = 0;
    while walk.next_item(place == 0)? {
        let (found, depth) = block(walk, place)?;
        flaw = flaw.or(found);
        deepest = deepest.max(1 + depth);
        place += 1;
    }
    Ok((flaw.or((place == 0).then_some(Flaw::NoBlock)), deepest))
}

fn block(walk: &mut Walk<'_>, place: usize) -> Result<(Option<Flaw>, usize), Fault> {
    let Some(mut members) = walk.enter() else { return Ok((Some(Flaw::NotABlock { place }), walk.depth()?)) };
    let (mut types, mut texts, mut is_text, mut deepest) = (None, None, false, 1);
    while let Some(key) = members.next_key()? {
        let (begin, is_string) = (members.skip_space(), members.is_at_string());
        deepest = deepest.max(1 + members.depth()?);
        if key.is("type") {
            types = Some(types.unwrap_or(true) && is_string);
            is_text |= says_text(members.since(begin));
        } else if key.is("text") {
            texts = Some(texts.unwrap_or(true) && is_string);
        }
    }
    walk.go_on_behind(&members);
    let flaw = if types == Some(true) {
        (is_text && texts != Some(true)).then_some(Flaw::NoText { place })
    } else {
        Some(Flaw::NoType { place })
    };
    Ok((flaw, deepest))
}

/// Whether it is the string `text`, which may be escaped.
fn says_text(value: Span<'_>) -> bool {
    let text = value.get();
    text == r#""text""# || text.contains('\\') && value.decode::<String>().is_ok_and(|text| text == "text")
}

#[cfg(test)]
mod tests {
    use crate::RawJson;
    use crate::tool::flaw::MAX_RESULT_DEPTH;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = RawJson::parse(text.to_owned()).unwrap().into_result();
        match got {
            Ok(result) => assert_eq!((result.as_str(), want), (text.trim(), "")),
            Err(flaw) => {
                let said = flaw.to_string();
                let (said, right) = said.split_once("; ").unwrap_or((&said, super::RIGHT));
                assert_eq!((said, right), (want, super::RIGHT), "{text}");
            }
        }
    }

    #[test]
    fn a_result_has_blocks_and_each_has_a_type() {
        check(r#"{"content":[{"type":"text","text":"a"}]}"#, "");
        check(
            r#" { "isError" : true , "content" : [ { "text" : [ ] , "type" : "x" } , {"type":""} ] , "x" : 1 } "#,
            "",
        );
        check(r#"{"c\u006fntent":[{"\u0074ype":"text","text":""}]}"#, "");
        for other in ["[]", "null", "7", r#""content""#, r#"[{"content":[{"type":"new"}]}]"#] {
            check(other, "it is not an object");
        }
        for other in ["{}", r#"{"contents":[]}"#, r#"{"x":{"content":[{"type":"new"}]}}"#] {
            check(other, "it has no `content`");
        }
        for other in ["null", "7", r#""text""#, "{}", r#"{"type":"new"}"#] {
            check(&format!(r#"{{"content":{other}}}"#), "its `content` is not a list");
        }
        check(r#"{"content":[]}"#, "its `content` is empty");
        check(r#"{"content":[ ],"isError":true}"#, "its `content` is empty");
        for other in ["null", "7", r#""text""#, "[]", r#"[{"type":"new"}]"#] {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` is not an object");
            check(&format!(r#"{{"content":[{{"type":"new"}},{other}]}}"#), "`content[1]` is not an object");
        }
        for other in
            ["{}", r#"{"text":"type"}"#, r#"{"type":null}"#, r#"{"type":["text"]}"#, r#"{"x":{"type":"a"}}"#]
        {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` has no `type` that is a string");
        }
        for other in [
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":null}"#,
            r#"{"text":5,"type":"text"}"#,
            r#"{"type":"t\u0065xt","text":["a"]}"#,
            r#"{"type":"text","text":"a","text":5}"#,
        ] {
            let text = format!(r#"{{"content":[{{"type":"new","text":1}},{other}]}}"#);
            check(&text, "`content[1]` is a text block without a `text` that is a string");
        }
        // Clients differ in which duplicate they take.
        check(r#"{"content":[{"type":"new"}],"content":[]}"#, "its `content` is empty");
        check(r#"{"content":[{"type":"text","type":5}]}"#, "`content[0]` has no `type` that is a string");
        check(r#"{"content":[{"type":5,"type":"text"}]}"#, "`content[0]` has no `type` that is a string");
    }

    #[test]
    fn nesting_has_a_limit_wherever_it_is() {
        let rows = [
            // The depth of `DEEP`, and the text around it.
            (1, r#"{"content":[{"type":"new"}],"structuredContent":DEEP}"#),
            (1, r#"{"_meta":DEEP,"content":[{"type":"new"}]}"#),
            (3, r#"{"content":[{"type":"new"},{"type":"new","x":DEEP}]}"#),
            (2, r#"{"content":[{"type":"new"}],"x":{"y":1,"z":DEEP}}"#),
        ];
        for (around, text) in rows {
            for (depth, want) in [
                (MAX_RESULT_DEPTH, String::new()),
                (MAX_RESULT_DEPTH + 1, "it is nested 129 levels deep, the limit is 128".into()),
                (100_000, "it is nested 100000 levels deep, the limit is 128".into()),
            ] {
                let levels = depth - around;
                for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                    let middle = if open == "[" { "" } else { "1" };
                    let deep = format!("{}{middle}{}", open.repeat(levels), close.repeat(levels));
                    check(&text.replace("DEEP", &deep), &want);
                }
            }
        }
    }
}
