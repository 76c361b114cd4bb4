//! The events that the hub reports to its owner.

use std::sync::Arc;

use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, SessionId, Text};

use super::ids::{ConnectionId, FileKey, OpenId, WaiterId};

/// Something to do, in order. One call queues at most one event for each waiter, lease and open it
/// affects. Draining the queue after each call therefore bounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Execute the request again, as a whole, under the same [`WaiterId`]. Reported once.
    Wake(WaiterId),
    /// Answer a CHANGE_NOTIFY request ([MS-SMB2] 3.3.4.4). `changes` are present only with
    /// `STATUS_SUCCESS`.
    NotifyReady {
        /// The request.
        waiter: WaiterId,
        /// The status of the response.
        status: NtStatus,
        /// The changes.
        changes: Vec<FileNotifyInformation>,
    },
    /// Send an oplock or lease break ([MS-SMB2] 3.3.4.6, 3.3.4.7).
    Break(BreakOrder),
    /// A durable open was closed: its client did not return in time, it was in the way of another
    /// open, or its application has moved to another client. A [`Self::Wake`] that depends on the
    /// close follows it.
    Expired(Closed),
}

/// A break notification to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakOrder {
    /// Connections of the holder, oldest open first; for a lease, those of all its opens. If none
    /// of them can send, do nothing: their loss is reported by `disconnect`, and the break has a
    /// timeout.
    pub connections: Vec<ConnectionId>,
    /// For a lease, the client that holds it: see
    /// [`Sessions::break_connection`](super::super::Sessions::break_connection).
    pub client: Option<Guid>,
    /// The session that signs and seals the message. Its other channels may send it as well.
    pub session: SessionId,
    /// The message.
    pub notification: BreakNotification,
}

/// An open that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its id.
    pub open: OpenId,
    /// The file.
    pub file: FileKey,
    /// The share.
    pub share_id: u32,
    /// The path, without the stream.
    pub path: Text,
    /// Whether it is a folder.
    pub directory: bool,
    /// What to delete now, if this was the last open of a file marked for deletion.
    pub delete: Option<Deletion>,
}

/// The file to delete at its last close ([MS-FSA] 2.1.5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The stream; with `stream` of `None`, the whole file or folder.
    pub file: FileKey,
    /// The share through which it was marked.
    pub share_id: u32,
    /// The path, without the stream.
    pub path: Text,
    /// Whether it is a folder.
    pub directory: bool,
    /// The user who marked it, regardless of who closed it last.
    pub user: Arc<str>,
    /// The lease on the parent folder whose holder knows of the deletion: the one that both the open
    /// that marked the file and the last open name (smb2.dirlease.unlink_same_set_and_close).
    pub parent_lease: Option<LeaseKey>,
}
