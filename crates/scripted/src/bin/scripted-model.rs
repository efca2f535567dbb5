//! `scripted-model [--log FILE] SCRIPT_FILE`: the scripted model for tests in other languages.
//!
//! Prints `{"url": "…"}` and runs until stdin ends. Each request to the model is a line of FILE, written before
//! the request is answered.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command: data on stdout, talk on stderr")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;

use serde_json::json;
use toolbridge_scripted::{Script, ScriptedModel, Turn};

/// The model's answer past the script's end.
const ENDED: &str = "(the script has ended)";

const USAGE: &str = "usage: scripted-model [--log FILE] SCRIPT_FILE";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (log, script) = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--log", log, script] => (Some(*log), *script),
        [script] if !script.starts_with('-') => (None, *script),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(log, script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(log: Option<&str>, script: &str) -> Result<(), String> {
    let text = fs::read_to_string(script).map_err(|error| format!("cannot read `{script}`: {error}"))?;
    let script = Script::parse(&text).map_err(|error| format!("`{script}`: {error}"))?;
    let model = match log {
        None => ScriptedModel::start(script),
        Some(log) => {
            let file = File::options().append(true).create(true).open(log);
            let file = Mutex::new(file.map_err(|error| format!("cannot open `{log}`: {error}"))?);
            ScriptedModel::start_with(move |request| {
                let line = format!("{}\n", request.body);
                let written = file.lock().expect("no writer panics").write_all(line.as_bytes());
                match written {
                    Ok(()) => script.turn(request).unwrap_or_else(|| Turn::text(ENDED)),
                    Err(error) => Turn::error(500, format!("cannot write the log: {error}")),
                }
            })
        }
    };
    println!("{}", json!({"url": model.url()}));
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|error| format!("cannot read stdin: {error}"))?;
    Ok(())
}
