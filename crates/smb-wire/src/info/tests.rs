//! Round trips, known layouts and hostile bytes of all classes.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Fault, FileAttributes, FileTime, Text, Writer, hostile};

fn texts(units_max: usize) -> impl Strategy<Value = Text> {
    vec(any::<u16>(), 0..=units_max).prop_map(Text::from_units)
}

/// Encodes at an odd place of a bigger buffer: nothing may depend on where a structure stands.
fn round_trip<T: Information + PartialEq + Debug>(value: &T) {
    let bytes = value.to_bytes();
    assert_eq!(&T::decode(&bytes).unwrap(), value);
    let mut out = vec![0xAA; 8];
    value.encode(&mut Writer::within(&mut out, 0));
    assert_eq!(&out[8..], bytes);
    for length in 0..bytes.len() {
        _ = T::decode(&bytes[..length]);
    }
}

/// Any bytes as a structure of fixed size, and back: encoding and decoding agree on every bit but reserved ones.
fn fixed<T: Information + PartialEq + Debug>(bytes: &[u8], length: usize) {
    let value = T::decode(bytes).unwrap();
    assert_eq!(value.to_bytes().len(), length, "{}", T::NAME);
    round_trip(&value);
    assert_eq!(T::decode(&bytes[..length]).unwrap(), value);
    assert_eq!(
        T::decode(&bytes[..length - 1]).unwrap_err().fault,
        Fault::Truncated
    );
    assert_eq!(T::decode(&bytes[..length - 1]).unwrap_err().structure, T::NAME);
}

/// [MS-FSCC] gives these lengths.
fn all_fixed(bytes: &[u8]) {
    fixed::<FileBasicInformation>(bytes, 40);
    fixed::<FileStandardInformation>(bytes, 24);
    fixed::<FileInternalInformation>(bytes, 8);
    fixed::<FileEaInformation>(bytes, 4);
    fixed::<FileAccessInformation>(bytes, 4);
    fixed::<FilePositionInformation>(bytes, 8);
    fixed::<FileModeInformation>(bytes, 4);
    fixed::<FileAlignmentInformation>(bytes, 4);
    fixed::<FileNetworkOpenInformation>(bytes, 56);
    fixed::<FileAttributeTagInformation>(bytes, 8);
    fixed::<FileEndOfFileInformation>(bytes, 8);
    fixed::<FileAllocationInformation>(bytes, 8);
    fixed::<FileDispositionInformation>(bytes, 1);
    fixed::<FileDispositionInformationEx>(bytes, 4);
    fixed::<FileCompressionInformation>(bytes, 16);
    fixed::<FileIdInformation>(bytes, 24);
    fixed::<FilePipeInformation>(bytes, 8);
    fixed::<FileFsSizeInformation>(bytes, 24);
    fixed::<FileFsFullSizeInformation>(bytes, 32);
    fixed::<FileFsDeviceInformation>(bytes, 8);
    fixed::<FileFsObjectIdInformation>(bytes, 64);
    fixed::<FileFsSectorSizeInformation>(bytes, 28);
}

/// Decodes as everything.
fn decode_all(bytes: &[u8]) {
    fn decode<T: Information + PartialEq + Debug>(bytes: &[u8]) {
        if let Ok(value) = T::decode(bytes) {
            assert_eq!(T::decode(&value.to_bytes()).unwrap(), value);
        }
    }
    decode::<FileNameInformation>(bytes);
    decode::<FileNormalizedNameInformation>(bytes);
    decode::<FileAllInformation>(bytes);
    decode::<FileRenameInformation>(bytes);
    decode::<FileRenameInformationEx>(bytes);
    decode::<FileLinkInformation>(bytes);
    decode::<FileStreamInformation>(bytes);
    decode::<FileFullEaInformation>(bytes);
    decode::<FileFsVolumeInformation>(bytes);
    decode::<FileFsAttributeInformation>(bytes);
    decode::<FileBasicInformation>(bytes);
    decode::<FileFsSectorSizeInformation>(bytes);
    for class in DIRECTORY_CLASSES {
        let records = DirectoryRecords::new(bytes, class);
        assert!(records.count() <= bytes.len() / class.fixed_len() + 1);
    }
}

const DIRECTORY_CLASSES: [DirectoryClass; 7] = [
    DirectoryClass::Directory,
    DirectoryClass::FullDirectory,
    DirectoryClass::BothDirectory,
    DirectoryClass::IdFullDirectory,
    DirectoryClass::IdBothDirectory,
    DirectoryClass::Names,
    DirectoryClass::IdExtdDirectory,
];

fn records() -> impl Strategy<Value = DirectoryRecord> {
    (
        any::<[u32; 4]>(),
        any::<[u64; 6]>(),
        any::<u128>(),
        texts(12),
        texts(40),
    )
        .prop_map(|(words, longs, file_id, short_name, name)| DirectoryRecord {
            file_index: words[0],
            creation_time: FileTime(longs[0]),
            last_access_time: FileTime(longs[1]),
            last_write_time: FileTime(longs[2]),
            change_time: FileTime(longs[3]),
            end_of_file: longs[4],
            allocation_size: longs[5],
            attributes: FileAttributes::from_bits_retain(words[1]),
            ea_size: words[2],
            extd_reparse_tag: words[3],
            file_id,
            short_name,
            name,
            apple: None,
        })
}

/// The record without what the class does not carry.
fn carried(mut record: DirectoryRecord, class: DirectoryClass) -> DirectoryRecord {
    use DirectoryClass::*;
    if class == Names {
        return DirectoryRecord {
            file_index: record.file_index,
            name: record.name,
            ..DirectoryRecord::default()
        };
    }
    if class == Directory {
        record.ea_size = 0;
    }
    if !matches!(class, BothDirectory | IdBothDirectory) {
        record.short_name = Text::default();
    }
    if class != IdExtdDirectory {
        record.extd_reparse_tag = 0;
        record.file_id = match class {
            IdFullDirectory | IdBothDirectory => {
                u128::from(u64::try_from(record.file_id).unwrap_or(u64::MAX))
            }
            _ => 0,
        };
    }
    record
}

fn directory_classes() -> impl Strategy<Value = DirectoryClass> {
    prop::sample::select(&DIRECTORY_CLASSES[..])
}

#[test]
fn a_known_directory_record() {
    // FileIdBothDirectoryInformation of "a", laid out by hand after [MS-FSCC] 2.4.22.
    let mut bytes = vec![0; 106];
    bytes[4] = 7;
    bytes[8] = 1;
    bytes[40] = 5;
    bytes[48] = 0x10;
    bytes[56] = 0x20;
    bytes[60] = 2;
    bytes[64] = 9;
    bytes[68] = 2;
    bytes[70] = b'A';
    bytes[96] = 42;
    bytes[104] = b'a';
    let records: Vec<_> = DirectoryRecords::new(&bytes, DirectoryClass::IdBothDirectory).collect();
    let record = DirectoryRecord {
        file_index: 7,
        creation_time: FileTime(1),
        end_of_file: 5,
        allocation_size: 16,
        attributes: FileAttributes::ARCHIVE,
        ea_size: 9,
        file_id: 42,
        short_name: "A".into(),
        name: "a".into(),
        ..DirectoryRecord::default()
    };
    assert_eq!(records, [Ok(record)]);
}

#[test]
fn chains_go_forward() {
    let names = |next: u32| {
        let mut bytes = vec![0; 32];
        bytes[..4].copy_from_slice(&next.to_le_bytes());
        DirectoryRecords::new(&bytes, DirectoryClass::Names).collect::<Vec<_>>()
    };
    assert_eq!(names(0).len(), 1);
    assert_eq!(names(16).len(), 2);
    // Unaligned, but in order.
    assert_eq!(names(13).len(), 2);
    for bad in [1, 11, 32, 33, u32::MAX] {
        assert_eq!(list_fault(&names(bad)[0]), Some(Fault::Chain), "{bad}");
        assert_eq!(names(bad).len(), 1);
    }
    // The second entry does not fit.
    let second = names(24);
    assert_eq!(second.len(), 2);
    assert_eq!(list_fault(&second[1]), Some(Fault::Truncated));
}

/// The fault of a list that cannot be read on.
fn list_fault(record: &std::result::Result<DirectoryRecord, ListFault>) -> Option<Fault> {
    match record {
        Err(ListFault::List(malformed)) => Some(malformed.fault),
        _ => None,
    }
}

#[test]
fn a_name_cannot_reach_into_the_next_record() {
    let mut bytes = vec![0; 48];
    bytes[0] = 16;
    bytes[8] = 6;
    let records: Vec<_> = DirectoryRecords::new(&bytes, DirectoryClass::Names).collect();
    let Err(ListFault::Record(bad)) = &records[0] else {
        panic!("{records:?}");
    };
    assert_eq!(bad.malformed.fault, Fault::Truncated);
    assert_eq!(bad.shown.wire_len(), 4, "what the record has of it");
    assert_eq!(records[1], Ok(DirectoryRecord::default()));
}

/// One such record failed its whole folder.
#[test]
fn a_bad_record_leaves_the_others() {
    let class = DirectoryClass::IdBothDirectory;
    let names = ["first", "second", "third"];
    let mut list = Vec::new();
    let mut writer = Writer::new(&mut list);
    let mut directory = DirectoryWriter::new(&writer, class, 4096);
    let starts: Vec<usize> = names
        .iter()
        .map(|name| {
            let record = DirectoryRecord {
                name: Text::from(*name),
                ..DirectoryRecord::default()
            };
            let at = writer.position().next_multiple_of(8);
            assert!(directory.push(&mut writer, &record));
            at
        })
        .collect();
    // The name's length is odd; it is longer than the record; than any list; the short name's is odd, or too long.
    for (field, bytes) in [
        (60, [11, 0, 0, 0]),
        (60, [90, 0, 0, 0]),
        (60, [0xff; 4]),
        (68, [3, 0, 0, 0]),
        (68, [26, 0, 0, 0]),
    ] {
        for (bad, start) in starts.iter().enumerate() {
            let mut list = list.clone();
            list[start + field..start + field + 4].copy_from_slice(&bytes);
            let records: Vec<_> = DirectoryRecords::new(&list, class).collect();
            assert_eq!(records.len(), names.len(), "{bytes:?}");
            for (at, (record, name)) in records.iter().zip(names).enumerate() {
                match record {
                    Ok(record) => assert!(at != bad && record.name == Text::from(name), "{bytes:?}"),
                    Err(ListFault::Record(record)) => {
                        assert!(
                            at == bad && record.shown.to_string().starts_with(&name[..5]),
                            "{record:?}"
                        );
                    }
                    Err(ListFault::List(fault)) => panic!("{bytes:?}: {fault}"),
                }
            }
        }
    }
}

#[test]
fn renames_are_never_shorter_than_windows_wants() {
    let rename = FileRenameInformation {
        replace_if_exists: true,
        name: "x".into(),
    };
    let bytes = rename.to_bytes();
    assert_eq!(bytes.len(), 24);
    assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[16..], [2, 0, 0, 0, b'x', 0, 0, 0]);
    let mut with_root = bytes;
    with_root[8] = 1;
    assert_eq!(
        FileRenameInformation::decode(&with_root).unwrap_err().fault,
        Fault::Value
    );
}

#[test]
fn basic_information_changes_nothing_by_default() {
    assert_eq!(FileBasicInformation::default().to_bytes(), [0; 40]);
}

#[test]
fn a_reparse_points_tag() {
    let mut record = DirectoryRecord {
        ea_size: 0xA000_000C,
        ..DirectoryRecord::default()
    };
    assert_eq!(record.reparse_tag(), None);
    record.attributes = FileAttributes::REPARSE_POINT;
    assert_eq!(record.reparse_tag(), Some(0xA000_000C));
    record.extd_reparse_tag = 0xA000_0003;
    assert_eq!(record.reparse_tag(), Some(0xA000_0003));
}

#[test]
fn absurd_units_are_none() {
    let mut size = FileFsFullSizeInformation {
        sectors_per_allocation_unit: 8,
        bytes_per_sector: 512,
        ..FileFsFullSizeInformation::default()
    };
    assert_eq!(size.unit_bytes(), Some(4096));
    size.bytes_per_sector = 0;
    assert_eq!(size.unit_bytes(), None);
}

proptest! {
    #[test]
    fn structures_of_fixed_size_round_trip(bytes in vec(any::<u8>(), 64)) {
        all_fixed(&bytes);
    }

    #[test]
    fn names_round_trip(name in texts(30), flag: bool, flags: u32) {
        round_trip(&FileNameInformation { name: name.clone() });
        round_trip(&FileNormalizedNameInformation { name: name.clone() });
        round_trip(&FileRenameInformation { replace_if_exists: flag, name: name.clone() });
        round_trip(&FileLinkInformation { replace_if_exists: flag, name: name.clone() });
        round_trip(&FileRenameInformationEx { flags: RenameFlags::from_bits_retain(flags), name: name.clone() });
        round_trip(&FileFsAttributeInformation {
            attributes: FsAttributes::from_bits_retain(flags),
            maximum_component_name_length: 255,
            file_system_name: name.clone(),
        });
        round_trip(&FileFsVolumeInformation {
            volume_creation_time: FileTime(u64::from(flags)),
            volume_serial_number: flags,
            supports_objects: flag,
            volume_label: name.clone(),
        });
        let all = FileAllInformation { name: FileNameInformation { name: name.clone() }, ..FileAllInformation::default() };
        assert_eq!(all.to_bytes().len(), 100 + name.wire_len());
        round_trip(&all);
    }

    #[test]
    fn lists_round_trip(
        streams in vec((texts(20), any::<u64>(), any::<u64>()), 0..5),
        attributes in vec((any::<bool>(), vec(1..=255_u8, 0..=255), vec(any::<u8>(), 0..300)), 0..5),
    ) {
        let streams = streams
            .into_iter()
            .map(|(name, size, allocation_size)| StreamEntry { name, size, allocation_size })
            .collect();
        round_trip(&FileStreamInformation { streams });
        let attributes = attributes
            .into_iter()
            .map(|(need_ea, name, value)| FullEa { need_ea, name, value })
            .collect();
        round_trip(&FileFullEaInformation { attributes });
    }

    #[test]
    fn records_round_trip_up_to_the_budget(
        records in vec(records(), 0..6), class in directory_classes(), length_max in 0..1500_usize,
    ) {
        let mut out = vec![0xAA; 72];
        let mut writer = Writer::within(&mut out, 0);
        let mut directory = DirectoryWriter::new(&writer, class, length_max);
        let count = records.iter().take_while(|record| directory.push(&mut writer, record)).count();
        prop_assert!(out.len() - 72 <= length_max);
        let back: Vec<_> = DirectoryRecords::new(&out[72..], class).map(|record| record.unwrap()).collect();
        prop_assert_eq!(back.len(), count);
        for (record, back) in records.into_iter().zip(back) {
            prop_assert_eq!(carried(record, class), back);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..200)) {
        decode_all(&bytes);
    }

    #[test]
    fn spoilt_records_never_panic(
        records in vec(records(), 1..4), class in directory_classes(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..5), length in any::<prop::sample::Index>(),
    ) {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        let mut directory = DirectoryWriter::new(&writer, class, usize::MAX);
        assert!(records.iter().all(|record| directory.push(&mut writer, record)));
        for (at, byte) in changes {
            let at = at.index(out.len());
            out[at] = byte;
        }
        decode_all(&out);
        out.truncate(length.index(out.len()));
        decode_all(&out);
    }
}

#[test]
fn records_for_a_mac_lie_where_others_have_short_names() {
    let apple = AppleRecord {
        max_access: 0x001F_01FF,
        resource_fork_len: 0x1122_3344_5566,
        finder_info: *b"TEXTttxt\x40\0\x01\x02\0\0\0\x09",
        mode: 0o100_644,
    };
    let record = DirectoryRecord {
        file_id: 7,
        ea_size: 99,
        short_name: "SHORT~1".into(),
        name: "a long name".into(),
        apple: Some(apple),
        ..DirectoryRecord::default()
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let mut list = DirectoryWriter::new(&writer, DirectoryClass::IdBothDirectory, 4096);
    assert!(list.push(&mut writer, &record) && list.push(&mut writer, &record));
    assert_eq!(bytes[64..68], apple.max_access.to_le_bytes());
    assert_eq!(bytes[68..70], [0, 0]);
    assert_eq!(bytes[70..78], apple.resource_fork_len.to_le_bytes());
    assert_eq!(bytes[78..94], apple.finder_info);
    assert_eq!(bytes[94..96], apple.mode.to_le_bytes());
    let expected = DirectoryRecord {
        ea_size: 0,
        short_name: Text::default(),
        ..record
    };
    let read: Vec<_> = DirectoryRecords::apple(&bytes)
        .map(|record| record.unwrap())
        .collect();
    assert_eq!(read, [expected.clone(), expected]);
    hostile::attack(&bytes, 0, |bytes| _ = DirectoryRecords::apple(bytes).count());
}
