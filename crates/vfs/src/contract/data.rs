//! Contract rules for content.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::FutureExt as _;
use futures_util::future::join_all;

use super::stage::{Stage, error_of, noise, path, works};
use crate::{Create, ErrorKind, Extent, File};

pub(super) async fn reads_are_short_only_at_the_end(stage: &Stage) {
    let content = noise(2, 10_000);
    stage.write("file", &content).await;
    let file = stage.open_to_read("file").await;
    for (offset, length) in [
        (0, 4096),
        (0, 10_000),
        (1, 9_999),
        (4095, 2),
        (8192, 4096),
        (9_999, 1),
        (10_000, 10),
    ] {
        let block = stage.pool.get().await;
        let (block, result) = file.read_at(block, offset as u64, length).await;
        works((offset, length), result);
        let end = (offset + length).min(content.len());
        assert_eq!(
            &block[..],
            &content[offset.min(end)..end],
            "read of {length} at {offset}"
        );
    }
    for (offset, length) in [(0, 0), (20_000, 100), (1 << 40, 1)] {
        let block = stage.pool.get().await;
        let (block, result) = file.read_at(block, offset, length).await;
        works((offset, length), result);
        assert!(block.is_empty(), "read of {length} at {offset}");
    }
    stage.write("empty", b"").await;
    assert!(stage.read("empty").await.is_empty());
}

pub(super) async fn written_bytes_are_read_back(stage: &Stage) {
    let mut content = noise(3, 200_000);
    stage.write("file", &content).await;
    let file = stage.open_to_write("file", Create::No).await;
    for (seed, offset, length) in [
        (4, 0, 1),
        (5, 4090, 12),
        (6, 65_535, 3),
        (7, 100_000, 50_000),
        (8, 199_990, 30),
    ] {
        let part = noise(seed, length);
        stage.write_at(&*file, &part, offset as u64).await;
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&part);
    }
    let empty = stage.block(b"").await;
    works("write nothing", file.write_at(empty, 1_000_000).await);
    assert_eq!(works("size", file.metadata().await).size, content.len() as u64);
    drop(file);
    assert_eq!(stage.read("file").await, content);
}

pub(super) async fn holes_read_as_zeros(stage: &Stage) {
    const FAR: u64 = 1 << 20;
    let file = stage.open_to_write("file", Create::New).await;
    stage.write_at(&*file, b"head", 0).await;
    stage.write_at(&*file, b"tail", FAR).await;
    works("grow", file.set_len(FAR + 1000).await);
    let content = stage.read("file").await;
    assert_eq!(content.len() as u64, FAR + 1000);
    assert_eq!(&content[..4], b"head");
    assert!(
        content[4..FAR as usize].iter().all(|byte| *byte == 0),
        "the hole reads as zeros"
    );
    assert_eq!(&content[FAR as usize..][..4], b"tail");
    assert!(
        content[FAR as usize + 4..].iter().all(|byte| *byte == 0),
        "the new end reads as zeros"
    );
}

pub(super) async fn far_offsets_cost_nothing(stage: &Stage) {
    let far = stage.can().file_size_max.min(1 << 40) - 1;
    if !stage.can().sparse {
        return;
    }
    let file = stage.open_to_write("file", Create::New).await;
    stage.write_at(&*file, b"!", far).await;
    let found = works("metadata", file.metadata().await);
    assert_eq!(found.size, far + 1);
    if let Some(allocated) = found.allocated {
        assert!(allocated < 1 << 20, "{allocated} bytes are allocated for one");
    }
    assert_eq!(stage.read_at(&*file, far - 3, 10).await, b"\0\0\0!");
    let extent = works("extent", file.next_extent(0).await).expect("there is data");
    assert!(extent.offset > far - (1 << 20), "{extent:?} begins in the hole");
    assert_eq!(extent.offset + extent.length, far + 1);
}

pub(super) async fn set_len_cuts_and_grows(stage: &Stage) {
    let content = noise(9, 10_000);
    stage.write("file", &content).await;
    let file = stage.open_to_write("file", Create::No).await;
    works("cut", file.set_len(5_000).await);
    assert_eq!(stage.read("file").await, &content[..5_000]);
    works("grow", file.set_len(10_000).await);
    let grown = stage.read("file").await;
    assert_eq!(&grown[..5_000], &content[..5_000]);
    assert_eq!(&grown[5_000..], [0; 5_000], "what was cut does not come back");
    works("same", file.set_len(10_000).await);
    works("empty", file.set_len(0).await);
    assert!(stage.read("file").await.is_empty());
}

async fn extents(file: &dyn File) -> Vec<Extent> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(extent) = works("next_extent", file.next_extent(at).await) {
        assert!(extent.length > 0, "an extent is not empty: {extent:?}");
        assert!(
            extent.offset >= at,
            "an extent lies behind the offset: {extent:?} at {at}"
        );
        at = extent.offset + extent.length;
        found.push(extent);
    }
    found
}

pub(super) async fn extents_cover_the_data(stage: &Stage) {
    const APART: u64 = 8 << 20;
    let file = stage.open_to_write("file", Create::New).await;
    assert!(extents(&*file).await.is_empty(), "an empty file has no data");
    for at in [0, APART, APART + 65_536, 3 * APART] {
        stage.write_at(&*file, &noise(at, 65_536), at).await;
    }
    let size = 3 * APART + 65_536;
    let found = extents(&*file).await;
    let held = |at: u64| {
        found
            .iter()
            .any(|extent| (extent.offset..extent.offset + extent.length).contains(&at))
    };
    for at in [0, 65_535, APART, APART + 131_071, 3 * APART, size - 1] {
        assert!(held(at), "no extent holds the data at {at}: {found:?}");
    }
    let last = found.last().expect("there is data");
    assert_eq!(last.offset + last.length, size, "extents end with the file");
    if stage.can().sparse {
        let sum: u64 = found.iter().map(|extent| extent.length).sum();
        assert!(sum < APART, "the holes are no data: {found:?}");
    }
    let inside = works("inside", file.next_extent(100).await).expect("there is data");
    assert_eq!(inside.offset, 100, "from inside a run it goes on at once");
    assert_eq!(works("end", file.next_extent(size).await), None);
    assert_eq!(works("beyond", file.next_extent(size + 5).await), None);
    works("grow", file.set_len(size + APART).await);
    if stage.can().sparse {
        assert_eq!(
            works("hole at the end", file.next_extent(size + 65_536).await),
            None
        );
    }
}

pub(super) async fn a_punched_range_reads_as_zeros(stage: &Stage) {
    let mut content = noise(10, 300_000);
    stage.write("file", &content).await;
    let file = stage.open_to_write("file", Create::No).await;
    for (offset, length) in [(10, 20), (65_536, 65_536), (150_000, 70_001), (299_990, 10)] {
        works(
            (offset, length),
            file.punch_hole(offset as u64, length as u64).await,
        );
        content[offset..offset + length].fill(0);
    }
    assert_eq!(works("size", file.metadata().await).size, 300_000);
    let found = stage.read("file").await;
    let differs = found.iter().zip(&content).position(|(one, two)| one != two);
    assert_eq!(differs, None, "first difference");
}

pub(super) async fn allocation_keeps_the_length(stage: &Stage) {
    let file = stage.open_to_write("file", Create::New).await;
    stage.write_at(&*file, b"abc", 0).await;
    works("allocate", file.allocate(1 << 20).await);
    assert_eq!(works("size", file.metadata().await).size, 3);
    assert_eq!(stage.read("file").await, b"abc");
}

pub(super) async fn writes_may_come_in_any_order(stage: &Stage) {
    const PARTS: usize = 40;
    const PART: usize = 5_000;
    let content = noise(11, PARTS * PART);
    let file = stage.open_to_write("file", Create::New).await;
    let (file, content) = (&*file, &content);
    let writes = (0..PARTS).rev().map(|part| async move {
        let start = part * PART;
        stage
            .write_at(file, &content[start..start + PART], start as u64)
            .await;
    });
    join_all(writes).await;
    let reads = (0..PARTS).rev().map(|part| async move {
        let start = part * PART;
        let found = stage.read_at(file, start as u64, PART).await;
        assert_eq!(found, &content[start..start + PART], "part {part}");
    });
    join_all(reads).await;
}

pub(super) async fn handles_share_the_file(stage: &Stage) {
    let one = stage.open_to_write("file", Create::New).await;
    let two = stage.open_to_read("file").await;
    stage.write_at(&*one, b"seen at once", 0).await;
    assert_eq!(stage.read_at(&*two, 0, 100).await, b"seen at once");
    assert_eq!(works("size", two.metadata().await).size, 12);
    works("cut", one.set_len(4).await);
    assert_eq!(stage.read_at(&*two, 0, 100).await, b"seen");
    assert_eq!(two.path(), &path("file"));
}

pub(super) async fn flushing_changes_nothing_visible(stage: &Stage) {
    let content = noise(12, 150_000);
    stage.make_dir("dir").await;
    stage.write("dir/file", &content).await;
    let file = stage.open_to_write("dir/file", Create::No).await;
    works("start_writeback", file.start_writeback(0, 150_000).await);
    works("wait_writeback", file.wait_writeback(0, 150_000).await);
    works("sync data", file.sync(true).await);
    works("sync", file.sync(false).await);
    works("drop_cache", file.drop_cache(0, 150_000).await);
    if let Some(cached) = works("cached", file.cached(0, 150_000).await) {
        // Whole pages, and a page may be as large as 64 KiB.
        assert!(cached <= 150_000 + 65_536, "{cached} bytes cached of 150,000");
    }
    works("sync_dir", stage.tree.sync_dir(&path("dir")).await);
    works("sync tree", stage.tree.sync().await);
    assert_eq!(stage.read("dir/file").await, content);
}

/// Polls the future once and drops it.
async fn touch<F: Future + Unpin>(mut future: F) {
    poll_fn(|cx| {
        let _ = std::pin::Pin::new(&mut future).poll(cx);
        Poll::Ready(())
    })
    .await;
}

pub(super) async fn dropped_operations_do_no_harm(stage: &Stage) {
    let (old, new) = (noise(13, 60_000), noise(14, 60_000));
    stage.write("file", &old).await;
    let file = stage.open_to_write("file", Create::No).await;
    for polled in [false, true, true, true] {
        let block = stage.block(&new).await;
        let write = file.write_at(block, 0);
        if polled {
            touch(write).await;
        }
        let block = stage.pool.get().await;
        let read = file.read_at(block, 0, 60_000);
        if polled {
            touch(read).await;
        }
    }
    // Every block returns to the pool, however long the operations take.
    let mut blocks = Vec::new();
    while blocks.len() < stage.pool.slots() {
        blocks.push(stage.pool.get().await);
    }
    drop(blocks);
    let found = stage.read("file").await;
    let whole = found
        .iter()
        .zip(old.iter().zip(&new))
        .all(|(found, (old, new))| found == old || found == new);
    assert!(
        whole && found.len() == 60_000,
        "each byte is the old or the new one"
    );
    let last = noise(15, 60_000);
    stage.write_at(&*file, &last, 0).await;
    drop(file);
    assert_eq!(stage.read("file").await, last, "a later write wins");
    touch(stage.tree.make_dir(&path("maybe"), 0o755)).await;
    touch(
        stage
            .open("also", crate::OpenOptions::write(Create::New, Default::default()))
            .boxed(),
    )
    .await;
    stage.write("surely", b"x").await;
    assert_eq!(stage.read("surely").await, b"x");
}

pub(super) async fn too_large_is_refused(stage: &Stage) {
    let most = stage.can().file_size_max;
    if most >= i64::MAX as u64 {
        return;
    }
    let file = stage.open_to_write("file", Create::New).await;
    let error = error_of("grow too far", file.set_len(most + 1).await);
    assert!(
        matches!(error.kind, ErrorKind::FileTooLarge | ErrorKind::Other),
        "{error}"
    );
    let block = stage.block(b"xy").await;
    let error = error_of("write too far", file.write_at(block, most - 1).await);
    assert!(
        matches!(error.kind, ErrorKind::FileTooLarge | ErrorKind::Other),
        "{error}"
    );
}
