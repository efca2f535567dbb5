//! `toolbridge docs`: the document tools, for any MCP client.

use std::process::ExitCode;

use anyhow::Result;
use toolbridge::docs::DocumentsBuilder;
use toolbridge::set;
use toolbridge::tool::ServerInfo;

use crate::args::{DocsArgs, DocsRoots};
use crate::output::say;
use crate::serve::{Front, Serve, Source, serve};

/// Instructions for the model.
const INSTRUCTIONS: &str = "Find a section with `manual_find` or `manual_toc`, then have it copied into the vault with \
    `bridge_copy_section`. The text is copied inside the server: do not read it just to write it somewhere else.";

/// Creates the two folders, or serves them until stdin ends or a signal arrives.
pub(crate) fn run(args: &DocsArgs) -> Result<ExitCode> {
    if args.init {
        let builder = builder(args)?;
        let created: Vec<_> = builder.init()?.iter().map(|path| format!("`{}`", path.display())).collect();
        say(&if created.is_empty() {
            let (manuals, vault) = (builder.manuals_path(), builder.vault_path());
            format!("`{}` and `{}` exist already; nothing was changed", manuals.display(), vault.display())
        } else {
            format!("created {}", created.join(", "))
        });
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source::Documents(Box::new(builder(args)?));
    serve(Serve::one(source, Front::Stdio, args.trace.file.clone()))
}

/// The server info of the document tools.
pub(crate) fn info() -> ServerInfo {
    ServerInfo {
        name: "toolbridge-docs".into(),
        instructions: Some(INSTRUCTIONS.into()),
        ..ServerInfo::default()
    }
}

/// The settings from the flags; the environment fills in the rest.
fn builder(args: &DocsArgs) -> Result<DocumentsBuilder> {
    let mut builder = roots(&args.roots)?;
    set! { builder:
        workspace = &args.dir,
        hard_max_sections = args.hard_max_sections,
        hard_max_chars = args.hard_max_chars,
        hard_max_copy_chars = args.hard_max_copy_chars,
        log_level = args.log_level,
    }
    Ok(builder)
}

/// The settings for the two folders.
pub(crate) fn roots(args: &DocsRoots) -> Result<DocumentsBuilder> {
    let mut builder = DocumentsBuilder::from_env()?;
    set! { builder:
        workspace = &args.workspace,
        manuals = &args.manuals,
        vault = &args.vault,
        daily = &args.daily,
        allow_file_scope = args.allow_file_scope.then_some(true),
    }
    Ok(builder.read_only(args.read_only))
}
