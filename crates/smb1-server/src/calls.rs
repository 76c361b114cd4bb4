//! Operations on files, each one request on the line.

use ropeway_smb_wire::close::{CloseFlags, CloseRequest};
use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, ImpersonationLevel,
    OplockLevel, ShareAccess,
};
use ropeway_smb_wire::flush::FlushRequest;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{FileInfoClass, FsInfoClass};
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::lock::{LockElement, LockRequest, LockSequence};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest, ReadResponse};
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::write::{WriteFlags, WriteRequest, WriteResponse};
use ropeway_smb_wire::{FileAttributes, FileId, FileTime, NtStatus, Text};

use crate::line::{Fault, Line, Place};

/// Largest READ, WRITE or query in bytes: what one credit pays for.
pub(crate) const IO_MAX: usize = 65_536;

/// How to open a file.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) access: AccessMask,
    pub(crate) attributes: FileAttributes,
    pub(crate) sharing: ShareAccess,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: CreateOptions,
    pub(crate) name: Text,
}

impl Open {
    /// An existing file, whatever others do with it.
    pub(crate) fn existing(name: Text, access: AccessMask) -> Self {
        Self {
            access,
            attributes: FileAttributes::default(),
            sharing: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::Open,
            options: CreateOptions::default(),
            name,
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) id: FileId,
    pub(crate) action: u32,
    pub(crate) creation_time: FileTime,
    pub(crate) last_access_time: FileTime,
    pub(crate) last_write_time: FileTime,
    pub(crate) change_time: FileTime,
    pub(crate) allocation_size: u64,
    pub(crate) end_of_file: u64,
    pub(crate) attributes: FileAttributes,
}

/// What to query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Query {
    File(u8),
    Volume(u8),
    /// Parts of a security descriptor.
    Security(u32),
}

impl From<FileInfoClass> for Query {
    fn from(class: FileInfoClass) -> Self {
        Self::File(class.to_u8())
    }
}

impl From<FsInfoClass> for Query {
    fn from(class: FsInfoClass) -> Self {
        Self::Volume(class.to_u8())
    }
}

impl Query {
    fn parts(self) -> (InfoType, u8, u32) {
        match self {
            Self::File(class) => (InfoType::File, class, 0),
            Self::Volume(class) => (InfoType::FileSystem, class, 0),
            Self::Security(parts) => (InfoType::Security, 0, parts),
        }
    }
}

impl Line {
    /// Opens a file without asking for an oplock.
    pub(crate) fn create(&mut self, place: Place, open: Open) -> Result<Opened, Fault> {
        let request = CreateRequest {
            oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: open.access,
            file_attributes: open.attributes,
            share_access: open.sharing,
            disposition: open.disposition,
            options: open.options,
            name: open.name,
            contexts: Vec::new(),
        };
        let reply = self.ask(Command::Create, place, |w| request.encode(w))?;
        let response = reply.body(CreateResponse::decode)?;
        Ok(Opened {
            id: response.file_id,
            action: response.create_action.0,
            creation_time: response.creation_time,
            last_access_time: response.last_access_time,
            last_write_time: response.last_write_time,
            change_time: response.change_time,
            allocation_size: response.allocation_size,
            end_of_file: response.end_of_file,
            attributes: response.file_attributes,
        })
    }

    /// Closes a file.
    pub(crate) fn close(&mut self, place: Place, file_id: FileId) -> Result<(), Fault> {
        let flags = CloseFlags::default();
        let request = CloseRequest { flags, file_id };
        self.ask(Command::Close, place, |w| request.encode(w)).map(|_| ())
    }

    /// Opens a file, does something with it, and closes it.
    pub(crate) fn with<T>(
        &mut self,
        place: Place,
        open: Open,
        act: impl FnOnce(&mut Self, &Opened) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let opened = self.create(place, open)?;
        let outcome = act(self, &opened);
        let closed = self.close(place, opened.id);
        let value = outcome?;
        closed?;
        Ok(value)
    }

    /// Reads at most [`IO_MAX`] bytes. Returns them and whether a message of a pipe goes on.
    pub(crate) fn read(
        &mut self,
        place: Place,
        file_id: FileId,
        offset: u64,
        length: usize,
    ) -> Result<(Vec<u8>, NtStatus), Fault> {
        let request = ReadRequest {
            file_id,
            offset,
            length: length.min(IO_MAX) as u32,
            minimum_count: 0,
            flags: ReadFlags::default(),
            channel: Channel::default(),
        };
        let reply = self.ask(Command::Read, place, |w| request.encode(w))?;
        let (_, data) = reply.body(ReadResponse::decode)?;
        Ok((data.to_vec(), reply.header.status))
    }

    /// Writes at most [`IO_MAX`] bytes and returns their number.
    pub(crate) fn write(
        &mut self,
        place: Place,
        file_id: FileId,
        offset: u64,
        data: &[u8],
        through: bool,
    ) -> Result<usize, Fault> {
        let request = WriteRequest {
            file_id,
            offset,
            flags: match through {
                true => WriteFlags::WRITE_THROUGH,
                false => WriteFlags::default(),
            },
            channel: Channel::default(),
        };
        let data = &data[..data.len().min(IO_MAX)];
        let reply = self.ask(Command::Write, place, |w| request.encode(w, data))?;
        let response = reply.body(WriteResponse::decode)?;
        Ok((response.count as usize).min(data.len()))
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&mut self, place: Place, file_id: FileId) -> Result<(), Fault> {
        let request = FlushRequest { file_id };
        self.ask(Command::Flush, place, |w| request.encode(w)).map(|_| ())
    }

    /// Queries a file, a volume or a descriptor. A structure that is cut off is no error.
    pub(crate) fn query(
        &mut self,
        place: Place,
        file_id: FileId,
        query: impl Into<Query>,
        length: usize,
    ) -> Result<Vec<u8>, Fault> {
        let (info_type, info_class, additional_information) = query.into().parts();
        let request = QueryInfoRequest {
            info_type,
            info_class,
            output_buffer_length: length.min(IO_MAX) as u32,
            additional_information,
            flags: QueryInfoFlags::default(),
            file_id,
            input: &[],
        };
        let reply = self.ask(Command::QueryInfo, place, |w| request.encode(w))?;
        let response = reply.body(QueryInfoResponse::decode)?;
        Ok(response.output.to_vec())
    }

    /// Sets information of a file.
    pub(crate) fn set(
        &mut self,
        place: Place,
        file_id: FileId,
        query: impl Into<Query>,
        buffer: &[u8],
    ) -> Result<(), Fault> {
        let (info_type, info_class, additional_information) = query.into().parts();
        let request = SetInfoRequest {
            info_type,
            info_class,
            additional_information,
            file_id,
            buffer,
        };
        self.ask(Command::SetInfo, place, |w| request.encode(w))
            .map(|_| ())
    }

    /// Returns the next entries of a folder (`FileIdBothDirectoryInformation`); none after the last.
    pub(crate) fn list(
        &mut self,
        place: Place,
        file_id: FileId,
        pattern: &Text,
        restart: bool,
    ) -> Result<Vec<u8>, Fault> {
        let request = QueryDirectoryRequest {
            information_class: FileInfoClass::IdBothDirectory.to_u8(),
            flags: match restart {
                true => QueryDirectoryFlags::RESTART_SCANS,
                false => QueryDirectoryFlags::default(),
            },
            file_index: 0,
            file_id,
            pattern: pattern.clone(),
            output_buffer_length: IO_MAX as u32,
        };
        let reply = self.ask(Command::QueryDirectory, place, |w| request.encode(w))?;
        match reply.header.status {
            NtStatus::NO_MORE_FILES => Ok(Vec::new()),
            _ => Ok(reply.body(QueryDirectoryResponse::decode)?.output.to_vec()),
        }
    }

    /// Locks and unlocks ranges, all or none.
    pub(crate) fn lock(
        &mut self,
        place: Place,
        file_id: FileId,
        locks: Vec<LockElement>,
    ) -> Result<(), Fault> {
        let request = LockRequest {
            file_id,
            lock_sequence: LockSequence::default(),
            locks,
        };
        self.ask(Command::Lock, place, |w| request.encode(w)).map(|_| ())
    }

    /// Sends a message to a pipe. Returns the answer, and the status that says whether it goes on.
    pub(crate) fn transceive(
        &mut self,
        place: Place,
        file_id: FileId,
        message: &[u8],
        length: usize,
    ) -> Result<(Vec<u8>, NtStatus), Fault> {
        let length = length.min(IO_MAX) as u32;
        let request = IoctlRequest::fsctl(CtlCode::PIPE_TRANSCEIVE, file_id, message, length);
        let reply = self.ask(Command::Ioctl, place, |w| request.encode(w))?;
        let response = reply.body(IoctlResponse::decode)?;
        Ok((response.output.to_vec(), reply.header.status))
    }
}
