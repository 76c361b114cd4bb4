//! A builder for operations on one node in one round trip: CREATE, some requests, CLOSE.
//!
//! The share handles DFS, lost connections, and servers that take no compounds.

use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::info::FileInformation;
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::query_info::{QueryInfoResponse, SecurityInformation};
use ropeway_smb_wire::{FileId, Text, TreeId};

use crate::dfs::routed;
use crate::error::{Error, Result};
use crate::open::OpenFile;
use crate::ops;
use crate::replies::check;
use crate::share::Share;
use crate::tree::Replay;

/// Builds one request on the opened file, anew for each attempt.
type Step = Box<dyn Fn(TreeId, FileId) -> Operation + Send + Sync>;

/// Opens a node, runs requests on it, and closes it.
pub(crate) struct Compound<'a> {
    op: &'static str,
    path: &'a Text,
    open: &'a OpenFile,
    replay: Replay,
    steps: Vec<Step>,
}

impl<'a> Compound<'a> {
    /// Starts with CREATE. Errors name `op` as the attempted operation. The compound may run twice
    /// unless [`once`](Self::once) is called.
    pub(crate) fn open(op: &'static str, path: &'a Text, open: &'a OpenFile) -> Self {
        Self {
            op,
            path,
            open,
            replay: Replay::Safe,
            steps: Vec::new(),
        }
    }

    /// Forbids a repetition: after a lost connection the outcome is unknown.
    pub(crate) fn once(mut self) -> Self {
        self.replay = Replay::Once;
        self
    }

    /// Adds a step.
    pub(crate) fn and(mut self, step: impl Fn(TreeId, FileId) -> Operation + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    pub(crate) fn set<I: FileInformation + Clone + Send + Sync + 'static>(self, information: &I) -> Self {
        let information = information.clone();
        self.and(move |tree, file| ops::set_file(tree, file, &information))
    }

    pub(crate) fn query<I: FileInformation>(self, output_max: u32) -> Self {
        self.and(move |tree, file| ops::query_file::<I>(tree, file, output_max))
    }

    pub(crate) fn query_security(self, what: SecurityInformation, output_max: u32) -> Self {
        self.and(move |tree, file| ops::query_security(tree, file, what, output_max))
    }

    pub(crate) fn set_security(self, what: SecurityInformation, descriptor: Vec<u8>) -> Self {
        self.and(move |tree, file| ops::set_security(tree, file, what, &descriptor))
    }

    pub(crate) fn ioctl(self, code: CtlCode, input: Vec<u8>, output_max: u32) -> Self {
        self.and(move |tree, file| ops::ioctl(tree, file, code, &input, output_max))
    }

    pub(crate) fn flush(self) -> Self {
        self.and(ops::flush)
    }

    /// Sends the compound and returns the reply to each step, failed or not. With a server that
    /// takes no compounds it stops at the first failure.
    ///
    /// # Errors
    /// The error of the CREATE.
    pub(crate) async fn run_all(self, share: &Share) -> Result<Vec<Reply>> {
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

    /// Sends the compound and returns the reply to the last step.
    ///
    /// # Errors
    /// The first request that failed.
    pub(crate) async fn run(self, share: &Share) -> Result<Reply> {
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

/// Returns the output of an IOCTL.
pub(crate) fn ioctl_output(reply: &Reply) -> Result<&[u8]> {
    Ok(IoctlResponse::decode(&mut reply.body())?.output)
}

/// Decodes the information in the reply to a QUERY_INFO.
pub(crate) fn information<I: FileInformation>(reply: &Reply) -> Result<I> {
    Ok(I::decode(output(reply)?)?)
}

/// Returns the bytes in the reply to a QUERY_INFO.
pub(crate) fn output(reply: &Reply) -> Result<&[u8]> {
    Ok(QueryInfoResponse::decode(&mut reply.body())?.output)
}
