//! Journals that cannot be written, and handles that cannot come back.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_server::{HandleJournal, Share};
use ropeway_smb_wire::create::{AccessMask, OplockLevel};
use ropeway_smb_wire::create_context::DurableHandleV2Flags;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, Guid};

use super::{EXCLUSIVE, MISSING, OK, Place, back, persistent, ready, request};
use crate::samples;
use crate::serve::Serve;

impl Place {
    fn record(&self, number: u64, ending: &str) -> PathBuf {
        self.journal().join(format!("{number:016x}.{ending}"))
    }
}

/// A journal that cannot be written promises nothing.
#[test]
fn without_its_record_a_handle_is_durable_at_most() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let kept = raw.keeps(&persistent("kept"));
    for (number, oplock, expected) in [
        (1, OplockLevel::None, None),
        (2, OplockLevel::Batch, Some(DurableHandleV2Flags::default())),
    ] {
        fs::create_dir(place.record(kept.persistent + number, "new")).unwrap();
        let mut how = persistent("file");
        how.oplock = oplock;
        how.contexts = vec![request(Guid([8; 16]), 0)];
        let opened = raw.opens(&how).unwrap();
        assert_eq!(opened.durable, expected);
        assert_eq!(raw.close(opened.id), OK);
    }
    // A lock that cannot be kept ends the promise; the handle goes on.
    let blocked = place.record(kept.persistent, "new");
    fs::create_dir(&blocked).unwrap();
    assert_eq!(raw.lock(kept, 0, EXCLUSIVE), OK);
    assert_eq!(place.records(), 0);
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(raw.lock(kept, 20, EXCLUSIVE), OK);
    assert_eq!(raw.put(kept, b"goes on"), OK);
    assert_eq!(place.records(), 0);
    drop(serve);
    let serve = place.serve();
    assert_eq!(ready(&serve, 1).create(&back("kept", kept)), Err(MISSING));
}

/// The client was told of the lock, and the old record does not have it.
#[test]
fn a_record_that_cannot_be_removed_is_removed_later() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let kept = raw.keeps(&persistent("kept"));
    let record = place.record(kept.persistent, "handle");
    let old = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    assert_eq!(raw.lock(kept, 0, EXCLUSIVE), OK);
    fs::remove_dir(&record).unwrap();
    fs::write(&record, old).unwrap();
    for _ in 0..500 {
        if place.records() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the old record stays");
}

/// It is still the journal of this server.
#[test]
fn a_journal_that_was_moved_is_still_written() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let kept = raw.keeps(&persistent("kept"));
    let away = place.state.path().join("away");
    fs::rename(place.journal(), &away).unwrap();
    assert_eq!(raw.lock(kept, 0, EXCLUSIVE), OK);
    fs::rename(&away, place.journal()).unwrap();
    drop(serve);
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    assert_eq!(raw.create(&back("kept", kept)), Ok(kept));
    let unlock = ropeway_smb_wire::lock::LockFlags::UNLOCK;
    assert_eq!(raw.lock(kept, 0, unlock), OK);
}

#[test]
fn the_name_of_a_stream_is_that_of_its_handle() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let stream = raw.keeps(&persistent("file:One"));
    assert_eq!(raw.put(stream, b"content"), OK);
    assert_eq!(place.records(), 1);
    assert_eq!(raw.renames(stream, ":Two"), OK);
    assert_eq!(place.records(), 0);
    assert_eq!(raw.put(stream, b"goes on"), OK);
}

#[test]
fn a_file_that_becomes_a_link_has_no_record() {
    let place = Place::new();
    let serve = place.serve();
    let mut raw = ready(&serve, 1);
    let id = raw.keeps(&persistent("file"));
    let target = "target".into();
    let link = ReparseData::Symlink(Symlink {
        substitute_name: target,
        print_name: "target".into(),
        flags: SymlinkFlags::RELATIVE,
    });
    let mut input = Vec::new();
    link.encode(&mut ropeway_smb_wire::Writer::new(&mut input));
    let body = samples::control(id, CtlCode::SET_REPARSE_POINT, &input);
    let reply = raw.call(Command::Ioctl, |w| w.bytes(&body));
    assert_eq!(reply.status(), OK);
    assert_eq!(place.records(), 0);
    drop(serve);
    let serve = place.serve();
    assert_eq!(ready(&serve, 1).create(&back("file", id)), Err(MISSING));
}

/// Each share has its own opens, with the same paths.
#[test]
fn a_rename_by_another_share_of_the_folder_is_kept() {
    let place = Place::new();
    let both = || {
        let journal = Arc::new(HandleJournal::open(&place.journal()).unwrap());
        let store = LocalStore::open(place.folder.path(), &StoreOptions::default()).unwrap();
        let store = Arc::new(store);
        Serve::with(place.folder.path(), |options| {
            options.shares = ["data", "more"]
                .map(|name| Share {
                    journal: Some(Arc::clone(&journal)),
                    ..Share::new(name, store.clone())
                })
                .into();
        })
    };
    let serve = both();
    let mut one = ready(&serve, 1);
    let kept = one.keeps(&persistent("file"));
    let mut two = ready(&serve, 2);
    assert_eq!(two.tree("more"), OK);
    let other: FileId = two.create(&crate::raw::Create::of("file")).unwrap();
    assert_eq!(two.renames(other, "moved"), OK);
    drop((one, two, serve));
    let serve = both();
    assert_eq!(ready(&serve, 1).create(&back("moved", kept)), Ok(kept));
}

/// What a share allows may be less at the next start.
#[test]
fn a_read_only_share_gives_back_readers_only() {
    let read = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    for (access, comes_back) in [
        (read, true),
        (read | AccessMask::WRITE_ATTRIBUTES, false),
        (read | AccessMask::WRITE_DAC, false),
        (read | AccessMask::DELETE, false),
    ] {
        let place = Place::new();
        let serve = place.serve();
        let mut how = persistent("file");
        how.access = access;
        let id = ready(&serve, 1).keeps(&how);
        drop(serve);
        let journal = HandleJournal::open(&place.journal()).unwrap();
        let serve = place.serve_with(journal, true);
        let again = ready(&serve, 1).create(&back("file", id));
        assert_eq!(again.is_ok(), comes_back, "{access:?}");
    }
}
