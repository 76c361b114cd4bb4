//! Closing, and what goes with the last close ([MS-SMB2] 3.3.4.17, 3.3.5.10; [MS-FSA] 2.1.5.5).

use std::sync::Arc;

use super::caching::NONE;
use super::event::{Closed, Deletion, Event};
use super::ids::{BaseKey, FileKey, Holder, OpenId};
use super::share_mode::{Mode, is_oplock_stat};
use super::table::{Doomed, Open};
use super::{Hub, Timer};
use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::{NtStatus, SessionId, TreeId};

impl Hub {
    /// Closes; `None` if there is no such open.
    pub fn close(&mut self, now_ms: u64, id: OpenId) -> Option<Closed> {
        let open = self.tables.opens.get(&id)?;
        if open.info.delete_on_close {
            let (own, file) = (Self::holder(open), open.info.file.clone());
            let is_first = !self.delete_pending(&file);
            self.doom(id);
            if is_first {
                // Nobody can open it any more, so others need not keep it open (smb2.lease.initial_delete_tdis).
                self.demand_unheard(now_ms, own, &file);
            }
        }
        self.end_watch(id, NtStatus::NOTIFY_CLEANUP);
        // Before the open goes, as those who wait are found by it.
        self.wake_lockers(id);
        let open = self.tables.remove(id)?;
        self.creates.closed(id);
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
        self.wake_settled(open.info.file.base());
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

    /// A tree is disconnected: its opens close, durable or not ([MS-SMB2] 3.3.5.8).
    pub fn end_tree(&mut self, now_ms: u64, session: SessionId, tree: TreeId) -> Vec<Closed> {
        let opens = self.tables.of_session(session).into_iter();
        let of_tree: Vec<_> = opens
            .filter(|open| self.info(*open).is_some_and(|info| info.tree == tree))
            .collect();
        of_tree
            .into_iter()
            .filter_map(|open| self.close(now_ms, open))
            .collect()
    }

    /// Takes an open out of its stream, with its locks, and, if its holder is `gone`, with what that cached.
    fn leave_file(&mut self, open: &Open, gone: bool) -> Option<Deletion> {
        let file = &open.info.file;
        let locks = &mut self.tables.lock_count;
        *locks = locks.saturating_sub(open.lock_count as usize);
        let base = self.tables.bases.get_mut(&file.base())?;
        let stream = base.stream_mut(file.stream.as_ref())?;
        stream.crowd.remove(open);
        if gone {
            stream.crowd.set_caching(Self::holder(open), NONE);
        }
        if open.lock_count > 0 {
            stream.locks.retain(|lock| lock.open != open.info.id);
        }
        if !stream.crowd.is_empty() {
            if open.lock_count > 0 {
                self.wake_lock_waiters(file);
            }
            return None;
        }
        let doomed_stream = stream.pending.take();
        base.streams.retain(|stream| stream.name != file.stream);
        let doomed = if base.streams.is_empty() {
            base.pending.take().map(|doomed| (None, doomed))
        } else {
            None
        };
        let doomed = doomed.or(doomed_stream.map(|doomed| (file.stream.clone(), doomed)));
        doomed.map(|(stream, doomed)| Deletion {
            file: FileKey {
                stream,
                ..file.clone()
            },
            share_id: doomed.share_id,
            path: doomed.path,
            directory: doomed.directory,
            user: doomed.user,
        })
    }

    fn drop_idle_base(&mut self, key: BaseKey) {
        let base = self.tables.bases.get(&key);
        if base.is_some_and(|base| base.streams.is_empty() && base.waiters.is_empty()) {
            self.tables.bases.remove(&key);
        }
    }

    /// Sets or clears what FileDispositionInformation says ([MS-FSA] 2.1.5.15.3). Whether the file can be deleted at
    /// all (rights, attributes, an empty folder) is the caller's to know, and to have called [`Self::touch`].
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open.
    pub fn set_delete_pending(&mut self, open: OpenId, delete: bool) -> Result<(), NtStatus> {
        let info = self.info(open).ok_or(NtStatus::FILE_CLOSED)?;
        if delete {
            self.doom(open);
            return Ok(());
        }
        let file = info.file.clone();
        if let Some(pending) = self.pending_mut(&file) {
            *pending = None;
        }
        Ok(())
    }

    /// Whether it is to be deleted with its last close: it cannot be opened any more.
    pub fn delete_pending(&self, file: &FileKey) -> bool {
        let Some(base) = self.tables.bases.get(&file.base()) else {
            return false;
        };
        let stream = base.stream(file.stream.as_ref());
        base.pending.is_some() || stream.is_some_and(|stream| stream.pending.is_some())
    }

    /// Whether `by` may rename something into a folder, in view of who has that open: Windows opens the folder to add to it,
    /// sharing reading and writing but not deletion (smb2.rename.no_share_delete_but_delete_access, smb2.oplock.batch20).
    ///
    /// Another client that watches the folder is no obstacle (smb2.notify-inotify.inotify-rename): it wants to hear of
    /// renamings, and may have the right to delete the folder only because it asked for all. Samba sees no opens of other
    /// clients at all.
    ///
    /// # Errors
    /// `STATUS_SHARING_VIOLATION`, and `STATUS_FILE_CLOSED` without `by`.
    pub fn check_renaming_into(
        &self,
        by: OpenId,
        folder: &FileKey,
        access: AccessMask,
        share: ShareAccess,
    ) -> Result<(), NtStatus> {
        let by = self.info(by).ok_or(NtStatus::FILE_CLOSED)?;
        let mode = Mode { access, share };
        // All opens together are asked first: there may be many, and most of the time none is in the way.
        if !self.is_denied(folder, mode) {
            return Ok(());
        }
        let denied = self.tables.opens_of(folder).any(|open| {
            let info = &open.info;
            let own = info.connection == by.connection || info.session == by.session;
            mode.conflicts(open.mode()) && (own || !self.is_watched_by(info.id))
        });
        match denied {
            false => Ok(()),
            true => Err(NtStatus::SHARING_VIOLATION),
        }
    }

    /// Marks what is open as to be deleted; who watches it hears of that at once (smb2.notify.rmdir1).
    fn doom(&mut self, id: OpenId) {
        let Some(info) = self.info(id) else {
            return;
        };
        let doomed = Doomed {
            share_id: info.share_id,
            path: info.path.clone(),
            directory: info.directory,
            user: Arc::clone(&info.user),
        };
        let (file, directory) = (info.file.clone(), info.directory);
        if let Some(pending) = self.pending_mut(&file) {
            pending.get_or_insert(doomed);
        }
        if directory {
            let opens: Vec<_> = self.tables.opens_of(&file).map(|open| open.info.id).collect();
            for open in opens {
                self.answer_watchers(open, NtStatus::DELETE_PENDING);
            }
        }
    }

    fn pending_mut(&mut self, file: &FileKey) -> Option<&mut Option<Doomed>> {
        let base = self.tables.bases.get_mut(&file.base())?;
        match &file.stream {
            None => Some(&mut base.pending),
            Some(_) => base
                .stream_mut(file.stream.as_ref())
                .map(|stream| &mut stream.pending),
        }
    }

    /// Closes an open that has no client, and says so; whether something is to be deleted.
    pub(super) fn give_up(&mut self, now_ms: u64, open: OpenId) -> bool {
        let Some(closed) = self.close(now_ms, open) else {
            return false;
        };
        let deleted = closed.delete.is_some();
        self.events.push_back(Event::Expired(closed));
        deleted
    }

    /// Closes the holder's opens, if it has no client that could be asked.
    pub(super) fn purge_absent(&mut self, now_ms: u64, holder: Holder) -> bool {
        let Some(opens) = self.absent(holder) else {
            return false;
        };
        for open in opens {
            self.give_up(now_ms, open);
        }
        true
    }
}
