//! Change notification ([MS-SMB2] 3.3.5.19; [MS-FSA] 2.1.5.10).
//!
//! The first CHANGE_NOTIFY on an open folder fixes what is watched and how many bytes of changes
//! are kept (smb2.notify.mask-change, valid-req). From then on changes between requests are kept.
//! Each waiting request is answered with the next change, oldest request first.

use std::collections::VecDeque;

use ropeway_smb_wire::change_notify::{Action, CompletionFilter, FileNotifyInformation};
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{NtStatus, Text};

use super::Hub;
use super::event::Event;
use super::ids::{OpenId, WaiterId};
use super::wait_queue::Wait;
use super::watches::Watch;

/// The outcome of a CHANGE_NOTIFY request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchOutcome {
    /// Changes were kept since the last request.
    Ready {
        /// `STATUS_SUCCESS` or `STATUS_NOTIFY_ENUM_DIR`.
        status: NtStatus,
        /// The changes.
        changes: Vec<FileNotifyInformation>,
    },
    /// [`Event::NotifyReady`] will answer the request.
    Wait,
    /// The request fails.
    Refused(NtStatus),
}

impl Hub {
    /// Watches an open folder for changes. The caller has checked that it is a folder and that it
    /// may be listed.
    pub fn watch(
        &mut self,
        open: OpenId,
        filter: CompletionFilter,
        recursive: bool,
        output_max: u32,
        waiter: WaiterId,
    ) -> WatchOutcome {
        self.stop_waiting(waiter);
        let Some(info) = self.info(open) else {
            return WatchOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        if !info.directory {
            return WatchOutcome::Refused(NtStatus::INVALID_PARAMETER);
        }
        if self.delete_pending(&info.file) {
            return WatchOutcome::Refused(NtStatus::DELETE_PENDING);
        }
        let output_max = usize::try_from(output_max).unwrap_or(usize::MAX);
        if !self.watches.watches.contains_key(&open) {
            let watch = Watch {
                place: (info.share_id, fold(&info.path)),
                filter,
                recursive,
                bytes_max: output_max,
                changes: Vec::new(),
                bytes: 0,
                overflown: false,
                waiters: VecDeque::new(),
            };
            self.watches.insert(open, watch);
        }
        let watch = self.watches.watches.get_mut(&open);
        if let Some((status, changes)) = watch.and_then(|watch| watch.take(output_max)) {
            return WatchOutcome::Ready { status, changes };
        }
        if !self.wait(waiter, Wait::Changes(open)) {
            return WatchOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
        }
        if let Some(watch) = self.watches.watches.get_mut(&open) {
            watch.waiters.push_back((waiter, output_max));
        }
        WatchOutcome::Wait
    }

    /// Reports a change of an entry. `path` is relative to the share, with `\` between names.
    /// `filter` names the changed aspects; watches for any of them are notified.
    pub fn changed(&mut self, share_id: u32, path: &Text, action: Action, filter: CompletionFilter) {
        self.announce(share_id, &[(action, path)], filter);
    }

    /// Reports the rename of an entry. Within one folder it is one change with two names, otherwise
    /// a removal and an addition (smb2.notify.rec). `filter` is FILE_NAME or DIR_NAME.
    pub fn changed_name(&mut self, share_id: u32, old: &Text, new: &Text, filter: CompletionFilter) {
        if fold(&parent(old)) == fold(&parent(new)) {
            let both = [(Action::RENAMED_OLD_NAME, old), (Action::RENAMED_NEW_NAME, new)];
            self.announce(share_id, &both, filter);
        } else {
            self.changed(share_id, old, Action::REMOVED, filter);
            self.changed(share_id, new, Action::ADDED, filter);
        }
    }

    /// Returns whether an open watches its folder.
    pub(super) fn is_watched_by(&self, open: OpenId) -> bool {
        self.watches.watches.contains_key(&open)
    }

    /// Reports that changes in a share were missed. All watches there must list their folders
    /// again.
    pub fn changes_lost(&mut self, share_id: u32) {
        let watches = self.watches.watches.iter();
        let there = watches.filter(|(_, watch)| watch.place.0 == share_id);
        let mut opens: Vec<_> = there.map(|(open, _)| *open).collect();
        opens.sort_unstable();
        for open in opens {
            let Some(watch) = self.watches.watches.get_mut(&open) else {
                continue;
            };
            watch.overflow();
            self.answer_next(open);
        }
    }

    /// Notifies the watches of the folder that contains the entries, and those of its ancestors.
    fn announce(&mut self, share_id: u32, entries: &[(Action, &Text)], filter: CompletionFilter) {
        let Some((_, path)) = entries.first() else {
            return;
        };
        if self.watches.places.is_empty() || path.is_empty() {
            return;
        }
        let mut folder = parent(path);
        let mut direct = true;
        loop {
            let opens = self.watches.places.get(&(share_id, fold(&folder)));
            let opens: Vec<_> = opens.into_iter().flatten().copied().collect();
            for open in opens {
                self.report(open, direct, folder.units().len(), entries, filter);
            }
            if folder.is_empty() {
                return;
            }
            folder = parent(&folder);
            direct = false;
        }
    }

    fn report(
        &mut self,
        open: OpenId,
        direct: bool,
        folder_len: usize,
        entries: &[(Action, &Text)],
        filter: CompletionFilter,
    ) {
        let cap = usize::try_from(self.limits.watch_bytes_max).unwrap_or(usize::MAX);
        let Some(watch) = self.watches.watches.get_mut(&open) else {
            return;
        };
        if !watch.filter.intersects(filter) || !(direct || watch.recursive) {
            return;
        }
        for (action, path) in entries {
            let skipped = if folder_len == 0 { 0 } else { folder_len + 1 };
            let name = path.units().get(skipped..).unwrap_or_default().to_vec();
            let change = FileNotifyInformation {
                action: *action,
                file_name: Text::from_units(name),
            };
            watch.keep(change, watch.bytes_max.min(cap));
        }
        self.answer_next(open);
    }

    /// Answers the oldest waiting request of an open with the kept changes.
    fn answer_next(&mut self, open: OpenId) {
        let Some(watch) = self.watches.watches.get_mut(&open) else {
            return;
        };
        let Some((waiter, output_max)) = watch.waiters.pop_front() else {
            return;
        };
        if let Some((status, changes)) = watch.take(output_max) {
            self.answer(waiter, status, changes);
        }
    }

    fn answer(&mut self, waiter: WaiterId, status: NtStatus, changes: Vec<FileNotifyInformation>) {
        self.waits.remove(waiter);
        self.events.push_back(Event::NotifyReady {
            waiter,
            status,
            changes,
        });
    }

    /// Answers all waiting requests of an open.
    pub(super) fn answer_watchers(&mut self, open: OpenId, status: NtStatus) {
        let watch = self.watches.watches.get_mut(&open);
        let waiters = watch
            .map(|watch| std::mem::take(&mut watch.waiters))
            .unwrap_or_default();
        for (waiter, _) in waiters {
            self.answer(waiter, status, Vec::new());
        }
    }

    /// Ends the watch of an open.
    pub(super) fn end_watch(&mut self, open: OpenId, status: NtStatus) {
        self.answer_watchers(open, status);
        self.watches.remove(open);
    }
}

/// Returns the folder that contains `path`. The root contains itself.
fn parent(path: &Text) -> Text {
    let units = path.units();
    let end = units
        .iter()
        .rposition(|unit| *unit == u16::from(b'\\'))
        .unwrap_or(0);
    Text::from_units(units.get(..end).unwrap_or_default().to_vec())
}
