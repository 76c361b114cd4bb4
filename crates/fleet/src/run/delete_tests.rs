use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{MetadataChange, Tree};

use crate::run::world::{World, path};

/// Runs a job that deletes, with `old` on the target, whose owner may not list it. Returns what failed, and the
/// permissions of `old` if it is still there.
fn after_job(on_target: &str) -> (Vec<String>, Option<u32>) {
    let world = World::new();
    let tree = &world.target;
    simulate(&world.clock, async {
        for folder in ["t/old", "t/old/deep"] {
            tree.make_dir(&path(folder), 0o755).await.unwrap();
        }
        tree.insert_file(&path("t/old/deep/file"), b"old").unwrap();
        for (folder, mode) in [("t/old/deep", 0o300), ("t/old", 0)] {
            let change = MetadataChange {
                mode: Some(mode),
                ..MetadataChange::default()
            };
            tree.set_metadata(&path(folder), &change).await.unwrap();
        }
    });
    // This tree lets everybody in.
    let target: Arc<dyn Tree> = world.faulty(tree, on_target);
    let (failures, _) = world.failures_of_deleting(target);
    let found = simulate(&world.clock, tree.metadata(&path("t/old")));
    let mode = found.ok().and_then(|found| found.mode);
    (failures.keys().map(ToString::to_string).collect(), mode)
}

/// It was listed before it got the permissions for that.
#[test]
fn a_folder_that_its_owner_may_not_list_is_removed() {
    let denied = |path| format!("list:path={path},kind=permission_denied,nth=1");
    let rules = format!("{};{}", denied("t/old"), denied("t/old/deep"));
    assert_eq!(after_job(&rules), (vec![], None));
}

#[test]
fn a_folder_that_stays_keeps_its_permissions() {
    let rules = "list:path=t/old,kind=permission_denied,nth=1;list:path=t/old/deep,kind=permission_denied";
    assert_eq!(after_job(rules), (vec!["old".to_owned()], Some(0)));
}
