use super::*;
use proptest::prelude::*;

fn caps(windows_names: bool) -> Capabilities {
    Capabilities {
        windows_names,
        raw_names: !windows_names,
        case_sensitive: !windows_names,
        ..crate::test_support::capabilities()
    }
}

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).unwrap()
}

fn there() -> NameMap {
    NameMap::new(&caps(false), &caps(true), NamePolicy::Auto)
}

fn back() -> NameMap {
    NameMap::new(&caps(true), &caps(false), NamePolicy::Auto)
}

fn mapped(map: NameMap, bytes: &[u8]) -> String {
    String::from_utf8(map.map(&name(bytes)).unwrap().name.as_bytes().to_vec()).unwrap()
}

#[test]
fn names_are_mapped_as_documented() {
    for (from, to) in [
        ("plain näme.txt", "plain näme.txt"),
        ("a:b", "a\u{F022}b"),
        (
            "\"*:<>?\\|",
            "\u{F020}\u{F021}\u{F022}\u{F023}\u{F024}\u{F025}\u{F026}\u{F027}",
        ),
        ("tab\there", "tab\u{F009}here"),
        ("end.", "end\u{F029}"),
        ("end ", "end\u{F028}"),
        ("...", "..\u{F029}"),
        ("a. b", "a. b"),
        ("CON", "\u{F043}ON"),
        ("nul.txt", "\u{F06E}ul.txt"),
        ("com1 .x", "\u{F063}om1 .x"),
        ("LPT²", "\u{F04C}PT²"),
        ("COM0", "COM0"),
        ("console", "console"),
        ("\u{F022}", "\u{EFEF}\u{EF80}\u{EFA2}"),
        ("\u{F043}ON", "\u{EFEF}\u{EF81}\u{EF83}ON"),
        ("\u{F043}on't", "\u{F043}on't"),
        ("\u{F02F}\u{F03A}", "\u{F02F}\u{F03A}"),
        ("a\u{F028}b", "a\u{F028}b"),
        ("a\u{F028}", "a\u{EFEF}\u{EF80}\u{EFA8}"),
    ] {
        assert_eq!(mapped(there(), from.as_bytes()), to, "{from:?}");
        assert_eq!(mapped(back(), to.as_bytes()), from, "{to:?}");
    }
    assert_eq!(mapped(there(), b"caf\xe9"), "caf\u{EFE9}");
    let decoded = back().map(&name("caf\u{EFE9}".as_bytes())).unwrap();
    assert_eq!(decoded.name.as_bytes(), b"caf\xe9");
    // A share keeps bytes itself.
    let share = Capabilities {
        raw_names: true,
        ..caps(true)
    };
    let there = NameMap::new(&caps(false), &share, NamePolicy::Auto);
    let mapped = there.map(&name(b"caf\xe9:")).unwrap();
    assert_eq!(mapped.name.as_bytes(), b"caf\xe9\xef\x80\xa2");
    let back = NameMap::new(&share, &caps(false), NamePolicy::Auto);
    assert_eq!(back.map(&mapped.name).unwrap().name.as_bytes(), b"caf\xe9:");
}

#[test]
fn names_that_were_not_mapped_are_unchanged() {
    for odd in [
        "\u{F041}lpha",
        "a\u{F028}b",
        "\u{F0C3}\u{F0A9}",
        "\u{F02E}",
        "\u{F000}",
        "\u{F029}",
        ".\u{F029}",
    ] {
        let mapped = back().map(&name(odd.as_bytes())).unwrap();
        assert!(!mapped.changed, "{odd:?}");
    }
}

/// Found by the fuzz target.
#[test]
fn a_device_name_is_judged_as_the_volume_stores_it() {
    for (local, there_as) in [
        ("LPT².", "LPT²\u{F029}"),
        ("aux", "\u{F061}ux"),
        ("aux.c.", "\u{F061}ux.c\u{F029}"),
        ("\u{F04C}PT².", "\u{F04C}PT²\u{F029}"),
    ] {
        let mapped = there().map(&name(local.as_bytes())).unwrap().name;
        assert_eq!(mapped, name(there_as.as_bytes()), "{local}");
        assert_eq!(
            back().map(&mapped).unwrap().name,
            name(local.as_bytes()),
            "{local}"
        );
    }
}

#[test]
fn refuse_reports_each_kind_of_bad_name() {
    let refuse = NameMap::new(&caps(false), &caps(true), NamePolicy::Refuse);
    for (bytes, fault) in [
        (b"a:b".as_slice(), NameError::Character(':')),
        (b"a\x02", NameError::Character('\u{2}')),
        (b"a.", NameError::Ending),
        (b"aux.c", NameError::Device),
        (b"\xff", NameError::NotUnicode),
        (b"a\xed\xa0\x80b", NameError::NotUnicode),
    ] {
        assert_eq!(refuse.map(&name(bytes)), Err(fault));
        assert_eq!(refuse.check(&name(bytes)), Err(fault));
    }
    // SMB's names may contain lone surrogates.
    let share = Capabilities {
        raw_names: true,
        ..caps(true)
    };
    let refuse = NameMap::new(&caps(false), &share, NamePolicy::Refuse);
    assert_eq!(refuse.check(&name(b"a\xed\xa0\x80b")), Ok(()));
    let linux = NameMap::new(&caps(false), &caps(false), NamePolicy::Auto);
    assert!(linux.is_identity());
    assert_eq!(linux.check(&name(b"a:b\xff.")), Ok(()));
}

#[test]
fn names_that_are_too_long_are_refused() {
    let linux = NameMap::new(&caps(false), &caps(false), NamePolicy::Auto);
    let too_long = |length| {
        Err(NameError::TooLong {
            length,
            length_max: 255,
        })
    };
    assert_eq!(linux.check(&name(&[b'a'; 255])), Ok(()));
    assert_eq!(linux.check(&name(&[b'a'; 256])), too_long(256));
    // Windows counts UTF-16 units.
    assert!(there().map(&name("é".repeat(255).as_bytes())).is_ok());
    assert!(there().map(&name("𝄞".repeat(127).as_bytes())).is_ok());
    assert_eq!(
        there().map(&name("𝄞".repeat(128).as_bytes())).map(|_| ()),
        too_long(256)
    );
    let form = "\u{F022}".repeat(100);
    assert_eq!(there().map(&name(form.as_bytes())).map(|_| ()), too_long(300));
}

#[test]
fn policy_map_maps_for_a_target_without_rules() {
    let map = NameMap::new(&caps(false), &caps(false), NamePolicy::Map);
    assert_eq!(mapped(map, b"a:b"), "a\u{F022}b");
    let map = NameMap::new(&caps(true), &caps(false), NamePolicy::Map);
    assert_eq!(mapped(map, "a\u{F022}b".as_bytes()), "a\u{F022}b");
}

#[test]
fn collisions_are_found() {
    let mut folder = FolderNames::new(&caps(true));
    for fresh in ["Makefile", "é", "straße", "a\u{308}"] {
        assert_eq!(folder.insert(&name(fresh.as_bytes())), None, "{fresh}");
    }
    assert_eq!(folder.insert(&name(b"makefile")), Some(Collision::Case));
    assert_eq!(folder.insert(&name("É".as_bytes())), Some(Collision::Case));
    assert_eq!(
        folder.insert(&name("e\u{301}".as_bytes())),
        Some(Collision::Normalization)
    );
    assert_eq!(
        folder.insert(&name("ä".as_bytes())),
        Some(Collision::Normalization)
    );
    assert_eq!(folder.insert(&name(b"\xff")), None);
    assert_eq!(folder.insert(&name(b"\xfe")), None);

    let mut folder = FolderNames::new(&caps(false));
    assert_eq!(folder.insert(&name(b"a")), None);
    assert_eq!(folder.insert(&name(b"A")), None);
}

/// Fragments that meet every rule, joined at random.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[\u{F000}-\u{F0FF}]".prop_map(String::into_bytes),
        "[\u{EF80}-\u{EFFF}]{1,9}".prop_map(String::into_bytes),
        "[ .:*?CONcon1-9\u{1}-\u{1f}]".prop_map(String::into_bytes),
        "\\PC".prop_map(String::into_bytes),
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(vec!["CON", "nul", "COM", "lpt", "\u{F02F}", "é"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

proptest! {
    #[test]
    fn mapping_back_yields_the_original_name(pieces in prop::collection::vec(piece(), 1..12)) {
        if let Some(first) = Name::new(&pieces.concat()) {
            let there = there().map(&first).unwrap();
            prop_assert_eq!(check_windows(there.name.as_bytes(), false), Ok(()));
            prop_assert!(std::str::from_utf8(there.name.as_bytes()).is_ok());
            prop_assert_eq!(there.changed, there.name != first);
            prop_assert_eq!(back().map(&there.name).unwrap().name, first);
        }
    }

    #[test]
    fn windows_names_survive_a_round_trip_through_linux(pieces in prop::collection::vec(piece(), 1..12)) {
        let stay = Name::new(&pieces.concat()).filter(|name| check_windows(name.as_bytes(), false).is_ok());
        if let Some(first) = stay {
            let here = back().map(&first).unwrap();
            if here.changed {
                prop_assert_eq!(there().map(&here.name).unwrap().name, first);
            }
        }
    }
}
