//! A well-formed request of each command.

use ropeway_smb_wire::change_notify::{ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::{DurableRequestV2, RequestContext};
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::header::{Command, HEADER_LEN};
use ropeway_smb_wire::info::{FileInfoClass, FileRenameInformation, Information};
use ropeway_smb_wire::ioctl::{IoctlFlags, IoctlRequest};
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoFlags, QueryInfoRequest};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::tree_connect::TreeConnectRequest;
use ropeway_smb_wire::write::{WriteFlags, WriteRequest};
use ropeway_smb_wire::{FileId, Guid, Text, Writer};

use crate::raw::{Create, close_body};

/// Encodes the body of a request.
pub(crate) fn body(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut out, 0));
    out.split_off(HEADER_LEN)
}

pub(crate) fn read(file_id: FileId, length: u32) -> Vec<u8> {
    read_at(file_id, 0, length)
}

pub(crate) fn read_at(file_id: FileId, offset: u64, length: u32) -> Vec<u8> {
    let request = ReadRequest {
        file_id,
        offset,
        length,
        minimum_count: 0,
        flags: ReadFlags::default(),
        channel: Channel::NONE,
    };
    body(|w| request.encode(w))
}

pub(crate) fn write(file_id: FileId, offset: u64, data: &[u8]) -> Vec<u8> {
    let request = WriteRequest {
        file_id,
        offset,
        flags: WriteFlags::default(),
        channel: Channel::NONE,
    };
    body(|w| request.encode(w, data))
}

pub(crate) fn watch(file_id: FileId) -> Vec<u8> {
    let request = ChangeNotifyRequest {
        flags: ChangeNotifyFlags::default(),
        output_buffer_length: 4096,
        file_id,
        completion_filter: CompletionFilter::FILE_NAME,
    };
    body(|w| request.encode(w))
}

pub(crate) fn list(file_id: FileId, pattern: Text) -> Vec<u8> {
    let request = QueryDirectoryRequest {
        information_class: FileInfoClass::IdBothDirectory.to_u8(),
        flags: QueryDirectoryFlags::RESTART_SCANS,
        file_index: 0,
        file_id,
        pattern,
        output_buffer_length: 65_536,
    };
    body(|w| request.encode(w))
}

pub(crate) fn control(file_id: FileId, ctl_code: CtlCode, input: &[u8]) -> Vec<u8> {
    let request = IoctlRequest {
        ctl_code,
        file_id,
        input,
        max_input_response: 0,
        max_output_response: 4096,
        flags: IoctlFlags::IS_FSCTL,
    };
    body(|w| request.encode(w))
}

pub(crate) fn set_info(file_id: FileId, class: FileInfoClass, buffer: &[u8]) -> Vec<u8> {
    let request = SetInfoRequest {
        info_type: InfoType::File,
        info_class: class.to_u8(),
        additional_information: 0,
        file_id,
        buffer,
    };
    body(|w| request.encode(w))
}

pub(crate) fn query_info(file_id: FileId, info_type: InfoType, info_class: u8, input: &[u8]) -> Vec<u8> {
    let request = QueryInfoRequest {
        info_type,
        info_class,
        output_buffer_length: 4096,
        additional_information: 7,
        flags: QueryInfoFlags::default(),
        file_id,
        input,
    };
    body(|w| request.encode(w))
}

pub(crate) fn rename(file: FileId, to: impl Into<Text>) -> Vec<u8> {
    let information = FileRenameInformation {
        replace_if_exists: true,
        name: to.into(),
    };
    set_info(file, FileInfoClass::Rename, &information.to_bytes())
}

/// Returns a request of each command that needs a login, for an open file and an open folder.
pub(crate) fn all(file: FileId, folder: FileId) -> Vec<(Command, Vec<u8>)> {
    let mut create = Create::of("made");
    create.oplock = OplockLevel::Batch;
    create.contexts = vec![
        RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: 0,
            flags: Default::default(),
            create_guid: Guid([3; 16]),
        }),
        RequestContext::QueryMaximalAccess(None),
        RequestContext::QueryOnDiskId,
    ];
    let tree = TreeConnectRequest {
        flags: Default::default(),
        path: Text::from("\\\\server\\data"),
    };
    let element = |offset| LockElement {
        offset,
        length: 10,
        flags: LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
    };
    let lock = LockRequest {
        file_id: file,
        lock_sequence: LockSequence(0),
        locks: vec![element(100), element(200)],
    };
    let copy = {
        let mut input = [0_u8; 56];
        input[24] = 1;
        input[48] = 100;
        input
    };
    let acknowledged = body(|w| {
        w.u16(24);
        w.zeros(6);
        file.encode(w);
    });
    vec![
        (Command::TreeConnect, body(|w| tree.encode(w))),
        (Command::Create, body(|w| create.request().encode(w))),
        (Command::Flush, body(|w| FlushRequest { file_id: file }.encode(w))),
        (Command::Read, read(file, 1000)),
        (Command::Write, write(file, 0, b"content")),
        (Command::Lock, body(|w| lock.encode(w))),
        (Command::Ioctl, control(file, CtlCode::SRV_COPYCHUNK, &copy)),
        (
            Command::Ioctl,
            control(file, CtlCode::QUERY_ALLOCATED_RANGES, &[0; 16]),
        ),
        (Command::Ioctl, control(file, CtlCode::SET_ZERO_DATA, &[0; 16])),
        (
            Command::Ioctl,
            control(FileId::RELATED, CtlCode::QUERY_NETWORK_INTERFACE_INFO, &[]),
        ),
        (Command::QueryDirectory, list(folder, "*".into())),
        (Command::ChangeNotify, watch(folder)),
        (Command::QueryInfo, query_info(file, InfoType::File, 18, &[])),
        (
            Command::QueryInfo,
            query_info(file, InfoType::File, 15, &[0, 0, 0, 0, 1, b'A', 0, 0]),
        ),
        (Command::QueryInfo, query_info(file, InfoType::FileSystem, 5, &[])),
        (Command::QueryInfo, query_info(file, InfoType::Security, 0, &[])),
        (Command::SetInfo, rename(file, "renamed")),
        (Command::SetInfo, set_info(file, FileInfoClass::Basic, &[0; 40])),
        (Command::OplockBreak, acknowledged),
        (Command::Echo, vec![4, 0, 0, 0]),
        (Command::TreeDisconnect, vec![4, 0, 0, 0]),
        (Command::Close, body(|w| close_body(w, file))),
        (Command::Logoff, vec![4, 0, 0, 0]),
    ]
}
