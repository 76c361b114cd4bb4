//! Watches of folders by CHANGE_NOTIFY ([MS-SMB2] 2.2.35, 3.2.4.17).
//!
//! Each watched folder has one task with one request at the server. What it reports is removed from
//! the cache, and passed to the observer unless the store made the change itself (`own_changes`).
//! Where reports may be missing (the server had too many, the connection was lost), all beneath the
//! folder is removed from the cache, and the observer learns that changes were lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ropeway_smb_wire::change_notify::{Action, FileNotifyInformation};
use ropeway_vfs::external::{EntryChange, ExternalChange, Watching};
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::tree::Change;
use ropeway_vfs::{ErrorKind, FileId, Kind, Op, RelPath, Result};

use super::node_cache::Known;
use super::shared::Shared;
use super::shared_file::SharedFile;
use super::watch_table::Watched;
use crate::error::{Error as ClientError, LostReason, Result as ClientResult};
use crate::smb_tree::errors::tree_error;
use crate::smb_tree::watch::{SmbWatch, change_of};

/// Watched folders at the same time. A guess: each takes a request at the server, which allows some
/// hundred on a connection.
const FOLDERS_MAX: usize = 128;
/// Pause after a failure before the folder is watched again. A guess.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Ends the task of a watch when the last user drops it.
struct FolderWatch {
    store: Arc<Shared>,
    what: Watched,
    task: tokio::task::AbortHandle,
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        self.task.abort();
        let mut watches = self.store.watches.lock();
        if watches
            .get(&self.what)
            .is_some_and(|watch| watch.strong_count() == 0)
        {
            watches.remove(&self.what);
        }
    }
}

impl SharedFile {
    /// Watches the entries of this folder, and all beneath it if `below` is set.
    pub(super) async fn watch_folder(self: &Arc<Self>, below: bool) -> Result<Watching> {
        let what = (self.id, below);
        let store = &self.store;
        let known = {
            let watches = store.watches.lock();
            let known = watches.get(&what).and_then(Weak::upgrade);
            if known.is_none() && watches.len() >= FOLDERS_MAX {
                return Err(self.error(Op::Watch, ErrorKind::Exhausted));
            }
            known
        };
        if let Some(known) = known {
            return Ok(Watching::new(known));
        }
        let dir = self
            .path()
            .ok_or_else(|| self.error(Op::Watch, ErrorKind::Gone))?;
        let started = SmbWatch::start_at(&store.tree, &dir, below).await?;
        let watch = started.map_err(|error| tree_error(Op::Watch, &dir, error))?;
        // What was learnt before the server began to record changes may be old.
        store.forget(&dir, below);
        let place = WatchedFolder {
            id: self.id,
            dir,
            below,
        };
        let task = store
            .runtime
            .spawn(run(Arc::downgrade(store), place, watch))
            .abort_handle();
        let watch: Arc<dyn Send + Sync> = Arc::new(FolderWatch {
            store: Arc::clone(store),
            what,
            task,
        });
        // If two threads came here at once, both watches run.
        store.watches.lock().insert(what, Arc::downgrade(&watch));
        Ok(Watching::new(watch))
    }
}

/// A watched folder, and its path when the watch began.
struct WatchedFolder {
    id: FileId,
    dir: RelPath,
    below: bool,
}

/// Passes on the changes of a folder until the watch is dropped or the folder is gone.
async fn run(store: Weak<Shared>, folder: WatchedFolder, watch: SmbWatch) {
    let mut watch = Some(watch);
    loop {
        let next = match &mut watch {
            Some(watch) => watch.next_changes().await,
            None => {
                tokio::time::sleep(RETRY_PAUSE).await;
                let Some(tree) = store.upgrade().map(|store| Arc::clone(&store.tree)) else {
                    return;
                };
                match SmbWatch::start_at(&tree, &folder.dir, folder.below).await {
                    Ok(Ok(again)) => {
                        watch = Some(again);
                        Ok(None)
                    }
                    Ok(Err(error)) => Err(error),
                    Err(_) => return,
                }
            }
        };
        let Some(store) = store.upgrade() else { return };
        if !store.take_changes(&folder, &next) {
            return;
        }
        if next.is_err() {
            watch = None;
        }
    }
}

/// Whether a folder cannot be watched any more.
fn is_over(error: &ClientError) -> bool {
    match error {
        ClientError::Lost(reason) => matches!(reason, LostReason::HandleGone | LostReason::ClientClosed),
        ClientError::PeerRefused { .. } => true,
        _ => false,
    }
}

impl Shared {
    /// Removes from the cache what is known of a folder.
    fn forget(&self, dir: &RelPath, below: bool) {
        let mut cache = self.cache.lock();
        match below {
            true => cache.changed_below(dir),
            false => cache.changed_entries(dir),
        }
    }

    /// Takes what the server says about a folder. Returns whether the watch goes on.
    fn take_changes(
        &self,
        folder: &WatchedFolder,
        next: &ClientResult<Option<Vec<FileNotifyInformation>>>,
    ) -> bool {
        match next {
            Ok(Some(changes)) => {
                let reports = self.reports_of(folder, changes);
                self.reports.changed(reports);
                return true;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(dir = %folder.dir, %error, "a watch was interrupted"),
        }
        self.forget(&folder.dir, folder.below);
        self.reports
            .changed(vec![ExternalChange::Lost, ExternalChange::Node(folder.id)]);
        !next.as_ref().is_err_and(is_over)
    }

    fn reports_of(&self, folder: &WatchedFolder, changes: &[FileNotifyInformation]) -> Vec<ExternalChange> {
        let mut reports = Vec::new();
        let mut renamed = None;
        let mut is_foreign = false;
        for change in changes {
            let Change::Path(name) = change_of(change) else {
                self.forget(&folder.dir, folder.below);
                reports.push(ExternalChange::Lost);
                is_foreign = true;
                continue;
            };
            let path = folder.dir.join_path(&name);
            if self.own.lock().is_own(&path, change.action, self.now()) {
                continue;
            }
            is_foreign = true;
            let before = self.known(&path);
            // What is beneath a name that comes or goes is unknown.
            match change.action {
                Action::MODIFIED => self.cache.lock().changed(&path),
                _ => self.cache.lock().changed_below(&path),
            }
            let directory =
                matches!(before, Some(Known::There(NodeStat { kind, .. })) if kind == Kind::Directory);
            let entry = |what| ExternalChange::Entry {
                path: path.clone(),
                what,
                directory,
            };
            match change.action {
                Action::ADDED => reports.push(entry(EntryChange::Added)),
                Action::REMOVED => reports.push(entry(EntryChange::Removed)),
                Action::RENAMED_OLD_NAME => renamed = Some((path, directory)),
                Action::RENAMED_NEW_NAME => reports.push(match renamed.take() {
                    Some((from, was_directory)) => ExternalChange::Renamed {
                        from,
                        to: path,
                        directory: directory || was_directory,
                    },
                    None => entry(EntryChange::Added),
                }),
                // The server does not say what was modified.
                _ => reports.push(entry(EntryChange::Content)),
            }
        }
        if let Some((path, directory)) = renamed {
            let what = EntryChange::Removed;
            reports.push(ExternalChange::Entry {
                path,
                what,
                directory,
            });
        }
        if is_foreign {
            reports.push(ExternalChange::Node(folder.id));
        }
        reports
    }
}
