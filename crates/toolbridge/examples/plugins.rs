//! A program with tools that change at run time: each executable in a directory is a plugin, which the model
//! loads by name.
//!
//! `plugins DIRECTORY` prints a config for `claude --mcp-config`, and ends when its stdin ends. `PLUGIN
//! --schema` prints the plugin's description and parameters as JSON; `PLUGIN ARGUMENTS`, with the arguments
//! as JSON, prints its result.
#![allow(clippy::print_stdout, reason = "the config is what this program is for")]

use std::path::{Path, PathBuf};
use std::{fs, io, process::Command};

use tokio::io::AsyncReadExt as _;
use toolbridge::tool::RawJson;
use toolbridge::toolset::IntoTools as _;
use toolbridge::{Session, Tool, Toolset};

struct Plugins {
    dir: PathBuf,
    tools: Toolset,
}

#[toolbridge::tools]
impl Plugins {
    /// Loads a plugin; from then on it can be called.
    fn load_plugin(&self, name: String) -> io::Result<String> {
        // Not joined to the directory: a name with `..` in it leads nowhere.
        let file = fs::read_dir(&self.dir)?.flatten().find(|file| file.file_name() == *name);
        let path = file.ok_or_else(|| io::Error::other(format!("there is no plugin `{name}`")))?.path();
        let said: serde_json::Value = serde_json::from_str(&run(&path, "--schema")?)?;
        let description = said["description"].as_str().unwrap_or_default();
        let handler = move |arguments: RawJson| run(&path, arguments.as_str());
        let tool = Tool::raw(format!("plugin_{name}"), description, said["input_schema"].clone(), handler);
        self.tools.add(tool).map_err(io::Error::other)?;
        Ok(format!("`plugin_{name}` can be called now"))
    }

    /// Unloads a plugin.
    fn unload_plugin(&self, name: String) -> &'static str {
        if self.tools.remove(&format!("plugin_{name}")) { "it is gone" } else { "it was not loaded" }
    }
}

fn run(plugin: &Path, argument: &str) -> io::Result<String> {
    let output = Command::new(plugin).arg(argument).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("the plugin ended with {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolbridge::run_bridge_if_asked();
    let dir = std::env::args_os().nth(1).ok_or("the argument is the directory of the plugins")?;
    serve(dir.into())
}

#[tokio::main]
async fn serve(dir: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let tools = Toolset::builder().build()?;
    let plugins = Plugins { dir, tools: tools.clone() };
    plugins.into_tools().into_iter().try_for_each(|tool| tools.add(tool))?;
    let session = Session::start(tools).await?;
    println!("{}", session.mcp_config("tools")?);
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    session.stop().await;
    Ok(())
}
