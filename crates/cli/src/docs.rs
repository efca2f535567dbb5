//! `toolbridge docs`: the document tools, for any MCP client.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use toolbridge::core::set;
use toolbridge::docs::DocumentsBuilder;
use toolbridge::mcp::ServerInfo;

use crate::args::{DocsArgs, DocsRoots};
use crate::output::say;

/// What a model should know before it uses the tools.
const INSTRUCTIONS: &str = "Find a section with `manual_find` or `manual_toc`, then have it copied into the vault with \
    `bridge_copy_section`. The text is copied inside the server: do not read it just to write it somewhere else.";

/// Makes the two folders, or serves them until stdin ends or a signal comes.
pub(crate) fn run(args: &DocsArgs) -> Result<ExitCode> {
    if args.init {
        let builder = builder(args)?;
        builder.init()?;
        let (manuals, vault) = (builder.manuals_path(), builder.vault_path());
        say(&format!("made `{}` with a small example, and `{}`", manuals.display(), vault.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let info = ServerInfo {
        name: "toolbridge-docs".into(),
        instructions: Some(INSTRUCTIONS.into()),
        ..ServerInfo::default()
    };
    toolbridge::serve_stdio(Arc::new(builder(args)?.open()?), info, args.trace.file.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The settings as the flags say, and where they say nothing the environment.
fn builder(args: &DocsArgs) -> Result<DocumentsBuilder> {
    let mut builder = roots(&args.roots)?;
    set! { builder:
        hard_max_sections = args.hard_max_sections,
        hard_max_chars = args.hard_max_chars,
        log_level = args.log_level,
    }
    Ok(builder)
}

/// The two folders, and what may be done with them.
pub(crate) fn roots(args: &DocsRoots) -> Result<DocumentsBuilder> {
    let mut builder = DocumentsBuilder::from_env()?;
    set! { builder:
        workspace = &args.workspace,
        manuals = &args.manuals,
        vault = &args.vault,
        allow_file_scope = args.allow_file_scope.then_some(true),
    }
    Ok(builder.read_only(args.read_only))
}
