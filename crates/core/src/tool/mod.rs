//! Tools as data: what a tool is, a call of it, its result and its errors.

pub(crate) mod arguments;
pub(crate) mod call;
pub(crate) mod error;
pub(crate) mod fault;
pub(crate) mod flaw;
pub mod json;
pub(crate) mod leniency;
pub(crate) mod name;
pub(crate) mod result;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod server_info;
pub(crate) mod shape;
pub(crate) mod spec;
