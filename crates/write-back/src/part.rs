//! One part of a file's journal.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::backlog::{Piece, Place};
use crate::log::LogSpace;
use crate::record::DATA_AT;
use crate::seal::Seal;

/// A part. Its file is removed when the last user lets go of a part that is done with.
pub(crate) struct Part {
    place: Arc<LogSpace>,
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) seal: Seal,
    charged: AtomicU64,
    is_done: AtomicBool,
    /// The newest part of a log that ended while a reader held this one: its file goes after this one.
    newest: OnceLock<Arc<Part>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_done.load(Ordering::Acquire) {
            return;
        }
        let removed = self.place.disk.remove(&self.name);
        if let Err(error) = &removed {
            tracing::warn!(name = self.name, %error, "a part of the journal cannot be removed");
        }
        let charged = *self.charged.get_mut();
        self.place.used.fetch_sub(charged, Ordering::AcqRel);
        if let Some(newest) = self.newest.get() {
            let removed = removed.and_then(|()| self.place.disk.sync_names());
            newest.older_is_removed(&removed);
        }
    }
}

impl Part {
    pub(crate) fn new(place: &Arc<LogSpace>, name: String, number: u32, seal: Seal) -> Self {
        Self {
            place: Arc::clone(place),
            name,
            number,
            seal,
            charged: AtomicU64::new(0),
            is_done: AtomicBool::new(false),
            newest: OnceLock::new(),
        }
    }

    pub(crate) fn charge(&self, bytes: u64) {
        self.charged.fetch_add(bytes, Ordering::AcqRel);
        self.place.used.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Marks the part as one whose file is not needed any more.
    pub(crate) fn is_done_with(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Keeps the file of the newest part until the one of this part is gone.
    pub(crate) fn goes_before(&self, newest: &Arc<Self>) {
        let _ = self.newest.set(Arc::clone(newest));
    }

    /// Takes the outcome of the removal of an older part. If that may come back after a power cut, this
    /// one stays: it says that the older one is not needed. The next start removes both.
    pub(crate) fn older_is_removed(&self, removed: &io::Result<()>) {
        if let Err(error) = removed {
            tracing::warn!(name = self.name, %error, "an ended journal stays until the next start");
            self.is_done.store(false, Ordering::Release);
        }
    }

    /// Reads a part of a piece's bytes: `into.len()` bytes, `skip` bytes behind its beginning.
    pub(crate) fn read(&self, piece: &Piece, skip: u64, into: &mut [u8]) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a record of the journal is damaged");
        let Place {
            number, at, length, ..
        } = piece.place;
        let mut sealed = vec![0; length as usize];
        self.place.disk.read(&self.name, at, &mut sealed)?;
        let plain = self.seal.open(number, &mut sealed).ok_or_else(damaged)?;
        let data = plain.get(DATA_AT..).ok_or_else(damaged)?;
        let start = usize::try_from(u64::from(piece.skip) + skip).map_err(|_| damaged())?;
        let wanted = data
            .get(start..)
            .and_then(|data| data.get(..into.len()))
            .ok_or_else(damaged)?;
        into.copy_from_slice(wanted);
        Ok(())
    }
}
