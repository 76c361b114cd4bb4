use super::*;
use crate::hostile::{attack, structure};
use proptest::prelude::*;

fn texts() -> impl Strategy<Value = Text> {
    proptest::collection::vec(any::<u16>(), 0..30).prop_map(Text::from_units)
}

fn round_trips(data: &ReparseData<'_>) {
    let bytes = structure(|w| data.encode(w));
    assert_eq!(ReparseData::decode(&bytes).as_ref(), Ok(data));
}

proptest! {
    #[test]
    fn round_trip(
        names in (texts(), texts()), flags: u32, numbers: (u32, u32), tag: u32, guid: [u8; 16],
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let (substitute_name, print_name) = names;
        round_trips(&ReparseData::Symlink(Symlink {
            substitute_name: substitute_name.clone(),
            print_name: print_name.clone(),
            flags: SymlinkFlags::from_bits_retain(flags),
        }));
        round_trips(&ReparseData::MountPoint(MountPoint {
            substitute_name: substitute_name.clone(),
            print_name,
        }));
        let (major, minor) = numbers;
        for special in [
            NfsSpecial::Symlink(substitute_name),
            NfsSpecial::CharacterDevice { major, minor },
            NfsSpecial::BlockDevice { major, minor },
            NfsSpecial::Fifo,
            NfsSpecial::Socket,
        ] {
            round_trips(&ReparseData::Nfs(special));
        }
        round_trips(&ReparseData::LxSymlink(&bytes));
        round_trips(&ReparseData::Other { tag: ReparseTag(tag & 0x7FFF_FFFF), guid: Some(Guid(guid)), data: &bytes });
        round_trips(&ReparseData::Other { tag: ReparseTag::CLOUD, guid: None, data: &bytes });
        round_trips(&ReparseData::Other { tag: ReparseTag::LX_FIFO, guid: None, data: b"" });
    }
}

/// Layout by [MS-FSCC] 2.1.2.4: a relative link to `..\a`.
#[test]
fn a_symlink_is_laid_out_as_specified() {
    let link = ReparseData::Symlink(Symlink {
        substitute_name: "..\\a".into(),
        print_name: "..\\a".into(),
        flags: SymlinkFlags::RELATIVE,
    });
    let mut expected = vec![0x0C, 0, 0, 0xA0, 28, 0, 0, 0];
    expected.extend([0, 0, 8, 0, 8, 0, 8, 0, 1, 0, 0, 0]);
    expected.extend(b".\0.\0\\\0a\0.\0.\0\\\0a\0");
    assert_eq!(structure(|w| link.encode(w)), expected);
    assert!(link.tag().is_name_surrogate());
    // Print name first, as others write it, and names that overlap: both are fine.
    expected[8] = 8;
    expected[12] = 0;
    assert_eq!(ReparseData::decode(&expected), Ok(link));
}

#[test]
fn names_stay_inside() {
    let link = Symlink {
        substitute_name: "abc".into(),
        print_name: "abc".into(),
        flags: SymlinkFlags::default(),
    };
    let good = structure(|w| ReparseData::Symlink(link).encode(w));
    for (at, value, fault) in [
        (8, 8, Fault::Bounds),
        (10, 14, Fault::Bounds),
        (10, 5, Fault::Value),
        (13, 0xFF, Fault::Bounds),
        (4, 200, Fault::Truncated),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(
            ReparseData::decode(&bytes).unwrap_err().fault,
            fault,
            "byte {at} = {value}"
        );
    }
}

#[test]
fn unknown_nfs_types_and_link_versions_stay_opaque() {
    let mut bytes = structure(|w| ReparseData::Nfs(NfsSpecial::Fifo).encode(w));
    bytes[8] = b'X';
    assert!(matches!(
        ReparseData::decode(&bytes),
        Ok(ReparseData::Other { .. })
    ));
    let mut bytes = structure(|w| ReparseData::LxSymlink(b"target").encode(w));
    bytes[8] = 3;
    assert!(matches!(
        ReparseData::decode(&bytes),
        Ok(ReparseData::Other { .. })
    ));
}

#[test]
fn hostile_bytes_never_panic() {
    let mount = MountPoint {
        substitute_name: "\\??\\C:\\folder".into(),
        print_name: "C:\\folder".into(),
    };
    let link = Symlink {
        substitute_name: "a".into(),
        print_name: "b".into(),
        flags: SymlinkFlags::RELATIVE,
    };
    for data in [
        ReparseData::MountPoint(mount),
        ReparseData::Symlink(link),
        ReparseData::Nfs(NfsSpecial::Symlink("target".into())),
        ReparseData::Nfs(NfsSpecial::BlockDevice { major: 8, minor: 1 }),
        ReparseData::LxSymlink(b"../target"),
        ReparseData::Other {
            tag: ReparseTag(7),
            guid: Some(Guid([1; 16])),
            data: b"data",
        },
    ] {
        attack(&structure(|w| data.encode(w)), 0, |bytes| {
            ReparseData::decode(bytes).is_ok()
        });
    }
}
