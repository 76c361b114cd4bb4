//! Changes by local programs of files that clients cache and in folders that they watch. The server
//! runs in this process, so `sh` makes the changes.

use std::path::Path;
use std::process::Command as Process;
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::Share;
use ropeway_smb_wire::change_notify::{
    Action, ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter, decode_changes,
};
use ropeway_smb_wire::create::{AccessMask, CreateOptions, CreateResponse, OplockLevel};
use ropeway_smb_wire::create_context::{Lease, LeaseState, LeaseV2, RequestContext, ResponseContext};
use ropeway_smb_wire::header::{Command, Header};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak, OplockBreak};
use ropeway_smb_wire::{FileId, LeaseKey, MessageId, NtStatus, Reader};

use crate::raw::{Create, Raw, Reply};
use crate::samples;
use crate::serve::Serve;

const RWH: LeaseState = LeaseState::from_bits_retain(7);
const RH: LeaseState = LeaseState::from_bits_retain(3);
const NONE: LeaseState = LeaseState::from_bits_retain(0);

fn others(folder: &Path, what: &str) {
    let status = Process::new("sh")
        .arg("-ec")
        .arg(what)
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success(), "{what}");
}

fn lease(key: u8, state: LeaseState) -> Lease {
    Lease {
        lease_key: LeaseKey([key; 16]),
        lease_state: state,
        lease_flags: Default::default(),
    }
}

impl Raw {
    /// Opens a file with a lease; returns what was granted.
    fn leased(&mut self, name: &str, key: u8) -> (FileId, LeaseState) {
        let how = Create {
            oplock: OplockLevel::Lease,
            contexts: vec![RequestContext::Lease(lease(key, RWH))],
            ..Create::of(name)
        };
        self.leased_as(&how)
    }

    pub(crate) fn leased_as(&mut self, how: &Create<'_>) -> (FileId, LeaseState) {
        let request = how.request();
        let reply = self.call(Command::Create, |w| request.encode(w));
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        let response = CreateResponse::decode(&mut reply.body()).unwrap();
        let granted = response.contexts.iter().find_map(|context| match context {
            ResponseContext::Lease(lease) => Some(lease.lease_state),
            ResponseContext::LeaseV2(v2) => Some(v2.lease.lease_state),
            _ => None,
        });
        (response.file_id, granted.unwrap_or_default())
    }

    /// Receives a message, which must be a break.
    pub(crate) fn receive_break(&mut self) -> BreakNotification {
        let message = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
        assert_eq!(header.message_id, MessageId::UNSOLICITED, "{header:?}");
        BreakNotification::decode(&mut Reply { header, message }.body()).unwrap()
    }

    #[track_caller]
    fn lease_is_broken(&mut self, key: u8, from: LeaseState) {
        let BreakNotification::Lease(notice) = self.receive_break() else {
            panic!("a lease was to break");
        };
        let states = (notice.current_lease_state, notice.new_lease_state);
        assert_eq!((notice.lease_key.0[0], states), (key, (from, NONE)));
        let ack = BreakAcknowledgment::Lease(LeaseBreak {
            lease_key: notice.lease_key,
            lease_state: NONE,
        });
        assert_eq!(
            self.call(Command::OplockBreak, |w| ack.encode(w)).status(),
            NtStatus::SUCCESS
        );
    }

    /// Checks that no message arrives for a while.
    pub(crate) fn expect_no_message(&mut self) {
        std::thread::sleep(Duration::from_millis(100));
        let echo = self.message(Command::Echo, |w| w.bytes(&[4, 0, 0, 0]));
        self.send(&echo);
        let message = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
        assert_eq!(header.command, Command::Echo, "{header:?}");
    }

    fn ask_for_changes(&mut self, folder: FileId, tree: bool) {
        let request = ChangeNotifyRequest {
            flags: if tree {
                ChangeNotifyFlags::WATCH_TREE
            } else {
                ChangeNotifyFlags::default()
            },
            output_buffer_length: 60_000,
            file_id: folder,
            completion_filter: CompletionFilter::from_bits_retain(0xFFF),
        };
        let message = self.message(Command::ChangeNotify, |w| request.encode(w));
        self.send(&message);
    }

    /// Receives changes up to that of `last`.
    fn changes(&mut self, folder: FileId, tree: bool, last: &str) -> Vec<(Action, String)> {
        let mut all = Vec::new();
        loop {
            let reply = self.reply().unwrap();
            assert_eq!(reply.status(), NtStatus::SUCCESS);
            let response = ChangeNotifyResponse::decode(&mut reply.body()).unwrap();
            let changes = decode_changes(response.output).unwrap();
            all.extend(changes.iter().map(|one| (one.action, one.file_name.to_string())));
            self.ask_for_changes(folder, tree);
            if all.iter().any(|(_, name)| name == last) {
                return all;
            }
        }
    }
}

#[test]
fn local_changes_break_leases() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let changes = [
        "echo more >> file",
        ": > file",
        "touch -d @7 file",
        "mv file away",
        "rm file",
        "echo new > other; mv other file",
    ];
    for change in changes {
        others(folder.path(), "rm -f file away; echo old > file");
        let mut raw = Raw::ready(serve.address);
        let (file, granted) = raw.leased("file", 3);
        assert_eq!(granted, RWH);
        raw.expect_no_message();
        others(folder.path(), change);
        raw.lease_is_broken(3, RWH);
        others(folder.path(), "touch file");
        raw.expect_no_message();
        assert_eq!(raw.close(file), NtStatus::SUCCESS);
    }
}

#[test]
fn local_changes_break_oplocks() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let how = Create {
        oplock: OplockLevel::Batch,
        ..Create::of("file")
    };
    let file = raw.create(&how).unwrap();
    others(folder.path(), "echo more >> file");
    let BreakNotification::Oplock(notice) = raw.receive_break() else {
        panic!("an oplock was to break");
    };
    assert_eq!((notice.oplock_level, notice.file_id), (OplockLevel::None, file));
    let ack = BreakAcknowledgment::Oplock(OplockBreak { ..notice });
    assert_eq!(
        raw.call(Command::OplockBreak, |w| ack.encode(w)).status(),
        NtStatus::SUCCESS
    );
}

#[test]
fn the_holders_own_changes_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let (file, granted) = raw.leased("file", 3);
    assert_eq!(granted, RWH);
    for round in 0..20 {
        let write = samples::write(file, round, b"content");
        assert_eq!(
            raw.call(Command::Write, |w| w.bytes(&write)).status(),
            NtStatus::SUCCESS
        );
    }
    raw.expect_no_message();
    let (again, granted) = raw.leased("file", 3);
    assert_eq!(granted, RWH, "the lease is as it was");
    assert_eq!(raw.close(again), NtStatus::SUCCESS);
    others(folder.path(), "echo >> file");
    raw.lease_is_broken(3, RWH);
}

#[test]
fn local_changes_break_leases_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    others(folder.path(), "mkdir sub; echo > sub/old");
    // Each of them causes one event; a second, late one would break the next lease.
    for change in [
        "mkdir sub/new",
        "echo more >> sub/old",
        "mv sub/old sub/older",
        "rmdir sub/new",
    ] {
        let mut raw = Raw::ready(serve.address);
        let how = Create {
            access: AccessMask::LIST_DIRECTORY,
            options: CreateOptions::DIRECTORY_FILE,
            oplock: OplockLevel::Lease,
            contexts: vec![RequestContext::LeaseV2(LeaseV2 {
                lease: lease(4, RH),
                parent_lease_key: LeaseKey::default(),
                epoch: 0,
            })],
            ..Create::of("sub")
        };
        let (file, granted) = raw.leased_as(&how);
        assert_eq!(granted, RH);
        raw.expect_no_message();
        others(folder.path(), change);
        raw.lease_is_broken(4, RH);
        assert_eq!(raw.close(file), NtStatus::SUCCESS);
    }
}

#[test]
fn nothing_is_cached_where_nothing_can_be_watched() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        watched_nodes_max: 1,
        ..StoreOptions::default()
    };
    let store = LocalStore::open(folder.path(), &options).unwrap();
    let serve = Serve::with(folder.path(), |options| {
        options.shares = vec![Share::new("data", std::sync::Arc::new(store))];
    });
    let mut raw = Raw::ready(serve.address);
    let (first, granted) = raw.leased("first", 3);
    assert_eq!(granted, RWH);
    let (second, granted) = raw.leased("second", 4);
    assert_eq!(granted, NONE);
    assert_eq!(raw.close(second), NtStatus::SUCCESS);
    assert_eq!(raw.close(first), NtStatus::SUCCESS);
    assert_eq!(raw.leased("second", 4).1, RWH);
}

#[test]
fn watchers_are_notified_of_local_changes() {
    for tree in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let serve = Serve::start(folder.path());
        others(folder.path(), "mkdir -p sub/deep; echo > sub/old");
        let mut raw = Raw::ready(serve.address);
        let how = Create {
            access: AccessMask::LIST_DIRECTORY,
            options: CreateOptions::DIRECTORY_FILE,
            ..Create::of("sub")
        };
        let watched = raw.create(&how).unwrap();
        raw.ask_for_changes(watched, tree);
        assert_eq!(raw.receive().map(|_| ()), Some(()), "the interim response");
        others(
            folder.path(),
            "echo > sub/deep/file; mv sub/old sub/new; rm sub/new; echo x > sub/made; mkdir sub/last",
        );
        let changes = raw.changes(watched, tree, "last");
        let deep = ["deep\\file", "deep"];
        let (deep, top): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|(_, name)| deep.contains(&name.as_str()));
        assert_eq!(deep.contains(&(Action::ADDED, "deep\\file".to_owned())), tree);
        let expected = [
            (Action::RENAMED_OLD_NAME, "old"),
            (Action::RENAMED_NEW_NAME, "new"),
            (Action::REMOVED, "new"),
            (Action::ADDED, "made"),
            (Action::MODIFIED, "made"),
            (Action::ADDED, "last"),
        ];
        assert_eq!(top, expected.map(|(action, name)| (action, name.to_owned())));
        // Changes by clients are reported once.
        let mut other = Raw::ready(serve.address);
        let mine = other.create(&Create::of("sub\\mine")).unwrap();
        assert_eq!(other.close(mine), NtStatus::SUCCESS);
        others(folder.path(), "sleep 0.05; mkdir sub/end");
        let changes = raw.changes(watched, tree, "end");
        let mine = changes
            .iter()
            .filter(|(action, name)| *action == Action::ADDED && name == "mine");
        assert_eq!(mine.count(), 1, "{changes:?}");
    }
}
