//! GET_FILES: small files read with one request, as a client's own requests would read them.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use ropeway_block::Pool;
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_client::SmbTree;
use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
use ropeway_smb_wire::create_context::{Lease, LeaseState, RequestContext};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation};
use ropeway_smb_wire::fsctl::private_get::{
    GET_FILES_MAX, GET_OUTPUT_MAX, GetFile, GetFlags, GotFile, GotFlags,
};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::ioctl::{IoctlFlags, IoctlRequest, IoctlResponse};
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::{FileAttributes, FileId, Guid, LeaseKey, NtStatus, Text};
use ropeway_vfs::store::{Access, NodeOpen, Store as _};
use ropeway_vfs::{CacheMode, ErrorKind, GetSmall, RelPath, Tree as _, Xattr};

use crate::put_files::tree;
use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

fn file(path: &str, length: u32) -> GetFile {
    GetFile {
        path: Text::from(path),
        flags: GetFlags::PLAIN_ONLY,
        length,
    }
}

fn input(files: &[GetFile]) -> Vec<u8> {
    let body = samples::body(|w| files.iter().for_each(|file| file.encode(w)));
    samples::body(|w| PrivateMessage::new(PrivateOperation::GET_FILES, &body).encode(w))
}

/// Gives a file an extended attribute.
fn note(folder: &Path, name: &str, value: &[u8]) {
    let store = LocalStore::open(folder, &StoreOptions::default()).unwrap();
    let how = NodeOpen {
        access: Access::Write,
        ..NodeOpen::default()
    };
    let path = RelPath::parse(name.as_bytes()).unwrap();
    let node = store.open(&path, &how).unwrap().node;
    node.set_ea(b"NOTE", value).unwrap();
}

/// What became of a file.
#[derive(Debug, PartialEq)]
struct Read {
    content: String,
    size: u64,
    flags: GotFlags,
    attributes: FileAttributes,
}

/// Sends a private control that names no open, and returns its output.
pub(crate) fn ask(raw: &mut Raw, input: &[u8], output_max: usize) -> Result<Vec<u8>, NtStatus> {
    let request = IoctlRequest {
        ctl_code: CtlCode::PRIVATE,
        file_id: FileId::RELATED,
        input,
        max_input_response: 0,
        max_output_response: output_max as u32,
        flags: IoctlFlags::IS_FSCTL,
    };
    let reply = raw.call(Command::Ioctl, |w| request.encode(w));
    match reply.status() {
        NtStatus::SUCCESS => Ok(IoctlResponse::decode(&mut reply.body()).unwrap().output.to_vec()),
        status => Err(status),
    }
}

/// Reads files, and returns what became of each.
fn get(raw: &mut Raw, files: &[GetFile]) -> Result<Vec<Result<Read, NtStatus>>, NtStatus> {
    let output = ask(raw, &input(files), GET_OUTPUT_MAX)?;
    let got = GotFile::decode_list(&output[PRIVATE_HEADER_LEN..]).unwrap();
    let read = |file: GotFile<'_>| match file.status {
        NtStatus::SUCCESS => Ok(Read {
            content: String::from_utf8(file.content.to_vec()).unwrap(),
            size: file.info.end_of_file,
            flags: file.flags,
            attributes: file.info.attributes,
        }),
        status => {
            assert_eq!(file, GotFile::failed(status));
            Err(status)
        }
    };
    Ok(got.into_iter().map(read).collect())
}

fn plain(content: &str, size: u64) -> Result<Read, NtStatus> {
    Ok(Read {
        content: content.to_owned(),
        size,
        flags: GotFlags::default(),
        attributes: FileAttributes::ARCHIVE,
    })
}

/// A folder `d` with files, and a link to what is not in it.
fn folder_of_kinds(outside: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    for (name, content) in [
        ("d/one", "first"),
        ("d/empty", ""),
        ("d/Case", "case"),
        ("d/noted", "noted"),
        ("d/streamed", "streamed"),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    std::os::unix::fs::symlink(outside, folder.path().join("d/out")).unwrap();
    note(folder.path(), "d/noted", b"value");
    folder
}

#[test]
fn each_file_is_read_or_refused_for_itself() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    let folder = folder_of_kinds(outside.path());
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let stream = raw.create(&Create::of("d\\streamed:more")).unwrap();
    assert_eq!(raw.close(stream), NtStatus::SUCCESS);
    let files = [
        file("d\\one", 5),
        // More, and less than it has.
        file("d\\one", 100),
        file("d\\one", 2),
        file("d\\one", 0),
        file("d\\empty", 10),
        file("d\\cASE", 4),
        file("d\\noted", 5),
        file("d\\streamed", 8),
        file("d\\none", 5),
        file("none\\one", 5),
        file("d", 5),
        file("", 5),
        file("..\\out", 5),
        file("d\\one:stream", 5),
        file("d\\out", 5),
        GetFile {
            flags: GetFlags::default(),
            ..file("d\\noted", 5)
        },
    ];
    let read = get(&mut raw, &files).unwrap();
    assert_eq!(
        read[..8],
        [
            plain("first", 5),
            plain("first", 5),
            plain("fi", 5),
            plain("", 5),
            plain("", 0),
            plain("case", 4),
            Err(NtStatus::NOT_SUPPORTED),
            Err(NtStatus::NOT_SUPPORTED),
        ]
    );
    let refusals: Vec<_> = read[8..15]
        .iter()
        .map(|read| read.as_ref().err().copied())
        .collect();
    assert_eq!(
        refusals,
        [
            Some(NtStatus::OBJECT_NAME_NOT_FOUND),
            Some(NtStatus::OBJECT_PATH_NOT_FOUND),
            Some(NtStatus::FILE_IS_A_DIRECTORY),
            Some(NtStatus::FILE_IS_A_DIRECTORY),
            Some(NtStatus::OBJECT_PATH_SYNTAX_BAD),
            Some(NtStatus::OBJECT_NAME_INVALID),
            refusals[6],
        ]
    );
    assert!(refusals[6].is_some(), "a link out of the share was followed");
    assert_eq!(read[15], plain("noted", 5));
    // Nothing is left open.
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
fn what_would_be_too_long_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one"), "content").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let small = NtStatus::BUFFER_TOO_SMALL;
    let one = input(&[file("one", 7)]);
    let needed = GetFile::reply_len(&[file("one", 7)]) as usize;
    assert_eq!(ask(&mut raw, &one, needed).unwrap().len(), needed);
    assert_eq!(ask(&mut raw, &one, needed - 1), Err(small));
    for length in [GET_OUTPUT_MAX as u32, u32::MAX] {
        let long = input(&[file("one", length)]);
        assert_eq!(ask(&mut raw, &long, GET_OUTPUT_MAX), Err(small));
    }
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    let many: Vec<_> = (0..=GET_FILES_MAX).map(|_| file("one", 1)).collect();
    assert_eq!(ask(&mut raw, &input(&many), GET_OUTPUT_MAX), invalid);
    assert_eq!(get(&mut raw, &many[1..]).unwrap().len(), GET_FILES_MAX);
    for length in 0..one.len() {
        assert_eq!(
            ask(&mut raw, &one[..length], GET_OUTPUT_MAX),
            invalid,
            "{length} bytes"
        );
    }
}

#[test]
fn what_a_client_may_not_read_it_may_not_read_together() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["closed", "held", "locked", "cached", "open"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    // Nobody may read its content.
    raw.protect("closed", "D:P(A;;0x120080;;;WD)");
    let mut other = Raw::connect(serve.address);
    other.guid = Guid([1; 16]);
    other.enter();
    other
        .create(&Create {
            sharing: ShareAccess::default(),
            ..Create::of("held")
        })
        .unwrap();
    let locked = other.create(&Create::of("locked")).unwrap();
    let lock = LockRequest {
        file_id: locked,
        lock_sequence: LockSequence(0),
        locks: vec![LockElement {
            offset: 0,
            length: 3,
            flags: LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
        }],
    };
    let status = other.call(Command::Lock, |w| lock.encode(w)).status();
    assert_eq!(status, NtStatus::SUCCESS);
    let lease = Lease {
        lease_key: LeaseKey([1; 16]),
        lease_state: LeaseState::from_bits_retain(7),
        lease_flags: Default::default(),
    };
    other
        .create(&Create {
            oplock: OplockLevel::Lease,
            contexts: vec![RequestContext::Lease(lease)],
            access: AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE,
            ..Create::of("cached")
        })
        .unwrap();
    let files = ["closed", "held", "locked", "cached", "open"].map(|name| file(name, 10));
    let read = get(&mut raw, &files).unwrap();
    assert_eq!(
        read,
        [
            Err(NtStatus::ACCESS_DENIED),
            Err(NtStatus::SHARING_VIOLATION),
            Err(NtStatus::FILE_LOCK_CONFLICT),
            // Who caches writes is asked for them; the file's own requests wait for that.
            Err(NtStatus::FILE_NOT_AVAILABLE),
            plain("open", 4),
        ]
    );
    assert_eq!(raw.tree("IPC$"), NtStatus::SUCCESS);
    assert!(get(&mut raw, &files[4..]).is_err());
}

/// Reads all of them `step` at a time.
async fn get_all(tree: &SmbTree, step: usize) -> Vec<Result<(String, Vec<Xattr>, bool), ErrorKind>> {
    let pool = Pool::new(16 << 10, 64);
    let mut outcomes = Vec::new();
    for paths in paths().chunks(step) {
        let gets = paths.iter().map(|(path, size)| async {
            let get = GetSmall {
                path: RelPath::parse(path.as_bytes()).unwrap(),
                size: *size,
                xattrs: true,
                cache: CacheMode::Auto,
                is_known: false,
            };
            let (block, got) = tree.get_small(get, pool.get().await).await;
            let got = got.map_err(|error| error.kind)?;
            let content = String::from_utf8(block.to_vec()).unwrap();
            Ok((content, got.xattrs.unwrap(), got.whole))
        });
        outcomes.extend(join_all(gets).await);
    }
    outcomes
}

/// Files of all kinds of fates, with the size that is wanted.
fn paths() -> Vec<(String, u64)> {
    let mut paths: Vec<_> = (0..300)
        .map(|number| (format!("file {number}"), number))
        .collect();
    for number in (0..300).step_by(7) {
        paths.push((format!("none/{number}"), 7));
        // Its end is not wanted.
        paths.push((format!("file {number}"), number / 2));
        paths.push(("folder".to_owned(), 0));
        paths.push((format!("long {}", number % 2), 8 << 10));
    }
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn files_got_together_are_as_files_got_alone() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..300 {
        let path = folder.path().join(format!("file {number}"));
        fs::write(&path, "x".repeat(number)).unwrap();
        if number % 10 == 0 {
            note(
                folder.path(),
                &format!("file {number}"),
                number.to_string().as_bytes(),
            );
        }
    }
    for number in 0..2 {
        let path = folder.path().join(format!("long {number}"));
        fs::write(path, "y".repeat((8 << 10) + number)).unwrap();
    }
    fs::create_dir(folder.path().join("folder")).unwrap();
    let serve = Serve::start(folder.path());
    let tree = tree(serve.address).await;
    let count = || serve.handle.counters().requests.load(Ordering::Relaxed);
    let start = count();
    let alone = get_all(&tree, 1).await;
    let many = count() - start;
    let together = get_all(&tree, 64).await;
    let few = count() - start - many;
    assert_eq!(alone, together);
    let read: Vec<_> = together.iter().flatten().collect();
    assert_eq!(read.len(), 300 + 2 * 43);
    assert!(read.iter().any(|(_, xattrs, _)| !xattrs.is_empty()));
    assert_eq!(read.iter().filter(|(.., whole)| !whole).count(), 42 + 21);
    // A third of them cannot go together.
    assert!(few * 3 < many * 2, "{few} requests together, {many} one by one");
}
