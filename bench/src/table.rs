//! Tables, for a terminal and for Markdown.

/// A table: the first columns are text, the others are values.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    texts: usize,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose first `texts` columns are text.
    pub(crate) fn new(texts: usize, title: &'static str, head: &[&str]) -> Self {
        Self { title, texts, head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// In aligned columns.
    pub(crate) fn to_text(&self) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = format!("{}\n", self.title);
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells = row.iter().zip(&widths).enumerate().map(|(place, (cell, width))| {
                if place < self.texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    pub(crate) fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut rule = vec!["---".to_owned(); self.texts];
        rule.resize(self.head.len(), "--:".to_owned());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.head), line(&rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_in_text_and_in_markdown() {
        let mut table = Table::new(1, "Title", &["what", "µs"]);
        table.add(["floor".into(), "17".into()]);
        table.add(["x".into(), "1234".into()]);
        assert_eq!(table.to_text(), "Title\nwhat     µs\nfloor    17\nx      1234\n");
        assert_eq!(table.to_markdown(), "| what | µs |\n| --- | --: |\n| floor | 17 |\n| x | 1234 |\n");
    }
}
