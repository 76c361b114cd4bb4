//! Round trips, known descriptors, hostile bytes and text.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Fault, Reader, Writer};

fn sids() -> impl Strategy<Value = Sid> {
    let alias = prop_oneof![
        Just("S-1-1-0"),
        Just("S-1-5-18"),
        Just("S-1-5-32-544"),
        Just("S-1-5-11")
    ];
    prop_oneof![
        alias.prop_map(|text| text.parse().unwrap()),
        (0..1_u64 << 48, vec(any::<u32>(), 0..=15))
            .prop_map(|(authority, numbers)| Sid::new(authority, &numbers).unwrap()),
    ]
}

fn masks() -> impl Strategy<Value = AccessMask> {
    prop_oneof![
        any::<u32>().prop_map(AccessMask::from_bits_retain),
        (0..0x200_u32).prop_map(AccessMask::from_bits_retain),
        Just(AccessMask::FILE_ALL),
        Just(AccessMask::FILE_GENERIC_READ),
    ]
}

/// Entries that SDDL has words for.
fn basic_aces() -> impl Strategy<Value = Ace> {
    let kinds = prop_oneof![
        Just(AceKind::Allowed),
        Just(AceKind::Denied),
        Just(AceKind::Audit)
    ];
    (kinds, any::<u8>(), masks(), sids()).prop_map(|(kind, flags, mask, sid)| Ace::Basic {
        kind,
        flags: AceFlags::from_bits_retain(flags & 0xDF),
        mask,
        sid,
    })
}

fn aces() -> impl Strategy<Value = Ace> {
    let opaque =
        (3..=u8::MAX, any::<u8>(), vec(any::<u8>(), 0..40)).prop_map(|(ace_type, flags, body)| Ace::Opaque {
            ace_type,
            flags: AceFlags::from_bits_retain(flags),
            body,
        });
    prop_oneof![basic_aces(), opaque]
}

fn descriptors(
    ace: impl Strategy<Value = Ace> + Clone,
    control_mask: u16,
) -> impl Strategy<Value = SecurityDescriptor> {
    let acl = || prop::option::of(vec(ace.clone(), 0..5).prop_map(Acl::new));
    (
        any::<u16>(),
        prop::option::of(sids()),
        prop::option::of(sids()),
        acl(),
        acl(),
    )
        .prop_map(move |(control, owner, group, sacl, dacl)| {
            let mut descriptor = SecurityDescriptor {
                control: ControlFlags::from_bits_retain(control & control_mask),
                rm_control: 0,
                owner,
                group,
                sacl,
                dacl,
            };
            descriptor.control = descriptor.full_control();
            descriptor
        })
}

/// Bits that SDDL has words for; those of lists only where the list is.
fn sayable(mut descriptor: SecurityDescriptor) -> SecurityDescriptor {
    if !descriptor.control.contains(ControlFlags::DACL_PRESENT) {
        descriptor.control = descriptor
            .control
            .difference(ControlFlags::from_bits_retain(0x1500));
    }
    if !descriptor.control.contains(ControlFlags::SACL_PRESENT) {
        descriptor.control = descriptor
            .control
            .difference(ControlFlags::from_bits_retain(0x2A00));
    }
    descriptor
}

#[test]
fn sids_as_text() {
    for text in [
        "S-1-0-0",
        "S-1-5-18",
        "S-1-5-21-1004336348-1177238915-682003330-512",
        "S-1-22-1-1000",
        "S-1-0x123456789abc-1",
        "S-1-4294967295-4294967295",
    ] {
        assert_eq!(text.parse::<Sid>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "S-1-",
        "S-2-5-18",
        "S-1-5-",
        "S-1-5-4294967296",
        "S-1-5-+1",
        "S-1-0x+23456789abc",
        "S-1-0x12",
        "S-1-0x123456789abé",
        "S-1-5-18 ",
        "S-1-281474976710656",
        "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16",
    ] {
        assert_eq!(text.parse::<Sid>(), Err(SidTextError), "{text}");
    }
}

/// [MS-DTYP] 2.4.2.2's layout: the authority is big-endian, the rest little-endian.
#[test]
fn a_sid_on_the_wire() {
    let bytes = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
    let sid = Sid::read(&mut Reader::new(&bytes, "SID")).unwrap();
    assert_eq!(sid.to_string(), "S-1-5-32-544");
    let mut out = Vec::new();
    sid.encode(&mut Writer::new(&mut out));
    assert_eq!(out, bytes);
}

#[test]
fn known_texts() {
    for text in [
        "",
        "O:BAG:SY",
        "D:",
        "D:NO_ACCESS_CONTROL",
        "D:P",
        "O:BAG:S-1-5-21-1-2-3-513D:PAI(A;OICI;FA;;;SY)(A;OICIIO;GA;;;CO)(D;ID;0x1200a9;;;BU)",
        "D:(A;;CCLCSWRPLORC;;;AU)(A;;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;BA)S:(AU;FA;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;WD)",
        "O:S-1-0x123456789abcG:WDD:AR(A;;0x0;;;S-1-22-2-100)",
    ] {
        let descriptor = SecurityDescriptor::from_sddl(text).unwrap();
        assert_eq!(descriptor.to_sddl().unwrap(), text);
        let bytes = descriptor.to_bytes();
        assert_eq!(SecurityDescriptor::decode(&bytes), Ok(descriptor));
    }
    let error = SecurityDescriptor::from_sddl("S:AID:NO_ACCESS_CONTROLP(G:SY").unwrap_err();
    assert_eq!(error.at, 25);
}

#[test]
fn rights_as_words_and_numbers() {
    let mask = |rights: &str| match SecurityDescriptor::from_sddl(&format!("D:(A;;{rights};;;WD)")) {
        Ok(descriptor) => match &descriptor.dacl.unwrap().aces[0] {
            Ace::Basic { mask, .. } => Ok(mask.bits()),
            Ace::Opaque { .. } => unreachable!(),
        },
        Err(error) => Err(error.fault),
    };
    assert_eq!(mask("FRFX"), Ok(0x0012_00A9));
    assert_eq!(mask("0x1200A9"), Ok(0x0012_00A9));
    assert_eq!(mask("10"), Ok(10));
    assert_eq!(mask("KA"), Ok(0xF003F));
    assert_eq!(mask(""), Ok(0));
    for bad in ["0x", "0x+1", "0x100000000", "F", "FAX", "1x"] {
        assert_eq!(mask(bad), Err(SddlFault::Rights), "{bad}");
    }
}

#[test]
fn what_text_cannot_say_is_an_error() {
    let fault = |text| SecurityDescriptor::from_sddl(text).unwrap_err().fault;
    assert_eq!(fault("O:DA"), SddlFault::Sid);
    assert_eq!(fault("O:BAO:BA"), SddlFault::Section);
    assert_eq!(fault("D:S:D:"), SddlFault::Section);
    assert_eq!(
        fault("D:(OA;;CC;bf967aba-0de6-11d0-a285-00aa003049e2;;WD)"),
        SddlFault::AceType
    );
    assert_eq!(
        fault("D:(A;;CC;bf967aba-0de6-11d0-a285-00aa003049e2;;WD)"),
        SddlFault::AceType
    );
    assert_eq!(fault("D:(A;XX;FA;;;WD)"), SddlFault::Flags);
    assert_eq!(fault("D:(A;;FA;;;WD"), SddlFault::Entry);
    assert_eq!(fault("D:NO_ACCESS_CONTROL(A;;FA;;;WD)"), SddlFault::Entry);
    assert_eq!(
        fault(&format!("D:{}", "(A;;FA;;;WD)".repeat(4000))),
        SddlFault::TooLong
    );
    let opaque = Ace::Opaque {
        ace_type: 5,
        flags: AceFlags::default(),
        body: vec![0; 8],
    };
    let descriptor = SecurityDescriptor {
        dacl: Some(Acl::new(vec![opaque])),
        ..SecurityDescriptor::default()
    };
    assert_eq!(descriptor.dacl.as_ref().unwrap().revision, 4);
    assert_eq!(descriptor.to_sddl().unwrap_err().fault, SddlFault::AceType);
}

#[test]
fn a_null_list_is_not_an_empty_one() {
    let null = SecurityDescriptor::from_sddl("D:NO_ACCESS_CONTROL").unwrap();
    let empty = SecurityDescriptor::from_sddl("D:").unwrap();
    let none = SecurityDescriptor::from_sddl("").unwrap();
    for descriptor in [&null, &empty, &none] {
        assert_eq!(
            SecurityDescriptor::decode(&descriptor.to_bytes()).as_ref(),
            Ok(descriptor)
        );
    }
    assert_ne!(null, empty);
    assert_ne!(null, none);
}

#[test]
fn offsets_into_the_header_or_out_of_the_bytes_are_faults() {
    let mut bytes = SecurityDescriptor::from_sddl("O:BA").unwrap().to_bytes();
    for offset in [1, 19, bytes.len() as u32, u32::MAX] {
        bytes[4..8].copy_from_slice(&offset.to_le_bytes());
        assert_eq!(
            SecurityDescriptor::decode(&bytes).unwrap_err().fault,
            Fault::Bounds
        );
    }
}

proptest! {
    #[test]
    fn bytes_round_trip(descriptor in descriptors(aces().boxed(), 0xFFFF), before in 0..9_usize) {
        let mut out = vec![0xAA; before];
        descriptor.encode(&mut Writer::within(&mut out, 0));
        prop_assert_eq!(SecurityDescriptor::decode(&out[before..]), Ok(descriptor));
    }

    #[test]
    fn text_round_trips(descriptor in descriptors(basic_aces().boxed(), 0x3F14).prop_map(sayable)) {
        let text = descriptor.to_sddl().unwrap();
        let back = SecurityDescriptor::from_sddl(&text).unwrap();
        prop_assert_eq!(back.to_bytes(), descriptor.to_bytes());
        prop_assert_eq!(back, descriptor);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        _ = SecurityDescriptor::decode(&bytes);
    }

    #[test]
    fn spoilt_descriptors_never_panic(
        descriptor in descriptors(aces().boxed(), 0xFFFF), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = descriptor.to_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(descriptor) = SecurityDescriptor::decode(&bytes) {
            prop_assert_eq!(SecurityDescriptor::decode(&descriptor.to_bytes()), Ok(descriptor));
        }
        bytes.truncate(length.index(bytes.len()));
        _ = SecurityDescriptor::decode(&bytes);
    }

    #[test]
    fn hostile_text_never_panics(text in "[ODGS:A(;)0-9xBWY\u{e9}-]{0,60}") {
        if let Ok(descriptor) = SecurityDescriptor::from_sddl(&text) {
            prop_assert_eq!(SecurityDescriptor::from_sddl(&descriptor.to_sddl().unwrap()), Ok(descriptor));
        }
    }
}
