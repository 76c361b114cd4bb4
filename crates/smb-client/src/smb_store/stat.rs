//! Attributes of nodes: from the cache or the server, with the lengths that unsent writes make.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Metadata, Op, Owner, RelPath, Result};

use super::node_cache::{Known, Validity};
use super::shared::Shared;
use super::shared_file::SharedFile;
use super::writing::is_status;

/// Permission bits shown for folders and files: a share does not report them. Programs on it can run.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o755;
const READ_ONLY_MODE: u32 = 0o555;
/// The DOS attribute READONLY ([MS-FSCC] 2.6).
const READONLY: u32 = 1;

impl Shared {
    /// Returns the attributes of a node. The link itself is meant, not its target.
    pub(super) async fn stat(self: &Arc<Self>, op: Op, path: &RelPath) -> Result<NodeStat> {
        let known = self.known(path);
        let stat = match known {
            Some(Known::There(stat)) => stat,
            Some(Known::Missing) => return Err(Error::new(op, path, ErrorKind::NotFound)),
            None => self.ask(op, path).await?,
        };
        Ok(self.with_unsent(stat))
    }

    /// Returns what the cache knows of a path.
    pub(super) fn known(&self, path: &RelPath) -> Option<Known> {
        let now = self.now();
        let known = self.cache.lock().get(path, now);
        match known {
            None if path.is_root() => self.top.get(now).map(Known::There),
            known => known,
        }
    }

    /// Asks the server for the attributes of a node, in one round trip (two for a link).
    pub(super) async fn ask(self: &Arc<Self>, op: Op, path: &RelPath) -> Result<NodeStat> {
        if path
            .file_name()
            .is_some_and(|name| super::names::is_temporary(&name))
        {
            return Err(Error::new(op, path, ErrorKind::NotFound));
        }
        tracing::trace!(%path, "asks for attributes");
        let listing = self.note_question(path);
        // A server may report the new times of a written file only once it is closed. `umount` asks
        // for the topmost folder, which is none.
        if !path.is_root() {
            self.tree.wait_for_closes().await;
        }
        let (asked, since) = (self.cache.lock().ask(), self.now());
        let lease = self.lease_on_folder_of(path);
        let question = path.is_root().then(|| self.top.ask(self.folders.lease(path)));
        let found = self.tree.stat(op, path).await;
        self.wait_for_lease(listing).await;
        let found = found.map(|metadata| self.with_sent(self.node_stat(&metadata, path), since));
        let known = match &found {
            Ok(stat) => Some(Known::There(*stat)),
            Err(error) if error.kind == ErrorKind::NotFound => Some(Known::Missing),
            Err(_) => None,
        };
        if let (Some(question), Ok(stat)) = (question, &found) {
            self.top.put(question, *stat, since);
        }
        if let Some(known) = known {
            let validity = lease.map_or_else(|| self.validity(), Validity::leased);
            self.cache.lock().put(asked, path, known, validity);
        }
        found.map_err(goes_away)
    }

    /// Converts metadata of the tree.
    pub(super) fn node_stat(&self, metadata: &Metadata, path: &RelPath) -> NodeStat {
        let mode = match metadata.kind {
            Kind::Directory => FOLDER_MODE,
            Kind::Symlink => 0o777,
            _ if metadata.dos_attributes.is_some_and(|bits| bits & READONLY != 0) => READ_ONLY_MODE,
            _ => FILE_MODE,
        };
        let modified = metadata.modified.known().unwrap_or_default();
        if metadata.kind == Kind::File && (metadata.id.is_none() || metadata.changed.is_none()) {
            self.is_versionless.store(true, Ordering::Release);
        }
        NodeStat {
            kind: metadata.kind,
            size: metadata.size,
            allocated: metadata.allocated.unwrap_or(metadata.size),
            links: metadata.links,
            id: metadata.id.unwrap_or_else(|| self.id_of_path(path)),
            mode: metadata.mode.unwrap_or(mode),
            owner: metadata.owner.unwrap_or(Owner { user: 0, group: 0 }),
            created: metadata.created.unwrap_or(modified),
            accessed: metadata.accessed.unwrap_or(modified),
            modified,
            changed: metadata.changed.unwrap_or(modified),
            dos_attributes: metadata.dos_attributes,
        }
    }

    /// Returns an id for a node of a server that has no file ids.
    fn id_of_path(&self, path: &RelPath) -> FileId {
        let mut hasher = DefaultHasher::new();
        path.as_bytes().hash(&mut hasher);
        FileId {
            volume: self.tree.volume,
            index: hasher.finish(),
        }
    }

    /// Adds the length that writes make which were answered since the server was asked: the reply
    /// may be older.
    pub(super) fn with_sent(&self, mut stat: NodeStat, since: Duration) -> NodeStat {
        if stat.kind == Kind::File
            && let Some(file) = self.files.get(stat.id)
        {
            let content = file.content.lock();
            if let Some((_, end)) = content.answered_end.filter(|(at, _)| *at >= since) {
                stat.size = stat.size.max(end);
            }
            stat.size = stat.size.max(content.write.unanswered_end());
        }
        stat
    }

    /// Adds the length that unsent writes make.
    pub(super) fn with_unsent(&self, stat: NodeStat) -> NodeStat {
        if stat.kind != Kind::File || self.unflushed.load(std::sync::atomic::Ordering::Acquire) == 0 {
            return stat;
        }
        match self.files.get(stat.id) {
            Some(file) => file.with_unsent(stat),
            None => stat,
        }
    }

    /// Checks that a name belongs to a node.
    pub(super) async fn check_id(self: &Arc<Self>, id: FileId, path: &RelPath) -> Result<NodeStat> {
        let stat = self.ask(Op::Stat, path).await?;
        match stat.id == id {
            true => Ok(self.with_unsent(stat)),
            false => Err(Error::new(Op::Stat, path, ErrorKind::Gone)),
        }
    }
}

impl SharedFile {
    fn with_unsent(&self, mut stat: NodeStat) -> NodeStat {
        stat.size = stat.size.max(self.content.lock().write.unanswered_end());
        stat
    }

    /// Returns the attributes if the cache has them.
    pub(super) fn known_stat(&self) -> Option<NodeStat> {
        match self.store.known(&self.path()?)? {
            Known::There(stat) if stat.id == self.id => Some(self.with_unsent(stat)),
            _ => None,
        }
    }

    /// Returns the current attributes.
    pub(super) async fn stat(self: &Arc<Self>) -> Result<NodeStat> {
        match self.known_stat() {
            Some(stat) => Ok(stat),
            None => self.stat_now().await,
        }
    }

    /// Asks the server for the current attributes.
    pub(super) async fn stat_now(self: &Arc<Self>) -> Result<NodeStat> {
        let Some(path) = self.path() else {
            return self.stat_without_name().await;
        };
        let stat = match self.held(false) {
            Some(file) => {
                let (asked, since) = (self.store.cache.lock().ask(), self.store.now());
                let stat = self.store.node_stat(&file.query().await?, &path);
                let stat = self.store.with_sent(stat, since);
                let validity = self.store.validity();
                self.store
                    .cache
                    .lock()
                    .put(asked, &path, Known::There(stat), validity);
                stat
            }
            None => self.store.ask(Op::Stat, &path).await?,
        };
        match stat.id == self.id {
            true => Ok(self.with_unsent(stat)),
            // Another node has the name by now.
            false => Err(self.error(Op::Stat, ErrorKind::Gone)),
        }
    }

    /// Returns the attributes of a removed file that is still open.
    async fn stat_without_name(&self) -> Result<NodeStat> {
        let file = self
            .held(false)
            .ok_or_else(|| self.error(Op::Stat, ErrorKind::Gone))?;
        let since = self.store.now();
        let metadata = file.query().await?;
        let stat = self.store.node_stat(&metadata, &self.last_path());
        let mut stat = self.store.with_sent(stat, since);
        stat.links = 0;
        Ok(stat)
    }
}

/// A name that is being deleted cannot be opened any more, so it is missing, as other clients for Linux
/// see it too. The handle that keeps it may be one of ours, of a file that was read ahead.
pub(super) fn goes_away(error: Error) -> Error {
    match is_status(&error, NtStatus::DELETE_PENDING) {
        true => Error {
            kind: ErrorKind::NotFound,
            ..error
        },
        false => error,
    }
}
