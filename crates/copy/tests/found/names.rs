//! Files with several names.

use ropeway_copy::{Options, Status};
use ropeway_vfs::{Op, Tree};

use super::kit::{Machine, before_open, content, no_hook, path, write};
use crate::simulate::snapshot::now;
use crate::simulate::tree::When;

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
