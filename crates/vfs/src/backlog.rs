//! A bound for the folders that a walk has found and not entered yet.
//!
//! A walk goes depth first and keeps the folders it has still to enter. A server may list folders
//! without end, so their number needs a bound. It counts bytes, since a path may be long. Trees of
//! this machine are finite and are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tree::Tree;
use crate::{Error, ErrorKind, Op, RelPath, Result};

/// Most bytes of waiting folders: 1.4 million with paths of 60 bytes. A guess.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of one folder in addition to its path: a copy keeps two [`Metadata`](crate::Metadata) and
/// their containers.
const FOLDER_BYTES: u64 = 640;

/// Room for the folders that a walk has still to enter.
#[derive(Clone, Debug)]
pub struct Backlog(Option<Arc<Room>>);

#[derive(Debug)]
struct Room {
    taken: AtomicU64,
    bytes_max: u64,
}

impl Backlog {
    /// Makes a backlog for a walk of `tree`.
    pub fn of(tree: &dyn Tree) -> Self {
        match tree.capabilities().remote {
            true => Self::with_bytes(BYTES_MAX),
            false => Self(None),
        }
    }

    /// Makes a backlog with room for `bytes_max` bytes.
    fn with_bytes(bytes_max: u64) -> Self {
        Self(Some(Arc::new(Room {
            taken: AtomicU64::new(0),
            bytes_max,
        })))
    }

    /// Takes room for a folder, until the result is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::PeerMisbehaved`]: too many folders wait already.
    pub fn hold(&self, path: &RelPath) -> Result<Held> {
        let Some(room) = &self.0 else {
            return Ok(Held::default());
        };
        // Both ends keep the path.
        let bytes = FOLDER_BYTES + 2 * path.as_bytes().len() as u64;
        let held = Held {
            room: Some(Arc::clone(room)),
            bytes,
        };
        if room.taken.fetch_add(bytes, Ordering::Relaxed) + bytes <= room.bytes_max {
            return Ok(held);
        }
        let mut error = Error::new(Op::List, path, ErrorKind::PeerMisbehaved);
        let sentence = format!(
            "the server lists too many folders: those found and not entered yet fill {} MiB; the rest is left out",
            room.bytes_max >> 20
        );
        error.source = Some(std::io::Error::other(sentence));
        Err(error)
    }
}

/// The room that one folder takes.
#[derive(Debug, Default)]
pub struct Held {
    room: Option<Arc<Room>>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entering_a_folder_makes_room() {
        let backlog = Backlog::with_bytes(3 * (FOLDER_BYTES + 2));
        let path = RelPath::parse(b"a").unwrap();
        let mut waiting: Vec<Held> = (0..3).map(|_| backlog.hold(&path).unwrap()).collect();
        for _ in 0..2 {
            let error = backlog.hold(&path).unwrap_err();
            assert_eq!(error.kind, ErrorKind::PeerMisbehaved);
        }
        waiting.pop();
        waiting.push(backlog.hold(&path).unwrap());
        assert!(backlog.hold(&RelPath::root()).is_err());
    }

    #[test]
    fn folders_of_this_machine_are_not_counted() {
        let backlog = Backlog::of(&crate::MemoryTree::new());
        assert!(backlog.0.is_none());
        backlog.hold(&RelPath::root()).unwrap();
    }
}
