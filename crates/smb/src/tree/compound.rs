//! Related compounds of the tree's own: what has to be done to one node, in one round trip.

use ropeway_smb_proto::wire::create::OplockLevel;
use ropeway_smb_proto::wire::header::HEADER_LEN;
use ropeway_smb_proto::wire::info::{FileInformation, Information as _};
use ropeway_smb_proto::wire::ioctl::IoctlResponse;
use ropeway_smb_proto::wire::query_info::QueryInfoResponse;
use ropeway_smb_proto::wire::fsctl::CtlCode;
use ropeway_smb_proto::wire::{FileId, Reader, Text, TreeId};

use crate::{Error, OpenFile, Operation, Reply, Result, Share, ops};

/// Opens a node, does one thing to it, closes it. The tree is filled in by the share.
pub(super) struct Compound {
    op: &'static str,
    operations: Vec<Operation>,
}

impl Compound {
    /// Begins with CREATE; `op` is what errors say was attempted.
    pub(super) fn open(op: &'static str, path: &Text, open: &OpenFile) -> Self {
        let create = ops::create(TreeId::default(), path, open, OplockLevel::None, Vec::new());
        Self {
            op,
            operations: vec![create],
        }
    }

    pub(super) fn set<I: FileInformation>(mut self, information: &I) -> Self {
        let set = ops::set_file(TreeId::default(), FileId::RELATED, information);
        self.operations.push(set);
        self
    }

    pub(super) fn query<I: FileInformation>(mut self, output_max: u32) -> Self {
        let query = ops::query_file::<I>(TreeId::default(), FileId::RELATED, output_max);
        self.operations.push(query);
        self
    }

    pub(super) fn ioctl(mut self, code: CtlCode, input: &[u8], output_max: u32) -> Self {
        let ioctl = ops::ioctl(TreeId::default(), FileId::RELATED, code, input, output_max);
        self.operations.push(ioctl);
        self
    }

    pub(super) fn flush(mut self) -> Self {
        self.operations.push(ops::flush(TreeId::default(), FileId::RELATED));
        self
    }

    /// Sends it with a CLOSE behind; the answer to what stood between.
    ///
    /// # Errors
    /// The first request that failed. [MS-SMB2] 3.3.5.2.7.2: if CREATE fails, so do the others.
    pub(super) async fn run(mut self, share: &Share) -> Result<Reply> {
        let close = ops::close(TreeId::default(), FileId::RELATED, false);
        self.operations.push(close);
        let expected = self.operations.len();
        let replies = share.chain(self.operations, true).await?;
        if replies.len() != expected {
            return Err(Error::PeerMisbehaved("a compound was answered in part".to_owned()));
        }
        let failed = replies.iter().find(|reply| !reply.header.status.is_success());
        if let Some(failed) = failed {
            return Err(Error::refused(self.op, failed.header.status));
        }
        let middle = replies.into_iter().nth_back(1);
        middle.ok_or_else(|| Error::PeerMisbehaved("a compound was answered in part".to_owned()))
    }
}

fn body(reply: &Reply) -> Result<Reader<'_>> {
    let mut reader = Reader::new(&reply.message, "SMB2 reply");
    reader.skip(HEADER_LEN)?;
    Ok(reader)
}

/// The output of an IOCTL.
pub(super) fn ioctl_output(reply: &Reply) -> Result<&[u8]> {
    Ok(IoctlResponse::decode(&mut body(reply)?)?.output)
}

/// The information that a QUERY_INFO gave.
pub(super) fn information<I: FileInformation>(reply: &Reply) -> Result<I> {
    let output = QueryInfoResponse::decode(&mut body(reply)?)?.output;
    Ok(I::decode(output)?)
}
