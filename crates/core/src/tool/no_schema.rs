//! Without the feature `schema` there are no schemas to check.

use serde_json::Value;

use crate::Fault;

/// Never made.
#[derive(Debug)]
pub enum Schema {}

impl Schema {
    /// # Errors
    ///
    /// Always.
    pub fn compile(_: &Value) -> Result<Self, String> {
        Err("checking it needs the feature `schema` of toolbridge".into())
    }

    /// Where `value` does not fit, and why.
    #[must_use]
    pub fn fault(&self, _: &Value) -> Option<Fault> {
        match *self {}
    }
}
