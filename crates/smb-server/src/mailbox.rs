//! How other threads reach the one that serves a connection.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::oplock_break::BreakNotification;
use rustix::event::{EventfdFlags, eventfd};

/// Something for a connection.
pub(super) enum Message {
    /// What a request waited for has come: execute it again.
    Wake(u64),
    /// A folder has changed, or is no longer watched.
    Notify(u64, NtStatus, Vec<FileNotifyInformation>),
    /// An oplock or lease is to be given up.
    Break(SessionId, BreakNotification),
    /// A request was executed elsewhere: its reply, and the buffer that it came in.
    Done(u64, ReplyFrame, Option<Vec<u8>>),
    /// A session ended on another connection.
    Ended(SessionId),
    /// The server stops, or the connection is not wanted any more.
    Stop,
    /// End the connection for a newer one, unless somebody has logged in meanwhile.
    Crowded,
}

/// Messages for one connection. Bounded by what its own requests, opens and sessions can cause.
pub(super) struct Mailbox {
    queue: Mutex<VecDeque<Message>>,
    wake: OwnedFd,
    /// The client.
    pub(super) client: IpAddr,
    /// When the connection's last request came, by the server's clock in milliseconds.
    used_ms: AtomicU64,
}

impl Mailbox {
    pub(super) fn new(client: IpAddr, now_ms: u64) -> std::io::Result<Self> {
        Ok(Self {
            client,
            used_ms: AtomicU64::new(now_ms),
            queue: Mutex::default(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// A request has come.
    pub(super) fn used(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When the last request came.
    pub(super) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message and wakes the owner.
    pub(super) fn send(&self, message: Message) {
        let was_empty = {
            let mut queue = self.lock();
            queue.push_back(message);
            queue.len() == 1
        };
        if was_empty {
            // Fails only when the counter is full, and then the owner is woken anyway.
            _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// The oldest message.
    pub(super) fn take(&self) -> Option<Message> {
        self.lock().pop_front()
    }

    /// Takes back the wake-up, before the queue is emptied.
    pub(super) fn clear(&self) {
        _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }

    /// What is readable when there are messages.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Brings a job's reply to the connection. Without one, because the job panicked, the connection ends.
pub(super) struct Answer {
    number: u64,
    mailbox: Arc<Mailbox>,
    is_sent: bool,
}

impl Answer {
    pub(super) fn of(number: u64, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            number,
            mailbox: Arc::clone(mailbox),
            is_sent: false,
        }
    }

    pub(super) fn send(mut self, reply: ReplyFrame, buffer: Option<Vec<u8>>) {
        self.is_sent = true;
        self.mailbox.send(Message::Done(self.number, reply, buffer));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_sent {
            self.mailbox.send(Message::Stop);
        }
    }
}
