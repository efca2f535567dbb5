//! The timeline as a page for a browser: one file that loads nothing else.

use anyhow::Result;

use super::timeline::Timeline;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub(super) fn page(name: &str, timeline: &Timeline) -> Result<String> {
    // Inside a script element only `<` could end it.
    let data = serde_json::to_string(timeline)?.replace('<', "\\u003c");
    // Replace the data last: it may contain the other placeholders.
    let page = PAGE.replace("/*style*/", STYLE).replace("/*script*/", SCRIPT);
    Ok(page.replace("<!--name-->", &escaped(name)).replace("/*data*/", &data))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::both_sides;
    use super::*;

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page("demo.jsonl", &Timeline::of(&both_sides())).unwrap();
        for needle in ["http:", "https:", "//cdn", "src=", "href=", "@import", "url(", "fetch(", "import "] {
            assert!(!page.contains(needle), "{needle}");
        }
        for placeholder in ["/*style*/", "/*script*/", "/*data*/", "<!--name-->"] {
            assert!(!page.contains(placeholder), "{placeholder}");
        }
        assert!(page.contains("default-src 'none'"), "the page must forbid loading anything");
    }

    #[test]
    fn the_data_in_the_page_is_the_timeline() {
        let mut timeline = Timeline::of(&both_sides());
        timeline.calls[0].tool = "</script><b>\u{2028}\"\\/*script*/".into();
        let page = page("a<b>&c", &timeline).unwrap();
        assert!(page.contains("a&lt;b&gt;&amp;c"));
        let head = r#"<script type="application/json" id="data">"#;
        let (_, rest) = page.split_once(head).unwrap();
        let (data, _) = rest.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<Timeline>(data).unwrap(), timeline);
    }
}
