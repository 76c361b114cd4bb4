//! Contract rules for finding nodes: lookup, listings, watches.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::stage::{Stage, fails, name, path, works};
use crate::tree::Change;
use crate::{CacheMode, Create, ErrorKind, Name, OpenOptions, RelPath};

pub(super) async fn lookup_answers_each_name(stage: &Stage) {
    stage.make_dir("dir").await;
    stage.write("dir/b", b"bb").await;
    stage.make_dir("dir/c").await;
    let names = ["missing", "b", "c", "also missing", "b"].map(name);
    let found = works("lookup", stage.tree.lookup(&path("dir"), &names).await);
    let found: Vec<_> = found.into_iter().map(|one| works("one", one)).collect();
    assert_eq!(found.len(), names.len());
    assert!(
        found[0].is_none() && found[3].is_none(),
        "a missing name is not an error"
    );
    let sizes = [&found[1], &found[4]].map(|one| one.as_ref().map(|metadata| metadata.size));
    assert_eq!(sizes, [Some(2), Some(2)]);
    assert!(found[2].as_ref().is_some_and(crate::Metadata::is_dir));
    let none = works("no names", stage.tree.lookup(&path("dir"), &[]).await);
    assert!(none.is_empty());
    let lost = stage.tree.lookup(&path("no"), &names).await;
    fails("in a missing folder", lost, &[ErrorKind::NotFound]);
    let below = stage.tree.lookup(&path("dir/b"), &names).await;
    fails("in a file", below, &[ErrorKind::NotADirectory]);
}

/// More names than one system call (32 KiB), the first reply of a server (64 KiB) or one page can
/// hold. Not more, because smbd reads the whole folder for each name that is created.
const MANY: usize = 1_200;

async fn make_many(stage: &Stage) -> BTreeSet<Name> {
    stage.make_dir("dir").await;
    let dir = path("dir");
    let names: Vec<Name> = (0..MANY)
        .map(|n| name(format!("a name of some length {n:05}")))
        .collect();
    for chunk in names.chunks(100) {
        let (dir, tree) = (&dir, &stage.tree);
        join_all(chunk.iter().map(|name| async move {
            let options = OpenOptions::write(Create::New, CacheMode::Auto);
            works(name, tree.open(&dir.join(name), options).await);
        }))
        .await;
    }
    names.into_iter().collect()
}

pub(super) async fn listings_are_complete(stage: &Stage) {
    let names = make_many(stage).await;
    for max in [MANY * 2, 1_000, 61] {
        let entries = stage.list(&path("dir"), max).await;
        assert_eq!(entries.len(), MANY, "each name once, in chunks of {max}");
        let found: BTreeSet<Name> = entries.into_iter().map(|entry| entry.name).collect();
        assert_eq!(found, names);
    }
    let dir = path("dir");
    let mut listing = works("list", stage.tree.list(&dir).await);
    while !works("next", listing.next(700).await).is_empty() {}
    assert!(
        works("next", listing.next(700).await).is_empty(),
        "a listing at its end stays at its end"
    );
    stage.make_dir("empty").await;
    assert!(stage.names("empty").await.is_empty());
    fails(
        "list nothing",
        stage.tree.list(&path("no")).await.map(drop),
        &[ErrorKind::NotFound],
    );
    stage.write("file", b"").await;
    let file = path("file");
    let listed = stage.tree.list(&file).await.map(drop);
    fails("list a file", listed, &[ErrorKind::NotADirectory]);
}

pub(super) async fn listings_survive_concurrent_removals(stage: &Stage) {
    let names = make_many(stage).await;
    let dir = path("dir");
    let mut listing = works("list", stage.tree.list(&dir).await);
    let mut found = BTreeSet::new();
    loop {
        let chunk = works("next", listing.next(97).await);
        if chunk.is_empty() {
            break;
        }
        for entry in chunk {
            let at = dir.join(&entry.name);
            assert!(found.insert(entry.name), "no name comes twice");
            works(&at, stage.tree.remove_file(&at).await);
        }
    }
    assert_eq!(found, names, "no name is missed");
    works("the folder", stage.tree.remove_dir(&dir).await);
}

pub(super) async fn listings_report_the_same_as_metadata(stage: &Stage) {
    stage.write("file", b"12345").await;
    stage.make_dir("dir").await;
    if stage.can().symlinks {
        works("link", stage.tree.make_symlink(&path("link"), b"file").await);
    }
    for entry in stage.list(&RelPath::root(), 100).await {
        let listed = works(&entry.name, entry.metadata);
        let at = RelPath::root().join(&entry.name);
        let own = works(&at, stage.tree.metadata(&at).await);
        let view = |one: &crate::Metadata| {
            (
                one.kind,
                one.size,
                one.mode,
                one.owner,
                one.modified,
                one.id,
                one.links,
            )
        };
        if own.is_dir() {
            assert_eq!(
                (listed.kind, listed.modified, listed.id),
                (own.kind, own.modified, own.id),
                "{at}"
            );
        } else {
            assert_eq!(view(&listed), view(&own), "{at}");
        }
    }
}

pub(super) async fn watches_report_changes(stage: &Stage) {
    stage.make_dir("dir").await;
    let mut watch = match stage.tree.watch().await {
        Ok(watch) => watch,
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            return;
        }
    };
    stage.write("dir/file", b"x").await;
    let wanted = Change::Path(path("dir/file"));
    loop {
        let changes = works("next", watch.next().await);
        assert!(!changes.is_empty(), "a watch wakes for something");
        if changes.contains(&wanted) || changes.contains(&Change::Overflow) {
            return;
        }
    }
}
