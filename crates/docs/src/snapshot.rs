//! Reads a consistent text of a file that other processes may change at the same time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use serde_json::json;

use crate::limit::MAX_SOURCE_BYTES;
use crate::refusal::{Code, Refusal, shown};
use crate::root::Stamp;

/// How often to read a file again that changes while it is read.
pub(crate) const ATTEMPTS: usize = 5;

/// Reads a file, and retries a limited number of times if it changes meanwhile.
pub(crate) fn read(
    path: &str,
    mut open: impl FnMut() -> io::Result<(File, Stamp)>,
) -> Result<String, Refusal> {
    for _ in 0..ATTEMPTS {
        let (file, stamp) = open().map_err(|error| Refusal::system(path, &error))?;
        check_size(path, stamp.size)?;
        if let Some(text) = attempt(&file, path, &stamp)? {
            return Ok(text);
        }
    }
    Err(restless(path))
}

/// Reads a file that had this stamp when it was opened; `None` if it changed meanwhile.
pub(crate) fn attempt(file: &File, path: &str, stamp: &Stamp) -> Result<Option<String>, Refusal> {
    let is_settled = stamp.is_settled();
    let read = || read_bytes(file, stamp.size).map_err(|error| Refusal::system(path, &error));
    let bytes = read()?;
    #[cfg(test)]
    tests::meanwhile();
    // Two changes within one tick of the filesystem clock have the same stamp, so compare the bytes too.
    let is_same = (is_settled || read()? == bytes) && Stamp::of_file(file).is_ok_and(|now| now == *stamp);
    if !is_same {
        return Ok(None);
    }
    check_size(path, bytes.len() as u64)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(Refusal::not_utf8(path, error.utf8_error().valid_up_to())),
    }
}

/// Reads a file whose size was `size`. If it grows meanwhile, nothing is read beyond the limit.
fn read_bytes(mut file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.rewind()?;
    file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file that is too large to be read.
pub(crate) fn check_size(path: &str, size: u64) -> Result<(), Refusal> {
    if size <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("`{}` has {size} bytes, the limit is {MAX_SOURCE_BYTES}", shown(path)))
        .with(json!({ "size_bytes": size, "limit_bytes": MAX_SOURCE_BYTES }))
        .lasting())
}

/// The refusal for a file that changes at every attempt.
pub(crate) fn restless(path: &str) -> Refusal {
    Refusal::new(Code::IoError, format!("`{}` changes while it is read; try again", shown(path)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    thread_local! {
        static MEANWHILE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Sets what tests run between the two reads, as another process would.
    pub(crate) fn set_meanwhile(work: Option<Box<dyn FnMut()>>) {
        MEANWHILE.set(work);
    }

    pub(super) fn meanwhile() {
        MEANWHILE.with_borrow_mut(|work| work.iter_mut().for_each(|work| work()));
    }
}
