use proptest::prelude::*;
use ropeway_live::model::{Job, Message, Snapshot};

use super::*;

fn hostile(name: &str) -> View {
    let mut snapshot = Snapshot::default();
    snapshot.process.arguments = vec![name.to_owned()];
    snapshot.process.user = name.to_owned();
    snapshot.process.command = name.to_owned();
    snapshot.jobs.push(Job {
        sources: vec![name.to_owned()],
        target: name.to_owned(),
        kind: name.to_owned(),
        bwlimit: name.to_owned(),
        messages: vec![Message {
            text: name.to_owned(),
            ..Message::default()
        }],
        ..Job::default()
    });
    View::of(&snapshot)
}

#[test]
fn foreign_names_are_text() {
    for name in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg onload=alert(1)>",
        "</title><script>",
        "&lt;",
    ] {
        let html = page(&hostile(name), Control::Forms("1"));
        // Ours is the only script, and no element has a handler.
        assert_eq!(html.matches("<script").count(), 1, "{name}");
        assert!(!html.contains("<img") && !html.contains("<svg on"), "{name}");
        assert!(!html.contains(name) || name == "&lt;", "{name}");
        for small in [message(name, name), question(name, &[(name.into(), name.into())])] {
            assert!(!small.contains("<script") && !small.contains("<img"), "{small}");
        }
    }
}

#[test]
fn the_page_works_without_scripts() {
    let html = page(&hostile("a").for_readers(), Control::None);
    assert!(html.contains("<noscript><meta http-equiv=\"refresh\" content=\"5\">"));
    assert!(html.contains("a → a") && html.contains("load again"));
    assert!(html.contains("This page only shows"));
    // No form, but in the templates.
    let before = html.split("<template").next().unwrap();
    assert!(!before.contains("<form"));
    let with = page(&hostile("a"), Control::Forms("777"));
    assert!(with.contains("name=\"form\" value=\"777\""));
    assert!(with.contains("name=\"do\" value=\"cancel\""));
}

proptest! {
    #[test]
    fn no_text_ends_an_element_or_an_attribute(name in "[<>&\"'a/ =]{1,12}") {
        let plain = page(&hostile("x"), Control::Forms("1"));
        let html = page(&hostile(&name), Control::Forms("1"));
        for mark in ['<', '>', '"'] {
            prop_assert_eq!(html.matches(mark).count(), plain.matches(mark).count());
        }
    }
}
