//! The `console` blocks of a page: commands and their output.

/// Starts the comment before a block that contains the model's script.
const SCRIPT: &str = "<!-- model:";

/// The comment before a block whose command keeps running until the end of the page.
const OWN_TERMINAL: &str = "<!-- a terminal of its own -->";

/// A `console` block of a page.
pub(crate) struct Console {
    /// The model's script for the block.
    pub(crate) script: Option<String>,
    /// Whether its command keeps running until the end of the page.
    pub(crate) stays: bool,
    /// Never empty.
    pub(crate) steps: Vec<Step>,
}

/// A command, and its output as shown on the page.
pub(crate) struct Step {
    pub(crate) command: String,
    /// The line of the command, from 1; its output begins there, from 0.
    pub(crate) line: usize,
    pub(crate) shown: Vec<String>,
}

/// The `console` blocks of a page, in order.
///
/// # Panics
///
/// If a block is malformed.
pub(crate) fn consoles(text: &str) -> Vec<Console> {
    let mut found: Vec<Console> = Vec::new();
    let (mut script, mut stays) = (None::<String>, false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(start) = line.strip_prefix(SCRIPT) {
            let mut said = start.to_owned();
            while !said.contains("-->") {
                let (_, more) = lines
                    .next()
                    .unwrap_or_else(|| panic!("the comment of line {} does not end with `-->`", number + 1));
                said = said + "\n" + more;
            }
            script = Some(said.replace("-->", ""));
        } else if line == OWN_TERMINAL {
            stays = true;
        } else if line == "```console" {
            let mut steps: Vec<Step> = Vec::new();
            for (number, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
                if let Some(command) = line.strip_prefix("$ ") {
                    let command = command.split("  # ").next().unwrap_or_default().trim_end().to_owned();
                    steps.push(Step { command, line: number + 1, shown: vec![] });
                } else {
                    let step = steps
                        .last_mut()
                        .unwrap_or_else(|| panic!("line {} comes before any `$ ` command", number + 1));
                    step.shown.push(line.to_owned());
                }
            }
            assert!(!steps.is_empty(), "the block of line {} has no command", number + 1);
            found.push(Console { script: script.take(), stays, steps });
            stays = false;
        }
    }
    found
}
