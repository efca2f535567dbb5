//! The tools' descriptions for the model, and the handling of invalid arguments.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolbridge_core::ToolSource as _;
use toolbridge_core::tool::{RawJson, Schema};

use crate::support::{Client, Workspace, check_schema, copy, reference};

const READING: [&str; 8] = [
    "manual_list",
    "manual_ls",
    "manual_toc",
    "manual_find",
    "manual_read",
    "vault_ls",
    "vault_find",
    "vault_read",
];
const WRITING: [&str; 6] =
    ["bridge_copy_section", "bridge_copy_file", "vault_create", "vault_write", "vault_replace", "vault_undo"];

fn json_of(text: Option<&RawJson>) -> Value {
    text.unwrap().decode().unwrap()
}

#[test]
fn every_tool_is_there_with_schemas_and_honest_hints() {
    let workspace = Workspace::new();
    let documents = workspace.open().documents;
    let tools = documents.tools();
    assert_eq!(tools.len(), READING.len() + WRITING.len());
    for tool in tools.iter() {
        let hints = json_of(tool.annotations.as_ref());
        let reads = READING.contains(&tool.name.as_str());
        assert!(reads || WRITING.contains(&tool.name.as_str()), "{}", tool.name);
        // Without hints the protocol's defaults apply: not read-only, destructive, and not idempotent.
        assert_eq!(hints.get("readOnlyHint"), reads.then_some(&Value::Bool(true)), "{}", tool.name);
        assert_eq!(hints["openWorldHint"], false, "{}", tool.name);
        if !reads {
            let adds = (tool.name == "vault_create").then_some(&Value::Bool(false));
            assert_eq!(hints.get("destructiveHint"), adds, "{}", tool.name);
            assert_eq!(hints.get("idempotentHint"), None, "{}", tool.name);
        }
        assert_eq!(tool.exclusive, !reads);
        assert!(tool.title.is_some() && (30..2048).contains(&tool.description.len()), "{}", tool.name);
        assert_eq!(tool.output_schema.is_some(), tool.name.starts_with("bridge_"), "{}", tool.name);
        for schema in std::iter::once(&tool.input_schema).chain(&tool.output_schema) {
            let schema = json_of(Some(schema));
            assert_eq!(schema["type"], "object", "{}", tool.name);
            Schema::compile(&schema).unwrap();
            assert!(!schema.to_string().contains("$ref\":\"#"), "{}: {schema}", tool.name);
        }
    }
}

#[test]
fn the_vault_lists_its_path_and_its_limits() {
    let documents = Workspace::new().open().documents;
    let takes = |tool: &str| -> Vec<String> {
        let input = json_of(Some(&documents.tools().get(tool).unwrap().input_schema));
        let mut names: Vec<_> = input["properties"].as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(takes("vault_ls"), ["path"]);
    assert_eq!(takes("vault_read"), ["full", "limits", "outline", "path", "range"]);
}

/// Every argument has a description.
#[test]
fn every_argument_is_described() {
    fn check(tool: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{tool}: {name}: {property}");
            // Inner members are described with their object; those of a reference are as in answers.
            let inner = property["properties"].as_object().filter(|_| !name.ends_with("ref"));
            for inner in inner.into_iter().flat_map(|inner| inner.keys()) {
                let said = property["description"].as_str().unwrap();
                assert!(said.contains(inner) || inner.ends_with("_line"), "{tool}: {name}: {inner}");
            }
        }
    }
    for tool in Workspace::new().open().documents.tools().iter() {
        check(&tool.name, &json_of(Some(&tool.input_schema)));
    }
}

/// The arguments of both tools, as specified.
fn bridge_calls(path: &str) -> [(&'static str, Value); 2] {
    let limits = json!({ "max_sections": 1, "max_chars": 1000, "allow_file": true });
    let mut section = copy(path, 1, "x.md", "append");
    section["limits"] = limits.clone();
    let file = json!({
        "from_path": path, "manual_id": "m", "to_path": "x.md", "mode": "overwrite", "limits": limits,
    });
    [("bridge_copy_section", section), ("bridge_copy_file", file)]
}

fn members(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_bridges_take_and_give_what_the_specification_says() {
    let workspace = Workspace::with("# A\nbody\n");
    workspace.manual("a.json", "{}");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let types = [
        ("written_path", "string"),
        ("written_bytes", "integer"),
        ("truncated", "boolean"),
        ("written_sections", "integer"),
    ];
    let required = [&["from_ref", "to_path", "mode"][..], &["from_path", "manual_id", "to_path", "mode"]];
    for (((name, call), needs), gives) in
        bridge_calls("a.md").into_iter().zip(required).zip([&types[..], &types[..3]])
    {
        let tools = client.documents.tools();
        let tool = tools.get(name).unwrap();
        let (input, output) = (json_of(Some(&tool.input_schema)), json_of(tool.output_schema.as_ref()));
        assert_eq!(input["required"], json!(needs), "{name}");
        assert_eq!(input["properties"]["mode"]["enum"], json!(["overwrite", "append"]), "{input}");
        for text in needs.iter().filter(|name| !matches!(**name, "from_ref" | "mode")) {
            assert_eq!(input["properties"][*text]["type"], "string", "{input}");
        }
        let properties: Vec<_> = gives.iter().map(|(name, kind)| (*name, json!({ "type": kind }))).collect();
        assert_eq!(output["properties"], properties.into_iter().collect::<Value>(), "{name}");
        let want: BTreeSet<_> = gives.iter().map(|(name, _)| *name).collect();
        assert_eq!(output["required"].as_array().unwrap().len(), want.len(), "{output}");

        // Every limit may be null or left out, and so may all of them.
        let limits = members(&input["properties"]["limits"]["properties"]);
        assert_eq!(limits, BTreeSet::from(["allow_file", "max_chars", "max_sections"]), "{input}");
        for limit in ["max_chars", "max_sections", "allow_file"] {
            let mut null = call.clone();
            null["limits"][limit] = Value::Null;
            check_schema(&input, &null);
            let needs_it = (name, limit) == ("bridge_copy_file", "allow_file");
            assert_eq!(client.call(name, &null)["isError"], needs_it, "{null}");
        }
        let (_, mut json) = bridge_calls("a.json").into_iter().find(|(tool, _)| *tool == name).unwrap();
        for without in [Value::Null, json!({})] {
            json["limits"] = without;
            check_schema(&input, &json);
            client.ok(name, &json);
        }
        for missing in needs {
            let mut call = call.clone();
            call.as_object_mut().unwrap().remove(*missing);
            assert_eq!(client.code(name, &call), "invalid_parameter", "{name} without {missing}");
        }

        let answer = client.ok(name, &call);
        assert!(want.is_subset(&members(&answer)), "{answer}");
        assert!(!answer.to_string().contains("body"), "{answer}");
        let sections = (name == "bridge_copy_section").then_some(json!(1));
        assert_eq!(answer.get("written_sections").cloned(), sections, "{answer}");
    }
    for (argument, value, codes) in [
        ("mode", "replace", ["invalid_parameter"; 2]),
        ("to_path", "../x.md", ["invalid_path"; 2]),
        ("from_path", "../a.md", ["invalid_parameter", "invalid_path"]),
        ("from_path", "none.md", ["invalid_parameter", "not_found"]),
        ("manual_id", "none", ["invalid_parameter", "not_found"]),
    ] {
        for ((name, mut call), code) in bridge_calls("a.md").into_iter().zip(codes) {
            call[argument] = value.into();
            assert_eq!(client.code(name, &call), code, "{name} {call}");
        }
    }
    assert_eq!(client.code("bridge_copy_section", &copy("none.md", 1, "x.md", "append")), "not_found");
    let closed = workspace.open();
    assert_eq!(closed.code("bridge_copy_file", &bridge_calls("a.md")[1].1), "forbidden");
}

#[test]
fn the_bridges_take_what_the_specification_says_and_say_how_to_continue() {
    let workspace = Workspace::with("# A\n\n[b](b.md)\n\nbody\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let more = [&["next", "title"][..], &["next"]];
    for ((name, mut call), more) in bridge_calls("a.md").into_iter().zip(more) {
        let tools = client.documents.tools();
        let input = json_of(Some(&tools.get(name).unwrap().input_schema));
        assert_eq!(members(&input["properties"]), members(&call));
        call["limits"]["max_chars"] = 18.into();
        let answer = client.ok(name, &call);
        let output = json_of(tools.get(name).unwrap().output_schema.as_ref());
        let given = &members(&answer) - &members(&output["properties"]);
        assert_eq!(given, more.iter().copied().collect(), "{answer}");
    }
}

#[test]
fn a_reference_lists_its_members_and_a_wrong_one_shows_a_right_one() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    for (tool, argument) in [("bridge_copy_section", "from_ref"), ("manual_read", "ref")] {
        let input = json_of(Some(&client.documents.tools().get(tool).unwrap().input_schema));
        let schema = &input["properties"][argument];
        assert_eq!(schema["type"], json!(["string", "object"]), "{schema}");
        assert_eq!(schema["required"], json!(["target", "manual_id", "path"]), "{schema}");
        let members: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        let want = ["hash", "json_path", "manual_id", "path", "signals", "start_line", "target", "title"];
        assert_eq!(members.len(), want.len(), "{members:?}");
        assert!(want.iter().all(|name| members.iter().any(|member| member == name)), "{members:?}");
        for wrong in [json!("a.md"), json!(7), json!(["m/a.md"]), json!({}), json!({ "target": "vault" })] {
            let mut call = json!({ argument: wrong });
            if tool == "bridge_copy_section" {
                (call["to_path"], call["mode"]) = (json!("x.md"), json!("append"));
            }
            let error = client.refused(tool, &call);
            let message = error["message"].as_str().unwrap();
            let (_, right) =
                message.split_once("; give a reference such as ").unwrap_or_else(|| panic!("{message}"));
            // Both of them are taken: there is only no such manual.
            for right in right.split('`').skip(1).step_by(2) {
                call[argument] = serde_json::from_str(right).unwrap();
                check_schema(&input, &call);
                assert_eq!(client.code(tool, &call), "not_found", "{call}");
            }
        }
    }
}

#[test]
fn the_input_schemas_take_what_the_tools_take() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    let rows = [
        ("bridge_copy_section", copy("a.md", 1, "x.md", "append")),
        ("bridge_copy_section", {
            let mut call = copy("a.md", Value::Null, "x.md", "append");
            call["limits"] = json!({ "max_chars": 1000.0, "max_sections": null, "allow_file": null });
            call["from_ref"]["title"] = json!("A");
            call["from_ref"]["signals"] = json!({ "score": 1 });
            call
        }),
        (
            "manual_read",
            json!({ "ref": { "target": "manual", "manual_id": "m", "path": "a.md" }, "limits": { "max_chars": 9 } }),
        ),
        ("manual_find", json!({ "query": "a", "limit": 1.0 })),
        ("vault_ls", json!({ "path": "." })),
    ];
    // Accepted, although not in the schema.
    client.ok("manual_find", &json!({ "query": "a", "manual_id": null, "limit": null }));
    client.ok("manual_read", &json!({ "ref": "m/a.md", "limits": null }));
    for (tool, arguments) in rows {
        let schema = json_of(Some(&client.documents.tools().get(tool).unwrap().input_schema));
        check_schema(&schema, &arguments);
        client.ok(tool, &arguments);
    }
}

#[test]
fn read_only_leaves_out_every_tool_that_writes() {
    let workspace = Workspace::new();
    let documents = workspace.builder().read_only(true).open().unwrap();
    let tools = documents.tools();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, READING);
}

#[test]
fn arguments_that_do_not_fit_are_invalid_parameter_and_are_named() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    let with = |path: &str, value: Value| {
        let mut call = copy("a.md", 1, "x.md", "append");
        *call.pointer_mut(path).unwrap() = value;
        call
    };
    let without = |name: &str| {
        let mut call = copy("a.md", 1, "x.md", "append");
        call.as_object_mut().unwrap().remove(name);
        call
    };
    let limits = |limits: Value| {
        let mut call = copy("a.md", 1, "x.md", "append");
        call["limits"] = limits;
        call
    };
    let rows = [
        (without("from_ref"), "missing field `from_ref`"),
        (without("to_path"), "missing field `to_path`"),
        (without("mode"), "missing field `mode`"),
        (
            with("/mode", json!("replace")),
            "`mode`: unknown variant `replace`, expected `overwrite` or `append`",
        ),
        (with("/mode", json!(null)), "`mode`"),
        (with("/to_path", json!(7)), "`to_path`: invalid type: integer `7`, expected a string"),
        (
            with("/from_ref", json!("a.md")),
            "`a.md` names no file of a manual; give a reference such as `\"book/",
        ),
        (
            with("/from_ref/target", json!("vault")),
            "`from_ref.target`: unknown variant `vault`, expected `manual`",
        ),
        (with("/from_ref", json!({ "target": "manual", "path": "a.md" })), "missing field `manual_id`"),
        (with("/from_ref", json!({ "manual_id": "m", "path": "a.md" })), "missing field `target`"),
        (
            with("/from_ref/path", json!("a.pdf")),
            "`a.pdf` is none of `.md`, `.markdown`, `.mdx`, `.json`, `.txt`, and manuals have no other files",
        ),
        (with("/from_ref/start_line", json!("1")), "`from_ref.start_line`"),
        (
            with("/from_ref/start_line", json!([1])),
            "`from_ref.start_line`: invalid type: a sequence, expected a line number, whole and from 1 to 67108864",
        ),
        (
            with(
                "/from_ref",
                json!({ "target": "manual", "manual_id": "m", "path": "a.md", "startline": 1 }),
            ),
            "`startline`",
        ),
        (
            limits(json!({ "max_chars": 0 })),
            "`limits.max_chars`: invalid value: `0`, expected a whole number from 1 upwards",
        ),
        (limits(json!({ "max_chars": -1 })), "`limits.max_chars`"),
        (limits(json!({ "max_chars": 1.5 })), "`limits.max_chars`"),
        (limits(json!({ "max_chars": "10" })), "`limits.max_chars`"),
        (limits(json!({ "max_sections": 0 })), "`limits.max_sections`"),
        (limits(json!({ "allow_file": "yes" })), "`limits.allow_file`"),
        (limits(json!([])), "`limits`"),
        (limits(json!({ "max_char": 5 })), "`max_char`"),
    ];
    for (arguments, want) in rows {
        let error = client.refused("bridge_copy_section", &arguments);
        assert_eq!(error["code"], "invalid_parameter", "{arguments}: {error}");
        assert!(error["message"].as_str().unwrap().contains(want), "{arguments}: {error}");
    }
    let rows = [
        ("manual_list", json!({ "all": true })),
        ("manual_find", json!({ "query": "a", "limit": 0 })),
        ("manual_find", json!({ "query": " !? " })),
        ("manual_find", json!({})),
        ("manual_toc", json!({})),
        ("manual_read", json!({ "ref": reference("a.md", 1), "scope": "page" })),
        ("vault_read", json!({ "path": "a", "full": true, "range": { "start_line": 1 } })),
        ("vault_replace", json!({ "path": "a", "find": "", "replace": "b" })),
        ("vault_replace", json!({ "path": "a", "find": "x", "replace": "b", "max_replacements": -2 })),
        ("vault_write", json!({ "path": "a", "content": "b", "mode": "create" })),
        ("bridge_copy_file", json!({ "from_path": "a.md", "to_path": "b.md", "mode": "append" })),
        (
            "bridge_copy_file",
            json!({ "from_path": "a.pdf", "manual_id": "m", "to_path": "b", "mode": "append" }),
        ),
    ];
    for (tool, arguments) in rows {
        assert_eq!(client.code(tool, &arguments), "invalid_parameter", "{tool} {arguments}");
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
}

#[test]
fn a_list_is_no_object() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    let place = json!(["manual", "m", "a.md", 1, null, null, null]);
    for (tool, arguments, want) in [
        ("vault_create", json!(["s.md", "text"]), "expected an object"),
        ("manual_list", json!([]), "expected an object"),
        ("manual_list", json!(null), "expected an object"),
        (
            "manual_read",
            json!({ "ref": place }),
            "`ref`: invalid type: sequence, expected a string or an object",
        ),
    ] {
        let error = client.refused(tool, &arguments);
        assert_eq!(error["code"], "invalid_parameter", "{tool} {arguments}");
        assert!(error["message"].as_str().unwrap().contains(want), "{tool} {arguments}: {error}");
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
}

#[test]
fn a_number_beyond_every_type_is_lowered_like_any_other() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    for number in ["1e400".to_owned(), "9".repeat(400), "1e300".to_owned(), "20001".to_owned()] {
        let arguments = json!({ "ref": reference("a.md", 1), "limits": { "max_chars": "NUMBER" } });
        let arguments = RawJson::parse(arguments.to_string().replace("\"NUMBER\"", &number)).unwrap();
        let call = toolbridge_core::tool::ToolCall::new("manual_read", arguments);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let context = toolbridge_core::CallContext::default();
        let answer: Value = runtime.block_on(client.documents.call(call, context)).unwrap().decode().unwrap();
        assert_eq!(answer["structuredContent"]["applied"]["max_chars"], 20_000, "{number}: {answer}");
    }
}

#[test]
fn a_huge_argument_does_not_come_back_as_an_error() {
    let client = Workspace::new().open();
    let huge = "x".repeat(1_000_000);
    for arguments in
        [json!({ "manual_id": huge }), json!({ "manual_id": ["y", huge] }), json!({ huge.as_str(): 1 })]
    {
        // `refused` checks the length.
        client.refused("manual_toc", &arguments);
    }
}

#[test]
fn a_tool_that_does_not_exist_is_not_found() {
    let client = Workspace::new().open();
    let call = toolbridge_core::tool::ToolCall::new("manual_write", RawJson::empty_object());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error =
        runtime.block_on(client.documents.call(call, toolbridge_core::CallContext::default())).unwrap_err();
    assert_eq!(error.type_name(), "ToolNotFoundError");
}
