//! DirectoryLeasing: what breaks the lease of a folder, and who may acknowledge that ([MS-SMB2] 3.3.5.22.2).

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, OplockLevel};
use ropeway_smb_wire::create_context::{Lease, LeaseState, LeaseV2, RequestContext};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::FileInfoClass;
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak};
use ropeway_smb_wire::{FileId, Guid, LeaseKey, NtStatus};

use crate::raw::{Create, Raw, close_body};
use crate::samples;
use crate::serve::Serve;

const NONE: LeaseState = LeaseState::from_bits_retain(0);
const R: LeaseState = LeaseState::from_bits_retain(1);
const RH: LeaseState = LeaseState::from_bits_retain(3);

/// Returns a client of its own `ClientGuid`.
fn client(serve: &Serve, guid: u8) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.guid = Guid([guid; 16]);
    raw.enter();
    raw
}

/// Returns how a folder is opened with a lease of this key.
fn leased(name: &str, key: u8) -> Create<'static> {
    let lease = LeaseV2 {
        lease: Lease {
            lease_key: LeaseKey([key; 16]),
            lease_state: RH,
            lease_flags: Default::default(),
        },
        parent_lease_key: LeaseKey([0; 16]),
        epoch: 0,
    };
    Create {
        options: CreateOptions::DIRECTORY_FILE,
        access: AccessMask::GENERIC_READ,
        oplock: OplockLevel::Lease,
        contexts: vec![RequestContext::LeaseV2(lease)],
        ..Create::of(name)
    }
}

/// Acknowledges a break of the lease of this key.
fn acknowledge(raw: &mut Raw, key: u8, keeps: LeaseState) -> NtStatus {
    let ack = BreakAcknowledgment::Lease(LeaseBreak {
        lease_key: LeaseKey([key; 16]),
        lease_state: keeps,
    });
    raw.call(Command::OplockBreak, |w| ack.encode(w)).status()
}

/// Receives a break of the lease of this key, and returns what is left.
fn broken(raw: &mut Raw, key: u8) -> LeaseState {
    match raw.receive_break() {
        BreakNotification::Lease(lease) if lease.lease_key == LeaseKey([key; 16]) => lease.new_lease_state,
        other => panic!("{other:?}"),
    }
}

/// DirectoryLeasing_Negative_InvalidClientGuidInLeaseBreakAck: a lease is found by `ClientGuid` and key.
#[test]
fn nobody_else_acknowledges_a_break() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let serve = Serve::start(folder.path());
    let mut holder = client(&serve, 1);
    let mut other = client(&serve, 2);
    assert_eq!(holder.leased_as(&leased("d", 5)).1, RH);
    other.create(&Create::of("d\\new")).unwrap();
    assert_eq!(broken(&mut holder, 5), NONE);
    assert_eq!(acknowledge(&mut other, 5, NONE), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(acknowledge(&mut holder, 6, NONE), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(acknowledge(&mut holder, 5, RH), NtStatus::REQUEST_NOT_ACCEPTED);
    assert_eq!(acknowledge(&mut holder, 5, NONE), NtStatus::SUCCESS);
    assert_eq!(acknowledge(&mut holder, 5, NONE), NtStatus::UNSUCCESSFUL);
}

/// Marks a file or folder for deletion.
fn delete(raw: &mut Raw, file: FileId) -> NtStatus {
    let delete = samples::set_info(file, FileInfoClass::Disposition, &[1]);
    raw.call(Command::SetInfo, |w| w.bytes(&delete)).status()
}

/// BVT_DirectoryLeasing_LeaseBreakOnMultiClients: a deletion breaks the leases of both.
#[test]
fn a_deletion_breaks_the_leases_of_all_clients() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::fs::write(folder.path().join("d/file"), "text").unwrap();
    let serve = Serve::start(folder.path());
    let mut holders = [client(&serve, 1), client(&serve, 2)];
    for holder in &mut holders {
        assert_eq!(holder.leased_as(&leased("d", 5)).1, RH);
    }
    let mut other = client(&serve, 3);
    let file = other.create(&Create::of("d\\file")).unwrap();
    assert_eq!(delete(&mut other, file), NtStatus::SUCCESS);
    assert_eq!(other.close(file), NtStatus::SUCCESS);
    for holder in &mut holders {
        assert_eq!(broken(holder, 5), NONE);
        assert_eq!(acknowledge(holder, 5, NONE), NtStatus::SUCCESS);
    }
}

/// DirectoryLeasing_BreakHandleCachingByConflictOpen: the holder, which shares nothing, is asked for its handle,
/// and keeps the folder open.
#[test]
fn a_conflicting_open_breaks_the_handle_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let serve = Serve::start(folder.path());
    let mut holder = client(&serve, 1);
    let mut other = client(&serve, 2);
    let mut request = leased("d", 5);
    request.sharing = Default::default();
    assert_eq!(holder.leased_as(&request).1, RH);
    let wish = Create {
        options: CreateOptions::DIRECTORY_FILE,
        access: AccessMask::GENERIC_WRITE,
        disposition: CreateDisposition::Open,
        ..Create::of("d")
    };
    let request = wish.request();
    let open = other.message(Command::Create, |w| request.encode(w));
    other.send(&open);
    assert_eq!(broken(&mut holder, 5), R);
    assert_eq!(acknowledge(&mut holder, 5, R), NtStatus::SUCCESS);
    assert_eq!(other.reply().unwrap().status(), NtStatus::SHARING_VIOLATION);
}

/// DirectoryLeasing_BreakHandleCachingByParentRenamed: who renames the folder above asks for the handles below it.
#[test]
fn renaming_the_folder_above_breaks_the_handle_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("above/d")).unwrap();
    let serve = Serve::start(folder.path());
    let mut holder = client(&serve, 1);
    let mut other = client(&serve, 2);
    let (held, granted) = holder.leased_as(&leased("above\\d", 5));
    assert_eq!(granted, RH);
    let above = other.create(&Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..Create::of("above")
    });
    let rename = samples::rename(above.unwrap(), "renamed");
    let rename = other.message(Command::SetInfo, |w| w.bytes(&rename));
    other.send(&rename);
    assert_eq!(broken(&mut holder, 5), R);
    assert_eq!(holder.close(held), NtStatus::SUCCESS);
    assert_eq!(other.reply().unwrap().status(), NtStatus::SUCCESS);
    assert!(folder.path().join("renamed/d").is_dir());
}

/// smb2.lease.unlink: who deletes a file with its CLOSE asks others for their handles first, and the answer
/// comes when they are gone. The CLOSE cannot be cancelled.
#[test]
fn a_close_that_deletes_waits_for_the_handles_of_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let serve = Serve::start(folder.path());
    let mut holder = client(&serve, 1);
    let mut other = client(&serve, 2);
    for keeps_open in [false, true] {
        let mut how = leased("file", 5);
        how.options = CreateOptions::default();
        let (held, granted) = holder.leased_as(&how);
        assert_eq!(granted, RH);
        let file = other.create(&Create {
            options: CreateOptions::DELETE_ON_CLOSE,
            ..Create::of("file")
        });
        let close = other.message(Command::Close, |w| close_body(w, file.unwrap()));
        other.send(&close);
        assert_eq!(broken(&mut holder, 5), R);
        let mut cancel = other.message(Command::Cancel, |w| w.u32(4));
        cancel[24..32].copy_from_slice(&close[24..32]);
        other.sign(&mut cancel);
        other.send(&cancel);
        let echo = other.call(Command::Echo, |w| w.u32(4));
        assert_eq!(echo.header.command, Command::Echo, "the CLOSE waits");
        // The holder decides whether the file is gone.
        if keeps_open {
            assert_eq!(acknowledge(&mut holder, 5, R), NtStatus::SUCCESS);
        } else {
            assert_eq!(holder.close(held), NtStatus::SUCCESS);
        }
        assert_eq!(other.reply().unwrap().status(), NtStatus::SUCCESS);
        assert_eq!(folder.path().join("file").exists(), keeps_open);
        if keeps_open {
            assert_eq!(holder.close(held), NtStatus::SUCCESS);
            assert!(!folder.path().join("file").exists());
        } else {
            std::fs::write(folder.path().join("file"), "text").unwrap();
        }
    }
}
