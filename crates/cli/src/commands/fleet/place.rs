//! Where the target of a job is, and where its catalog.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_fleet::store::{CATALOG_PREFIX, Run, Runs, Store};
use ropeway_fleet::workers::WorkerId;
use ropeway_vfs::{Name, RelPath, Tree};

use super::{failure, no_job};
use crate::ends::{cause, parent_of};
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::trees::Opener;

/// Longest name of a target that is part of the name of its catalog. Longer names are hashed.
const NAME_MAX: usize = 200;

/// The target of a job.
pub(super) struct Target {
    /// As messages show it.
    pub(super) shown: String,
    /// Absolute place.
    pub(super) place: Place,
    /// The tree that holds target and catalog.
    tree: Place,
    /// Path of the target in the tree.
    pub(super) path: RelPath,
    catalog: RelPath,
}

impl Target {
    /// Finds the target that an argument names. Whether it exists is not examined.
    ///
    /// # Errors
    /// The argument is no valid place, or the folder above it does not exist.
    pub(super) fn find(argument: &Path) -> Result<Self, Failure> {
        let (place, is_top) = match Place::parse_target(argument)? {
            Place::Local(path) => {
                let path = absolute(&path)?;
                let is_top = is_top(&path);
                (Place::Local(path), is_top)
            }
            Place::Remote(url) => {
                let is_top = url.path.is_root();
                (Place::Remote(url), is_top)
            }
        };
        let shown = place.to_string();
        let (above, name) = match (place.parent(), place.name()) {
            (Some(above), Some(name)) if !is_top => (above, Some(name)),
            _ => (place.clone(), None),
        };
        let (tree, inside) = above.rooted();
        let path = match &name {
            Some(name) => inside.join(name),
            None => inside.clone(),
        };
        Ok(Self {
            catalog: inside.join(&catalog_name(name.as_ref())),
            shown,
            place,
            tree,
            path,
        })
    }

    /// Refuses a source that lies in the target, or the other way round.
    ///
    /// # Errors
    /// It does.
    pub(super) fn refuse_overlap(&self, source: &Place) -> Result<(), Failure> {
        if !self.place.starts_with(source) && !source.starts_with(&self.place) {
            return Ok(());
        }
        let message = format!("{source} and {} lie one in the other", self.shown);
        Err(Failure::usage(message).hint("choose a DST outside of SRC"))
    }

    /// Whether further connections to the target can be made: it is a share of SMB 2 or 3.
    pub(super) fn has_own_line(&self) -> bool {
        matches!(&self.place, Place::Remote(url) if !url.server.is_smb1())
    }

    /// Opens the tree of the target, and the jobs beside it.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(super) async fn open(&self, servers: &Servers) -> Result<(Arc<dyn Tree>, Runs), Failure> {
        self.open_for(servers, false).await
    }

    /// The same, for copies. `both_local`: neither end is a share.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(super) async fn open_for(
        &self,
        servers: &Servers,
        both_local: bool,
    ) -> Result<(Arc<dyn Tree>, Runs), Failure> {
        let opener = opener(servers, both_local).writing();
        let tree = opener.target(&self.tree).await?;
        let worker = WorkerId(fastrand::Rng::new().u64(..));
        let runs = Runs::new(Arc::clone(&tree), self.catalog.clone(), worker);
        Ok((tree, runs))
    }

    /// Returns the source that a job names. Whoever may write to a share may have written its jobs, so a server in them
    /// must be that of the share: a login that is sent to another one can be passed on, or guessed from.
    ///
    /// # Errors
    /// It is on another server.
    pub(super) fn source_of_job(&self, named: &str) -> Result<PathBuf, Failure> {
        let path = PathBuf::from(named);
        let (Place::Remote(own), Place::Remote(url)) = (&self.place, source_place(&path)?) else {
            return Ok(path);
        };
        if (&own.server.host, own.server.port) == (&url.server.host, url.server.port) {
            return Ok(path);
        }
        let message = format!("the job names another server as its source: {url}");
        Err(Failure::usage(message).hint("if it is the right one, give it with --source"))
    }

    /// Opens the last job, to look at it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(super) async fn job(&self, servers: &Servers) -> Result<Store, Failure> {
        let (run, runs) = self.newest(servers).await?;
        Ok(runs.store(run))
    }

    /// Opens the last job, to work on it: nobody else can write to its catalog.
    ///
    /// # Errors
    /// There is none, it cannot be read, or belongs to another user.
    pub(super) async fn own_job(&self, servers: &Servers) -> Result<(Run, Store), Failure> {
        let (run, runs) = self.newest(servers).await?;
        let what = format!("cannot work on {}", self.shown);
        runs.check(run).await.map_err(|error| failure(&what, &error))?;
        Ok((run, runs.store(run)))
    }

    async fn newest(&self, servers: &Servers) -> Result<(Run, Runs), Failure> {
        let (_, runs) = self.open(servers).await?;
        let what = format!("cannot read the job of {}", self.shown);
        let newest = runs.newest().await.map_err(|error| failure(&what, &error))?;
        Ok((newest.ok_or_else(|| no_job(&self.shown))?, runs))
    }
}

/// Returns the place of a source, absolute where it is a folder of this machine.
///
/// # Errors
/// The argument is no valid place.
pub(super) fn source_place(argument: &Path) -> Result<Place, Failure> {
    Ok(match Place::parse_end(argument)? {
        Place::Local(path) if path.is_dir() => Place::Local(absolute(&path)?),
        place => place,
    })
}

/// Makes an opener. Between two local ends Windows metadata is copied as it is stored.
pub(super) fn opener(servers: &Servers, both_local: bool) -> Opener<'_> {
    match both_local {
        true => Opener::plain(servers, None).with_raw_xattrs(),
        false => Opener::plain(servers, None),
    }
}

/// Returns the name of the catalog of a target; `None` for one that lies inside its target.
fn catalog_name(target: Option<&Name>) -> Name {
    let mut text = CATALOG_PREFIX.as_bytes().to_vec();
    if let Some(target) = target {
        text.push(b'-');
        match target.as_bytes().len() <= NAME_MAX {
            true => text.extend_from_slice(target.as_bytes()),
            false => text.extend_from_slice(blake3::hash(target.as_bytes()).to_hex()[..32].as_bytes()),
        }
    }
    Name::new(&text).expect("a name with a begin of letters is a name")
}

/// Makes a path absolute. The folder above it must exist.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let fault = |error: std::io::Error| {
        let message = format!("cannot use {}: {}", path.display(), cause(&error));
        Failure::of_end(message, &error, code::TARGET).hint("the folder above the target must exist")
    };
    if path.is_dir() {
        return fs::canonicalize(path).map_err(fault);
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!("{} names no folder", path.display())));
    };
    Ok(fs::canonicalize(parent_of(path)).map_err(fault)?.join(name))
}

/// Whether a folder is the top of a mount, so that nothing can be renamed into it from beside it. A bind
/// mount may be one of the volume around it.
fn is_top(path: &Path) -> bool {
    let Some(parent) = path.parent() else {
        return true;
    };
    let mount = |path: &Path| {
        let device = fs::metadata(path).map(|metadata| metadata.dev()).ok()?;
        Some((device, ropeway_local::mount_identity(path).ok()))
    };
    mount(path).is_some_and(|own| mount(parent) != Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_lies_beside_the_target_or_inside_a_top_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let target = Target::find(&root.join("copy")).unwrap();
        assert_eq!(target.tree, Place::Local(root.clone()));
        assert_eq!(target.path.to_string(), "copy");
        assert_eq!(target.catalog.to_string(), ".ropeway-fleet-copy");
        let top = Target::find(Path::new("/proc")).unwrap();
        assert!(top.path.is_root());
        assert_eq!(top.catalog.to_string(), ".ropeway-fleet");
        let share = Target::find(Path::new("smb://ann@nas/data")).unwrap();
        assert!(share.path.is_root());
        let below = Target::find(Path::new("smb://ann@nas/data/a/b")).unwrap();
        assert_eq!(
            (below.path.to_string(), below.catalog.to_string()),
            ("b".to_owned(), ".ropeway-fleet-b".to_owned())
        );
        let missing = Target::find(&root.join("none/copy")).err().unwrap();
        assert_eq!(missing.code, code::TARGET);
    }

    /// The login of the worker could be passed on, or guessed from.
    #[test]
    fn a_job_on_a_share_does_not_send_workers_to_another_server() {
        let share = Target::find(Path::new("smb://ann@nas/data/copy")).unwrap();
        for own in ["/srv/data", "smb://bob@nas/other"] {
            assert_eq!(share.source_of_job(own).unwrap(), Path::new(own));
        }
        for other in ["smb://ann@evil/other", "smb://ann@nas:4455/other"] {
            let refused = share.source_of_job(other).unwrap_err();
            assert_eq!(refused.code, code::USAGE, "{other}");
        }
        // A local one was examined: nobody else can write to it.
        let folder = tempfile::tempdir().unwrap();
        let local = Target::find(&folder.path().join("copy")).unwrap();
        assert!(local.source_of_job("smb://ann@other/data").is_ok());
    }

    #[test]
    fn a_long_name_has_a_catalog_too() {
        let long = Name::new(&[b'x'; 255]).unwrap();
        assert!(catalog_name(Some(&long)).as_bytes().len() < 60);
    }
}
