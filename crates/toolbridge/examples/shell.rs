//! A program whose model may run commands in the CLI's shell: `shell CLAUDE [GUARDIAN]`.
//!
//! Tests kill it: nothing that it has started may go on then. It is not its own guardian, so that it can be
//! tested without one.
#![allow(clippy::print_stdout, reason = "the answer is what this program is for")]

use toolbridge::ClaudeCodeModel;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let cli = args.next().ok_or("the first argument is the CLI")?;
    let mut model = ClaudeCodeModel::builder().cli(cli).builtin_tools(["Bash"]).allowed_tools(["Bash"]);
    if let Some(guardian) = args.next() {
        model = model.guard(guardian);
    }
    println!("{}", model.build()?.request("Do it.").await?.text());
    Ok(())
}
