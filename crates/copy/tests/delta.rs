//! Changed files between trees in memory of which one is a far end: what crosses the line, and what
//! lies cost.

use std::sync::Arc;

use ropeway_block::Pool;
use ropeway_copy::{Delete, DeltaMode, Durability, JobSpec, KeptBlocks, Options, Outcome, Status};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::memory::{FarChunks, MemoryTree};
use ropeway_vfs::{CacheMode, Capabilities, Create, MetadataChange, OpenOptions, RelPath, Timestamp, Tree};

const SIZE: usize = 3 << 20;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// Returns a tree behind a line of 10 ms or more.
fn far(chunks: FarChunks) -> MemoryTree {
    let tree = MemoryTree::new();
    let capabilities = Capabilities {
        remote: true,
        on_network: true,
        far: true,
        ..tree.capabilities().clone()
    };
    tree.with_capabilities(capabilities).with_far_content(chunks)
}

/// Copies `new` over `old`, from the near to the far end or back, and checks what is there then.
async fn copy(chunks: FarChunks, up: bool, (old, new): (&[u8], &[u8]), options: &Options) -> Outcome {
    let (near, far) = (MemoryTree::new(), far(chunks));
    let (source, target) = if up { (near, far) } else { (far, near) };
    source.insert_file(&path("disk"), new).unwrap();
    target.insert_file(&path("to/disk"), old).unwrap();
    let aged = MetadataChange {
        modified: Some(Timestamp(1)),
        ..Default::default()
    };
    target.set_metadata(&path("to/disk"), &aged).await.unwrap();
    let (source, target) = (Arc::new(source), Arc::new(target));
    let spec = JobSpec::whole(source, target.clone(), path("to"), options.clone());
    let (outcome, events) = spec.run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert!(
        target.content(&path("to/disk")).unwrap() == new,
        "the target has the source's content"
    );
    outcome
}

fn changed(old: &[u8]) -> Vec<u8> {
    let mut new = old.to_vec();
    new[1_000_000..1_000_100].fill(1);
    new.splice(2_000_000..2_000_000, *b"inserted");
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_crosses_the_line() {
    let old = noise(1, SIZE);
    let new = changed(&old);
    for up in [true, false] {
        let outcome = copy(FarChunks::True, up, (&old, &new), &Options::default()).await;
        let sent = outcome.summary.counters.bytes_sent;
        assert!(sent < 300_000, "{sent}");
        assert_eq!(outcome.summary.bytes_reused + sent, new.len() as u64);
        let off = Options {
            delta: DeltaMode::Off,
            ..Options::default()
        };
        let outcome = copy(FarChunks::True, up, (&old, &new), &off).await;
        assert_eq!(outcome.summary.counters.bytes_sent, new.len() as u64);
        assert_eq!(outcome.summary.bytes_reused, 0);
    }
}

/// More than one part, and nearly nothing of it known.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_relation_become_the_source() {
    let old = noise(2, SIZE);
    let moved = [&old[SIZE / 2..], &old[..SIZE / 2]].concat();
    let long = noise(3, 35 << 20);
    let longer = [&long[..], &old[..]].concat();
    let mut zeroes = old.clone();
    zeroes[500_000..2_500_000].fill(0);
    for (old, new) in [
        (&old[..], &moved[..]),
        (&old, &old[..2 << 20]),
        (&old[..10], &old),
        (&long, &longer),
        (&old, &long),
        (&longer, &old),
        (&old, &zeroes),
        (&zeroes, &old),
    ] {
        for up in [true, false] {
            copy(FarChunks::True, up, (old, new), &Options::default()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_cost_only_speed() {
    let old = noise(4, SIZE);
    let new = changed(&old);
    for lies in [FarChunks::Swapped, FarChunks::Tiny, FarChunks::None] {
        for up in [true, false] {
            let outcome = copy(lies, up, (&old, &new), &Options::default()).await;
            assert!(
                outcome.summary.counters.bytes_sent >= new.len() as u64,
                "{lies:?}"
            );
        }
    }
}

/// The hash of the whole content is the same, however the content came.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_has_the_hash_of_the_content() {
    let folder = tempfile::tempdir().unwrap();
    let old = noise(5, SIZE);
    let new = changed(&old);
    for up in [true, false] {
        let manifest = folder.path().join(format!("{up}"));
        let mut options = Options::default();
        options.verify.manifest = Some(manifest.clone());
        let outcome = copy(FarChunks::True, up, (&old, &new), &options).await;
        assert!(outcome.summary.bytes_reused > 0);
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(text.contains(blake3::hash(&new).to_hex().as_str()), "{text}");
    }
}

/// A line that turns out to be fast is not worth comparing; what measured it is not sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_line_sends_everything_once() {
    let old = noise(6, 9 << 20);
    let new = changed(&old);
    for up in [true, false] {
        let near = MemoryTree::new();
        let capabilities = Capabilities {
            remote: true,
            on_network: true,
            ..near.capabilities().clone()
        };
        let other = MemoryTree::new()
            .with_capabilities(capabilities)
            .with_far_content(FarChunks::True);
        let (source, target) = if up { (near, other) } else { (other, near) };
        source.insert_file(&path("disk"), &new).unwrap();
        target.insert_file(&path("to/disk"), &old).unwrap();
        let (source, target) = (Arc::new(source), Arc::new(target));
        let options = Options {
            force: true,
            ..Options::default()
        };
        let spec = JobSpec::whole(source, target.clone(), path("to"), options);
        let (outcome, events) = spec.run().await;
        assert_eq!(outcome.status, Status::Done, "{events:?}");
        assert!(target.content(&path("to/disk")).unwrap() == new);
        let sent = outcome.summary.counters.bytes_sent;
        // A machine that is busy may find it slow.
        assert!(
            sent == new.len() as u64 || outcome.summary.bytes_reused > 0,
            "{sent}"
        );
    }
}

/// Mirrors a source in which a file of 3 MiB was moved to where the target does not have it. `there` is what the
/// target still has in its old place.
async fn mirror_moved(up: bool, to: &str, (there, options): (&[u8], Options)) -> (Outcome, Arc<MemoryTree>) {
    let content = noise(7, SIZE);
    let (near, far) = (MemoryTree::new(), far(FarChunks::True));
    let (source, target) = if up { (near, far) } else { (far, near) };
    source.insert_file(&path(to), &content).unwrap();
    target.insert_file(&path("to/old/disk"), there).unwrap();
    let aged = MetadataChange {
        modified: Some(Timestamp(1_600_000_000_000_000_000)),
        ..Default::default()
    };
    source.set_metadata(&path(to), &aged).await.unwrap();
    target.set_metadata(&path("to/old/disk"), &aged).await.unwrap();
    let (source, target) = (Arc::new(source), Arc::new(target));
    let spec = JobSpec::whole(source, target.clone(), path("to"), options);
    let (outcome, events) = spec.run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert!(target.content(&path(&format!("to/{to}"))).unwrap() == content);
    (outcome, target)
}

fn mirror() -> Options {
    Options {
        delete: Some(Delete::default()),
        preflight: true,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_moved_is_not_sent_again() {
    let content = noise(7, SIZE);
    for up in [true, false] {
        // In a folder that is new, and in one that both ends have.
        for to in ["new/deep/disk", "disk", "old/renamed"] {
            let (outcome, target) = mirror_moved(up, to, (&content, mirror())).await;
            assert_eq!(outcome.summary.counters.bytes_sent, 0, "up {up}, {to}");
            assert_eq!(outcome.summary.bytes_reused, SIZE as u64, "up {up}, {to}");
            assert!(
                target.content(&path("to/old/disk")).is_err(),
                "it was deleted there"
            );
        }
    }
}

/// Files of a folder that is renamed in the source: their sizes, and whether the target has other content of the
/// same size and time.
const ALBUM: [(usize, bool); 7] = [
    (0, false),
    (5_000, false),
    (9_000, false),
    (9_000, true),
    (200_000, false),
    (2_000_000, true),
    (3_000_000, false),
];

/// Mirrors a source in which a folder with [`ALBUM`] has another name than on the target.
async fn mirror_album(up: bool, chunks: FarChunks) -> Outcome {
    let far = far(chunks);
    let capabilities = Capabilities {
        small_in_flight: 256,
        small_puts_in_flight: 256,
        small_gets_in_flight: 256,
        ..far.capabilities().clone()
    };
    let (near, far) = (MemoryTree::new(), far.with_capabilities(capabilities));
    let (source, target) = if up { (near, far) } else { (far, near) };
    let times = |number: i128| MetadataChange {
        modified: Some(Timestamp((1_600_000_000 + number) * 1_000_000_000)),
        ..Default::default()
    };
    for (number, (size, differs)) in ALBUM.into_iter().enumerate() {
        let new = noise(number as u64, size);
        let old = if differs { noise(99, size) } else { new.clone() };
        let at = |top: &str| path(&format!("{top}/{number}"));
        source.insert_file(&at("photos/renamed"), &new).unwrap();
        target.insert_file(&at("to/photos/album"), &old).unwrap();
        let times = times(number as i128);
        source.set_metadata(&at("photos/renamed"), &times).await.unwrap();
        target.set_metadata(&at("to/photos/album"), &times).await.unwrap();
    }
    let (source, target) = (Arc::new(source), Arc::new(target));
    let spec = JobSpec::whole(source.clone(), target.clone(), path("to"), mirror());
    let (outcome, events) = spec.run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    for (number, (size, _)) in ALBUM.into_iter().enumerate() {
        let at = |top: &str| path(&format!("{top}/{number}"));
        let new = at("to/photos/renamed");
        assert!(
            target.content(&new).unwrap() == noise(number as u64, size),
            "{number}"
        );
        let times = target.metadata(&new).await.unwrap().modified;
        assert_eq!(
            times,
            source.metadata(&at("photos/renamed")).await.unwrap().modified
        );
        assert!(target.content(&at("to/photos/album")).is_err());
    }
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_of_a_renamed_folder_are_not_sent_again() {
    let all = |is_sent: fn(usize, bool) -> bool| -> u64 {
        let sent = ALBUM
            .into_iter()
            .filter(|(size, differs)| is_sent(*size, *differs));
        sent.map(|(size, _)| size as u64).sum()
    };
    for up in [true, false] {
        let outcome = mirror_album(up, FarChunks::True).await;
        // The smallest are sent.
        let sent = all(|size, differs| differs || size < 8 << 10);
        assert_eq!(outcome.summary.counters.bytes_sent, sent, "up {up}");
        assert_eq!(outcome.summary.bytes_reused, all(|_, _| true) - sent, "up {up}");
        // A far end that compares nothing.
        let outcome = mirror_album(up, FarChunks::None).await;
        assert_eq!(outcome.summary.counters.bytes_sent, all(|_, _| true), "up {up}");
        assert_eq!(outcome.summary.bytes_reused, 0, "up {up}");
    }
}

/// Size and time are a guess. The content decides.
#[tokio::test(flavor = "multi_thread")]
async fn another_file_of_the_same_size_and_time_is_not_taken_for_it() {
    let content = noise(7, SIZE);
    let mut nearly = content.clone();
    nearly[2_000_000] ^= 1;
    for up in [true, false] {
        let (outcome, _) = mirror_moved(up, "new/disk", (&noise(8, SIZE), mirror())).await;
        assert_eq!(outcome.summary.counters.bytes_sent, SIZE as u64);
        let (outcome, _) = mirror_moved(up, "new/disk", (&nearly, mirror())).await;
        let sent = outcome.summary.counters.bytes_sent;
        assert!((1..400_000).contains(&sent), "{sent}");
    }
}

/// What stays on the target is nothing that was moved.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_mirror_looks_for_what_was_moved() {
    let content = noise(7, SIZE);
    let off = Options {
        delta: DeltaMode::Off,
        ..mirror()
    };
    for options in [Options::default(), off] {
        let is_mirror = options.delete.is_some();
        let (outcome, target) = mirror_moved(true, "new/disk", (&content, options)).await;
        assert_eq!(outcome.summary.counters.bytes_sent, SIZE as u64);
        assert_eq!(target.content(&path("to/old/disk")).is_ok(), !is_mirror);
    }
}

/// What stands in the way of something else is removed while other files are copied, so nothing is built
/// from it: not from a file where a folder must go, and not from one in a folder where a file must go.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_replaced_is_nothing_to_build_from() {
    let content = noise(7, SIZE);
    for (old, new, in_its_way) in [
        ("m/file", "n/file", "m"),
        ("m", "n/file", "m/small"),
        ("m/deep/file", "n", "m"),
    ] {
        for up in [true, false] {
            let (near, far) = (MemoryTree::new(), far(FarChunks::True));
            let (source, target) = if up { (near, far) } else { (far, near) };
            source.insert_file(&path(new), &content).unwrap();
            source.insert_file(&path(in_its_way), b"other").unwrap();
            let old = path(&format!("to/{old}"));
            target.insert_file(&old, &content).unwrap();
            let aged = MetadataChange {
                modified: Some(Timestamp(1_600_000_000_000_000_000)),
                ..Default::default()
            };
            source.set_metadata(&path(new), &aged).await.unwrap();
            target.set_metadata(&old, &aged).await.unwrap();
            let (source, target) = (Arc::new(source), Arc::new(target));
            let spec = JobSpec::whole(source, target.clone(), path("to"), mirror());
            let (outcome, events) = spec.run().await;
            assert_eq!(outcome.status, Status::Done, "{events:?}");
            assert_eq!(outcome.summary.bytes_reused, 0, "{old}");
            for (name, expected) in [(new, &content[..]), (in_its_way, b"other")] {
                let there = target.content(&path(&format!("to/{name}"))).unwrap();
                assert!(there == expected, "{old} to {name}");
            }
        }
    }
}

/// A near source and a far target, between which `disk` is overwritten in place again and again.
struct InPlace {
    source: Arc<MemoryTree>,
    target: Arc<MemoryTree>,
    kept: tempfile::TempDir,
    times: i128,
}

const IMAGE: usize = 5 << 20;
const BLOCK: u64 = 64 << 10;

impl InPlace {
    /// Both ends have an image; nothing is known of the target's.
    fn new() -> Self {
        let target = Arc::new(far(FarChunks::None));
        target.insert_file(&path("to/disk"), &noise(1, IMAGE)).unwrap();
        Self {
            source: Arc::new(MemoryTree::new()),
            target,
            kept: tempfile::tempdir().unwrap(),
            times: 0,
        }
    }

    /// Both ends have a new image, and its blocks are known.
    async fn copied() -> (Self, Vec<u8>) {
        let (mut ends, image) = (Self::new(), noise(2, IMAGE));
        ends.change(&image).await;
        assert_eq!(
            ends.copy(ends.options()).await,
            (IMAGE as u64, 0),
            "nothing is known yet"
        );
        (ends, image)
    }

    fn options(&self) -> Options {
        Options {
            inplace: true,
            kept_blocks: Some(KeptBlocks::new(self.kept.path(), "far")),
            ..Options::default()
        }
    }

    /// Gives the source a content, with a time that no version had.
    async fn change(&mut self, content: &[u8]) {
        overwrite(&self.source, "disk", content).await;
        self.times += 1;
        let times = MetadataChange {
            modified: Some(Timestamp((1_600_000_000 + self.times * 100) * 1_000_000_000)),
            ..Default::default()
        };
        self.source.set_metadata(&path("disk"), &times).await.unwrap();
    }

    async fn copy_by(&self, target: Arc<dyn Tree>, options: Options) -> Outcome {
        let source: Arc<dyn Tree> = self.source.clone();
        JobSpec::whole(source, target, path("to"), options).run().await.0
    }

    /// Copies, compares, and returns the bytes that were sent and that were there.
    async fn copy(&self, options: Options) -> (u64, u64) {
        let outcome = self.copy_by(self.target.clone(), options).await;
        assert_eq!(outcome.status, Status::Done, "{:?}", outcome.fatal);
        assert!(
            self.target.content(&path("to/disk")).unwrap() == self.source.content(&path("disk")).unwrap(),
            "the target has the source's content"
        );
        (outcome.summary.counters.bytes_sent, outcome.summary.bytes_reused)
    }
}

/// Writes a file anew, in the same node.
async fn overwrite(tree: &MemoryTree, at: &str, content: &[u8]) {
    let options = OpenOptions::write(Create::Truncate, CacheMode::Keep);
    let file = tree.open(&path(at), options).await.unwrap();
    let pool = Pool::new(1 << 20, 1);
    for (index, part) in content.chunks(1 << 20).enumerate() {
        let mut block = pool.get().await;
        block.capacity_mut()[..part.len()].copy_from_slice(part);
        block.set_len(part.len());
        file.write_at(block.freeze(), (index as u64) << 20).await.unwrap();
    }
}

/// An image with one more byte changed.
fn with_change(image: &[u8], at: usize) -> Vec<u8> {
    let mut image = image.to_vec();
    image[at] ^= 0x55;
    image
}

#[tokio::test]
async fn in_place_only_blocks_that_changed_are_written_to_any_server() {
    let (mut ends, image) = InPlace::copied().await;
    let whole = IMAGE as u64;
    let image = with_change(&with_change(&image, 70_000), 3_000_000);
    ends.change(&image).await;
    assert_eq!(ends.copy(ends.options()).await, (2 * BLOCK, whole - 2 * BLOCK));
    // The last block, longer and shorter.
    let longer = [&image[..], b"more"].concat();
    ends.change(&longer).await;
    assert_eq!(ends.copy(ends.options()).await, (4, whole));
    ends.change(&longer[..IMAGE - 10]).await;
    assert_eq!(ends.copy(ends.options()).await, (BLOCK - 10, whole - BLOCK));
    // Read back.
    let image = with_change(&image, 9);
    ends.change(&image).await;
    let mut verified = ends.options();
    verified.verify.read_back = true;
    assert_eq!(ends.copy(verified).await, (2 * BLOCK, whole - 2 * BLOCK));
}

#[tokio::test]
async fn a_target_that_others_wrote_is_written_whole() {
    let (mut ends, image) = InPlace::copied().await;
    // With the time that it had.
    let at = path("to/disk");
    let before = ends.target.metadata(&at).await.unwrap();
    overwrite(&ends.target, "to/disk", &with_change(&image, 5)).await;
    let times = MetadataChange {
        modified: Some(before.modified),
        ..Default::default()
    };
    ends.target.set_metadata(&at, &times).await.unwrap();
    ends.change(&with_change(&image, 4_000_000)).await;
    assert_eq!(ends.copy(ends.options()).await, (IMAGE as u64, 0));
}

#[tokio::test]
async fn what_a_failed_run_left_is_written_whole() {
    let (mut ends, image) = InPlace::copied().await;
    // The second of two blocks is refused. What the first one has now, no list says.
    ends.change(&with_change(&with_change(&image, 5), 4_000_000))
        .await;
    let rules = FaultRule::parse("write:nth=2,errno=EIO").unwrap();
    let clock = Arc::new(ropeway_copy::RuntimeClock::new());
    let failing = Faults::new(ends.target.clone(), rules, clock);
    let mut once = ends.options();
    once.retry.tries_max = 1;
    let outcome = ends.copy_by(failing, once).await;
    assert_ne!(outcome.status, Status::Done);
    assert!(stamps(&ends).is_empty(), "the times alone must not decide");
    // The source goes back to what it was, and gets another change.
    ends.change(&with_change(&image, 1_000_000)).await;
    assert_eq!(ends.copy(ends.options()).await, (IMAGE as u64, 0));
}

#[tokio::test]
async fn runs_that_compare_nothing_forget_what_was_kept() {
    for compares_nothing in [
        |options: &mut Options| options.delta = DeltaMode::Off,
        |options: &mut Options| options.durability = Durability::None,
    ] {
        let (mut ends, image) = InPlace::copied().await;
        let mut other = ends.options();
        compares_nothing(&mut other);
        ends.change(&with_change(&image, 5)).await;
        assert_eq!(ends.copy(other).await, (IMAGE as u64, 0));
        assert!(stamps(&ends).is_empty());
        ends.change(&with_change(&image, 6)).await;
        assert_eq!(ends.copy(ends.options()).await, (IMAGE as u64, 0));
        assert_eq!(stamps(&ends).len(), 1);
    }
}

fn stamps(ends: &InPlace) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(ends.kept.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "stamp"))
        .collect()
}

#[tokio::test]
async fn near_targets_are_compared_on_request_only() {
    let mut ends = InPlace::new();
    ends.target = Arc::new(MemoryTree::new());
    ends.target.insert_file(&path("to/disk"), b"old").unwrap();
    let image = noise(2, IMAGE);
    let wanted = |ends: &InPlace, delta| Options {
        delta,
        ..ends.options()
    };
    for (delta, number) in [(DeltaMode::Auto, 1), (DeltaMode::Auto, 2), (DeltaMode::On, 3)] {
        ends.change(&with_change(&image, number)).await;
        assert_eq!(
            ends.copy(wanted(&ends, delta)).await,
            (IMAGE as u64, 0),
            "{number}"
        );
    }
    ends.change(&image).await;
    let (sent, _) = ends.copy(wanted(&ends, DeltaMode::On)).await;
    assert_eq!(sent, BLOCK);
}
