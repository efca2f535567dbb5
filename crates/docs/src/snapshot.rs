//! Reads a consistent text of a file that other processes may change at the same time.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use serde_json::json;

use crate::limit::MAX_SOURCE_BYTES;
use crate::refusal::{Code, Refusal, shown};
use crate::root::Stamp;

/// How often to read a file again that changes while it is read.
pub(crate) const ATTEMPTS: usize = 5;

/// A file's whole text.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) text: String,
    pub(crate) stamp: Stamp,
    /// Whether a later change would be visible in the stamp.
    pub(crate) is_settled: bool,
}

/// Reads a file, and retries a limited number of times if it changes meanwhile, so that two versions are never mixed.
pub(crate) fn read(
    path: &str,
    mut open: impl FnMut() -> io::Result<(File, Stamp)>,
) -> Result<Snapshot, Refusal> {
    let failed = |error| Refusal::system(path, &error);
    for _ in 0..ATTEMPTS {
        let (file, stamp) = open().map_err(failed)?;
        check_size(path, stamp.size)?;
        let is_settled = stamp.is_settled();
        let bytes = read_bytes(&file, stamp.size).map_err(failed)?;
        #[cfg(test)]
        tests::meanwhile();
        // Two changes within one tick of the filesystem clock have the same stamp, so compare the bytes too.
        let is_same = is_settled || read_bytes(&file, stamp.size).map_err(failed)? == bytes;
        if is_same && Stamp::of_file(&file).is_ok_and(|now| now == stamp) {
            check_size(path, bytes.len() as u64)?;
            let text = String::from_utf8(bytes)
                .map_err(|error| Refusal::not_utf8(path, error.utf8_error().valid_up_to()))?;
            return Ok(Snapshot { text, stamp, is_settled });
        }
    }
    Err(Refusal::new(Code::IoError, format!("`{}` changes while it is read; try again", shown(path))))
}

/// Reads a file whose size was `size`. If it grows meanwhile, nothing is read beyond the limit.
fn read_bytes(mut file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.rewind()?;
    file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file that is too large to be read.
fn check_size(path: &str, size: u64) -> Result<(), Refusal> {
    if size <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(Refusal::forbidden(format!(
        "`{}` has {size} bytes, the limit is {MAX_SOURCE_BYTES}; take a smaller file",
        shown(path)
    ))
    .with(json!({ "size_bytes": size, "limit_bytes": MAX_SOURCE_BYTES }))
    .lasting())
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
