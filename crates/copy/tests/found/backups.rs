//! Backups keep the user's version, not one that an earlier run of the job wrote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ropeway_copy::{Backup, Delete, Durability, Options, Status, Verification};
use ropeway_vfs::{ErrorKind, Op, RelPath, Tree};

use super::kit::{Machine, before_open, content, hook, no_hook, path, write};
use crate::simulate::snapshot::now;
use crate::simulate::tree::When;
use crate::simulate::world::FaultKind;

fn options() -> Options {
    Options {
        backup: Some(Backup::Suffix(b".bak".to_vec())),
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_overwritten_before_a_power_cut_replaces_the_backup_of_neither_name() {
    let machine = Machine::new(Options {
        inplace: true,
        ..options()
    });
    let [old_a, old_b, new] = [1, 2, 3].map(|number| content(number, 9_000));
    write(&machine.source, "a", &new, 2_000);
    now(machine.source.make_hard_link(&path("a"), &path("b"))).unwrap();
    write(&machine.target, "copy/a", &old_a, 1_000);
    write(&machine.target, "copy/b", &old_b, 1_000);
    machine.begin();
    let is_linked = |when, op, at: &ropeway_vfs::RelPath| {
        when == When::After && op == Op::Rename && *at == path("copy/b")
    };
    for cut in machine.run_until(is_linked, Machine::cuts).await {
        assert_eq!(cut.run().await.status, Status::Done);
        for (name, old) in [("a", &old_a), ("b", &old_b)] {
            assert_eq!(cut.content(&format!("copy/{name}")).as_ref(), Some(&new));
            let kept = cut.content(&format!("copy/{name}.bak"));
            assert!(
                kept.as_ref() == Some(old),
                "the backup of {name} is the user's version"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_verification_repairs_replaces_no_backup() {
    let machine = Machine::new(Options {
        verify: Verification {
            read_back: true,
            algorithm: Default::default(),
            manifest: None,
        },
        ..options()
    });
    let [old, new, rotten] = [1, 2, 3].map(|number| content(number, 9_000));
    write(&machine.source, "a", &new, 2_000);
    write(&machine.target, "copy/a", &old, 1_000);
    machine.begin();
    let target = machine.target.clone();
    // Only the verification opens the copy for reading.
    let rots = before_open("copy/a", move || {
        write(&target, "copy/a", &rotten, 2_000);
    });
    let outcome = machine.run_hooked(no_hook(), rots).await;
    assert_eq!((outcome.status, outcome.summary.repaired), (Status::Done, 1));
    assert_eq!(machine.content("copy/a"), Some(new));
    assert!(
        machine.content("copy/a.bak") == Some(old),
        "the backup is the user's version"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_with_force_that_goes_on_replaces_no_backup() {
    let machine = Machine::new(Options {
        force: true,
        ..options()
    });
    let [old, new] = [1, 2].map(|number| content(number, 9_000));
    write(&machine.source, "a", &new, 2_000);
    now(machine.source.make_symlink(&path("b"), b"some/where")).unwrap();
    for name in ["copy/a", "copy/b"] {
        write(&machine.target, name, &old, 1_000);
    }
    machine.begin();
    let is_synced = |when, op, at: &ropeway_vfs::RelPath| {
        when == When::After && op == Op::SetAttributes && *at == path("copy")
    };
    let killed = machine.run_until(is_synced, Machine::kill).await;
    assert_eq!(killed.run().await.status, Status::Done);
    assert_eq!(killed.content("copy/a"), Some(new));
    for name in ["copy/a.bak", "copy/b.bak"] {
        assert!(
            killed.content(name).as_ref() == Some(&old),
            "{name} is the user's version"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_may_lack_data_replaces_no_backup() {
    let machine = Machine::new(Options {
        durability: Durability::None,
        ..options()
    });
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    for name in ["a", "b"] {
        write(&machine.source, name, &new, 2_000);
        write(&machine.target, &format!("copy/{name}"), &old, 1_000);
    }
    machine.begin();
    let is_named = |when, op, at: &ropeway_vfs::RelPath| {
        when == When::After && op == Op::Rename && *at == path("copy/a")
    };
    let mut damaged = 0;
    for cut in machine.run_until(is_named, Machine::cuts).await {
        // Without its time, the file cannot be recognized as one that the job wrote.
        if !cut.has_time("a") {
            continue;
        }
        damaged += u32::from(cut.content("copy/a").as_ref() != Some(&new));
        assert_eq!(cut.run().await.status, Status::Done);
        assert!(cut.content("copy/a").as_ref() == Some(&new), "it is copied again");
        assert!(
            cut.content("copy/a.bak").as_ref() == Some(&old),
            "the backup is the user's version"
        );
    }
    assert!(damaged > 0, "some cuts damage it");
}

#[tokio::test(start_paused = true)]
async fn the_next_try_removes_no_backup_that_was_made_by_a_rename() {
    let failed = FaultKind::Error(ErrorKind::DeviceError);
    let unheard = FaultKind::LostAnswer(ErrorKind::DeviceError);
    for (fails, fault) in [
        ("copy/a", failed),
        ("copy/a.bak", unheard),
        ("copy/b.bak", unheard),
    ] {
        let machine = Machine::with(options(), |can| can.hard_links = false);
        let [old, new] = [1, 2].map(|number| content(number, 9_000));
        now(machine.source.make_symlink(&path("a"), b"some/where")).unwrap();
        write(&machine.source, "b", &new, 2_000);
        for name in ["copy/a", "copy/b"] {
            write(&machine.target, name, &old, 1_000);
        }
        machine.begin();
        let is_over = AtomicBool::new(false);
        let once = hook(move |when, op, at| {
            let is_one = when == When::Before && op == Op::Rename && *at == path(fails);
            (is_one && !is_over.swap(true, Ordering::Relaxed)).then_some(fault)
        });
        assert_eq!(machine.run_hooked(no_hook(), once).await.status, Status::Done);
        assert!(machine.content("copy/b") == Some(new));
        for name in ["copy/a.bak", "copy/b.bak"] {
            assert!(
                machine.content(name).as_ref() == Some(&old),
                "{name} is the user's version"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mirror_deletes_a_file_that_is_its_own_backup() {
    for stable_ids in [true, false] {
        let options = Options {
            backup: Some(Backup::Directory {
                base: path("old"),
                top: RelPath::root(),
            }),
            delete: Some(Delete::default()),
            ..Options::default()
        };
        let machine = Machine::with(options, |can| can.stable_ids = stable_ids);
        write(&machine.source, "a", &content(1, 3_000), 1_000);
        write(&machine.target, "copy/b", &content(2, 3_000), 1_000);
        // A run that kept it, and then failed to replace it, left this link.
        now(machine.target.make_dir(&path("old"), 0o755)).unwrap();
        now(machine.target.make_dir(&path("old/copy"), 0o755)).unwrap();
        now(machine
            .target
            .make_hard_link(&path("copy/b"), &path("old/copy/b")))
        .unwrap();
        machine.begin();
        assert_eq!(machine.run().await.status, Status::Done);
        assert!(machine.content("copy/b").is_none(), "it is deleted");
        assert!(machine.content("old/copy/b") == Some(content(2, 3_000)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_deletes_a_half_overwritten_file_replaces_no_backup() {
    let machine = Machine::new(Options {
        inplace: true,
        delete: Some(Delete::default()),
        ..options()
    });
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    write(&machine.source, "a", &new, 2_000);
    write(&machine.source, "b", &new, 2_000);
    write(&machine.target, "copy/a", &old, 1_000);
    machine.begin();
    let is_written = |when, op, at: &RelPath| when == When::After && op == Op::Write && *at == path("copy/a");
    let killed = machine.run_until(is_written, Machine::kill).await;
    now(killed.source.remove_file(&path("a"))).unwrap();
    assert_eq!(killed.run().await.status, Status::Done);
    assert!(killed.content("copy/a").is_none(), "it is deleted");
    assert!(
        killed.content("copy/a.bak") == Some(old),
        "the backup is the user's version"
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_in_place_whose_backup_cannot_be_recorded_stays_as_it_is() {
    let machine = Machine::new(Options {
        inplace: true,
        ..options()
    });
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    write(&machine.source, "a", &new, 2_000);
    write(&machine.target, "copy/a", &old, 1_000);
    machine.begin();
    let this = machine.clone();
    let tears = hook(move |when, op, at| {
        if when == When::After && op == Op::Rename && *at == path("copy/a.bak") {
            this.tear_next_record();
        }
        None
    });
    let outcome = machine.run_hooked(no_hook(), tears).await;
    assert_eq!(outcome.summary.counters.files_failed, 1);
    assert!(
        machine.content("copy/a").as_ref() == Some(&old),
        "it is not changed"
    );
    assert_eq!(machine.run().await.status, Status::Done);
    assert!(machine.content("copy/a") == Some(new));
    assert!(machine.content("copy/a.bak") == Some(old));
}

#[tokio::test(start_paused = true)]
async fn a_torn_record_hides_no_later_one() {
    let machine = Machine::new(Options {
        inplace: true,
        ..options()
    });
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    write(&machine.source, "a", &new, 2_000);
    write(&machine.target, "copy/a", &old, 1_000);
    machine.begin();
    let (left, this) = (Arc::new(Mutex::new(None)), machine.clone());
    let (slot, is_torn) = (Arc::clone(&left), AtomicBool::new(false));
    let on_target = hook(move |when, op, at| {
        // The next record is the place of the temporary name, long before the one of the backup.
        if !is_torn.swap(true, Ordering::Relaxed) {
            this.tear_next_record();
        }
        if when == When::After && op == Op::Write && *at == path("copy/a") {
            slot.lock().unwrap().get_or_insert_with(|| this.kill());
        }
        None
    });
    machine.run_hooked(no_hook(), on_target).await;
    let killed = left.lock().unwrap().take().expect("it is overwritten");
    assert!(killed.content("copy/a").as_ref() != Some(&old));
    assert_eq!(killed.run().await.status, Status::Done);
    assert!(
        killed.content("copy/a.bak") == Some(old),
        "the backup is the user's version"
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_in_the_place_of_a_half_overwritten_file_without_identity_replaces_no_backup() {
    let options = Options {
        inplace: true,
        ..options()
    };
    let machine = Machine::with(options, |can| can.stable_ids = false);
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    write(&machine.source, "b", &new, 2_000);
    write(&machine.target, "copy/b", &old, 1_000);
    machine.begin();
    let is_written = |when, op, at: &RelPath| when == When::After && op == Op::Write && *at == path("copy/b");
    let killed = machine.run_until(is_written, Machine::kill).await;
    // Now the file has a name that is copied first.
    now(killed.source.make_hard_link(&path("b"), &path("a"))).unwrap();
    assert_eq!(killed.run().await.status, Status::Done);
    assert!(killed.content("copy/b") == Some(new));
    assert!(
        killed.content("copy/b.bak") == Some(old),
        "the backup is the user's version"
    );
}

#[tokio::test(start_paused = true)]
async fn a_link_without_identity_that_is_made_again_replaces_no_backup() {
    let options = Options {
        checksum: true,
        ..options()
    };
    let machine = Machine::with(options, |can| can.stable_ids = false);
    let [old, new] = [1, 2].map(|number| content(number, 5_000));
    write(&machine.source, "a", &new, 2_000);
    now(machine.source.make_hard_link(&path("a"), &path("b"))).unwrap();
    for name in ["copy/a", "copy/b"] {
        write(&machine.target, name, &old, 1_000);
    }
    machine.begin();
    let is_linked = |when, op, at: &RelPath| when == When::After && op == Op::Rename && *at == path("copy/b");
    let killed = machine.run_until(is_linked, Machine::kill).await;
    assert_eq!(killed.run().await.status, Status::Done);
    for name in ["copy/a", "copy/b"] {
        assert!(killed.content(name).as_ref() == Some(&new));
        let kept = killed.content(&format!("{name}.bak"));
        assert!(kept.as_ref() == Some(&old), "the backup of {name}");
    }
}
