//! CLOSE, and the effects of a file's last close ([MS-SMB2] 3.3.4.17, 3.3.5.10; [MS-FSA] 2.1.5.5).

use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::{NtStatus, SessionId, TreeId};

use super::break_trigger::BreakOutcome;
use super::caching::{H, NONE};
use super::event::{Closed, Deletion, Event};
use super::ids::{BaseKey, FileKey, Holder, OpenId, WaiterId};
use super::share_mode::{ShareMode, is_oplock_stat};
use super::table::{Open, PendingDeletion};
use super::{Hub, Timer};

impl Hub {
    /// Closes an open. Returns `None` if it does not exist.
    pub fn close(&mut self, now: Duration, id: OpenId) -> Option<Closed> {
        let open = self.tables.opens.get(&id)?;
        if open.info.delete_on_close {
            let (own, file) = (Self::holder(open), open.info.file.clone());
            let is_first = !self.delete_pending(&file);
            self.mark_for_deletion(id);
            if is_first {
                // The file cannot be opened any more, so other clients need not cache its handle
                // (smb2.lease.initial_delete_tdis).
                self.break_without_waiting(now, own, &file);
            }
        }
        self.end_watch(id, NtStatus::NOTIFY_CLEANUP);
        // Must precede the removal: the waiting requests are found through the open.
        self.wake_own_lock_waiters(id);
        let open = self.tables.remove(id)?;
        self.creates.closed(id);
        self.persistent.removed(&open);
        self.clear_timer(Timer::Durable(id));
        let holder = Self::holder(&open);
        let gone = match holder {
            Holder::Oplock(_) => true,
            Holder::Lease(name) => self.leases.leave(name, (id, !is_oplock_stat(open.info.access))),
        };
        if gone {
            self.clear_timer(Timer::Break(holder));
        }
        let delete = self.leave_file(&open, gone);
        self.wake_after_breaks(open.info.file.base());
        self.drop_idle_base(open.info.file.base());
        Some(Closed {
            open: id,
            share_id: open.info.share_id,
            path: open.info.path,
            directory: open.info.directory,
            file: open.info.file,
            delete,
        })
    }

    /// Closes all opens of a disconnected tree, durable or not ([MS-SMB2] 3.3.5.8).
    pub fn end_tree(&mut self, now: Duration, session: SessionId, tree: TreeId) -> Vec<Closed> {
        let opens = self.tables.of_session(session).into_iter();
        let of_tree: Vec<_> = opens
            .filter(|open| self.info(*open).is_some_and(|info| info.tree == tree))
            .collect();
        of_tree
            .into_iter()
            .filter_map(|open| self.close(now, open))
            .collect()
    }

    /// Removes an open and its locks from its stream. If its holder is `gone`, removes the holder's
    /// caching too.
    fn leave_file(&mut self, open: &Open, gone: bool) -> Option<Deletion> {
        let file = &open.info.file;
        let locks = &mut self.tables.lock_count;
        *locks = locks.saturating_sub(open.lock_count as usize);
        let base = self.tables.bases.get_mut(&file.base())?;
        let stream = base.stream_mut(file.stream.as_ref())?;
        stream.summary.remove(open);
        if gone {
            stream.summary.set_caching(Self::holder(open), NONE);
        }
        if open.lock_count > 0 {
            stream.locks.retain(|lock| lock.open != open.info.id);
        }
        let mut stream_deletion = None;
        if stream.summary.is_empty() {
            stream_deletion = stream.pending.take();
            base.streams.retain(|stream| stream.name != file.stream);
        } else if open.lock_count > 0 {
            self.wake_lock_waiters(file);
        }
        let deletion = self.take_deletion(file.base()).map(|deletion| (None, deletion));
        let deletion = deletion.or(stream_deletion.map(|deletion| (file.stream.clone(), deletion)));
        deletion.map(|(stream, deletion)| Deletion {
            file: FileKey {
                stream,
                ..file.clone()
            },
            share_id: deletion.share_id,
            path: deletion.path,
            directory: deletion.directory,
            user: deletion.user,
            parent_lease: deletion
                .parent_lease
                .filter(|key| open.info.parent_lease == Some(*key)),
        })
    }

    /// Takes the deletion of a name that has no open any more. Opens by other names of the file do
    /// not keep it, as on Windows and Samba.
    fn take_deletion(&mut self, key: BaseKey) -> Option<PendingDeletion> {
        let base = self.tables.bases.get(&key)?;
        let opens = || {
            let ids = base.streams.iter().flat_map(|stream| stream.summary.opens());
            ids.filter_map(|id| self.info(id))
        };
        let is_closed =
            |deletion: &PendingDeletion| !opens().any(|info| deletion.is_of(info.share_id, &info.path));
        let at = base.pending.iter().position(is_closed)?;
        Some(self.tables.bases.get_mut(&key)?.pending.remove(at))
    }

    fn drop_idle_base(&mut self, key: BaseKey) {
        let base = self.tables.bases.get(&key);
        if base.is_some_and(|base| base.streams.is_empty() && base.waiters.is_empty()) {
            self.tables.bases.remove(&key);
        }
    }

    /// Sets or clears the delete-pending state ([MS-FSA] 2.1.5.15.3, FileDispositionInformation).
    /// The caller has checked that the file may be deleted (rights, attributes, an empty folder),
    /// and has called [`Self::break_caching`].
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open.
    pub fn set_delete_pending(&mut self, open: OpenId, delete: bool) -> Result<(), NtStatus> {
        let info = self.info(open).ok_or(NtStatus::FILE_CLOSED)?;
        if delete {
            self.mark_for_deletion(open);
            return Ok(());
        }
        let (file, share_id, path) = (info.file.clone(), info.share_id, info.path.clone());
        let Some(base) = self.tables.bases.get_mut(&file.base()) else {
            return Ok(());
        };
        match &file.stream {
            None => base.pending.retain(|deletion| !deletion.is_of(share_id, &path)),
            Some(_) => {
                if let Some(stream) = base.stream_mut(file.stream.as_ref()) {
                    stream.pending = None;
                }
            }
        }
        self.file_changed(&file);
        Ok(())
    }

    /// Returns whether a name of the file is deleted at its last close. That name cannot be opened
    /// any more.
    pub fn delete_pending(&self, file: &FileKey) -> bool {
        let Some(base) = self.tables.bases.get(&file.base()) else {
            return false;
        };
        let stream = base.stream(file.stream.as_ref());
        !base.pending.is_empty() || stream.is_some_and(|stream| stream.pending.is_some())
    }

    /// Prepares that `by` renames an entry into a folder, given the other opens of that folder.
    /// Windows opens the folder to add to it, sharing read and write access but not deletion
    /// (smb2.rename.no_share_delete_but_delete_access, smb2.oplock.batch20). Clients that cache the
    /// handle of an open which denies this are asked to close it first
    /// (smb2.dirlease.rename_dst_parent).
    ///
    /// An open through which another client watches the folder does not count
    /// (smb2.notify-inotify.inotify-rename): that client wants to learn of renames, and may hold
    /// the delete right only because it asked for every right. Samba ignores the opens of other
    /// clients altogether.
    ///
    /// Refuses with `STATUS_SHARING_VIOLATION`, and with `STATUS_FILE_CLOSED` without `by`.
    pub fn prepare_renaming_into(
        &mut self,
        now: Duration,
        by: OpenId,
        folder: &FileKey,
        (access, share): (AccessMask, ShareAccess),
        waiter: WaiterId,
    ) -> BreakOutcome {
        self.stop_waiting(waiter);
        let mode = ShareMode { access, share };
        // Consult the summary first: there may be many opens, and usually none conflicts.
        if !self.is_denied(folder, mode) {
            return BreakOutcome::Ready;
        }
        let Some(info) = self.info(by) else {
            return BreakOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        let (connection, session) = (info.connection, info.session);
        let mut is_denied = false;
        for open in self.tables.opens_of(folder) {
            let info = &open.info;
            let own = info.connection == connection || info.session == session;
            if !mode.conflicts(open.mode()) || !own && self.is_watched_by(info.id) {
                continue;
            }
            let held = self.caching(Self::holder(open));
            if !held.is_some_and(|held| held.state.contains(H)) {
                return BreakOutcome::Refused(NtStatus::SHARING_VIOLATION);
            }
            is_denied = true;
        }
        if !is_denied {
            return BreakOutcome::Ready;
        }
        self.break_and_wait(now, None, folder, H, waiter)
    }

    /// Marks an open file for deletion. Watchers of a marked folder are notified at once
    /// (smb2.notify.rmdir1).
    fn mark_for_deletion(&mut self, id: OpenId) {
        let Some(info) = self.info(id) else {
            return;
        };
        let deletion = PendingDeletion {
            share_id: info.share_id,
            path: info.path.clone(),
            directory: info.directory,
            user: Arc::clone(&info.user),
            parent_lease: info.parent_lease,
        };
        let (file, directory) = (info.file.clone(), info.directory);
        if let Some(base) = self.tables.bases.get_mut(&file.base()) {
            base.mark(file.stream.as_ref(), deletion);
        }
        self.file_changed(&file);
        if directory {
            let opens: Vec<_> = self.tables.opens_of(&file).map(|open| open.info.id).collect();
            for open in opens {
                self.answer_watchers(open, NtStatus::DELETE_PENDING);
            }
        }
    }

    /// Closes an open that has no client, and reports it. Returns whether a file is to be deleted.
    pub(super) fn close_absent(&mut self, now: Duration, open: OpenId) -> bool {
        let Some(closed) = self.close(now, open) else {
            return false;
        };
        let deleted = closed.delete.is_some();
        self.events.push_back(Event::Expired(closed));
        deleted
    }

    /// Closes the opens of a holder if none of them has a connection.
    pub(super) fn purge_absent(&mut self, now: Duration, holder: Holder) -> bool {
        let Some(opens) = self.absent(holder) else {
            return false;
        };
        for open in opens {
            self.close_absent(now, open);
        }
        true
    }
}
