//! What operations on open files take from those who cache ([MS-FSA] 2.1.4.12, [MS-SMB2] 3.3.5.12 to 3.3.5.21).

use super::Hub;
use super::caching::{H, NONE, R, W, valid};
use super::ids::{BaseKey, FileKey, Holder, LeaseName, OpenId, WaiterId};
use super::wait::Wait;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{NtStatus, Text};

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Content is read.
    Read,
    /// Content or length changes.
    Write,
    /// It is renamed, or gets another name.
    Rename,
    /// It is marked for deletion.
    Delete,
    /// Another file takes its name; if it is still open afterwards, that is `STATUS_ACCESS_DENIED`
    /// (smb2.lease.v2_rename_target_overwrite).
    Replace,
}

/// Whether it may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// Now.
    Ready,
    /// After [`super::Event::Wake`], when the whole request is executed again.
    Wait,
    /// Not at all.
    Refused(NtStatus),
}

impl Hub {
    /// Makes room for an operation on `file`, by `open` if it is by one of SMB's; a local program's has none. Locks make
    /// room by themselves, see [`Self::lock`].
    pub fn touch(
        &mut self,
        now_ms: u64,
        open: Option<OpenId>,
        file: &FileKey,
        why: Touch,
        waiter: WaiterId,
    ) -> TouchOutcome {
        if self.is_alone(open, file, why) {
            return TouchOutcome::Ready;
        }
        self.unwait(waiter);
        let actor = open
            .and_then(|open| self.tables.opens.get(&open))
            .map(Self::holder);
        match why {
            Touch::Read => self.demand(now_ms, actor, file, W, waiter),
            Touch::Rename | Touch::Delete | Touch::Replace => self.demand(now_ms, actor, file, H, waiter),
            Touch::Write => {
                let outcome = self.demand(now_ms, actor, file, W, waiter);
                if outcome == TouchOutcome::Ready {
                    self.disappoint_readers(now_ms, actor, file);
                }
                outcome
            }
        }
    }

    /// The usual case, found out quickly: nobody else has it open, and there is no level II oplock to lose.
    fn is_alone(&self, open: Option<OpenId>, file: &FileKey, why: Touch) -> bool {
        let Some(stream) = self.tables.stream(file) else {
            return true;
        };
        let (Some(only), Some(open)) = (stream.crowd.only(), open) else {
            return false;
        };
        let open = self.tables.opens.get(&only).filter(|_| only == open);
        open.is_some_and(|open| why != Touch::Write || open.oplock.state != R)
    }

    /// Makes room for the renaming of a folder by `open`: whatever is open beneath it has to go. Whoever may cache its
    /// handle is asked to, one after the other; for others there is no use in waiting
    /// (smb2.lease.rename_dir_openfile).
    pub fn touch_beneath(
        &mut self,
        now_ms: u64,
        open: Option<OpenId>,
        share_id: u32,
        folder: &Text,
        waiter: WaiterId,
    ) -> TouchOutcome {
        self.unwait(waiter);
        let beneath: Vec<_> = self.tables.beneath(share_id, &fold(folder)).collect();
        let mut asks = None;
        for id in beneath.into_iter().filter(|id| Some(*id) != open) {
            let Some(other) = self.tables.opens.get(&id) else {
                continue;
            };
            let (holder, file) = (Self::holder(other), other.info.file.clone());
            if self.purge_absent(now_ms, holder) {
                continue;
            }
            if !self
                .caching(holder)
                .is_some_and(|caching| caching.state.contains(H))
            {
                return TouchOutcome::Refused(NtStatus::ACCESS_DENIED);
            }
            asks.get_or_insert(file);
        }
        match asks {
            None => TouchOutcome::Ready,
            Some(file) => self.demand(now_ms, None, &file, H, waiter),
        }
    }

    /// Takes handle caching from others, and does not wait.
    pub(super) fn demand_unheard(&mut self, now_ms: u64, actor: Holder, file: &FileKey) {
        for holder in self.holders(file, H, Some(actor)) {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            if state.contains(H) && !self.purge_absent(now_ms, holder) {
                self.take_back(now_ms, holder, valid(state.difference(H)));
            }
        }
    }

    /// An entry of `folder` comes, goes or changes by `open`: leases on the folder break, but for the one that `open`
    /// named as its parent's ([MS-SMB2] 3.3.1.4 `ParentLeaseKey`).
    pub fn touch_folder(&mut self, now_ms: u64, open: Option<OpenId>, folder: &FileKey) {
        if self.tables.stream(folder).is_none() {
            return;
        }
        let spared = open.and_then(|open| self.info(open)).and_then(|info| {
            let key = info.parent_lease?;
            Some(Holder::Lease(LeaseName {
                client: info.client,
                key,
            }))
        });
        self.disappoint_readers(now_ms, spared, folder);
    }

    /// Somebody who opened nothing here changed a file, one of its streams, its names, or a folder's entries: a local
    /// program. It is done already, so nobody waits, and nothing that was cached of it holds any more: all caching breaks,
    /// as it would for a write by another client ([MS-FSA] 2.1.4.12).
    pub fn changed_outside(&mut self, now_ms: u64, share_volume: u64, index: u64) {
        let key = BaseKey {
            volume: share_volume,
            index,
        };
        let streams = self.tables.bases.get(&key).map_or(&[][..], |base| &base.streams);
        let files: Vec<_> = streams
            .iter()
            .map(|stream| FileKey {
                share_volume,
                index,
                stream: stream.name.clone(),
            })
            .collect();
        for file in files {
            self.disappoint_readers(now_ms, None, &file);
        }
    }

    /// Takes `demanded` from all holders but the actor, and waits for their answers.
    fn demand(
        &mut self,
        now_ms: u64,
        actor: Option<Holder>,
        file: &FileKey,
        demanded: LeaseState,
        waiter: WaiterId,
    ) -> TouchOutcome {
        let mut waits = Vec::new();
        for holder in self.holders(file, demanded, actor) {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            if !state.intersects(demanded) || self.purge_absent(now_ms, holder) {
                continue;
            }
            self.take_back(now_ms, holder, valid(state.difference(demanded)));
            waits.push(holder);
        }
        if waits.is_empty() {
            return TouchOutcome::Ready;
        }
        let wait = Wait::Breaks {
            base: file.base(),
            holders: waits,
        };
        match self.wait(waiter, wait) {
            true => TouchOutcome::Wait,
            false => TouchOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES),
        }
    }
}
