use std::sync::Arc;

use ropeway_vfs::Tree;
use ropeway_vfs::clock::simulate;

use crate::catalog::{Block, Record, State};
use crate::job::JobFile;
use crate::run::world::{World, path};
use crate::run::{Ended, WorkOptions};
use crate::status::Reader;

/// They were left out silently. Tasks that share a folder list all of it, and each name counts in one of them.
#[test]
fn names_like_temporary_ones_of_ropeway_are_left_out_and_count_once() {
    for entries_max in [3, 4, 7, 100] {
        let world = World::new();
        let folder = ".ropeway-00000000000000ff";
        for at in [folder, "d", "d/.ropeway-0000000000000001"] {
            simulate(&world.clock, world.source.make_dir(&path(at), 0o755)).unwrap();
        }
        let inside = format!("{folder}/file");
        let own = [
            inside.as_str(),
            ".ropeway-0123456789abcdef",
            ".ropeway-notes",
            "z",
            "zz",
        ];
        for file in own {
            world.source.insert_file(&path(file), b"content").unwrap();
        }
        for number in 0..8 {
            let name = format!("d/.ropeway-00000000000001{number:02x}");
            world.source.insert_file(&path(&name), b"content").unwrap();
        }
        let mut options = WorkOptions::default();
        options.walk.entries_max = entries_max;
        let tree = |tree: &Arc<_>| Arc::clone(tree) as Arc<dyn Tree>;
        let (crew, store) = world.crew(tree(&world.source), tree(&world.target), options);
        let mut skipped: Vec<Record> = Vec::new();
        let status = simulate(&world.clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            store.create(&job).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
            for segment in store.segments(None).await.unwrap() {
                for block in store.segment(segment).await.unwrap() {
                    if let Block::Records(found) = block {
                        skipped.extend(found.into_iter().filter(|record| record.state == State::Skipped));
                    }
                }
            }
            Reader::default().status(&store).await.unwrap().unwrap()
        });
        assert_eq!((status.failed, status.sums.skipped), (0, 11), "{entries_max}");
        assert_eq!(skipped.len(), 11, "{entries_max}: {skipped:?}");
        assert_eq!(skipped.iter().map(|record| record.size).sum::<u64>(), 0);
        assert!(world.target.content(&path(&format!("t/{inside}"))).is_err());
        assert!(
            world
                .target
                .content(&path("t/.ropeway-0123456789abcdef"))
                .is_err()
        );
        assert_eq!(
            world.target.content(&path("t/.ropeway-notes")).unwrap(),
            b"content"
        );
    }
}
