//! The schemas of types.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The JSON Schema of a type, as it is shown to models and clients.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    // Inlined as far as possible: not every client follows references.
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // Both are of no use to the model, and are sent with every request.
    schema.remove("$schema");
    schema.remove("title");
    forget_widths(&mut schema);
    schema.to_value()
}

/// Removes formats that only give the width of an integer in Rust, such as `uint64`.
///
/// JSON Schema does not define them, and the CLI warns of each on its stderr. `minimum` and `maximum` give the same
/// information.
fn forget_widths(schema: &mut Schema) {
    // `int32` and `int64` are defined by OpenAPI, so the CLI knows them.
    const WIDTHS: [&str; 10] =
        ["int8", "int16", "int128", "int", "uint8", "uint16", "uint32", "uint64", "uint128", "uint"];
    if schema.get("format").is_some_and(|format| WIDTHS.iter().any(|width| format == width)) {
        schema.remove("format");
    }
    transform_subschemas(&mut forget_widths, schema);
}
