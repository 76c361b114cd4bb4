use super::*;
use crate::share::Share;
use crate::testing;
use ropeway_smb_wire::FileId;
use ropeway_smb_wire::Guid;
use ropeway_smb_wire::fsctl::copy_chunk::{Chunk, CopyChunkRequest, CopyChunkResponse};
use ropeway_smb_wire::fsctl::ranges::DuplicateExtents;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink};
use ropeway_smb_wire::negotiate::{Capabilities, SecurityMode};
use ropeway_vfs::Kind;
use std::sync::Arc;

fn unlocked(_: &Open, _: Range) -> bool {
    false
}

fn ask(open: &Open, code: CtlCode, input: &[u8], output_max: usize) -> OutputResult {
    control(open, code, input, output_max, &unlocked)
}

fn file(share: &Arc<Share>, name: &str, bytes: usize) -> Open {
    let open = testing::open(share, name, AccessMask::FILE_ALL);
    let pattern: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    open.node.write_at(&pattern, 0).unwrap();
    open
}

fn range(offset: u64, length: u64) -> Vec<u8> {
    [offset.to_le_bytes(), length.to_le_bytes()].concat()
}

/// smb2.ioctl.sparse_qar…
#[test]
fn allocated_ranges_are_listed_as_far_as_they_fit() {
    let share = testing::share();
    let open = file(&share, "f", 0);
    let code = CtlCode::QUERY_ALLOCATED_RANGES;
    let ask = |input: &[u8], room| ask(&open, code, input, room);
    let nothing = Ok((NtStatus::SUCCESS, Vec::new()));
    assert_eq!(ask(&range(0, 1024), 0), nothing);
    open.node.write_at(&[1; 1024], 0).unwrap();
    assert_eq!(ask(&range(0, 1024), 0), Err(NtStatus::BUFFER_TOO_SMALL));
    open.node.write_at(&[1; 1024], 1 << 20).unwrap();
    let whole = (NtStatus::SUCCESS, range(0, (1 << 20) + 1024));
    assert_eq!(ask(&range(0, 2 << 20), 1024), Ok(whole), "not sparse");
    control(&open, CtlCode::SET_SPARSE, &[], 0, &unlocked).unwrap();
    let first = (NtStatus::BUFFER_OVERFLOW, range(0, 4096));
    assert_eq!(ask(&range(0, 2 << 20), 16), Ok(first.clone()));
    assert_eq!(ask(&range(0, 2 << 20), 31), Ok(first));
    let both = [range(0, 4096), range(1 << 20, 1024)].concat();
    assert_eq!(ask(&range(0, 2 << 20), 32), Ok((NtStatus::SUCCESS, both)));
    assert_eq!(ask(&range(512, u64::MAX), 1024), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(ask(&[], 1024), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(ask(&range(2 << 20, 9), 1024), nothing);
    assert_eq!(ask(&range(0, 0), 1024), nothing);
}

#[test]
fn sparse_files_and_zeros() {
    let share = testing::share();
    let open = file(&share, "f", 16_384);
    let zero = |from, beyond| ask(&open, CtlCode::SET_ZERO_DATA, &range(from, beyond), 0).map(drop);
    assert_eq!(zero(4096, 4095), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(zero(4095, 4095), Ok(()));
    assert_eq!(zero(20_000, 30_000), Ok(()));
    assert_eq!(open.node.stat().unwrap().size, 16_384);
    let sparse = |input: &[u8]| ask(&open, CtlCode::SET_SPARSE, input, 0).map(drop);
    sparse(&[1, 2, 3]).unwrap();
    let kept = open.node.stat().unwrap().dos_attributes;
    assert_eq!(kept, Some(0x220), "ARCHIVE stays");
    zero(4096, 8192).unwrap();
    assert_eq!(open.node.stat().unwrap().allocated, 3 * 4096);
    sparse(&[0]).unwrap();
    assert_eq!(open.node.stat().unwrap().dos_attributes, Some(0x20));
    let locked = |_: &Open, range: Range| range.write;
    let refused = control(&open, CtlCode::SET_ZERO_DATA, &range(0, 9), 0, &locked);
    assert_eq!(refused, Err(NtStatus::FILE_LOCK_CONFLICT));
    let folder = testing::folder(&share, "d");
    let refused = ask(&folder, CtlCode::SET_SPARSE, &[], 0);
    assert_eq!(refused, Err(NtStatus::INVALID_PARAMETER));
}

/// smb2.ioctl.sparse_perms.
#[test]
fn rights_are_needed() {
    let share = testing::share();
    let mut open = file(&share, "f", 10);
    let mut check = |access, code, input: &[u8]| {
        open.access = access;
        ask(&open, code, input, 1024).map(drop)
    };
    let denied = Err(NtStatus::ACCESS_DENIED);
    for access in [
        AccessMask::WRITE_ATTRIBUTES,
        AccessMask::WRITE_DATA,
        AccessMask::APPEND_DATA,
    ] {
        assert_eq!(check(access, CtlCode::SET_SPARSE, &[]), Ok(()));
    }
    assert_eq!(check(AccessMask::WRITE_EA, CtlCode::SET_SPARSE, &[]), denied);
    let ranges = CtlCode::QUERY_ALLOCATED_RANGES;
    assert_eq!(check(AccessMask::READ_ATTRIBUTES, ranges, &range(0, 9)), denied);
    assert_eq!(check(AccessMask::READ_DATA, ranges, &range(0, 9)), Ok(()));
    for access in [AccessMask::WRITE_ATTRIBUTES, AccessMask::APPEND_DATA] {
        assert_eq!(check(access, CtlCode::SET_ZERO_DATA, &range(0, 9)), denied);
    }
    assert_eq!(
        check(AccessMask::WRITE_DATA, CtlCode::SET_ZERO_DATA, &range(0, 9)),
        Ok(())
    );
}

#[test]
fn links_are_created_and_read() {
    let share = testing::share();
    let open = testing::open(&share, "l", AccessMask::FILE_ALL);
    let refused = ask(&open, CtlCode::GET_REPARSE_POINT, &[], 999);
    assert_eq!(refused, Err(NtStatus::NOT_A_REPARSE_POINT));
    let data = ReparseData::Symlink(Symlink {
        substitute_name: r"..\x".into(),
        ..Symlink::default()
    });
    let input = output_buffer::encoded(|w| data.encode(w));
    let refused = ask(&file(&share, "full", 1), CtlCode::SET_REPARSE_POINT, &input, 0);
    assert_eq!(refused, Err(NtStatus::IO_REPARSE_DATA_INVALID));
    ask(&open, CtlCode::SET_REPARSE_POINT, &input, 0).unwrap();
    let link = testing::existing(&share, "l");
    assert_eq!(link.node.stat().unwrap().kind, Kind::Symlink);
    assert_eq!(link.node.link_target().unwrap(), b"../x");
    let (_, bytes) = ask(&link, CtlCode::GET_REPARSE_POINT, &[], 999).unwrap();
    let ReparseData::Symlink(read) = ReparseData::decode(&bytes).unwrap() else {
        panic!("a link");
    };
    assert_eq!(read.substitute_name, r"..\x".into());
    let refused = ask(&link, CtlCode::GET_REPARSE_POINT, &[], 10);
    assert_eq!(refused, Err(NtStatus::BUFFER_TOO_SMALL));
}

#[test]
fn small_answers() {
    let share = testing::share();
    let open = file(&share, "f", 1);
    let ask = |code, input: &[u8], room| ask(&open, code, input, room);
    let length = |answer: OutputResult| answer.map(|(_, bytes)| bytes.len());
    assert_eq!(
        ask(CtlCode::GET_COMPRESSION, &[], 2),
        Ok((NtStatus::SUCCESS, vec![0, 0]))
    );
    assert_eq!(
        ask(CtlCode::GET_COMPRESSION, &[], 1),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(
        ask(CtlCode::SET_COMPRESSION, &[1, 0], 0),
        Err(NtStatus::NOT_SUPPORTED)
    );
    assert_eq!(length(ask(CtlCode::SET_COMPRESSION, &[0, 0], 0)), Ok(0));
    assert_eq!(
        ask(CtlCode::SET_COMPRESSION, &[0], 0),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(length(ask(CtlCode::SRV_ENUMERATE_SNAPSHOTS, &[], 16)), Ok(16));
    assert_eq!(length(ask(CtlCode::CREATE_OR_GET_OBJECT_ID, &[], 64)), Ok(64));
    assert_eq!(length(ask(CtlCode::SRV_REQUEST_RESUME_KEY, &[], 32)), Ok(32));
    let unknown = ask(CtlCode(0x1234_5678), &[], 99);
    assert_eq!(unknown, Err(NtStatus::INVALID_DEVICE_REQUEST));
    let interface = NetworkInterfaceInfo {
        if_index: 1,
        capability: Default::default(),
        link_speed_bps: 1_000_000_000,
        address: Some([192, 0, 2, 1].into()),
    };
    assert_eq!(network_interfaces(&[interface], 152).unwrap().len(), 152);
    assert_eq!(
        network_interfaces(&[interface], 1),
        Err(NtStatus::BUFFER_TOO_SMALL)
    );
}

#[test]
fn negotiations_are_compared() {
    let client = ValidateNegotiateRequest {
        capabilities: Capabilities::default(),
        guid: Guid([1; 16]),
        security_mode: SecurityMode::default(),
        dialects: vec![0x0202, 0x0210, 0x0302],
    };
    let server = ValidateNegotiateResponse {
        capabilities: Capabilities::default(),
        guid: Guid([2; 16]),
        security_mode: SecurityMode::default(),
        dialect: 0x0302,
    };
    let check = |asked: &ValidateNegotiateRequest| {
        let input = output_buffer::encoded(|w| asked.encode(w));
        validate_negotiate(&input, 24, &client, &server)
    };
    assert_eq!(check(&client).map(|bytes| bytes.len()), Some(24));
    for change in 0..6 {
        let mut other = client.clone();
        match change {
            0 => other.guid = Guid([3; 16]),
            1 => other.dialects = vec![0x0202],
            // The greatest common dialect stays the same.
            2 => _ = other.dialects.remove(0),
            3 => other.dialects.swap(0, 1),
            4 => other.dialects.push(0x0202),
            _ => other.dialects.push(0x0311),
        }
        assert_eq!(check(&other), None, "{change}");
    }
    assert_eq!(validate_negotiate(&[], 24, &client, &server), None);
}

/// Returns the source's resume key as its client sees it.
fn key(source: &Open) -> ResumeKey {
    let (_, bytes) = ask(source, CtlCode::SRV_REQUEST_RESUME_KEY, &[], 32).unwrap();
    ResumeKeyResponse::decode(&bytes).unwrap().resume_key
}

fn copy(source: &Arc<Open>, target: &Open, chunks: &[(u64, u64, u32)]) -> (NtStatus, CopyChunkResponse) {
    let request = CopyChunkRequest {
        source_key: key(source),
        chunks: chunks
            .iter()
            .map(|(source_offset, target_offset, length)| Chunk {
                source_offset: *source_offset,
                target_offset: *target_offset,
                length: *length,
            })
            .collect(),
    };
    let view = CopyView {
        source: &|key| (resume_id(key) == source.id).then(|| Arc::clone(source)),
        locked: &unlocked,
        apple: false,
    };
    let input = output_buffer::encoded(|w| request.encode(w));
    let (status, bytes) = copy_chunks(target, CtlCode::SRV_COPYCHUNK, &input, 12, &view).unwrap();
    (status, CopyChunkResponse::decode(&bytes).unwrap())
}

fn response(numbers: [u32; 3]) -> CopyChunkResponse {
    CopyChunkResponse {
        chunks_written: numbers[0],
        chunk_bytes_written: numbers[1],
        total_bytes_written: numbers[2],
    }
}

fn content(open: &Open) -> Vec<u8> {
    let mut bytes = vec![0; open.node.stat().unwrap().size as usize];
    open.node.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// smb2.ioctl.copy_chunk_…
#[test]
fn chunks_are_copied_in_order_up_to_the_first_error() {
    let share = testing::share();
    let source = Arc::new(file(&share, "from", 8192));
    let target = file(&share, "to", 0);
    let done = copy(&source, &target, &[(0, 0, 4096), (4096, 4096, 4096)]);
    assert_eq!(done, (NtStatus::SUCCESS, response([2, 0, 8192])));
    assert_eq!(content(&target), content(&source));
    let done = copy(&source, &target, &[(0, 0, 4096), (4096, 4096, 8192)]);
    assert_eq!(done, (NtStatus::INVALID_VIEW_SIZE, response([1, 0, 4096])));
    let limits = response([256, 1 << 20, 16 << 20]);
    for chunks in [
        vec![(0, 0, u32::MAX)],
        vec![(0, 0, 0)],
        vec![(0, 0, 1); 257],
        vec![(0, 0, 1 << 20); 17],
        vec![(u64::MAX, 0, 1)],
    ] {
        let refused = copy(&source, &target, &chunks);
        assert_eq!(refused, (NtStatus::INVALID_PARAMETER, limits));
    }
    assert_eq!(
        copy(&source, &target, &[]),
        (NtStatus::SUCCESS, response([0, 0, 0]))
    );
    // Overlapping ranges of one file are copied as if all bytes had been read first.
    let before = content(&source);
    copy(&source, &source, &[(0, 2040, 2048)]);
    assert_eq!(content(&source)[2040..4088], before[..2048]);
}

#[test]
fn copies_need_a_source_room_and_rights() {
    let share = testing::share();
    let source = Arc::new(file(&share, "from", 100));
    let mut target = file(&share, "to", 0);
    let request = CopyChunkRequest {
        source_key: key(&source),
        chunks: vec![Chunk {
            source_offset: 0,
            target_offset: 0,
            length: 100,
        }],
    };
    let input = output_buffer::encoded(|w| request.encode(w));
    let found = |_: &ResumeKey| Some(Arc::clone(&source));
    let missing = |_: &ResumeKey| None;
    let locked = |_: &Open, range: Range| !range.write;
    let view = |is_there: bool, is_locked: bool| CopyView {
        source: if is_there { &found } else { &missing },
        locked: if is_locked { &locked } else { &unlocked },
        apple: false,
    };
    let (both, write) = (CtlCode::SRV_COPYCHUNK, CtlCode::SRV_COPYCHUNK_WRITE);
    let copy = |target: &Open, code, room, view: &CopyView<'_>| {
        copy_chunks(target, code, &input, room, view).map(|(status, _)| status)
    };
    assert_eq!(
        copy(&target, both, 12, &view(false, false)),
        Err(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
    assert_eq!(
        copy(&target, both, 11, &view(true, false)),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(
        copy(&target, both, 12, &view(true, true)),
        Ok(NtStatus::FILE_LOCK_CONFLICT)
    );
    target.access = AccessMask::WRITE_DATA;
    assert_eq!(
        copy(&target, both, 12, &view(true, false)),
        Err(NtStatus::ACCESS_DENIED)
    );
    assert_eq!(
        copy(&target, write, 12, &view(true, false)),
        Ok(NtStatus::SUCCESS)
    );
    target.access = AccessMask::READ_DATA;
    assert_eq!(
        copy(&target, write, 12, &view(true, false)),
        Err(NtStatus::ACCESS_DENIED)
    );
}

#[test]
fn a_mac_copies_whole_files() {
    let share = testing::share();
    let source = file(&share, "from", 5000);
    let how = ropeway_vfs::store::StreamOpen {
        create: true,
        exclusive: false,
    };
    let name = ropeway_vfs::Name::new(b"AFP_AfpInfo").unwrap();
    source
        .node
        .open_stream(&name, &how)
        .unwrap()
        .0
        .write_at(b"info", 0)
        .unwrap();
    let source = Arc::new(source);
    let target = file(&share, "to", 0);
    let request = CopyChunkRequest {
        source_key: key(&source),
        chunks: Vec::new(),
    };
    let view = CopyView {
        source: &|_| Some(Arc::clone(&source)),
        locked: &unlocked,
        apple: true,
    };
    let input = output_buffer::encoded(|w| request.encode(w));
    let (status, _) = copy_chunks(&target, CtlCode::SRV_COPYCHUNK, &input, 12, &view).unwrap();
    assert_eq!(status, NtStatus::SUCCESS);
    assert_eq!(content(&target), content(&source));
    assert_eq!(target.node.streams().unwrap(), source.node.streams().unwrap());
}

#[test]
fn extents_are_duplicated_inside_both_files() {
    let share = testing::share();
    let source = Arc::new(file(&share, "from", 8192));
    let target = file(&share, "to", 0);
    target.node.set_len(8192).unwrap();
    let duplicate = |from, to, count| {
        let asked = DuplicateExtents {
            source: FileId::default(),
            source_file_offset: from,
            target_file_offset: to,
            byte_count: count,
        };
        let input = output_buffer::encoded(|w| asked.encode(w));
        duplicate_extents(&target, &input, |_| Some(Arc::clone(&source)), &unlocked)
    };
    duplicate(4096, 0, 4096).unwrap();
    assert_eq!(content(&target)[..4096], content(&source)[4096..]);
    duplicate(0, 0, 0).unwrap();
    assert_eq!(duplicate(4096, 0, 8192), Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(duplicate(0, 4096, 8192), Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(duplicate(1, 0, 4096), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(duplicate(u64::MAX, 0, 4096), Err(NtStatus::INVALID_PARAMETER));
    let missing = duplicate_extents(&target, &[0; 40], |_| None, &unlocked);
    assert_eq!(missing, Err(NtStatus::INVALID_HANDLE));
}
