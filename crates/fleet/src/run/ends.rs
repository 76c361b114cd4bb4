//! The two ends of a job, and where a node of the source goes.

use std::sync::{Arc, OnceLock};

use ropeway_plan::names::{NameError, case_key};
use ropeway_plan::{NameMap, NamePolicy, Rules, changed_since_copy};
use ropeway_vfs::{
    Error, ErrorKind, FileId, Kind, Metadata, MetadataChange, Name, Op, Preserve, RelPath, SDDL_XATTR, Tree,
    Xattr,
};

use crate::error::{Error as FleetError, Result as FleetResult};
use crate::files::{CATALOG_PREFIX, name as file_name, of_mode};

/// Permission bits that the owner of a folder needs to fill, move and empty it.
pub(super) const OWNER_ALL: u32 = 0o700;

/// Permission bits of a folder whose source has none, as the copy engine gives them.
const FOLDER_MODE: u32 = 0o755;

/// Source and target of a job.
pub struct Ends {
    /// The tree to read. Its root is what is copied.
    pub source: Arc<dyn Tree>,
    /// The tree that holds target and catalog.
    pub target: Arc<dyn Tree>,
    /// The folder to copy into, in that tree. The root if the catalog lies inside.
    pub target_root: RelPath,
    /// Attributes to keep.
    pub preserve: Preserve,
    pub(crate) names: NameMap,
    pub(crate) rules: Rules,
    source_id: OnceLock<Option<FileId>>,
}

impl Ends {
    /// Makes the ends, with names mapped where the target has other rules.
    pub fn new(source: Arc<dyn Tree>, target: Arc<dyn Tree>, target_root: RelPath) -> Self {
        let (from, to) = (source.capabilities(), target.capabilities());
        Self {
            names: NameMap::new(from, to, NamePolicy::Auto),
            rules: Rules::between(from, to),
            preserve: Preserve::default(),
            source_id: OnceLock::new(),
            source,
            target,
            target_root,
        }
    }

    /// Returns what the target takes a name for.
    pub(crate) fn key_of(&self, name: &Name) -> Name {
        if self.target.capabilities().case_sensitive {
            return name.clone();
        }
        match self.names.map(name) {
            Ok(mapped) => case_key(&mapped.name),
            // It fails whatever its key is.
            Err(_) => case_key(name),
        }
    }

    /// Returns the path on the target.
    pub(crate) fn target_path(&self, source: &RelPath) -> Result<RelPath, NameError> {
        if self.names.is_identity() {
            // Without a copy of each component: this is asked twice for each file.
            let names = source.as_bytes().split(|byte| *byte == b'/');
            names
                .filter(|name| !name.is_empty())
                .try_for_each(|name| self.names.check_bytes(name))?;
            return Ok(self.target_root.join_path(source));
        }
        let mut path = self.target_root.clone();
        for name in source.components() {
            path = path.join(&self.names.map(&name)?.name);
        }
        Ok(path)
    }

    /// Returns the attributes that a node gets on the target. A creation time only where the target
    /// can set one.
    pub(crate) fn change_of(&self, metadata: &Metadata, mut xattrs: Option<Vec<Xattr>>) -> MetadataChange {
        if let Some(xattrs) = &mut xattrs {
            // An empty descriptor is one that may not be read.
            xattrs.retain(|xattr| xattr.name != SDDL_XATTR || !xattr.value.is_empty());
        }
        let mut change = MetadataChange::of(metadata, &self.preserve, xattrs);
        let target = self.target.capabilities();
        if !target.creation_times {
            change.created = None;
        }
        if metadata.is_dir() && change.mode.is_none() && target.modes {
            change.mode = Some(FOLDER_MODE);
        }
        change
    }

    /// Makes a folder on the target, and those above it. Others may make the same ones at the same
    /// time: whoever comes second finds them. Returns the attributes of the folder if it was there.
    pub(crate) async fn make_folder(&self, path: &RelPath) -> Result<Option<Metadata>, Error> {
        let mut missing = vec![path.clone()];
        let mut found = None;
        while let Some(next) = missing.last() {
            match self.target.make_dir(next, OWNER_ALL).await {
                Ok(()) => {
                    found = None;
                    missing.pop();
                }
                Err(error) if error.kind == ErrorKind::AlreadyExists => {
                    found = Some(self.open_up(next).await?);
                    missing.pop();
                }
                Err(error) if error.kind == ErrorKind::NotFound => match next.parent() {
                    Some(parent) if !parent.is_root() && missing.len() < 4_096 => missing.push(parent),
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Checks that an existing node is a folder that can be filled. Its attributes are set at the
    /// end. Returns those that it had.
    async fn open_up(&self, path: &RelPath) -> Result<Metadata, Error> {
        let metadata = self.target.metadata(path).await?;
        if metadata.kind != Kind::Directory {
            return Err(Error::new(Op::MakeDir, path, ErrorKind::NotADirectory));
        }
        let Some(mode) = metadata.mode.filter(|mode| mode & OWNER_ALL != OWNER_ALL) else {
            return Ok(metadata);
        };
        // If this is refused, the first file that does not fit tells.
        let _ = self.target.set_metadata(path, &of_mode(mode | OWNER_ALL)).await;
        Ok(metadata)
    }

    /// Whether a folder of the target is the source itself under another name, as that of a bind mount, of a
    /// server or of a share. `found` is the folder as it was listed.
    pub(crate) async fn is_source(&self, folder: &RelPath, found: &Metadata) -> FleetResult<bool> {
        let (from, to) = (self.source.capabilities(), self.target.capabilities());
        if !from.remote && !to.remote {
            if found.id.is_some() && self.source_id().await? == found.id {
                return Ok(true);
            }
            if !from.on_network && !to.on_network {
                return Ok(false);
            }
        }
        // Servers may give different nodes the same numbers, and one node several. So a probe decides where
        // it may be the same one. Somebody may change the source, so its time is asked for again.
        let root = self.source.metadata(&RelPath::root()).await;
        let root = root.map_err(FleetError::source)?;
        let index = |node: &Metadata| node.id.map(|id| id.index);
        let same_number = index(&root).is_some() && index(&root) == index(found);
        let times_known = root.modified.is_known() && found.modified.is_known();
        let same_time = self.rules.granularity.equal(root.modified, found.modified);
        match same_number || same_time || !times_known {
            true => self.shows_in_source(folder).await,
            false => Ok(false),
        }
    }

    async fn source_id(&self) -> FleetResult<Option<FileId>> {
        if let Some(known) = self.source_id.get() {
            return Ok(*known);
        }
        let found = self.source.metadata(&RelPath::root()).await;
        let id = found.map_err(FleetError::source)?.id;
        Ok(*self.source_id.get_or_init(|| id))
    }

    /// Whether what is made in a folder of the target appears in the root of the source.
    async fn shows_in_source(&self, folder: &RelPath) -> FleetResult<bool> {
        // The walk leaves out folders of such a name.
        let name = format!("{CATALOG_PREFIX}-probe.{:016x}", fastrand::Rng::new().u64(..));
        let name = file_name(&name);
        let probe = folder.join(&name);
        let made = match self.target.make_dir(&probe, OWNER_ALL).await {
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        };
        let shown = self.source.metadata(&RelPath::root().join(&name)).await;
        // Also if making it failed: only the reply may have been lost.
        let removed = match self.target.remove_dir(&probe).await {
            Err(error) if error.kind.is_absence() => Ok(()),
            removed => removed,
        };
        if shown.is_ok() {
            return Ok(true);
        }
        made.and(removed).map_err(FleetError::target)?;
        match shown {
            Err(error) if !error.kind.is_absence() => Err(FleetError::source(error)),
            _ => Ok(false),
        }
    }

    /// Whether the attributes of an equal file changed after its copy was made: extended attributes and
    /// ACLs show in no other field.
    pub(crate) fn is_outdated(&self, source: &Metadata, existing: &Metadata) -> bool {
        let (from, to) = (self.source.capabilities(), self.target.capabilities());
        to.xattrs && self.preserve.xattrs && changed_since_copy((source, from), (existing, to))
    }
}
