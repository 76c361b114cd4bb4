//! Contract rules for small files read and written in one call.

use futures_util::future::join_all;

use super::stage::{Stage, error_of, fails, name, noise, path, works};
use crate::{
    CacheMode, Create, ErrorKind, GetSmall, GotSmall, Kind, MetadataChange, PutSmall, Result, Timestamp,
};

/// A time that every volume can hold: even seconds, after 1980.
const WHEN: Timestamp = Timestamp(1_500_000_000_000_000_000);

async fn put_of(stage: &Stage, at: &str, bytes: &[u8]) -> PutSmall {
    let content = match bytes {
        [] => None,
        bytes => Some(stage.block(bytes).await),
    };
    PutSmall {
        path: path(at),
        create: Create::New,
        content,
        change: MetadataChange::default(),
        sync: false,
        rename_to: None,
        cache: CacheMode::Auto,
        same_as: None,
    }
}

async fn get(stage: &Stage, at: &str, size: u64) -> (Vec<u8>, Result<GotSmall>) {
    let block = stage.pool.get().await;
    let get = GetSmall {
        path: path(at),
        size,
        xattrs: true,
        cache: CacheMode::Auto,
        is_known: false,
    };
    let (block, result) = stage.tree.get_small(get, block).await;
    (block.to_vec(), result)
}

pub(super) async fn small_files_are_written_and_read_in_one_call(stage: &Stage) {
    works("folder", stage.tree.make_dir(&path("folder"), 0o755).await);
    for (at, length) in [
        ("folder/some", 5_000),
        ("folder/empty", 0),
        ("one", 1),
        ("block", 1 << 16),
    ] {
        let content = noise(31, length);
        let put = put_of(stage, at, &content).await;
        works(at, stage.tree.put_small(put).await);
        assert_eq!(stage.read(at).await, content, "{at}");
        let (read, got) = get(stage, at, length as u64).await;
        let got = works(at, got);
        assert!(got.whole, "{at} is whole");
        assert_eq!(got.metadata.size, length as u64, "{at}");
        assert_eq!(got.metadata.kind, Kind::File, "{at}");
        assert_eq!(read, content, "{at}");
    }
    let again = put_of(stage, "one", b"two").await;
    fails(
        "a taken name",
        stage.tree.put_small(again).await,
        &[ErrorKind::AlreadyExists],
    );
    assert_eq!(
        stage.read("one").await,
        noise(31, 1),
        "a taken name is left alone"
    );
    let mut again = put_of(stage, "folder/some", b"short").await;
    again.create = Create::Truncate;
    again.sync = true;
    works("truncate", stage.tree.put_small(again).await);
    assert_eq!(
        stage.read("folder/some").await,
        b"short",
        "nothing of the old content stays"
    );
    let nowhere = put_of(stage, "missing/file", b"x").await;
    fails(
        "no folder",
        stage.tree.put_small(nowhere).await,
        &[ErrorKind::NotFound],
    );
}

pub(super) async fn small_files_replace_only_when_whole(stage: &Stage) {
    stage.write("final", b"old").await;
    let mut put = put_of(stage, "temporary", b"new content").await;
    put.rename_to = Some(path("final"));
    put.sync = true;
    works("put over a file", stage.tree.put_small(put).await);
    assert_eq!(stage.read("final").await, b"new content");
    fails(
        "the temporary name",
        stage.tree.metadata(&path("temporary")).await,
        &[ErrorKind::NotFound],
    );
    let mut put = put_of(stage, "temporary", b"first").await;
    put.rename_to = Some(path("another"));
    works("put under a new name", stage.tree.put_small(put).await);
    assert_eq!(stage.read("another").await, b"first");
    works("folder", stage.tree.make_dir(&path("folder"), 0o755).await);
    let mut put = put_of(stage, "folder", b"x").await;
    put.create = Create::New;
    put.rename_to = Some(path("new"));
    let taken = [ErrorKind::AlreadyExists];
    fails(
        "a folder under the first name",
        stage.tree.put_small(put).await,
        &taken,
    );
    fails(
        "the new name",
        stage.tree.metadata(&path("new")).await,
        &[ErrorKind::NotFound],
    );
    let mut put = put_of(stage, "temporary", b"x").await;
    put.rename_to = Some(path("folder"));
    let refused = [
        ErrorKind::IsADirectory,
        ErrorKind::AlreadyExists,
        ErrorKind::PermissionDenied,
    ];
    fails("a folder in the way", stage.tree.put_small(put).await, &refused);
    assert!(works("folder", stage.tree.metadata(&path("folder")).await).is_dir());
}

pub(super) async fn small_files_keep_their_attributes(stage: &Stage) {
    let mut put = put_of(stage, "temporary", b"content").await;
    put.rename_to = Some(path("file"));
    put.change.modified = Some(WHEN);
    put.change.mode = stage.can().modes.then_some(0o640);
    works("put", stage.tree.put_small(put).await);
    let (_, got) = get(stage, "file", 7).await;
    let got = works("get", got).metadata;
    let other = works("metadata", stage.tree.metadata(&path("file")).await);
    assert_eq!(got.modified, WHEN, "set before the rename, kept by it");
    assert_eq!(
        (got.modified, got.size, got.mode),
        (other.modified, other.size, other.mode)
    );
    assert!(got.id.is_none() || got.id == other.id, "the same node");
    if stage.can().modes {
        assert_eq!(got.mode, Some(0o640));
    }
}

pub(super) async fn small_files_are_read_whole_or_not(stage: &Stage) {
    let content = noise(33, 10_000);
    stage.write("grown", &content).await;
    // The listed size is too small: the call returns the whole content, or reports that it did not.
    let (read, got) = get(stage, "grown", 100).await;
    assert!(!works("grown", got).whole || read == content);
    let (read, got) = get(stage, "grown", 60_000).await;
    assert!(!works("shrunk", got).whole || read == content);
    let large = noise(34, stage.pool.block_size() + 1);
    stage.write("large", &large).await;
    let (_, got) = get(stage, "large", large.len() as u64).await;
    assert!(!works("large", got).whole, "more than a block is not whole");
    let (read, got) = get(stage, "missing", 5).await;
    assert_eq!(error_of("missing", got).path, path("missing"));
    assert!(read.is_empty());
    works("folder", stage.tree.make_dir(&path("folder"), 0o755).await);
    let (_, got) = get(stage, "folder", 5).await;
    fails("a folder", got, &[ErrorKind::IsADirectory]);
}

pub(super) async fn many_small_files_at_once(stage: &Stage) {
    works("folder", stage.tree.make_dir(&path("many"), 0o755).await);
    let puts = (0..40_u64).map(|number| async move {
        let content = noise(number, 1 + number as usize * 100);
        let mut put = put_of(stage, &format!("many/.part-{number}"), &content).await;
        put.rename_to = Some(path(&format!("many/{number}")));
        works(number, stage.tree.put_small(put).await);
    });
    join_all(puts).await;
    let gets = (0..40_u64).map(|number| async move {
        let content = noise(number, 1 + number as usize * 100);
        let (read, got) = get(stage, &format!("many/{number}"), content.len() as u64).await;
        assert!(works(number, got).whole && read == content, "file {number}");
    });
    join_all(gets).await;
    let names = [name("0"), name("39"), name(".part-0")];
    let found = works("lookup", stage.tree.lookup(&path("many"), &names).await);
    let found: Vec<bool> = found
        .into_iter()
        .map(|one| works("lookup", one).is_some())
        .collect();
    assert_eq!(found, [true, true, false]);
}
