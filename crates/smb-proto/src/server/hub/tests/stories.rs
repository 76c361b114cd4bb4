//! Leases when files and folders are deleted or renamed, and other long scenarios of smb2.lease.

use super::*;

/// smb2.lease.initial_delete_tdis: a close that deletes breaks the handle caching of others, and
/// does not wait.
#[test]
fn closing_to_delete_breaks_handle_caching() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RH, 0)),
        ..world.request()
    };
    let open = world.open(&request).open;
    let deleter = OpenRequest {
        delete_on_close: true,
        ..world.request()
    };
    let deleter = world.open(&deleter).open;
    assert_eq!(world.close(deleter).delete, None);
    assert_eq!(world.breaks(), [(1, RH, R, 2)]);
    assert!(world.close(open).delete.is_some());
    world.assert_empty();
}

/// smb2.lease.rename_dir_openfile: one open after the other is asked, until one stays.
#[test]
fn renaming_a_folder_asks_for_handles_beneath() {
    let mut world = world();
    let opens = [1, 2, 3].map(|number| {
        let request = OpenRequest {
            file: file(u64::from(number)),
            path: format!("d\\file{number}").as_str().into(),
            ..world.leased(number, RH)
        };
        world.open(&request).open
    });
    let waiter = world.waiter();
    let touch = |world: &mut World| {
        world
            .hub
            .break_beneath(Duration::ZERO, None, 1, &"D".into(), waiter)
    };
    for (number, open) in [(1, opens[0]), (2, opens[1])] {
        assert_eq!(touch(&mut world), BreakOutcome::Wait);
        assert_eq!(world.breaks(), [(number, RH, R, 0)]);
        world.close(open);
        assert_eq!(world.woken(), [waiter]);
    }
    assert_eq!(touch(&mut world), BreakOutcome::Wait);
    world.events();
    world.ack(3, R).unwrap();
    assert_eq!(world.woken(), [waiter]);
    assert_eq!(touch(&mut world), BreakOutcome::Refused(NtStatus::ACCESS_DENIED));
    world.close(opens[2]);
    assert_eq!(touch(&mut world), BreakOutcome::Ready);
    world.assert_empty();
}

/// smb2.lease.two-leases: a request that waits for two breaks is not woken by one.
#[test]
fn all_holders_must_acknowledge() {
    let mut world = world();
    let opens = [1, 2].map(|number| {
        let request = OpenRequest {
            access: READ,
            share_access: ShareAccess::READ,
            ..world.leased(number, RH)
        };
        world.open(&request).open
    });
    let other = OpenRequest {
        share_access: ALONE,
        ..world.leased(3, RH)
    };
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RH, R, 0), (2, RH, R, 0)]);
    world.close(opens[0]);
    assert_eq!(world.woken(), []);
    world.close(opens[1]);
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(state(&world.open(&other)), RH);
}

/// smb2.lease.v2_rename: a rename by the holder does not break its own lease; the lease stays with
/// the file.
#[test]
fn a_lease_goes_with_its_file() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0x4711)),
        ..world.request()
    };
    let open = world.open(&request).open;
    let waiter = world.waiter();
    let outcome = world
        .hub
        .break_caching(Duration::ZERO, Some(open), &file(1), BreakTrigger::Rename, waiter);
    assert_eq!(outcome, BreakOutcome::Ready);
    world.hub.renamed(1, &"folder\\file".into(), &"other".into());
    let again = OpenRequest {
        path: "other".into(),
        lease: Some(lease_v2(1, NONE, 0)),
        ..request
    };
    let again = world.open(&again);
    assert_eq!((state(&again), epoch(&again)), (RWH, 0x4712));
    assert_eq!(world.events(), []);
}

/// Events that were not polled before a cancellation are not reported.
#[test]
fn forgotten_requests_are_not_woken() {
    let mut world = world();
    let request = world.leased(1, RWH);
    let open = world.open(&request).open;
    let other = world.request();
    world.waits(&other);
    world.events();
    world.close(open);
    world.hub.forget(other.waiter);
    assert_eq!(world.events(), []);
    world.assert_empty();
}
