//! The text of a file as it was at one moment, though others may change it meanwhile.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use serde_json::json;

use crate::limit::MAX_SOURCE_BYTES;
use crate::refusal::{Code, Refusal, shown};
use crate::root::Stamp;

/// How often a file that changes while it is read is read again.
pub(crate) const ATTEMPTS: usize = 5;

/// Reads a file again until it does not change meanwhile, but not for ever.
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

/// Reads a file that had this stamp when it was opened; `None` if it is changed meanwhile.
pub(crate) fn attempt(file: &File, path: &str, stamp: &Stamp) -> Result<Option<String>, Refusal> {
    let is_settled = stamp.is_settled();
    let read = || read_bytes(file, stamp.size).map_err(|error| Refusal::system(path, &error));
    let bytes = read()?;
    #[cfg(test)]
    tests::meanwhile();
    // Changes within a tick of the disk's clock do not show in the stamp, but in the bytes.
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

/// Reads a file of which `size` bytes were seen. One that grows meanwhile is not read beyond the limit.
fn read_bytes(mut file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.rewind()?;
    file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses what is too large to be read.
pub(crate) fn check_size(path: &str, size: u64) -> Result<(), Refusal> {
    if size <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("`{}` has {size} bytes, the limit is {MAX_SOURCE_BYTES}", shown(path)))
        .with(json!({ "size_bytes": size, "limit_bytes": MAX_SOURCE_BYTES }))
        .lasting())
}

/// Says that a file does not come to rest.
pub(crate) fn restless(path: &str) -> Refusal {
    Refusal::new(Code::IoError, format!("`{}` changes while it is read; try again", shown(path)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    thread_local! {
        static MEANWHILE: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Says what others do between reading a file and having read it.
    pub(crate) fn set_meanwhile(work: Option<Box<dyn FnMut()>>) {
        MEANWHILE.set(work);
    }

    pub(super) fn meanwhile() {
        MEANWHILE.with_borrow_mut(|work| work.iter_mut().for_each(|work| work()));
    }
}
