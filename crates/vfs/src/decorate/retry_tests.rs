use std::sync::atomic::AtomicBool;

use ropeway_block::Pool;

use super::*;
use crate::clock::simulate;
use crate::decorate::faults::{FaultRule, Faults};
use crate::decorate::test_kit::{clock, create, path, read, reader, source, write};
use crate::{Error, ErrorKind, MemoryTree, Name, RelPath};

fn three_times(n: u32) -> Option<Duration> {
    (n <= 3).then(|| Duration::from_millis(100 << n))
}

#[test]
fn what_may_pass_is_repeated_with_pauses() {
    let (clock, time) = clock();
    let rules =
        FaultRule::parse("read:times=2,errno=EIO;write:times=9,errno=EIO;stat:times=1,errno=ETIMEDOUT");
    let faults = Faults::new(source(100), rules.unwrap(), Arc::clone(&time));
    let retry = Retry::new(faults, three_times, time);
    let pool = Pool::new(4096, 1);
    simulate(&clock, async {
        let file = reader(&*retry).await;
        assert_eq!(read(&*file, &pool, 0, 4096).await.unwrap(), 100);
        assert_eq!(clock.now(), Duration::from_millis(600));
        let file = create(&*retry, "new").await.unwrap();
        assert_eq!(
            write(&*file, &pool, 0, 1).await.unwrap_err().kind,
            ErrorKind::DeviceError
        );
        assert_eq!(retry.retries(), 5);
        let name = Name::new(b"file").unwrap();
        let found = retry
            .lookup(&RelPath::root(), &[name])
            .await
            .unwrap()
            .pop()
            .unwrap();
        assert!(found.unwrap().is_some(), "one name is asked again");
        assert!(retry.metadata(&path("missing")).await.is_err());
        assert_eq!(retry.retries(), 6, "what cannot pass is not repeated");
    });
}

/// Does each operation, and claims once that it timed out.
struct LostAnswers {
    lose: AtomicBool,
}

impl Layer for LostAnswers {
    async fn around<'a, T, F>(&'a self, call: Call<'a>, attempt: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: Fn(u32) -> Pending<'a, Result<Done<T>>> + Send + Sync + 'a,
    {
        let result = attempt(0).await;
        if self.lose.swap(false, Ordering::SeqCst) {
            return Err(Error::new(call.action.op(), call.path, ErrorKind::TimedOut));
        }
        result
    }
}

#[test]
fn a_lost_success_is_recognised_and_nothing_else() {
    let (clock, time) = clock();
    let memory = MemoryTree::new();
    memory.insert_file(&path("full"), b"not ours").unwrap();
    memory.insert_file(&path("dir/file"), b"not ours").unwrap();
    let lost = Layered::wrap(
        Arc::new(memory),
        LostAnswers {
            lose: AtomicBool::new(false),
        },
    );
    let lose = || lost.layer.lose.store(true, Ordering::SeqCst);
    let tree = Retry::new(lost.clone(), three_times, time);
    simulate(&clock, async {
        lose();
        drop(create(&*tree, "new").await.unwrap());
        lose();
        tree.make_dir(&path("empty"), 0o755).await.unwrap();
        lose();
        tree.make_symlink(&path("link"), b"text").await.unwrap();
        lose();
        tree.make_hard_link(&path("new"), &path("hard")).await.unwrap();
        lose();
        tree.rename(&path("new"), &path("moved"), false).await.unwrap();
        lose();
        tree.remove_file(&path("moved")).await.unwrap();
        lose();
        tree.remove_dir(&path("empty")).await.unwrap();
        assert_eq!(tree.retries(), 7);
        lose();
        let taken = create(&*tree, "full").await.err().unwrap();
        assert_eq!(
            taken.kind,
            ErrorKind::AlreadyExists,
            "a file with content is not ours"
        );
        lose();
        let taken = tree.make_dir(&path("dir"), 0o755).await.unwrap_err();
        assert_eq!(
            taken.kind,
            ErrorKind::AlreadyExists,
            "a folder with entries is not ours"
        );
        lose();
        let taken = tree.make_symlink(&path("link"), b"other").await.unwrap_err();
        assert_eq!(taken.kind, ErrorKind::AlreadyExists, "another text is not ours");
        lose();
        let taken = tree
            .rename(&path("full"), &path("dir/file"), false)
            .await
            .unwrap_err();
        assert_eq!(
            taken.kind,
            ErrorKind::AlreadyExists,
            "the old name is still there"
        );
        assert_eq!(
            tree.remove_file(&path("moved")).await.unwrap_err().kind,
            ErrorKind::NotFound
        );
    });
}

#[test]
fn a_flush_is_not_repeated() {
    let (clock, time) = clock();
    let rules = FaultRule::parse("sync:times=1,errno=EIO").unwrap();
    let retry = Retry::new(
        Faults::new(source(1), rules, Arc::clone(&time)),
        three_times,
        time,
    );
    simulate(&clock, async {
        assert_eq!(retry.sync().await.unwrap_err().kind, ErrorKind::DeviceError);
        retry.sync().await.unwrap();
    });
}
