//! Files with several names.

use std::sync::Mutex;

use ropeway_copy::{Options, Status};
use ropeway_vfs::{ErrorKind, MetadataChange, Op, Tree};

use super::kit::{Machine, before_open, content, hook, no_hook, path, write};
use crate::simulate::snapshot::now;
use crate::simulate::tree::When;
use crate::simulate::world::FaultKind;

#[tokio::test(start_paused = true)]
async fn a_name_that_became_another_file_is_not_linked_to_the_old_one() {
    let machine = Machine::new(Options::default());
    let [first, changed, other] = [1, 2, 3].map(|number| content(number, 3_000));
    write(&machine.source, "a", &first, 1_000);
    now(machine.source.make_hard_link(&path("a"), &path("b"))).unwrap();
    machine.begin();
    let source = machine.source.clone();
    let split = before_open("a", move || {
        now(source.remove_file(&path("b"))).unwrap();
        write(&source, "b", &other, 2_000);
        write(&source, "a", &changed, 2_000);
    });
    let outcome = machine.run_hooked(split, no_hook()).await;
    assert_eq!(outcome.status, Status::Done);
    for (name, number) in [("copy/a", 2), ("copy/b", 3)] {
        assert_eq!(machine.content(name), Some(content(number, 3_000)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_in_a_visible_folder_is_linked_to_durable_data_only() {
    let machine = Machine::new(Options::default());
    let new = content(1, 9_000);
    // The first of its names is in a new folder, which has a temporary name until it is complete.
    write(&machine.source, "a/first", &new, 1_000);
    now(machine.source.make_dir(&path("b"), 0o755)).unwrap();
    now(machine.source.make_hard_link(&path("a/first"), &path("b/second"))).unwrap();
    now(machine.target.make_dir(&path("copy"), 0o755)).unwrap();
    now(machine.target.make_dir(&path("copy/b"), 0o755)).unwrap();
    machine.begin();
    let is_linked = |when, op, at: &ropeway_vfs::RelPath| {
        when == When::After && op == Op::Rename && *at == path("copy/b/second")
    };
    let mut linked = 0;
    for cut in machine.run_until(is_linked, Machine::cuts).await {
        if let Some(found) = cut.content("copy/b/second") {
            assert!(found == new, "{} bytes of {}", found.len(), new.len());
            linked += 1;
        }
    }
    assert!(linked > 0, "some cuts leave the name");
}

#[tokio::test(start_paused = true)]
async fn a_small_file_on_a_server_has_its_time_after_its_data() {
    let machine = Machine::with(Options::default(), |can| {
        (can.remote, can.page_cache, can.small_in_flight) = (true, false, 4);
    });
    let new = content(1, 3_000);
    write(&machine.source, "a", &new, 1_000);
    machine.begin();
    let has_time = |when, op, at: &ropeway_vfs::RelPath| {
        let is_file = at.file_name() == path("a").file_name();
        when == When::After && op == Op::SetAttributes && is_file
    };
    for cut in machine.run_until(has_time, Machine::cuts).await {
        assert_eq!(cut.run().await.status, Status::Done);
        assert!(
            cut.content("copy/a").as_ref() == Some(&new),
            "the next run takes it for whole"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_not_linked_to_a_small_file_that_took_the_place_of_another() {
    let machine = Machine::with(Options::default(), |can| {
        (can.remote, can.page_cache, can.small_in_flight) = (true, false, 4);
    });
    write(&machine.source, "a", &content(1, 3_000), 1_000);
    now(machine.source.make_hard_link(&path("a"), &path("b"))).unwrap();
    machine.begin();
    let source = machine.source.clone();
    let split = before_open("a", move || {
        now(source.remove_file(&path("a"))).unwrap();
        write(&source, "a", &content(2, 1_000), 2_000);
    });
    machine.run_hooked(split, no_hook()).await;
    assert!(machine.content("copy/b") == Some(content(1, 3_000)));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_not_linked_to_a_file_that_did_not_get_its_attributes() {
    for checksum in [false, true] {
        let machine = Machine::new(Options {
            checksum,
            ..Options::default()
        });
        write(&machine.source, "a", &content(1, 3_000), 1_000);
        now(machine.source.make_hard_link(&path("a"), &path("b"))).unwrap();
        let change = MetadataChange {
            mode: Some(0o600),
            ..MetadataChange::default()
        };
        now(machine.source.set_metadata(&path("a"), &change)).unwrap();
        write(&machine.target, "copy/a", &content(1, 3_000), 1_000);
        machine.begin();
        let refuses = hook(|when, op, at| {
            let is_one = when == When::Before && op == Op::SetAttributes && *at == path("copy/a");
            is_one.then_some(FaultKind::Error(ErrorKind::PermissionDenied))
        });
        let outcome = machine.run_hooked(no_hook(), refuses).await;
        assert_eq!(outcome.status, Status::SomeFailed);
        let copied = now(machine.target.metadata(&path("copy/b"))).unwrap();
        assert_eq!(copied.mode, Some(0o600), "b is reported as done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_linked_also_when_the_folder_of_the_first_gets_its_final_name_just_then() {
    let machine = Machine::new(Options::default());
    write(&machine.source, "a/first", &content(1, 9_000), 1_000);
    now(machine.source.make_dir(&path("b"), 0o755)).unwrap();
    now(machine.source.make_hard_link(&path("a/first"), &path("b/second"))).unwrap();
    now(machine.target.make_dir(&path("copy"), 0o755)).unwrap();
    now(machine.target.make_dir(&path("copy/b"), 0o755)).unwrap();
    machine.begin();
    let (target, hidden) = (machine.target.clone(), Mutex::new(None));
    let on_target = machine.clone();
    // The folder has its final name while the link is made.
    let renames = hook(move |when, op, at| {
        let mut hidden = hidden.lock().unwrap();
        let rename = |from: &str, to: &str| now(target.rename(&path(from), &path(to), false)).unwrap();
        let is_dir = |at: &String| now(target.metadata(&path(at))).is_ok_and(|found| found.is_dir());
        if op != Op::Link || at.parent() != Some(path("copy/b")) {
            return None;
        }
        match (when, hidden.take()) {
            (When::Before, None) => {
                let folder = on_target.temporaries().into_iter().find(is_dir).unwrap();
                rename(&folder, "copy/a");
                *hidden = Some(folder);
            }
            (When::After, Some(folder)) if now(target.metadata(at)).is_ok() => rename("copy/a", &folder),
            (_, folder) => *hidden = folder,
        }
        None
    });
    let outcome = machine.run_hooked(no_hook(), renames).await;
    assert_eq!(outcome.status, Status::Done);
    assert!(machine.content("copy/b/second") == Some(content(1, 9_000)));
}
