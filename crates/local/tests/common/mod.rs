//! Shared by the tests: a small executor, trees in temporary folders, both engines.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a helper of tests")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use ropeway_block::{Block, Pool};
use ropeway_local::{IoEngine, LocalOptions, LocalTree};
use ropeway_vfs::{Name, RelPath};

/// Returns the engines that this system has.
pub(crate) fn engines() -> Vec<IoEngine> {
    let base = tempfile::tempdir().unwrap();
    let has = |io| {
        LocalTree::open(
            base.path(),
            LocalOptions {
                io: Some(io),
                ..LocalOptions::default()
            },
        )
        .is_ok()
    };
    assert!(has(IoEngine::Psync));
    [IoEngine::Uring, IoEngine::Psync]
        .into_iter()
        .filter(|io| has(*io))
        .collect()
}

/// Returns a tree in a new temporary folder.
pub(crate) fn tree(io: IoEngine, pool: Option<&Pool>) -> (tempfile::TempDir, Arc<LocalTree>) {
    let base = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        io: Some(io),
        pool: pool.cloned(),
        probe: true,
        ..LocalOptions::default()
    };
    let tree = LocalTree::open(base.path(), options).unwrap();
    (base, tree)
}

/// Drives a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls once and drops the future, so that the operation is orphaned.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(future).as_mut().poll(&mut context).is_ready()
}

pub(crate) fn path(text: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(text.as_ref()).unwrap()
}

pub(crate) fn name(text: impl AsRef<[u8]>) -> Name {
    Name::new(text.as_ref()).unwrap()
}

/// Returns a block with these bytes.
pub(crate) fn block(pool: &Pool, bytes: &[u8]) -> Block {
    let mut block = block_on(pool.get());
    block.capacity_mut()[..bytes.len()].copy_from_slice(bytes);
    block.set_len(bytes.len());
    block.freeze()
}

/// Returns `count` pseudo-random bytes.
pub(crate) fn random_bytes(random: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes);
    bytes
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
