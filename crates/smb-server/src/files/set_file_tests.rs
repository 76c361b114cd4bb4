use super::*;
use crate::testing;
use ropeway_smb_wire::FileAttributes;
use ropeway_smb_wire::create::AccessMask;

fn set(open: &Open, class: FileInfoClass, buffer: &[u8]) -> Result<(), NtStatus> {
    SetFile::decode(open, class.to_u8(), buffer)?.apply(open)
}

fn basic(open: &Open, basic: FileBasicInformation) -> Result<(), NtStatus> {
    set(open, FileInfoClass::Basic, &basic.to_bytes())
}

fn file() -> Open {
    testing::open(&testing::share(), "f", AccessMask::FILE_ALL)
}

/// smb2.setinfo.
#[test]
fn times_and_attributes_are_set_or_kept() {
    let open = file();
    let time = |seconds| FileTime::from_unix(seconds, 0);
    let set = FileBasicInformation {
        creation_time: time(1000),
        last_access_time: time(2000),
        last_write_time: time(3000),
        change_time: time(4000),
        attributes: FileAttributes::READONLY,
    };
    basic(&open, set).unwrap();
    let stat = open.node.stat().unwrap();
    assert_eq!(stat.created, Timestamp::from_unix(1000, 0));
    assert_eq!(stat.modified, Timestamp::from_unix(3000, 0));
    assert_eq!(stat.dos_attributes, Some(1));
    basic(&open, FileBasicInformation::default()).unwrap();
    assert_eq!(open.node.stat().unwrap(), stat, "zeros change nothing");
    let attributes = |attributes| FileBasicInformation {
        attributes,
        ..FileBasicInformation::default()
    };
    basic(&open, attributes(FileAttributes::NORMAL)).unwrap();
    assert_eq!(open.node.stat().unwrap().dos_attributes, Some(0));
    let refused = basic(&open, attributes(FileAttributes::DIRECTORY));
    assert_eq!(refused, Err(NtStatus::INVALID_PARAMETER));
    let refused = basic(
        &open,
        FileBasicInformation {
            last_write_time: FileTime(u64::MAX - 2),
            ..FileBasicInformation::default()
        },
    );
    assert_eq!(refused, Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn frozen_times_stay_until_thawed() {
    let open = file();
    let modified = |time| FileBasicInformation {
        last_write_time: time,
        ..FileBasicInformation::default()
    };
    let before = open.node.stat().unwrap().modified;
    basic(&open, modified(FileTime::FREEZE)).unwrap();
    let write = || keeping_times(&open, || stored(open.node.write_at(b"x", 0)));
    write().unwrap();
    assert_eq!(open.node.stat().unwrap().modified, before);
    // What another open changes meanwhile stays.
    let other = NodeChange {
        modified: Some(Timestamp::from_unix(5000, 0)),
        ..NodeChange::default()
    };
    open.node.change(&other).unwrap();
    let before = open.node.stat().unwrap().modified;
    write().unwrap();
    assert_eq!(open.node.stat().unwrap().modified, before);
    set(&open, FileInfoClass::EndOfFile, &37_u64.to_le_bytes()).unwrap();
    assert_eq!(open.node.stat().unwrap().modified, before);
    basic(&open, modified(FileTime::THAW)).unwrap();
    set(&open, FileInfoClass::EndOfFile, &38_u64.to_le_bytes()).unwrap();
    assert!(open.node.stat().unwrap().modified > before);
}

#[test]
fn a_read_does_not_change_a_file_whose_write_time_was_set() {
    let open = file();
    let set = FileBasicInformation {
        last_write_time: FileTime::from_unix(3000, 0),
        ..FileBasicInformation::default()
    };
    basic(&open, set).unwrap();
    let before = open.node.stat().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let held = held_access_time(&open).unwrap();
    restore_access_time(&open, held).unwrap();
    assert_eq!(open.node.stat().unwrap().changed, before.changed);
}

/// smb2.timestamps.modern_write_time_update-2: an allocation that keeps the length changes the change time,
/// and only that.
#[test]
fn an_allocation_that_changes_nothing_changes_the_change_time() {
    let open = file();
    for bytes in [0_u64, 9000] {
        let before = open.node.stat().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        set(&open, FileInfoClass::Allocation, &bytes.to_le_bytes()).unwrap();
        let after = open.node.stat().unwrap();
        assert_eq!((after.size, after.modified), (before.size, before.modified));
        assert!(after.changed > before.changed, "{bytes}");
    }
}

#[test]
fn lengths_and_allocation() {
    let open = file();
    let size = |class, bytes: u64| set(&open, class, &bytes.to_le_bytes());
    size(FileInfoClass::EndOfFile, 37).unwrap();
    assert_eq!(open.node.stat().unwrap().size, 37);
    size(FileInfoClass::Allocation, 0).unwrap();
    let stat = open.node.stat().unwrap();
    assert_eq!((stat.size, stat.allocated), (0, 0));
    size(FileInfoClass::Allocation, 4096).unwrap();
    let stat = open.node.stat().unwrap();
    assert_eq!((stat.size, stat.allocated), (0, 4096));
    size(FileInfoClass::Allocation, 9000).unwrap();
    size(FileInfoClass::Allocation, 1).unwrap();
    assert_eq!(open.node.stat().unwrap().allocated, 0, "given back");
    assert_eq!(
        size(FileInfoClass::EndOfFile, 1 << 63),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(
        size(FileInfoClass::ValidDataLength, 1),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(size(FileInfoClass::ValidDataLength, 0), Ok(()));
    let folder = testing::folder(&open.share, "d");
    let refused = set(&folder, FileInfoClass::EndOfFile, &[0; 8]);
    assert_eq!(refused, Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn modes_and_positions() {
    let open = file();
    let mode = |bits: u32| set(&open, FileInfoClass::Mode, &bits.to_le_bytes());
    mode(2).unwrap();
    assert_eq!(open.state.mode.load(Ordering::Relaxed), 2);
    for bits in [1, 8, 0x1000, 0x30] {
        assert_eq!(mode(bits), Err(NtStatus::INVALID_PARAMETER), "{bits:#x}");
    }
    set(&open, FileInfoClass::Position, &123_456_u64.to_le_bytes()).unwrap();
    assert_eq!(open.position.load(Ordering::Relaxed), 123_456);
}

#[test]
fn extended_attributes_are_set_and_removed() {
    let open = file();
    let ea = |name: &[u8], value: &[u8]| {
        let attributes = vec![FullEa {
            need_ea: false,
            name: name.to_vec(),
            value: value.to_vec(),
        }];
        set(
            &open,
            FileInfoClass::FullEa,
            &FileFullEaInformation { attributes }.to_bytes(),
        )
    };
    ea(b"NewEA", b"testme").unwrap();
    assert_eq!(open.node.eas().unwrap()[0].value, b"testme");
    ea(b"NEWEA", b"").unwrap();
    ea(b"ZeroEA", b"").unwrap();
    assert!(open.node.eas().unwrap().is_empty());
    for name in [&b""[..], b"a=b", b"a\x01"] {
        assert_eq!(ea(name, b"x"), Err(NtStatus::INVALID_EA_NAME));
    }
}

#[test]
fn changes_for_the_hub_are_only_decoded() {
    let open = file();
    let rename = FileRenameInformation {
        replace_if_exists: true,
        name: r"dir\new".into(),
    };
    let set = SetFile::decode(&open, 10, &rename.to_bytes()).unwrap();
    let expected = SetFile::Rename {
        flags: RenameFlags::REPLACE_IF_EXISTS,
        name: r"dir\new".into(),
    };
    assert_eq!(set, expected);
    assert_eq!(set.apply(&open), Err(NtStatus::NOT_SUPPORTED));
    let set = SetFile::decode(&open, 13, &[1]).unwrap();
    assert_eq!(set, SetFile::Disposition(DispositionFlags::DELETE));
    let set = SetFile::decode(&open, 64, &[3, 0, 0, 0]).unwrap();
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    assert_eq!(set, SetFile::Disposition(posix));
    assert_eq!(
        SetFile::decode(&open, 13, &[]),
        Err(NtStatus::INFO_LENGTH_MISMATCH)
    );
    let mut rooted = rename.to_bytes();
    rooted[8] = 1;
    assert_eq!(
        SetFile::decode(&open, 10, &rooted),
        Err(NtStatus::INVALID_PARAMETER)
    );
}

#[test]
fn rights_are_needed() {
    let open = testing::open(&testing::share(), "f", AccessMask::FILE_GENERIC_READ);
    for class in [4, 10, 13, 15, 19, 20, 39, 64, 65] {
        let refused = SetFile::decode(&open, class, &[0; 64]);
        assert_eq!(refused, Err(NtStatus::ACCESS_DENIED), "{class}");
    }
    for class in [0, 5, 6, 8, 18, 22, 255] {
        let refused = SetFile::decode(&open, class, &[0; 64]);
        assert_eq!(refused, Err(NtStatus::INVALID_INFO_CLASS), "{class}");
    }
    // Append access does not suffice to set the length.
    let appends = testing::open(&testing::share(), "f", AccessMask::APPEND_DATA);
    for class in [
        FileInfoClass::EndOfFile,
        FileInfoClass::Allocation,
        FileInfoClass::ValidDataLength,
    ] {
        let refused = set(&appends, class, &[0; 8]);
        assert_eq!(refused, Err(NtStatus::ACCESS_DENIED), "{class:?}");
    }
    assert_eq!(set_fs(8), Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(set_fs(2), Err(NtStatus::ACCESS_DENIED));
    assert_eq!(set_fs(5), Err(NtStatus::INVALID_INFO_CLASS));
}

/// A time that is set while a write is under way is that of the file in the end, however many write.
#[test]
fn a_time_set_during_writes_stays() {
    let share = testing::share();
    let open = testing::open(&share, "f", AccessMask::FILE_ALL);
    let wanted = Timestamp::from_unix(5000, 0);
    let (began, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (open, began) = (&open, began.clone());
            scope.spawn(move || {
                keeping_times(open, || {
                    began.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    stored(open.node.write_at(b"x", 0))
                })
                .unwrap();
            });
        }
        begins.recv().unwrap();
        let set = FileBasicInformation {
            last_write_time: FileTime::from_unix(5000, 0),
            ..FileBasicInformation::default()
        };
        set_basic(&open, &set).unwrap();
    });
    assert_eq!(open.node.stat().unwrap().modified, wanted);
}
