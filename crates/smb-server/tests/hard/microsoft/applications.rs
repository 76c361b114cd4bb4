//! AppInstanceId and AppInstanceVersion: an application that moves to another client ([MS-SMB2]
//! 3.3.5.9.13).

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, OplockLevel};
use ropeway_smb_wire::create_context::{
    AppInstanceId, AppInstanceVersion, DurableRequestV2, Lease, LeaseState, LeaseV2, RequestContext,
};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{FileId, Guid, LeaseKey, NtStatus};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const DATA: &[u8] = b"content";

/// Returns a client of its own `ClientGuid`.
fn client(serve: &Serve, dialect: Dialect, guid: u8) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.guid = Guid([guid; 16]);
    raw.dialect = dialect;
    raw.enter();
    raw
}

/// Returns how an application opens a file. Microsoft's cases use the identifier 0.
fn opens(id: u8, version: Option<(u64, u64)>) -> Create<'static> {
    let mut contexts = vec![RequestContext::AppInstanceId(AppInstanceId(Guid([id; 16])))];
    if let Some((high, low)) = version {
        contexts.push(RequestContext::AppInstanceVersion(AppInstanceVersion {
            high,
            low,
        }));
    }
    Create {
        contexts,
        ..Create::of("file")
    }
}

fn write(raw: &mut Raw, file: FileId) -> NtStatus {
    let write = samples::write(file, 0, DATA);
    raw.call(Command::Write, |w| w.bytes(&write)).status()
}

/// AppInstanceVersion_*: a greater version closes the first open. Another one, or none, is refused, and the
/// first open stays.
#[test]
fn greater_versions_close_the_old_open() {
    use Dialect::{Smb302, Smb311};
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for (first, second, closes) in [
        ((Smb311, Some((1, 0))), (Smb311, Some((2, 1))), true),
        ((Smb311, Some((2, 0))), (Smb311, Some((2, 0))), false),
        ((Smb311, Some((2, 0))), (Smb311, Some((1, 0))), false),
        ((Smb311, Some((1, 2))), (Smb311, Some((1, 1))), false),
        ((Smb311, Some((1, 0))), (Smb311, None), false),
        ((Smb311, Some((1, 0))), (Smb302, None), false),
        // Before 3.1.1 there are no versions.
        ((Smb311, Some((1, 0))), (Smb302, Some((2, 0))), false),
        ((Smb302, Some((3, 0))), (Smb311, Some((1, 0))), true),
        ((Smb302, None), (Smb311, Some((1, 0))), true),
    ] {
        let mut old = client(&serve, first.0, 1);
        let mut new = client(&serve, second.0, 2);
        let held = old.create(&opens(0, first.1)).unwrap();
        let moved = new.create(&opens(0, second.1));
        let what = format!("{first:?}, {second:?}");
        if closes {
            assert_eq!(write(&mut old, held), NtStatus::FILE_CLOSED, "{what}");
            assert_eq!(write(&mut new, moved.unwrap()), NtStatus::SUCCESS, "{what}");
        } else {
            assert_eq!(moved, Err(NtStatus::FILE_FORCED_CLOSED), "{what}");
            assert_eq!(write(&mut old, held), NtStatus::SUCCESS, "{what}");
        }
        drop((old, new));
        serve.settles_at((0, 0));
    }
}

/// BVT_AppInstanceVersion_SMB311_SameVersion: the first client comes back too late.
#[test]
fn who_was_closed_does_not_come_back_with_the_same_version() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut old = client(&serve, Dialect::Smb311, 1);
    let mut new = client(&serve, Dialect::Smb311, 2);
    let held = old.create(&opens(0, Some((1, 0)))).unwrap();
    let moved = new.create(&opens(0, Some((2, 0)))).unwrap();
    assert_eq!(write(&mut old, held), NtStatus::FILE_CLOSED);
    let back = old.create(&opens(0, Some((2, 0))));
    assert_eq!(back, Err(NtStatus::FILE_FORCED_CLOSED));
    assert_eq!(write(&mut new, moved), NtStatus::SUCCESS);
}

/// AppInstanceId_Smb311, AppInstanceId_Negative_DifferentAppInstanceIdInReopen: the old open was durable, the new
/// one need not be. Another application meets the old open.
#[test]
fn a_durable_open_gives_way_to_its_own_application() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let durable = RequestContext::DurableRequestV2(DurableRequestV2 {
        timeout_ms: 0,
        flags: Default::default(),
        create_guid: Guid([3; 16]),
    });
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut old = client(&serve, dialect, 1);
        let mut new = client(&serve, dialect, 2);
        let mut how = opens(7, None);
        how.oplock = OplockLevel::Batch;
        how.contexts.push(durable.clone());
        let held = old.create(&how).unwrap();
        // It is asked for its caching, and keeps it for now.
        let other = Create {
            disposition: CreateDisposition::Open,
            access: AccessMask::READ_ATTRIBUTES,
            ..opens(8, None)
        };
        let other = new.create(&other).unwrap();
        assert_eq!(write(&mut old, held), NtStatus::SUCCESS, "{dialect}");
        assert_eq!(new.close(other), NtStatus::SUCCESS);
        let moved = new.create(&opens(7, None)).unwrap();
        assert_eq!(write(&mut old, held), NtStatus::FILE_CLOSED, "{dialect}");
        assert_eq!(write(&mut new, moved), NtStatus::SUCCESS, "{dialect}");
        drop((old, new));
        serve.settles_at((0, 0));
    }
}

/// AppInstanceId_FileLeasing_NoLeaseInReOpen, AppInstanceId_Lock_ExpectNoLockInReOpen: leases and locks of the
/// closed open are gone.
#[test]
fn leases_and_locks_go_with_the_old_open() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut old = client(&serve, Dialect::Smb311, 1);
    let mut new = client(&serve, Dialect::Smb311, 2);
    let mut how = opens(7, None);
    how.oplock = OplockLevel::Lease;
    how.contexts.push(RequestContext::Lease(Lease {
        lease_key: LeaseKey([1; 16]),
        lease_state: LeaseState::from_bits_retain(7),
        lease_flags: Default::default(),
    }));
    let (held, granted) = old.leased_as(&how);
    assert_eq!(granted, LeaseState::from_bits_retain(7));
    let lock = LockRequest {
        file_id: held,
        lock_sequence: Default::default(),
        locks: vec![LockElement {
            offset: 0,
            length: 100,
            flags: LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
        }],
    };
    let locked = old.call(Command::Lock, |w| lock.encode(w));
    assert_eq!(locked.status(), NtStatus::SUCCESS);
    let moved = new.create(&opens(7, None)).unwrap();
    // No break was sent, and nothing is locked.
    old.expect_no_message();
    assert_eq!(write(&mut new, moved), NtStatus::SUCCESS);
    assert_eq!(write(&mut old, held), NtStatus::FILE_CLOSED);
}

/// AppInstanceId_DirectoryLeasing_NoLeaseInReOpen: the same of a folder.
#[test]
fn the_lease_of_a_folder_goes_with_the_old_open() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("file")).unwrap();
    let serve = Serve::start(folder.path());
    let mut old = client(&serve, Dialect::Smb311, 1);
    let mut new = client(&serve, Dialect::Smb311, 2);
    let lease = LeaseV2 {
        lease: Lease {
            lease_key: LeaseKey([1; 16]),
            lease_state: LeaseState::from_bits_retain(3),
            lease_flags: Default::default(),
        },
        parent_lease_key: LeaseKey([0; 16]),
        epoch: 0,
    };
    let mut how = Create {
        options: CreateOptions::DIRECTORY_FILE,
        oplock: OplockLevel::Lease,
        ..opens(7, None)
    };
    how.contexts.push(RequestContext::LeaseV2(lease));
    let (held, granted) = old.leased_as(&how);
    assert_eq!(granted, LeaseState::from_bits_retain(3));
    let moved = Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..opens(7, None)
    };
    let moved = new.create(&moved).unwrap();
    assert_eq!(old.close(held), NtStatus::FILE_CLOSED);
    new.create(&Create::of("file\\new")).unwrap();
    old.expect_no_message();
    assert_eq!(new.close(moved), NtStatus::SUCCESS);
}

/// Who may not read a file closes nobody's open of it by naming its application ([MS-SMB2] 3.3.5.9.13: a maximal
/// access with GENERIC_READ).
#[test]
fn who_may_not_read_closes_no_open() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut old = client(&serve, Dialect::Smb311, 1);
    let mut new = client(&serve, Dialect::Smb311, 2);
    let held = old.create(&opens(7, None)).unwrap();
    // FILE_WRITE_DATA.
    old.protect("file", "D:(A;;0x2;;;WD)");
    let how = Create {
        access: AccessMask::WRITE_DATA,
        ..opens(7, None)
    };
    let file = new.create(&how).unwrap();
    assert_eq!(write(&mut old, held), NtStatus::SUCCESS);
    assert_eq!(new.close(file), NtStatus::SUCCESS);
    // And FILE_READ_DATA.
    old.protect("file", "D:(A;;0x3;;;WD)");
    new.create(&how).unwrap();
    assert_eq!(write(&mut old, held), NtStatus::FILE_CLOSED);
}
