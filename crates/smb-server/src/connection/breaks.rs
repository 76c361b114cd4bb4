//! Break notifications that may not arrive ([MS-SMB2] 3.3.4.6, 3.3.4.7).
//!
//! If a notification cannot be sent, the server must try another channel of the session. A channel
//! whose network path is gone takes everything, so the system is told to give the connection up if the
//! notification is not acknowledged soon. What the connection may not have delivered then goes to the
//! next channel.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::oplock_break::BreakNotification;
use rustix::net::sockopt;

/// Time in which a notification must be acknowledged by the client's system, if the session has other
/// channels. Several channels can be tried before the break times out (a guess;
/// smb2.multichannel.oplocks.test3_specification wants more than three).
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// The same if there is no other channel: within the time of the break, like Windows, whose TCP gives
/// up after about 20 s (a guess; smb2.oplock.batch22b).
const UNACKNOWLEDGED_ALONE_MAX: Duration = Duration::from_secs(20);
/// Maximum number of notifications that are remembered. A guess: one for each file that a large job
/// has open.
const REMEMBERED_MAX: usize = 256;

/// The notifications that were sent lately.
#[derive(Debug, Default)]
pub(super) struct SentBreaks {
    recent: VecDeque<(Instant, SessionId, BreakNotification)>,
    /// When the system's time limit is lifted again.
    guarded_until: Option<Instant>,
}

impl SentBreaks {
    /// Notes a notification that is sent now, and limits the time for its acknowledgment.
    pub(super) fn sent(
        &mut self,
        socket: BorrowedFd<'_>,
        session: SessionId,
        notification: BreakNotification,
        has_other_channels: bool,
    ) {
        let limit = match has_other_channels {
            true => UNACKNOWLEDGED_MAX,
            false => UNACKNOWLEDGED_ALONE_MAX,
        };
        let now = Instant::now();
        self.forget_old(now);
        if self.recent.len() >= REMEMBERED_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, session, notification));
        // Without it the break times out in the end.
        _ = sockopt::set_tcp_user_timeout(socket, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        self.guarded_until = Some(now + limit);
    }

    /// Lifts the time limit when it is over, so that it does not concern what is sent later.
    pub(super) fn lift_limit(&mut self, socket: BorrowedFd<'_>) {
        if self.guarded_until.is_some_and(|until| Instant::now() > until) {
            self.guarded_until = None;
            _ = sockopt::set_tcp_user_timeout(socket, 0);
        }
    }

    /// Returns the notifications that the lost connection may not have delivered.
    pub(super) fn undelivered(&mut self) -> impl Iterator<Item = (SessionId, BreakNotification)> + use<'_> {
        self.forget_old(Instant::now());
        self.recent
            .drain(..)
            .map(|(_, session, notification)| (session, notification))
    }

    /// Forgets those that have been acknowledged, since the connection lives.
    fn forget_old(&mut self, now: Instant) {
        // The system looks at the time only when it sends again, so it may take a little longer.
        let age_max = UNACKNOWLEDGED_ALONE_MAX + UNACKNOWLEDGED_MAX;
        while self
            .recent
            .front()
            .is_some_and(|(sent, ..)| now - *sent > age_max)
        {
            self.recent.pop_front();
        }
    }
}
