//! CreateClose, ChangeNotify and others: what a tree and its files answer.

use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::ShareSnapshots;
use ropeway_smb_wire::change_notify::{
    Action, ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter, decode_changes,
};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::snapshots::SnapshotArray;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{FileFullEaInformation, FileInfoClass, FullEa, Information};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::tree_connect::{TreeConnectFlags, TreeConnectRequest};
use ropeway_smb_wire::{FileId, NtStatus};
use ropeway_vfs::store::{Snapshots, Store};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// CreateClose_CreateAndCloseFileWithDotDir and DirWithDotDir: `.` is the folder itself (note to [MS-SMB2]
/// 3.3.5.9).
#[test]
fn a_dot_in_a_path_is_the_folder_itself() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("d\\.\\file")).unwrap();
    let made = raw.create(&Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..Create::of(".\\d\\.\\made")
    });
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    assert_eq!(raw.close(made.unwrap()), NtStatus::SUCCESS);
    assert!(folder.path().join("d/file").is_file());
    assert!(folder.path().join("d/made").is_dir());
}

/// CreateClose_DeleteFile_DesiredAccessNotIncludeDeleteOrGenericAll: who does not ask for DELETE deletes nothing
/// ([MS-SMB2] 3.3.5.9).
#[test]
fn deletion_on_close_needs_the_right_to_delete() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    for (access, allowed) in [
        (AccessMask::GENERIC_READ | AccessMask::GENERIC_WRITE, false),
        (AccessMask::GENERIC_READ | AccessMask::DELETE, true),
    ] {
        let outcome = raw.create(&Create {
            access,
            options: CreateOptions::DELETE_ON_CLOSE,
            ..Create::of("file")
        });
        assert_eq!(outcome.is_ok(), allowed, "{outcome:?}");
        assert!(folder.path().join("file").exists());
        if let Ok(file) = outcome {
            assert_eq!(raw.close(file), NtStatus::SUCCESS);
        }
    }
    assert!(!folder.path().join("file").exists());
}

/// InvalidCreateRequestStructureSize, TreeMgmt_SMB311_CLUSTER_RECONNECT: another size is refused ([MS-SMB2]
/// 3.3.5.9), and the flag means nothing here (3.3.5.7).
#[test]
fn a_create_of_another_size_and_a_cluster_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let how = Create::of("file");
    let mut body = samples::body(|w| how.request().encode(w));
    body[..2].copy_from_slice(&58_u16.to_le_bytes());
    let reply = raw.call(Command::Create, |w| w.bytes(&body));
    assert_eq!(reply.status(), NtStatus::INVALID_PARAMETER);
    assert!(!folder.path().join("file").exists());
    let request = TreeConnectRequest {
        flags: TreeConnectFlags::CLUSTER_RECONNECT,
        path: "\\\\server\\data".into(),
    };
    let reply = raw.call(Command::TreeConnect, |w| request.encode(w));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
}

/// Snapshots of two times, which are all the same folder.
struct TwoTimes(Arc<dyn Store>);

impl Snapshots for TwoTimes {
    fn times(&self) -> ropeway_vfs::Result<Vec<i64>> {
        Ok(vec![1_000_000_000, 900_000_000])
    }

    fn open(&self, _: i64) -> ropeway_vfs::Result<Arc<dyn Store>> {
        Ok(Arc::clone(&self.0))
    }
}

/// BVT_EnumerateSnapShots: 16 bytes have room for the number of snapshots only ([MS-SMB2] 3.3.5.15.1).
#[test]
fn snapshots_are_counted_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    let source = TwoTimes(Arc::new(store));
    let serve = Serve::with(folder.path(), |options| {
        options.shares[0].snapshots = Some(Arc::new(ShareSnapshots::new(Arc::new(source))));
    });
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    let mut ask = |room: u32| {
        let mut body = samples::control(file, CtlCode::SRV_ENUMERATE_SNAPSHOTS, &[]);
        body[44..48].copy_from_slice(&room.to_le_bytes());
        let reply = raw.call(Command::Ioctl, |w| w.bytes(&body));
        assert_eq!(reply.status(), NtStatus::SUCCESS, "{room}");
        let response = IoctlResponse::decode(&mut reply.body()).unwrap();
        SnapshotArray::decode(response.output).unwrap()
    };
    let counted = ask(16);
    assert_eq!((counted.number_of_snapshots, counted.snapshots.len()), (2, 0));
    let all = ask(65_536);
    assert_eq!((all.number_of_snapshots, all.snapshots.len()), (2, 2));
    assert_eq!(all.snapshots[0], "@GMT-2001.09.09-01.46.40".into());
}

/// Asks for changes of one kind below a folder.
fn watch(raw: &mut Raw, folder: FileId, completion_filter: CompletionFilter) {
    let request = ChangeNotifyRequest {
        flags: ChangeNotifyFlags::WATCH_TREE,
        output_buffer_length: 4096,
        file_id: folder,
        completion_filter,
    };
    let message = raw.message(Command::ChangeNotify, |w| request.encode(w));
    raw.send(&message);
}

fn succeeds(raw: &mut Raw, command: Command, body: &[u8]) {
    let reply = raw.call(command, |w| w.bytes(body));
    assert_eq!(reply.status(), NtStatus::SUCCESS, "{command:?}");
}

fn open(raw: &mut Raw, name: &str) -> FileId {
    raw.create(&Create::of(name)).unwrap()
}

fn cut_file(raw: &mut Raw) {
    let file = open(raw, "d\\file");
    let cut = samples::set_info(file, FileInfoClass::EndOfFile, &[3, 0, 0, 0, 0, 0, 0, 0]);
    succeeds(raw, Command::SetInfo, &cut);
}

fn set_attribute(raw: &mut Raw) {
    let file = open(raw, "d\\file");
    let list = FileFullEaInformation {
        attributes: vec![FullEa {
            need_ea: false,
            name: b"NAME".to_vec(),
            value: b"value".to_vec(),
        }],
    };
    let set = samples::set_info(file, FileInfoClass::FullEa, &list.to_bytes());
    succeeds(raw, Command::SetInfo, &set);
}

fn write_stream(raw: &mut Raw) {
    let stream = open(raw, "d\\file:stream");
    succeeds(raw, Command::Write, &samples::write(stream, 0, b"text"));
    assert_eq!(raw.close(stream), NtStatus::SUCCESS);
}

/// BVT_SMB2Basic_ChangeNotify_ChangeSize, _ChangeEa, _ChangeStreamName, _ChangeStreamSize, _ChangeStreamWrite: a
/// watch for one kind of change learns of it ([MS-SMB2] 3.3.5.19; [MS-FSCC] 2.7.1).
#[test]
fn watches_for_one_kind_of_change_learn_of_it() {
    use CompletionFilter as Filter;
    type Change = fn(&mut Raw);
    let stream = "file:stream:$DATA";
    let changes: [(Filter, Change, Action, &str); 5] = [
        (Filter::SIZE, cut_file, Action::MODIFIED, "file"),
        (Filter::EA, set_attribute, Action::MODIFIED, "file"),
        (Filter::STREAM_NAME, write_stream, Action::ADDED_STREAM, stream),
        (Filter::STREAM_SIZE, write_stream, Action::MODIFIED_STREAM, stream),
        (
            Filter::STREAM_WRITE,
            write_stream,
            Action::MODIFIED_STREAM,
            stream,
        ),
    ];
    for (filter, change, action, name) in changes {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/file"), "before").unwrap();
        let serve = Serve::start(folder.path());
        let mut watcher = Raw::ready(serve.address);
        let mut other = Raw::ready(serve.address);
        let watched = watcher.create(&Create {
            options: CreateOptions::DIRECTORY_FILE,
            ..Create::of("d")
        });
        watch(&mut watcher, watched.unwrap(), filter);
        assert_eq!(watcher.echo(), NtStatus::SUCCESS);
        change(&mut other);
        let reply = watcher.reply().unwrap();
        assert_eq!(reply.status(), NtStatus::SUCCESS, "{filter:?}");
        let response = ChangeNotifyResponse::decode(&mut reply.body()).unwrap();
        let found = decode_changes(response.output).unwrap();
        assert_eq!(found[0].action, action, "{filter:?}");
        assert_eq!(found[0].file_name, name.into(), "{filter:?}");
    }
}
