//! What has to be done to one node, in one round trip: CREATE, some requests, CLOSE.
//!
//! The share sees to DFS, lost connections, and servers that take no compounds.

use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::info::FileInformation;
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::query_info::{QueryInfoResponse, SecurityInformation};
use ropeway_smb_wire::{FileId, Text, TreeId};

use crate::dfs::routed;
use crate::tree::{Replay, check};
use crate::{Error, OpenFile, Operation, Reply, Result, Share, ops};

/// One request on what CREATE opened; made anew where it is sent again.
type Step = Box<dyn Fn(TreeId, FileId) -> Operation + Send + Sync>;

/// Opens a node, does things to it, closes it.
pub(super) struct Compound<'a> {
    op: &'static str,
    path: &'a Text,
    open: &'a OpenFile,
    replay: Replay,
    steps: Vec<Step>,
}

impl<'a> Compound<'a> {
    /// Begins with CREATE; `op` is what errors say was attempted. May be sent twice.
    pub(super) fn open(op: &'static str, path: &'a Text, open: &'a OpenFile) -> Self {
        Self {
            op,
            path,
            open,
            replay: Replay::Safe,
            steps: Vec::new(),
        }
    }

    /// Twice is something else: after a lost connection the outcome is unknown.
    pub(super) fn once(mut self) -> Self {
        self.replay = Replay::Once;
        self
    }

    /// One more step.
    pub(super) fn and(mut self, step: impl Fn(TreeId, FileId) -> Operation + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    pub(super) fn set<I: FileInformation + Clone + Send + Sync + 'static>(self, information: &I) -> Self {
        let information = information.clone();
        self.and(move |tree, file| ops::set_file(tree, file, &information))
    }

    pub(super) fn query<I: FileInformation>(self, output_max: u32) -> Self {
        self.and(move |tree, file| ops::query_file::<I>(tree, file, output_max))
    }

    pub(super) fn query_security(self, what: SecurityInformation, output_max: u32) -> Self {
        self.and(move |tree, file| ops::query_security(tree, file, what, output_max))
    }

    pub(super) fn set_security(self, what: SecurityInformation, descriptor: Vec<u8>) -> Self {
        self.and(move |tree, file| ops::set_security(tree, file, what, &descriptor))
    }

    pub(super) fn ioctl(self, code: CtlCode, input: Vec<u8>, output_max: u32) -> Self {
        self.and(move |tree, file| ops::ioctl(tree, file, code, &input, output_max))
    }

    pub(super) fn flush(self) -> Self {
        self.and(ops::flush)
    }

    /// Sends it; the answer to each step, which may be that it failed. A server that takes no compounds stops at the
    /// first failure.
    ///
    /// # Errors
    /// The node could not be opened.
    pub(super) async fn run_all(self, share: &Share) -> Result<Vec<Reply>> {
        let steps = &self.steps;
        let done = async {
            routed!(share, self.path, |share, path| {
                let build = |tree, file| steps.iter().map(|step| step(tree, file)).collect();
                share.compound(path, self.open, self.replay, build).await
            })
        };
        match done.await {
            Ok(done) => Ok(done.replies),
            Err(Error::PeerRefused { status, .. }) => Err(Error::refused(self.op, status)),
            Err(error) => Err(error),
        }
    }

    /// Sends it; the answer to the last step.
    ///
    /// # Errors
    /// The first request that failed.
    pub(super) async fn run(self, share: &Share) -> Result<Reply> {
        let (op, expected) = (self.op, self.steps.len());
        let replies = self.run_all(share).await?;
        for reply in &replies {
            check(op, reply)?;
        }
        let in_part = || Error::PeerMisbehaved("a compound was answered in part".to_owned());
        match replies.len() == expected {
            true => replies.into_iter().next_back().ok_or_else(in_part),
            false => Err(in_part()),
        }
    }
}

/// The output of an IOCTL.
pub(super) fn ioctl_output(reply: &Reply) -> Result<&[u8]> {
    Ok(IoctlResponse::decode(&mut reply.body())?.output)
}

/// The information that a QUERY_INFO gave.
pub(super) fn information<I: FileInformation>(reply: &Reply) -> Result<I> {
    Ok(I::decode(output(reply)?)?)
}

/// The bytes that a QUERY_INFO gave.
pub(super) fn output(reply: &Reply) -> Result<&[u8]> {
    Ok(QueryInfoResponse::decode(&mut reply.body())?.output)
}
