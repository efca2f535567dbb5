//! Optional extras of a copy: links, pictures, a line of origin. Nothing is added unless the call asks for
//! it.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Client, Workspace, copy, copy_file};

fn with(mut call: Value, with: Value) -> Value {
    call["with"] = with;
    call
}

const PAGE: &str = "\
# Page

See [other] and [near](near.md#x), [up](../n/far%20off.md), [within](#part), [here](#page).
![plan](img/plan.png) <img src=\"img/plan.png\">

## Part

Text.

[other]: https://example.com/other
";

/// A workspace with that page, whose first section ends at `## Part`.
fn page() -> Workspace {
    let workspace = Workspace::new();
    workspace.manual("b/a.md", PAGE);
    workspace.manual("b/img/plan.png", b"\x89PNG one");
    workspace
}

fn section() -> Value {
    let mut call = copy("b/a.md", 1, "deep/x.md", "overwrite");
    call["limits"] = json!({ "max_sections": 1 });
    call
}

#[test]
fn without_being_asked_the_bytes_are_the_sources_own_and_what_is_lost_is_counted() {
    let workspace = page();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let copied = client.ok("bridge_copy_section", &section());
    assert_eq!(workspace.text("deep/x.md"), PAGE.split("## Part").next().unwrap());
    assert_eq!((&copied["links_left"], copied.get("pictures")), (&json!(6), None));
    // The definition and the heading are in the whole file.
    let copied = client.ok("bridge_copy_file", &copy_file("b/a.md", "y.md", "overwrite"));
    assert_eq!((workspace.text("y.md").as_str(), &copied["links_left"]), (PAGE, &json!(4)));
    workspace.manual("plain.md", "# A\n[a](https://b.c) [d]\n");
    assert_eq!(client.copy("plain.md", 1, "z.md", "overwrite").get("links_left"), None);
    assert_eq!(workspace.vault(), ["deep", "deep/x.md", "y.md", "z.md"]);
}

#[test]
fn links_lead_where_they_led() {
    let workspace = page();
    let client = workspace.open();
    let copied = client.ok("bridge_copy_section", &with(section(), json!(["links"])));
    assert_eq!(
        workspace.text("deep/x.md"),
        "# Page\n\nSee [other](https://example.com/other) and [near](../../manuals/m/b/near.md#x), \
         [up](../../manuals/m/n/far%20off.md), [within](../../manuals/m/b/a.md#part), [here](#page).\n\
         ![plan](../../manuals/m/b/img/plan.png) <img src=\"../../manuals/m/b/img/plan.png\">\n\n"
    );
    assert_eq!(copied.get("links_left"), None);
    assert_eq!(copied["written_bytes"], workspace.text("deep/x.md").len());
    // The relative path is valid on disk.
    let link = workspace.path("vault/deep").join("../../manuals/m/b/img/plan.png");
    assert_eq!(fs::read(link).unwrap(), b"\x89PNG one");
    // Links that leave the manuals are broken.
    workspace.manual("out.md", "# A\n[a](../../../etc/passwd) [b](%2e%2e/%2e%2e/x)\n");
    let copied =
        client.ok("bridge_copy_section", &with(copy("out.md", 1, "o.md", "overwrite"), json!(["links"])));
    assert_eq!(
        (workspace.text("o.md").as_str(), &copied["links_left"]),
        ("# A\n[a](../../../etc/passwd) [b](%2e%2e/%2e%2e/x)\n", &json!(2))
    );
}

/// Two files may define the same name differently.
#[test]
fn definitions_of_several_sources_do_not_get_into_each_others_way() {
    let workspace = Workspace::with("# A\n[x] and[^1]\n# End\n[x]: https://a.example\n[^1]: One.\n");
    workspace.manual("b.md", "# B\n[x] and[^1]\n# End\n[x]: https://b.example\n[^1]: Two.\n");
    let client = workspace.open();
    for from in ["m/a.md#L1", "m/b.md#L1"] {
        let call = json!({ "from_ref": from, "to_path": "x.md", "mode": "append", "with": ["links"] });
        client.ok("bridge_copy_section", &call);
    }
    assert_eq!(
        workspace.text("x.md"),
        "# A\n[x](https://a.example) and[^a-1]\n\n[^a-1]: One.\n# B\n[x](https://b.example) and[^b-1]\n\n[^b-1]: Two.\n"
    );
}

#[test]
fn where_the_two_folders_have_no_workspace_in_common_links_are_left() {
    let workspace = page();
    let elsewhere = tempfile::TempDir::new().unwrap();
    let client = Client::new(workspace.builder().vault(elsewhere.path()));
    let copied = client.ok("bridge_copy_section", &with(section(), json!(["links", "pictures"])));
    let text = fs::read_to_string(elsewhere.path().join("deep/x.md")).unwrap();
    assert!(text.contains("[other](https://example.com/other) and [near](near.md#x)"), "{text}");
    assert!(text.contains("![plan](pictures/plan.png)"), "{text}");
    assert_eq!((&copied["links_left"], &copied["pictures"]), (&json!(3), &json!(1)));
    // The folders may have any name, and be links.
    let odd = page();
    fs::create_dir_all(odd.path("my notes/vault")).unwrap();
    symlink("my notes", odd.path("linked")).unwrap();
    let client = Client::new(odd.builder().vault(odd.path("linked/vault")));
    client.ok("bridge_copy_section", &with(section(), json!(["links"])));
    let text = fs::read_to_string(odd.path("my notes/vault/deep/x.md")).unwrap();
    assert!(text.contains("(../../../manuals/m/b/near.md#x)"), "{text}");
}

#[test]
fn pictures_are_copied_beside_the_note_once() {
    let workspace = page();
    let client = workspace.open();
    let call = with(section(), json!(["pictures"]));
    let copied = client.ok("bridge_copy_section", &call);
    assert_eq!((&copied["pictures"], &copied["links_left"]), (&json!(1), &json!(4)));
    let text = workspace.text("deep/x.md");
    assert!(text.contains("![plan](pictures/plan.png) <img src=\"pictures/plan.png\">"), "{text}");
    assert!(text.contains("[other] and [near](near.md#x)"), "{text}");
    client.ok("bridge_copy_section", &call);
    assert_eq!(workspace.vault(), ["deep", "deep/pictures", "deep/pictures/plan.png", "deep/x.md"]);
    // A different picture of the same name does not replace it.
    workspace.manual("b/img/plan.png", b"\x89PNG two");
    client.ok("bridge_copy_section", &call);
    assert_eq!(workspace.read("deep/pictures/plan.png"), b"\x89PNG one");
    let other = workspace.vault().into_iter().find(|name| name.contains("plan-")).unwrap();
    assert_eq!(workspace.read(&other), b"\x89PNG two");
    assert!(workspace.text("deep/x.md").contains(other.trim_start_matches("deep/")), "{other}");
}

#[test]
fn only_pictures_of_the_manuals_are_copied_and_nothing_is_followed() {
    let workspace = Workspace::new();
    fs::write(workspace.path("secret.png"), "swordfish").unwrap();
    fs::create_dir(workspace.path("manuals/m/folder.png")).unwrap();
    symlink(workspace.path("secret.png"), workspace.path("manuals/m/link.png")).unwrap();
    symlink(workspace.dir.path(), workspace.path("manuals/m/away")).unwrap();
    fs::File::create(workspace.path("manuals/m/large.png")).unwrap().set_len((16 << 20) + 1).unwrap();
    workspace.manual("data.json", "{}");
    workspace.manual("fine.svg", "<svg/>");
    let names = [
        "link.png",
        "away/secret.png",
        "../../secret.png",
        "folder.png",
        "large.png",
        "none.png",
        "data.json",
        "fine.svg",
    ];
    let text: String = names.iter().map(|name| format!("![]({name})\n")).collect();
    workspace.manual("a.md", format!("# A\n{text}"));
    let client = workspace.open();
    let call = with(copy("a.md", 1, "x.md", "overwrite"), json!(["pictures"]));
    let copied = client.ok("bridge_copy_section", &call);
    assert_eq!((&copied["pictures"], &copied["links_left"]), (&json!(1), &json!(7)));
    assert_eq!(workspace.vault(), ["pictures", "pictures/fine.svg", "x.md"]);
    // The folder of daily notes accepts no pictures.
    let call = with(copy("a.md", 1, "daily/2025-01-31.md", "append"), json!(["pictures"]));
    assert_eq!(client.ok("bridge_copy_section", &call)["links_left"], 8);
    // A link in the place of the folder is not followed either.
    fs::create_dir(workspace.path("outside")).unwrap();
    fs::create_dir(workspace.path("vault/sub")).unwrap();
    symlink(workspace.path("outside"), workspace.path("vault/sub/pictures")).unwrap();
    let call = with(copy("a.md", 1, "sub/x.md", "append"), json!(["pictures"]));
    assert_eq!(client.ok("bridge_copy_section", &call)["links_left"], 8);
    assert_eq!(crate::support::names(&workspace.path("outside")), Vec::<String>::new());
}

#[test]
fn there_are_at_most_fifty_pictures_in_a_call() {
    let workspace = Workspace::new();
    let mut text = String::from("# A\n");
    for number in 0..60 {
        workspace.manual(&format!("{number}.png"), number.to_string());
        text.push_str(&format!("![]({number}.png)\n"));
    }
    workspace.manual("a.md", text);
    let call = with(copy("a.md", 1, "x.md", "overwrite"), json!(["pictures"]));
    let copied = workspace.open().ok("bridge_copy_section", &call);
    assert_eq!((&copied["pictures"], &copied["links_left"]), (&json!(50), &json!(10)));
}

#[test]
fn a_copy_that_fails_leaves_no_picture() {
    let workspace = page();
    // A file with two names is not appended to.
    let note = workspace.note("deep/x.md", "# A\n");
    std::fs::hard_link(note, workspace.path("other.md")).unwrap();
    let client = workspace.open();
    let mut call = with(section(), json!(["pictures"]));
    call["mode"] = json!("append");
    assert_eq!(client.code("bridge_copy_section", &call), "forbidden");
    assert_eq!(workspace.vault(), ["deep", "deep/x.md"]);
    // Files that existed before stay.
    workspace.note("deep/pictures/plan.png", b"\x89PNG one");
    assert_eq!(client.code("bridge_copy_section", &call), "forbidden");
    assert_eq!(workspace.vault(), ["deep", "deep/pictures", "deep/pictures/plan.png", "deep/x.md"]);
}

/// What links add to a copy counts as its text does; only the line of origin does not.
#[test]
fn no_copy_becomes_longer_than_the_limit() {
    let workspace = Workspace::with(format!(
        "# A\n{}\n# B\n\n[x]: https://example.com/{}\n[^1]: Note.\n",
        "[x] [y](y.md) [^1]\n".repeat(30),
        "x".repeat(60),
    ));
    let unlimited = workspace
        .open()
        .ok("bridge_copy_section", &with(copy("a.md", 1, "x.md", "overwrite"), json!(["links"])));
    assert_eq!(unlimited.get("links_left"), None, "{unlimited}");
    assert!(workspace.text("x.md").chars().count() > 1000);
    let copied_chars = Client::new(workspace.builder().hard_max_copy_chars(1000));
    let read_chars = Client::new(workspace.builder().hard_max_chars(100));
    for (client, limits, extras, most) in [
        (&copied_chars, json!(null), json!(["links"]), 1000),
        (&copied_chars, json!(null), json!(["links", "origin"]), 1000),
        (&workspace.open(), json!({ "max_chars": 1000 }), json!(["links"]), 1000),
        (&read_chars, json!({ "max_chars": 1000 }), json!(["links"]), 100),
    ] {
        let mut call = with(copy("a.md", 1, "x.md", "overwrite"), extras);
        call["limits"] = limits;
        let copied = client.ok("bridge_copy_section", &call);
        let text = workspace.text("x.md").replace("\n> From m/a.md, section \"A\"\n", "");
        assert!(text.chars().count() <= most, "{call}: {text}");
        assert!(copied["links_left"].as_u64().unwrap() > 0, "{copied}");
    }
    // What a call cuts by default has room for its links.
    workspace.manual("long.md", format!("# A\n{}", "[y](y.md)\n".repeat(1000)));
    let copied = workspace
        .open()
        .ok("bridge_copy_section", &with(copy("long.md", 1, "x.md", "overwrite"), json!(["links"])));
    assert_eq!((&copied["truncated"], copied["links_left"].as_u64()), (&json!(true), None), "{copied}");
}

#[test]
fn a_line_says_where_it_is_from() {
    let workspace = Workspace::with("---\ntitle: T\n---\nintro\n# A\n\ntext\n\nB\n=\ntext\n# C");
    workspace.manual("crlf.md", "# A\r\ntext\r\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    for (path, line, want) in [
        ("a.md", 1, "---\ntitle: T\n---\n\n> From m/a.md, section \"a.md\"\n\nintro\n"),
        ("a.md", 5, "# A\n\n> From m/a.md, section \"A\"\n\ntext\n\n"),
        ("a.md", 9, "B\n=\n\n> From m/a.md, section \"B\"\n\ntext\n"),
        ("a.md", 12, "# C\n\n> From m/a.md, section \"C\"\n"),
        ("crlf.md", 1, "# A\r\n\r\n> From m/crlf.md, section \"A\"\r\n\r\ntext\r\n"),
    ] {
        client.ok("bridge_copy_section", &with(copy(path, line, "x.md", "overwrite"), json!(["origin"])));
        assert_eq!(workspace.text("x.md"), want, "{path} {line}");
    }
    let mut call = with(copy_file("crlf.md", "y.md", "overwrite"), json!(["origin"]));
    client.ok("bridge_copy_file", &call);
    assert_eq!(workspace.text("y.md"), "# A\r\n\r\n> From m/crlf.md\r\n\r\ntext\r\n");
    // A continuation does not repeat the line of origin.
    call["limits"]["max_chars"] = json!(5);
    let copied = client.ok("bridge_copy_file", &call);
    (call["from_path"], call["mode"], call["limits"]["max_chars"]) =
        (copied["next"].clone(), json!("append"), json!(100));
    client.ok("bridge_copy_file", &call);
    assert_eq!(workspace.text("y.md"), "# A\r\n\r\n> From m/crlf.md\r\ntext\r\n");
}

#[test]
fn what_is_not_markdown_has_no_extras() {
    let workspace = Workspace::with("# A\n");
    workspace.manual("a.json", "[1]");
    let client = workspace.open();
    for along in ["links", "pictures", "origin"] {
        let call = with(copy("a.json", Value::Null, "x.json", "overwrite"), json!([along]));
        assert_eq!(client.code("bridge_copy_section", &call), "invalid_scope");
        let file = with(copy_file("a.json", "x.json", "overwrite"), json!([along]));
        assert_eq!(client.code("bridge_copy_file", &file), "invalid_scope");
    }
    for wrong in [json!("links"), json!(["link"]), json!([1]), json!({})] {
        let call = with(copy("a.md", 1, "x.md", "overwrite"), wrong);
        assert_eq!(client.code("bridge_copy_section", &call), "invalid_parameter", "{call}");
    }
    client.ok("bridge_copy_section", &with(copy("a.json", Value::Null, "x.json", "overwrite"), json!([])));
    assert_eq!(workspace.vault(), ["x.json"]);
}
