use super::*;
use crate::testing;
use ropeway_smb_wire::info::{DirectoryRecords, FileInfoClass};
use ropeway_smb_wire::{FileAttributes, FileId};

const CLASSES: [u8; 7] = [1, 2, 3, 12, 37, 38, 60];

const VIEW: NameView = NameView {
    hide_dot_files: true,
    short_names: false,
};

fn request(pattern: &str, flags: QueryDirectoryFlags, length: u32) -> QueryDirectoryRequest {
    QueryDirectoryRequest {
        information_class: FileInfoClass::IdBothDirectory.to_u8(),
        flags,
        file_index: 0,
        file_id: FileId::default(),
        pattern: pattern.into(),
        output_buffer_length: length,
    }
}

fn none() -> QueryDirectoryFlags {
    QueryDirectoryFlags::default()
}

fn records(open: &Open, request: &QueryDirectoryRequest) -> Result<Vec<DirectoryRecord>, NtStatus> {
    let class = DirectoryClass::from_u8(request.information_class).unwrap();
    let bytes = query_directory(open, request, VIEW, None)?;
    assert!(bytes.len() <= request.output_buffer_length as usize);
    Ok(DirectoryRecords::new(&bytes, class).map(Result::unwrap).collect())
}

fn names(open: &Open, request: &QueryDirectoryRequest) -> Result<String, NtStatus> {
    let names = records(open, request)?;
    let names: Vec<_> = names.iter().map(|record| record.name.to_string_lossy()).collect();
    Ok(names.join(" "))
}

fn folder(files: &[&str]) -> Open {
    let share = testing::share();
    let folder = testing::folder(&share, "d");
    for file in files {
        testing::open(&share, &format!("d/{file}"), AccessMask::FILE_ALL);
    }
    folder
}

#[test]
fn a_listing_continues_until_its_end() {
    let open = folder(&["a", "b", "c"]);
    assert_eq!(names(&open, &request("*", none(), 65_536)).unwrap(), ". .. a b c");
    let end = Err(NtStatus::NO_MORE_FILES);
    assert_eq!(names(&open, &request("*", none(), 65_536)), end);
    assert_eq!(
        names(&open, &request("other", none(), 65_536)),
        end,
        "the pattern stays"
    );
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    let restart = request("*", single | QueryDirectoryFlags::RESTART_SCANS, 65_536);
    assert_eq!(names(&open, &restart).unwrap(), ".");
    assert_eq!(names(&open, &request("", none(), 65_536)).unwrap(), ".. a b c");
    let reopen = request("B*", QueryDirectoryFlags::REOPEN, 65_536);
    assert_eq!(names(&open, &reopen).unwrap(), "b");
}

#[test]
fn no_such_file_and_no_more_files_differ() {
    let open = folder(&["a"]);
    let first = request("x*", none(), 65_536);
    assert_eq!(names(&open, &first), Err(NtStatus::NO_SUCH_FILE));
    assert_eq!(names(&open, &first), Err(NtStatus::NO_MORE_FILES));
    let restart = request("y*", QueryDirectoryFlags::RESTART_SCANS, 65_536);
    assert_eq!(names(&open, &restart), Err(NtStatus::NO_MORE_FILES));
    let restart = request("a*", QueryDirectoryFlags::RESTART_SCANS, 65_536);
    assert_eq!(names(&open, &restart).unwrap(), "a");
    for pattern in ["x*", "x", "b"] {
        let request = request(pattern, QueryDirectoryFlags::REOPEN, 65_536);
        assert_eq!(names(&open, &request), Err(NtStatus::NO_SUCH_FILE), "{pattern}");
        assert_eq!(names(&open, &request), Err(NtStatus::NO_SUCH_FILE), "{pattern}");
    }
}

#[test]
fn one_file_is_looked_up_in_any_case() {
    let open = folder(&["File.Txt", "other"]);
    let found = records(&open, &request("fILE.tXT", none(), 65_536)).unwrap();
    assert_eq!((found.len(), &found[0].name), (1, &"File.Txt".into()));
    let end = names(&open, &request("fILE.tXT", none(), 65_536));
    assert_eq!(end, Err(NtStatus::NO_MORE_FILES));
    let dot = request(".", QueryDirectoryFlags::REOPEN, 65_536);
    assert_eq!(names(&open, &dot).unwrap(), ".");
}

#[test]
fn entries_that_do_not_fit_come_first_in_the_next_response() {
    let files: Vec<_> = (0..50).map(|at| format!("file number {at:02}")).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let open = folder(&files);
    for class in CLASSES {
        let mut found = Vec::new();
        let mut flags = QueryDirectoryFlags::REOPEN;
        loop {
            let request = QueryDirectoryRequest {
                information_class: class,
                ..request("*", flags, 300)
            };
            flags = none();
            match records(&open, &request) {
                Ok(more) => found.extend(more.into_iter().map(|record| record.name.to_string_lossy())),
                Err(status) => {
                    assert_eq!(status, NtStatus::NO_MORE_FILES);
                    break;
                }
            }
        }
        assert_eq!(found[2..], files, "{class}");
    }
}

#[test]
fn small_buffers_are_reported() {
    let open = folder(&["a name that needs some room"]);
    let wildcard = "a*";
    let too_small = request(wildcard, none(), 103);
    assert_eq!(names(&open, &too_small), Err(NtStatus::INFO_LENGTH_MISMATCH));
    let no_name = request(wildcard, none(), 110);
    assert_eq!(names(&open, &no_name), Err(NtStatus::BUFFER_OVERFLOW));
    assert_eq!(
        records(&open, &request(wildcard, none(), 200)).unwrap().len(),
        1,
        "still there"
    );
}

#[test]
fn files_and_unknown_classes_are_refused() {
    let mut open = folder(&["f"]);
    let file = testing::existing(&open.share, "d/f");
    let all = request("*", none(), 65_536);
    assert_eq!(
        query_directory(&file, &all, NameView::default(), None),
        Err(NtStatus::INVALID_PARAMETER)
    );
    let class = QueryDirectoryRequest {
        information_class: 4,
        ..all.clone()
    };
    assert_eq!(
        query_directory(&open, &class, NameView::default(), None),
        Err(NtStatus::INVALID_INFO_CLASS)
    );
    let path = request(r"a\b", none(), 65_536);
    assert_eq!(
        query_directory(&open, &path, NameView::default(), None),
        Err(NtStatus::OBJECT_NAME_INVALID)
    );
    open.access = AccessMask::READ_ATTRIBUTES;
    assert_eq!(
        query_directory(&open, &all, NameView::default(), None),
        Err(NtStatus::ACCESS_DENIED)
    );
}

/// A pattern of 32,767 stars would take millions of steps for each name.
#[test]
fn patterns_longer_than_any_name_needs_are_refused() {
    let open = folder(&["a"]);
    let listed = |units: usize| {
        let pattern = format!("{}a", "*".repeat(units - 1));
        names(&open, &request(&pattern, QueryDirectoryFlags::REOPEN, 65_536))
    };
    assert_eq!(listed(PATTERN_UNITS_MAX).unwrap(), "a");
    for units in [PATTERN_UNITS_MAX + 1, 32_767] {
        assert_eq!(listed(units), Err(NtStatus::OBJECT_NAME_INVALID), "{units}");
    }
}

#[test]
fn links_are_listed_as_their_targets() {
    let open = folder(&["f", ".hidden"]);
    testing::existing(&open.share, "d/f")
        .node
        .write_at(b"12345", 0)
        .unwrap();
    for (name, target) in [("in", "f"), ("out", "../../etc"), ("root", "/etc")] {
        let path = testing::path(&format!("d/{name}"));
        open.share.store.symlink(&path, target.as_bytes()).unwrap();
    }
    let found = records(&open, &request("*", none(), 65_536)).unwrap();
    let by_name = |name: &str| found.iter().find(|record| record.name == name.into()).unwrap();
    assert_eq!(by_name("in").end_of_file, 5);
    assert_eq!(by_name("in").attributes, FileAttributes::ARCHIVE);
    for name in ["out", "root"] {
        let record = by_name(name);
        assert!(record.attributes.contains(FileAttributes::REPARSE_POINT));
        assert_eq!(record.ea_size, ReparseTag::SYMLINK.0);
    }
    assert!(by_name(".hidden").attributes.contains(FileAttributes::HIDDEN));
    assert!(!by_name(".").attributes.contains(FileAttributes::HIDDEN));
    let out = request("OUT", QueryDirectoryFlags::REOPEN, 65_536);
    assert_eq!(records(&open, &out).unwrap()[0].ea_size, ReparseTag::SYMLINK.0);
}

#[test]
fn names_that_windows_forbids_are_mapped() {
    let open = folder(&["a:b", "ends."]);
    let found = records(&open, &request("*", none(), 65_536)).unwrap();
    assert_eq!(found[2].name, Text::from("a\u{F022}b"));
    assert_eq!(found[3].name, Text::from("ends\u{F029}"));
    let one = request("A\u{F022}B", QueryDirectoryFlags::REOPEN, 65_536);
    assert_eq!(records(&open, &one).unwrap().len(), 1);
}

#[test]
fn short_names_are_the_same_everywhere() {
    let open = folder(&["a long name.txt"]);
    let view = NameView {
        short_names: true,
        ..VIEW
    };
    let bytes = query_directory(&open, &request("a*", none(), 65_536), view, None).unwrap();
    let record = DirectoryRecords::new(&bytes, DirectoryClass::IdBothDirectory).next();
    let record = record.unwrap().unwrap();
    assert_eq!(record.name, "a long name.txt".into());
    assert_eq!(Some(record.short_name), view.short_name(b"a long name.txt"));
}

#[test]
fn listings_for_macs_carry_additional_information() {
    let share = testing::share();
    let open = testing::folder(&share, "d");
    testing::open(&share, "d/a long name", AccessMask::FILE_ALL);
    testing::folder(&share, "d/inner");
    let (request, token) = (request("*", none(), 65_536), testing::token());
    let bytes = query_directory(&open, &request, VIEW, Some(&token)).unwrap();
    let records: Vec<_> = DirectoryRecords::apple(&bytes).map(Result::unwrap).collect();
    let modes: Vec<_> = records
        .iter()
        .map(|record| record.apple.unwrap().mode & 0o170_000)
        .collect();
    assert_eq!(modes, [0o040_000, 0o040_000, 0o100_000, 0o040_000]);
    let all = AccessMask::FILE_ALL.bits();
    assert!(
        records
            .iter()
            .all(|record| record.apple.unwrap().max_access == all)
    );
    assert!(
        records
            .iter()
            .all(|record| record.file_id != 0 && record.short_name.is_empty())
    );
    // Other classes do not change.
    let request = QueryDirectoryRequest {
        information_class: FileInfoClass::IdFullDirectory.to_u8(),
        flags: QueryDirectoryFlags::REOPEN,
        ..request
    };
    assert_eq!(
        query_directory(&open, &request, VIEW, Some(&token)),
        query_directory(&open, &request, VIEW, None)
    );
}
