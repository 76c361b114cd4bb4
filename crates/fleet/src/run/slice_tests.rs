use std::collections::BTreeMap;
use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{Capabilities, MemoryTree, RelPath, Tree};

use crate::run::world::{World, path};

/// A world whose target ignores case.
fn world() -> World {
    let ignores_case = Capabilities {
        case_sensitive: false,
        ..MemoryTree::new().capabilities().clone()
    };
    let world = World {
        target: Arc::new(MemoryTree::new().with_capabilities(ignores_case)),
        ..World::new()
    };
    simulate(&world.clock, world.target.make_dir(&path("t"), 0o700)).unwrap();
    world
}

/// Runs a job, and removes its catalog. Returns what failed.
fn failures(world: &World) -> BTreeMap<RelPath, String> {
    let (failures, store) = world.failures_of_deleting(Arc::clone(&world.target) as _);
    simulate(&world.clock, store.remove()).unwrap();
    failures
}

/// Renames a file of the source, changes it, and runs a further job.
fn after_rename(world: &World, from: &str, to: &str) -> BTreeMap<RelPath, String> {
    simulate(&world.clock, world.source.remove_file(&path(from))).unwrap();
    world.source.insert_file(&path(to), b"a longer one").unwrap();
    failures(world)
}

/// It failed in every job: the target has it in the old case.
#[test]
fn a_file_whose_name_changed_in_case_only_is_copied() {
    for (old, new) in [("d/readme", "d/README"), ("d/é", "d/É")] {
        let world = world();
        simulate(&world.clock, world.source.make_dir(&path("d"), 0o755)).unwrap();
        world.source.insert_file(&path(old), b"old").unwrap();
        assert_eq!(failures(&world), BTreeMap::new());
        assert_eq!(after_rename(&world, old, new), BTreeMap::new(), "{new}");
        let copy = world.target.content(&path(&format!("t/{new}"))).unwrap();
        assert_eq!(copy, b"a longer one", "{new}");
        assert_eq!(failures(&world), BTreeMap::new(), "{new}");
    }
}

/// The old name would be removed as what only the target has, and with it what was just copied: these are no pair by
/// [`ropeway_plan::names::case_key`], but for the target they are.
#[test]
fn what_the_target_takes_for_something_else_fails_and_nothing_is_deleted() {
    let world = world();
    for (folder, content) in [("d", b"old"), ("ας", b"old")] {
        simulate(&world.clock, world.source.make_dir(&path(folder), 0o755)).unwrap();
        let file = format!("{folder}/ας");
        world.source.insert_file(&path(&file), content).unwrap();
    }
    assert_eq!(failures(&world), BTreeMap::new());
    for old in ["d/ας", "ας/ας"] {
        simulate(&world.clock, world.source.remove_file(&path(old))).unwrap();
    }
    simulate(&world.clock, world.source.remove_dir(&path("ας"))).unwrap();
    simulate(&world.clock, world.source.make_dir(&path("ΑΣ"), 0o755)).unwrap();
    for new in ["d/ΑΣ", "ΑΣ/ΑΣ"] {
        world.source.insert_file(&path(new), b"newer").unwrap();
    }
    let failed: Vec<String> = failures(&world).keys().map(ToString::to_string).collect();
    assert_eq!(failed, ["d/ΑΣ", "ΑΣ"]);
    for kept in ["t/d/ας", "t/ας/ας"] {
        assert_eq!(world.target.content(&path(kept)).unwrap(), b"old", "{kept}");
    }
}

/// One would silently replace the other.
#[test]
fn a_file_does_not_replace_another_one_of_the_source() {
    for (old, new, refused) in [("readme", "README", "readme"), ("ας", "ΑΣ", "ΑΣ")] {
        let world = world();
        world.source.insert_file(&path(old), b"old").unwrap();
        assert_eq!(failures(&world), BTreeMap::new());
        world.source.insert_file(&path(new), b"the new one").unwrap();
        for _ in 0..2 {
            let failed = failures(&world);
            let paths: Vec<&RelPath> = failed.keys().collect();
            assert_eq!(paths, [&path(refused)], "{failed:?}");
            assert!(
                failed[&path(refused)].contains("differs only in case"),
                "{failed:?}"
            );
            let copy = world.target.content(&path(&format!("t/{old}"))).unwrap();
            let kept: &[u8] = if refused == new { b"old" } else { b"the new one" };
            assert_eq!(copy, kept, "{new}");
        }
    }
}
