//! Private controls: what this project's server does for this client alone (docs/adr/0033).
//!
//! The first CREATE on a tree connection that succeeds asks by a create context. Servers
//! that do not know the context ignore it, so asking costs neither a round trip nor a request.

use std::ops::Range;

use parking_lot::Mutex;
use ropeway_smb_wire::create_context::{PrivateQuery, PrivateReply, RequestContext};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{
    ChunkEntry, ChunksRequest, PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation, PrivateOperations,
    RangeHashReply, RangeHashRequest, VERSION,
};
use ropeway_smb_wire::tree_connect::ShareType;
use ropeway_smb_wire::{TreeId, Writer};
use ropeway_vfs::ContentHash;
use ropeway_vfs::chunks::Chunk;

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::tree::Tree;

/// Asks a server for its private controls.
pub(crate) const QUERY: RequestContext<'static> = RequestContext::Private(PrivateQuery { version: VERSION });

/// What is known about the private controls of a share.
#[derive(Debug, Default)]
pub(crate) struct PrivateSupport(Mutex<Option<Answer>>);

/// The last answer of the server. A server that comes back may be another version.
#[derive(Debug)]
struct Answer {
    tree: (u64, TreeId),
    operations: PrivateOperations,
}

impl PrivateSupport {
    /// Returns the context for a CREATE in this tree connection, unless its answer is known.
    pub(crate) fn query(&self, tree: &Tree) -> Option<RequestContext<'static>> {
        let answer = self.0.lock();
        let is_known = answer.as_ref().is_some_and(|answer| answer.tree == tree.key());
        (!is_known && tree.share_type == ShareType::Disk).then_some(QUERY)
    }

    /// Notes the answer of a CREATE that succeeded. Without the context the server has no private
    /// controls. The first answer in a tree connection counts: later ones were not asked for.
    pub(crate) fn learn(&self, tree: &Tree, reply: Option<PrivateReply>) {
        let mut answer = self.0.lock();
        if answer.as_ref().is_none_or(|answer| answer.tree != tree.key()) {
            let reply = reply.filter(|reply| reply.version == VERSION);
            *answer = Some(Answer {
                tree: tree.key(),
                operations: reply.map(|reply| reply.operations).unwrap_or_default(),
            });
        }
    }

    /// Notes that a tree connection does not have these operations after all.
    pub(crate) fn lacks(&self, tree: &Tree, operations: PrivateOperations) {
        let mut answer = self.0.lock();
        if let Some(answer) = answer.as_mut().filter(|answer| answer.tree == tree.key()) {
            answer.operations.remove(operations);
        }
    }

    /// Returns whether a tree connection has these operations; `false` while it has not been asked.
    pub(crate) fn has_in(&self, tree: &Tree, operations: PrivateOperations) -> bool {
        let answer = self.0.lock();
        let answer = answer.as_ref().filter(|answer| answer.tree == tree.key());
        answer.is_some_and(|answer| answer.operations.contains(operations))
    }

    /// Returns whether the share has these operations, as far as is known.
    pub(crate) fn has(&self, operations: PrivateOperations) -> bool {
        let answer = self.0.lock();
        answer
            .as_ref()
            .is_some_and(|answer| answer.operations.contains(operations))
    }
}

/// Most bytes of a reply with chunks: hashes of 52,000 chunks. Servers do not send more.
const CHUNKS_MAX: u32 = 1 << 20;

impl Handle {
    /// Returns whether the server has these private operations on the file's share, as far as the
    /// client knows: each share is asked with the first file that is opened.
    pub fn has_private(&self, operations: PrivateOperations) -> bool {
        self.share().inner().private.has(operations)
    }

    /// Cuts a range of the file into chunks of about `average` bytes, on the server. It may return
    /// the chunks of the first part of the range only, and none at the file's end.
    ///
    /// # Errors
    /// The errors of any request; chunks that do not lie in the range.
    pub async fn chunks(&self, range: Range<u64>, average: u32) -> Result<Vec<Chunk>> {
        let request = ChunksRequest {
            offset: range.start,
            length: range.end.saturating_sub(range.start),
            average,
        };
        let body = self.private(PrivateOperation::CHUNKS, |w| request.encode(w), CHUNKS_MAX);
        let entries = ChunkEntry::decode_list(&body.await?)?;
        let total: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
        if total > request.length {
            return Err(Error::PeerMisbehaved(
                "it returned chunks beyond their range".to_owned(),
            ));
        }
        let chunk = |entry: ChunkEntry| Chunk {
            length: entry.length,
            hash: entry.hash,
        };
        Ok(entries.into_iter().map(chunk).collect())
    }

    /// Returns the BLAKE3 hash of a range of the file as the server has it, and the length of what
    /// it hashed: less than asked for at the file's end, or where the server wants to be asked in
    /// parts.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn range_hash(&self, range: Range<u64>) -> Result<(u64, ContentHash)> {
        let request = RangeHashRequest {
            offset: range.start,
            length: range.end.saturating_sub(range.start),
        };
        // The reply has 40 bytes.
        let body = self.private(PrivateOperation::RANGE_HASH, |w| request.encode(w), 64);
        let reply = RangeHashReply::decode(&body.await?)?;
        Ok((reply.length, reply.hash))
    }

    /// Sends a private control, and returns the body of its reply, of at most `body_max` bytes.
    pub(crate) async fn private(
        &self,
        operation: PrivateOperation,
        body: impl FnOnce(&mut Writer<'_>),
        body_max: u32,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        body(&mut Writer::new(&mut bytes));
        let input = input_of(operation, &bytes);
        // The header has 8 bytes.
        let output_max = body_max.saturating_add(PRIVATE_HEADER_LEN as u32);
        let output_max = output_max.min(self.share().limits().transact_max);
        let mut output = self.ioctl(CtlCode::PRIVATE, &input, output_max).await?;
        body_of(operation, &output)?;
        output.drain(..PRIVATE_HEADER_LEN);
        Ok(output)
    }
}

/// Returns the input of a private control with this body.
pub(crate) fn input_of(operation: PrivateOperation, body: &[u8]) -> Vec<u8> {
    let mut input = Vec::with_capacity(PRIVATE_HEADER_LEN + body.len());
    begin_input(operation, &mut input);
    input.extend_from_slice(body);
    input
}

/// Begins the input of a private control. The body follows.
pub(crate) fn begin_input(operation: PrivateOperation, input: &mut Vec<u8>) {
    PrivateMessage::new(operation, &[]).encode(&mut Writer::new(input));
}

/// Returns the body of the reply to a private control.
///
/// # Errors
/// The reply is malformed, or that to another one.
pub(crate) fn body_of(operation: PrivateOperation, output: &[u8]) -> Result<&[u8]> {
    let reply = PrivateMessage::decode(output)?;
    match reply.version == VERSION && reply.operation == operation {
        true => Ok(reply.body),
        false => Err(Error::PeerMisbehaved(
            "the reply to a private control is another one's".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tree_connection_is_asked_until_it_has_answered() {
        let support = PrivateSupport::default();
        let (first, second) = (Tree::of_disk(1, 7), Tree::of_disk(2, 7));
        let chunks = PrivateOperations::CHUNKS;
        let reply = |version, operations| Some(PrivateReply { version, operations });
        assert!(support.query(&first).is_some() && !support.has(chunks));
        support.learn(&first, reply(VERSION, chunks));
        // The reply to a CREATE that did not ask.
        support.learn(&first, None);
        assert!(support.query(&first).is_none() && support.has(chunks));
        assert!(!support.has(chunks | PrivateOperations::RANGE_HASH));
        assert!(support.query(&second).is_some());
        support.learn(&second, reply(VERSION + 1, chunks));
        assert!(support.query(&second).is_none() && !support.has(chunks));
        let third = Tree::of_disk(3, 7);
        support.learn(&third, reply(VERSION, chunks));
        support.lacks(&second, chunks);
        assert!(support.has_in(&third, chunks) && !support.has_in(&second, chunks));
        support.lacks(&third, chunks);
        assert!(!support.has_in(&third, chunks));
    }
}
