//! The recycle bin of a share: files that clients delete are kept for some days in a folder of the share.
//!
//! ```text
//! .recycle/2026-11-26/photos/a.jpg        deleted that day (UTC), beneath its own folders
//! .recycle/2026-11-26 1345/photos/a.jpg   another one of that name, at 13:45
//! ```
//! To get a file back, a user moves it out. What is deleted in the bin itself is gone. Not kept are
//! folders, links, names of files that have other names, and files larger than the bin. A file that
//! cannot be moved, because the disk is full or the bin is on another volume, is removed: deleting must
//! always be possible.
//!
//! Folders in the bin have the permissions and the security descriptors of those whose files they hold, so
//! that nobody may do more with a file than before.
//!
//! A thread removes what is too old, and the oldest files while the bin is too large (`clean`). Whatever
//! else is in `.recycle` belongs to its users: it is not counted, and stays.

mod clean;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::{Condvar, Mutex, RwLock};
use ropeway_vfs::posix::Permissions;
use ropeway_vfs::store::{NewNode, NodeOpen, Opened, Store};
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Name, Op, RelPath, Result};

/// Name of the bin in the share's topmost folder, as with Samba's `vfs_recycle`.
const FOLDER: &str = ".recycle";

/// What a bin keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecycleLimits {
    /// Days for which files are kept.
    pub days: u32,
    /// Bytes of all files in it.
    pub bytes: u64,
}

/// The recycle bin of a share.
pub struct RecycleBin {
    store: Arc<dyn Store>,
    limits: RecycleLimits,
    /// Whether files of a name are removed at once.
    is_left_out: fn(&Name) -> bool,
    level: Arc<Level>,
    /// Held by many while files are moved in, by one while an empty folder is removed.
    folders: RwLock<()>,
}

/// How full a bin is; its thread waits here.
#[derive(Default)]
struct Level {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes in the bin as far as known.
    bytes: u64,
    /// Whether there are more than allowed.
    is_over: bool,
    /// Whether the bin is not used any more.
    has_ended: bool,
}

/// Where a file was moved to.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its path in the bin.
    pub(crate) path: RelPath,
    /// The folders that were made for it.
    pub(crate) folders: Vec<RelPath>,
}

impl RecycleBin {
    /// Makes the bin of a store, if it has none. A thread cleans it now and every hour, until
    /// [`end`](Self::end). Files for whose names `is_left_out` is true are removed at once.
    ///
    /// # Errors
    /// The folder `.recycle` cannot be made, or is no folder.
    pub fn start(
        store: Arc<dyn Store>,
        limits: RecycleLimits,
        is_left_out: fn(&Name) -> bool,
    ) -> Result<Arc<Self>> {
        let bin = Arc::new(Self::new(store, limits, is_left_out));
        bin.make_folder(&top(), &RelPath::root(), &mut Vec::new())?;
        let (weak, level) = (Arc::downgrade(&bin), Arc::clone(&bin.level));
        let spawned = thread::Builder::new()
            .name("recycle-bin".to_owned())
            .spawn(move || clean::clean_on(&weak, &level));
        if let Err(error) = spawned {
            tracing::warn!(%error, "the recycle bin will not be cleaned");
        }
        Ok(bin)
    }

    fn new(store: Arc<dyn Store>, limits: RecycleLimits, is_left_out: fn(&Name) -> bool) -> Self {
        Self {
            store,
            limits,
            is_left_out,
            level: Arc::default(),
            folders: RwLock::new(()),
        }
    }

    /// Ends cleaning, although clients may still have the share open. What they delete is kept.
    pub fn end(&self) {
        self.level.state.lock().has_ended = true;
        self.level.changed.notify_all();
    }

    /// Moves a file into the bin instead of removing its name. Returns `None` if it is to be removed.
    ///
    /// # Errors
    /// `Gone` if the name belongs to another node by now.
    pub(crate) fn take(&self, id: FileId, path: &RelPath) -> Result<Option<Kept>> {
        self.take_at(id, path, now())
    }

    fn take_at(&self, id: FileId, path: &RelPath, now: Timestamp) -> Result<Option<Kept>> {
        let Some(size) = self.wanted(id, path) else {
            return Ok(None);
        };
        for folder in folders(now) {
            match self.move_to(&folder, id, path) {
                Ok(kept) => {
                    self.added(size);
                    return Ok(Some(kept));
                }
                // A file of that name, or something else, was deleted before.
                Err(error) if is_taken(error.kind) => {}
                Err(error) if error.kind == ErrorKind::Gone => return Err(error),
                Err(error) => {
                    tracing::warn!(%path, %error, "a deleted file cannot be kept in the recycle bin");
                    return Ok(None);
                }
            }
        }
        tracing::warn!(%path, "a deleted file is not kept: another one of that name was deleted in this minute");
        Ok(None)
    }

    fn added(&self, size: u64) {
        let mut state = self.level.state.lock();
        state.bytes = state.bytes.saturating_add(size);
        if state.bytes > self.limits.bytes {
            state.is_over = true;
            self.level.changed.notify_one();
        }
    }

    /// Returns the size of a file that is to be kept.
    fn wanted(&self, id: FileId, path: &RelPath) -> Option<u64> {
        let first = path.components().next()?;
        if first.as_bytes().eq_ignore_ascii_case(FOLDER.as_bytes()) || (self.is_left_out)(&path.file_name()?)
        {
            return None;
        }
        let stat = self.store.look(path).ok()?;
        let is_last_name = stat.links <= 1;
        (stat.kind == Kind::File && stat.id == id && is_last_name && stat.size <= self.limits.bytes)
            .then_some(stat.size)
    }

    fn move_to(&self, folder: &RelPath, id: FileId, path: &RelPath) -> Result<Kept> {
        let _moving = self.folders.read();
        let (mut original, mut made) = (RelPath::root(), folder.clone());
        let mut folders = Vec::new();
        self.make_folder(&top(), &original, &mut folders)?;
        self.make_folder(&made, &original, &mut folders)?;
        for name in path.parent().iter().flat_map(RelPath::components) {
            original = original.join(&name);
            made = made.join(&name);
            self.make_folder(&made, &original, &mut folders)?;
        }
        let to = folder.join_path(path);
        self.store.rename_node(id, path, &to, false)?;
        // A local program may have put another file there in the last moment.
        if self.store.look(&to)?.id != id {
            self.store.rename(&to, path, false)?;
            return Err(Error::new(Op::Rename, path, ErrorKind::Gone));
        }
        Ok(Kept { path: to, folders })
    }

    /// Makes a folder with the permissions and the descriptor of another. One that is there must have
    /// them, or files would be open to others than before; only the bin's own, which stand for the
    /// share's topmost folder, are changed.
    fn make_folder(&self, path: &RelPath, like: &RelPath, made: &mut Vec<RelPath>) -> Result<()> {
        let new = NewNode {
            directory: true,
            dos_attributes: None,
        };
        let how = NodeOpen {
            create: Some(new),
            // Nothing is put where a link leads.
            link_itself: true,
            ..NodeOpen::default()
        };
        let opened = self.store.open(path, &how)?;
        let (is_top, like_is_root) = (*path == top(), like.is_root());
        let refused = |kind| Err(Error::new(Op::Create, path, kind));
        match opened.stat.kind {
            Kind::Directory => {}
            _ if is_top => return refused(ErrorKind::Misuse),
            _ => return refused(ErrorKind::NotADirectory),
        }
        let like = self.store.open(like, &NodeOpen::default())?;
        if opened.created {
            made.push(path.clone());
        } else if self.is_alike(&opened, &like)? {
            return Ok(());
        } else if !like_is_root {
            return refused(ErrorKind::AlreadyExists);
        }
        self.protect(&opened, &like)
    }

    /// Gives a folder the permissions and the descriptor of another.
    fn protect(&self, folder: &Opened, like: &Opened) -> Result<()> {
        // First, since a descriptor may hold for the permissions of its time alone.
        if folder.stat.mode != like.stat.mode {
            let mode = Permissions {
                mode: Some(like.stat.mode),
                ..Permissions::default()
            };
            match folder.node.set_permissions(&mode) {
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                set => set?,
            }
        }
        if self.store.may_hold_security()
            && let Some(descriptor) = like.node.security()?
        {
            folder.node.set_security(&descriptor)?;
        }
        Ok(())
    }

    fn is_alike(&self, folder: &Opened, like: &Opened) -> Result<bool> {
        if folder.stat.mode != like.stat.mode {
            return Ok(false);
        }
        Ok(!self.store.may_hold_security() || folder.node.security()? == like.node.security()?)
    }
}

impl Drop for RecycleBin {
    fn drop(&mut self) {
        self.end();
    }
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns the bin's path.
fn top() -> RelPath {
    RelPath::parse(FOLDER.as_bytes()).unwrap_or(RelPath::root())
}

/// Returns the folders for files that are deleted now, the usual one first.
fn folders(now: Timestamp) -> impl Iterator<Item = RelPath> {
    let now = now.to_zoned(TimeZone::UTC);
    ["%Y-%m-%d", "%Y-%m-%d %H%M"]
        .into_iter()
        .filter_map(move |form| RelPath::parse(format!("{FOLDER}/{}", now.strftime(form)).as_bytes()))
}

fn is_taken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::NotEmpty
    )
}
