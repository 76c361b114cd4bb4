//! Tests a share as a tree, against a private smbd: the contract of trees, and copies both ways.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use ropeway_block::Pool;
use ropeway_copy::{Durability, JobSpec, Options, Status, Verification};
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_peers::{Share, Smbd, or_skip};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, SmbTree, SmbTreeOptions};
use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, File, MetadataChange, Name, OpenOptions, RelPath, Timestamp, Tree,
    Xattr, contract,
};

async fn connect(smbd: &Smbd) -> Client {
    let endpoint = Endpoint::new("127.0.0.1", smbd.port());
    let login = Login::password("", "alice", "secret");
    Client::connect(&endpoint, login, ClientOptions::default())
        .await
        .unwrap()
}

async fn tree(client: &Client, share: &str, base: &str) -> Arc<SmbTree> {
    tree_with(client, share, base, false).await
}

async fn tree_with(client: &Client, share: &str, base: &str, acls: bool) -> Arc<SmbTree> {
    let share = client.share(share).await.unwrap();
    let options = SmbTreeOptions {
        acls,
        ..SmbTreeOptions::default()
    };
    Arc::new(SmbTree::open(share, base, options).await.unwrap())
}

fn local(path: &Path) -> Arc<LocalTree> {
    LocalTree::open(path, LocalOptions::default()).unwrap()
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_fulfils_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let share = |name| Share::new(name, folder.path());
    let builder = Smbd::builder().user("alice", "secret").share(share("data"));
    let smbd = or_skip!(builder.share(share("all").streams().acls()).start());
    let client = connect(&smbd).await;
    let pool = Pool::new(1 << 16, 8);
    let count = AtomicUsize::new(0);
    for (name, acls) in [("data", false), ("all", true)] {
        let make = || -> Arc<dyn Tree> {
            let base = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
            fs::create_dir(folder.path().join(&base)).unwrap();
            let runtime = tokio::runtime::Handle::current();
            tokio::task::block_in_place(|| runtime.block_on(tree_with(&client, name, &base, acls)))
        };
        contract::check_tree(make, &pool).await;
        assert_eq!(pool.available(), 8, "all blocks came back");
    }
}

/// A file that is compared in place must not change meanwhile, and the server tells who has it open.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_opened_alone_has_no_other_writer() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Smbd::builder().user("alice", "secret");
    let smbd = or_skip!(builder.share(Share::new("data", folder.path())).start());
    let (one, other) = (connect(&smbd).await, connect(&smbd).await);
    let (one, other) = (tree(&one, "data", "").await, tree(&other, "data", "").await);
    let writing = OpenOptions::write(Create::IfMissing, CacheMode::Keep);
    let kind = |opened: &Result<Arc<dyn File>, Error>| opened.as_ref().err().map(|error| error.kind);
    let busy = Some(ErrorKind::Busy);
    let writer = other.open(&path("f"), writing).await.unwrap();
    assert_eq!(kind(&one.open(&path("f"), writing.alone()).await), busy);
    drop(writer);
    // The server closes it a moment later.
    let mut alone = one.open(&path("f"), writing.alone()).await;
    for _ in 0..100 {
        if kind(&alone) != busy {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        alone = one.open(&path("f"), writing.alone()).await;
    }
    let alone = alone.unwrap();
    assert_eq!(kind(&other.open(&path("f"), writing).await), busy);
    let reading = OpenOptions::read(CacheMode::Keep);
    assert_eq!(
        kind(&other.open(&path("f"), reading).await),
        None,
        "others may read"
    );
    drop(alone);
}

/// The server was asked for another name if the name was not UTF-8.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_bytes_are_found_by_their_begin() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Smbd::builder().user("alice", "secret");
    let smbd = or_skip!(builder.share(Share::new("data", folder.path())).start());
    let tree = tree(&connect(&smbd).await, "data", "").await;
    for name in [&b"bad\xff"[..], b"caf\xe9", "caf\u{e9}".as_bytes(), b"plain"] {
        let name = Name::new(name).unwrap();
        let made = tree.make_dir(&RelPath::root().join(&name), 0o755).await;
        made.unwrap();
        let found = tree.names_with_prefix(&RelPath::root(), name.as_bytes()).await;
        assert_eq!(found.unwrap(), [name]);
    }
    let found = tree.names_with_prefix(&RelPath::root(), b"caf\xc3").await;
    assert_eq!(found.unwrap(), [Name::new("caf\u{e9}".as_bytes()).unwrap()]);
}

/// What was removed needs no flush, and cannot be opened for one while another client still has it open.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_that_others_have_open_is_not_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Smbd::builder().user("alice", "secret");
    let smbd = or_skip!(builder.share(Share::new("data", folder.path())).start());
    let (one, other) = (connect(&smbd).await, connect(&smbd).await);
    let (one, other) = (tree(&one, "data", "").await, tree(&other, "data", "").await);
    let pool = Pool::new(4096, 1);
    let mut block = pool.get().await;
    block.capacity_mut()[..5].copy_from_slice(b"bytes");
    block.set_len(5);
    let writing = OpenOptions::write(Create::New, CacheMode::Keep);
    let file = one.open(&path("f"), writing).await.unwrap();
    file.write_at(block.freeze(), 0).await.unwrap();
    drop(file);
    let reading = OpenOptions::read(CacheMode::Keep);
    let reader = other.open(&path("f"), reading).await.unwrap();
    one.remove_file(&path("f")).await.unwrap();
    one.sync().await.unwrap();
    drop(reader);
}

async fn copy(source: Arc<dyn Tree>, target: Arc<dyn Tree>, to: &str, durability: Durability) {
    let options = Options {
        durability,
        verify: Verification {
            read_back: true,
            algorithm: Default::default(),
            ..Verification::default()
        },
        ..Options::default()
    };
    let (outcome, events) = JobSpec::whole(source, target, path(to), options).run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(outcome.summary.differences, 0);
    let counters = outcome.summary.counters;
    if durability != Durability::None {
        assert_eq!(counters.bytes_durable, counters.bytes_done);
    }
}

/// Asserts that two folders have the same names, contents, times and (with `holes`) blocks.
fn assert_same(one: &Path, two: &Path, holes: bool, server: bool) {
    let list = |at: &Path| {
        let entries = fs::read_dir(at).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        // Names that are not UTF-8 are encoded differently on the server.
        names.retain(|name| !server || !name.as_bytes().starts_with(b"raw"));
        names.sort();
        names
    };
    let names = list(one);
    assert_eq!(names, list(two), "{}", two.display());
    for name in names {
        let (left, right) = (one.join(&name), two.join(&name));
        let (about, other) = (fs::metadata(&left).unwrap(), fs::metadata(&right).unwrap());
        let at = String::from_utf8_lossy(name.as_bytes()).into_owned();
        assert_eq!(about.is_dir(), other.is_dir(), "{at}");
        let time = |about: &fs::Metadata| (about.mtime(), about.mtime_nsec() / 100);
        assert_eq!(time(&about), time(&other), "{at}");
        if about.is_dir() {
            assert_same(&left, &right, holes, server);
            continue;
        }
        assert_eq!(fs::read(&left).unwrap(), fs::read(&right).unwrap(), "{at}");
        if holes && about.blocks() * 512 < about.len() {
            assert!(other.blocks() * 512 < other.len(), "{at} lost its holes");
        }
    }
}

fn odd_tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deep/deeper")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    let sizes = [
        ("zero", 0),
        ("one", 1),
        ("page", 4096),
        ("block", 1 << 20),
        ("big", 9_000_000),
    ];
    for (name, size) in sizes {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at * 7 % 251) as u8).collect();
        fs::write(at.join("sub").join(name), bytes).unwrap();
    }
    let names = [
        "ä composed",
        "a\u{308} decomposed",
        "日本語 🚠",
        "with space",
        "-dash",
        "UPPER",
        "%2e",
        "'quote'",
    ];
    for name in names {
        fs::write(at.join("sub/deep").join(name), name).unwrap();
    }
    let raw = std::ffi::OsStr::from_bytes(b"raw \xff\xfe bytes");
    fs::write(at.join("sub/deep/deeper").join(raw), b"raw").unwrap();
    let holes = fs::File::create(at.join("holes")).unwrap();
    holes.set_len(8 << 20).unwrap();
    holes.write_all_at(b"in the middle", 4 << 20).unwrap();
    for name in ["sub/one", "sub/big", "holes"] {
        let file = fs::File::options().write(true).open(at.join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_700))
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_both_ways_and_inside_the_server() {
    let (folder, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let share = Share::new("data", folder.path());
    let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(share).start());
    let client = connect(&smbd).await;
    let source = here.path().join("source");
    odd_tree(&source);
    for durability in [Durability::None, Durability::File, Durability::End] {
        let to = format!("up-{durability:?}");
        let target = tree(&client, "data", "").await;
        copy(local(&source), target, &to, durability).await;
        assert_same(&source, &folder.path().join(&to), true, true);
        let back = format!("back-{durability:?}");
        let from = tree(&client, "data", &to).await;
        copy(from, local(here.path()), &back, durability).await;
        assert_same(&source, &here.path().join(&back), true, false);
    }
    let from = tree(&client, "data", "up-None").await;
    let target = tree(&client, "data", "").await;
    copy(from, target, "inside", Durability::End).await;
    assert_same(&source, &folder.path().join("inside"), false, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_small_files_go_both_ways() {
    let (folder, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let share = Share::new("data", folder.path());
    let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(share).start());
    let client = connect(&smbd).await;
    let source = here.path().join("source");
    for number in 0..3_000_usize {
        let at = source.join(format!("dir{}", number % 30));
        fs::create_dir_all(&at).unwrap();
        let bytes: Vec<u8> = (0..1 + number * 21).map(|at| (at ^ number) as u8).collect();
        fs::write(at.join(format!("file{number}")), bytes).unwrap();
    }
    let target = tree(&client, "data", "").await;
    copy(local(&source), target, "up", Durability::End).await;
    assert_same(&source, &folder.path().join("up"), false, true);
    let from = tree(&client, "data", "up").await;
    copy(from, local(here.path()), "back", Durability::End).await;
    assert_same(&source, &here.path().join("back"), false, false);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_attributes_and_creation_times_are_carried() {
    let folder = tempfile::tempdir().unwrap();
    let share = Share::new("data", folder.path()).streams();
    let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(share).start());
    let client = connect(&smbd).await;
    let tree = tree(&client, "data", "").await;
    assert!(tree.capabilities().named_streams);
    fs::create_dir(folder.path().join("from")).unwrap();
    fs::write(folder.path().join("from/file"), b"content").unwrap();
    let stream = Xattr {
        name: b"user.DosStream.Zone.Identifier:$DATA".to_vec(),
        value: b"[ZoneTransfer]\0".to_vec(),
    };
    let change = MetadataChange {
        xattrs: Some(vec![stream.clone()]),
        created: Some(Timestamp(1_000_000_000_123_456_700)),
        modified: Some(Timestamp(1_100_000_000_123_456_700)),
        dos_attributes: Some(0x2 | 0x20),
        ..MetadataChange::default()
    };
    let losses = tree.set_metadata(&path("from/file"), &change).await.unwrap();
    assert!(losses.is_empty(), "{losses:?}");
    let found = tree.xattrs(&path("from/file")).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&stream));
    let options = SmbTreeOptions::default();
    let source = SmbTree::open(tree.share().clone(), "from", options)
        .await
        .unwrap();
    copy(Arc::new(source), tree.clone(), "to", Durability::End).await;
    let copied = path("to/file");
    let found = tree.metadata(&copied).await.unwrap();
    assert_eq!(found.created, Some(Timestamp(1_000_000_000_123_456_700)));
    assert_eq!(found.modified, Timestamp(1_100_000_000_123_456_700));
    assert_eq!(found.dos_attributes, Some(0x22));
    assert_eq!(tree.xattrs(&copied).await.unwrap(), [stream]);
    assert_eq!(fs::read(folder.path().join("to/file")).unwrap(), b"content");
}

/// Servers do not rename a folder while a file below it is open, and the last task that holds one
/// may need a moment to close it.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_renamed_when_the_last_file_in_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Smbd::builder().user("alice", "secret");
    let builder = builder
        .option("strict rename", "yes")
        .share(Share::new("data", folder.path()));
    let smbd = or_skip!(builder.start());
    let client = connect(&smbd).await;
    let tree = tree(&client, "data", "").await;
    tree.make_dir(&path("from"), 0o755).await.unwrap();
    let options = OpenOptions::write(Create::New, CacheMode::Keep);
    let file = tree.open(&path("from/file"), options).await.unwrap();
    let held = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        drop(file);
    });
    tree.rename(&path("from"), &path("to"), false).await.unwrap();
    held.await.unwrap();
    assert!(folder.path().join("to/file").exists());
}
