//! Messages from other threads to the thread of a connection.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::oplock_break::BreakNotification;
use rustix::event::{EventfdFlags, eventfd};

/// A message to a connection.
pub(crate) enum Message {
    /// What a request waited for has happened: execute it again.
    Retry(u64),
    /// A watched folder has changed or is no longer watched.
    ChangeNotify(u64, NtStatus, Vec<FileNotifyInformation>),
    /// A break notification for an oplock or lease.
    Break(SessionId, BreakNotification),
    /// A worker has executed a request: the response, and the buffer of the request.
    JobDone(u64, ReplyFrame, Option<Vec<u8>>),
    /// A session ended on another connection.
    SessionEnded(SessionId),
    /// End the connection: the server stops, or a job of it panicked.
    Stop,
    /// End the connection to make room for a newer one, unless it has a login by now.
    Evict,
}

/// Messages to one connection. Its own requests, opens and sessions bound their number.
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Message>>,
    wake: OwnedFd,
    /// Address of the client.
    pub(crate) peer: SocketAddr,
    /// Time of the last request by the server's clock, in milliseconds.
    used_ms: AtomicU64,
    /// Names of the protocol and its signatures that the client speaks instead of SMB 2.
    foreign: OnceLock<(&'static str, &'static str)>,
}

impl Mailbox {
    pub(crate) fn new(peer: SocketAddr, now: Duration) -> std::io::Result<Self> {
        Ok(Self {
            peer,
            used_ms: AtomicU64::new(millis(now)),
            foreign: OnceLock::new(),
            queue: Mutex::default(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Records that the client speaks another protocol than SMB 2.
    pub(crate) fn set_foreign(&self, name: &'static str, signing: &'static str) {
        _ = self.foreign.set((name, signing));
    }

    /// Returns the names of the protocol and its signatures that the client speaks; `None` for SMB 2.
    pub(crate) fn foreign(&self) -> Option<(&'static str, &'static str)> {
        self.foreign.get().copied()
    }

    /// Records the time of a request.
    pub(crate) fn used(&self, now: Duration) {
        self.used_ms.store(millis(now), Ordering::Relaxed);
    }

    /// Returns the time of the last request.
    pub(crate) fn used_at(&self) -> Duration {
        Duration::from_millis(self.used_ms.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.queue.lock()
    }

    /// Queues a message and wakes the thread.
    pub(crate) fn send(&self, message: Message) {
        let was_empty = {
            let mut queue = self.lock();
            queue.push_back(message);
            queue.len() == 1
        };
        if was_empty {
            // This fails only if the counter is full, and then the thread is woken anyway.
            _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Takes the oldest message.
    pub(crate) fn take(&self) -> Option<Message> {
        self.lock().pop_front()
    }

    /// Resets the wake-up before the queue is emptied.
    pub(crate) fn clear(&self) {
        _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }

    /// Returns the descriptor that is readable while there are messages.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Sends a job's response to the connection. If it is dropped instead, because the job panicked,
/// the connection ends.
pub(crate) struct JobReply {
    number: u64,
    mailbox: Arc<Mailbox>,
    is_sent: bool,
}

impl JobReply {
    pub(crate) fn of(number: u64, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            number,
            mailbox: Arc::clone(mailbox),
            is_sent: false,
        }
    }

    pub(crate) fn send(mut self, reply: ReplyFrame, buffer: Option<Vec<u8>>) {
        self.is_sent = true;
        self.mailbox.send(Message::JobDone(self.number, reply, buffer));
    }
}

impl Drop for JobReply {
    fn drop(&mut self) {
        if !self.is_sent {
            self.mailbox.send(Message::Stop);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
