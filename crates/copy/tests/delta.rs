//! Changed files between trees in memory of which one is a far end: what crosses the line, and what
//! lies cost.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use ropeway_copy::{DeltaMode, JobSpec, Options, Outcome, Status};
use ropeway_vfs::memory::{FarChunks, MemoryTree};
use ropeway_vfs::{Capabilities, MetadataChange, RelPath, Timestamp, Tree};

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
