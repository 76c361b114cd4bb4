//! Random valid requests of every command, with handles, keys and names that are in use.

use ropeway_smb_wire::change_notify::{ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter};
use ropeway_smb_wire::close::{CloseFlags, CloseRequest};
use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, OplockLevel, ShareAccess,
};
use ropeway_smb_wire::create_context::{
    AppInstanceId, AppInstanceVersion, AppleReplyMap, AppleServerCaps, AppleServerQuery,
    DurableHandleV2Flags, DurableReconnect, DurableReconnectV2, DurableRequestV2, Lease, LeaseFlags,
    LeaseState, LeaseV2, RequestContext,
};
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{PrivateMessage, PrivateOperation};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{FileInfoClass, FileRenameInformation, Information};
use ropeway_smb_wire::ioctl::{IoctlFlags, IoctlRequest};
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockRequest, LockSequence};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, LeaseBreak, OplockBreak};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoFlags, QueryInfoRequest};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::rpc::client::ShareEnum;
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::tree_connect::TreeConnectRequest;
use ropeway_smb_wire::write::{WriteFlags, WriteRequest};
use ropeway_smb_wire::{FileId, FileTime, Guid, LeaseKey, Text};

use crate::blobs::{blob, descriptor, reparse};
use crate::chance::Random;
use crate::samples::body;
use crate::values::{array, bytes, edge, few, name, number, number32, one_of};

/// What the storm knows about its session.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) files: Vec<FileId>,
    pub(crate) folders: Vec<FileId>,
    /// Resume key of a server-side copy.
    pub(crate) resume_key: [u8; 24],
}

/// Maximum number of remembered opens of each kind.
const OPENS_MAX: usize = 12;

impl Known {
    pub(crate) fn opened(&mut self, random: &mut Random, file: FileId, is_folder: bool) {
        let list = if is_folder {
            &mut self.folders
        } else {
            &mut self.files
        };
        if list.len() < OPENS_MAX {
            list.push(file);
        } else {
            let index = random.below(list.len());
            list[index] = file;
        }
    }

    fn any(&self, random: &mut Random, folder_percent: usize) -> FileId {
        let mut from = &self.files;
        if random.percent(folder_percent) || from.is_empty() {
            from = &self.folders;
        }
        match random.below(40) {
            0 => FileId::RELATED,
            1 => FileId {
                persistent: number(random, 50),
                volatile: number(random, 50),
            },
            _ if from.is_empty() => FileId::RELATED,
            _ => one_of(random, from),
        }
    }

    fn file(&self, random: &mut Random) -> FileId {
        self.any(random, 5)
    }

    fn folder(&self, random: &mut Random) -> FileId {
        self.any(random, 90)
    }
}

/// Returns a command and the body of its request.
pub(crate) fn request(random: &mut Random, known: &mut Known) -> (Command, Vec<u8>) {
    match random.below(100) {
        0..22 => (Command::Create, create(random, known)),
        22..30 => (Command::Close, close(random, known)),
        30..40 => (Command::Read, read(random, known)),
        40..50 => (Command::Write, write(random, known)),
        50..60 => (Command::Ioctl, ioctl(random, known)),
        60..68 => (Command::QueryDirectory, list(random, known)),
        68..78 => (Command::QueryInfo, query(random, known)),
        78..87 => (Command::SetInfo, set(random, known)),
        87..91 => (Command::Lock, lock(random, known)),
        91..93 => (Command::ChangeNotify, watch(random, known)),
        93 => (Command::Flush, {
            let file_id = known.file(random);
            body(|w| FlushRequest { file_id }.encode(w))
        }),
        94 => (Command::OplockBreak, acknowledge(random, known)),
        95 => (Command::Cancel, vec![4, 0, 0, 0]),
        96 => (Command::Echo, vec![4, 0, 0, 0]),
        97 => (Command::TreeConnect, tree_connect(random)),
        _ => rare(random),
    }
}

fn rare(random: &mut Random) -> (Command, Vec<u8>) {
    match random.below(20) {
        0 => (Command::Logoff, vec![4, 0, 0, 0]),
        1 => (Command::TreeDisconnect, vec![4, 0, 0, 0]),
        2 => {
            let length = 24 + random.below(200);
            (Command::SessionSetup, bytes(random, length))
        }
        3 => {
            let length = 36 + random.below(100);
            (Command::Negotiate, bytes(random, length))
        }
        4..8 => {
            let command = Command::from_code(random.below(24) as u16);
            let length = random.below(100);
            (command, bytes(random, length))
        }
        _ => (Command::Echo, vec![4, 0, 0, 0]),
    }
}

fn tree_connect(random: &mut Random) -> Vec<u8> {
    let shares = [
        "\\\\server\\data",
        "\\\\server\\IPC$",
        "\\\\server\\none",
        "data",
        "",
    ];
    let request = TreeConnectRequest {
        flags: Default::default(),
        path: Text::from(one_of(random, &shares)),
    };
    body(|w| request.encode(w))
}

fn create(random: &mut Random, known: &Known) -> Vec<u8> {
    const DISPOSITIONS: [CreateDisposition; 8] = [
        CreateDisposition::OpenIf,
        CreateDisposition::OpenIf,
        CreateDisposition::OpenIf,
        CreateDisposition::Open,
        CreateDisposition::Create,
        CreateDisposition::Supersede,
        CreateDisposition::Overwrite,
        CreateDisposition::OverwriteIf,
    ];
    const OPLOCKS: [OplockLevel; 6] = [
        OplockLevel::None,
        OplockLevel::None,
        OplockLevel::LevelII,
        OplockLevel::Exclusive,
        OplockLevel::Batch,
        OplockLevel::Lease,
    ];
    let blob = blob(random);
    let is_folder = random.percent(25);
    let access = match random.below(6) {
        0 => AccessMask::from_bits_retain(edge(random) as u32),
        1 => AccessMask::READ_DATA,
        2 => AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE,
        _ => AccessMask::MAXIMUM_ALLOWED,
    };
    let mut options = CreateOptions::default();
    if is_folder {
        options |= CreateOptions::DIRECTORY_FILE;
    }
    if random.percent(8) {
        options |= CreateOptions::DELETE_ON_CLOSE;
    }
    if random.percent(10) {
        options |= CreateOptions::OPEN_REPARSE_POINT;
    }
    if random.percent(5) {
        options |= CreateOptions::from_bits_retain(1 << random.below(24));
    }
    let share_access = match random.percent(85) {
        true => ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        false => ShareAccess::from_bits_retain(random.below(8) as u32),
    };
    let count = if random.percent(50) { random.below(5) } else { 0 };
    let contexts: Vec<RequestContext<'_>> = (0..count).map(|_| context(random, known, &blob)).collect();
    let mut oplock_level = one_of(random, &OPLOCKS);
    if contexts
        .iter()
        .any(|context| matches!(context, RequestContext::Lease(_) | RequestContext::LeaseV2(_)))
    {
        oplock_level = OplockLevel::Lease;
    }
    let request = CreateRequest {
        oplock_level,
        impersonation_level: Default::default(),
        desired_access: access,
        file_attributes: Default::default(),
        share_access,
        disposition: one_of(random, &DISPOSITIONS),
        options,
        name: match random.percent(4) {
            true => Text::from(one_of(random, &["srvsvc", "wkssvc", "lsarpc"])),
            false => name(random),
        },
        contexts,
    };
    body(|w| request.encode(w))
}

fn context<'a>(random: &mut Random, known: &Known, blob: &'a [u8]) -> RequestContext<'a> {
    let lease = Lease {
        lease_key: LeaseKey(few(random)),
        lease_state: LeaseState::from_bits_retain(random.below(8) as u32),
        lease_flags: LeaseFlags::default(),
    };
    match random.below(16) {
        0 => RequestContext::EaBuffer(blob),
        1 => RequestContext::SecurityDescriptor(blob),
        2 => RequestContext::DurableRequest,
        3 => RequestContext::DurableReconnect(DurableReconnect {
            file_id: known.file(random),
        }),
        4 | 5 => RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: number32(random, 100),
            flags: DurableHandleV2Flags::from_bits_retain(2 * random.below(2) as u32),
            create_guid: Guid(few(random)),
        }),
        6 => RequestContext::DurableReconnectV2(DurableReconnectV2 {
            file_id: known.file(random),
            create_guid: Guid(few(random)),
            flags: DurableHandleV2Flags::from_bits_retain(0),
        }),
        7 => RequestContext::QueryMaximalAccess(None),
        8 => RequestContext::AllocationSize(number(random, 1 << 20)),
        9 => match random.percent(10) {
            true => RequestContext::TimewarpToken(FileTime(edge(random))),
            false => RequestContext::QueryOnDiskId,
        },
        10 => RequestContext::Lease(lease),
        11 => RequestContext::LeaseV2(LeaseV2 {
            lease,
            parent_lease_key: LeaseKey(few(random)),
            epoch: random.below(9) as u16,
        }),
        12 => RequestContext::Apple(AppleServerQuery {
            request_map: AppleReplyMap::from_bits_retain(random.below(8) as u64),
            client_caps: AppleServerCaps::from_bits_retain(random.below(16) as u64),
        }),
        13 => RequestContext::AppInstanceId(AppInstanceId(Guid(few(random)))),
        14 => RequestContext::AppInstanceVersion(AppInstanceVersion {
            high: random.below(2) as u64,
            low: edge(random),
        }),
        _ => RequestContext::Unknown {
            name: one_of(random, &[&b"XXXX"[..], b"", b"RqLs_", b"a long name"]),
            data: blob,
        },
    }
}

fn close(random: &mut Random, known: &mut Known) -> Vec<u8> {
    let file_id = known.any(random, 40);
    // Sometimes a closed file is used further.
    if random.percent(90) {
        known.files.retain(|file| *file != file_id);
        known.folders.retain(|file| *file != file_id);
    }
    let flags = CloseFlags::from_bits_retain(random.below(2) as u16);
    body(|w| CloseRequest { flags, file_id }.encode(w))
}

fn read(random: &mut Random, known: &Known) -> Vec<u8> {
    let request = ReadRequest {
        file_id: known.file(random),
        offset: number(random, 20_000),
        length: number32(random, 9000),
        minimum_count: number32(random, 2),
        flags: ReadFlags::from_bits_retain(2 * random.below(2) as u8),
        channel: Channel::NONE,
    };
    body(|w| request.encode(w))
}

fn write(random: &mut Random, known: &Known) -> Vec<u8> {
    let request = WriteRequest {
        file_id: known.file(random),
        offset: number(random, 20_000),
        flags: WriteFlags::from_bits_retain(u32::from(random.percent(3))),
        channel: Channel::NONE,
    };
    let length = match random.percent(4) {
        true => random.below(60_000),
        false => random.below(1500),
    };
    let data = match random.percent(50) {
        true => vec![random.next() as u8; length],
        false => bytes(random, length.min(600)),
    };
    body(|w| request.encode(w, &data))
}

const CONTROLS: [CtlCode; 27] = [
    CtlCode::DFS_GET_REFERRALS,
    CtlCode::PIPE_PEEK,
    CtlCode::PIPE_WAIT,
    CtlCode::PIPE_TRANSCEIVE,
    CtlCode::SRV_COPYCHUNK,
    CtlCode::SRV_COPYCHUNK_WRITE,
    CtlCode::SRV_ENUMERATE_SNAPSHOTS,
    CtlCode::SRV_REQUEST_RESUME_KEY,
    CtlCode::LMR_REQUEST_RESILIENCY,
    CtlCode::QUERY_NETWORK_INTERFACE_INFO,
    CtlCode::SET_REPARSE_POINT,
    CtlCode::GET_REPARSE_POINT,
    CtlCode::DELETE_REPARSE_POINT,
    CtlCode::SET_SPARSE,
    CtlCode::SET_ZERO_DATA,
    CtlCode::QUERY_ALLOCATED_RANGES,
    CtlCode::QUERY_FILE_REGIONS,
    CtlCode::DUPLICATE_EXTENTS_TO_FILE,
    CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX,
    CtlCode::FILE_LEVEL_TRIM,
    CtlCode::CREATE_OR_GET_OBJECT_ID,
    CtlCode::GET_COMPRESSION,
    CtlCode::SET_COMPRESSION,
    CtlCode::GET_INTEGRITY_INFORMATION,
    CtlCode::OFFLOAD_READ,
    CtlCode::PRIVATE,
    CtlCode(0),
];

fn ioctl(random: &mut Random, known: &Known) -> Vec<u8> {
    let ctl_code = one_of(random, &CONTROLS);
    let without_file = [
        CtlCode::QUERY_NETWORK_INTERFACE_INFO,
        CtlCode::DFS_GET_REFERRALS,
        CtlCode::PIPE_WAIT,
    ];
    let file_id = match without_file.contains(&ctl_code) {
        true => FileId::RELATED,
        false => known.any(random, 15),
    };
    let input = control_input(random, known, ctl_code);
    let request = IoctlRequest {
        ctl_code,
        file_id,
        input: &input,
        max_input_response: number32(random, 2),
        max_output_response: number32(random, 9000),
        flags: IoctlFlags::IS_FSCTL,
    };
    body(|w| request.encode(w))
}

fn control_input(random: &mut Random, known: &Known, ctl_code: CtlCode) -> Vec<u8> {
    let mut numbers = |count: usize| -> Vec<u8> {
        (0..count)
            .flat_map(|_| number(random, 20_000).to_le_bytes())
            .collect()
    };
    match ctl_code {
        CtlCode::SRV_COPYCHUNK | CtlCode::SRV_COPYCHUNK_WRITE => {
            let count = 1 + random.below(4);
            let mut input = known.resume_key.to_vec();
            input.extend_from_slice(&(count as u32).to_le_bytes());
            input.extend_from_slice(&[0; 4]);
            for _ in 0..count {
                input.extend_from_slice(&number(random, 20_000).to_le_bytes());
                input.extend_from_slice(&number(random, 20_000).to_le_bytes());
                input.extend_from_slice(&number32(random, 9000).to_le_bytes());
                input.extend_from_slice(&[0; 4]);
            }
            input
        }
        CtlCode::QUERY_ALLOCATED_RANGES | CtlCode::SET_ZERO_DATA => numbers(2),
        CtlCode::QUERY_FILE_REGIONS => numbers(3),
        CtlCode::DUPLICATE_EXTENTS_TO_FILE => {
            let file = known.file(random);
            let mut input = body(|w| file.encode(w));
            for _ in 0..3 {
                input.extend_from_slice(&(number(random, 4).wrapping_mul(4096)).to_le_bytes());
            }
            input
        }
        CtlCode::SET_REPARSE_POINT => reparse(random),
        CtlCode::PIPE_TRANSCEIVE => match random.percent(60) {
            true => ShareEnum::new("server").start(),
            false => bytes(random, 80),
        },
        CtlCode::SET_SPARSE => vec![random.below(2) as u8],
        CtlCode::PRIVATE => {
            let mut content = numbers(2);
            let operation = PrivateOperation(random.below(4) as u16);
            content.extend_from_slice(&number32(random, 1 << 20).to_le_bytes());
            body(|w| PrivateMessage::new(operation, &content).encode(w))
        }
        _ => {
            let length = random.below(60);
            bytes(random, length)
        }
    }
}

fn list(random: &mut Random, known: &Known) -> Vec<u8> {
    const CLASSES: [u8; 9] = [1, 2, 3, 12, 37, 38, 60, 37, 4];
    let request = QueryDirectoryRequest {
        information_class: one_of(random, &CLASSES),
        flags: QueryDirectoryFlags::from_bits_retain(one_of(random, &[0, 1, 1, 2, 3, 4, 0x10])),
        file_index: number32(random, 9),
        file_id: known.folder(random),
        pattern: match random.percent(70) {
            true => "*".into(),
            false => Text::from(one_of(
                random,
                &["", "f*", "?ew*", "*.*", "<>\"", "file", "*\u{fffd}*a*b*c*"],
            )),
        },
        output_buffer_length: number32(random, 70_000),
    };
    body(|w| request.encode(w))
}

fn query(random: &mut Random, known: &Known) -> Vec<u8> {
    const TYPES: [InfoType; 5] = [
        InfoType::File,
        InfoType::File,
        InfoType::FileSystem,
        InfoType::Security,
        InfoType::Quota,
    ];
    let info_type = one_of(random, &TYPES);
    let input = match random.percent(30) {
        true => blob(random),
        false => Vec::new(),
    };
    let request = QueryInfoRequest {
        info_type,
        info_class: match info_type {
            InfoType::File => random.below(70) as u8,
            InfoType::FileSystem => random.below(13) as u8,
            _ => 0,
        },
        output_buffer_length: number32(random, 5000),
        additional_information: number32(random, 0x1FF),
        flags: QueryInfoFlags::from_bits_retain(random.below(8) as u32),
        file_id: known.any(random, 30),
        input: &input,
    };
    body(|w| request.encode(w))
}

fn set(random: &mut Random, known: &Known) -> Vec<u8> {
    const CLASSES: [FileInfoClass; 13] = [
        FileInfoClass::Basic,
        FileInfoClass::Basic,
        FileInfoClass::Rename,
        FileInfoClass::Rename,
        FileInfoClass::Link,
        FileInfoClass::Disposition,
        FileInfoClass::DispositionEx,
        FileInfoClass::Position,
        FileInfoClass::FullEa,
        FileInfoClass::Allocation,
        FileInfoClass::EndOfFile,
        FileInfoClass::EndOfFile,
        FileInfoClass::ValidDataLength,
    ];
    let class = one_of(random, &CLASSES);
    let is_security = random.percent(15);
    let buffer = match class {
        _ if is_security => descriptor(random),
        FileInfoClass::Rename | FileInfoClass::Link => {
            let information = FileRenameInformation {
                replace_if_exists: random.percent(50),
                name: name(random),
            };
            information.to_bytes()
        }
        FileInfoClass::FullEa => blob(random),
        FileInfoClass::Basic => {
            let mut buffer: Vec<u8> = (0..4).flat_map(|_| edge(random).to_le_bytes()).collect();
            buffer.extend_from_slice(&number32(random, 0xFFF).to_le_bytes());
            buffer.extend_from_slice(&[0; 4]);
            buffer
        }
        FileInfoClass::Disposition => vec![random.below(2) as u8],
        FileInfoClass::DispositionEx => (random.below(32) as u32).to_le_bytes().to_vec(),
        _ => number(random, 100_000).to_le_bytes().to_vec(),
    };
    let request = SetInfoRequest {
        info_type: match is_security {
            true => InfoType::Security,
            false => InfoType::File,
        },
        info_class: match is_security {
            true => 0,
            false => class.to_u8(),
        },
        additional_information: match is_security {
            true => random.below(8) as u32,
            false => 0,
        },
        file_id: known.any(random, 15),
        buffer: &buffer,
    };
    body(|w| request.encode(w))
}

fn lock(random: &mut Random, known: &Known) -> Vec<u8> {
    const FLAGS: [u32; 7] = [0x11, 0x12, 0x12, 1, 2, 4, 4];
    let flags = one_of(random, &FLAGS);
    let locks = (0..1 + random.below(4))
        .map(|_| LockElement {
            offset: number(random, 8).wrapping_mul(10),
            length: number(random, 30),
            flags: LockFlags::from_bits_retain(flags),
        })
        .collect();
    let request = LockRequest {
        file_id: known.file(random),
        lock_sequence: LockSequence(random.below(40) as u32),
        locks,
    };
    body(|w| request.encode(w))
}

fn watch(random: &mut Random, known: &Known) -> Vec<u8> {
    let request = ChangeNotifyRequest {
        flags: ChangeNotifyFlags::from_bits_retain(random.below(2) as u16),
        output_buffer_length: number32(random, 5000),
        file_id: known.folder(random),
        completion_filter: CompletionFilter::from_bits_retain(random.below(0x1000) as u32),
    };
    body(|w| request.encode(w))
}

fn acknowledge(random: &mut Random, known: &Known) -> Vec<u8> {
    let acknowledgment = match random.percent(40) {
        true => BreakAcknowledgment::Oplock(OplockBreak {
            oplock_level: one_of(random, &[OplockLevel::None, OplockLevel::LevelII]),
            file_id: known.file(random),
        }),
        false => BreakAcknowledgment::Lease(LeaseBreak {
            lease_key: match random.percent(80) {
                true => LeaseKey(few(random)),
                false => LeaseKey(array(random)),
            },
            lease_state: LeaseState::from_bits_retain(random.below(8) as u32),
        }),
    };
    body(|w| acknowledgment.encode(w))
}
