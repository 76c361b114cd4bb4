//! Related compounds of the tree's own: what has to be done to one node, in one round trip.

use ropeway_smb_proto::wire::close::{CloseFlags, CloseRequest};
use ropeway_smb_proto::wire::create::{CreateRequest, ImpersonationLevel, OplockLevel};
use ropeway_smb_proto::wire::flush::FlushRequest;
use ropeway_smb_proto::wire::fsctl::CtlCode;
use ropeway_smb_proto::wire::header::Command;
use ropeway_smb_proto::wire::info::FileInformation;
use ropeway_smb_proto::wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_proto::wire::query_info::{InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse};
use ropeway_smb_proto::wire::set_info::SetInfoRequest;
use ropeway_smb_proto::wire::{FileId, Text, TreeId, Writer};

use crate::{Error, OpenFile, Operation, Reply, Result, Share};

/// Every request but CREATE is about the file that CREATE opened ([MS-SMB2] 3.2.4.1.4).
const OPENED: FileId = FileId::RELATED;

/// Opens a node, does one thing to it, closes it. The share fills its tree in.
pub(super) struct Compound {
    op: &'static str,
    operations: Vec<Operation>,
}

impl Compound {
    /// Begins with CREATE; `op` is what errors say was attempted.
    pub(super) fn open(op: &'static str, path: &Text, open: &OpenFile) -> Self {
        let request = CreateRequest {
            oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: open.access,
            file_attributes: open.attributes,
            share_access: open.share,
            disposition: open.disposition,
            options: open.options,
            name: path.clone(),
            contexts: Vec::new(),
        };
        let compound = Self {
            op,
            operations: Vec::new(),
        };
        compound.and(Command::Create, 0, |w| request.encode(w))
    }

    fn and(mut self, command: Command, response_max: u32, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut operation = Operation::encoded(command, TreeId::default(), encode);
        operation.response_max = response_max;
        self.operations.push(operation);
        self
    }

    pub(super) fn set<I: FileInformation>(self, information: &I) -> Self {
        let buffer = information.to_bytes();
        let request = SetInfoRequest {
            info_type: InfoType::File,
            info_class: I::CLASS as u8,
            additional_information: 0,
            file_id: OPENED,
            buffer: &buffer,
        };
        self.and(Command::SetInfo, 0, |w| request.encode(w))
    }

    pub(super) fn query<I: FileInformation>(self, output_max: u32) -> Self {
        let request = QueryInfoRequest {
            info_type: InfoType::File,
            info_class: I::CLASS as u8,
            output_buffer_length: output_max,
            additional_information: 0,
            flags: QueryInfoFlags::default(),
            file_id: OPENED,
            input: &[],
        };
        self.and(Command::QueryInfo, output_max, |w| request.encode(w))
    }

    pub(super) fn ioctl(self, code: CtlCode, input: &[u8], output_max: u32) -> Self {
        let request = IoctlRequest::fsctl(code, OPENED, input, output_max);
        self.and(Command::Ioctl, output_max, |w| request.encode(w))
    }

    pub(super) fn flush(self) -> Self {
        let request = FlushRequest { file_id: OPENED };
        self.and(Command::Flush, 0, |w| request.encode(w))
    }

    /// Sends it with a CLOSE behind; the answer to what stood between.
    ///
    /// # Errors
    /// The first request that failed. [MS-SMB2] 3.3.5.2.7.2: if CREATE fails, so do the others.
    pub(super) async fn run(self, share: &Share) -> Result<Reply> {
        let close = CloseRequest {
            flags: CloseFlags::default(),
            file_id: OPENED,
        };
        let whole = self.and(Command::Close, 0, |w| close.encode(w));
        let expected = whole.operations.len();
        let replies = share.chain(whole.operations, true).await?;
        let in_part = || Error::PeerMisbehaved("a compound was answered in part".to_owned());
        if replies.len() != expected {
            return Err(in_part());
        }
        let failed = replies.iter().find(|reply| !reply.status().is_success());
        if let Some(failed) = failed {
            return Err(Error::refused(whole.op, failed.status()));
        }
        replies.into_iter().nth_back(1).ok_or_else(in_part)
    }
}

/// The output of an IOCTL.
pub(super) fn ioctl_output(reply: &Reply) -> Result<&[u8]> {
    Ok(IoctlResponse::decode(&mut reply.body())?.output)
}

/// The information that a QUERY_INFO gave.
pub(super) fn information<I: FileInformation>(reply: &Reply) -> Result<I> {
    let output = QueryInfoResponse::decode(&mut reply.body())?.output;
    Ok(I::decode(output)?)
}
