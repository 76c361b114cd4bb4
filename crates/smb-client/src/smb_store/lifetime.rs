//! The end of the use of a file: what remains is sent, then the file is closed on the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::Result;

use super::shared_file::SharedFile;

impl SharedFile {
    /// Ends a use of the content. After the last one the file is written out and closed, in the
    /// background if anything is left to send. The entry lives until then, so a node that is opened
    /// meanwhile sees all writes.
    pub(super) fn end_use(self: &Arc<Self>) {
        if self.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let is_done = {
            let content = self.content.lock();
            let is_answered = content.write.is_answered() && content.error.is_none();
            is_answered && (content.changes == content.flushed || self.path().is_some())
        };
        if is_done {
            self.close_unused(None);
            return;
        }
        let this = Arc::clone(self);
        self.store.spawn(async move {
            // The tree could not flush it later by a name.
            let written = match this.path().is_none() && this.is_lasting() {
                true => this.sync().await,
                false => this.write_out().await,
            };
            let Err(error) = written else {
                this.close_unused(None);
                return;
            };
            // Nobody can read what has no name any more.
            if this.is_lasting() {
                this.store.keep_error(error);
            }
            let changes = this.give_up_unsent().await;
            this.close_unused(Some(changes));
        });
    }

    /// Forgets what was not sent after an error, unless a node uses the file again, and waits for
    /// what is on its way: its errors are of the loss that was just kept, not another one. Returns the
    /// number of changes that this covers.
    async fn give_up_unsent(self: &Arc<Self>) -> u64 {
        let (lost, changes) = self.with_content(|content| {
            let lost = match self.users.load(Ordering::Acquire) {
                0 => content.write.discard(),
                _ => 0,
            };
            (lost, content.changes)
        });
        self.tell_lost(lost);
        self.notify();
        self.nothing_on_its_way().await;
        let mut content = self.content.lock();
        // What was written since is another loss.
        if self.users.load(Ordering::Acquire) == 0 && content.changes == changes {
            content.error = None;
        }
        changes
    }

    fn tell_lost(&self, bytes: u64) {
        if bytes > 0 && self.is_lasting() {
            tracing::error!(path = %self.last_path(), bytes, "bytes that could not be written are lost");
        }
    }

    /// Closes the file if no node uses it, and forgets its data; after an error only if it still has so
    /// many changes. A node that has made others has an end of its own, which sends them.
    fn close_unused(&self, changes: Option<u64>) {
        let lost = self.with_content(|content| {
            // Checked under the lock: a node that is opened later writes later.
            let is_changed_since = match changes {
                Some(changes) => changes != content.changes,
                None => !content.write.is_answered() || content.error.is_some(),
            };
            if self.users.load(Ordering::Acquire) > 0 || is_changed_since {
                return None;
            }
            content.buffers.clear();
            content.ahead.discarded();
            // The tree remembers the file: the next flush of the store covers what was answered.
            content.flushed = content.changes;
            content.lengths_set = None;
            Some((content.write.discard(), content.changes > 0))
        });
        let Some((lost, is_changed)) = lost else { return };
        self.notify();
        self.tell_lost(lost);
        let taken = self.taken.swap(0, Ordering::AcqRel);
        if let Some(file) = self.held(false)
            && taken < file.known_length()
            && !is_changed
        {
            self.note_habit(false);
        }
        self.close();
        // A reader changes nothing there.
        if is_changed {
            // Servers may set the times of a written file when it is closed.
            self.store.changed_file(self);
        }
    }

    /// Flushes and closes a file that stays in use; it is opened again when it is needed. Files
    /// with locks stay open, since the locks belong to the open file.
    pub(super) async fn release(self: &Arc<Self>) -> Result<()> {
        if !self.is_open() || !self.locks.lock().await.is_empty() {
            return Ok(());
        }
        self.sync().await?;
        self.close();
        Ok(())
    }
}
