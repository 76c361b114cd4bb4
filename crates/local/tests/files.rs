//! Data of open files: both engines against memory, dropped futures, direct I/O, the page cache.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::common::{block, block_on, engines, path, poll_once, random_bytes, tree};
use ropeway_block::Pool;
use ropeway_vfs::{CacheMode, Create, ErrorKind, Extent, File, OpenOptions, Tree};

const MODES: [CacheMode; 4] = [
    CacheMode::Auto,
    CacheMode::Keep,
    CacheMode::Leave,
    CacheMode::Direct,
];

fn create(tree: &dyn Tree, name: &str, cache: CacheMode) -> Arc<dyn File> {
    block_on(tree.open(&path(name), OpenOptions::write(Create::New, cache))).unwrap()
}

#[test]
fn random_writes_and_reads_agree_with_memory() {
    for io in engines() {
        for mode in MODES {
            let pool = Pool::new(256 * 1024, 4);
            let (base, tree) = tree(io, Some(&pool));
            let file = create(&*tree, "file", mode);
            let mut model: Vec<u8> = Vec::new();
            let mut random = fastrand::Rng::with_seed(7);
            for step in 0..120 {
                // Every third access is aligned, so that direct I/O is tested too.
                let align = if step % 3 == 0 { 4096 } else { 1 };
                let offset = random.usize(..3 << 20) / align * align;
                let length = (random.usize(..pool.block_size()) + 1).next_multiple_of(align);
                if random.usize(..2) == 0 {
                    let bytes = random_bytes(&mut random, length);
                    if model.len() < offset + length {
                        model.resize(offset + length, 0);
                    }
                    model[offset..offset + length].copy_from_slice(&bytes);
                    block_on(file.write_at(block(&pool, &bytes), offset as u64)).unwrap();
                } else {
                    let target = pool.try_get().unwrap();
                    let (read, result) = block_on(file.read_at(target, offset as u64, length));
                    result.unwrap();
                    let end = model.len().min(offset + length);
                    assert!(
                        read[..] == model[offset.min(end)..end],
                        "{io:?} {mode:?} step {step}"
                    );
                }
            }
            block_on(file.sync(false)).unwrap();
            drop(file);
            assert!(
                std::fs::read(base.path().join("file")).unwrap() == model,
                "{io:?} {mode:?}"
            );
        }
    }
}

#[test]
fn blocks_outside_the_registered_pool_work_too() {
    for io in engines() {
        let (pool, other) = (Pool::new(8192, 2), Pool::new(8192, 2));
        let (base, tree) = tree(io, Some(&pool));
        let file = create(&*tree, "file", CacheMode::Keep);
        let part = block(&other, b"0123456789").slice(2..7);
        block_on(file.write_at(part, 0)).unwrap();
        let (read, result) = block_on(file.read_at(other.try_get().unwrap(), 1, 100));
        result.unwrap();
        assert_eq!(&read[..], b"3456");
        assert_eq!(std::fs::read(base.path().join("file")).unwrap(), b"23456");
    }
}

#[test]
fn dropped_futures_leave_buffers_with_the_kernel() {
    for io in engines() {
        let pool = Pool::new(1 << 20, 8);
        let (base, tree) = tree(io, Some(&pool));
        let file = create(&*tree, "file", CacheMode::Keep);
        let bytes = vec![0x5a; 1 << 20];
        for round in 0..50u64 {
            poll_once(file.write_at(block(&pool, &bytes), (round % 4) << 20));
            if let Some(target) = pool.try_get() {
                poll_once(file.read_at(target, (round % 4) << 20, 1 << 20));
            }
        }
        drop(file);
        drop(tree);
        // Every buffer returns when the kernel has finished with it.
        for _ in 0..1000 {
            if pool.available() == pool.slots() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(pool.available(), pool.slots(), "{io:?}");
        let written = std::fs::read(base.path().join("file")).unwrap();
        assert!(written.iter().all(|byte| *byte == 0x5a || *byte == 0));
    }
}

#[test]
fn many_operations_at_once_all_complete() {
    for io in engines() {
        let pool = Pool::new(4096, 600);
        let (_base, tree) = tree(io, Some(&pool));
        let file = create(&*tree, "file", CacheMode::Keep);
        let writes = (0..600u64).map(|i| file.write_at(block(&pool, &[i as u8; 4096]), i * 4096));
        for result in block_on(futures_util::future::join_all(writes)) {
            result.unwrap();
        }
        let reads = (0..600u64).map(|i| file.read_at(pool.try_get().unwrap(), i * 4096, 4096));
        for (i, (read, result)) in block_on(futures_util::future::join_all(reads))
            .into_iter()
            .enumerate()
        {
            result.unwrap();
            assert!(read.len() == 4096 && read.iter().all(|byte| *byte == i as u8));
        }
    }
}

#[test]
fn leave_and_direct_put_nothing_into_the_cache_and_take_nothing_out() {
    const SIZE: u64 = 20 << 20;
    for io in engines() {
        for mode in [CacheMode::Leave, CacheMode::Direct] {
            let pool = Pool::new(1 << 20, 4);
            let (base, tree) = tree(io, Some(&pool));
            let file = create(&*tree, "new", mode);
            for at in 0..20u64 {
                block_on(file.write_at(block(&pool, &vec![at as u8; 1 << 20]), at << 20)).unwrap();
            }
            block_on(file.sync(true)).unwrap();
            assert_cached(&*file, SIZE, |cached| cached == 0);
            // Pages of another program: two megabytes in the middle. The kernel may reclaim a few at any time.
            let other = std::fs::File::open(base.path().join("new")).unwrap();
            rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::Random).unwrap();
            other.read_exact_at(&mut vec![0; 2 << 20], 9 << 20).unwrap();
            assert_cached(&*file, SIZE, |cached| (1 << 20..4 << 20).contains(&cached));
            let reader = block_on(tree.open(&path("new"), OpenOptions::read(mode))).unwrap();
            for at in 0..20u64 {
                let (read, result) = block_on(reader.read_at(pool.try_get().unwrap(), at << 20, 1 << 20));
                result.unwrap();
                assert!(read.iter().all(|byte| *byte == at as u8));
            }
            drop(reader);
            assert_cached(&*file, SIZE, |cached| (1 << 20..4 << 20).contains(&cached));
            block_on(file.drop_cache(0, u64::MAX)).unwrap();
            assert_cached(&*file, SIZE, |cached| cached == 0);
        }
    }
}

/// Polls for a while, since dropping pages may be asynchronous. Volumes without cache statistics are
/// skipped.
fn assert_cached(file: &dyn File, length: u64, good: impl Fn(u64) -> bool) {
    let mut last = 0;
    for _ in 0..200 {
        match block_on(file.cached(0, length)).unwrap() {
            None => return,
            Some(cached) if good(cached) => return,
            Some(cached) => last = cached,
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{last} of {length} bytes are cached");
}

#[test]
fn extents_holes_and_ranges() {
    for io in engines() {
        let pool = Pool::new(64 * 1024, 4);
        let (_base, tree) = tree(io, None);
        let file = create(&*tree, "sparse", CacheMode::Keep);
        block_on(file.set_len(1 << 40)).unwrap();
        block_on(file.write_at(block(&pool, &[1; 65536]), 1 << 20)).unwrap();
        block_on(file.write_at(block(&pool, &[2; 65536]), 1 << 39)).unwrap();
        let first = block_on(file.next_extent(0)).unwrap();
        assert_eq!(
            first,
            Some(Extent {
                offset: 1 << 20,
                length: 65536
            })
        );
        let second = block_on(file.next_extent((1 << 20) + 65536)).unwrap();
        assert_eq!(
            second,
            Some(Extent {
                offset: 1 << 39,
                length: 65536
            })
        );
        assert_eq!(block_on(file.next_extent((1 << 39) + 65536)).unwrap(), None);
        assert_eq!(block_on(file.next_extent(1 << 41)).unwrap(), None);
        block_on(file.punch_hole(1 << 20, 65536)).unwrap();
        assert_eq!(block_on(file.next_extent(0)).unwrap(), second);
        assert!(block_on(file.metadata()).unwrap().is_sparse());

        let copy = create(&*tree, "copy", CacheMode::Keep);
        block_on(copy.allocate(65536)).unwrap();
        assert_eq!(block_on(copy.metadata()).unwrap().size, 0);
        if let Some(count) = block_on(copy.copy_range_from(&*file, 1 << 39, 1 << 30)).unwrap() {
            assert!(count >= 65536);
            let (read, result) = block_on(copy.read_at(pool.try_get().unwrap(), 1 << 39, 65536));
            result.unwrap();
            assert_eq!(&read[..], &[2; 65536]);
        }
        // True on volumes that share blocks, else false; never an error.
        block_on(copy.reflink_from(&*file)).unwrap();
        block_on(file.start_writeback(0, 1 << 40)).unwrap();
        block_on(file.wait_writeback(0, 0)).unwrap();
    }
}

#[test]
fn only_regular_files_open_and_no_fifo_hangs() {
    for io in engines() {
        let (base, tree) = tree(io, None);
        rustix::fs::mkfifoat(rustix::fs::CWD, base.path().join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", base.path().join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(base.path().join("socket")).unwrap();
        std::fs::create_dir(base.path().join("dir")).unwrap();
        for (node, kind) in [
            ("fifo", ErrorKind::Unsupported),
            ("socket", ErrorKind::Unsupported),
            ("link", ErrorKind::SymbolicLink),
            ("dir", ErrorKind::IsADirectory),
            ("none", ErrorKind::NotFound),
        ] {
            let options = OpenOptions::read(CacheMode::Auto);
            let error = block_on(tree.open(&path(node), options)).err().unwrap();
            assert_eq!(error.kind, kind, "{node}: {error}");
            let options = OpenOptions::write(Create::No, CacheMode::Auto);
            assert_eq!(
                block_on(tree.open(&path(node), options)).err().unwrap().kind,
                kind,
                "{node}"
            );
        }
    }
}

#[test]
fn a_bad_engine_is_named() {
    let base = tempfile::tempdir().unwrap();
    let missing = base.path().join("none");
    let error = ropeway_local::LocalTree::open(&missing, ropeway_local::LocalOptions::default())
        .err()
        .unwrap();
    assert_eq!(error.kind, ErrorKind::NotFound);
}
