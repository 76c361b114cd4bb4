//! COPY_FILES and SAME_FILES: small files whose content is at the other end already.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use ropeway_block::{Block, BlockMut, Pool};
use ropeway_smb_client::SmbTree;
use ropeway_smb_wire::create::ShareAccess;
use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation};
use ropeway_smb_wire::fsctl::private_get::{GET_OUTPUT_MAX, GetFlags, GotFile, GotFlags};
use ropeway_smb_wire::fsctl::private_put::{PutFlags, PutStatus, PutStep};
use ropeway_smb_wire::fsctl::private_same::{CopyFile, SAME_FILE_MAX, SameFile};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::{Guid, NtStatus, Text};
use ropeway_vfs::{
    CacheMode, Create as CreateMode, GetSmall, HashAlgorithm, MetadataChange, PutSmall, RelPath, Timestamp,
    Tree as _,
};

use crate::get_files;
use crate::put_files::{DONE, TIME, UNIX_TIME, tree};
use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const DIFFERS: (NtStatus, PutStep) = (NtStatus::NOT_FOUND, PutStep::COMPARE);

fn copy(from: &str, path: &str, content: &[u8]) -> CopyFile {
    CopyFile {
        path: Text::from(path),
        from: Text::from(from),
        flags: PutFlags::FLUSH,
        basic: FileBasicInformation {
            last_write_time: TIME,
            ..FileBasicInformation::default()
        },
        length: content.len() as u32,
        hash: HashAlgorithm::Blake3.hash(content),
    }
}

fn same(path: &str, content: &[u8]) -> SameFile {
    SameFile {
        path: Text::from(path),
        flags: GetFlags::PLAIN_ONLY,
        length: content.len() as u32,
        hash: HashAlgorithm::Blake3.hash(content),
    }
}

fn ask(raw: &mut Raw, operation: PrivateOperation, body: &[u8]) -> Result<Vec<u8>, NtStatus> {
    let input = samples::body(|w| PrivateMessage::new(operation, body).encode(w));
    let output = get_files::ask(raw, &input, GET_OUTPUT_MAX)?;
    Ok(output[PRIVATE_HEADER_LEN..].to_vec())
}

fn copy_all(raw: &mut Raw, files: &[CopyFile]) -> Result<Vec<(NtStatus, PutStep)>, NtStatus> {
    let body = samples::body(|w| files.iter().for_each(|file| file.encode(w)));
    let body = ask(raw, PrivateOperation::COPY_FILES, &body)?;
    let statuses = PutStatus::decode_list(&body).unwrap();
    Ok(statuses.iter().map(|one| (one.status, one.step)).collect())
}

/// Returns which files have the content that is named, or why that is not told.
fn compare(raw: &mut Raw, files: &[SameFile]) -> Result<Vec<Result<bool, NtStatus>>, NtStatus> {
    let body = samples::body(|w| files.iter().for_each(|file| file.encode(w)));
    let body = ask(raw, PrivateOperation::SAME_FILES, &body)?;
    let told = |file: GotFile<'_>| {
        assert!(file.content.is_empty());
        match file.status {
            NtStatus::SUCCESS => Ok(file.flags.contains(GotFlags::SAME)),
            status => Err(status),
        }
    };
    Ok(GotFile::decode_list(&body)
        .unwrap()
        .into_iter()
        .map(told)
        .collect())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn each_file_is_copied_or_refused_for_itself() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "content").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    for name in ["old", "there", "closed", "held"] {
        fs::write(folder.path().join(name), "content").unwrap();
    }
    std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    raw.protect("closed", "D:P(A;;0x120080;;;WD)");
    let mut other = Raw::connect(serve.address);
    other.guid = Guid([1; 16]);
    other.enter();
    let alone = Create {
        sharing: ShareAccess::default(),
        ..Create::of("held")
    };
    other.create(&alone).unwrap();
    let content = b"content";
    let statuses = copy_all(
        &mut raw,
        &[
            copy("old", "d\\one", content),
            copy("OLD", "d\\two", content),
            // What was made a moment ago.
            copy("d\\one", "d\\three", content),
            // Other content, of the same and of other lengths.
            copy("old", "d\\no 1", b"CONTENT"),
            copy("old", "d\\no 2", b"conten"),
            copy("old", "d\\no 3", b"content and more"),
            copy("old", "d\\no 4", b""),
            copy("old", "there", content),
            copy("old", "none\\one", content),
            copy("old", "..\\out", content),
        ],
    );
    let not_made = |status| (status, PutStep::CREATE);
    assert_eq!(
        statuses.unwrap(),
        [
            DONE,
            DONE,
            DONE,
            DIFFERS,
            DIFFERS,
            DIFFERS,
            DIFFERS,
            not_made(NtStatus::OBJECT_NAME_COLLISION),
            not_made(NtStatus::OBJECT_PATH_NOT_FOUND),
            not_made(NtStatus::OBJECT_PATH_SYNTAX_BAD),
        ]
    );
    never_copied(&mut raw);
    assert_eq!(names(&folder.path().join("d")), ["one", "three", "two"]);
    for name in ["d/one", "d/two", "d/three"] {
        let path = folder.path().join(name);
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().mtime(), UNIX_TIME);
    }
    assert_eq!(fs::read(folder.path().join("old")).unwrap(), content);
}

/// Asks for copies of what must not be read, or is no file.
fn never_copied(raw: &mut Raw) {
    let from = [
        "missing",
        "d",
        "out",
        "..\\old",
        "old:stream",
        "",
        "closed",
        "held",
    ];
    let files = from.map(|from| copy(from, "d\\never", b"content"));
    for (status, from) in copy_all(raw, &files).unwrap().into_iter().zip(from) {
        assert!(status.0 != NtStatus::SUCCESS, "{from}");
        assert_eq!(status.1, PutStep::COMPARE, "{from}");
    }
}

#[test]
fn only_equal_content_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    for name in ["one", "closed", "streamed"] {
        fs::write(folder.path().join(name), "content").unwrap();
    }
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    raw.protect("closed", "D:P(A;;0x120080;;;WD)");
    let stream = raw.create(&Create::of("streamed:more")).unwrap();
    assert_eq!(raw.close(stream), NtStatus::SUCCESS);
    let told = compare(
        &mut raw,
        &[
            same("one", b"content"),
            same("one", b"CONTENT"),
            same("one", b"conten"),
            same("one", b"content "),
            same("one", b""),
            same("closed", b"content"),
            same("streamed", b"content"),
            same("missing", b"content"),
        ],
    );
    assert_eq!(
        told.unwrap(),
        [
            Ok(true),
            Ok(false),
            Ok(false),
            Ok(false),
            Ok(false),
            Err(NtStatus::ACCESS_DENIED),
            Err(NtStatus::NOT_SUPPORTED),
            Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        ]
    );
    assert!(compare(&mut raw, &[same("d", b"content")]).unwrap()[0].is_err());
}

#[test]
fn what_is_too_much_or_malformed_is_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one"), "content").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let long = |length| SameFile {
        length,
        ..same("one", b"")
    };
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(compare(&mut raw, &[long(SAME_FILE_MAX + 1)]), invalid);
    let many: Vec<_> = (0..5).map(|_| long(SAME_FILE_MAX - 4096)).collect();
    assert_eq!(compare(&mut raw, &many), invalid);
    assert_eq!(compare(&mut raw, &many[1..]), Ok(vec![Ok(false); 4]));
    assert_eq!(copy_all(&mut raw, &[]).unwrap_err(), NtStatus::INVALID_PARAMETER);
    let body = samples::body(|w| copy("one", "two", b"content").encode(w));
    for length in 0..body.len() {
        let cut = ask(&mut raw, PrivateOperation::COPY_FILES, &body[..length]);
        assert_eq!(cut.unwrap_err(), NtStatus::INVALID_PARAMETER);
    }
    assert_eq!(names(folder.path()), ["one"]);
}

const LENGTH: usize = 300_000;

fn noise(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(LENGTH).collect()
}

async fn block(pool: &Pool, content: &[u8]) -> BlockMut {
    let mut block = pool.get().await;
    block.capacity_mut()[..content.len()].copy_from_slice(content);
    block.set_len(content.len());
    block
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// Puts a file that may be the same as another one, under a temporary name first if it is to replace one;
/// returns whether the other one was used.
async fn put(tree: &SmbTree, (to, same_as): (&str, &str), content: Block) -> bool {
    let replaces = to.starts_with("replaced");
    let put = PutSmall {
        path: path(if replaces { "temporary" } else { to }),
        create: CreateMode::New,
        content: Some(content),
        change: MetadataChange {
            modified: Some(Timestamp(i128::from(UNIX_TIME) * 1_000_000_000)),
            ..MetadataChange::default()
        },
        sync: false,
        rename_to: replaces.then(|| path(to)),
        cache: CacheMode::Auto,
        same_as: Some(path(same_as)),
    };
    tree.put_small(put).await.unwrap().reused
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_far_end_has_is_neither_sent_nor_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let (content, other) = (noise(1), noise(2));
    fs::write(folder.path().join("old"), &content).unwrap();
    let serve = Serve::start(folder.path());
    let tree = tree(serve.address).await;
    let pool = Pool::new(LENGTH + 4096, 4);
    let counters = serve.handle.counters();
    let moved = || {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        (of(&counters.bytes_read), of(&counters.bytes_written))
    };
    for (to, same_as, content, is_used) in [
        ("copied", "old", &content, true),
        ("replaced", "old", &content, true),
        ("replaced", "old", &other, false),
        ("replaced too", "copied", &content, true),
        ("sent", "old", &other, false),
        ("sent too", "missing", &content, false),
    ] {
        let used = put(&tree, (to, same_as), block(&pool, content).await.freeze()).await;
        assert_eq!(used, is_used, "{to}");
        let at = folder.path().join(to);
        assert!(fs::read(&at).unwrap() == **content, "{to}");
        assert!(!folder.path().join("temporary").exists(), "{to}");
        assert_eq!(fs::metadata(&at).unwrap().mtime(), UNIX_TIME, "{to}");
    }
    let (read_before, _) = moved();
    for (guess, is_used) in [(&content, true), (&other, false)] {
        let get = GetSmall {
            path: path("old"),
            size: LENGTH as u64,
            xattrs: true,
            cache: CacheMode::Auto,
            is_known: true,
        };
        let (got, done) = tree.get_small(get, block(&pool, guess).await).await;
        let done = done.unwrap();
        assert!(done.whole && *got == content[..]);
        assert_eq!((done.reused, done.metadata.size), (is_used, LENGTH as u64));
        assert_eq!(done.xattrs.as_deref(), Some(&[][..]));
        let (read, _) = moved();
        assert_eq!(read - read_before, if is_used { 0 } else { LENGTH as u64 });
    }
}
