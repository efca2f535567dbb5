//! A server that knows one version of MCP and lists its tools on three pages; or one that misbehaves.

use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

/// `pinned VERSION`, `modern`; `rude VERSION` exits at `server/discover`, `mute VERSION` never answers it,
/// `deaf` never answers anything, `stubborn FILE` does not exit when it should, `chatty VERSION` writes lines to
/// stdout that are not MCP, and `wordy VERSION` has long instructions.
pub(crate) fn run(mode: &str, rest: &[String]) -> io::Result<()> {
    let version = rest.first().cloned().unwrap_or_else(|| "2026-07-28".into());
    match mode {
        "deaf" => {
            eprintln!("I do not listen");
            io::copy(&mut io::stdin(), &mut io::sink())?;
            return Ok(());
        }
        "broken" => {
            eprintln!("first line\nno such file: config.toml");
            std::process::exit(3);
        }
        "chatty" => println!("Welcome!\n{{\"not\": \"rpc\"}}{}", "\nloading".repeat(1000)),
        _ => {}
    }
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let (Some(method), id) = (message["method"].as_str(), &message["id"]) else { continue };
        if id.is_null() {
            continue;
        }
        let is_modern = mode == "modern";
        let answer = match method {
            "server/discover" if mode == "rude" => std::process::exit(1),
            "server/discover" if mode == "mute" => continue,
            "server/discover" if is_modern => Ok(json!({
                "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "resultType": "complete",
                "serverInfo": { "name": "modern", "version": "1" }, "ttlMs": 0, "cacheScope": "private",
            })),
            "initialize" if !is_modern => Ok(json!({
                "protocolVersion": version, "capabilities": { "tools": {} },
                "serverInfo": { "name": "pinned", "version": "1" },
                "instructions": (mode == "wordy").then(|| format!("-{}", "é".repeat(50_000))),
            })),
            "tools/list" => Ok(page(message["params"]["cursor"].as_str(), is_modern)),
            "tools/call" if message["params"]["name"] == "refuse" => {
                Err(json!({ "code": -32099, "message": "not today", "data": { "why": 1 } }))
            }
            "tools/call" if message["params"]["name"] == "odd" => Ok(json!({ "no": "content" })),
            "tools/call" => Ok(json!({
                "content": [{ "type": "text", "text": message["params"]["_meta"].to_string() }],
                "resultType": "complete",
            })),
            _ => Err(json!({ "code": -32601, "message": "unknown method" })),
        };
        let answer = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    if mode == "stubborn" {
        std::thread::sleep(Duration::from_secs(600));
    }
    Ok(())
}

fn page(cursor: Option<&str>, is_modern: bool) -> Value {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let mut page = match cursor {
        None => json!({ "tools": [tool("first"), tool("bad name")], "nextCursor": "b" }),
        Some("b") => json!({ "tools": [tool("refuse")], "nextCursor": "c" }),
        _ => json!({ "tools": [tool("odd"), tool("last")] }),
    };
    if is_modern {
        page["resultType"] = "complete".into();
        page["ttlMs"] = 0.into();
        page["cacheScope"] = "private".into();
    }
    page
}
