//! Contract rules for opening and creating files.

use super::stage::{Stage, error_of, fails, noise, path, works};
use crate::{CacheMode, Create, ErrorKind, Kind, Metadata, OpenOptions, Timestamp};

const READ: fn() -> OpenOptions = || OpenOptions::read(CacheMode::Auto);

fn writing(create: Create) -> OpenOptions {
    OpenOptions::write(create, CacheMode::Auto)
}

pub(super) async fn open_fails_for_missing_files(stage: &Stage) {
    fails(
        "open a missing file",
        stage.open("no", READ()).await,
        &[ErrorKind::NotFound],
    );
    let missing = stage.open("no", writing(Create::No)).await;
    fails("open a missing file for writing", missing, &[ErrorKind::NotFound]);
    let lost = stage.open("no/file", writing(Create::New)).await;
    fails("create in a missing folder", lost, &[ErrorKind::NotFound]);
    stage.write("file", b"x").await;
    let below = stage.open("file/below", writing(Create::New)).await;
    fails("create below a file", below, &[ErrorKind::NotADirectory]);
    fails(
        "open below a file",
        stage.open("file/below", READ()).await,
        &[ErrorKind::NotADirectory],
    );
}

pub(super) async fn new_refuses_a_taken_name(stage: &Stage) {
    stage.write("file", b"kept").await;
    stage.make_dir("dir").await;
    for taken in ["file", "dir"] {
        let result = stage.open(taken, writing(Create::New)).await;
        fails(taken, result, &[ErrorKind::AlreadyExists]);
    }
    assert_eq!(stage.read("file").await, b"kept");
    if stage.can().symlinks {
        works("link", stage.tree.make_symlink(&path("link"), b"nowhere").await);
        let result = stage.open("link", writing(Create::New)).await;
        fails("link", result, &[ErrorKind::AlreadyExists]);
    }
}

pub(super) async fn truncate_empties_and_if_missing_keeps(stage: &Stage) {
    stage.write("file", &noise(1, 5000)).await;
    drop(stage.open_to_write("file", Create::IfMissing).await);
    assert_eq!(
        stage.read("file").await,
        noise(1, 5000),
        "IfMissing keeps the content"
    );
    drop(stage.open_to_write("file", Create::No).await);
    assert_eq!(stage.read("file").await, noise(1, 5000), "No keeps the content");
    drop(stage.open_to_write("file", Create::Truncate).await);
    assert_eq!(stage.metadata("file").await.size, 0, "Truncate empties");
    for (at, create) in [
        ("b", Create::IfMissing),
        ("c", Create::Truncate),
        ("d", Create::New),
    ] {
        let file = stage.open_to_write(at, create).await;
        stage.write_at(&*file, b"new", 0).await;
        drop(file);
        assert_eq!(stage.read(at).await, b"new", "{create:?} creates");
    }
}

pub(super) async fn only_regular_files_open(stage: &Stage) {
    stage.make_dir("dir").await;
    fails(
        "open a folder",
        stage.open("dir", READ()).await,
        &[ErrorKind::IsADirectory],
    );
    let emptied = stage.open("dir", writing(Create::Truncate)).await;
    fails("empty a folder", emptied, &[ErrorKind::IsADirectory]);
    if stage.can().special_files {
        let fifo = Metadata {
            mode: Some(0o600),
            ..Metadata::bare(Kind::Fifo, 0, Timestamp::default())
        };
        works("fifo", stage.tree.make_special(&path("fifo"), &fifo).await);
        // Opening must not hang either.
        error_of("open a FIFO", stage.open("fifo", READ()).await);
    }
}

pub(super) async fn a_handle_for_reading_does_not_write(stage: &Stage) {
    stage.write("file", b"kept").await;
    let file = stage.open_to_read("file").await;
    let block = stage.block(b"lost").await;
    error_of("write for reading only", file.write_at(block, 0).await);
    error_of("cut for reading only", file.set_len(0).await);
    assert_eq!(stage.read("file").await, b"kept");
}

pub(super) async fn new_files_have_the_mode_asked_for(stage: &Stage) {
    if !stage.can().modes {
        return;
    }
    for mode in [0o600, 0o644, 0o666, 0o400] {
        let at = format!("f{mode:o}");
        let options = OpenOptions {
            mode,
            ..writing(Create::New)
        };
        let file = works(&at, stage.open(&at, options).await);
        // The creator may write even where the mode forbids writing.
        stage.write_at(&*file, b"x", 0).await;
        let found = works(&at, file.metadata().await).mode;
        assert_eq!(found, Some(mode), "the mode of a new file is not masked");
    }
    works("dir", stage.tree.make_dir(&path("dir"), 0o700).await);
    assert_eq!(stage.metadata("dir").await.mode, Some(0o700));
}

pub(super) async fn an_open_file_survives_rename_and_removal(stage: &Stage) {
    let file = stage.open_to_write("old", Create::New).await;
    stage.write_at(&*file, b"one", 0).await;
    works("rename", stage.rename("old", "new", false).await);
    stage.write_at(&*file, b"two", 3).await;
    assert_eq!(stage.read("new").await, b"onetwo");
    if !stage.can().replaces_open {
        return;
    }
    stage.write("other", b"other").await;
    works("replace", stage.rename("other", "new", true).await);
    stage.write_at(&*file, b"three", 6).await;
    assert_eq!(stage.read_at(&*file, 0, 100).await, b"onetwothree");
    assert_eq!(stage.read("new").await, b"other");
}

pub(super) async fn errors_name_the_node(stage: &Stage) {
    stage.make_dir("dir").await;
    let missing = path("dir/missing");
    let errors = [
        error_of("stat", stage.tree.metadata(&missing).await),
        error_of("open", stage.tree.open(&missing, READ()).await),
        error_of("remove", stage.tree.remove_file(&missing).await),
        error_of("list", stage.tree.list(&missing).await),
        error_of("readlink", stage.tree.read_link(&missing).await),
        error_of("xattrs", stage.tree.xattrs(&missing).await),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
        assert_eq!(error.path, missing, "{error}");
    }
}
