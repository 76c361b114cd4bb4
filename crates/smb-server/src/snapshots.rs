//! Snapshots of a share, which clients show as previous versions.
//!
//! A client asks for the times of all snapshots ([MS-SMB2] 2.2.32.2), and opens a file as it was by naming
//! one of them in CREATE ([MS-SMB2] 2.2.13.2.7). Such an open belongs to a share of its own, which nobody
//! can change and nobody else sees.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_smb_wire::fsctl::snapshots::token;
use ropeway_smb_wire::{FileTime, NtStatus, Text};
use ropeway_vfs::store::Snapshots;

use crate::files::status;
use crate::share::Share;

/// Maximum number of snapshots that are kept open without a client; the one that was used longest ago is
/// closed. A guess: people look at a few.
const OPEN_MAX: usize = 16;

/// The snapshots of a share.
pub struct ShareSnapshots {
    source: Arc<dyn Snapshots>,
    /// Shares of snapshots with their times in seconds, the last used one at the end.
    open: Mutex<Vec<(i64, Arc<Share>)>>,
}

impl std::fmt::Debug for ShareSnapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareSnapshots").finish_non_exhaustive()
    }
}

impl ShareSnapshots {
    /// Makes the snapshots of a share from those of its folder.
    pub fn new(source: Arc<dyn Snapshots>) -> Self {
        Self {
            source,
            open: Mutex::default(),
        }
    }

    /// Returns the tokens of all snapshots, the newest first.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn tokens(&self) -> Result<Vec<Text>, NtStatus> {
        let times = self.source.times().map_err(|error| status::of(&error))?;
        Ok(times
            .into_iter()
            .filter_map(|time| token(FileTime::from_unix(time, 0)))
            .collect())
    }

    /// Returns the share of a snapshot of `live`. Tokens have whole seconds, and so has `time`.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is none of that time ([MS-SMB2] 3.3.5.9.5); others if it cannot
    /// be opened.
    pub(crate) fn at(&self, live: &Share, time: FileTime) -> Result<Arc<Share>, NtStatus> {
        let (time, _) = time.to_unix();
        let mut open = self.open.lock();
        let share = match open.iter().position(|(known, _)| *known == time) {
            Some(at) => open.remove(at).1,
            None => {
                let store = self.source.open(time).map_err(|error| status::of(&error))?;
                Arc::new(Share {
                    comment: live.comment.clone(),
                    read_only: true,
                    encrypt: live.encrypt,
                    anonymous: live.anonymous,
                    hide_dot_files: live.hide_dot_files,
                    links: live.links,
                    ..Share::new(&live.name, store)
                })
            }
        };
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push((time, Arc::clone(&share)));
        Ok(share)
    }
}
