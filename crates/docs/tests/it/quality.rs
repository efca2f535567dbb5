//! Search quality: our own questions and judgements, over this project's own pages.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::Workspace;

const QUESTIONS: &str = include_str!("../questions.tsv");

/// Well below the actual figure, which is printed and changes with the pages: this fails when the ranking is broken.
const LEAST_MRR: f64 = 0.6;

/// The pages that the questions are about; a folder stands for all pages in it.
const PAGES: &str = include_str!("../pages.txt");

fn collect(root: &Path, path: &str, pages: &mut Vec<(String, String)>) {
    if !path.ends_with('/') {
        pages.push((path.to_owned(), fs::read_to_string(root.join(path)).unwrap()));
        return;
    }
    for entry in fs::read_dir(root.join(path)).unwrap() {
        let entry = entry.unwrap();
        let is_page = entry.path().extension().is_some_and(|ending| ending == "md");
        let path = format!("{path}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(root, &format!("{path}/"), pages);
        } else if is_page {
            collect(root, &path, pages);
        }
    }
}

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    PAGES.lines().for_each(|path| collect(&root, path, &mut pages));
    pages
}

#[test]
fn questions_about_our_own_pages_find_the_section_that_answers_them() {
    let workspace = Workspace::new();
    for (path, text) in pages() {
        workspace.manual(&path, text);
    }
    let client = workspace.open();
    let (mut reciprocal, mut gain, mut count) = (0.0, 0.0, 0.0);
    for line in QUESTIONS.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let question = columns.next().unwrap();
        let answers: Vec<_> = columns.collect();
        for answer in &answers {
            let (path, title) = answer.split_once('#').unwrap();
            let toc = client.ok("manual_toc", &json!({ "manual_id": "m", "path": path, "full": true }));
            let is_there = toc["items"].as_array().unwrap().iter().any(|node| node["title"] == title);
            assert!(is_there, "`{answer}` is no section any more: correct questions.tsv");
        }
        let found = client.ok("manual_find", &json!({ "query": question }));
        let items = found["items"].as_array().unwrap();
        let is_right = |item: &serde_json::Value| {
            let path =
                item["ref"].as_str().unwrap().trim_start_matches("m/").split('#').next().unwrap().to_owned();
            answers.contains(&format!("{path}#{}", item["title"].as_str().unwrap()).as_str())
        };
        let ranks: Vec<f64> = items
            .iter()
            .zip(1_u32..)
            .filter(|(item, _)| is_right(item))
            .map(|(_, rank)| f64::from(rank))
            .collect();
        let discounted = |rank: f64| 1.0 / (rank + 1.0).log2();
        let ideal: f64 =
            (1..=u32::try_from(answers.len()).unwrap()).map(|rank| discounted(f64::from(rank))).sum();
        reciprocal += ranks.first().map_or(0.0, |rank| 1.0 / rank);
        gain += ranks.iter().map(|rank| discounted(*rank)).sum::<f64>() / ideal;
        count += 1.0;
        if ranks.first() != Some(&1.0) {
            let first = items.first().map_or("nothing", |item| item["title"].as_str().unwrap());
            println!("{question}: at {:?}, first is `{first}`", ranks.first());
        }
    }
    let (mrr, ndcg) = (reciprocal / count, gain / count);
    println!("{count} questions: MRR {mrr:.3}, nDCG@10 {ndcg:.3}");
    assert!(mrr >= LEAST_MRR, "MRR {mrr:.3}");
}
