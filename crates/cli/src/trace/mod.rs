//! `toolbridge trace`: shows what a session did, from its trace file.

mod page;
mod read;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod unit;
mod waterfall;

use std::io::{self, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use self::read::{Fault, read};
use self::timeline::{Call, Timeline};
use crate::args::TraceArgs;
use crate::output::{WithHint, print, say};

/// The width of the output if stdout is not a terminal.
const DEFAULT_WIDTH: usize = 100;

/// The least width; longer lines are cut off by the terminal.
const LEAST_WIDTH: usize = 60;

/// How many rows are shown without `--all`.
const SHOWN_ROWS: usize = 40;

/// How many broken lines are reported one by one.
const SHOWN_FAULTS: usize = 10;

pub(crate) fn run(args: &TraceArgs) -> Result<ExitCode> {
    let (events, faults) = read(&args.file)?;
    let timeline = Timeline::of(&events);
    warn(&args.file, &faults);
    if events.is_empty() && !faults.is_empty() {
        return Err(WithHint {
            error: format!("`{}` is not a trace: no line of it is an event", args.file.display()),
            hint: "give a file that was written with `--trace FILE` or TOOLBRIDGE_TRACE",
        }
        .into());
    }
    if let Some(out) = &args.html {
        return write_page(&args.file, out.as_deref(), &timeline);
    }
    if args.json {
        return print(format!("{}\n", serde_json::to_string(&timeline)?).as_bytes());
    }
    print(text(&timeline, args.all, &Style::of_stdout()).as_bytes())
}

fn warn(file: &Path, faults: &[Fault]) {
    for fault in faults.iter().take(SHOWN_FAULTS) {
        say(&format!("warning: {}:{}: {}", file.display(), fault.line, fault.reason));
    }
    if let Some(more) = faults.len().checked_sub(SHOWN_FAULTS).filter(|more| *more > 0) {
        say(&format!("warning: and {more} more lines that are not events"));
    }
}

fn write_page(file: &Path, out: Option<&Path>, timeline: &Timeline) -> Result<ExitCode> {
    let out = out.map_or_else(|| file.with_extension("html"), Path::to_owned);
    if is_same(&out, file) {
        return Err(WithHint {
            error: format!("the page would overwrite the trace `{}`", file.display()),
            hint: "name another file: `--html OUT`",
        }
        .into());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    std::fs::write(&out, page::page(&name, timeline)?).map_err(|error| WithHint {
        error: format!("cannot write the page to `{}`: {error}", out.display()),
        hint: "name another file: `--html OUT`",
    })?;
    say(&format!("wrote `{}`: {}", out.display(), unit::calls(timeline.calls.len())));
    Ok(ExitCode::SUCCESS)
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    file(one).is_some_and(|one| Some(one) == file(other))
}

/// The layout of the text.
struct Style {
    width: usize,
    colour: bool,
}

impl Style {
    fn of_stdout() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let columns = || {
            rustix::termios::tcgetwinsize(&stdout)
                .ok()
                .map(|size| usize::from(size.ws_col))
                .filter(|n| *n > 0)
        };
        let width = if is_terminal { columns() } else { None }.unwrap_or(DEFAULT_WIDTH);
        Self {
            width: width.max(LEAST_WIDTH),
            colour: is_terminal && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()),
        }
    }

    /// `text` in a colour (an SGR code), if colours are enabled.
    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn text(timeline: &Timeline, all: bool, style: &Style) -> String {
    let shown = if all { timeline.calls.chunks(1).collect() } else { rows(&timeline.calls) };
    let mut text = table::table(&shown, style);
    if !shown.is_empty() {
        text += "\n";
        text += &waterfall::waterfall(timeline, &shown, style);
        text += "\n";
    }
    let more = timeline.calls.len() - shown.iter().map(|row| row.len()).sum::<usize>();
    if more > 0 {
        let calls_are = if more == 1 { "call is" } else { "calls are" };
        text += &format!("{more} shorter {calls_are} not shown; `--all` shows all\n\n");
    }
    text + &summary::text(timeline)
}

/// Equal calls one after another are one row. Failed calls and the longest ones, in the order of their start.
fn rows(calls: &[Call]) -> Vec<&[Call]> {
    let mut rows: Vec<_> = calls.chunk_by(Call::is_like).collect();
    if rows.len() > SHOWN_ROWS {
        rows.sort_by_key(|row| std::cmp::Reverse((!row[0].is_ok(), longest(row).total_ns)));
        rows.truncate(SHOWN_ROWS);
        rows.sort_by_key(|row| row[0].number);
    }
    rows
}

/// The tool's name, with the number of calls.
fn name(row: &[Call]) -> String {
    let tool = &row[0].tool;
    if row.len() == 1 { tool.clone() } else { format!("{} × {tool}", row.len()) }
}

/// The call of a row whose figures are shown.
fn longest(row: &[Call]) -> &Call {
    row.iter().max_by_key(|call| call.total_ns).expect("a row has a call")
}
