//! The report as a section of a document.

use super::report::{EXPLANATION, Report};

impl Report {
    /// What stands between the markers.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{}.\n\n{}.\n", self.machine_line(), self.versions.join("; "));
        for note in &self.notes {
            text.push_str(&format!("\n**{note}**\n"));
        }
        let mut part = |title: &str, body: &str| text.push_str(&format!("\n### {title}\n\n{body}"));
        part("Who is compared", &list(self.contenders.iter().map(|one| (one.name(), one.explanation()))));
        part("What is measured", &list(EXPLANATION));
        part("Goals", &self.goals_table().to_markdown());
        part("Medians", &self.medians_table().to_markdown());
        for table in self.other_tables().iter().filter(|table| !table.rows.is_empty()) {
            part(table.title, &table.to_markdown());
        }
        let all = self.rows_table().to_markdown();
        let details =
            format!("<details><summary>p99, number of runs, ratios</summary>\n\n{all}\n</details>\n");
        part("All figures of calls, start and memory", &details);
        text
    }
}

fn list<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    items.into_iter().map(|(name, meaning)| format!("- **{name}**: {meaning}.\n")).collect()
}
