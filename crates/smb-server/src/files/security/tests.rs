use super::*;
use crate::testing;
use ropeway_smb_wire::security::{Ace, AceFlags, AceKind, Acl};
use ropeway_vfs::Kind;
use ropeway_vfs::store::Access;

const EVERYONE: &str = "S-1-1-0";
const CREATOR_OWNER: &str = "S-1-3-0";
const USER: &str = "S-1-22-1-1000";
const OTHER: &str = "S-1-22-1-1001";

fn ace(kind: AceKind, who: &str, mask: AccessMask, flags: u8) -> Ace {
    Ace::Basic {
        kind,
        flags: AceFlags::from_bits_retain(flags),
        mask,
        sid: who.parse().unwrap(),
    }
}

fn allow(who: &str, mask: AccessMask) -> Ace {
    ace(AceKind::Allowed, who, mask, 0)
}

fn deny(who: &str, mask: AccessMask) -> Ace {
    ace(AceKind::Denied, who, mask, 0)
}

fn owned(owner: &str, aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: ControlFlags::DACL_PRESENT,
        owner: Some(owner.parse().unwrap()),
        group: Some("S-1-22-2-100".parse().unwrap()),
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

fn maximal(descriptor: &SecurityDescriptor) -> AccessMask {
    maximal_access(descriptor, &testing::token(), ParentGrants::default())
}

#[test]
fn the_first_entry_that_decides_wins() {
    let (read, write) = (AccessMask::READ_DATA, AccessMask::WRITE_DATA);
    let list = owned(
        OTHER,
        vec![
            deny(USER, write),
            allow(EVERYONE, read | write),
            deny(EVERYONE, read),
        ],
    );
    assert_eq!(maximal(&list), read);
    let list = owned(OTHER, vec![allow(USER, write), deny(USER, write)]);
    assert_eq!(maximal(&list), write, "order matters, canonical or not");
    let inherit_only = ace(AceKind::Allowed, EVERYONE, AccessMask::FILE_ALL, 0x0B);
    assert_eq!(maximal(&owned(OTHER, vec![inherit_only])), AccessMask::default());
    let generic = owned(OTHER, vec![allow(EVERYONE, AccessMask::GENERIC_READ)]);
    assert_eq!(maximal(&generic), AccessMask::FILE_GENERIC_READ);
}

#[test]
fn no_dacl_allows_all_and_an_empty_one_nothing() {
    let mut descriptor = owned(OTHER, Vec::new());
    assert_eq!(maximal(&descriptor), AccessMask::default());
    descriptor.dacl = None;
    assert_eq!(maximal(&descriptor), AccessMask::FILE_ALL);
}

#[test]
fn owners_can_change_their_dacl() {
    let mend = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    assert_eq!(
        maximal(&owned(USER, vec![deny(EVERYONE, AccessMask::FILE_ALL)])),
        mend
    );
    // smb2.acls.OWNER-RIGHTS…
    let rights = owned(USER, vec![allow("S-1-3-4", AccessMask::READ_DATA)]);
    assert_eq!(maximal(&rights), AccessMask::READ_DATA);
    let rights = owned(
        USER,
        vec![
            deny("S-1-3-4", AccessMask::WRITE_DATA),
            allow(USER, AccessMask::FILE_ALL),
        ],
    );
    assert_eq!(
        maximal(&rights),
        AccessMask::FILE_ALL.difference(AccessMask::WRITE_DATA)
    );
    assert_eq!(
        maximal(&owned(OTHER, vec![allow("S-1-3-4", AccessMask::FILE_ALL)])),
        AccessMask::default()
    );
}

#[test]
fn desired_rights_are_granted_or_refused() {
    let list = owned(OTHER, vec![allow(EVERYONE, AccessMask::FILE_GENERIC_READ)]);
    let token = testing::token();
    let check = |desired, parent| access_check(&list, &token, desired, parent);
    let alone = ParentGrants::default();
    let read = AccessMask::FILE_GENERIC_READ;
    assert_eq!(check(AccessMask::GENERIC_READ, alone), Ok(read));
    assert_eq!(check(AccessMask::MAXIMUM_ALLOWED, alone), Ok(read));
    assert_eq!(
        check(AccessMask::MAXIMUM_ALLOWED | AccessMask::WRITE_DATA, alone),
        Err(NtStatus::ACCESS_DENIED)
    );
    assert_eq!(check(AccessMask::DELETE, alone), Err(NtStatus::ACCESS_DENIED));
    let parent = ParentGrants::of(AccessMask::FILE_ALL);
    assert_eq!(check(AccessMask::DELETE, parent), Ok(AccessMask::DELETE));
    assert_eq!(
        check(AccessMask::ACCESS_SYSTEM_SECURITY, parent),
        Err(NtStatus::PRIVILEGE_NOT_HELD)
    );
    assert_eq!(default_rights(Access::Write, false), AccessMask::FILE_ALL);
    assert!(!default_rights(Access::Write, true).intersects(AccessMask::WRITE_DATA));
}

#[test]
fn modes_become_dacls() {
    let mut stat = testing::stat(Kind::File);
    stat.mode = 0o640;
    let descriptor = from_mode(&stat);
    let dacl = descriptor.dacl.as_ref().unwrap();
    let expected = [
        allow(USER, AccessMask::FILE_ALL),
        allow("S-1-22-2-100", AccessMask::FILE_GENERIC_READ),
        allow("S-1-5-18", AccessMask::FILE_ALL),
    ];
    assert_eq!(dacl.aces, expected, "nothing for everyone");
    assert_eq!(descriptor.owner, Some(crate::sids::owner_sid(1000)));
    assert_eq!(descriptor.group, Some(crate::sids::group_sid(100)));
    assert_eq!(maximal(&descriptor), AccessMask::FILE_ALL);
}

/// smb2.acls.INHERITANCE: flags of the parent's entry, of a file's entry, of a folder's entries.
#[test]
fn entries_are_passed_on_by_their_flags() {
    let table: [(u8, Option<u8>, Option<u8>); 16] = [
        (0x0, None, None),
        (0x1, Some(0), Some(0x9)),
        (0x2, None, Some(0x2)),
        (0x3, Some(0), Some(0x3)),
        (0x4, None, None),
        (0x5, Some(0), None),
        (0x6, None, Some(0)),
        (0x7, Some(0), Some(0)),
        (0x8, None, None),
        (0x9, Some(0), Some(0x9)),
        (0xA, None, Some(0x2)),
        (0xB, Some(0), Some(0x3)),
        (0xC, None, None),
        (0xD, Some(0), None),
        (0xE, None, Some(0)),
        (0xF, Some(0), Some(0)),
    ];
    let token = testing::token();
    let write = AccessMask::WRITE_DATA;
    let system = allow("S-1-5-18", AccessMask::FILE_ALL);
    let by_default = vec![allow(USER, AccessMask::FILE_ALL), system];
    for (flags, file, folder) in table {
        let parent = owned(USER, vec![ace(AceKind::Allowed, CREATOR_OWNER, write, flags)]);
        let aces = |directory| {
            let new = for_new(Some(&parent), None, &token, directory).unwrap();
            assert_eq!(new.owner, Some(token.user.clone()));
            new.dacl.unwrap().aces
        };
        let expected = match file {
            None => by_default.clone(),
            Some(flags) => vec![ace(AceKind::Allowed, USER, write, flags)],
        };
        assert_eq!(aces(false), expected, "file, {flags:#x}");
        let expected = match folder {
            None => by_default.clone(),
            Some(0) => vec![ace(AceKind::Allowed, USER, write, 0)],
            Some(0x9) => vec![ace(AceKind::Allowed, CREATOR_OWNER, write, 0x9)],
            Some(flags) => vec![
                ace(AceKind::Allowed, USER, write, 0),
                ace(AceKind::Allowed, CREATOR_OWNER, write, flags | 0x8),
            ],
        };
        assert_eq!(aces(true), expected, "folder, {flags:#x}");
    }
}

#[test]
fn others_entries_are_passed_on_as_they_are() {
    let token = testing::token();
    let entry = ace(AceKind::Denied, EVERYONE, AccessMask::WRITE_DATA, 0x3);
    let mut parent = owned(USER, vec![entry.clone()]);
    let new = for_new(Some(&parent), None, &token, true).unwrap();
    assert_eq!(new.dacl.unwrap().aces, [entry]);
    parent.control |= ControlFlags::DACL_AUTO_INHERITED;
    let new = for_new(Some(&parent), None, &token, true).unwrap();
    assert!(new.control.contains(ControlFlags::DACL_AUTO_INHERITED));
    let inherited = ace(AceKind::Denied, EVERYONE, AccessMask::WRITE_DATA, 0x13);
    assert_eq!(new.dacl.unwrap().aces, [inherited]);
    assert_eq!(for_new(None, None, &token, false), None, "nothing costs nothing");
    let given = owned(OTHER, vec![allow(EVERYONE, AccessMask::READ_DATA)]);
    let new = for_new(Some(&parent), Some(given.clone()), &token, false).unwrap();
    assert_eq!((new.owner, new.dacl), (given.owner, given.dacl));
}

#[test]
fn descriptors_are_set_in_parts() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::FILE_ALL);
    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    let before = SecurityDescriptor::decode(&query(&open, parts, 1000).unwrap()).unwrap();
    let mut list = before.dacl.clone().unwrap();
    list.aces.push(allow("S-1-5-11", AccessMask::READ_CONTROL));
    let new = SecurityDescriptor {
        control: ControlFlags::DACL_AUTO_INHERITED,
        dacl: Some(list.clone()),
        ..SecurityDescriptor::default()
    };
    let token = testing::token();
    set(&open, &token, SecurityInformation::DACL, &new.to_bytes()).unwrap();
    let after = SecurityDescriptor::decode(&query(&open, parts, 1000).unwrap()).unwrap();
    assert_eq!((after.owner, after.dacl), (before.owner, Some(list)));
    assert!(!after.control.contains(ControlFlags::DACL_AUTO_INHERITED));
    let stolen = owned("S-1-5-21-1-2-3-500", Vec::new()).to_bytes();
    let refused = set(&open, &token, SecurityInformation::OWNER, &stolen);
    assert_eq!(refused, Err(NtStatus::INVALID_OWNER));
    let refused = set(&open, &token, SecurityInformation::DACL, &[1, 2, 3]);
    assert_eq!(refused, Err(NtStatus::INVALID_SECURITY_DESCR));
}

/// smb2.getinfo.qsec_buffercheck, and the required access.
#[test]
fn queries_need_room_and_rights() {
    let share = testing::share();
    let mut open = testing::open(&share, "f", AccessMask::READ_CONTROL);
    let none = SecurityInformation::default();
    for length in [0, 1, 19] {
        assert_eq!(query(&open, none, length), Err(QueryFault::TooSmall(20)));
    }
    assert_eq!(query(&open, none, 20).unwrap().len(), 20);
    let denied = Err(QueryFault::Status(NtStatus::ACCESS_DENIED));
    assert_eq!(query(&open, SecurityInformation::SACL, 1000), denied);
    open.access = AccessMask::READ_ATTRIBUTES;
    assert_eq!(query(&open, SecurityInformation::DACL, 1000), denied);
    let token = testing::token();
    for parts in [
        SecurityInformation::OWNER,
        SecurityInformation::DACL,
        SecurityInformation::SACL,
    ] {
        let refused = set(&open, &token, parts, &owned(USER, Vec::new()).to_bytes());
        assert_eq!(refused, Err(NtStatus::ACCESS_DENIED));
    }
}

#[test]
fn unreadable_descriptors_grant_nothing() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::FILE_ALL);
    open.node.set_security(b"rubbish").unwrap();
    let mut stat = open.node.stat().unwrap();
    let rights = |stat: &NodeStat| maximal(&stored(&*open.node, stat).unwrap().unwrap());
    let mend = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    assert_eq!(rights(&stat), mend, "the owner can set another");
    stat.owner.user = 0;
    assert_eq!(rights(&stat), AccessMask::default());
}

#[test]
fn files_without_a_descriptor_are_guarded_by_their_folders() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::FILE_ALL);
    let stat = open.node.stat().unwrap();
    let guarded =
        |parent: Option<&SecurityDescriptor>| effective_descriptor(&*open.node, &stat, parent).unwrap();
    assert_eq!(guarded(None), None);
    let silent = owned(OTHER, vec![allow(EVERYONE, AccessMask::FILE_ALL)]);
    assert_eq!(guarded(Some(&silent)), None, "it says nothing about files");
    let entry = ace(AceKind::Allowed, OTHER, AccessMask::FILE_ALL, 0x3);
    let strict = guarded(Some(&owned(OTHER, vec![entry]))).unwrap();
    let mend = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let token = testing::token();
    let rights = |guard, read_only| allowed(guard, &token, ParentGrants::default(), Access::Write, read_only);
    assert_eq!(rights(Some(&strict), false), mend, "it is the user's own file");
    assert_eq!(rights(Some(&strict), true), AccessMask::READ_CONTROL);
    assert_eq!(rights(None, false), AccessMask::FILE_ALL);
    let own = owned(USER, vec![allow(EVERYONE, AccessMask::READ_DATA)]);
    store(&*open.node, &own).unwrap();
    assert_eq!(guarded(Some(&strict)).unwrap().dacl, own.dacl);
    assert_eq!(
        without_write_rights(AccessMask::FILE_ALL),
        AccessMask::from_bits_retain(0x001F_01B9)
    );
}
