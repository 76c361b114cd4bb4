use super::*;
use crate::testing;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::info::FileFullEaInformation;
use ropeway_vfs::store::StreamOpen;

/// All queries of a file, with the minimum buffer length in Windows.
const CLASSES: [(u8, usize); 13] = [
    (4, 40),
    (5, 24),
    (6, 8),
    (7, 4),
    (8, 4),
    (16, 4),
    (17, 4),
    (18, 104),
    (21, 8),
    (22, 32),
    (28, 16),
    (34, 56),
    (35, 8),
];

fn ask(open: &Open, class: FileInfoClass) -> OutputResult {
    query_file(open, class.to_u8(), 65_535, &FileView::default())
}

fn decoded<I: Information>(open: &Open, class: FileInfoClass) -> I {
    let (status, bytes) = ask(open, class).unwrap();
    assert_eq!(status, NtStatus::SUCCESS);
    I::decode(&bytes).unwrap()
}

/// smb2.getinfo.qfile_buffercheck.
#[test]
fn lengths_are_checked_as_windows_does() {
    let open = testing::open(&testing::share(), "bufsize.txt", AccessMask::FILE_ALL);
    open.node.set_ea(b"EAONE", b"VALUE1").unwrap();
    let view = FileView::default();
    for (class, fixed) in CLASSES {
        let (status, full) = query_file(&open, class, 65_535, &view).unwrap();
        assert_eq!(status, NtStatus::SUCCESS, "{class}");
        for length in 0..=full.len() {
            let expected = match length {
                _ if length < fixed => Err(NtStatus::INFO_LENGTH_MISMATCH),
                _ if length < full.len() => Ok(NtStatus::BUFFER_OVERFLOW),
                _ => Ok(NtStatus::SUCCESS),
            };
            let answer = query_file(&open, class, length, &view);
            assert!(answer.as_ref().is_ok_and(|(_, bytes)| bytes.len() <= length) || answer.is_err());
            assert_eq!(answer.map(|(status, _)| status), expected, "{class} {length}");
        }
    }
}

#[test]
fn other_classes_are_refused() {
    let open = testing::open(&testing::share(), "f", AccessMask::FILE_ALL);
    for class in [0, 1, 3, 10, 13, 19, 20, 37, 39, 65, 255] {
        let answer = query_file(&open, class, 65_535, &FileView::default());
        assert_eq!(answer, Err(NtStatus::INVALID_INFO_CLASS), "{class}");
    }
    for class in [FileInfoClass::Pipe, FileInfoClass::PipeLocal] {
        assert_eq!(ask(&open, class), Err(NtStatus::INVALID_PARAMETER));
    }
}

/// smb2.getinfo.getinfo_access.
#[test]
fn rights_are_needed_where_the_specification_says() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::SYNCHRONIZE);
    open.node.set_ea(b"a", b"b").unwrap();
    for class in [
        FileInfoClass::Basic,
        FileInfoClass::All,
        FileInfoClass::NetworkOpen,
        FileInfoClass::AttributeTag,
        FileInfoClass::FullEa,
    ] {
        assert_eq!(ask(&open, class), Err(NtStatus::ACCESS_DENIED), "{class:?}");
    }
    for class in [
        FileInfoClass::Standard,
        FileInfoClass::Internal,
        FileInfoClass::Ea,
        FileInfoClass::Stream,
    ] {
        assert!(ask(&open, class).is_ok(), "{class:?}");
    }
    let open = testing::open(&share, "f", AccessMask::READ_ATTRIBUTES);
    assert!(ask(&open, FileInfoClass::All).is_ok());
    assert_eq!(ask(&open, FileInfoClass::FullEa), Err(NtStatus::ACCESS_DENIED));
}

#[test]
fn files_and_folders_report_their_kind() {
    let share = testing::share();
    let folder = testing::folder(&share, "dir");
    let open = testing::open(&share, "dir/f", AccessMask::FILE_ALL);
    open.node.write_at(b"hello", 0).unwrap();
    let all: FileAllInformation = decoded(&open, FileInfoClass::All);
    assert_eq!(
        (all.standard.end_of_file, all.standard.allocation_size),
        (5, 4096)
    );
    assert_eq!(all.basic.attributes, FileAttributes::ARCHIVE);
    assert_eq!(all.name.name, r"\dir\f".into());
    assert_eq!(all.access.access_flags, AccessMask::FILE_ALL);
    assert!(!all.standard.directory && !all.standard.delete_pending);
    let id: FileIdInformation = decoded(&open, FileInfoClass::Id);
    assert_eq!(
        u128::from_le_bytes(id.file_id),
        u128::from(all.internal.index_number)
    );
    let all: FileAllInformation = decoded(&folder, FileInfoClass::All);
    assert_eq!(all.basic.attributes, FileAttributes::DIRECTORY);
    assert_eq!((all.standard.end_of_file, all.standard.allocation_size), (0, 0));
    assert!(all.standard.directory);
    let view = FileView {
        delete_pending: true,
        ..FileView::default()
    };
    let (_, bytes) = query_file(&open, FileInfoClass::Standard.to_u8(), 24, &view).unwrap();
    let standard = FileStandardInformation::decode(&bytes).unwrap();
    assert_eq!((standard.number_of_links, standard.delete_pending), (0, true));
}

#[test]
fn names_include_their_streams() {
    let share = testing::share();
    testing::folder(&share, "d");
    let mut open = testing::open(&share, "d/a:b", AccessMask::FILE_ALL);
    let view = FileView {
        normalized_names: true,
        ..FileView::default()
    };
    let normalized = |open: &Open| {
        let (_, bytes) = query_file(open, FileInfoClass::NormalizedName.to_u8(), 999, &view).unwrap();
        FileNormalizedNameInformation::decode(&bytes).unwrap().name
    };
    assert_eq!(
        normalized(&open),
        Text::from("d\\a\u{F022}b"),
        "a colon is mapped"
    );
    open.stream = Name::new(b"s");
    assert_eq!(normalized(&open), Text::from("d\\a\u{F022}b:s"));
    assert_eq!(normalized(&testing::folder(&share, "")), Text::default());
    assert_eq!(
        ask(&open, FileInfoClass::NormalizedName),
        Err(NtStatus::NOT_SUPPORTED),
        "before 3.1.1"
    );
    let root: FileNameInformation = decoded(&testing::folder(&share, ""), FileInfoClass::Name);
    assert_eq!(root.name, r"\".into());
}

#[test]
fn short_names_are_those_that_are_short() {
    let share = testing::share();
    let short = |name: &str| {
        let open = testing::open(&share, name, AccessMask::FILE_ALL);
        ask(&open, FileInfoClass::AlternateName).map(|(_, bytes)| bytes.len())
    };
    assert_eq!(short("readme.txt"), Ok(4 + 20));
    assert_eq!(short("a"), Ok(4 + 2));
    for name in ["a long name.txt", "read me.txt", "a.b.c", ".abc", "x.html"] {
        assert_eq!(short(name), Err(NtStatus::OBJECT_NAME_NOT_FOUND), "{name}");
    }
    let open = testing::open(&share, "a long name.txt", AccessMask::FILE_ALL);
    let names = NameView {
        short_names: true,
        ..NameView::default()
    };
    let view = FileView {
        names,
        ..FileView::default()
    };
    let (_, bytes) = query_file(&open, FileInfoClass::AlternateName.to_u8(), 99, &view).unwrap();
    let told = FileNameInformation::decode(&bytes).unwrap().name;
    assert_eq!(Some(told), names.short_name(b"a long name.txt"));
}

#[test]
fn the_mode_is_that_of_the_options_until_it_is_set() {
    let mut open = testing::open(&testing::share(), "f", AccessMask::FILE_ALL);
    open.options =
        CreateOptions::NON_DIRECTORY_FILE | CreateOptions::WRITE_THROUGH | CreateOptions::DELETE_ON_CLOSE;
    let mode: FileModeInformation = decoded(&open, FileInfoClass::Mode);
    assert_eq!(mode.mode, ModeFlags::WRITE_THROUGH | ModeFlags::DELETE_ON_CLOSE);
}

#[test]
fn streams_are_listed_as_far_as_they_fit() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::FILE_ALL);
    open.node.write_at(&[1; 10], 0).unwrap();
    let how = StreamOpen {
        create: true,
        exclusive: false,
    };
    let name = Name::new(b"alpha").unwrap();
    open.node
        .open_stream(&name, &how)
        .unwrap()
        .0
        .write_at(&[1; 3], 0)
        .unwrap();
    let list: FileStreamInformation = decoded(&open, FileInfoClass::Stream);
    let names: Vec<_> = list
        .streams
        .iter()
        .map(|stream| stream.name.to_string_lossy())
        .collect();
    assert_eq!(names, ["::$DATA", ":alpha:$DATA"]);
    assert_eq!((list.streams[0].size, list.streams[1].size), (10, 3));
    let (status, bytes) = query_file(&open, 22, 50, &FileView::default()).unwrap();
    assert_eq!((status, bytes.len()), (NtStatus::BUFFER_OVERFLOW, 38));
    let (status, bytes) = ask(&testing::folder(&share, "d"), FileInfoClass::Stream).unwrap();
    assert_eq!((status, bytes.len()), (NtStatus::SUCCESS, 0));
}

#[test]
fn extended_attributes_are_listed_one_by_one() {
    let open = testing::open(&testing::share(), "f", AccessMask::FILE_ALL);
    assert_eq!(ask(&open, FileInfoClass::FullEa), Err(NtStatus::NO_EAS_ON_FILE));
    for name in ["ONE", "TWO", "THREE"] {
        open.node.set_ea(name.as_bytes(), b"value").unwrap();
    }
    let ask = |view: &FileView<'_>, length_max| {
        let (status, bytes) = query_file(&open, 15, length_max, view)?;
        let list = FileFullEaInformation::decode(&bytes).unwrap();
        let names = list
            .attributes
            .iter()
            .map(|ea| String::from_utf8_lossy(&ea.name).into_owned());
        Ok((status, names.collect::<Vec<_>>().join(" ")))
    };
    let next = FileView::default();
    let overflow = |text: &str| Ok((NtStatus::BUFFER_OVERFLOW, text.to_owned()));
    let success = |text: &str| Ok((NtStatus::SUCCESS, text.to_owned()));
    assert_eq!(ask(&next, 10), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(ask(&next, 40), overflow("ONE TWO"));
    assert_eq!(ask(&next, 40), success("THREE"));
    assert_eq!(ask(&next, 40), Err(NtStatus::NO_MORE_EAS));
    let restart = FileView {
        flags: QueryInfoFlags::RESTART_SCAN | QueryInfoFlags::RETURN_SINGLE_ENTRY,
        ..next
    };
    assert_eq!(ask(&restart, 99), success("ONE"));
    let index = |index| FileView {
        flags: QueryInfoFlags::INDEX_SPECIFIED,
        index,
        ..next
    };
    assert_eq!(ask(&index(2), 99), success("TWO THREE"));
    assert_eq!(ask(&index(4), 99), Err(NtStatus::NONEXISTENT_EA_ENTRY));
    let named = FileView {
        input: b"\0\0\0\0\x03two\0",
        ..next
    };
    assert_eq!(ask(&named, 99), success("two"));
    let hostile = FileView {
        input: b"\xFF\0\0\0\x03two\0",
        ..next
    };
    assert_eq!(ask(&hostile, 99), Err(NtStatus::INVALID_PARAMETER));
    let size: FileEaInformation = decoded(&open, FileInfoClass::Ea);
    assert_eq!(size.ea_size, 4 + 2 * (5 + 3 + 5) + (5 + 5 + 5));
}

#[test]
fn links_are_reparse_points() {
    let share = testing::share();
    share.store.symlink(&testing::path("l"), b"nowhere").unwrap();
    let open = testing::existing(&share, "l");
    let tag: FileAttributeTagInformation = decoded(&open, FileInfoClass::AttributeTag);
    assert!(tag.attributes.contains(FileAttributes::REPARSE_POINT));
    assert_eq!(tag.reparse_tag, ReparseTag::SYMLINK.0);
}
