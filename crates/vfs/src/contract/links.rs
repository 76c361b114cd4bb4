//! Contract rules for links and special nodes.

use super::stage::{Stage, error_of, fails, name, path, works};
use crate::{CacheMode, Create, ErrorKind, Kind, Loss, Metadata, MetadataChange, OpenOptions, Timestamp};

pub(super) async fn symbolic_links_keep_their_text(stage: &Stage) {
    if !stage.can().symlinks {
        let result = stage.tree.make_symlink(&path("link"), b"x").await;
        // symlink(2) on FAT fails with EPERM.
        fails(
            "symlink",
            result,
            &[ErrorKind::Unsupported, ErrorKind::PermissionDenied],
        );
        return;
    }
    let texts: [&[u8]; 5] = [
        b"file",
        b"../../outside",
        b"/absolute/nowhere",
        "ä 🚠".as_bytes(),
        &[b'x'; 1000],
    ];
    for (n, text) in texts.into_iter().enumerate() {
        let at = path(&format!("link{n}"));
        works(&at, stage.tree.make_symlink(&at, text).await);
        assert_eq!(works(&at, stage.tree.read_link(&at).await), text);
        let metadata = works(&at, stage.tree.metadata(&at).await);
        assert_eq!(metadata.kind, Kind::Symlink);
        assert_eq!(metadata.size, text.len() as u64);
    }
    let taken = stage.tree.make_symlink(&path("link0"), b"other").await;
    fails("a taken name", taken, &[ErrorKind::AlreadyExists]);
    stage.write("file", b"x").await;
    error_of("read_link of a file", stage.tree.read_link(&path("file")).await);
    works("remove", stage.tree.remove_file(&path("link0")).await);
    assert!(stage.exists("file").await, "the link is removed, not its target");
}

pub(super) async fn symbolic_links_are_never_followed(stage: &Stage) {
    if !stage.can().symlinks {
        return;
    }
    stage.write("file", b"kept").await;
    let before = stage.metadata("file").await;
    works("link", stage.tree.make_symlink(&path("link"), b"file").await);
    let kinds = [ErrorKind::SymbolicLink];
    for create in [Create::No, Create::IfMissing, Create::Truncate] {
        let options = OpenOptions::write(create, CacheMode::Auto);
        fails("open a link", stage.open("link", options).await, &kinds);
    }
    fails(
        "open a link",
        stage.open("link", OpenOptions::read(CacheMode::Auto)).await,
        &kinds,
    );
    let found = works("lookup", stage.tree.lookup(&path(""), &[name("link")]).await).pop();
    let found = found
        .and_then(|one| works("lookup", one))
        .expect("the link is there");
    assert_eq!(found.kind, Kind::Symlink);
    let old = Timestamp::from_unix(1_000_000_000, 0);
    let change = MetadataChange {
        modified: Some(old),
        mode: Some(0o600),
        ..MetadataChange::default()
    };
    let losses = stage.set("link", change).await;
    let granularity = stage.can().time_granularity_ns;
    let own = stage.metadata("link").await.modified;
    assert!(
        own.equal_within(old, granularity) || losses.contains(&Loss::Times),
        "the link has its own time"
    );
    let after = stage.metadata("file").await;
    assert_eq!(
        (after.modified, after.mode),
        (before.modified, before.mode),
        "the file is untouched"
    );
    stage.write("new", b"new").await;
    works("replace", stage.rename("new", "link", true).await);
    assert_eq!(
        stage.metadata("link").await.kind,
        Kind::File,
        "the link is replaced"
    );
    assert_eq!(stage.read("file").await, b"kept");
}

pub(super) async fn paths_do_not_lead_through_symbolic_links(stage: &Stage) {
    if !stage.can().symlinks {
        return;
    }
    stage.make_dir("dir").await;
    stage.make_dir("dir/sub").await;
    stage.write("dir/sub/file", b"kept").await;
    stage.write("dir/file", b"kept").await;
    works("link", stage.tree.make_symlink(&path("link"), b"dir").await);
    let tree = &stage.tree;
    // openat2(2) without links fails with ELOOP, O_NOFOLLOW|O_DIRECTORY with ENOTDIR.
    let kinds = [ErrorKind::SymbolicLink, ErrorKind::NotADirectory];
    let read = OpenOptions::read(CacheMode::Auto);
    let new = OpenOptions::write(Create::New, CacheMode::Auto);
    for below in ["link/file", "link/sub/file"] {
        fails("metadata", tree.metadata(&path(below)).await, &kinds);
        fails("open", stage.open(below, read).await, &kinds);
        fails("remove", tree.remove_file(&path(below)).await, &kinds);
        fails("rename from", stage.rename(below, "stolen", true).await, &kinds);
        fails("rename to", stage.rename("dir/file", below, true).await, &kinds);
        fails(
            "attributes",
            tree.set_metadata(&path(below), &MetadataChange::default()).await,
            &kinds,
        );
        fails("xattrs", tree.xattrs(&path(below)).await, &kinds);
    }
    fails("create", stage.open("link/new", new).await, &kinds);
    fails("make_dir", tree.make_dir(&path("link/new"), 0o755).await, &kinds);
    fails(
        "make_symlink",
        tree.make_symlink(&path("link/new"), b"x").await,
        &kinds,
    );
    fails("remove_dir", tree.remove_dir(&path("link/sub")).await, &kinds);
    fails("list", tree.list(&path("link")).await.map(drop), &kinds);
    fails("list", tree.list(&path("link/sub")).await.map(drop), &kinds);
    fails(
        "lookup",
        tree.lookup(&path("link"), &[name("file")]).await,
        &kinds,
    );
    fails("read_link", tree.read_link(&path("link/file")).await, &kinds);
    if stage.can().hard_links {
        let linked = tree.make_hard_link(&path("link/file"), &path("hard")).await;
        fails("make_hard_link", linked, &kinds);
    }
    assert_eq!(stage.names("dir").await, [name("file"), name("sub")]);
    assert_eq!(stage.names("").await, [name("dir"), name("link")]);
    assert_eq!(stage.read("dir/sub/file").await, b"kept");
}

pub(super) async fn hard_links_share_everything(stage: &Stage) {
    stage.write("one", b"shared").await;
    stage.make_dir("dir").await;
    let (one, two) = (path("one"), path("dir/two"));
    let linked = stage.tree.make_hard_link(&one, &two).await;
    if !stage.can().hard_links {
        fails(
            "link",
            linked,
            &[ErrorKind::Unsupported, ErrorKind::PermissionDenied],
        );
        return;
    }
    works("link", linked);
    let file = stage.open_to_write("dir/two", Create::No).await;
    stage.write_at(&*file, b"SHARED!", 0).await;
    drop(file);
    assert_eq!(stage.read("one").await, b"SHARED!");
    let (first, second) = (stage.metadata("one").await, stage.metadata("dir/two").await);
    assert_eq!((first.links, second.links), (2, 2));
    assert_eq!(first.id, second.id);
    fails(
        "a taken name",
        stage.tree.make_hard_link(&one, &two).await,
        &[ErrorKind::AlreadyExists],
    );
    let lost = stage.tree.make_hard_link(&path("no"), &path("three")).await;
    fails("of nothing", lost, &[ErrorKind::NotFound]);
    error_of(
        "of a folder",
        stage.tree.make_hard_link(&path("dir"), &path("three")).await,
    );
    works("remove", stage.tree.remove_file(&one).await);
    assert_eq!(stage.read("dir/two").await, b"SHARED!");
    assert_eq!(stage.metadata("dir/two").await.links, 1);
}

pub(super) async fn special_nodes_are_kept(stage: &Stage) {
    let fifo = Metadata {
        mode: Some(0o640),
        ..Metadata::bare(Kind::Fifo, 0, Timestamp::default())
    };
    let at = path("fifo");
    let made = stage.tree.make_special(&at, &fifo).await;
    if !stage.can().special_files {
        fails(
            "fifo",
            made,
            &[ErrorKind::Unsupported, ErrorKind::PermissionDenied],
        );
        return;
    }
    works("fifo", made);
    assert_eq!(stage.metadata("fifo").await.kind, Kind::Fifo);
    let listed = stage.list(&path(""), 10).await.pop().expect("one entry");
    assert_eq!(works("listed", listed.metadata).kind, Kind::Fifo);
    fails(
        "again",
        stage.tree.make_special(&at, &fifo).await,
        &[ErrorKind::AlreadyExists],
    );
    // Devices need privilege: they are made exactly, or refused. 1:3 is null
    // (Documentation/admin-guide/devices.txt).
    let device = Metadata {
        mode: Some(0o600),
        device: Some((1, 3)),
        ..Metadata::bare(Kind::CharDevice, 0, Timestamp::default())
    };
    match stage.tree.make_special(&path("null"), &device).await {
        Ok(()) => {
            let found = stage.metadata("null").await;
            assert_eq!((found.kind, found.device), (Kind::CharDevice, Some((1, 3))));
        }
        Err(error) => assert!(
            matches!(error.kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported),
            "{error}"
        ),
    }
    works("rename", stage.rename("fifo", "pipe", false).await);
    works("remove", stage.tree.remove_file(&path("pipe")).await);
    let bad = Metadata::bare(Kind::File, 0, Timestamp::default());
    error_of(
        "a file as a special node",
        stage.tree.make_special(&path("bad"), &bad).await,
    );
}
