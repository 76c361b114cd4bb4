use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{Kind, Metadata, MetadataChange, Owner, Timestamp, Tree};

use super::is_harmless;
use crate::catalog::{Block, State};
use crate::coordinator::folder_shares;
use crate::job::JobFile;
use crate::run::world::{World, path};
use crate::run::{Ended, WorkOptions};
use crate::status::Reader;
use crate::store::Store;
use crate::task::{Task, Work};
use crate::workers::WorkerId;

const CATALOG: &str = crate::run::world::CATALOG;

#[test]
fn a_folder_that_locks_others_out_is_in_the_way() {
    let owner = |user| Some(Owner { user, group: 1 });
    let mut found = Metadata::bare(Kind::Directory, 0, Timestamp(0));
    found.owner = owner(1);
    let judge = |mode, user: Option<u32>| {
        let change = MetadataChange {
            mode: Some(mode),
            owner: user.and_then(owner),
            ..MetadataChange::default()
        };
        is_harmless(&change, &found)
    };
    assert!(judge(0o755, None) && judge(0o700, None) && judge(0o700, Some(1)) && judge(0o755, Some(2)));
    assert!(!judge(0o555, None) && !judge(0o600, Some(1)) && !judge(0o700, Some(2)));
    let xattr = ropeway_vfs::Xattr {
        name: b"user.a".to_vec(),
        value: Vec::new(),
    };
    let with_xattrs = MetadataChange {
        xattrs: Some(vec![xattr]),
        ..MetadataChange::default()
    };
    assert!(!is_harmless(&with_xattrs, &found));
}

/// One worker had to know all folders, and read the whole catalog for each part of them.
#[test]
fn many_folders_get_their_attributes_by_several_tasks_and_read_only_ones_at_last() {
    let world = World::new();
    let mut made = Vec::new();
    for number in 0..1_300 {
        let outer = path(&format!("d{number:04}"));
        let mode = if number % 100 == 0 { 0o555 } else { 0o751 };
        simulate(&world.clock, world.source.make_dir(&outer, mode)).unwrap();
        made.push((outer, mode));
    }
    for number in [0, 1, 100] {
        let inner = path(&format!("d{number:04}/inner"));
        simulate(&world.clock, world.source.make_dir(&inner, 0o750)).unwrap();
        made.push((inner, 0o750));
    }
    let target = Arc::clone(&world.target) as Arc<dyn Tree>;
    let store = Arc::new(Store::new(Arc::clone(&target), path(CATALOG), WorkerId(1)));
    let source = Arc::clone(&world.source) as Arc<dyn Tree>;
    let crew = world.crew_with(Arc::clone(&store), source, target, WorkOptions::default());
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        store.create(&job).await.unwrap();
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        let status = Reader::default().status(&store).await.unwrap().unwrap();
        let shards = folder_shares(&status.sums);
        assert_eq!((status.failed, shards), (0, 2));
        let mut left = Vec::new();
        for shard in 0..shards {
            let work = Work::FolderShare { shard, shards };
            let task = Task { round: 0, work }.id();
            assert!(store.is_done(task).await.unwrap());
            for segment in store.segments(Some(task)).await.unwrap() {
                for block in store.segment_for_late(segment).await.unwrap() {
                    let Block::Records(records) = block else { continue };
                    assert!(records.iter().all(|record| record.state == State::FolderLeft));
                    left.extend(records.into_iter().map(|record| record.path));
                }
            }
        }
        // The read-only ones were left to the last task, and no others.
        left.sort_unstable();
        let locked = made.iter().filter(|(_, mode)| *mode == 0o555);
        let locked: Vec<_> = locked.map(|(path, _)| path.clone()).collect();
        assert_eq!(left, locked);
        for (folder, mode) in &made {
            let copy = path("t").join_path(folder);
            let found = world.target.metadata(&copy).await.unwrap();
            assert_eq!(found.mode, Some(*mode), "{folder}");
            let original = world.source.metadata(folder).await.unwrap();
            assert_eq!(found.modified, original.modified, "{folder}");
        }
    });
}
