//! Constructors of requests: one function for each, with the maximum length of its reply.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::client::Operation;
use ropeway_smb_wire::bare::TreeDisconnectRequest;
use ropeway_smb_wire::change_notify::{ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter};
use ropeway_smb_wire::close::{CloseFlags, CloseRequest};
use ropeway_smb_wire::create::{CreateRequest, ImpersonationLevel, OplockLevel};
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{DirectoryClass, FileInformation, FsInformation};
use ropeway_smb_wire::ioctl::IoctlRequest;
use ropeway_smb_wire::lock::{LockElement, LockRequest, LockSequence};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoFlags, QueryInfoRequest, SecurityInformation};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::write::{WriteFlags, WriteRequest};
use ropeway_smb_wire::{FileId, Text, TreeId};

use crate::open::OpenFile;
use crate::snapshot;

/// Maximum length of a path in CREATE, in UTF-16 units: its length in bytes has 16 bits ([MS-SMB2]
/// 2.2.13).
pub(crate) const PATH_UNITS_MAX: usize = 32_000;

/// Returns a CREATE. `contexts` are added to those that `open` asks for. The path may name a
/// snapshot.
pub(crate) fn create<'a>(
    tree: TreeId,
    path: &Text,
    open: &'a OpenFile,
    oplock: OplockLevel,
    mut contexts: Vec<RequestContext<'a>>,
) -> Operation {
    if let Some(size) = open.allocation {
        contexts.push(RequestContext::AllocationSize(size));
    }
    let (name, time) = snapshot::split_snapshot(path);
    if let Some(time) = time.or(open.snapshot) {
        contexts.push(RequestContext::TimewarpToken(time));
    }
    if open.query_on_disk_id {
        contexts.push(RequestContext::QueryOnDiskId);
    }
    if open.query_maximal_access {
        contexts.push(RequestContext::QueryMaximalAccess(None));
    }
    let security = open.security.as_deref();
    contexts.extend(security.map(RequestContext::SecurityDescriptor));
    let request = CreateRequest {
        oplock_level: oplock,
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: open.access,
        file_attributes: open.attributes,
        share_access: open.share,
        disposition: open.disposition,
        options: open.options,
        name: name.into_owned(),
        contexts,
    };
    Operation::encoded(Command::Create, tree, |w| request.encode(w))
}

/// Returns a TREE_DISCONNECT.
pub(crate) fn tree_disconnect(tree: TreeId) -> Operation {
    Operation::encoded(Command::TreeDisconnect, tree, |w| TreeDisconnectRequest.encode(w))
}

/// Returns a CLOSE. `attributes` asks for the file's final attributes.
pub(crate) fn close(tree: TreeId, file_id: FileId, attributes: bool) -> Operation {
    let flags = if attributes {
        CloseFlags::POSTQUERY_ATTRIB
    } else {
        CloseFlags::default()
    };
    let request = CloseRequest { flags, file_id };
    Operation::encoded(Command::Close, tree, |w| request.encode(w))
}

/// Returns a READ into `block`, which holds at least `length` bytes.
pub(crate) fn read(tree: TreeId, file_id: FileId, offset: u64, length: u32, block: BlockMut) -> Operation {
    let request = ReadRequest {
        file_id,
        offset,
        length,
        minimum_count: 0,
        flags: ReadFlags::default(),
        channel: Channel::NONE,
    };
    let mut operation = Operation::encoded(Command::Read, tree, |w| request.encode(w));
    operation.receive = Some(block);
    operation.response_max = length;
    operation
}

/// Returns a WRITE of the whole block.
pub(crate) fn write(tree: TreeId, file_id: FileId, offset: u64, block: Block) -> Operation {
    let request = WriteRequest {
        file_id,
        offset,
        flags: WriteFlags::default(),
        channel: Channel::NONE,
    };
    // Callers respect `Limits::write_max`, a u32.
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let mut operation = Operation::encoded(Command::Write, tree, |w| request.encode_head(w, length));
    operation.payload = Some(block);
    operation
}

/// Returns a WRITE whose data is copied into the message.
pub(crate) fn write_copied(tree: TreeId, file_id: FileId, offset: u64, data: &[u8]) -> Operation {
    let request = WriteRequest {
        file_id,
        offset,
        flags: WriteFlags::default(),
        channel: Channel::NONE,
    };
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Operation::encoded(Command::Write, tree, |w| {
        request.encode_head(w, length);
        w.bytes(data);
    })
}

/// Returns a FLUSH.
pub(crate) fn flush(tree: TreeId, file_id: FileId) -> Operation {
    let request = FlushRequest { file_id };
    Operation::encoded(Command::Flush, tree, |w| request.encode(w))
}

fn query(
    tree: TreeId,
    file_id: FileId,
    what: (InfoType, u8),
    additional_information: u32,
    output_max: u32,
) -> Operation {
    let request = QueryInfoRequest {
        info_type: what.0,
        info_class: what.1,
        output_buffer_length: output_max,
        additional_information,
        flags: QueryInfoFlags::default(),
        file_id,
        input: &[],
    };
    let mut operation = Operation::encoded(Command::QueryInfo, tree, |w| request.encode(w));
    operation.response_max = output_max;
    operation
}

/// Returns a QUERY_INFO of a file.
pub(crate) fn query_file<I: FileInformation>(tree: TreeId, file_id: FileId, output_max: u32) -> Operation {
    query(tree, file_id, (InfoType::File, I::CLASS as u8), 0, output_max)
}

/// Returns a QUERY_INFO of a volume.
pub(crate) fn query_volume<I: FsInformation>(tree: TreeId, file_id: FileId) -> Operation {
    // Room for a label of 32 characters and the name of a file system many times over.
    query(tree, file_id, (InfoType::FileSystem, I::CLASS as u8), 0, 1024)
}

/// Returns a QUERY_INFO of a security descriptor.
pub(crate) fn query_security(
    tree: TreeId,
    file_id: FileId,
    what: SecurityInformation,
    output_max: u32,
) -> Operation {
    query(tree, file_id, (InfoType::Security, 0), what.bits(), output_max)
}

fn set(tree: TreeId, file_id: FileId, what: (InfoType, u8), additional: u32, buffer: &[u8]) -> Operation {
    let request = SetInfoRequest {
        info_type: what.0,
        info_class: what.1,
        additional_information: additional,
        file_id,
        buffer,
    };
    Operation::encoded(Command::SetInfo, tree, |w| request.encode(w))
}

/// Returns a SET_INFO of a file.
pub(crate) fn set_file<I: FileInformation>(tree: TreeId, file_id: FileId, information: &I) -> Operation {
    let buffer = information.to_bytes();
    set(tree, file_id, (InfoType::File, I::CLASS as u8), 0, &buffer)
}

/// Returns a SET_INFO of a security descriptor.
pub(crate) fn set_security(
    tree: TreeId,
    file_id: FileId,
    what: SecurityInformation,
    descriptor: &[u8],
) -> Operation {
    set(tree, file_id, (InfoType::Security, 0), what.bits(), descriptor)
}

/// Returns a QUERY_DIRECTORY.
pub(crate) fn list(
    tree: TreeId,
    file_id: FileId,
    pattern: &Text,
    restart: bool,
    output_max: u32,
) -> Operation {
    let request = QueryDirectoryRequest {
        information_class: DirectoryClass::IdBothDirectory.info_class() as u8,
        flags: if restart {
            QueryDirectoryFlags::RESTART_SCANS
        } else {
            QueryDirectoryFlags::default()
        },
        file_index: 0,
        file_id,
        pattern: pattern.clone(),
        output_buffer_length: output_max,
    };
    let mut operation = Operation::encoded(Command::QueryDirectory, tree, |w| request.encode(w));
    operation.response_max = output_max;
    operation
}

/// Returns an IOCTL with an FSCTL code.
pub(crate) fn ioctl(
    tree: TreeId,
    file_id: FileId,
    code: CtlCode,
    input: &[u8],
    output_max: u32,
) -> Operation {
    let request = IoctlRequest::fsctl(code, file_id, input, output_max);
    let mut operation = Operation::encoded(Command::Ioctl, tree, |w| request.encode(w));
    operation.response_max = output_max;
    operation
}

/// Returns a LOCK of one range or several; all are locked or all unlocked.
pub(crate) fn lock(tree: TreeId, file_id: FileId, elements: &[LockElement]) -> Operation {
    let request = LockRequest {
        file_id,
        // No sequence: a request whose reply is lost is not repeated.
        lock_sequence: LockSequence::default(),
        locks: elements.to_vec(),
    };
    Operation::encoded(Command::Lock, tree, |w| request.encode(w))
}

/// Returns a CHANGE_NOTIFY.
pub(crate) fn watch(
    tree: TreeId,
    file_id: FileId,
    filter: CompletionFilter,
    recursive: bool,
    output_max: u32,
) -> Operation {
    let request = ChangeNotifyRequest {
        flags: if recursive {
            ChangeNotifyFlags::WATCH_TREE
        } else {
            ChangeNotifyFlags::default()
        },
        output_buffer_length: output_max,
        file_id,
        completion_filter: filter,
    };
    let mut operation = Operation::encoded(Command::ChangeNotify, tree, |w| request.encode(w));
    operation.response_max = output_max;
    operation
}

/// Returns the reply size for `FileAllInformation` of `path`: its fixed parts (100 bytes, [MS-FSCC]
/// 2.4.2) and the path from the root on.
pub(crate) fn query_all_len(path: &Text) -> u32 {
    let name = u32::try_from(path.wire_len()).unwrap_or(u32::MAX);
    // A server may return another spelling, such as a long name for a short one.
    name.saturating_mul(2).clamp(1024, 60 << 10)
}
