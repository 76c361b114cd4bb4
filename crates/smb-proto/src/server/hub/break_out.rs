//! Oplock and lease breaks: sending them, and handling their end ([MS-SMB2] 3.3.4.6, 3.3.4.7,
//! 3.3.6.1, 3.3.6.3).

use std::collections::BTreeSet;
use std::time::Duration;

use ropeway_smb_wire::Guid;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::oplock_break::{
    BreakNotification, LeaseBreakFlags, LeaseBreakNotification, OplockBreak,
};

use super::caching::{BreakNotice, H, NONE, R, level_of, state_of};
use super::event::{BreakOrder, Event};
use super::ids::{FileKey, Holder, LeaseName, OpenId};
use super::{Hub, Timer};

impl Hub {
    /// Starts a break that leaves the holder at most `keep`, and notifies it.
    pub(super) fn start_break(&mut self, now: Duration, holder: Holder, keep: LeaseState) {
        // An exclusive oplock can only break to level II or to none.
        let keep = match holder {
            Holder::Oplock(_) => keep & R,
            Holder::Lease(_) => keep,
        };
        let Some(caching) = self.caching_mut(holder) else {
            return;
        };
        if let Some(notice) = caching.break_to(keep) {
            if let Holder::Lease(name) = holder
                && let Some(held) = self.leases.get_mut(name)
            {
                // A chain of breaks counts as one change (smb2.lease.v2_breaking3).
                held.epoch = held.epoch.map(|epoch| epoch.wrapping_add(1));
            }
            self.send_break(now, holder, notice);
        }
        self.update_caching(holder);
    }

    /// Handles an accepted acknowledgment: sends the next break of the chain, or ends the break.
    pub(super) fn break_acknowledged(&mut self, now: Duration, holder: Holder, next: Option<BreakNotice>) {
        self.clear_timer(Timer::Break(holder));
        if let Some(notice) = next {
            self.send_break(now, holder, notice);
        }
        self.break_ended(now, holder);
    }

    /// Ends a break whose acknowledgment did not arrive in time.
    pub(super) fn revoke(&mut self, now: Duration, holder: Holder) {
        if let Some(caching) = self.caching_mut(holder) {
            caching.revoke();
        }
        self.break_ended(now, holder);
    }

    /// Wakes the requests that wait for the holder, if its break has ended.
    pub(super) fn break_ended(&mut self, now: Duration, holder: Holder) {
        self.update_caching(holder);
        if !self.is_breaking(holder) {
            self.clear_timer(Timer::Break(holder));
        }
        let base = match holder {
            Holder::Oplock(open) => self.info(open).map(|info| info.file.base()),
            Holder::Lease(name) => {
                self.release_absent(now, name);
                self.leases.get(name).map(|held| held.file.base())
            }
        };
        if let Some(base) = base {
            self.wake_after_breaks(base);
        }
    }

    /// Closes the durable opens of a lease that have no connection once the lease has no handle
    /// caching, even if the lease has other opens.
    fn release_absent(&mut self, now: Duration, name: LeaseName) {
        let held = self
            .leases
            .get(name)
            .filter(|held| !held.caching.state.contains(H));
        let opens = held.into_iter().flat_map(|held| held.opens.iter().copied());
        let absent: Vec<_> = opens.filter(|open| self.is_disposable(*open)).collect();
        for open in absent {
            self.close_absent(now, open);
        }
    }

    pub(super) fn is_breaking(&self, holder: Holder) -> bool {
        self.caching(holder)
            .is_some_and(|caching| caching.breaking.is_some())
    }

    /// Returns whether the client still has to learn of a break: its acknowledgment is awaited, or it
    /// needs none and nothing may be cached. `client` is the client's identifier.
    pub fn is_unanswered(&self, client: Guid, notification: &BreakNotification) -> bool {
        let (holder, to) = match notification {
            BreakNotification::Oplock(oplock) => {
                let Some(open) = OpenId::from_file_id(oplock.file_id) else {
                    return false;
                };
                (Holder::Oplock(open), state_of(oplock.oplock_level))
            }
            BreakNotification::Lease(lease) => {
                let key = lease.lease_key;
                (Holder::Lease(LeaseName { client, key }), lease.new_lease_state)
            }
        };
        self.caching(holder)
            .is_some_and(|caching| match caching.breaking {
                Some(breaking) => breaking.requested == to,
                None => caching.state == NONE && to == NONE,
            })
    }

    pub(super) fn send_break(&mut self, now: Duration, holder: Holder, notice: BreakNotice) {
        if notice.ack {
            let due = now.saturating_add(Duration::from_millis(self.limits.break_timeout_ms));
            self.set_timer(due, Timer::Break(holder));
        }
        match self.break_order(holder, notice) {
            Some(order) => self.events.push_back(Event::Break(order)),
            None => self.keep_break(holder),
        }
    }

    fn break_order(&self, holder: Holder, notice: BreakNotice) -> Option<BreakOrder> {
        let (opens, notification) = match holder {
            Holder::Oplock(open) => (
                vec![open],
                BreakNotification::Oplock(OplockBreak {
                    oplock_level: level_of(notice.to),
                    file_id: open.file_id(),
                }),
            ),
            Holder::Lease(name) => {
                let held = self.leases.get(name)?;
                let flags = if notice.ack {
                    LeaseBreakFlags::ACK_REQUIRED
                } else {
                    LeaseBreakFlags::default()
                };
                let notification = BreakNotification::Lease(LeaseBreakNotification {
                    new_epoch: held.epoch.unwrap_or(0),
                    flags,
                    lease_key: name.key,
                    current_lease_state: notice.from,
                    new_lease_state: notice.to,
                });
                (held.opens.iter().copied().collect(), notification)
            }
        };
        let infos = opens.iter().filter_map(|open| self.info(*open));
        let live: Vec<_> = infos
            .filter_map(|info| Some((info.connection?, info.session)))
            .collect();
        let (_, session) = *live.first()?;
        let mut seen = BTreeSet::new();
        let connections = live.iter().map(|(connection, _)| *connection);
        let client = match holder {
            Holder::Oplock(_) => None,
            Holder::Lease(name) => Some(name.client),
        };
        Some(BreakOrder {
            client,
            connections: connections
                .filter(|connection| seen.insert(*connection))
                .collect(),
            session,
            notification,
        })
    }

    /// Breaks the read caching that an operation invalidates, without waiting: level II oplocks,
    /// including the actor's own (smb2.oplock.levelii500), and the leases of others ([MS-FSA]
    /// 2.1.4.12).
    pub(super) fn break_read_caching(&mut self, now: Duration, actor: Option<Holder>, file: &FileKey) {
        for holder in self.holders(file, R, None) {
            let state = self
                .caching(holder)
                .map_or(LeaseState::from_bits_retain(0), |caching| caching.state);
            let breaks = match holder {
                _ if state.is_empty() => false,
                Holder::Lease(_) => Some(holder) != actor,
                Holder::Oplock(_) => Some(holder) != actor || state == R,
            };
            if breaks && !self.purge_absent(now, holder) {
                self.start_break(now, holder, LeaseState::from_bits_retain(0));
            }
        }
    }
}
