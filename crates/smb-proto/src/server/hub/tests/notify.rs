//! Change notification ([MS-SMB2] 3.3.5.19), as smb2.notify has it.

use super::*;
use ropeway_smb_wire::change_notify::{Action, CompletionFilter, FileNotifyInformation};

const NAMES: CompletionFilter = CompletionFilter::from_bits_retain(3);
const FILES: CompletionFilter = CompletionFilter::FILE_NAME;

impl World {
    fn folder(&mut self, path: &str) -> OpenId {
        let request = OpenRequest {
            path: path.into(),
            directory: true,
            ..self.request()
        };
        self.open(&request).open
    }

    fn watch(&mut self, open: OpenId, recursive: bool, output_max: u32) -> Result<Changes, WaiterId> {
        let waiter = self.waiter();
        match self.hub.watch(open, NAMES, recursive, output_max, waiter) {
            WatchOutcome::Ready { status, changes } => Ok((status, told(&changes))),
            WatchOutcome::Wait => Err(waiter),
            WatchOutcome::Refused(status) => panic!("{status}"),
        }
    }

    fn added(&mut self, path: &str) {
        self.hub.changed(1, &path.into(), Action::ADDED, FILES);
    }

    fn answers(&mut self) -> Vec<Answer> {
        let answers = self.events().into_iter().map(|event| match event {
            Event::NotifyReady {
                waiter,
                status,
                changes,
            } => (waiter, status, told(&changes)),
            other => panic!("{other:?}"),
        });
        answers.collect()
    }
}

type Answer = (WaiterId, NtStatus, Vec<(u32, String)>);
type Changes = (NtStatus, Vec<(u32, String)>);

fn told(changes: &[FileNotifyInformation]) -> Vec<(u32, String)> {
    let changes = changes.iter();
    changes
        .map(|change| (change.action.0, change.file_name.to_string()))
        .collect()
}

fn one(action: Action, name: &str) -> Vec<(u32, String)> {
    vec![(action.0, name.to_owned())]
}

/// smb2.notify.dir: kept from the first request on, also between requests; nothing before.
#[test]
fn changes_are_kept_between_requests() {
    let mut world = world();
    let open = world.folder("Base");
    world.added("base\\before");
    let waiter = world.watch(open, false, 1000).unwrap_err();
    world.hub.forget(waiter);
    world.added("BASE\\one");
    world.added("base\\sub\\deep");
    world.added("bas\\e");
    world.hub.changed(1, &"base".into(), Action::MODIFIED, FILES);
    world.hub.changed(2, &"base\\x".into(), Action::ADDED, FILES);
    world
        .hub
        .changed(1, &"base\\x".into(), Action::MODIFIED, CompletionFilter::SIZE);
    let (status, changes) = world.watch(open, false, 1000).unwrap();
    assert_eq!((status, changes), (NtStatus::SUCCESS, one(Action::ADDED, "one")));
    // smb2.notify.double: first come first.
    let [first, second] = [0, 1].map(|_| world.watch(open, false, 1000).unwrap_err());
    world.added("base\\a");
    world.added("base\\b");
    let expected = ["a", "b"].map(|name| one(Action::ADDED, name));
    let [a, b] = expected;
    assert_eq!(
        world.answers(),
        [(first, NtStatus::SUCCESS, a), (second, NtStatus::SUCCESS, b)]
    );
    // smb2.notify.close.
    let last = world.watch(open, false, 1000).unwrap_err();
    world.close(open);
    assert_eq!(world.answers(), [(last, NtStatus::NOTIFY_CLEANUP, vec![])]);
    world.assert_empty();
}

/// smb2.notify.rec.
#[test]
fn recursive_watching_and_renaming() {
    let mut world = world();
    let open = world.folder("");
    let waiter = world.watch(open, true, 1000).unwrap_err();
    world.hub.forget(waiter);
    world.added("d\\f1");
    world
        .hub
        .changed_name(1, &"d\\f1".into(), &"D\\f1-r".into(), FILES);
    world.hub.changed_name(1, &"d\\f2".into(), &"f2-r".into(), FILES);
    // What is watched was said at first (smb2.notify.mask-change).
    let (_, changes) = world.watch(open, false, 1000).unwrap();
    let expected = [
        (Action::ADDED.0, "d\\f1"),
        (Action::RENAMED_OLD_NAME.0, "d\\f1"),
        (Action::RENAMED_NEW_NAME.0, "D\\f1-r"),
        (Action::REMOVED.0, "d\\f2"),
        (Action::ADDED.0, "f2-r"),
    ];
    assert_eq!(changes, expected.map(|(action, name)| (action, name.to_owned())));
    // Both names of a rename come together.
    let waiter = world.watch(open, false, 1000).unwrap_err();
    world.hub.changed_name(1, &"a".into(), &"b".into(), FILES);
    let answers = world.answers();
    assert_eq!((answers.len(), answers[0].0, answers[0].2.len()), (1, waiter, 2));
}

/// smb2.notify.valid-req, overflow.
#[test]
fn too_much_to_tell() {
    let mut world = world();
    let open = world.folder("d");
    let waiter = world.watch(open, false, 1000).unwrap_err();
    world.hub.forget(waiter);
    for number in 0..100 {
        world.added(&format!("d\\file{number}"));
    }
    let full = (NtStatus::NOTIFY_ENUM_DIR, vec![]);
    assert_eq!(world.watch(open, false, 1000), Ok(full.clone()));
    // A request with less room.
    let waiter = world.watch(open, false, 0).unwrap_err();
    world.added("d\\x");
    assert_eq!(world.answers(), [(waiter, full.0, vec![])]);
    let waiter = world.watch(open, false, 1000).unwrap_err();
    world.added("d\\x");
    assert_eq!(
        world.answers()[0],
        (waiter, NtStatus::SUCCESS, one(Action::ADDED, "x"))
    );
    // The first one's room is for good.
    let open = world.folder("d");
    for room in [1, 1000] {
        let waiter = world.watch(open, false, room).unwrap_err();
        world.added("d\\x");
        assert_eq!(world.answers(), [(waiter, full.0, vec![])]);
    }
    // However much it is, the server keeps so much and no more.
    world.hub.limits.watch_bytes_max = 16;
    let open = world.folder("d");
    let waiter = world.watch(open, false, u32::MAX).unwrap_err();
    world.hub.forget(waiter);
    world.added("d\\xxxxxx");
    assert_eq!(world.watch(open, false, u32::MAX), Ok(full));
}

/// smb2.notify.rmdir1 to 4, file.
#[test]
fn folders_that_go() {
    for by_close in [false, true] {
        let mut world = world();
        let open = world.folder("d");
        let waiter = world.watch(open, false, 1000).unwrap_err();
        let request = OpenRequest {
            directory: true,
            delete_on_close: by_close,
            ..world.request()
        };
        let other = world.open(&request).open;
        if by_close {
            assert_eq!(world.answers(), []);
        } else {
            world.hub.set_delete_pending(other, true).unwrap();
        }
        world.close(other);
        assert_eq!(world.answers(), [(waiter, NtStatus::DELETE_PENDING, vec![])]);
        let waiter = world.waiter();
        let outcome = world.hub.watch(open, NAMES, false, 1000, waiter);
        assert_eq!(outcome, WatchOutcome::Refused(NtStatus::DELETE_PENDING));
    }
    let mut world = world();
    let request = world.request();
    let open = world.open(&request).open;
    let waiter = world.waiter();
    let outcome = world.hub.watch(open, NAMES, false, 1000, waiter);
    assert_eq!(outcome, WatchOutcome::Refused(NtStatus::INVALID_PARAMETER));
    let outcome = world.hub.watch(OpenId(99), NAMES, false, 1000, waiter);
    assert_eq!(outcome, WatchOutcome::Refused(NtStatus::FILE_CLOSED));
}

/// A watched folder is watched under its new name; a lost connection's requests are forgotten.
#[test]
fn watched_folders_move() {
    let mut world = world();
    let open = world.folder("old\\d");
    let waiter = world.watch(open, false, 1000).unwrap_err();
    world.hub.renamed(1, &"OLD".into(), &"new".into());
    world.added("old\\d\\x");
    world.added("new\\d\\y");
    assert_eq!(
        world.answers(),
        [(waiter, NtStatus::SUCCESS, one(Action::ADDED, "y"))]
    );
    world.watch(open, false, 1000).unwrap_err();
    assert_eq!(world.hub.disconnect(0, ConnectionId(1), &[]).len(), 1);
    assert_eq!(world.events(), []);
    world.assert_empty();
}

/// More than is known happened in a share.
#[test]
fn lost_changes_are_told_to_all_who_watch_there() {
    let mut world = world();
    let [one, two, idle] = ["a", "a\\b", "c"].map(|path| world.folder(path));
    let first = world.watch(one, true, 1000).unwrap_err();
    let second = world.watch(two, false, 1000).unwrap_err();
    let gone = world.watch(idle, false, 1000).unwrap_err();
    world.hub.forget(gone);
    world.hub.changes_lost(2);
    assert_eq!(world.answers(), []);
    world.hub.changes_lost(1);
    let all = |waiter| (waiter, NtStatus::NOTIFY_ENUM_DIR, Vec::new());
    assert_eq!(world.answers(), [all(first), all(second)]);
    assert_eq!(
        world.watch(idle, false, 1000),
        Ok((NtStatus::NOTIFY_ENUM_DIR, Vec::new()))
    );
    world.watch(one, true, 1000).unwrap_err();
}
