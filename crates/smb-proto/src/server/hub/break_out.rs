//! Breaks on their way out, and what becomes of them ([MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.6.1, 3.3.6.3).

use std::collections::BTreeSet;

use super::caching::{H, Notice, R, level_of};
use super::event::{BreakOrder, Event};
use super::ids::{FileKey, Holder, LeaseName};
use super::{Hub, Timer};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::oplock_break::{
    BreakNotification, LeaseBreakFlags, LeaseBreakNotification, OplockBreak,
};

impl Hub {
    /// Takes from a holder all but `keep`, and tells it.
    pub(super) fn take_back(&mut self, now_ms: u64, holder: Holder, keep: LeaseState) {
        // There is nothing between an exclusive oplock and level II.
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
                // A chain of breaks is one change (smb2.lease.v2_breaking3).
                held.epoch = held.epoch.map(|epoch| epoch.wrapping_add(1));
            }
            self.tell(now_ms, holder, notice);
        }
        self.recount(holder);
    }

    /// An acknowledgment was taken: the next break of the chain, or the end of it.
    pub(super) fn acknowledged(&mut self, now_ms: u64, holder: Holder, next: Option<Notice>) {
        self.clear_timer(Timer::Break(holder));
        if let Some(notice) = next {
            self.tell(now_ms, holder, notice);
        }
        self.settled(now_ms, holder);
    }

    /// Time is up.
    pub(super) fn revoke(&mut self, now_ms: u64, holder: Holder) {
        if let Some(caching) = self.caching_mut(holder) {
            caching.revoke();
        }
        self.settled(now_ms, holder);
    }

    /// If the holder is not breaking any more, whoever waited for that goes on.
    pub(super) fn settled(&mut self, now_ms: u64, holder: Holder) {
        self.recount(holder);
        if !self.is_breaking(holder) {
            self.clear_timer(Timer::Break(holder));
        }
        let base = match holder {
            Holder::Oplock(open) => self.info(open).map(|info| info.file.base()),
            Holder::Lease(name) => {
                self.release_absent(now_ms, name);
                self.leases.get(name).map(|held| held.file.base())
            }
        };
        if let Some(base) = base {
            self.wake_settled(base);
        }
    }

    /// Without handle caching, opens of the lease whose connection is lost are not waited for any longer, though the
    /// lease has others.
    fn release_absent(&mut self, now_ms: u64, name: LeaseName) {
        let held = self
            .leases
            .get(name)
            .filter(|held| !held.caching.state.contains(H));
        let opens = held.into_iter().flat_map(|held| held.opens.iter().copied());
        let absent: Vec<_> = opens
            .filter(|open| self.info(*open).is_some_and(|info| info.connection.is_none()))
            .collect();
        for open in absent {
            self.give_up(now_ms, open);
        }
    }

    pub(super) fn is_breaking(&self, holder: Holder) -> bool {
        self.caching(holder)
            .is_some_and(|caching| caching.breaking.is_some())
    }

    fn tell(&mut self, now_ms: u64, holder: Holder, notice: Notice) {
        if notice.ack {
            let due = now_ms.saturating_add(self.limits.break_timeout_ms);
            self.set_timer(due, Timer::Break(holder));
        }
        if let Some(order) = self.order(holder, notice) {
            self.events.push_back(Event::Break(order));
        }
    }

    fn order(&self, holder: Holder, notice: Notice) -> Option<BreakOrder> {
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

    /// Readers that something is about to fool lose what they cached, and nobody waits for them: level II oplocks (also
    /// of who does it: smb2.oplock.levelii500) and the leases of others ([MS-FSA] 2.1.4.12).
    pub(super) fn disappoint_readers(&mut self, now_ms: u64, actor: Option<Holder>, file: &FileKey) {
        for holder in self.holders(file, R, None) {
            let state = self
                .caching(holder)
                .map_or(LeaseState::from_bits_retain(0), |caching| caching.state);
            let breaks = match holder {
                _ if state.is_empty() => false,
                Holder::Lease(_) => Some(holder) != actor,
                Holder::Oplock(_) => Some(holder) != actor || state == R,
            };
            if breaks && !self.purge_absent(now_ms, holder) {
                self.take_back(now_ms, holder, LeaseState::from_bits_retain(0));
            }
        }
    }
}
