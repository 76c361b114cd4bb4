//! Any request gets a response that fits, or a status.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use ropeway_smb_wire::FileId;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::info::{FileInfoClass, FileRenameInformation, FullEa, Information};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
use ropeway_smb_wire::query_info::{QueryInfoFlags, SecurityInformation};
use ropeway_smb_wire::security::SecurityDescriptor;

use crate::files::query_file::FileView;
use crate::files::set_file::SetFile;
use crate::files::short_name::NameView;
use crate::files::{directory, fsctl, query_file, query_fs, security};
use crate::state::open::Open;
use crate::testing;

fn file() -> Open {
    let open = testing::open(&testing::share(), "f", AccessMask::from_bits_retain(u32::MAX));
    open.node.write_at(&[7; 5000], 0).expect("memory takes it");
    open
}

/// FSCTLs that change only their own file.
const CONTROLS: [CtlCode; 11] = [
    CtlCode::QUERY_ALLOCATED_RANGES,
    CtlCode::SET_SPARSE,
    CtlCode::SET_ZERO_DATA,
    CtlCode::GET_REPARSE_POINT,
    CtlCode::SET_REPARSE_POINT,
    CtlCode::GET_COMPRESSION,
    CtlCode::SET_COMPRESSION,
    CtlCode::SRV_ENUMERATE_SNAPSHOTS,
    CtlCode::CREATE_OR_GET_OBJECT_ID,
    CtlCode::SRV_REQUEST_RESUME_KEY,
    CtlCode(0),
];

proptest! {
    #[test]
    fn queries(
        class: u8, length_max in 0_usize..600, input in vec(any::<u8>(), 0..40), flags in 0_u32..8, index in 0_u32..5,
    ) {
        let open = file();
        let attributes = [FullEa { need_ea: false, name: b"NAME".to_vec(), value: b"value".to_vec() }];
        let set = SetFile::FullEa(attributes.to_vec()).apply(&open);
        prop_assert_eq!(set, Ok(()));
        let view = FileView { input: &input, flags: QueryInfoFlags::from_bits_retain(flags), index, ..FileView::default() };
        for class in [class, class % 70, FileInfoClass::FullEa.to_u8()] {
            if let Ok((_, bytes)) = query_file::query_file(&open, class, length_max, &view) {
                prop_assert!(bytes.len() <= length_max);
            }
        }
        if let Ok((_, bytes)) = query_fs::query_fs(&open.share, class % 16, length_max) {
            prop_assert!(bytes.len() <= length_max);
        }
        let parts = SecurityInformation::from_bits_retain(u32::from(class));
        if let Ok(bytes) = security::query(&open, parts, length_max) {
            prop_assert!(bytes.len() <= length_max);
            prop_assert!(SecurityDescriptor::decode(&bytes).is_ok());
        }
    }

    #[test]
    fn changes(class: u8, buffer in vec(any::<u8>(), 0..64), small: bool) {
        let open = file();
        let mut buffer = buffer;
        if small && let Some(bytes) = buffer.get_mut(3..8) {
            // Lengths that memory can hold, so that they are accepted.
            bytes.fill(0);
        }
        for class in [class, class % 70] {
            if let Ok(set) = SetFile::decode(&open, class, &buffer) {
                let is_large = matches!(set, SetFile::EndOfFile(length) | SetFile::Allocation(length) if length > 1 << 24);
                if !is_large {
                    let _ = set.apply(&open);
                }
            }
        }
        let _ = security::set(&open, &testing::token(), SecurityInformation::from_bits_retain(u32::from(class)), &buffer);
    }

    #[test]
    fn damaged_structures(at in 0_usize..400, value: u8) {
        let open = file();
        let token = testing::token();
        let all = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        let mut bytes = security::query(&open, all, 1000).expect("the owner may");
        let place = at % bytes.len();
        bytes[place] = value;
        if security::set(&open, &token, all, &bytes).is_ok() {
            let kept = security::stored(&*open.node, &testing::stat(ropeway_vfs::Kind::File)).expect("memory answers");
            let new = security::for_new(kept.as_ref(), None, &token, true);
            prop_assert!(new.is_none_or(|new| SecurityDescriptor::decode(&new.to_bytes()).is_ok()));
        }
        let rename = FileRenameInformation { replace_if_exists: false, name: "new".into() };
        let mut bytes = rename.to_bytes();
        let place = at % bytes.len();
        bytes[place] = value;
        let _ = SetFile::decode(&open, FileInfoClass::Rename.to_u8(), &bytes);
    }

    #[test]
    fn controls(code in 0_usize..CONTROLS.len(), input in vec(any::<u8>(), 0..80), output_max in 0_usize..100) {
        let open = file();
        let code = CONTROLS[code];
        if let Ok((_, bytes)) = fsctl::control(&open, code, &input, output_max, &|_, _| false) {
            prop_assert!(bytes.len() <= output_max);
        }
        let source = Arc::new(file());
        let view = fsctl::CopyView {
            source: &|_| Some(Arc::clone(&source)),
            locked: &|_, _| false,
            apple: true,
        };
        if let Ok((_, bytes)) = fsctl::private(&open, &input, output_max, &|_, _| false) {
            prop_assert!(bytes.len() <= output_max);
        }
        let target = testing::open(&source.share, "target", AccessMask::FILE_ALL);
        if let Ok((_, bytes)) = fsctl::copy_chunks(&target, CtlCode::SRV_COPYCHUNK, &input, output_max, &view) {
            prop_assert!(bytes.len() <= output_max);
        }
        let _ = fsctl::duplicate_extents(&target, &input, |_| Some(Arc::clone(&source)), &|_, _| false);
    }

    #[test]
    fn listings(class: u8, flags: u8, pattern in vec(any::<u16>(), 0..6), length in 0_u32..400, ascii: bool) {
        let share = testing::share();
        let folder = testing::folder(&share, "d");
        for name in ["a", "b.txt", ".c"] {
            testing::open(&share, &format!("d/{name}"), AccessMask::FILE_ALL);
        }
        let pattern: Vec<u16> = pattern.iter().map(|unit| if ascii { 0x20 + unit % 0x60 } else { *unit }).collect();
        let request = QueryDirectoryRequest {
            information_class: class % 70,
            flags: QueryDirectoryFlags::from_bits_retain(flags),
            file_index: 9,
            file_id: FileId::default(),
            pattern: ropeway_smb_wire::Text::from_units(pattern),
            output_buffer_length: length,
        };
        let view = NameView { hide_dot_files: true, short_names: true };
        for _ in 0..4 {
            if let Ok(bytes) = directory::query_directory(&folder, &request, view, None) {
                prop_assert!(bytes.len() <= 400);
            }
        }
    }
}
