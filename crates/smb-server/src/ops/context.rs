//! Context of a request's execution, and its possible outcomes.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_smb_proto::server::hub::{CountedRequest, OpenId, WaiterId};
use ropeway_smb_proto::server::{CompoundState, Connection, ReplyFrame, Request, Tree};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{FileId, Guid, NtStatus, Reader, SessionId, TreeId, Writer};

use ropeway_vfs::RelPath;

use super::deliver::deliver;
use crate::audit::Record;
use crate::share::Share;
use crate::state::SharedState;
use crate::state::figures::SessionFigures;
use crate::state::open::{Handle, Open};
use crate::state::workers::JobClass;
use crate::token::Token;

/// A request and everything that its execution may use.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Arc<SharedState>,
    pub(crate) protocol: &'a mut Connection,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) request: &'a Request,
    /// The tree, for commands that have one.
    pub(crate) tree: Option<&'a Tree>,
    /// The message, from its header on.
    pub(crate) message: &'a [u8],
    pub(crate) compound: &'a mut CompoundState,
    pub(crate) frame: &'a mut ReplyFrame,
    /// The hub's identifier of the request.
    pub(crate) waiter: WaiterId,
    /// The request is alone in its frame, so a worker may execute it.
    pub(crate) may_offload: bool,
    /// Also, its frame has its own buffer, which can be passed to a worker.
    pub(crate) may_offload_write: bool,
    /// The client has sent more, or waits for other replies.
    pub(crate) is_followed: bool,
    /// The request has waited and is executed again.
    pub(crate) is_retry: bool,
    /// What a thread prepares for the request, if it waits for that.
    pub(crate) prepared: Option<Prepared>,
    /// Which workers execute the request, if it does not do so at once.
    pub(crate) class: JobClass,
    /// Proof that the hub counts the request as in progress.
    pub(crate) ticket: Option<CountedRequest>,
    /// What the session's bytes are counted in.
    pub(crate) figures: &'a Arc<SessionFigures>,
}

/// What a thread has prepared for a waiting request; empty until it is there. It goes with the
/// request, whatever becomes of that.
pub(crate) type Prepared = Arc<Mutex<Option<Box<dyn Any + Send>>>>;

/// Work for a worker: fills the frame with the reply, which has this header.
pub(crate) type Job = Box<dyn FnOnce(ReplyFrame, Header, Option<SessionId>) -> ReplyFrame + Send>;

/// Work for a worker that also needs the message.
pub(crate) type WriteJob = Box<dyn FnOnce(&[u8], ReplyFrame, Header, Option<SessionId>) -> ReplyFrame + Send>;

/// How the execution of a request continues.
pub(crate) enum Execution {
    /// The reply is in the frame.
    Replied,
    /// The request waits; the hub knows the waiter.
    Pending,
    /// A worker executes it; with the reply's header, if that was made already.
    Offload(Option<Header>, Job),
    /// A worker executes it, and gets the frame of the request.
    OffloadWrite(WriteJob),
    /// The connection ends without a reply; the text says why.
    Disconnect(&'static str),
}

/// How a request continues, or the status that it fails with.
pub(crate) type Outcome = Result<Execution, NtStatus>;

impl<'a> Context<'a> {
    /// Returns a reader at the start of the body.
    pub(crate) fn body(&self) -> Reader<'a> {
        Reader::at(self.message, HEADER_LEN, "SMB2 request")
    }

    /// Decodes the body.
    pub(crate) fn decode<T>(
        &self,
        decode: impl FnOnce(&mut Reader<'a>) -> ropeway_smb_wire::Result<T>,
    ) -> Result<T, NtStatus> {
        decode(&mut self.body()).map_err(|fault| {
            tracing::debug!(peer = %self.peer, %fault, "malformed request");
            NtStatus::INVALID_PARAMETER
        })
    }

    /// Replies with success.
    pub(crate) fn reply(&mut self, body: impl FnOnce(&mut Writer<'_>)) -> Outcome {
        self.reply_with(NtStatus::SUCCESS, body)
    }

    /// Replies with a body and its status.
    pub(crate) fn reply_with(&mut self, status: NtStatus, body: impl FnOnce(&mut Writer<'_>)) -> Outcome {
        let header = self.protocol.reply(self.request, status);
        self.frame.push(&header, self.request.signer, body);
        Ok(Execution::Replied)
    }

    /// Replies with success in a tree that the request has created.
    pub(crate) fn reply_in(&mut self, tree: TreeId, body: impl FnOnce(&mut Writer<'_>)) -> Outcome {
        let mut header = self.protocol.reply(self.request, NtStatus::SUCCESS);
        header.target = Target::Sync(tree);
        self.frame.push(&header, self.request.signer, body);
        Ok(Execution::Replied)
    }

    pub(crate) fn session(&self) -> SessionId {
        self.request.session
    }

    /// Returns the file or pipe that a request names, which becomes the compound's.
    pub(crate) fn handle(&mut self, named: FileId) -> Result<Handle, NtStatus> {
        let id = self.compound.file(named);
        let fails = self.request.related && self.compound.file.is_none() && self.compound.status.is_error();
        if named == FileId::RELATED && fails {
            return Err(self.compound.status);
        }
        let (session, tree) = (self.session().0, self.request.tree.0);
        let handle = OpenId::from_file_id(id)
            .and_then(|id| self.shared.handle(id.get()))
            .filter(|handle| handle.belongs_to(session, tree))
            .ok_or(NtStatus::FILE_CLOSED)?;
        // Files of a removed share can only be closed.
        if self.request.header.command != Command::Close
            && handle.file().is_some()
            && self
                .tree
                .is_some_and(|tree| self.shared.share(tree.share).is_none())
        {
            return Err(NtStatus::NETWORK_NAME_DELETED);
        }
        self.compound.file = Some(id);
        self.count(&handle)?;
        Ok(handle)
    }

    /// Counts the request among those of its open ([MS-SMB2] 3.3.5.2.10).
    fn count(&mut self, handle: &Handle) -> Result<(), NtStatus> {
        let Handle::File(open) = handle else {
            return Ok(());
        };
        let mut hub = self.shared.hub();
        if self.protocol.dialect() < Dialect::Smb300 {
            hub.used(open.hub_id());
            return Ok(());
        }
        let modifies = matches!(
            self.request.header.command,
            Command::Write | Command::SetInfo | Command::Ioctl
        );
        let ticket =
            hub.check_sequence(open.hub_id(), self.channel_sequence(), modifies, self.is_replay())?;
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Returns the file that a request names.
    pub(crate) fn open(&mut self, named: FileId) -> Result<Arc<Open>, NtStatus> {
        match self.handle(named)? {
            Handle::File(open) => Ok(open),
            Handle::Pipe(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// Returns the `ClientGuid`.
    pub(crate) fn client(&self) -> Guid {
        self.protocol
            .negotiated()
            .map(|both| both.client_guid)
            .unwrap_or_default()
    }

    /// Returns `ChannelSequence`; 0 before 3.0 ([MS-SMB2] 3.3.5.2.10).
    pub(crate) fn channel_sequence(&self) -> u16 {
        match self.protocol.dialect() >= Dialect::Smb300 {
            true => self.request.header.channel_sequence(),
            false => 0,
        }
    }

    /// Whether the request was sent before on a lost channel.
    pub(crate) fn is_replay(&self) -> bool {
        self.request.header.flags.contains(HeaderFlags::REPLAY_OPERATION)
    }

    /// Returns the share of the request's tree; `None` for IPC$.
    pub(crate) fn share(&self) -> Option<Arc<Share>> {
        self.shared.share(self.tree?.share)
    }

    /// Whether the tree's share is that of a far server, so that calls of its store may take long.
    pub(crate) fn is_far(&self) -> bool {
        self.share().is_some_and(|share| share.far)
    }

    /// Lets a thread make a reply that may have to wait for a far server, if a thread may.
    pub(crate) fn reply_from_afar<T>(
        &mut self,
        work: impl FnOnce() -> Result<T, NtStatus> + Send + 'static,
        body: impl Fn(&T, &mut Writer<'_>) + Send + 'static,
    ) -> Outcome {
        if !self.may_offload || !self.is_far() {
            let done = work()?;
            return self.reply(|w| body(&done, w));
        }
        let shared = Arc::clone(self.shared);
        Ok(Execution::Offload(
            None,
            Box::new(move |mut frame, header, signer| {
                match work() {
                    Ok(done) => frame.push(&header, signer, |w| body(&done, w)),
                    Err(status) => frame.push_error(&Header { status, ..header }, signer),
                }
                deliver(&shared);
                frame
            }),
        ))
    }

    /// Returns the token of the session.
    pub(crate) fn token(&self) -> Result<Arc<Token>, NtStatus> {
        self.shared
            .token(self.session())
            .ok_or(NtStatus::USER_SESSION_DELETED)
    }

    /// Writes an audit record about a change of an open.
    pub(crate) fn record_of(&self, action: &'static str, open: &Open, status: NtStatus) {
        self.record(action, Some(&open.share.name), Some(&open.path()), None, status);
    }

    /// Writes an audit record, if there is a receiver.
    pub(crate) fn record(
        &self,
        action: &'static str,
        share: Option<&str>,
        path: Option<&RelPath>,
        target: Option<&RelPath>,
        status: NtStatus,
    ) {
        if self.shared.audit.is_none() {
            return;
        }
        let token = self.shared.token(self.session());
        self.shared.record(&Record {
            action,
            peer: Some(self.peer),
            user: token.as_deref().map(|token| token.name.as_str()),
            share,
            path: path.map(RelPath::to_string).as_deref(),
            target: target.map(RelPath::to_string).as_deref(),
            status,
        });
    }
}
