//! JSON text on its way to Python.

use std::convert::Infallible;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// JSON text, which Python gets as bytes and reads itself.
pub(crate) struct Json(pub(crate) Vec<u8>);

impl<'py> IntoPyObject<'py> for Json {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyBytes::new(py, &self.0))
    }
}
