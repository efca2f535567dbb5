//! The generated part of a document, so that no figure is typed by hand.

use anyhow::{Result, ensure};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// The document with `block` between its markers, replacing what was there.
pub(crate) fn replaced(document: &str, block: &str) -> Result<String> {
    let once = |marker: &str| document.matches(marker).count() == 1;
    ensure!(once(BEGIN) && once(END), "the document must have `{BEGIN}` once, and `{END}` once");
    let [(before, rest), (_, after)] = [BEGIN, END].map(|marker| {
        let place = document.find(marker).unwrap_or_default();
        (&document[..place], &document[place + marker.len()..])
    });
    ensure!(rest.contains(END), "`{END}` comes before `{BEGIN}`");
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", block.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let document = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n");
        let new = replaced(&document, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe rest.\n"));
        assert_eq!(replaced(&new, "new").unwrap(), new, "replacing twice changes nothing");
    }

    #[test]
    fn a_document_without_one_pair_of_markers_is_an_error() {
        for wrong in ["", BEGIN, END, &format!("{END}{BEGIN}"), &format!("{BEGIN}{BEGIN}{END}")] {
            assert!(replaced(wrong, "new").is_err(), "{wrong}");
        }
    }
}
