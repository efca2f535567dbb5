//! Conversations stored by the CLI.

use toolbridge::Request;
use toolbridge::model::Settings;
use toolbridge::tool::Hint as _;
use toolbridge_scripted::thorough;

use super::support::World;

/// The user's messages in the last request to the model.
fn prompts(world: &World) -> Vec<String> {
    let requests = world.scripted.requests();
    let body = requests.last().unwrap().body["messages"].to_string();
    ["zebra first", "zebra second", "zebra third"]
        .into_iter()
        .filter(|word| body.contains(word))
        .map(Into::into)
        .collect()
}

#[tokio::test]
async fn a_conversation_is_resumed_or_forked() {
    let world = World::new("text one\n---\ntext two\n---\ntext three\n---\ntext four");
    let model = world.model();
    let keep = Settings::default().keep_session(true);
    let first = model.request_with_metadata(Request::new("zebra first").settings(keep)).await.unwrap();
    let id = first.metadata.session_id.clone().unwrap();
    assert_eq!(first.response.text(), "one");

    let resume = Settings::default().resume(&id);
    let second = model.request_with_metadata(Request::new("zebra second").settings(resume)).await.unwrap();
    assert_eq!((second.response.text().as_str(), prompts(&world).len()), ("two", 2));
    assert_eq!(second.metadata.session_id.as_ref(), Some(&id));

    let fork = Settings::default().resume(&id).fork_session(true);
    let third = model.request_with_metadata(Request::new("zebra third").settings(fork)).await.unwrap();
    assert_eq!((third.response.text().as_str(), prompts(&world).len()), ("three", 3));
    assert_ne!(third.metadata.session_id.as_ref(), Some(&id));

    let last = Settings::default().continue_conversation(true);
    model.request(Request::new("more").settings(last)).await.unwrap();
    assert_eq!(prompts(&world), ["zebra first", "zebra second", "zebra third"]);

    if thorough() {
        model.request("alone").await.unwrap();
        assert!(prompts(&world).is_empty());
    }
    world.nothing_is_left();
}

#[tokio::test]
async fn a_missing_conversation_is_reported_with_the_clis_message() {
    let world = World::new("text one");
    let id = "11111111-1111-4111-8111-111111111111";
    let resume = Settings::default().resume(id);
    let error = world.model().request(Request::new("x").settings(resume)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("No conversation found with session ID: {id}"));
    assert!(error.hint().unwrap().contains("`keep_session`"), "{error:?}");
    world.nothing_is_left();
}
