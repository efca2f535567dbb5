use toolbridge::tool;

/// Has a setting that does not exist.
#[tool(readonly)]
fn unknown() {}

/// Has one twice.
#[tool(read_only, read_only)]
fn twice() {}

/// Has a time-out that is no time.
#[tool(timeout = "5 seconds")]
fn no_time() {}

/// Has a time-out that is no text.
#[tool(timeout = 5)]
fn no_text() {}

/// Has a flag that is neither true nor false.
#[tool(destructive = "no")]
fn no_flag() {}

/// Has a name that the CLI would leave out.
#[tool(name = "look up")]
fn no_name() {}

/// Cannot be skipped.
#[tool(skip)]
fn skipped() {}

#[tool]
fn undescribed() {}

#[tool(description = " ")]
fn empty() {}

fn main() {}
