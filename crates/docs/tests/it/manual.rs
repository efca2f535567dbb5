//! Listing and reading manuals.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Client, Workspace, place, reference};

fn read(path: &str, line: impl Into<Value>, scope: &str) -> Value {
    json!({ "ref": reference(path, line), "scope": scope })
}

#[test]
fn manuals_and_files_are_listed_sorted() {
    let workspace = Workspace::with("# A\n");
    workspace.manual("b/z.json", "{}");
    workspace.manual("b/README.MD", "");
    workspace.manual("picture.png", "");
    workspace.manual("bad name./x.md", "");
    fs::create_dir(workspace.path("manuals/a-first")).unwrap();
    fs::create_dir(workspace.path("manuals/日本語")).unwrap();
    fs::write(workspace.path("manuals/stray.md"), "# in no manual").unwrap();
    symlink(workspace.path("manuals/m"), workspace.path("manuals/link")).unwrap();
    symlink("a.md", workspace.path("manuals/m/link.md")).unwrap();
    let client = workspace.open();
    assert_eq!(
        client.ok("manual_list", &json!({})),
        json!({ "items": [{ "manual_id": "a-first" }, { "manual_id": "m" }, { "manual_id": "日本語" }] })
    );
    let files = json!({ "items": [
        { "manual_id": "m", "path": "a.md", "file_type": "md" },
        { "manual_id": "m", "path": "b/README.MD", "file_type": "md" },
        { "manual_id": "m", "path": "b/z.json", "file_type": "json" },
    ], "left_out": { "png": 1 } });
    assert_eq!(client.ok("manual_ls", &json!({})), files);
    assert_eq!(client.ok("manual_ls", &json!({ "manual_id": "m" })), files);
    assert_eq!(client.ok("manual_ls", &json!({ "manual_id": "a-first" })), json!({ "items": [] }));
    // Ordered by manual, as in the list of manuals, and by folder.
    fs::create_dir(workspace.path("manuals/m-ja")).unwrap();
    for path in ["m-ja/a.md", "m/b.md", "m/b-c.md"] {
        fs::write(workspace.path("manuals").join(path), "# key\n").unwrap();
    }
    let items = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| format!("{}/{}", item["manual_id"], item["path"]).replace('"', "")).collect()
    };
    let want = ["m/a.md", "m/b/README.MD", "m/b/z.json", "m/b-c.md", "m/b.md", "m-ja/a.md"];
    assert_eq!(items(&client.ok("manual_ls", &json!({}))), want);
    let found = client.ok("manual_find", &json!({ "query": "key" }));
    let found: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| place(&item["ref"])).collect();
    assert_eq!(found, ["m/b-c.md#L1", "m/b.md#L1", "m-ja/a.md#L1"]);
    for (id, code) in [
        ("none", "not_found"),
        ("link", "out_of_scope"),
        ("..", "invalid_path"),
        ("", "invalid_path"),
        ("stray.md", "invalid_path"),
    ] {
        for tool in ["manual_ls", "manual_toc"] {
            assert_eq!(client.code(tool, &json!({ "manual_id": id })), code, "{tool} {id}");
        }
    }
}

#[test]
fn the_table_of_contents_has_every_node_with_a_reference_that_works() {
    let workspace = Workspace::with("hello\n# A\n## B\nb\n# C\n");
    workspace.manual("x/data.json", "{}");
    workspace.manual("empty.md", "");
    workspace.manual("broken.md", b"# A\n\xff");
    let client = workspace.open();
    let mut toc = client.ok("manual_toc", &json!({ "manual_id": "m", "full": true }));
    for node in toc["items"].as_array().unwrap() {
        client.ok("manual_read", &json!({ "ref": node["ref"] }));
    }
    for node in toc["items"].as_array_mut().unwrap() {
        let hash = node["ref"].as_object_mut().unwrap().remove("hash");
        assert_eq!(hash.is_some(), node["kind"] == "heading");
    }
    let node = |path: &str, title: &str, level: u8, parent: Option<&str>, lines: (u64, u64)| {
        json!({
            "kind": "heading", "node_id": format!("{path}#L{}", lines.0), "path": path, "title": title, "level": level,
            "parent_id": parent, "line_start": lines.0, "line_end": lines.1, "ref": reference(path, lines.0),
        })
    };
    let want = json!([
        node("a.md", "a.md", 0, None, (1, 1)),
        node("a.md", "A", 1, None, (2, 4)),
        node("a.md", "B", 2, Some("a.md#L2"), (3, 4)),
        node("a.md", "C", 1, None, (5, 5)),
        node("empty.md", "empty.md", 0, None, (1, 1)),
        json!({
            "kind": "json_file", "node_id": "x/data.json", "path": "x/data.json", "title": "data.json", "level": 0,
            "parent_id": null, "line_start": null, "line_end": null, "ref": reference("x/data.json", Value::Null),
        }),
    ]);
    assert_eq!(toc["items"], want);
}

/// The lines of a short table of contents, each with its file, without fingerprints.
fn lines(toc: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for file in toc["items"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        match file["sections"].as_array() {
            None => lines.push(name.to_owned()),
            Some(sections) => lines.extend(sections.iter().map(|line| {
                let (place, rest) = line.as_str().unwrap().split_once(' ').unwrap();
                format!("{} {rest}", crate::support::place(&json!(format!("{name}{place}"))))
            })),
        }
    }
    lines
}

#[test]
fn a_line_of_the_table_of_contents_is_a_reference() {
    let workspace = Workspace::with("hello\n# A\n## B\nb\n# C\n");
    workspace.manual("x/data.json", "{}");
    workspace.manual("x/d.md", "# D\n### E\n");
    let client = workspace.open();
    let toc = |arguments: &Value| client.ok("manual_toc", arguments);
    let all = [
        "m/a.md#L1 0 a.md",
        "m/a.md#L2 1 A",
        "m/a.md#L3 2 B",
        "m/a.md#L5 1 C",
        "m/x/d.md#L1 1 D",
        "m/x/d.md#L2 3 E",
        "m/x/data.json",
    ];
    let whole = toc(&json!({ "manual_id": "m" }));
    assert_eq!((lines(&whole), whole.get("next")), (all.map(String::from).to_vec(), None));
    let reference = whole["items"][0]["sections"][2].as_str().unwrap().split(' ').next().unwrap();
    let read = json!({ "ref": format!("m/a.md{reference}") });
    assert_eq!(client.ok("manual_read", &read)["text"], "## B\nb\n");
    for (more, want) in [
        (json!({ "path": "a.md" }), &all[..4]),
        (json!({ "path": "x" }), &all[4..]),
        (json!({ "path": "./x/" }), &all[4..]),
        (json!({ "path": "x/data.json" }), &all[6..]),
        (json!({ "path": "a.md", "max_level": 1 }), &[all[1], all[3]]),
        (json!({ "path": "x", "max_level": 2 }), &[all[4], all[6]]),
    ] {
        let mut arguments = more.clone();
        arguments["manual_id"] = json!("m");
        assert_eq!(lines(&toc(&arguments)), want, "{more}");
    }
    for limit in 1..=all.len() {
        let (mut seen, mut after) = (Vec::new(), Value::Null);
        loop {
            let page = toc(&json!({ "manual_id": "m", "limit": limit, "after": after }));
            let lines = lines(&page);
            assert!(lines.len() <= limit && !lines.is_empty(), "{page}");
            seen.extend(lines);
            after = page["next"].clone();
            if after.is_null() {
                break;
            }
        }
        assert_eq!(seen, all, "{limit} at a time");
    }
    for (path, code) in
        [("none", "not_found"), ("none.md", "not_found"), ("..", "invalid_path"), ("a.md/x", "invalid_path")]
    {
        assert_eq!(client.code("manual_toc", &json!({ "manual_id": "m", "path": path })), code, "{path}");
    }
}

/// Two more endings of Markdown, as Docusaurus and others use; files that are left out are counted.
#[test]
fn markdown_has_more_than_one_ending() {
    let workspace = Workspace::new();
    workspace.manual("a.mdx", "import X from 'x'\n\n# Tabs\n\n<X>\n\n## Inside\n\n</X>\n");
    workspace.manual("b.Markdown", "# Long ending\n");
    workspace.manual("c.pdf", "");
    workspace.manual("d.PDF", "");
    workspace.manual("LICENSE", "");
    let client = workspace.open();
    let listed = client.ok("manual_ls", &json!({}));
    assert_eq!(listed["left_out"], json!({ "pdf": 2, "no ending": 1 }));
    let types: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["file_type"]).collect();
    assert_eq!(types, ["md", "md"]);
    assert_eq!(client.copy("a.mdx", 7, "x.md", "overwrite")["title"], "Inside");
    assert_eq!(client.ok("manual_find", &json!({ "query": "tabs" }))["items"][0]["title"], "Tabs");
    assert_eq!(client.ok("manual_find", &json!({ "query": "long ending" }))["total"], 1);
}

/// Imports and front matter of MDX are before the first heading.
#[test]
fn mdx_is_read_as_markdown() {
    let text = "---\ntitle: Tabs\n---\n\nimport X from 'x'\n\nexport const a = 1\n\n## Use\n\n<X>\n# not here\n</X>\n\n{/* # nor here */}\n";
    let workspace = Workspace::new();
    workspace.manual("a.mdx", text);
    let client = workspace.open();
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
    let lines = lines(&toc);
    assert_eq!(lines.first().map(String::as_str), Some("m/a.mdx#L1 0 a.mdx"));
    assert!(lines.contains(&"m/a.mdx#L9 2 Use".to_owned()), "{lines:?}");
    client.copy("a.mdx", 9, "x.mdx", "overwrite");
    assert_eq!(workspace.text("x.mdx"), &text[text.find("## Use").unwrap()..]);
    let found = client.ok("manual_find", &json!({ "query": "use", "full": true }));
    assert_eq!((&found["items"][0]["title"], &found["items"][0]["in"]), (&json!("Use"), &json!("Tabs")));
}

#[test]
fn plain_text_is_one_section_and_other_kinds_are_counted() {
    let workspace = Workspace::new();
    workspace.manual("readme.TXT", "\u{feff}# not a heading\nzebra\n");
    for other in ["guide.rst", "page.html", "plot.ipynb"] {
        workspace.manual(other, "zebra\n=====\n");
    }
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let listed = client.ok("manual_ls", &json!({}));
    assert_eq!(listed["items"], json!([{ "manual_id": "m", "path": "readme.TXT", "file_type": "txt" }]));
    assert_eq!(listed["left_out"], json!({ "html": 1, "ipynb": 1, "rst": 1 }));
    assert_eq!(
        lines(&client.ok("manual_toc", &json!({ "manual_id": "m" }))),
        ["m/readme.TXT#L1 0 readme.TXT"]
    );
    // Twice: the second time its outline is cached.
    std::thread::sleep(std::time::Duration::from_millis(150));
    for _ in 0..2 {
        let text = "# not a heading\nzebra\n";
        assert_eq!(client.ok("manual_read", &read("readme.TXT", 1, "section"))["text"], text);
        client.copy("readme.TXT", 1, "x", "overwrite");
        assert_eq!(workspace.text("x"), text);
    }
    let found = client.ok("manual_find", &json!({ "query": "zebra", "full": true }));
    assert_eq!(
        (&found["total"], &found["items"][0]["title"], &found["items"][0]["snippet"]),
        (&json!(1), &json!("readme.TXT"), &json!("zebra"))
    );
}

#[test]
fn a_long_list_of_files_has_pages() {
    let workspace = Workspace::new();
    for file in 0..250 {
        workspace.manual(&format!("{file:03}.md"), "");
    }
    fs::create_dir(workspace.path("manuals/n")).unwrap();
    fs::write(workspace.path("manuals/n/last.md"), "").unwrap();
    let client = workspace.open();
    let first = client.ok("manual_ls", &json!({}));
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next"]), (200, &json!("m/199.md")));
    let rest = client.ok("manual_ls", &json!({ "after": first["next"] }));
    assert_eq!((rest["items"].as_array().unwrap().len(), rest.get("next")), (51, None));
    assert_eq!((&rest["items"][0]["path"], &rest["items"][50]["manual_id"]), (&json!("200.md"), &json!("n")));
    let few = client.ok("manual_ls", &json!({ "manual_id": "m", "limit": 2, "after": "m/248.md" }));
    assert_eq!((few["items"].as_array().unwrap().len(), few.get("next")), (1, None));
}

/// Two sections swap places, and a reference to one of them is used in each of its forms.
#[test]
fn a_section_that_has_moved_is_found_again_and_a_changed_one_is_refused() {
    let (one, two, three) = ("## One\nfirst\n", "## Two\nsecond\n", "## Three\nthird\n");
    let workspace = Workspace::with(format!("# A\n{one}{two}{three}"));
    let write = |text: String| fs::write(workspace.path("manuals/m/a.md"), text).unwrap();
    let copied = |client: &Client, from: &Value| {
        let copy = json!({ "from_ref": from, "to_path": "x.md", "mode": "overwrite" });
        (client.ok("bridge_copy_section", &copy)["title"].clone(), workspace.text("x.md"))
    };
    for give in ["manual_find", "manual_toc", "full"] {
        let client = workspace.open();
        write(format!("# A\n{one}{two}{three}"));
        let toc = client.ok("manual_toc", &json!({ "manual_id": "m", "full": true }));
        let reference_ = match give {
            "manual_find" => {
                client.ok("manual_find", &json!({ "query": "first" }))["items"][0]["ref"].clone()
            }
            "manual_toc" => {
                let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
                let line = toc["items"][0]["sections"][1].as_str().unwrap().to_owned();
                json!(format!("m/a.md{}", line.split(' ').next().unwrap()))
            }
            _ => toc["items"][1]["ref"].clone(),
        };
        assert_eq!(copied(&client, &reference_), (json!("One"), one.into()), "{give}");
        write(format!("# A\n{two}{one}{three}"));
        assert_eq!(copied(&client, &reference_), (json!("One"), one.into()), "{give}: moved");
        write(format!("# A\nmore\n{two}{three}{one}"));
        assert_eq!(copied(&client, &reference_), (json!("One"), one.into()), "{give}: moved to the end");
        // Removed: nothing else is copied in its place.
        write(format!("# A\n{two}{three}"));
        let copy = json!({ "from_ref": reference_, "to_path": "x.md", "mode": "overwrite" });
        let error = client.refused("bridge_copy_section", &copy);
        assert_eq!(error["code"], "not_found", "{give}: {error}");
        assert!(place(&error["details"]["nearest"]["ref"]).starts_with("m/a.md#L"), "{error}");
        assert_eq!(workspace.text("x.md"), one, "{give}: nothing is written");
        // Changed and moved.
        write(format!("# A\n{two}## One\nchanged\n{three}"));
        let error = client.refused("bridge_copy_section", &copy);
        assert_eq!(
            (&error["code"], &error["details"]["nearest"]["title"]),
            (&json!("conflict"), &json!("One")),
            "{give}"
        );
        assert_eq!(place(&error["details"]["nearest"]["ref"]), "m/a.md#L4", "{give}");
        // The section that the refusal cites can be used.
        assert_eq!(copied(&client, &error["details"]["nearest"]["ref"]).1, "## One\nchanged\n");
    }
}

/// Whatever any client has seen before.
#[test]
fn a_line_means_the_section_at_that_line() {
    let workspace = Workspace::with("# A\n# B\n");
    let client = workspace.open();
    for title in ["B", "C", "D"] {
        workspace.manual("a.md", format!("# A\n# {title}\n"));
        assert_eq!(client.copy("a.md", 2, "x.md", "overwrite")["title"], title);
        let short = json!({ "from_ref": "m/a.md#L2", "to_path": "x.md", "mode": "overwrite" });
        assert_eq!(client.ok("bridge_copy_section", &short)["title"], title);
        // Answers that name the section change nothing.
        client.ok("manual_toc", &json!({ "manual_id": "m" }));
        client.ok("manual_find", &json!({ "query": title }));
    }
    workspace.manual("a.md", "# A\nmore\n# D\n");
    let error = client.refused("manual_read", &json!({ "ref": "m/a.md#L2" }));
    assert_eq!(error["code"], "not_found", "{error}");
    workspace.manual("a.md", "# A\n# C\n");
    // A title, as answers have it, changes nothing.
    let mut titled = reference("a.md", 2);
    titled["title"] = json!("A");
    assert_eq!(client.ok("manual_read", &json!({ "ref": titled }))["text"], "# C\n");
    for (reference, code) in [
        ("m/a.md#L2", None),
        ("m/a.md", None),
        ("m/a.md#L3", Some("not_found")),
        ("m/a.md#L2+9999", Some("not_found")),
        ("m/none.md#L1", Some("not_found")),
        ("m/../a.md#L1", Some("invalid_path")),
        ("../a.md#L1", Some("invalid_path")),
        ("a.md", Some("invalid_parameter")),
    ] {
        let answer = client.call("manual_read", &json!({ "ref": reference }));
        assert_eq!(answer["structuredContent"]["code"].as_str(), code, "{reference}: {answer}");
    }
}

#[test]
fn what_was_cut_is_gone_on_with_until_nothing_is_left() {
    let words = "some words of a paragraph that goes on, 日本語\r\n";
    let text = format!("# A\n{}## B\n{}# C\nc\n", words.repeat(300), words.repeat(300));
    let workspace = Workspace::with(&text);
    let section = text.split("# C").next().unwrap();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    for limits in
        [json!(null), json!({ "max_chars": 1000 }), json!({ "max_sections": 1, "max_chars": 20_000 })]
    {
        let mut from = json!("m/a.md#L1");
        let mut mode = "overwrite";
        let mut read = String::new();
        for _ in 0..100 {
            let arguments = json!({ "ref": from, "scope": "section", "limits": limits });
            let part = client.ok("manual_read", &arguments);
            let copy = json!({ "from_ref": from, "to_path": "x.md", "mode": mode, "limits": limits });
            let copied = client.ok("bridge_copy_section", &copy);
            if limits.get("max_sections").is_none() {
                read.push_str(part["text"].as_str().unwrap());
                assert_eq!(part["next"].is_null(), copied["next"].is_null());
            }
            assert_eq!(copied["truncated"], !copied["next"].is_null(), "{copied}");
            if copied["next"].is_null() {
                break;
            }
            assert!(workspace.text("x.md").ends_with('\n'), "cut at the end of a line");
            (from, mode) = (copied["next"].clone(), "append");
        }
        assert_eq!(workspace.text("x.md"), section, "{limits}");
        assert!(read.is_empty() || read == section, "{limits}");
    }
    // The same for a whole file; a changed file is not mixed with its old version.
    let (mut from, mut mode) = (json!("a.md"), "overwrite");
    let limits = json!({ "max_chars": 7000, "allow_file": true });
    let copy = |from: &Value, mode: &str| json!({ "from_path": from, "manual_id": "m", "to_path": "y.md", "mode": mode, "limits": limits });
    loop {
        let copied = client.ok("bridge_copy_file", &copy(&from, mode));
        if copied["next"].is_null() {
            break;
        }
        (from, mode) = (copied["next"].clone(), "append");
    }
    assert_eq!(workspace.text("y.md"), text);
    workspace.manual("a.md", format!("{text}more\n"));
    assert_eq!(client.code("bridge_copy_file", &copy(&from, mode)), "conflict");
}

/// The answer's `next` alone goes on, through the same scope.
#[test]
fn next_of_a_read_needs_no_scope() {
    let words = "some words of a paragraph\n".repeat(10);
    let text = format!("# A\n{words}## B\n{words}### C\n{words}# D\n{words}");
    let workspace = Workspace::with(&text);
    workspace.manual("a.json", &text);
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let (own, section) = (&text[..text.find("## B").unwrap()], &text[..text.find("# D").unwrap()]);
    for (path, scope, want) in [
        ("a.md", json!(null), own),
        ("a.md", json!("snippet"), own),
        ("a.md", json!("section"), section),
        ("a.md", json!("sections"), &text),
        ("a.md", json!("file"), &text),
        ("a.json", json!(null), &text),
        ("a.json", json!("file"), &text),
    ] {
        for limits in [json!({ "max_chars": 70 }), json!({ "max_sections": 1, "max_chars": 1000 })] {
            let mut call = json!({ "ref": format!("m/{path}"), "scope": scope, "limits": limits });
            call["limits"]["allow_file"] = json!(true);
            let mut read = String::new();
            for calls in 1.. {
                let answer = client.ok("manual_read", &call);
                read.push_str(answer["text"].as_str().unwrap());
                assert_eq!(answer["truncated"], !answer["next"].is_null(), "{answer}");
                if answer["next"].is_null() {
                    break;
                }
                assert!(calls < 100, "there is no end: {answer}");
                call["ref"] = answer["next"].clone();
                call.as_object_mut().unwrap().remove("scope");
            }
            assert_eq!(read, want, "{path} {scope} {limits}");
        }
    }
    // It is good for a copy too, and `next` of a copy for reading with a scope; without one the error says so.
    let limits = json!({ "max_sections": 1, "max_chars": 1000 });
    let part = client.ok("manual_read", &json!({ "ref": "m/a.md", "scope": "section", "limits": limits }));
    let copy = |from: &Value, mode: &str, limits: &Value| json!({ "from_ref": from, "to_path": "x.md", "mode": mode, "limits": limits });
    let copied = client.ok("bridge_copy_section", &copy(&json!("m/a.md"), "overwrite", &limits));
    client.ok("bridge_copy_section", &copy(&part["next"], "append", &Value::Null));
    assert_eq!(workspace.text("x.md"), section);
    let rest = client.ok("manual_read", &json!({ "ref": copied["next"], "scope": "section" }));
    assert_eq!(rest["text"], section[own.len()..]);
    let error = client.refused("manual_read", &json!({ "ref": format!("m/a.md#L1+{}", own.len() + 1) }));
    assert!(error["message"].as_str().unwrap().contains("set `scope` to `section`"), "{error}");
}

#[test]
fn copies_have_a_limit_of_their_own() {
    let text = format!("# A\n{}", "word ".repeat(10_000));
    let workspace = Workspace::with(&text);
    workspace.manual("a.json", format!("[{}1]", "1,".repeat(20_000)));
    let client = Client::new(workspace.builder().hard_max_copy_chars(1_000_000));
    assert_eq!(client.copy("a.md", 1, "x.md", "overwrite")["truncated"], false);
    assert_eq!(workspace.text("x.md"), text);
    client.copy("a.json", Value::Null, "x.json", "overwrite");
    // Reading is unchanged.
    let read = client.ok("manual_read", &read("a.md", 1, "section"));
    assert_eq!((&read["truncated"], &read["applied"]["max_chars"]), (&json!(true), &json!(8000)));
    let low = Client::new(workspace.builder().hard_max_copy_chars(100));
    let copied = low.copy("a.md", 1, "x.md", "overwrite");
    assert_eq!((&copied["truncated"], &copied["written_bytes"]), (&json!(true), &json!(99)));
}

#[test]
fn a_scope_says_how_much_is_read() {
    let text = "# A\na\n## B\nb\n## C\nc\n# D\nd\n";
    let workspace = Workspace::with(text);
    let client = workspace.open();
    let rows = [
        (json!(null), 1, "# A\na\n", "snippet", false),
        (json!("snippet"), 1, "# A\na\n", "snippet", false),
        (json!("section"), 1, "# A\na\n## B\nb\n", "section", true),
        (json!("section"), 3, "## B\nb\n", "section", false),
        (json!("sections"), 3, "## B\nb\n## C\nc\n", "sections", true),
        (json!("sections"), 5, "## C\nc\n# D\nd\n", "sections", false),
    ];
    for (scope, line, want, applied, truncated) in rows {
        let arguments =
            json!({ "ref": reference("a.md", line), "scope": scope, "limits": { "max_sections": 2 } });
        let answer = client.ok("manual_read", &arguments);
        assert_eq!(answer["text"], want, "{arguments}");
        assert_eq!(answer["truncated"], truncated, "{arguments}");
        assert_eq!(answer["applied"], json!({ "scope": applied, "max_sections": 2, "max_chars": 8000 }));
    }
}

#[test]
fn a_line_at_which_no_section_starts_is_not_found() {
    let workspace = Workspace::with("# A\na\n# B\n");
    let client = workspace.open();
    let whole = crate::support::Client::new(workspace.builder().allow_file_scope(true));
    for line in [json!(2), json!(4), json!(1_000_000)] {
        let mut arguments = read("a.md", line.clone(), "section");
        assert_eq!(client.code("manual_read", &arguments), "not_found", "{line}");
        // The reference must also be valid if the whole file is read.
        arguments["scope"] = json!("file");
        arguments["limits"] = json!({ "allow_file": true });
        assert_eq!(whole.code("manual_read", &arguments), "not_found", "{line}");
        let copy = crate::support::copy("a.md", line.clone(), "x.md", "append");
        assert_eq!(client.code("bridge_copy_section", &copy), "not_found", "{line}");
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
    // Null or missing means the first section.
    assert_eq!(client.ok("manual_read", &read("a.md", Value::Null, "section"))["text"], "# A\na\n");
    let missing = json!({ "ref": { "target": "manual", "manual_id": "m", "path": "a.md" } });
    assert_eq!(client.ok("manual_read", &missing)["text"], "# A\na\n");
    assert_eq!(client.ok("manual_read", &read("a.md", 3.0, "section"))["text"], "# B\n");
}

/// For any file: an invalid line number is an argument error, before the file is looked at.
#[test]
fn an_invalid_line_is_an_invalid_parameter() {
    let workspace = Workspace::with("# A\na\n# B\n");
    workspace.manual("a.json", "{}");
    let client = workspace.open();
    for line in
        [json!(2.5), json!(0), json!(-1), json!(1e300), json!(0.0), json!("2"), json!(true), json!([2])]
    {
        for path in ["a.md", "a.json", "none.md"] {
            let copy = crate::support::copy(path, line.clone(), "x.md", "append");
            for (tool, arguments) in [
                ("manual_read", json!({ "ref": reference(path, line.clone()) })),
                ("bridge_copy_section", copy),
            ] {
                let error = client.refused(tool, &arguments);
                assert_eq!(error["code"], "invalid_parameter", "{tool} {arguments}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("start_line`: ") && message.contains("from 1 to"), "{message}");
            }
        }
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
    assert_eq!(client.ok("manual_read", &read("a.md", 3.0, "section"))["text"], "# B\n");
}

#[test]
fn a_whole_md_needs_both_permissions() {
    let workspace = Workspace::with("\u{feff}# A\n# B\n");
    for server in [false, true] {
        let client = crate::support::Client::new(workspace.builder().allow_file_scope(server));
        for call in [Value::Null, json!(false), json!(true)] {
            let mut arguments = read("a.md", 1, "file");
            arguments["limits"] = json!({ "allow_file": call });
            if server && call == true {
                let answer = client.ok("manual_read", &arguments);
                assert_eq!(
                    (&answer["text"], &answer["applied"]["scope"]),
                    (&json!("# A\n# B\n"), &json!("file"))
                );
            } else {
                assert_eq!(client.code("manual_read", &arguments), "forbidden", "{server} {call}");
            }
        }
    }
}

#[test]
fn json_is_read_as_a_file_and_has_no_sections() {
    let workspace = Workspace::new();
    workspace.manual("a.json", "{ not even JSON");
    let client = workspace.open();
    for scope in [Value::Null, json!("file"), json!("snippet")] {
        let answer = client.ok("manual_read", &json!({ "ref": reference("a.json", 77), "scope": scope }));
        assert_eq!(answer["text"], "{ not even JSON");
        assert_eq!(answer["applied"]["scope"], "file", "{scope}");
        assert_eq!(answer["applied"]["max_chars"], 20_000);
    }
    for scope in ["section", "sections"] {
        assert_eq!(client.code("manual_read", &read("a.json", Value::Null, scope)), "invalid_scope");
    }
    let mut with_path = read("a.json", Value::Null, "file");
    with_path["ref"]["json_path"] = json!("$");
    assert_eq!(client.code("manual_read", &with_path), "invalid_parameter");
}

#[test]
fn limits_have_defaults_and_are_lowered_to_the_hard_ones() {
    let long = format!("# A\n{}", "あ".repeat(30_000));
    let workspace = Workspace::with(&long);
    let client = workspace.open();
    let rows = [
        (json!(null), 8000),
        (json!({}), 8000),
        (json!({ "max_chars": null }), 8000),
        (json!({ "max_chars": 10 }), 10),
        (json!({ "max_chars": 1000.0 }), 1000),
        (json!({ "max_chars": 20_000 }), 20_000),
        (json!({ "max_chars": 1_000_000 }), 20_000),
        (json!({ "max_chars": 1e300 }), 20_000),
    ];
    for (limits, want) in rows {
        for _ in 0..2 {
            let arguments = json!({ "ref": reference("a.md", 1), "scope": "section", "limits": limits });
            let answer = client.ok("manual_read", &arguments);
            assert_eq!(answer["text"].as_str().unwrap().chars().count(), want, "{limits}");
            assert_eq!((&answer["truncated"], &answer["applied"]["max_chars"]), (&json!(true), &json!(want)));
        }
    }
    for (asked, applied) in [(json!(null), 20), (json!(7), 7), (json!(1000), 20), (json!(1e300), 20)] {
        let arguments = json!({ "ref": reference("a.md", 1), "limits": { "max_sections": asked } });
        assert_eq!(client.ok("manual_read", &arguments)["applied"]["max_sections"], applied, "{asked}");
    }
    let low = crate::support::Client::new(workspace.builder().hard_max_chars(100).hard_max_sections(3));
    let answer = low.ok("manual_read", &read("a.md", 1, "section"));
    assert_eq!(answer["applied"], json!({ "scope": "section", "max_sections": 3, "max_chars": 100 }));
    assert_eq!(client.ok("manual_read", &read("a.md", 1, "section"))["applied"]["max_sections"], 20);
}

#[test]
fn json_over_the_limit_is_refused_unless_the_call_asks_for_a_part() {
    let workspace = Workspace::new();
    let text = format!("[{}]", "\"é\",".repeat(10_000));
    workspace.manual("big.json", &text);
    let client = workspace.open();
    let error = client.refused("manual_read", &json!({ "ref": reference("big.json", Value::Null) }));
    assert_eq!(error["code"], "forbidden");
    assert_eq!(
        (&error["details"]["size_chars"], &error["details"]["limit_chars"]),
        (&json!(40_002), &json!(20_000))
    );
    assert!(error["details"]["raise"].as_str().unwrap().contains("HARD_MAX_CHARS"));
    let asked = json!({ "ref": reference("big.json", Value::Null), "limits": { "max_chars": 5 } });
    let answer = client.ok("manual_read", &asked);
    assert_eq!((&answer["text"], &answer["truncated"]), (&json!("[\"é\","), &json!(true)));
    let raised = crate::support::Client::new(workspace.builder().hard_max_chars(50_000));
    assert_eq!(raised.ok("manual_read", &json!({ "ref": reference("big.json", Value::Null) }))["text"], text);
}

#[test]
fn text_that_is_not_utf8_is_an_io_error_with_the_place() {
    let workspace = Workspace::with(b"# A\n\xff\n");
    workspace.manual("a.json", b"{\"a\":\"\xc3(\"}");
    let client = workspace.open();
    for (path, position) in [("a.md", 4), ("a.json", 6)] {
        let error = client.refused("manual_read", &json!({ "ref": reference(path, Value::Null) }));
        assert_eq!(
            (&error["code"], &error["details"]["byte_position"]),
            (&json!("io_error"), &json!(position))
        );
        let copy = crate::support::copy(path, Value::Null, "x.md", "append");
        assert_eq!(client.code("bridge_copy_section", &copy), "io_error");
    }
}

#[test]
fn a_file_that_changed_is_read_anew() {
    let workspace = Workspace::with("# A\nold\n# B\n");
    let path = workspace.path("manuals/m/a.md");
    let client = workspace.open();
    let text = |line: u64| {
        client.call("manual_read", &read("a.md", line, "section"))["structuredContent"]["text"].clone()
    };
    assert_eq!(text(3), "# B\n");
    // Same size, immediately: the filesystem clock may not have advanced.
    fs::write(&path, "# A\n# B\nnew\n").unwrap();
    assert_eq!((text(1), text(2), text(3)), (json!("# A\n"), json!("# B\nnew\n"), Value::Null));
    // An old file, so that its outline is cached; then changed in place, with the old time restored.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let set_time = || fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    set_time();
    std::thread::sleep(std::time::Duration::from_millis(150));
    assert_eq!((text(2), text(2)), (json!("# B\nnew\n"), json!("# B\nnew\n")));
    fs::write(&path, "# A\nb\n# New").unwrap();
    set_time();
    assert_eq!((text(1), text(2), text(3)), (json!("# A\nb\n"), Value::Null, json!("# New")));
}

/// A paragraph above a line of dashes is a heading.
#[test]
fn a_title_is_one_short_line_in_every_answer() {
    let words = "some words of a long paragraph, ".repeat(20);
    let text = format!("{words}\n{words}\n---\nbody\n");
    let workspace = Workspace::with(&text);
    workspace.note("a.md", &text);
    let client = workspace.open();
    let check = |title: &Value| {
        let title = title.as_str().unwrap();
        assert!(title.starts_with("some words of") && title.chars().count() <= 80, "{title}");
        assert!(!title.contains(['\n', '\r']), "{title}");
    };
    check(&client.copy("a.md", 1, "x.md", "overwrite")["title"]);
    check(&client.ok("manual_find", &json!({ "query": "words" }))["items"][0]["title"]);
    check(&client.ok("vault_find", &json!({ "query": "words" }))["items"][0]["title"]);
    check(&client.ok("manual_toc", &json!({ "manual_id": "m", "full": true }))["items"][0]["title"]);
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
    let outline = client.ok("vault_read", &json!({ "path": "a.md", "outline": true }));
    for sections in [&toc["items"][0]["sections"], &outline["sections"]] {
        check(&json!(sections[0].as_str().unwrap().splitn(3, ' ').nth(2)));
    }
    let error = client.refused("manual_read", &json!({ "ref": "m/a.md#L4" }));
    check(&error["details"]["nearest"]["title"]);
    assert!(error["message"].as_str().unwrap().len() < 250, "{error}");
}
