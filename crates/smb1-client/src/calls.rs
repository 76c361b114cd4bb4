//! Requests of a share, one function each.

use ropeway_smb_client::{Error, NtStatus, Result, Text};
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::info::{
    FileBasicInformation, FileInternalInformation, FsInformation, Information as _,
};
use ropeway_smb_wire::{FileAttributes, FileTime, Reader};
use ropeway_smb1::client::{Request, TransactionReply};
use ropeway_smb1::dos_time::Zone;
use ropeway_smb1::wire::close::{CloseRequest, encode_id};
use ropeway_smb1::wire::create::{CreateRequest, CreateResponse, CreateWords};
use ropeway_smb1::wire::file_info::{AllInfo, InfoStandard, padded};
use ropeway_smb1::wire::fs_info::InfoAllocation;
use ropeway_smb1::wire::nt_transact::{Function, IoctlSetup};
use ropeway_smb1::wire::path::{DeleteRequest, NtRenameRequest, NtRenameWords, PathRequest, RenameRequest};
use ropeway_smb1::wire::trans2::{Level, PathLevel, QueryFile, SetFile, Subcommand, to_bytes};
use ropeway_smb1::wire::transaction::{self, Kind, Limits, Totals};
use ropeway_smb1::{Command, Str};

use crate::share::{Connected, Share, checked, checked_transaction};

/// Attributes of files that path commands find besides ordinary ones: hidden, system, folders.
pub(crate) const ALL_FILES: u16 = 0x0016;

/// Data that one transaction may return: what one message of this client's buffer size holds.
pub(crate) const DATA_MAX: u32 = 60 << 10;

/// Impersonation and SECURITY_DYNAMIC_TRACKING with SECURITY_EFFECTIVE_ONLY, as clients send them.
const IMPERSONATION: (u32, u8) = (2, 3);

/// How to open a file or folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHow {
    pub(crate) access: AccessMask,
    pub(crate) share: ShareAccess,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: CreateOptions,
    pub(crate) attributes: FileAttributes,
}

impl OpenHow {
    /// Opens what exists, with this access, whatever others do.
    pub(crate) fn existing(access: AccessMask) -> Self {
        Self {
            access,
            share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::Open,
            options: CreateOptions::OPEN_REPARSE_POINT,
            attributes: FileAttributes::NORMAL,
        }
    }

    /// Returns the request.
    pub(crate) fn request(&self, connected: &Connected, path: &Text) -> Result<Request> {
        let words = CreateWords {
            desired_access: self.access.bits(),
            file_attributes: self.attributes.bits(),
            share_access: self.share.bits(),
            create_disposition: self.disposition.to_wire(),
            create_options: self.options.bits(),
            impersonation_level: IMPERSONATION.0,
            security_flags: IMPERSONATION.1,
            ..CreateWords::default()
        };
        let request = CreateRequest {
            words,
            name: connected.path(path)?,
        };
        Ok(Request::new(Command::NT_CREATE_ANDX, connected.tid, |w| {
            request.encode(w);
        }))
    }
}

/// What a query returned about a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stat {
    pub(crate) basic: FileBasicInformation,
    pub(crate) size: u64,
    pub(crate) allocated: u64,
    pub(crate) links: u32,
    pub(crate) is_directory: bool,
    /// Number on its volume, if it was asked for and the server knows it.
    pub(crate) index: Option<u64>,
}

impl Stat {
    fn of_all(all: &AllInfo) -> Self {
        let words = &all.words;
        Self {
            basic: FileBasicInformation {
                creation_time: words.creation_time,
                last_access_time: words.last_access_time,
                last_write_time: words.last_write_time,
                change_time: words.change_time,
                attributes: attributes(words.file_attributes, words.is_directory),
            },
            size: words.end_of_file,
            allocated: words.allocation_size,
            links: words.number_of_links,
            is_directory: words.is_directory,
            index: None,
        }
    }

    fn of_standard(standard: &InfoStandard, zone: Zone) -> Self {
        let attributes = FileAttributes::from_bits_retain(u32::from(standard.file_attributes));
        Self {
            basic: FileBasicInformation {
                creation_time: standard.creation.to_file_time(zone),
                last_access_time: standard.last_access.to_file_time(zone),
                last_write_time: standard.last_write.to_file_time(zone),
                change_time: FileTime::KEEP,
                attributes,
            },
            size: u64::from(standard.file_size),
            allocated: u64::from(standard.allocation_size),
            links: 1,
            is_directory: attributes.contains(FileAttributes::DIRECTORY),
            index: None,
        }
    }
}

/// Returns attributes that agree with the kind.
fn attributes(bits: u32, is_directory: bool) -> FileAttributes {
    let attributes = FileAttributes::from_bits_retain(bits);
    match is_directory {
        true => attributes | FileAttributes::DIRECTORY,
        false => attributes,
    }
}

/// A transaction of TRANSACTION2.
pub(crate) struct Trans2<'a> {
    pub(crate) subcommand: Subcommand,
    pub(crate) parameters: Vec<u8>,
    pub(crate) data: &'a [u8],
    /// Bytes of parameters and data that may come back.
    pub(crate) limits: (u32, u32),
}

impl Trans2<'_> {
    pub(crate) fn request(&self, tid: u16) -> Request {
        let request = transaction::Request {
            kind: Kind::Two,
            name: Str::empty(false),
            flags: 0,
            timeout: 0,
            function: 0,
            setup: vec![self.subcommand.0],
            limits: Limits {
                parameters: self.limits.0,
                data: self.limits.1,
                setup: 0,
            },
            totals: Totals {
                parameters: self.parameters.len(),
                data: self.data.len(),
            },
            parameters: &self.parameters,
            data: self.data,
        };
        Request::transaction(tid, &request)
    }
}

impl Share {
    /// Returns the connection's tree, and whether this and that is known of the server.
    pub(crate) async fn server(&self) -> Result<Connected> {
        self.connected().await
    }

    async fn trans2(
        &self,
        op: &'static str,
        once: bool,
        make: impl Fn(&Connected) -> Result<Trans2<'static>>,
    ) -> Result<TransactionReply> {
        let reply = self.call(once, |at| Ok(make(at)?.request(at.tid))).await?;
        checked_transaction(op, *reply)
    }

    /// Queries a level of a path.
    pub(crate) async fn query_path(&self, op: &'static str, path: &Text, level: Level) -> Result<Vec<u8>> {
        let reply = self
            .trans2(op, false, |at| {
                let parameters = PathLevel {
                    level,
                    path: at.path(path)?,
                };
                Ok(Trans2 {
                    subcommand: Subcommand::QUERY_PATH_INFORMATION,
                    parameters: parameters.to_bytes(),
                    data: &[],
                    limits: (2, 4096),
                })
            })
            .await?;
        Ok(reply.data)
    }

    /// Sets a level of a path.
    pub(crate) async fn set_path(
        &self,
        op: &'static str,
        path: &Text,
        level: Level,
        data: &[u8],
    ) -> Result<()> {
        let reply = self
            .call(false, |at| {
                let parameters = PathLevel {
                    level,
                    path: at.path(path)?,
                };
                let trans2 = Trans2 {
                    subcommand: Subcommand::SET_PATH_INFORMATION,
                    parameters: parameters.to_bytes(),
                    data,
                    limits: (2, 0),
                };
                Ok(trans2.request(at.tid))
            })
            .await?;
        checked(op, reply).map(drop)
    }

    /// Queries a node. With `index`, its number on the volume is asked for, too.
    pub(crate) async fn stat(&self, path: &Text, index: bool) -> Result<Stat> {
        let server = self.server().await?;
        if !server.negotiated().has_nt_commands() {
            let data = self.query_path("query", path, Level::STANDARD).await?;
            let standard = InfoStandard::read(&mut Reader::new(&data, "SMB_INFO_STANDARD"))?;
            return Ok(Stat::of_standard(&standard, server.negotiated().zone));
        }
        let all = self.query_path("query", path, Level::ALL);
        // FileInternalInformation.
        let number = async {
            match index {
                true => self
                    .query_path("query", path, Level::passthrough(6))
                    .await
                    .map(Some),
                false => Ok(None),
            }
        };
        let (all, number) = futures_util::future::join(all, number).await;
        let all = AllInfo::decode(&padded(&all?, 72), server.negotiated().unicode)?;
        let mut stat = Stat::of_all(&all);
        if let Ok(Some(number)) = number
            && let Ok(number) = FileInternalInformation::decode(&number)
        {
            stat.index = Some(number.index_number);
        }
        Ok(stat)
    }

    /// Sets times and attributes of a path.
    pub(crate) async fn set_basic(&self, path: &Text, basic: &FileBasicInformation) -> Result<()> {
        self.set_path("set attributes", path, Level::BASIC, &basic.to_bytes())
            .await
    }

    /// Queries a level of an open file.
    pub(crate) fn query_file_request(tid: u16, fid: u16, level: Level) -> Request {
        let parameters = QueryFile { fid, level };
        let trans2 = Trans2 {
            subcommand: Subcommand::QUERY_FILE_INFORMATION,
            parameters: to_bytes(|w| parameters.write(w)),
            data: &[],
            limits: (2, 4096),
        };
        trans2.request(tid)
    }

    /// Sets a level of an open file.
    pub(crate) fn set_file_request(tid: u16, fid: u16, level: Level, data: &[u8]) -> Request {
        let parameters = SetFile {
            fid,
            level,
            ..SetFile::default()
        };
        let trans2 = Trans2 {
            subcommand: Subcommand::SET_FILE_INFORMATION,
            parameters: to_bytes(|w| parameters.write(w)),
            data,
            limits: (2, 0),
        };
        trans2.request(tid)
    }

    /// Queries a level of the volume.
    pub(crate) async fn query_fs(&self, level: Level) -> Result<Vec<u8>> {
        let reply = self
            .trans2("query the volume", false, |_| {
                Ok(Trans2 {
                    subcommand: Subcommand::QUERY_FS_INFORMATION,
                    parameters: to_bytes(|w| w.u16(level.0)),
                    data: &[],
                    limits: (0, 1024),
                })
            })
            .await?;
        Ok(reply.data)
    }

    /// Queries a structure of [MS-FSCC] about the volume.
    pub(crate) async fn query_fs_as<T: FsInformation>(&self, level: Level, least: usize) -> Result<T> {
        let data = self.query_fs(level).await?;
        Ok(T::decode(&padded(&data, least))?)
    }

    /// Returns size and free bytes of the volume.
    pub(crate) async fn space(&self) -> Result<(u64, u64)> {
        if self.server().await?.negotiated().has_nt_commands() {
            let data = self.query_fs(Level::FS_SIZE).await?;
            let size = ropeway_smb_wire::info::FileFsSizeInformation::decode(&data)?;
            let unit =
                u64::from(size.sectors_per_allocation_unit).saturating_mul(u64::from(size.bytes_per_sector));
            return Ok((
                size.total_allocation_units.saturating_mul(unit),
                size.available_allocation_units.saturating_mul(unit),
            ));
        }
        let data = self.query_fs(Level::FS_ALLOCATION).await?;
        let allocation = InfoAllocation::read(&mut Reader::new(&data, "SMB_INFO_ALLOCATION"))?;
        Ok(allocation.bytes())
    }

    async fn path_command(&self, op: &'static str, command: Command, path: &Text) -> Result<()> {
        let reply = self
            .call(true, |at| {
                let request = PathRequest { path: at.path(path)? };
                Ok(Request::new(command, at.tid, |w| request.encode(w)))
            })
            .await?;
        checked(op, reply).map(drop)
    }

    pub(crate) async fn make_directory(&self, path: &Text) -> Result<()> {
        self.path_command("make a folder", Command::CREATE_DIRECTORY, path)
            .await
    }

    pub(crate) async fn remove_directory(&self, path: &Text) -> Result<()> {
        self.path_command("remove a folder", Command::DELETE_DIRECTORY, path)
            .await
    }

    pub(crate) async fn delete(&self, path: &Text) -> Result<()> {
        let reply = self
            .call(true, |at| {
                let request = DeleteRequest {
                    search_attributes: ALL_FILES,
                    path: at.path(path)?,
                };
                Ok(Request::new(Command::DELETE, at.tid, |w| request.encode(w)))
            })
            .await?;
        checked("remove", reply).map(drop)
    }

    /// Renames; fails if the new name is taken.
    pub(crate) async fn rename(&self, from: &Text, to: &Text) -> Result<()> {
        let reply = self
            .call(true, |at| {
                let request = RenameRequest {
                    search_attributes: ALL_FILES,
                    from: at.path(from)?,
                    to: at.path(to)?,
                };
                Ok(Request::new(Command::RENAME, at.tid, |w| request.encode(w)))
            })
            .await?;
        checked("rename", reply).map(drop)
    }

    /// Makes a hard link.
    pub(crate) async fn link(&self, from: &Text, to: &Text) -> Result<()> {
        let reply = self
            .call(true, |at| {
                let words = NtRenameWords {
                    search_attributes: ALL_FILES,
                    information_level: NtRenameWords::LINK,
                    ..NtRenameWords::default()
                };
                let request = NtRenameRequest {
                    words,
                    from: at.path(from)?,
                    to: at.path(to)?,
                };
                Ok(Request::new(Command::NT_RENAME, at.tid, |w| request.encode(w)))
            })
            .await?;
        checked("make a hard link", reply).map(drop)
    }

    /// Opens something for a moment, and calls `then` with its FID on the same connection.
    /// `then` makes one request; its reply is returned.
    pub(crate) async fn open_for(
        &self,
        op: &'static str,
        path: &Text,
        how: &OpenHow,
        then: impl Fn(u16, u16) -> Request,
    ) -> Result<Box<ropeway_smb1::client::Reply>> {
        let connected = self.connected().await?;
        let opened = self.open_once(op, &connected, path, how).await?;
        let reply = connected.channel.exchange(then(connected.tid, opened.fid)).await;
        connected.channel.post(close_request(connected.tid, opened.fid));
        match reply {
            crate::channel::Answer::Replied(reply) => Ok(reply),
            crate::channel::Answer::Lost { .. } => {
                Err(Error::Lost(ropeway_smb_client::LostReason::OutcomeUnknown))
            }
            crate::channel::Answer::TooLong => {
                Err(Error::Misuse("a request is longer than the server receives"))
            }
        }
    }

    /// Opens a file on one connection.
    pub(crate) async fn open_once(
        &self,
        op: &'static str,
        connected: &Connected,
        path: &Text,
        how: &OpenHow,
    ) -> Result<CreateResponse> {
        match connected.channel.exchange(how.request(connected, path)?).await {
            crate::channel::Answer::Replied(reply) => {
                let reply = checked(op, reply)?;
                Ok(CreateResponse::decode(&reply.block()?)?)
            }
            crate::channel::Answer::Lost { .. } => {
                Err(Error::Lost(ropeway_smb_client::LostReason::OutcomeUnknown))
            }
            crate::channel::Answer::TooLong => {
                Err(Error::Misuse("a path is longer than the server receives"))
            }
        }
    }

    /// Sends a control of the file system to a node. Returns its output.
    pub(crate) async fn fsctl(
        &self,
        op: &'static str,
        path: &Text,
        access: AccessMask,
        (code, input, output_max): (u32, &[u8], u32),
    ) -> Result<Vec<u8>> {
        let reply = self
            .open_for(op, path, &OpenHow::existing(access), |tid, fid| {
                let setup = IoctlSetup {
                    code,
                    fid,
                    is_fsctl: true,
                    flags: 0,
                };
                let request = transaction::Request {
                    kind: Kind::Nt,
                    name: Str::empty(false),
                    flags: 0,
                    timeout: 0,
                    function: Function::IOCTL.0,
                    setup: setup.encode(),
                    limits: Limits {
                        parameters: 0,
                        data: output_max,
                        setup: 1,
                    },
                    totals: Totals {
                        parameters: 0,
                        data: input.len(),
                    },
                    parameters: &[],
                    data: input,
                };
                Request::transaction(tid, &request)
            })
            .await?;
        checked_transaction(op, *reply).map(|reply| reply.data)
    }
}

/// Returns the request that closes a file.
pub(crate) fn close_request(tid: u16, fid: u16) -> Request {
    Request::new(Command::CLOSE, tid, |w| {
        let close = CloseRequest {
            fid,
            last_write_time: u32::MAX,
        };
        close.encode(w);
    })
}

/// Returns the request that flushes a file.
pub(crate) fn flush_request(tid: u16, fid: u16) -> Request {
    Request::new(Command::FLUSH, tid, |w| encode_id(fid, w))
}

/// Whether a reply says that a request is unknown, or its level.
pub(crate) fn is_unsupported(error: &Error) -> bool {
    use ropeway_smb1::dos_error::status;
    matches!(
        error.status(),
        Some(
            NtStatus::NOT_SUPPORTED
                | NtStatus::NOT_IMPLEMENTED
                | NtStatus::INVALID_INFO_CLASS
                | NtStatus::INVALID_LEVEL
                | NtStatus::INVALID_DEVICE_REQUEST
                | NtStatus::INVALID_PARAMETER
                | status::BAD_COMMAND
        )
    )
}
