//! One tool, before it is added to a toolset.

use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::toolset::handler::{FromArguments, Handler, IntoHandler};
use crate::{RawJson, ToolSpec, schema_of};

/// A tool with its handler and everything that describes it.
///
/// ```
/// # use std::time::Duration;
/// # use schemars::JsonSchema;
/// # use serde::Deserialize;
/// # use toolbridge_core as toolbridge;
/// use toolbridge::{Tool, Toolset};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Lookup {
///     /// The order's number.
///     order: u64,
/// }
///
/// let lookup = Tool::new("lookup", "Looks an order up", async |args: Lookup| format!("order {}", args.order))
///     .read_only()
///     .timeout(Duration::from_secs(5));
/// let tools = Toolset::builder().with(lookup).build()?;
/// # Ok::<(), toolbridge_core::tool::RegistrationError>(())
/// ```
#[derive(Debug)]
pub struct Tool {
    pub(crate) spec: ToolSpec,
    pub(crate) annotations: Map<String, Value>,
    pub(crate) meta: Map<String, Value>,
    pub(crate) handler: Handler,
    pub(crate) is_parallel: bool,
    /// Whether the schemas are checked by us: that of the arguments, and that of the result.
    pub(crate) checks: [bool; 2],
}

impl Tool {
    const ALWAYS_LOAD: &'static str = "anthropic/alwaysLoad";
    pub(crate) const MAX_RESULT_CHARS: &'static str = "anthropic/maxResultSizeChars";
    pub(crate) const READ_ONLY: &'static str = "readOnlyHint";

    /// A tool whose input schema is made from the type of its arguments.
    #[must_use]
    pub fn new<A, M>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl IntoHandler<A, M>,
    ) -> Self
    where
        A: JsonSchema + FromArguments,
    {
        Self::raw(name, description, schema_of::<A>(), handler).of_type()
    }

    /// The schema is that of the type of the arguments, so reading them is the check.
    pub(crate) fn of_type(mut self) -> Self {
        self.checks[0] = false;
        self
    }

    /// A tool with your own input schema, which arguments are checked against before the handler runs. It may take
    /// them undecoded, as [`RawJson`], or as any type that serde can read.
    #[must_use]
    pub fn raw<A, M>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<RawJson>,
        handler: impl IntoHandler<A, M>,
    ) -> Self
    where
        A: FromArguments,
    {
        Self {
            spec: ToolSpec::new(name, description, input_schema.into()),
            annotations: Map::new(),
            meta: Map::from_iter([(Self::ALWAYS_LOAD.to_owned(), Value::Bool(true))]),
            handler: handler.into_handler(),
            is_parallel: false,
            checks: [true; 2],
        }
    }

    /// A name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.spec.title = Some(title.into());
        self
    }

    /// The tool changes nothing. Its calls run in parallel; those of other tools run one at a time, unless they are
    /// [`parallel`](Self::parallel).
    #[must_use]
    pub fn read_only(self) -> Self {
        self.annotation(Self::READ_ONLY, true)
    }

    /// Whether the tool may destroy something.
    #[must_use]
    pub fn destructive(self, destructive: bool) -> Self {
        self.annotation("destructiveHint", destructive)
    }

    /// Whether repeating a call has no further effect.
    #[must_use]
    pub fn idempotent(self, idempotent: bool) -> Self {
        self.annotation("idempotentHint", idempotent)
    }

    /// Whether the tool interacts with things outside, such as the web.
    #[must_use]
    pub fn open_world(self, open_world: bool) -> Self {
        self.annotation("openWorldHint", open_world)
    }

    /// Adds a hint about the tool's behaviour, as MCP defines it.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Its calls may overlap with any others, although the tool changes something. The CLI sends calls of tools that are
    /// not read-only one after another nevertheless.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.is_parallel = true;
        self
    }

    /// The handler checks its arguments and results itself; the schemas are only shown to clients.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.checks = [false; 2];
        self
    }

    /// Declares a structured result of the type `T`. The handler's value, an object, is then also sent as
    /// structured content.
    #[must_use]
    pub fn output<T: JsonSchema>(self) -> Self {
        self.output_schema(schema_of::<T>())
    }

    /// Declares a structured result that fits your own JSON Schema.
    #[must_use]
    pub fn output_schema(mut self, schema: impl Into<RawJson>) -> Self {
        self.spec.output_schema = Some(schema.into());
        self
    }

    /// Adds a member to the tool's metadata.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Whether the CLI shows the tool to the model from the start, which is the default, or may leave it out until
    /// the model searches for it.
    #[must_use]
    pub fn always_load(mut self, always: bool) -> Self {
        if always {
            return self.meta(Self::ALWAYS_LOAD, true);
        }
        self.meta.remove(Self::ALWAYS_LOAD);
        self
    }

    /// How long a result may be before the CLI saves it to a file and shows the model a preview. The
    /// CLI's own limit is about 50,000 characters; it accepts up to 500,000 here.
    #[must_use]
    pub fn max_result_chars(self, chars: u32) -> Self {
        self.meta(Self::MAX_RESULT_CHARS, chars)
    }

    /// How long a call may take; the default is no limit.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.spec.timeout = Some(limit);
        self
    }
}

/// What can be added to a toolset with [`ToolsetBuilder::with`](crate::ToolsetBuilder::with): one tool or several.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not a tool",
    note = "a function with `#[toolbridge::tool]` is the tool `lookup {{}}`: without the braces it is the function itself",
    note = "a value is the tools of its type when the type's `impl` block has `#[toolbridge::tools]`",
    note = "a closure has no name: `.tool(\"name\", \"what it does\", closure)`"
)]
pub trait IntoTools {
    /// The tools, in order.
    fn into_tools(self) -> Vec<Tool>;
}

impl IntoTools for Tool {
    fn into_tools(self) -> Vec<Tool> {
        vec![self]
    }
}

impl IntoTools for Vec<Tool> {
    fn into_tools(self) -> Vec<Tool> {
        self
    }
}
