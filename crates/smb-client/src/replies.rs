//! Helpers that read the replies to a compound.

use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::FileId;
use ropeway_smb_wire::close::{CloseFlags, CloseResponse};
use ropeway_smb_wire::create::CreateResponse;
use ropeway_smb_wire::header::Command;

use crate::error::{Error, Result};

/// Returns the first reply. A compound has as many replies as operations.
pub(crate) fn first(replies: &[Reply]) -> Result<&Reply> {
    nth(replies, 0)
}

/// Returns the reply to operation `index`.
pub(crate) fn nth(replies: &[Reply], index: usize) -> Result<&Reply> {
    replies
        .get(index)
        .ok_or_else(|| Error::PeerMisbehaved("a reply is missing".to_owned()))
}

/// Checks that the server carried out `op`.
pub(crate) fn check(op: &'static str, reply: &Reply) -> Result<()> {
    match reply.status().is_success() {
        true => Ok(()),
        false => Err(Error::refused(op, reply.status())),
    }
}

/// Returns the file that a compound opened and did not close.
pub(crate) fn left_open(replies: &[Reply]) -> Option<FileId> {
    let is_success = |reply: &&Reply| reply.status().is_success();
    let mut file_id = None;
    for reply in replies.iter().filter(is_success) {
        match reply.header.command {
            Command::Create => {
                file_id = CreateResponse::decode(&mut reply.body())
                    .ok()
                    .map(|created| created.file_id);
            }
            Command::Close => file_id = None,
            _ => {}
        }
    }
    file_id
}

/// Returns the size in the reply to a CLOSE ([MS-SMB2] 2.2.16: the fields are valid only with the
/// flag).
pub(crate) fn reported_size(closed: &Reply) -> Option<u64> {
    if !closed.status().is_success() {
        return None;
    }
    let closed = CloseResponse::decode(&mut closed.body()).ok()?;
    let is_reported = closed.flags.contains(CloseFlags::POSTQUERY_ATTRIB);
    is_reported.then_some(closed.end_of_file)
}
