//! Change notification ([MS-SMB2] 3.3.5.19; [MS-FSA] 2.1.5.10).
//!
//! An open folder's first CHANGE_NOTIFY says for good what is watched and how many bytes of changes are kept
//! (smb2.notify.mask-change, valid-req). From then on changes are kept between requests. Each request that waits is
//! answered with the next change, first come first.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::Hub;
use super::event::Event;
use super::ids::{OpenId, WaiterId};
use super::wait::Wait;
use ropeway_smb_wire::change_notify::{Action, CompletionFilter, FileNotifyInformation};
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{NtStatus, Text};

/// What becomes of a CHANGE_NOTIFY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchOutcome {
    /// Something happened before.
    Ready {
        /// `STATUS_SUCCESS` or `STATUS_NOTIFY_ENUM_DIR`.
        status: NtStatus,
        /// What.
        changes: Vec<FileNotifyInformation>,
    },
    /// [`Event::NotifyReady`] will answer it.
    Wait,
    /// It fails.
    Refused(NtStatus),
}

/// A watched folder of one open.
#[derive(Debug)]
struct Watch {
    place: (u32, Text),
    filter: CompletionFilter,
    recursive: bool,
    bytes_max: usize,
    changes: Vec<FileNotifyInformation>,
    bytes: usize,
    overflown: bool,
    waiters: VecDeque<(WaiterId, usize)>,
}

/// All watched folders, by open and by share and path in upper case.
#[derive(Debug, Default)]
pub(super) struct Watches {
    watches: HashMap<OpenId, Watch>,
    places: HashMap<(u32, Text), BTreeSet<OpenId>>,
}

impl Watches {
    pub(super) fn unwait(&mut self, open: OpenId, waiter: WaiterId) {
        if let Some(watch) = self.watches.get_mut(&open) {
            watch.waiters.retain(|(other, _)| *other != waiter);
        }
    }

    fn insert(&mut self, open: OpenId, watch: Watch) {
        self.places.entry(watch.place.clone()).or_default().insert(open);
        self.watches.insert(open, watch);
    }

    fn remove(&mut self, open: OpenId) -> Option<Watch> {
        let watch = self.watches.remove(&open)?;
        if let Some(opens) = self.places.get_mut(&watch.place) {
            opens.remove(&open);
            if opens.is_empty() {
                self.places.remove(&watch.place);
            }
        }
        Some(watch)
    }

    /// The open's folder is called otherwise now.
    pub(super) fn set_path(&mut self, open: OpenId, path: &Text) {
        if let Some(mut watch) = self.remove(open) {
            watch.place.1 = fold(path);
            self.insert(open, watch);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.places.is_empty()
    }
}

impl Watch {
    /// What there is, for a response of that many bytes; `None` if there is nothing.
    fn take(&mut self, output_max: usize) -> Option<(NtStatus, Vec<FileNotifyInformation>)> {
        if self.changes.is_empty() && !self.overflown {
            return None;
        }
        let changes = std::mem::take(&mut self.changes);
        let bytes = std::mem::take(&mut self.bytes);
        if std::mem::take(&mut self.overflown) || bytes > output_max.min(self.bytes_max) {
            return Some((NtStatus::NOTIFY_ENUM_DIR, Vec::new()));
        }
        Some((NtStatus::SUCCESS, changes))
    }

    fn keep(&mut self, change: FileNotifyInformation, bytes_max: usize) {
        self.bytes += wire_len(&change);
        if self.overflown || self.bytes > bytes_max {
            self.overflow();
        } else {
            self.changes.push(change);
        }
    }

    fn overflow(&mut self) {
        self.overflown = true;
        self.changes = Vec::new();
        self.bytes = 0;
    }
}

/// Bytes of FILE_NOTIFY_INFORMATION with its padding ([MS-FSCC] 2.7.1).
fn wire_len(change: &FileNotifyInformation) -> usize {
    (12 + change.file_name.wire_len()).next_multiple_of(4)
}

impl Hub {
    /// Asks for changes in an open folder. That it is one, and may be listed, the caller has checked.
    pub fn watch(
        &mut self,
        open: OpenId,
        filter: CompletionFilter,
        recursive: bool,
        output_max: u32,
        waiter: WaiterId,
    ) -> WatchOutcome {
        self.unwait(waiter);
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

    /// Something happened to an entry: `path` from the share's root, `\` between names. `filter` names the aspects of
    /// it; who watches for any of them hears of it.
    pub fn changed(&mut self, share_id: u32, path: &Text, action: Action, filter: CompletionFilter) {
        self.announce(share_id, &[(action, path)], filter);
    }

    /// An entry was renamed: within its folder that is one change with two names, else it goes here and appears there
    /// (smb2.notify.rec). `filter` is FILE_NAME or DIR_NAME.
    pub fn changed_name(&mut self, share_id: u32, old: &Text, new: &Text, filter: CompletionFilter) {
        if fold(&parent(old)) == fold(&parent(new)) {
            let both = [(Action::RENAMED_OLD_NAME, old), (Action::RENAMED_NEW_NAME, new)];
            self.announce(share_id, &both, filter);
        } else {
            self.changed(share_id, old, Action::REMOVED, filter);
            self.changed(share_id, new, Action::ADDED, filter);
        }
    }

    /// Whether an open watches its folder.
    pub(super) fn is_watched_by(&self, open: OpenId) -> bool {
        self.watches.watches.contains_key(&open)
    }

    /// More happened in a share than is known: all who watch there have to look themselves.
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

    /// Tells all watchers of the folder the entries are in, and of those above.
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

    /// Answers the first who waits at an open with what there is.
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

    /// Answers all requests that wait at an open.
    pub(super) fn answer_watchers(&mut self, open: OpenId, status: NtStatus) {
        let watch = self.watches.watches.get_mut(&open);
        let waiters = watch
            .map(|watch| std::mem::take(&mut watch.waiters))
            .unwrap_or_default();
        for (waiter, _) in waiters {
            self.answer(waiter, status, Vec::new());
        }
    }

    /// The open goes.
    pub(super) fn end_watch(&mut self, open: OpenId, status: NtStatus) {
        self.answer_watchers(open, status);
        self.watches.remove(open);
    }
}

/// The folder that holds `path`; the root holds itself.
fn parent(path: &Text) -> Text {
    let units = path.units();
    let end = units
        .iter()
        .rposition(|unit| *unit == u16::from(b'\\'))
        .unwrap_or(0);
    Text::from_units(units.get(..end).unwrap_or_default().to_vec())
}
