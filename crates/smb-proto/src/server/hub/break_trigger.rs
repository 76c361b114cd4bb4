//! The breaks that operations on open files cause ([MS-FSA] 2.1.4.12, [MS-SMB2] 3.3.5.12 to
//! 3.3.5.21).

use std::time::Duration;

use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{LeaseKey, NtStatus, Text};

use super::Hub;
use super::caching::{H, NONE, R, W, valid};
use super::ids::{BaseKey, FileKey, Holder, OpenId, WaiterId};
use super::wait_queue::Wait;

/// An operation that may break the caching of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakTrigger {
    /// Reads the content.
    Read,
    /// Changes the content or the length.
    Write,
    /// Renames the file, or adds a name.
    Rename,
    /// Marks the file for deletion.
    Delete,
    /// Gives the file's name to another file. If the file is still open afterwards, the operation
    /// fails with `STATUS_ACCESS_DENIED` (smb2.lease.v2_rename_target_overwrite).
    Replace,
}

/// Whether the operation may proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakOutcome {
    /// It may proceed now.
    Ready,
    /// Execute the whole request again after [`super::Event::Wake`].
    Wait,
    /// It fails.
    Refused(NtStatus),
}

impl Hub {
    /// Breaks the caching that conflicts with an operation on `file`. `open` is the open of the
    /// operation, `None` for a local process. LOCK does not need this call, see [`Self::lock`].
    pub fn break_caching(
        &mut self,
        now: Duration,
        open: Option<OpenId>,
        file: &FileKey,
        why: BreakTrigger,
        waiter: WaiterId,
    ) -> BreakOutcome {
        if self.is_alone(open, file, why) {
            return BreakOutcome::Ready;
        }
        self.stop_waiting(waiter);
        let actor = open
            .and_then(|open| self.tables.opens.get(&open))
            .map(Self::holder);
        match why {
            BreakTrigger::Read => self.break_and_wait(now, actor, file, W, waiter),
            BreakTrigger::Rename | BreakTrigger::Delete | BreakTrigger::Replace => {
                self.break_and_wait(now, actor, file, H, waiter)
            }
            BreakTrigger::Write => {
                let outcome = self.break_and_wait(now, actor, file, W, waiter);
                if outcome == BreakOutcome::Ready {
                    self.break_read_caching(now, actor, file);
                }
                outcome
            }
        }
    }

    /// Returns whether no other open exists and no level II oplock breaks. This is the common case
    /// and is decided quickly.
    fn is_alone(&self, open: Option<OpenId>, file: &FileKey, why: BreakTrigger) -> bool {
        let Some(stream) = self.tables.stream(file) else {
            return true;
        };
        let (Some(only), Some(open)) = (stream.summary.only(), open) else {
            return false;
        };
        let open = self.tables.opens.get(&only).filter(|_| only == open);
        open.is_some_and(|open| why != BreakTrigger::Write || open.oplock.state != R)
    }

    /// Prepares the rename of a folder by `open`: every open beneath it must go. Opens that cache
    /// their handles are asked to, one after the other. For other opens waiting is useless
    /// (smb2.lease.rename_dir_openfile).
    pub fn break_beneath(
        &mut self,
        now: Duration,
        open: Option<OpenId>,
        share_id: u32,
        folder: &Text,
        waiter: WaiterId,
    ) -> BreakOutcome {
        self.stop_waiting(waiter);
        let beneath: Vec<_> = self.tables.beneath(share_id, &fold(folder)).collect();
        let mut asks = None;
        for id in beneath.into_iter().filter(|id| Some(*id) != open) {
            let Some(other) = self.tables.opens.get(&id) else {
                continue;
            };
            let (holder, file) = (Self::holder(other), other.info.file.clone());
            if self.purge_absent(now, holder) {
                continue;
            }
            if !self
                .caching(holder)
                .is_some_and(|caching| caching.state.contains(H))
            {
                return BreakOutcome::Refused(NtStatus::ACCESS_DENIED);
            }
            asks.get_or_insert(file);
        }
        match asks {
            None => BreakOutcome::Ready,
            Some(file) => self.break_and_wait(now, None, &file, H, waiter),
        }
    }

    /// Breaks the handle caching of others without waiting.
    pub(super) fn break_without_waiting(&mut self, now: Duration, actor: Holder, file: &FileKey) {
        for holder in self.holders(file, H, Some(actor)) {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            if state.contains(H) && !self.purge_absent(now, holder) {
                self.start_break(now, holder, valid(state.difference(H)));
            }
        }
    }

    /// Breaks the leases on `folder` after an open added, removed or changed an entry. Leases with
    /// the key that the open named as its parent's are exempt, whichever client holds them: only
    /// keys are compared ([MS-FSA] 2.1.4.12.2; smb2.dirlease.seteof).
    pub fn break_folder_leases(&mut self, now: Duration, known_to: Option<LeaseKey>, folder: &FileKey) {
        for holder in self.holders(folder, R, None) {
            let is_known =
                matches!(holder, Holder::Lease(name) if known_to.is_some_and(|key| key == name.key));
            if !is_known && !self.purge_absent(now, holder) {
                self.start_break(now, holder, NONE);
            }
        }
    }

    /// Handles a change that a local process made to a file, one of its streams, its names, or a
    /// folder's entries. The change is done already, so nothing waits, and nothing cached is valid
    /// any more. All caching breaks, as for a write by another client ([MS-FSA] 2.1.4.12).
    pub fn changed_locally(&mut self, now: Duration, share_volume: u64, index: u64) {
        for file in self.streams_of(share_volume, index) {
            self.break_read_caching(now, None, &file);
        }
    }

    /// Whether a client has yet to acknowledge a break of its caching of a file or a stream of it.
    pub fn awaits_acknowledgment(&self, share_volume: u64, index: u64) -> bool {
        let files = self.streams_of(share_volume, index);
        let mut holders = files.iter().flat_map(|file| self.holders(file, R, None));
        holders.any(|holder| self.is_breaking(holder))
    }

    /// Returns the keys of an open file and its open streams.
    fn streams_of(&self, share_volume: u64, index: u64) -> Vec<FileKey> {
        let key = BaseKey {
            volume: share_volume,
            index,
        };
        let streams = self.tables.bases.get(&key).map_or(&[][..], |base| &base.streams);
        streams
            .iter()
            .map(|stream| FileKey {
                share_volume,
                index,
                stream: stream.name.clone(),
            })
            .collect()
    }

    /// Breaks `demanded` for all holders but the actor, and waits for their acknowledgments.
    pub(super) fn break_and_wait(
        &mut self,
        now: Duration,
        actor: Option<Holder>,
        file: &FileKey,
        demanded: LeaseState,
        waiter: WaiterId,
    ) -> BreakOutcome {
        let mut waits = Vec::new();
        for holder in self.holders(file, demanded, actor) {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            if !state.intersects(demanded) || self.purge_absent(now, holder) {
                continue;
            }
            self.start_break(now, holder, valid(state.difference(demanded)));
            waits.push(holder);
        }
        if waits.is_empty() {
            return BreakOutcome::Ready;
        }
        let wait = Wait::Breaks {
            base: file.base(),
            holders: waits,
        };
        match self.wait(waiter, wait) {
            true => BreakOutcome::Wait,
            false => BreakOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES),
        }
    }
}
