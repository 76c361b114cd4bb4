//! PUT_FILES: small files made with one request, as a client's own requests would make them.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use ropeway_block::Pool;
use ropeway_smb_client::{
    Client, ClientOptions, CompressionOffer, Encryption, Endpoint, Login, SmbTree, SmbTreeOptions,
};
use ropeway_smb_server::Share;
use ropeway_smb_wire::create::ShareAccess;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation};
use ropeway_smb_wire::fsctl::private_put::{PUT_FILES_MAX, PutFile, PutFlags, PutStatus, PutStep};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::{FileAttributes, FileId, FileTime, NtStatus, Text};
use ropeway_vfs::{
    CacheMode, Create as CreateMode, ErrorKind, GetSmall, MetadataChange, PutSmall, RelPath, Timestamp,
    Tree as _,
};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// 1 January 2020.
pub(crate) const TIME: FileTime = FileTime(132_223_104_000_000_000);
pub(crate) const UNIX_TIME: i64 = 1_577_836_800;

pub(crate) fn file<'a>(path: &str, content: &'a [u8]) -> PutFile<'a> {
    PutFile {
        path: Text::from(path),
        flags: PutFlags::FLUSH,
        basic: FileBasicInformation {
            last_write_time: TIME,
            attributes: FileAttributes::HIDDEN,
            ..FileBasicInformation::default()
        },
        content,
    }
}

pub(crate) fn input(files: &[PutFile<'_>]) -> Vec<u8> {
    let body = samples::body(|w| files.iter().for_each(|file| file.encode(w)));
    samples::body(|w| PrivateMessage::new(PrivateOperation::PUT_FILES, &body).encode(w))
}

/// Sends files, and returns what became of each.
fn put(raw: &mut Raw, files: &[PutFile<'_>]) -> Result<Vec<(NtStatus, PutStep)>, NtStatus> {
    let control = samples::control(FileId::RELATED, CtlCode::PRIVATE, &input(files));
    let reply = raw.call(Command::Ioctl, |w| w.bytes(&control));
    if reply.status() != NtStatus::SUCCESS {
        return Err(reply.status());
    }
    let output = IoctlResponse::decode(&mut reply.body()).unwrap().output.to_vec();
    let statuses = PutStatus::decode_list(&output[PRIVATE_HEADER_LEN..]).unwrap();
    Ok(statuses.iter().map(|one| (one.status, one.step)).collect())
}

pub(crate) const DONE: (NtStatus, PutStep) = (NtStatus::SUCCESS, PutStep::CLOSE);

fn not_made(status: NtStatus) -> (NtStatus, PutStep) {
    (status, PutStep::CREATE)
}

#[test]
fn each_file_is_made_or_refused_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/There"), "old").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let files = [
        file("d\\one", b"first"),
        file("d\\there", b"another case"),
        file("d\\There", b"the same name"),
        file("d", b"a folder"),
        file("none\\one", b"no folder"),
        file("..\\out", b"above the share"),
        file("d\\one:stream", b"a stream"),
        file("d\\a?b", b"no name"),
        file("", b"the root"),
        file("d\\ONE", b"made a moment ago"),
        file("d\\empty", b""),
        file("d\\last", b"third"),
    ];
    let statuses = put(&mut raw, &files).unwrap();
    let collision = not_made(NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(
        statuses,
        [
            DONE,
            collision,
            collision,
            collision,
            not_made(NtStatus::OBJECT_PATH_NOT_FOUND),
            not_made(NtStatus::OBJECT_PATH_SYNTAX_BAD),
            not_made(NtStatus::OBJECT_NAME_INVALID),
            not_made(NtStatus::OBJECT_NAME_INVALID),
            collision,
            collision,
            DONE,
            DONE,
        ]
    );
    let mut names: Vec<_> = fs::read_dir(folder.path().join("d")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names
        .into_iter()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["There", "empty", "last", "one"]);
    for (name, content) in [
        ("There", "old"),
        ("one", "first"),
        ("empty", ""),
        ("last", "third"),
    ] {
        let path = folder.path().join("d").join(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), content, "{name}");
        assert!(
            name == "There" || fs::metadata(&path).unwrap().mtime() == UNIX_TIME,
            "{name}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // Nothing is left open: the file can be opened by one who lets nobody else in.
    let alone = Create {
        sharing: ShareAccess::default(),
        ..Create::of("d\\one")
    };
    let open = raw.create(&alone).unwrap();
    assert_eq!(raw.close(open), NtStatus::SUCCESS);
    drop(raw);
    serve.settles_at((0, 0));
}

#[test]
fn a_malformed_list_makes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let good = input(&[file("one", b"content"), file("two", b"content")]);
    let mut call = |file_id, input: &[u8]| {
        let control = samples::control(file_id, CtlCode::PRIVATE, input);
        raw.call(Command::Ioctl, |w| w.bytes(&control)).status()
    };
    for length in 0..good.len() {
        let status = call(FileId::RELATED, &good[..length]);
        // A list that ends behind its first file is well-formed.
        let first = input(&[file("one", b"content")]).len();
        if length != first {
            assert_eq!(status, NtStatus::INVALID_PARAMETER, "{length} bytes");
            assert_eq!(
                fs::read_dir(folder.path()).unwrap().count(),
                usize::from(length > first)
            );
        }
    }
    let many: Vec<_> = (0..=PUT_FILES_MAX).map(|_| file("many", b"")).collect();
    assert_eq!(call(FileId::RELATED, &input(&many)), NtStatus::INVALID_PARAMETER);
    let long = vec![0; 64 << 10];
    assert_eq!(
        call(FileId::RELATED, &input(&[file("long", &long)])),
        NtStatus::INVALID_PARAMETER
    );
    let digest = samples::body(|w| PrivateMessage::new(PrivateOperation::FOLDER_DIGEST, &[0; 8]).encode(w));
    assert_eq!(call(FileId::RELATED, &digest), NtStatus::NOT_SUPPORTED);
    // Only a request that names no open makes files.
    let unknown = FileId::default();
    assert_eq!(call(unknown, &good), NtStatus::FILE_CLOSED);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_a_client_may_not_do_it_may_not_do_together() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("closed")).unwrap();
    let serve = Serve::with(folder.path(), |options| {
        let mut share = Share::new("readonly", Arc::clone(&options.shares[0].store));
        share.read_only = true;
        options.shares.push(share);
    });
    let mut raw = Raw::ready(serve.address);
    // Nobody may add files.
    raw.protect("closed", "D:P(A;;0x1200a9;;;WD)");
    let statuses = put(&mut raw, &[file("closed\\one", b"x"), file("one", b"x")]).unwrap();
    assert_eq!(statuses, [not_made(NtStatus::ACCESS_DENIED), DONE]);
    assert_eq!(raw.tree("readonly"), NtStatus::SUCCESS);
    let denied = put(&mut raw, &[file("two", b"x")]).unwrap()[0];
    assert_eq!(denied.1, PutStep::CREATE);
    assert!(denied.0 != NtStatus::SUCCESS && !folder.path().join("two").exists());
    assert_eq!(raw.tree("IPC$"), NtStatus::SUCCESS);
    assert!(put(&mut raw, &[file("three", b"x")]).is_err());
}

pub(crate) async fn tree(address: SocketAddr) -> SmbTree {
    tree_with(address, ClientOptions::default()).await.1
}

async fn tree_with(address: SocketAddr, options: ClientOptions) -> (Client, SmbTree) {
    let endpoint = Endpoint::new("127.0.0.1", address.port());
    let login = Login::password("", "alice", "secret");
    let client = Client::connect(&endpoint, login, options).await.unwrap();
    let root = RelPath::root();
    let connected = SmbTree::connect(&client, "data", &root, false, SmbTreeOptions::default()).await;
    (client, connected.unwrap())
}

/// Files of all kinds of fates.
fn paths() -> Vec<String> {
    let mut paths: Vec<_> = (0..300).map(|number| format!("d/file {number}")).collect();
    for number in (0..300).step_by(7) {
        paths.push(format!("d/FILE {number}"));
        paths.push(format!("none/{number}"));
        paths.push(format!("d/taken {}", number % 2));
        paths.push(format!("d/folder/{number}"));
    }
    paths
}

/// Puts all files at once, and returns what became of each. `step`: how many go at the same time.
async fn put_all(tree: &SmbTree, step: usize) -> Vec<Result<(), ErrorKind>> {
    let pool = Pool::new(4096, 64);
    let mut outcomes = Vec::new();
    for paths in paths().chunks(step) {
        let puts = paths.iter().map(|path| async {
            let mut block = pool.get().await;
            block.capacity_mut()[..path.len()].copy_from_slice(path.as_bytes());
            block.set_len(path.len());
            let put = PutSmall {
                path: RelPath::parse(path.as_bytes()).unwrap(),
                create: CreateMode::New,
                content: Some(block.freeze()),
                change: MetadataChange {
                    modified: Some(Timestamp(i128::from(UNIX_TIME) * 1_000_000_000)),
                    ..MetadataChange::default()
                },
                sync: path.ends_with('3'),
                rename_to: None,
                cache: CacheMode::Auto,
                same_as: None,
            };
            tree.put_small(put).await.map(drop).map_err(|error| error.kind)
        });
        outcomes.extend(join_all(puts).await);
    }
    outcomes
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("d/folder")).unwrap();
    let taken = fs::File::create(folder.path().join("d/taken 0")).unwrap();
    (&taken).write_all(b"old").unwrap();
    taken.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::create_dir(folder.path().join("d/taken 1")).unwrap();
    folder
}

fn content(folder: &Path) -> Vec<(String, Vec<u8>, i64)> {
    let mut found = Vec::new();
    for dir in ["d", "d/folder"] {
        for entry in fs::read_dir(folder.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let time = fs::metadata(&path).unwrap().mtime();
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.push((name, fs::read(&path).unwrap(), time));
            }
        }
    }
    found.sort();
    found
}

/// How many requests a client sends for files that it puts `step` at a time.
async fn requests(step: usize) -> (Vec<Result<(), ErrorKind>>, tempfile::TempDir, u64) {
    let folder = prepared();
    let serve = Serve::start(folder.path());
    let tree = tree(serve.address).await;
    let before = serve.handle.counters().requests.load(Ordering::Relaxed);
    let outcomes = put_all(&tree, step).await;
    let count = serve.handle.counters().requests.load(Ordering::Relaxed) - before;
    (outcomes, folder, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_put_together_have_the_fate_of_files_put_alone() {
    let (alone, one_by_one, many) = requests(1).await;
    let (together, at_once, few) = requests(64).await;
    assert_eq!(alone.len(), together.len());
    // Of names that differ in case only, either may be the first.
    let count = |outcomes: &[Result<(), ErrorKind>], wanted| {
        outcomes.iter().filter(|outcome| **outcome == wanted).count()
    };
    for wanted in [
        Ok(()),
        Err(ErrorKind::AlreadyExists),
        Err(ErrorKind::NotFound),
        Err(ErrorKind::IsADirectory),
    ] {
        assert_eq!(count(&alone, wanted), count(&together, wanted), "{wanted:?}");
    }
    let is_plain = |(name, ..): &(String, Vec<u8>, i64)| !name.contains("FILE") && !name.contains("file");
    let plain = |folder: &Path| -> Vec<_> { content(folder).into_iter().filter(is_plain).collect() };
    assert_eq!(plain(one_by_one.path()), plain(at_once.path()));
    let written = content(at_once.path());
    assert_eq!(written.len(), content(one_by_one.path()).len());
    for (name, content, time) in written {
        match name.as_str() {
            "d/taken 0" => assert_eq!(content, b"old"),
            name => assert_eq!((content.as_slice(), time), (name.as_bytes(), UNIX_TIME)),
        }
    }
    assert!(few * 3 < many, "{few} requests together, {many} one by one");
}

const COUNT: usize = 64;

/// Content that compresses.
fn text(number: usize) -> String {
    format!("{number} is a number of a line, and ").repeat(150)
}

fn at(number: usize) -> RelPath {
    RelPath::parse(format!("file {number}").as_bytes()).unwrap()
}

/// Puts all of these files at once.
async fn put_texts(tree: &SmbTree, pool: &Pool) {
    let puts = (0..COUNT).map(|number| async move {
        let (mut block, text) = (pool.get().await, text(number));
        block.capacity_mut()[..text.len()].copy_from_slice(text.as_bytes());
        block.set_len(text.len());
        let put = PutSmall {
            path: at(number),
            create: CreateMode::New,
            content: Some(block.freeze()),
            change: MetadataChange::default(),
            sync: false,
            rename_to: None,
            cache: CacheMode::Auto,
            same_as: None,
        };
        tree.put_small(put).await.unwrap();
    });
    join_all(puts).await;
}

/// Reads them at once, and compares them.
async fn get_texts(tree: &SmbTree, pool: &Pool) {
    let gets = (0..COUNT).map(|number| async move {
        let get = GetSmall {
            path: at(number),
            size: text(number).len() as u64,
            xattrs: false,
            cache: CacheMode::Auto,
            is_known: false,
        };
        let (block, got) = tree.get_small(get, pool.get().await).await;
        assert!(
            got.unwrap().whole && *block == *text(number).as_bytes(),
            "{number}"
        );
    });
    join_all(gets).await;
}

/// Requests and replies are compressed as a whole, and arrive as they were sent.
#[tokio::test(flavor = "multi_thread")]
async fn files_go_together_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for (encryption, compression) in [
        (Encryption::Off, CompressionOffer::On),
        (Encryption::Required, CompressionOffer::On),
        (Encryption::Off, CompressionOffer::Off),
    ] {
        let options = ClientOptions {
            encryption,
            compression,
            ..ClientOptions::default()
        };
        let (client, tree) = tree_with(serve.address, options).await;
        let pool = Pool::new(8192, COUNT);
        put_texts(&tree, &pool).await;
        get_texts(&tree, &pool).await;
        for number in 0..COUNT {
            let file = folder.path().join(format!("file {number}"));
            assert_eq!(fs::read_to_string(&file).unwrap(), text(number));
            fs::remove_file(file).unwrap();
        }
        let sent: usize = (0..COUNT).map(|number| text(number).len()).sum();
        let saved = || client.info().line.saved.bytes;
        if compression == CompressionOffer::Off {
            assert_eq!(saved(), 0);
            continue;
        }
        // Nearly all of it in both directions, but for the files that went first and alone. It is counted
        // now and then, while something goes on.
        for _ in 0..100 {
            if saved() > sent as u64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            tree.metadata(&RelPath::root()).await.unwrap();
        }
        assert!(saved() > sent as u64, "{} of {sent} bytes, twice", saved());
    }
}
