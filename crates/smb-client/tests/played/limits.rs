//! Tests names that no request can carry: they are refused without a panic.

use std::sync::Arc;

use super::{Played, options, text};
use crate::peer::Setup;
use ropeway_block::Pool;
use ropeway_smb_client::{NtStatus, SmbTree, SmbTreeOptions, Text};
use ropeway_vfs::{ErrorKind, MetadataChange, OpenOptions, RelPath, Tree};

/// Returns a path of 70,000 units, longer than the 16-bit length in CREATE allows.
fn deep() -> RelPath {
    let mut text = "folder/".repeat(10_000);
    text.push('x');
    RelPath::parse(text.as_bytes()).unwrap()
}

async fn tree(server: &Played, base: &str) -> Arc<SmbTree> {
    let share = server.client(options()).await.share("data").await.unwrap();
    let tree = SmbTree::open(share, base, SmbTreeOptions::default()).await;
    Arc::new(tree.unwrap())
}

/// A local tree may be deeper than a share allows, and a hostile server may list nested folders
/// without end.
#[tokio::test]
async fn a_path_longer_than_a_create_can_carry_is_refused_by_every_operation() {
    let server = Played::start(Setup::default()).await;
    let tree = tree(&server, "").await;
    let (deep, short) = (deep(), RelPath::parse(b"short").unwrap());
    let change = MetadataChange {
        modified: Some(ropeway_vfs::Timestamp::from_unix(1, 0)),
        ..MetadataChange::default()
    };
    let outcomes = [
        tree.metadata(&deep).await.map(drop),
        tree.list(&deep).await.map(drop),
        tree.open(&deep, OpenOptions::default()).await.map(drop),
        tree.make_dir(&deep, 0o755).await,
        tree.make_symlink(&deep, b"text").await,
        tree.make_hard_link(&deep, &short).await,
        tree.read_link(&deep).await.map(drop),
        tree.remove_file(&deep).await,
        tree.remove_dir(&deep).await,
        tree.rename(&deep, &short, true).await,
        tree.rename(&short, &deep, true).await,
        tree.set_metadata(&deep, &change).await.map(drop),
        tree.xattrs(&deep).await.map(drop),
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        let expected = [ErrorKind::NameRefused, ErrorKind::Unsupported];
        assert!(expected.contains(&error.kind), "operation {index}: {error}");
    }
}

#[tokio::test]
async fn a_base_longer_than_a_create_can_carry_is_refused() {
    let server = Played::start(Setup::default()).await;
    let tree = tree(&server, &"folder/".repeat(10_000)).await;
    let root = RelPath::root();
    let error = tree.metadata(&root).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NameRefused, "{error}");
    let error = tree
        .remove_file(&RelPath::parse(b"x").unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NameRefused, "{error}");
}

#[tokio::test]
async fn a_pattern_longer_than_a_request_can_carry_is_refused() {
    let server = Played::start(Setup::default()).await;
    let share = server.client(options()).await.share("data").await.unwrap();
    let error = share.list(&text(""), &"*".repeat(40_000)).await.unwrap_err();
    assert_eq!(error.status(), Some(NtStatus::OBJECT_NAME_INVALID));
}

/// A zero unit would truncate the DFS referral request.
#[tokio::test]
async fn a_path_with_a_zero_is_refused() {
    let server = Played::start(Setup::default()).await;
    let share = server.client(options()).await.share("data").await.unwrap();
    let zero = Text::from_units(vec![u16::from(b'a'), 0]);
    let error = share.stat(&zero).await.unwrap_err();
    assert_eq!(error.status(), Some(NtStatus::OBJECT_NAME_INVALID));
    let (_, outcome) = share
        .get_small(&zero, usize::MAX, Pool::new(512, 1).get().await)
        .await;
    assert!(outcome.is_err());
}
