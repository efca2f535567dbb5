//! Stored conversations: listing, reading and changing them.

use std::os::unix::fs::symlink;

use toolbridge::claude::{Conversation, Message, Part, SessionInfo, Settings};
use toolbridge::{ClaudeCodeError, Request, Sessions};
use toolbridge_scripted::{Block, ModelRequest, Turn, thorough};

use super::support::{Tools, World, transports};

fn keep() -> Settings {
    Settings::default().conversation(Conversation::Keep { session_id: None })
}

fn resume(session_id: &str) -> Settings {
    Settings::default().conversation(Conversation::Resume { session_id: session_id.into(), fork: false })
}

/// Makes the requested call twice in parallel, and otherwise repeats the prompt.
fn obey(request: &ModelRequest) -> Turn {
    let last =
        request.body["messages"].as_array().unwrap().iter().rfind(|one| one["role"] == "user").unwrap();
    let has_result = last["content"].to_string().contains("\"tool_result\"");
    match request.prompt().strip_prefix("call ") {
        Some(tool) if !has_result => {
            let call = || Block::call(&format!("mcp__tools__{tool}"), serde_json::json!({}));
            Turn::blocks(vec![call(), call()])
        }
        _ => Turn::text(format!("you said {}", request.prompt())),
    }
}

fn shown(messages: &[Message]) -> Vec<String> {
    let part = |part: &Part| match part {
        Part::ToolCall { name, .. } => format!("call {name}"),
        Part::ToolResult { .. } => format!("result {}", part.text().unwrap_or_default()),
        part => part.text().unwrap_or_default(),
    };
    let of = |message: &Message| match message {
        Message::User(inputs) => {
            vec![serde_json::to_value(inputs).unwrap()[0]["text"].as_str().unwrap().to_owned()]
        }
        Message::Assistant(parts) => parts.iter().map(part).collect(),
        _ => Vec::new(),
    };
    messages.iter().flat_map(of).collect()
}

fn message_texts(sessions: &Sessions, id: &str) -> Vec<String> {
    let messages: Vec<Message> = sessions.messages(id).unwrap().into_iter().map(Into::into).collect();
    shown(&messages)
}

fn ids(list: &[SessionInfo]) -> Vec<&str> {
    list.iter().map(|one| one.session_id.as_str()).collect()
}

#[tokio::test]
async fn kept_conversations_are_listed_read_and_changed() {
    for transport in transports() {
        let world = World::answering(obey);
        let model = world.model_with(&Tools::new(), transport);
        let sessions = model.sessions().unwrap();
        assert!(sessions.list().unwrap().is_empty());
        let ask = async |prompt: &str, settings: Settings| {
            let answer = model.request_with_metadata(Request::new(prompt).settings(settings)).await.unwrap();
            (answer.response.text(), answer.metadata.session_id.unwrap())
        };
        let (_, first) = ask("zebra", keep()).await;
        let (_, second) = ask("call look", keep()).await;
        // Other tests look for transcripts that must not be there.
        if thorough() {
            model.request("not kept").await.unwrap();
        }
        let listed = sessions.list().unwrap();
        assert_eq!(ids(&listed), [&second[..], &first]);
        assert_eq!((listed[1].first_prompt.as_deref(), &listed[1].title), (Some("zebra"), &None));
        assert!(listed[1].created.unwrap() <= listed[1].modified && listed[1].bytes > 0);
        assert_eq!(listed[1].directory, Some(world.home.path().canonicalize().unwrap()));
        assert_eq!(sessions.get(&first).unwrap(), listed[1]);

        // Both calls and both results, and the text after them.
        let look = "call mcp__tools__look";
        assert_eq!(
            message_texts(&sessions, &second),
            ["call look", look, look, "result done", "result done", "you said call look"],
            "over {transport}"
        );

        sessions.rename(&first, " About\nzebras ").unwrap();
        sessions.tag(&first, Some("animals")).unwrap();
        let info = sessions.get(&first).unwrap();
        assert_eq!((info.title.as_deref(), info.tag.as_deref()), (Some("About zebras"), Some("animals")));
        sessions.tag(&first, None).unwrap();
        assert_eq!(sessions.get(&first).unwrap().tag, None);

        // The CLI continues renamed conversations and copies.
        assert_eq!(ask("more", resume(&first)).await, ("you said more".into(), first.clone()));
        assert_eq!(sessions.get(&first).unwrap().title.as_deref(), Some("About zebras"));
        let copy = sessions.fork(&second, None, Some("Copy")).unwrap();
        assert_eq!(sessions.get(&copy).unwrap().title.as_deref(), Some("Copy"));
        assert_eq!(message_texts(&sessions, &copy), message_texts(&sessions, &second));
        ask("more", resume(&copy)).await;
        assert_eq!(message_texts(&sessions, &copy).len(), 8);
        let last = world.scripted.requests().last().unwrap().body["messages"].to_string();
        assert_eq!(
            (last.matches("\"tool_use\"").count(), last.matches("\"tool_result\"").count()),
            (2, 2),
            "{last}"
        );
        assert_eq!(message_texts(&sessions, &second).len(), 6, "the original is as it was");
        let messages = sessions.messages(&first).unwrap();
        let half = sessions.fork(&first, Some(&messages[1].id), None).unwrap();
        assert_eq!(message_texts(&sessions, &half), ["zebra", "you said zebra"]);
        assert_eq!(sessions.get(&half).unwrap().title.as_deref(), Some("About zebras"));

        // Its messages can be used as history of another request.
        let history: Vec<Message> = sessions.messages(&second).unwrap().into_iter().map(Into::into).collect();
        model.request(Request::new("and?").history(history)).await.unwrap();
        let last = world.scripted.requests().last().unwrap().body["messages"].to_string();
        assert_eq!(
            (last.matches("\"tool_use\"").count(), last.matches("\"tool_result\"").count()),
            (2, 2),
            "{last}"
        );

        sessions.delete(&second).unwrap();
        assert!(!ids(&sessions.list().unwrap()).contains(&&*second));
        let error = sessions.messages(&second).unwrap_err();
        assert!(
            error.to_string().contains("the CLI has not stored this conversation for the directory"),
            "{error}"
        );
        if thorough() {
            assert!(model.request(Request::new("x").settings(resume(&second))).await.is_err());
        }
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn an_open_conversation_can_be_read_and_renamed_but_not_deleted() {
    let world = World::answering(obey);
    let model = world.model();
    let mut chat = model.conversation().settings(keep()).open().await.unwrap();
    chat.send("first").await.unwrap();
    let id = chat.session_id().unwrap().to_owned();
    let sessions = model.sessions().unwrap();
    let error = sessions.delete(&id).unwrap_err();
    assert!(error.to_string().contains("the CLI with the process id "), "{error}");
    sessions.rename(&id, "While it is open").unwrap();
    assert_eq!(message_texts(&sessions, &id), ["first", "you said first"]);
    chat.send("second").await.unwrap();
    chat.close().await;
    assert_eq!(message_texts(&sessions, &id), ["first", "you said first", "second", "you said second"]);
    sessions.delete(&id).unwrap();
    assert!(sessions.list().unwrap().is_empty());
    world.nothing_is_left();
}

#[tokio::test]
async fn only_plain_files_of_conversations_are_touched() {
    let world = World::answering(obey);
    let model = world.model();
    let sessions = model.sessions().unwrap();
    let answer = model.request_with_metadata(Request::new("hi").settings(keep())).await.unwrap();
    let id = answer.metadata.session_id.unwrap();
    for wrong in ["", "..", "../../x", "0b0e8b1e6c1d4d8e9f0a2b8c1d3e4f50", &format!("{id}/.."), "*"] {
        let error = sessions.delete(wrong).unwrap_err();
        assert!(matches!(error, ClaudeCodeError::InvalidRequest { .. }), "{error}");
        assert!(error.to_string().contains("which is a UUID"), "{error}");
    }
    for error in [sessions.rename(&id, " \n").unwrap_err(), sessions.tag(&id, Some("")).unwrap_err()] {
        assert!(error.to_string().ends_with(" is empty"), "{error}");
    }
    let error = sessions.fork(&id, Some("nothing"), None).unwrap_err();
    assert!(error.to_string().contains("there is no message `nothing` in it"), "{error}");

    // Files and directories that are links to other places.
    let projects = world.home.path().join(".claude/projects");
    let project = std::fs::read_dir(&projects).unwrap().next().unwrap().unwrap().path();
    let outside = world.home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let theirs = "0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50";
    let file = outside.join(format!("{theirs}.jsonl"));
    std::fs::copy(project.join(format!("{id}.jsonl")), &file).unwrap();
    let before = std::fs::read(&file).unwrap();
    symlink(&outside, projects.join("-elsewhere")).unwrap();
    symlink(&file, project.join(format!("{theirs}.jsonl"))).unwrap();
    for sessions in [sessions.clone(), sessions.clone().everywhere()] {
        assert_eq!(ids(&sessions.list().unwrap()), [&*id]);
        let all = [
            sessions.rename(theirs, "x"),
            sessions.delete(theirs),
            sessions.messages(theirs).map(drop),
            sessions.fork(theirs, None, None).map(drop),
        ];
        for error in all.map(Result::unwrap_err) {
            assert!(error.to_string().ends_with("its file is a link, which is not followed"), "{error}");
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);

    // Another directory has its own conversations.
    let other = world.builder().working_directory(&outside).build().unwrap();
    assert!(other.sessions().unwrap().list().unwrap().is_empty());
    assert_eq!(ids(&other.sessions().unwrap().everywhere().list().unwrap()), [&*id]);
    // The output of subagents is deleted too; a link is removed, but not its target.
    symlink(&outside, project.join(&id)).unwrap();
    sessions.delete(&id).unwrap();
    assert!(file.exists() && !project.join(&id).exists());
    world.nothing_is_left();
}
