//! Requests as clients write them, hostile requests, and the fixed parts of answers.

use super::*;
use crate::NtStatus;
use crate::rpc::account::SidKind;
use crate::rpc::ndr::NdrWriter;
use proptest::collection::vec;
use proptest::prelude::*;

fn status(stub: &[u8]) -> u32 {
    u32::from_le_bytes(*stub.last_chunk().expect("a status"))
}

fn user(name: &str) -> User {
    User {
        rid: 1000,
        name: name.into(),
        group: 513,
    }
}

#[test]
fn levels_that_are_not_known_are_refused() {
    let ann = user("ann");
    for class in 0..32 {
        let known = matches!(class, 1 | 6..=9 | 16 | 21);
        let expected = if known {
            NtStatus::SUCCESS
        } else {
            NtStatus::INVALID_INFO_CLASS
        };
        assert_eq!(status(&query_user(class, &ann)), expected.0, "{class}");
        let known = matches!(class, 1 | 2 | 4 | 5 | 7);
        let expected = if known {
            NtStatus::SUCCESS
        } else {
            NtStatus::INVALID_INFO_CLASS
        };
        assert_eq!(
            status(&query_domain(class, &"NAS".into(), 1, 0)),
            expected.0,
            "{class}"
        );
    }
}

#[test]
fn pages_end_and_say_so() {
    let users: Vec<User> = (0..5).map(|_| user("x")).collect();
    assert_eq!(status(&display_users(1, &users, 0, 3)), NtStatus::MORE_ENTRIES.0);
    assert_eq!(status(&display_users(1, &users, 3, 3)), 0);
    assert_eq!(status(&display_users(1, &users, u32::MAX, u32::MAX)), 0);
    assert_eq!(
        status(&display_users(2, &users, 0, 3)),
        NtStatus::INVALID_INFO_CLASS.0
    );
    let past = enumeration(&[(1, "x".into())], 7, NtStatus::SUCCESS);
    assert_eq!((past[8], status(&past)), (0, 0));
}

#[test]
fn lookups_count_what_they_found() {
    let found = Some((500, SidKind::User));
    assert_eq!(status(&lookup_names(&[found])), 0);
    assert_eq!(status(&lookup_names(&[found, None])), NtStatus::SOME_NOT_MAPPED.0);
    assert_eq!(status(&lookup_names(&[None])), NtStatus::NONE_MAPPED.0);
    assert_eq!(status(&lookup_ids(&[None])), NtStatus::NONE_MAPPED.0);
    assert_eq!(status(&lookup_ids(&[Some(("ann".into(), SidKind::User))])), 0);
}

proptest! {
    #[test]
    fn lookups_are_read_as_they_were_written(
        bytes: [u8; 20], names in vec("[^\0]{0,30}", 0..20), ids in vec(any::<u32>(), 0..20),
    ) {
        let handle = ContextHandle(bytes);
        let names: Vec<Text> = names.iter().map(|name| name.as_str().into()).collect();
        let head = |count: usize| {
            let mut ndr = NdrWriter::default();
            ndr.handle(handle);
            ndr.count(count);
            ndr.u32(1000);
            ndr.u32(0);
            ndr.count(count);
            ndr
        };
        let mut ndr = head(names.len());
        names.iter().for_each(|name| ndr.unicode_head(name));
        names.iter().for_each(|name| ndr.unicode_body(name));
        let call = Call::decode(17, &ndr.into_stub());
        prop_assert_eq!(call, Ok(Some(Call::LookupNames(handle, names))));
        let mut ndr = head(ids.len());
        ids.iter().for_each(|id| ndr.u32(*id));
        let call = Call::decode(18, &ndr.into_stub());
        prop_assert_eq!(call, Ok(Some(Call::LookupIds(handle, ids))));
    }

    #[test]
    fn hostile_bytes_never_panic(
        opnum in 0..70_u16, bytes in vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..200),
    ) {
        _ = Call::decode(opnum, &bytes);
    }

    #[test]
    fn any_page_can_be_asked_for(class: u16, index: u32, count_max: u32, from: u32, names in vec(".{0,30}", 0..9)) {
        let users: Vec<User> = names.iter().map(|name| user(name)).collect();
        _ = display_users(class, &users, index, count_max);
        let entries: Vec<(u32, Text)> = users.into_iter().map(|user| (user.rid, user.name)).collect();
        _ = enumeration(&entries, from, NtStatus::SUCCESS);
    }
}
