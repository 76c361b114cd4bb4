use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{MetadataChange, Tree};

use crate::job::JobFile;
use crate::run::late::tests::{CATALOG, World, path};
use crate::run::{Ended, WorkOptions};
use crate::status::Reader;
use crate::store::Store;
use crate::workers::WorkerId;

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
    let store = Arc::new(Store::new(Arc::clone(&target), path(CATALOG), WorkerId(1)));
    let source = Arc::clone(&world.source) as _;
    let crew = world.crew_with(Arc::clone(&store), source, target, WorkOptions::default());
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned()).with_deletions(true);
        store.create(&job).await.unwrap();
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        let failures = Reader::default().failures(&store).await.unwrap();
        let mode = tree
            .metadata(&path("t/old"))
            .await
            .ok()
            .and_then(|found| found.mode);
        (failures.keys().map(ToString::to_string).collect(), mode)
    })
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
