//! Tests that the plan and the server map names alike: the server's table turns the name that a
//! copy sends into the intended name on its disk, and back.

use proptest::prelude::*;
use ropeway_plan::{NameMap, NamePolicy};
use ropeway_smb_wire::names::{NameMapping, from_wire, is_device, to_wire};
use ropeway_vfs::{Capabilities, MemoryTree, Name, Tree};

fn maps() -> (NameMap, NameMap) {
    let mut disk: Capabilities = MemoryTree::new().capabilities().clone();
    disk.windows_names = false;
    disk.raw_names = true;
    disk.name_max = 100_000;
    let share = Capabilities {
        windows_names: true,
        ..disk.clone()
    };
    let map = |from, to| NameMap::new(from, to, NamePolicy::Auto);
    (map(&disk, &share), map(&share, &disk))
}

/// Pieces that trigger every rule, joined at random.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[\u{F000}-\u{F0FF}]".prop_map(String::into_bytes),
        "[\u{EF80}-\u{EFFF}]{1,9}".prop_map(String::into_bytes),
        "[ .:*?a\u{1}-\u{1f}\"<>|\\\\]".prop_map(String::into_bytes),
        "\\PC".prop_map(String::into_bytes),
        any::<u8>().prop_map(|byte| vec![byte]),
        Just(b"\xED\xA0\x80".to_vec()),
    ]
}

fn names() -> impl Strategy<Value = Name> {
    proptest::collection::vec(piece(), 1..8).prop_filter_map("a name", |pieces| Name::new(&pieces.concat()))
}

proptest! {
    #[test]
    fn the_plan_and_the_server_map_names_alike(name in names()) {
        let (there, back) = maps();
        let sent = to_wire(there.map(&name).unwrap().name.as_bytes(), NameMapping::None);
        // The first letter of a device name is mapped for Windows servers.
        if !is_device(&to_wire(name.as_bytes(), NameMapping::None)) {
            prop_assert_eq!(from_wire(&sent, NameMapping::Sfm), name.as_bytes());
        }
        let served = to_wire(name.as_bytes(), NameMapping::Sfm);
        let seen = Name::new(&from_wire(&served, NameMapping::None)).unwrap();
        prop_assert_eq!(back.map(&seen).unwrap().name, name);
    }
}

#[test]
fn known_names() {
    let (there, back) = maps();
    for (local, wire) in [
        (&b"a:b"[..], "a\u{F022}b"),
        (b"end.", "end\u{F029}"),
        (b"end ", "end\u{F028}"),
        (b"caf\xe9", "caf\u{EFE9}"),
        (b"\xed\xa0\xbd lone", "\u{EFED}\u{EFA0}\u{EFBD} lone"),
        ("\u{F022}".as_bytes(), "\u{EFEF}\u{EF80}\u{EFA2}"),
    ] {
        let name = Name::new(local).unwrap();
        let sent = to_wire(there.map(&name).unwrap().name.as_bytes(), NameMapping::None);
        assert_eq!(sent, wire.into());
        assert_eq!(from_wire(&sent, NameMapping::Sfm), local);
        let seen = Name::new(&from_wire(&sent, NameMapping::None)).unwrap();
        assert_eq!(back.map(&seen).unwrap().name, name);
    }
}
