//! The text format of scripts.

use std::time::Duration;

use serde_json::Value;

use crate::{Block, ModelRequest, ToolResultBlock, Turn};

const KEYWORDS: &str =
    "`text`, `think`, `call`, `fill`, `sleep`, `error`, `hang`, `drop`, `garbage` or `aside`";

/// The answers of a model, turn by turn.
///
/// ```
/// # use toolbridge_testing::Script;
/// let script = Script::parse(r#"
///     ## A comment. A turn is the lines between two `---` lines; each line is one block.
///     think I should add these.
///     text Let me | see.              # two spaces and `# ` start a comment, too
///     call add {"a": 40, "b": 2}      # a tool of an MCP server, by its own name; `Bash` is the CLI's
///     call add {"a": 1, "b": 1} as toolu_second
///     sleep 300                       # milliseconds
///     fill 100000                     # a text of that many `x`
///     ---
///     text The sum is {result}.       # or {results}: all of them, in the order of the calls
///     ---
///     error 529 overloaded            # an HTTP error: the only line of its turn, as are the next ones
///     ---
///     hang                            # no answer, until the model is dropped or the client goes
///     ---
///     drop                            # close the connection after `message_start`
///     ---
///     garbage                         # status 200 and no event stream
///     ## Of no turn: the answer to the CLI's own questions, which offer no tools.
///     aside The page is about zebras.
/// "#)?;
/// # Ok::<(), toolbridge_testing::ScriptError>(())
/// ```
///
/// In `text` and `think`, `|` splits the text into pieces, each sent as a separate event; ` | ` splits at one
/// space, which is kept. `\n` is a newline; `\\`, `\|` and `\#` are the characters themselves.
///
/// The CLI asks the model about each page that `WebFetch` has read, in a request without tools. `aside`
/// answers these requests; without it, they are answered like the first of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    turns: Vec<Turn>,
    aside: Option<Turn>,
}

/// Why a text is not a valid script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the script: {problem}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be valid.
    pub problem: String,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    ///
    /// [`ScriptError`] at the first invalid line, or at the end of an empty turn.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut turns = Vec::new();
        let mut turn = None;
        let mut aside = None;
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            let at_line = |problem| ScriptError { line: index + 1, problem };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            last = index;
            if without_comment(line) == "---" {
                turns.push(turn.take().ok_or_else(empty_turn).map_err(at_line)?);
            } else if let Some(said) = parse_aside(line).map_err(at_line)? {
                if aside.replace(said).is_some() {
                    return Err(at_line("a second `aside`; a script has at most one".into()));
                }
            } else {
                let next = parse_line(line).map_err(at_line)?;
                turn = Some(join(turn, next).map_err(at_line)?);
            }
        }
        turns.push(turn.ok_or_else(|| ScriptError { line: last + 1, problem: empty_turn() })?);
        Ok(Self { turns, aside })
    }

    /// The answer to a request, with the tool results inserted; `None` past the script's end.
    #[must_use]
    pub fn turn(&self, request: &ModelRequest) -> Option<Turn> {
        if let Some(aside) = self.aside.as_ref().filter(|_| request.tools().is_empty()) {
            return Some(aside.clone());
        }
        let mut turn = self.turns.get(request.turn())?.clone();
        if let Turn::Blocks(blocks) = &mut turn {
            let results = results(request);
            for block in blocks {
                let Block::Text(pieces) = block else { continue };
                for piece in pieces {
                    *piece = fill_in(piece, &results);
                }
            }
        }
        Some(turn)
    }
}

/// Parses a script in a test; panics if it is not valid.
impl<T: AsRef<str>> From<T> for Script {
    #[track_caller]
    fn from(text: T) -> Self {
        Self::parse(text.as_ref()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The results that a turn can refer to, in the order of the calls: the CLI may send them in another order.
fn results(request: &ModelRequest) -> Vec<String> {
    let ids = request.call_ids();
    let mut results = request.tool_results();
    results.sort_by_key(|result| ids.iter().rposition(|id| *id == result.tool_use_id));
    results.iter().map(ToolResultBlock::text).collect()
}

fn fill_in(text: &str, results: &[String]) -> String {
    let first = results.first().map_or("(no result)", String::as_str);
    let all = if results.is_empty() { first.into() } else { results.join(", ") };
    // Placeholders inside the results are kept.
    text.split("{results}").map(|part| part.replace("{result}", first)).collect::<Vec<_>>().join(&all)
}

fn empty_turn() -> String {
    "a turn without a line; each turn has at least one, and no `---` comes before the first or after the last"
        .into()
}

fn join(turn: Option<Turn>, next: Turn) -> Result<Turn, String> {
    match (turn, next) {
        (None, next) => Ok(next),
        (Some(Turn::Blocks(mut blocks)), Turn::Blocks(more)) => {
            blocks.extend(more);
            Ok(Turn::Blocks(blocks))
        }
        _ => Err("`error`, `hang`, `drop` and `garbage` must be the only line of their turn".into()),
    }
}

/// Parses the answer to requests without tools, if the line is one.
fn parse_aside(line: &str) -> Result<Option<Turn>, String> {
    match without_comment(line).strip_prefix("aside") {
        Some("") => Err("`aside` needs a text".into()),
        Some(text) if text.starts_with(char::is_whitespace) => {
            Ok(Some(Turn::Blocks(vec![Block::Text(pieces(text.trim_start())?)])))
        }
        _ => Ok(None),
    }
}

/// Parses one line as a turn; a block becomes a turn of one block.
fn parse_line(line: &str) -> Result<Turn, String> {
    let (keyword, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim_start();
    // `parse_call` finds the end of the JSON itself: a string in it may look like a comment.
    let value = without_comment(rest);
    let block = match keyword {
        "call" => parse_call(rest)?,
        "text" | "think" if value.is_empty() => return Err(format!("`{keyword}` needs a text")),
        "text" => Block::Text(pieces(value)?),
        "think" => Block::Think(pieces(value)?),
        "fill" => Block::fill(number(keyword, value, "characters")?),
        "sleep" => Block::Sleep(Duration::from_millis(number(keyword, value, "milliseconds")?)),
        "error" => return parse_error(value),
        "hang" | "drop" | "garbage" if !value.is_empty() => {
            return Err(format!("`{keyword}` takes no value, but has `{value}`"));
        }
        "hang" => return Ok(Turn::Hang),
        "drop" => return Ok(Turn::Drop),
        "garbage" => return Ok(Turn::Garbage),
        _ => return Err(format!("`{keyword}` is not a keyword; a line starts with {KEYWORDS}")),
    };
    Ok(Turn::Blocks(vec![block]))
}

fn parse_call(rest: &str) -> Result<Block, String> {
    const FORM: &str = "a call is `call NAME {…}`, and may end in `as ID`";
    let (name, rest) = rest.split_once(char::is_whitespace).ok_or_else(|| format!("no arguments; {FORM}"))?;
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let input = match values.next() {
        Some(Ok(input @ Value::Object(_))) => input,
        Some(Err(error)) => return Err(format!("the arguments of `{name}` are not JSON: {error}; {FORM}")),
        _ => return Err(format!("the arguments of `{name}` are not a JSON object; {FORM}")),
    };
    let end: Vec<&str> = without_comment(&rest[values.byte_offset()..]).split_whitespace().collect();
    match end[..] {
        [] => Ok(Block::call(name, input)),
        ["as", id] => Ok(Block::call_as(name, input, id)),
        _ => Err(format!("`{}` after the arguments; {FORM}", end.join(" "))),
    }
}

fn parse_error(value: &str) -> Result<Turn, String> {
    let (status, message) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    match (status.parse(), message.trim()) {
        (Ok(status @ 400..=599), message) if !message.is_empty() => Ok(Turn::error(status, message)),
        _ => Err("an error is `error STATUS MESSAGE`, with a status from 400 to 599".into()),
    }
}

fn number<N: std::str::FromStr>(keyword: &str, value: &str, unit: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("`{keyword}` needs a whole number of {unit}, not `{value}`"))
}

/// The pieces of a text, split at each `|`.
fn pieces(text: &str) -> Result<Vec<String>, String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '|' => {
                if piece.ends_with(' ') {
                    chars.next_if_eq(&' ');
                }
                pieces.push(std::mem::take(&mut piece));
            }
            '\\' => match chars.next() {
                Some('n') => piece.push('\n'),
                Some(char @ ('\\' | '|' | '#')) => piece.push(char),
                _ => return Err(r"a `\` that escapes nothing; there are `\n`, `\\`, `\|` and `\#`".into()),
            },
            char => piece.push(char),
        }
    }
    pieces.push(piece);
    Ok(pieces)
}

fn without_comment(line: &str) -> &str {
    if line.starts_with("# ") { "" } else { line.split("  # ").next().unwrap_or(line).trim_end() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &[Turn]) {
        assert_eq!(Script::parse(text).unwrap().turns, want);
    }

    #[track_caller]
    fn check_error(text: &str, line: usize, want: &str) {
        let error = Script::parse(text).unwrap_err();
        assert!(error.line == line && error.problem.contains(want), "{error}");
    }

    fn text(pieces: &[&str]) -> Block {
        Block::Text(pieces.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn blocks_and_turns_are_read() {
        check(
            r#"
            # A comment.
            think I should add these.
            text Let me | see.              # cut
            call add {"a": 40, "b": 2}      # the sum

            call Bash {"command": "ls  # all"} as toolu_second   # named
            sleep 300                       # milliseconds
            ---  # a new turn
            text The sum is {result}.
            "#,
            &[
                Turn::Blocks(vec![
                    Block::Think(vec!["I should add these.".into()]),
                    text(&["Let me ", "see."]),
                    Block::call("add", json!({"a": 40, "b": 2})),
                    Block::call_as("Bash", json!({"command": "ls  # all"}), "toolu_second"),
                    Block::Sleep(Duration::from_millis(300)),
                ]),
                Turn::text("The sum is {result}."),
            ],
        );
    }

    #[test]
    fn turns_that_fail_are_read() {
        check(
            "error 529 we are overloaded\n---\nhang\n---\ndrop  # now\n---\ngarbage\n---\nfill 3",
            &[
                Turn::error(529, "we are overloaded"),
                Turn::Hang,
                Turn::Drop,
                Turn::Garbage,
                Turn::Blocks(vec![Block::text("xxx")]),
            ],
        );
    }

    #[test]
    fn texts_are_cut_and_unescaped() {
        for (line, want) in [
            ("one", &["one"][..]),
            ("a|b", &["a", "b"]),
            ("a | b", &["a ", "b"]),
            ("a| b", &["a", " b"]),
            (r"a\nb\|c\\n\#", &["a\nb|c\\n#"]),
            ("issue #5, C# and 1 # 2", &["issue #5, C# and 1 # 2"]),
            (r"a  \# b", &["a  # b"]),
        ] {
            check(&format!("text {line}"), &[Turn::Blocks(vec![text(want)])]);
        }
    }

    #[test]
    fn errors_name_the_line_and_what_is_right() {
        check_error("", 1, "a turn without a line");
        check_error("text a\n---\n# nothing\n", 2, "a turn without a line");
        check_error("text a\n---\n\n---\ntext b", 4, "a turn without a line");
        check_error("text a\nsay hello", 2, "`say` is not a keyword; a line starts with `text`");
        check_error("\n\ntext", 3, "`text` needs a text");
        check_error("think  # nothing", 1, "`think` needs a text");
        check_error(r"text C:\temp", 1, r"there are `\n`, `\\`");
        check_error("sleep long", 1, "a whole number of milliseconds, not `long`");
        check_error("fill -1", 1, "a whole number of characters, not `-1`");
        check_error("call add", 1, "no arguments; a call is `call NAME {…}`");
        check_error("call add 1", 1, "not a JSON object");
        check_error("call add {\"a\": }", 1, "not JSON: expected value at line 1 column 7");
        check_error("call add {} to x", 1, "`to x` after the arguments");
        check_error("error overloaded", 1, "`error STATUS MESSAGE`");
        check_error("error 200 fine", 1, "from 400 to 599");
        check_error("text a\nhang", 2, "the only line");
        check_error("hang\ntext a", 2, "the only line");
        check_error("hang 5", 1, "takes no value, but has `5`");
        check_error("aside", 1, "`aside` needs a text");
        check_error("text a\naside b\naside c", 3, "a second `aside`");
        check_error("aside b", 1, "a turn without a line");
    }

    #[test]
    fn results_are_filled_in_by_the_order_of_the_calls() {
        let script = Script::from("call add {}\ncall add {}\n---\ntext {result}| of {results}, {other}");
        let messages = json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "first"}, {"type": "tool_use", "id": "second"},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "second", "content": "two"},
                {"type": "tool_result", "tool_use_id": "first", "content": "{results}"},
            ]},
        ]);
        let request = ModelRequest { body: json!({"messages": messages}) };
        let want = text(&["{results}", " of {results}, two, {other}"]);
        assert_eq!(script.turn(&request), Some(Turn::Blocks(vec![want])));
    }

    #[test]
    fn a_request_without_tools_is_answered_aside() {
        let script = Script::from("call add {}\naside It says | no.  # the page\n---\ntext asides");
        let turn = |tools, messages| {
            script.turn(&ModelRequest { body: json!({"tools": tools, "messages": messages}) })
        };
        let aside = Some(Turn::Blocks(vec![text(&["It says ", "no."])]));
        assert_eq!(turn(json!([]), json!([])), aside);
        assert_eq!(turn(json!(null), json!([{"role": "assistant"}])), aside);
        let tools = json!([{"name": "add"}]);
        assert_eq!(turn(tools.clone(), json!([])), Some(Turn::Blocks(vec![Block::call("add", json!({}))])));
        assert_eq!(turn(tools, json!([{"role": "assistant"}])), Some(Turn::text("asides")));
    }

    #[test]
    fn a_missing_result_is_named() {
        let request = ModelRequest { body: json!({}) };
        let turn = Script::from("text {result}, {results}").turn(&request);
        assert_eq!(turn, Some(Turn::text("(no result), (no result)")));
    }
}
