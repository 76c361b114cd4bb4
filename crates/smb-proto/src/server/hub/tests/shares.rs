//! Share modes, deletion, paths ([MS-FSA] 2.1.5.1.2, 2.1.5.5), after smb2.sharemode,
//! delete-on-close-perms, rename.

use ropeway_smb_wire::change_notify::CompletionFilter;

use super::*;

/// smb2.sharemode: reading, writing and deleting against the shared access, in both directions.
#[test]
fn share_modes() {
    let access = [
        (AccessMask::READ_DATA, ShareAccess::READ),
        (AccessMask::EXECUTE, ShareAccess::READ),
        (AccessMask::WRITE_DATA, ShareAccess::WRITE),
        (AccessMask::APPEND_DATA, ShareAccess::WRITE),
        (AccessMask::DELETE, ShareAccess::DELETE),
        (AccessMask::READ_ATTRIBUTES, ShareAccess::from_bits_retain(0)),
        (AccessMask::READ_CONTROL, ShareAccess::from_bits_retain(0)),
        (AccessMask::WRITE_DAC, ShareAccess::from_bits_retain(0)),
        (AccessMask::READ_EA, ShareAccess::from_bits_retain(0)),
    ];
    for (first, first_needs) in access {
        for (second, second_needs) in access {
            for shared in 0..8 {
                let shared = ShareAccess::from_bits_retain(shared);
                let mut world = world();
                let one = OpenRequest {
                    access: first,
                    share_access: shared,
                    ..world.request()
                };
                let two = OpenRequest {
                    access: second,
                    ..world.request()
                };
                world.open(&one);
                let both = !first_needs.is_empty() && !second_needs.is_empty();
                let denied = both && !shared.contains(second_needs);
                let granted = matches!(world.outcome(&two), OpenOutcome::Granted(_));
                assert_eq!(granted, !denied, "{first:?} {second:?} {shared:?}");
                let mut world = super::world();
                world.open(&two);
                let denied = both && !shared.contains(second_needs);
                let granted = matches!(world.outcome(&one), OpenOutcome::Granted(_));
                assert_eq!(granted, !denied, "{first:?} {second:?} {shared:?}");
            }
        }
    }
}

/// smb2.streams.delete: streams are independent, but a file cannot be deleted while a stream is
/// open.
#[test]
fn streams_share_on_their_own() {
    let mut world = world();
    for name in ["A", "B"] {
        let request = OpenRequest {
            file: stream(1, name),
            share_access: ALONE,
            ..world.request()
        };
        world.open(&request);
        assert_eq!(world.refused(&request), NtStatus::SHARING_VIOLATION);
    }
    let reader = OpenRequest {
        access: READ,
        share_access: ALONE,
        ..world.request()
    };
    world.open(&reader);
    let deleter = OpenRequest {
        access: AccessMask::DELETE,
        ..world.request()
    };
    assert_eq!(world.refused(&deleter), NtStatus::SHARING_VIOLATION);
    let mut world = super::world();
    world.open(&deleter);
    let request = OpenRequest {
        file: stream(1, "A"),
        share_access: ALONE,
        ..world.request()
    };
    assert_eq!(world.refused(&request), NtStatus::SHARING_VIOLATION);
}

fn deletion(closed: &Closed) -> Option<(FileKey, String)> {
    let delete = closed.delete.as_ref()?;
    Some((delete.file.clone(), delete.path.to_string()))
}

/// smb2.oplock.doc, delete-on-close-perms: the deletion is pending until the last close; meanwhile
/// the file cannot be opened.
#[test]
fn the_last_close_deletes() {
    let mut world = world();
    let request = world.request();
    let [one, two] = [0, 1].map(|_| world.open(&request).open);
    world.hub.set_delete_pending(one, true).unwrap();
    assert!(world.hub.delete_pending(&file(1)));
    assert_eq!(world.refused(&request), NtStatus::DELETE_PENDING);
    world.hub.set_delete_pending(two, false).unwrap();
    world.open(&request);
    world.hub.set_delete_pending(two, true).unwrap();
    assert_eq!(world.close(one).delete, None);
    assert_eq!(world.close(two).delete, None);
    let closed = world.hub.end_tree(Duration::ZERO, SessionId(1), TreeId(1));
    assert_eq!(deletion(&closed[0]), Some((file(1), "folder\\file".to_owned())));
    assert_eq!(
        world.hub.set_delete_pending(one, true),
        Err(NtStatus::FILE_CLOSED)
    );
    world.assert_empty();
}

/// Found by random operations on a mounted share: a file whose one name was removed while it was
/// open could not be opened by its other name, and the name stayed as long as the other was open.
#[test]
fn each_name_of_a_file_is_deleted_at_its_own_last_close() {
    let mut world = world();
    let request = world.request();
    let one = world.open(&request).open;
    world.hub.set_delete_pending(one, true).unwrap();
    let other = OpenRequest {
        path: "folder\\link".into(),
        ..world.request()
    };
    let two = world.open(&other).open;
    assert_eq!(world.refused(&request), NtStatus::DELETE_PENDING);
    world.hub.set_delete_pending(two, true).unwrap();
    let closed = world.close(one);
    assert_eq!(deletion(&closed), Some((file(1), "folder\\file".to_owned())));
    let closed = world.close(two);
    assert_eq!(deletion(&closed), Some((file(1), "folder\\link".to_owned())));
    world.assert_empty();
}

/// The deletion belongs to the user who requested it, regardless of who closes last.
#[test]
fn a_deletion_belongs_to_the_user_who_requested_it() {
    for on_close in [false, true] {
        let mut world = world();
        let request = world.request();
        let stays = world.open(&request).open;
        let request = OpenRequest {
            user: Arc::from("other"),
            delete_on_close: on_close,
            ..world.request()
        };
        let deletes = world.open(&request).open;
        if !on_close {
            world.hub.set_delete_pending(deletes, true).unwrap();
        }
        assert_eq!(world.close(deletes).delete, None);
        let deletion = world.close(stays).delete.unwrap();
        assert_eq!(&*deletion.user, "other");
        world.assert_empty();
    }
}

#[test]
fn delete_on_close_is_pending_from_the_close_on() {
    let mut world = world();
    let request = world.request();
    let stays = world.open(&request).open;
    let deletes = OpenRequest {
        delete_on_close: true,
        ..world.request()
    };
    let deletes = world.open(&deletes).open;
    let between = world.open(&request).open;
    world.close(between);
    assert_eq!(world.close(deletes).delete, None);
    assert_eq!(world.refused(&request), NtStatus::DELETE_PENDING);
    assert_eq!(
        deletion(&world.close(stays)),
        Some((file(1), "folder\\file".to_owned()))
    );
    world.assert_empty();
}

/// A stream is deleted alone. If the file's deletion is pending, closing its last stream counts
/// too.
#[test]
fn streams_are_deleted_alone_and_with_their_file() {
    let mut world = world();
    let base = world.request();
    let named = OpenRequest {
        file: stream(1, "S"),
        ..world.request()
    };
    let open = world.open(&named).open;
    let file_open = world.open(&base).open;
    world.hub.set_delete_pending(open, true).unwrap();
    assert_eq!(world.refused(&named), NtStatus::DELETE_PENDING);
    world.open(&base);
    assert_eq!(deletion(&world.close(open)).unwrap().0, stream(1, "S"));
    let open = world.open(&named).open;
    world.hub.set_delete_pending(file_open, true).unwrap();
    assert_eq!(world.refused(&named), NtStatus::DELETE_PENDING);
    world.close(file_open);
    let second = world.hub.opens_of(&file(1)).next().unwrap().id;
    assert_eq!(world.close(second).delete, None);
    assert_eq!(deletion(&world.close(open)).unwrap().0, file(1));
    world.assert_empty();
}

/// smb2.rename: paths change, also beneath folders. Paths that only share a prefix do not.
#[test]
fn renames_move_paths() {
    let mut world = world();
    let mut opens = Vec::new();
    for (index, path) in ["a", "a\\b", "A\\B\\c", "ab", "a]", ""].into_iter().enumerate() {
        let request = OpenRequest {
            file: file(index as u64),
            path: path.into(),
            ..world.request()
        };
        opens.push(world.open(&request).open);
    }
    let beneath = |world: &World, path: &str| world.hub.opens_beneath(1, &path.into()).count();
    assert_eq!(beneath(&world, "A"), 2);
    assert_eq!(beneath(&world, ""), 5);
    assert_eq!(beneath(&world, "ab"), 0);
    assert_eq!(world.hub.opens_beneath(2, &"".into()).count(), 0);
    world.hub.set_delete_pending(opens[1], true).unwrap();
    world.hub.renamed(1, &"a".into(), &"longer\\x".into());
    let paths = opens
        .iter()
        .map(|open| world.hub.info(*open).unwrap().path.to_string());
    let expected = ["longer\\x", "longer\\x\\b", "longer\\x\\B\\c", "ab", "a]", ""];
    assert_eq!(paths.collect::<Vec<_>>(), expected);
    assert_eq!((beneath(&world, "a"), beneath(&world, "LONGER")), (0, 3));
    assert_eq!(deletion(&world.close(opens[1])).unwrap().1, "longer\\x\\b");
    for open in opens {
        world.hub.close(Duration::ZERO, open);
    }
    world.assert_empty();
}

/// smb2.rename.no_share_delete_but_delete_access, smb2.oplock.exclusive6, batch20,
/// smb2.notify-inotify.inotify-rename.
#[test]
fn renaming_respects_the_opens_of_the_folder() {
    let mut world = world();
    let renamed = OpenRequest {
        file: file(2),
        path: "folder\\file".into(),
        ..world.request()
    };
    let renamed = world.open(&renamed).open;
    let own = OpenRequest {
        directory: true,
        path: "folder".into(),
        ..world.request()
    };
    let without_delete = OpenRequest {
        access: AccessMask::FILE_ALL.difference(AccessMask::DELETE),
        ..own.clone()
    };
    let channel = OpenRequest {
        connection: ConnectionId(2),
        ..own.clone()
    };
    let other = OpenRequest {
        session: SessionId(2),
        ..channel.clone()
    };
    let denied = BreakOutcome::Refused(NtStatus::SHARING_VIOLATION);
    for (request, watches, expected) in [
        (&without_delete, false, BreakOutcome::Ready),
        (&own, false, denied),
        (&own, true, denied),
        (&channel, true, denied),
        (&other, false, denied),
        (&other, true, BreakOutcome::Ready),
    ] {
        let open = world.open(request).open;
        if watches {
            let filter = CompletionFilter::FILE_NAME;
            let waiter = world.waiter();
            world.hub.watch(open, filter, false, 1000, waiter);
        }
        let share = ShareAccess::READ | ShareAccess::WRITE;
        let (now, waiter) = (world.now, world.waiter());
        let mode = (AccessMask::ADD_FILE, share);
        let prepared = world
            .hub
            .prepare_renaming_into(now, renamed, &file(1), mode, waiter);
        assert_eq!(prepared, expected, "{request:?} {watches}");
        world.close(open);
    }
}
