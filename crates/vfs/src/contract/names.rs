//! Contract rules for names: making, removing, renaming.

use super::stage::{Stage, error_of, fails, name, path, works};
use crate::{CacheMode, Create, ErrorKind, Name, OpenOptions, RelPath, Result};

pub(super) async fn folders_are_made_once(stage: &Stage) {
    stage.make_dir("dir").await;
    assert!(stage.metadata("dir").await.is_dir());
    stage.make_dir("dir/sub").await;
    stage.write("file", b"x").await;
    for taken in ["dir", "file"] {
        let result = stage.tree.make_dir(&path(taken), 0o755).await;
        fails(taken, result, &[ErrorKind::AlreadyExists]);
    }
    let lost = stage.tree.make_dir(&path("no/sub"), 0o755).await;
    fails("below nothing", lost, &[ErrorKind::NotFound]);
    let below = stage.tree.make_dir(&path("file/sub"), 0o755).await;
    fails("below a file", below, &[ErrorKind::NotADirectory]);
    assert_eq!(stage.names("dir").await, [name("sub")]);
}

pub(super) async fn removal_refuses_the_wrong_kind_and_full_folders(stage: &Stage) {
    stage.make_dir("dir").await;
    stage.write("dir/file", b"x").await;
    let tree = &stage.tree;
    fails(
        "remove a full folder",
        tree.remove_dir(&path("dir")).await,
        &[ErrorKind::NotEmpty],
    );
    // unlink(2) of a folder fails with EISDIR on Linux, with EPERM by POSIX.
    let kinds = [ErrorKind::IsADirectory, ErrorKind::PermissionDenied];
    fails(
        "remove a folder as a file",
        tree.remove_file(&path("dir")).await,
        &kinds,
    );
    let kinds = [ErrorKind::NotADirectory];
    fails(
        "remove a file as a folder",
        tree.remove_dir(&path("dir/file")).await,
        &kinds,
    );
    fails(
        "remove nothing",
        tree.remove_file(&path("no")).await,
        &[ErrorKind::NotFound],
    );
    fails(
        "remove no folder",
        tree.remove_dir(&path("no")).await,
        &[ErrorKind::NotFound],
    );
    assert_eq!(stage.read("dir/file").await, b"x");
    works("remove", tree.remove_file(&path("dir/file")).await);
    assert!(!stage.exists("dir/file").await);
    works("remove", tree.remove_dir(&path("dir")).await);
    assert!(!stage.exists("dir").await);
    stage.make_dir("dir").await;
    assert!(
        stage.names("dir").await.is_empty(),
        "a new folder of an old name is empty"
    );
}

pub(super) async fn rename_moves(stage: &Stage) {
    stage.make_dir("a").await;
    stage.make_dir("b").await;
    stage.write("a/file", b"moved").await;
    works("within", stage.rename("a/file", "a/other", false).await);
    works("across", stage.rename("a/other", "b/file", true).await);
    assert!(!stage.exists("a/file").await && !stage.exists("a/other").await);
    assert_eq!(stage.read("b/file").await, b"moved");
    works("a folder", stage.rename("b", "a/c", false).await);
    assert!(!stage.exists("b").await);
    assert_eq!(stage.read("a/c/file").await, b"moved");
    fails(
        "nothing",
        stage.rename("no", "new", true).await,
        &[ErrorKind::NotFound],
    );
    fails(
        "to nowhere",
        stage.rename("a/c/file", "no/file", true).await,
        &[ErrorKind::NotFound],
    );
    works("onto itself", stage.rename("a/c/file", "a/c/file", true).await);
    assert_eq!(stage.read("a/c/file").await, b"moved");
}

pub(super) async fn rename_replaces_only_when_asked(stage: &Stage) {
    stage.write("old", b"old").await;
    stage.write("new", b"new").await;
    stage.make_dir("empty").await;
    stage.make_dir("dir").await;
    stage.write("dir/file", b"x").await;
    fails(
        "file",
        stage.rename("new", "old", false).await,
        &[ErrorKind::AlreadyExists],
    );
    fails(
        "folder",
        stage.rename("dir", "empty", false).await,
        &[ErrorKind::AlreadyExists],
    );
    assert_eq!(stage.read("old").await, b"old");
    assert_eq!(stage.read("new").await, b"new");
    works("file", stage.rename("new", "old", true).await);
    assert_eq!(stage.read("old").await, b"new");
    assert!(!stage.exists("new").await);
    works("folder", stage.rename("dir", "empty", true).await);
    assert_eq!(stage.read("empty/file").await, b"x");
    assert!(!stage.exists("dir").await);
}

pub(super) async fn rename_refuses_what_does_not_fit(stage: &Stage) {
    stage.write("file", b"file").await;
    stage.make_dir("dir").await;
    stage.make_dir("full").await;
    stage.write("full/file", b"kept").await;
    // POSIX allows EEXIST as well as ENOTEMPTY, and as well as EISDIR for a folder that is not
    // empty.
    let full = [ErrorKind::NotEmpty, ErrorKind::AlreadyExists];
    fails(
        "a folder over a full one",
        stage.rename("dir", "full", true).await,
        &full,
    );
    let kinds = [
        ErrorKind::IsADirectory,
        ErrorKind::AlreadyExists,
        ErrorKind::NotEmpty,
    ];
    fails(
        "a file over a folder",
        stage.rename("file", "dir", true).await,
        &kinds,
    );
    let kinds = [ErrorKind::NotADirectory, ErrorKind::AlreadyExists];
    fails(
        "a folder over a file",
        stage.rename("dir", "file", true).await,
        &kinds,
    );
    error_of(
        "a folder into itself",
        stage.rename("full", "full/sub", true).await,
    );
    assert_eq!(stage.read("file").await, b"file");
    assert_eq!(stage.read("full/file").await, b"kept");
    assert!(stage.metadata("dir").await.is_dir());
}

pub(super) async fn rename_in_does_each(stage: &Stage) {
    stage.make_dir("dir").await;
    for n in 0..20 {
        stage
            .write(&format!("dir/tmp{n}"), n.to_string().as_bytes())
            .await;
    }
    stage.write("dir/file3", b"replaced").await;
    let mut pairs: Vec<(Name, Name)> = (0..20)
        .map(|n| (name(format!("tmp{n}")), name(format!("file{n}"))))
        .collect();
    pairs.insert(7, (name("missing"), name("never")));
    let results = stage.tree.rename_in(&path("dir"), &pairs).await;
    assert_eq!(results.len(), pairs.len());
    for (result, (from, _)) in results.into_iter().zip(&pairs) {
        match from == &name("missing") {
            true => fails("the missing one", result, &[ErrorKind::NotFound]),
            false => works(from, result),
        }
    }
    for n in 0..20 {
        assert_eq!(
            stage.read(&format!("dir/file{n}")).await,
            n.to_string().as_bytes()
        );
    }
    assert_eq!(stage.names("dir").await.len(), 20);
}

async fn create(stage: &Stage, at: &Name) -> Result<()> {
    let options = OpenOptions::write(Create::New, CacheMode::Auto);
    let file = stage.tree.open(&RelPath::root().join(at), options).await?;
    stage.write_at(&*file, at.as_bytes(), 0).await;
    Ok(())
}

pub(super) async fn odd_names_come_back_as_they_were(stage: &Stage) {
    let odd: [&[u8]; 18] = [
        b" ",
        b"-rf",
        b"...",
        b"a b",
        b"new\nline",
        b"tab\t",
        b"quote\"'`$",
        b"back\\slash",
        b"star*?[]",
        b"colon:",
        b"\x7f\x01",
        b"\xff\xfe not UTF-8 \x80",
        "ä composed".as_bytes(),
        "a\u{308} decomposed".as_bytes(),
        "日本語 🚠".as_bytes(),
        b"trailing ",
        b"trailing.",
        b"%2e%2e",
    ];
    let mut made = Vec::new();
    for bytes in odd {
        let odd = name(bytes);
        match create(stage, &odd).await {
            Ok(()) => made.push(odd),
            Err(error) if error.kind == ErrorKind::NameRefused => {}
            // A volume may treat two spellings as one name.
            Err(error) if error.kind == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{odd:?}: {error}"),
        }
    }
    made.sort();
    assert_eq!(stage.names("").await, made);
    assert!(made.contains(&name("a b")) && made.contains(&name("日本語 🚠")));
    for odd in &made {
        let at = RelPath::root().join(odd);
        let file = works(
            odd,
            stage.tree.open(&at, OpenOptions::read(CacheMode::Auto)).await,
        );
        assert_eq!(stage.read_at(&*file, 0, 1000).await, odd.as_bytes());
        drop(file);
        works(odd, stage.tree.remove_file(&at).await);
    }
    assert!(stage.names("").await.is_empty());
}

pub(super) async fn long_names_fit_to_the_limit(stage: &Stage) {
    let limit = stage.can().name_max;
    let longest = name(vec![b'n'; limit]);
    works("the longest name", create(stage, &longest).await);
    assert_eq!(stage.names("").await, std::slice::from_ref(&longest));
    let at = RelPath::root().join(&longest);
    works("lookup", stage.tree.metadata(&at).await);
    let other = name(vec![b'm'; limit]);
    works(
        "rename",
        stage.tree.rename(&at, &RelPath::root().join(&other), false).await,
    );
    let too_long = name(vec![b'n'; limit + 1]);
    fails(
        "too long a name",
        create(stage, &too_long).await,
        &[ErrorKind::NameRefused],
    );
    let made = stage.tree.make_dir(&RelPath::root().join(&too_long), 0o755).await;
    fails("too long a name of a folder", made, &[ErrorKind::NameRefused]);
}

pub(super) async fn case_is_handled_as_the_capabilities_promise(stage: &Stage) {
    stage.write("Name", b"one").await;
    let other = stage.tree.lookup(&RelPath::root(), &[name("nAME")]).await;
    let other = works("lookup", other).pop().expect("one answer for one name");
    let found = works("lookup", other);
    if stage.can().case_sensitive {
        assert!(found.is_none(), "a name that differs in case is another name");
        stage.write("nAME", b"two").await;
        assert_eq!(stage.read("Name").await, b"one");
        assert_eq!(stage.names("").await, [name("Name"), name("nAME")]);
    } else {
        assert!(found.is_some(), "a name that differs in case is the same name");
        fails(
            "create",
            create(stage, &name("nAME")).await,
            &[ErrorKind::AlreadyExists],
        );
        works("respell", stage.rename("Name", "nAME", false).await);
        assert_eq!(stage.names("").await, [name("nAME")]);
        assert_eq!(stage.read("name").await, b"one");
    }
}

pub(super) async fn the_root_cannot_be_removed(stage: &Stage) {
    let root = RelPath::root();
    assert!(works("metadata", stage.tree.metadata(&root).await).is_dir());
    assert!(stage.list(&root, 10).await.is_empty(), "a new tree is empty");
    let taken = stage.tree.make_dir(&root, 0o755).await;
    error_of("make the root", taken);
    error_of("remove the root", stage.tree.remove_dir(&root).await);
    error_of(
        "move the root",
        stage.tree.rename(&root, &path("sub"), true).await,
    );
    works("sync", stage.tree.sync_dir(&root).await);
    stage.write("file", b"still here").await;
    assert_eq!(stage.read("file").await, b"still here");
}
