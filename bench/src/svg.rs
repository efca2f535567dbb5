//! SVG pictures with text, boxes and lines, readable on light and on dark pages.
//!
//! Not plotters: its colours are fixed.

/// The style sheet. Classes are named by meaning, not by appearance.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}\
.title{font-size:15px;font-weight:600}.heading{font-weight:600}.note{fill:#57606a}\
.end{text-anchor:end}.middle{text-anchor:middle}\
.grid{stroke:#d0d7de;stroke-width:1}\
.floor{fill:#8c959f;stroke:#8c959f}.ours{fill:#0969da;stroke:#0969da}.peer{fill:#bc4c00;stroke:#bc4c00}\
.other{fill:#1a7f37;stroke:#1a7f37}\
polyline{fill:none!important;stroke-width:2}rect{stroke:none!important}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#8d96a0}.grid{stroke:#3d444d}\
.floor{fill:#7d8590;stroke:#7d8590}.ours{fill:#58a6ff;stroke:#58a6ff}.peer{fill:#f0883e;stroke:#f0883e}\
.other{fill:#3fb950;stroke:#3fb950}}";

/// A picture under construction.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        self.body.push_str(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>\n"));
    }

    /// A box, given by its upper left corner and size.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.body.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>\n"
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.body.push_str(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n"
        ));
    }

    /// A line through points, with a dot at each.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let all: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.body.push_str(&format!("<polyline points=\"{}\" class=\"{class}\"/>\n", all.join(" ")));
        for (x, y) in points {
            self.body.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>\n"));
        }
    }

    /// The whole file.
    pub(crate) fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_what_was_drawn_and_escapes_its_text() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.text(1.0, 2.0, "note", "a < b & c");
        svg.curve(&[(0.0, 1.0), (2.0, 3.0)], "ours");
        let file = svg.finish("Title");
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"), "{file}");
        assert!(file.contains(">a &lt; b &amp; c</text>"), "{file}");
        assert!(file.contains("points=\"0.0,1.0 2.0,3.0\""), "{file}");
        assert_eq!(file.matches("<circle").count(), 2);
        assert!(!file.contains("http://") || file.matches("http").count() == 1, "nothing may be loaded");
    }
}
