//! Renames, links and removals of files with a backlog.
//!
//! A rename or a link changes what the far server reports of the file, which would look like
//! another's change. So the backlog is brought there first. A file that loses its last name loses
//! its backlog.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Op, RelPath, Result};

use crate::files::{File, beneath};
use crate::record::Record;
use crate::shared::Shared;

impl Shared {
    /// Runs the removal of a name. `is_for_empty`: it removes empty files only.
    pub(crate) fn removing(
        self: &Arc<Self>,
        path: &RelPath,
        is_for_empty: bool,
        remove: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // Other names of the file get another change time.
        let remove = || {
            let removed = remove();
            self.changes.note_names();
            removed
        };
        match self.pending_at(path) {
            Some((file, stat)) => self.remove_pending(&file, &stat, is_for_empty, remove),
            None => remove(),
        }
    }

    fn remove_pending(
        self: &Arc<Self>,
        file: &Arc<File>,
        stat: &NodeStat,
        is_for_empty: bool,
        remove: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _gate = file.gate.write();
        if stat.links > 1 {
            self.drain_all(file, None)?;
            return remove();
        }
        let mut drainer = file.drain.lock();
        {
            let mut state = file.state.lock();
            let path = state.path.clone();
            if let Some(pending) = state.pending.as_mut().filter(|_| is_for_empty)
                && pending.backlog.size > 0
            {
                return Err(Error::new(Op::Remove, &path, ErrorKind::NotEmpty));
            }
            if let Some(pending) = &mut state.pending {
                pending.is_removing = true;
                // A crash after the removal must not look like another's removal.
                if let Err(error) = pending.note_synced(&path, &Record::Removing) {
                    tracing::warn!(%error, "the write-back journal cannot be written");
                }
            }
        }
        let is_open = file.nodes.load(std::sync::atomic::Ordering::Acquire) > 0;
        if !is_open {
            self.let_go(&mut drainer);
        }
        if let Err(error) = remove() {
            let mut state = file.state.lock();
            let path = state.path.clone();
            if let Some(pending) = &mut state.pending {
                let base = pending.base;
                pending.is_removing = false;
                if pending.draining.is_none()
                    && let Err(error) = pending.note_synced(&path, &Record::Touched(base))
                {
                    tracing::warn!(%error, "the write-back journal cannot be written");
                }
            }
            return Err(error);
        }
        self.files.take_out(file);
        let mut state = file.state.lock();
        state.is_removed = true;
        let path = state.path.clone();
        if let Some(pending) = &mut state.pending {
            // Else the log says "removing", which is enough where the name is gone.
            let _ = pending.note_synced(&path, &Record::Removed);
        }
        drop(state);
        if !is_open {
            self.drop_backlog(file);
        }
        Ok(())
    }

    /// Runs a rename. `is_exchange`: both nodes exchange their names.
    pub(crate) fn renaming(
        self: &Arc<Self>,
        from: &RelPath,
        to: &RelPath,
        is_exchange: bool,
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let renamed = self.with_drained(from, to, is_exchange, || {
            let renamed = rename();
            self.changes.note_names();
            renamed
        });
        if renamed.is_ok() && !is_exchange && from != to {
            self.files.renamed(from, to);
        }
        renamed
    }

    fn with_drained(
        self: &Arc<Self>,
        from: &RelPath,
        to: &RelPath,
        is_exchange: bool,
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.has_backlog() {
            return rename();
        }
        let mut files = self.files.select(|state| {
            let is_at = |path| beneath(&state.path, path).is_some();
            state.pending.is_some() && (is_at(from) || (is_exchange && is_at(to)))
        });
        let source = self.pending_at(from);
        let source_id = source.as_ref().map(|(file, _)| file.id);
        files.extend(source.map(|(file, _)| file));
        let target = self.pending_at(to).filter(|(file, _)| Some(file.id) != source_id);
        let replaced = match target {
            Some((file, _)) if is_exchange => {
                files.push(file);
                None
            }
            target => target,
        };
        files.retain(|file| {
            replaced
                .as_ref()
                .is_none_or(|(replaced, _)| replaced.id != file.id)
        });
        let _gates = self.drained(&mut files)?;
        match replaced {
            Some((file, stat)) if stat.kind == Kind::File => self.remove_pending(&file, &stat, false, rename),
            _ => rename(),
        }
    }

    /// Drains files, and keeps backlogs from beginning as long as what it returns lives.
    fn drained<'a>(self: &Arc<Self>, files: &'a mut Vec<Arc<File>>) -> Result<Vec<RwLockWriteGuard<'a, ()>>> {
        files.sort_by_key(|file| file.id);
        files.dedup_by_key(|file| file.id);
        let mut gates = Vec::new();
        for file in files.iter() {
            gates.push(file.gate.write());
            self.drain_all(file, None)?;
        }
        Ok(gates)
    }

    /// Runs what gives a file one more name.
    pub(crate) fn linking(
        self: &Arc<Self>,
        source: Option<FileId>,
        to: &RelPath,
        link: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let link = || {
            let linked = link();
            self.changes.note_names();
            linked
        };
        if !self.has_backlog() {
            return link();
        }
        let source = source.and_then(|id| self.files.get(id));
        let target = self.pending_at(to);
        let target = target.filter(|(file, _)| source.as_ref().is_none_or(|source| source.id != file.id));
        let mut files: Vec<Arc<File>> = source.into_iter().collect();
        let _gates = self.drained(&mut files)?;
        match target {
            Some((file, stat)) => self.remove_pending(&file, &stat, false, link),
            None => link(),
        }
    }
}
