//! Snapshots of a share, which clients show as previous versions.
//!
//! A client asks for the times of all snapshots ([MS-SMB2] 2.2.32.2), and opens a file as it was by naming
//! one of them in CREATE ([MS-SMB2] 2.2.13.2.7). Such an open belongs to a share of its own, which nobody
//! can change and nobody else sees.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_smb_wire::fsctl::snapshots::token;
use ropeway_smb_wire::{FileTime, NtStatus, Text};
use ropeway_vfs::store::Snapshots;

use crate::files::status;
use crate::share::Share;

/// Maximum number of snapshots that are kept open without a client; the one that was used longest ago is
/// closed. A guess: people look at a few.
const OPEN_MAX: usize = 16;
/// Time after which a snapshot that nobody uses is closed: ZFS removes none that is in use.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The snapshots of a share.
pub struct ShareSnapshots {
    source: Arc<dyn Snapshots>,
    /// The last used one is at the end.
    open: Mutex<Vec<OpenSnapshot>>,
}

struct OpenSnapshot {
    /// Its time in seconds.
    time: i64,
    share: Arc<Share>,
    used: Instant,
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
    pub(crate) fn at(self: &Arc<Self>, live: &Share, time: FileTime) -> Result<Arc<Share>, NtStatus> {
        let (time, _) = time.to_unix();
        if let Some(share) = self.opened(time) {
            return Ok(share);
        }
        // Without the lock: mounting a snapshot may take a while.
        let store = self.source.open(time).map_err(|error| status::of(&error))?;
        let share = Arc::new(Share {
            comment: live.comment.clone(),
            read_only: true,
            encrypt: live.encrypt,
            anonymous: live.anonymous,
            hide_dot_files: live.hide_dot_files,
            links: live.links,
            ..Share::new(&live.name, store)
        });
        if let Some(first) = self.opened(time) {
            return Ok(first);
        }
        let mut open = self.open.lock();
        if open.is_empty() {
            self.close_later();
        }
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push(OpenSnapshot {
            time,
            share: Arc::clone(&share),
            used: Instant::now(),
        });
        Ok(share)
    }

    /// Returns the share of a snapshot that is open already.
    fn opened(&self, time: i64) -> Option<Arc<Share>> {
        let mut open = self.open.lock();
        let at = open.iter().position(|one| one.time == time)?;
        let mut last = open.remove(at);
        last.used = Instant::now();
        let share = Arc::clone(&last.share);
        open.push(last);
        Some(share)
    }

    /// Starts a thread that closes what nobody uses any more. It ends when nothing is open.
    fn close_later(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        let close = move || {
            loop {
                std::thread::sleep(IDLE_MAX / 2);
                let Some(this) = this.upgrade() else { return };
                let mut open = this.open.lock();
                open.retain(|one| one.used.elapsed() < IDLE_MAX);
                if open.is_empty() {
                    return;
                }
            }
        };
        // Without a thread they stay open until others take their places.
        _ = std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(close);
    }
}
