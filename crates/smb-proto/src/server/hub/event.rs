//! What the hub has to say to its owner.

use std::sync::Arc;

use super::ids::{ConnectionId, FileKey, OpenId, WaiterId};
use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::{Guid, NtStatus, SessionId, Text};

/// Something to do, in order. A call queues at most one event for each waiter, lease and open it touches, so an owner
/// who drains the queue after each call bounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request may be executed again, as a whole, under the same [`WaiterId`]. Said once.
    Wake(WaiterId),
    /// A CHANGE_NOTIFY request is answered ([MS-SMB2] 3.3.4.4); `changes` only with `STATUS_SUCCESS`.
    NotifyReady {
        /// The request.
        waiter: WaiterId,
        /// Its status.
        status: NtStatus,
        /// What changed.
        changes: Vec<FileNotifyInformation>,
    },
    /// A right to cache is called back ([MS-SMB2] 3.3.4.6, 3.3.4.7).
    Break(BreakOrder),
    /// A durable open that nobody came back for is closed, or one that stood in another's way, or whose application has
    /// moved to another client. A [`Self::Wake`] that depends on it comes later.
    Expired(Closed),
}

/// A notification to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakOrder {
    /// Connections of the holder, the first one first; of a lease, those of all its opens. Where none can send, nothing
    /// is to be done: their loss is reported by `disconnect`, and there is a time limit.
    pub connections: Vec<ConnectionId>,
    /// Of a lease, the client that holds it: see [`Sessions::break_connection`](super::super::Sessions::break_connection).
    pub client: Option<Guid>,
    /// The session, for signing and sealing; its other channels serve as well.
    pub session: SessionId,
    /// What to say.
    pub notification: BreakNotification,
}

/// An open that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its number.
    pub open: OpenId,
    /// What was open.
    pub file: FileKey,
    /// Its share.
    pub share_id: u32,
    /// Its path, without the stream.
    pub path: Text,
    /// It was a folder.
    pub directory: bool,
    /// It was the last one, and this is to be deleted now.
    pub delete: Option<Deletion>,
}

/// What the last close deletes ([MS-FSA] 2.1.5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The stream, or with `stream` of `None` the file or folder.
    pub file: FileKey,
    /// The share it was marked in.
    pub share_id: u32,
    /// Its path, without the stream.
    pub path: Text,
    /// A folder.
    pub directory: bool,
    /// Who wanted it gone, whoever has closed it last.
    pub user: Arc<str>,
}
