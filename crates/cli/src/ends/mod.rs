//! What SRC and DST mean, decided before anything is touched.
//!
//! The rule for DST is that of `cp -r`: into DST if it is a folder, unless `-T`, or unless DST is the recorded target
//! of an unfinished copy of the same SRC (then that copy goes on). Everything that makes no sense (a source that is
//! not there, a target inside its source, a file where a folder must be, …) is refused here with one line and a hint.
//! A link to a file is taken as `cp` takes it: the file is replaced, the link stays; nothing goes through a dangling one.
//! FIFOs, sockets and devices are never replaced.
//! Either end may be a path or a URL ([`Place`]); the rules are the same.
//!
//! A source folder becomes a tree of its own; any other node is named within its parent's tree. The target tree is
//! DST itself when the copy goes into it, or when it is another volume than its parent (so that space, granularity
//! and syncs are those of the right volume); else DST's parent. The top of a share has no parent.

mod find;

use std::io;
use std::path::{Path, PathBuf};

use ropeway_copy::JobKey;
use ropeway_vfs::{Kind, RelPath};

use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use find::{Found, Node as Seen, Target, file_where_folder, find, node_at, refuse_special, writable};
pub(crate) use find::{cause, is_nameless, parent_of};

/// Root of a tree to open, and a node in it.
pub(crate) type Node = (Place, RelPath);

/// Which rule holds for DST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Into DST if it is a folder.
    Into,
    /// DST is the copy itself (`-T`).
    Exact,
    /// DST becomes equal to SRC: both are folders.
    Mirror,
}

/// One source and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceEnd {
    /// Root of the tree to open.
    pub(crate) tree: Place,
    /// The node in it.
    pub(crate) path: RelPath,
    /// Its path on the target tree.
    pub(crate) target_path: RelPath,
}

/// Both ends, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The sources in the order given.
    pub(crate) sources: Vec<SourceEnd>,
    /// Root of the target tree; exists.
    pub(crate) target_tree: Place,
    /// The folder that DST names (or will be), on the target tree: where relative paths of flags belong.
    pub(crate) target_base: RelPath,
    /// Identity of the job.
    pub(crate) key: JobKey,
    /// Whether DST is there already.
    pub(crate) target_exists: bool,
}

impl Ends {
    /// Whether one of them is a share.
    pub(crate) fn are_far(&self) -> bool {
        let sources = self.sources.iter().map(|source| &source.tree);
        sources
            .chain([&self.target_tree])
            .any(|place| matches!(place, Place::Remote(_)))
    }
}

/// What `resolve` needs to know beside the paths.
pub(crate) struct Circumstances<'a> {
    /// The rule for DST.
    pub(crate) manner: Manner,
    /// Whether the target must be writable (not for a dry run).
    pub(crate) writes: bool,
    /// Whether a DST that is a folder must be a tree of its own (for paths of flags that are relative to it).
    pub(crate) own_tree: bool,
    /// Whether there is an unfinished job with a key.
    pub(crate) unfinished: &'a dyn Fn(&JobKey) -> bool,
    /// The servers of URLs.
    pub(crate) servers: &'a Servers,
}

/// Resolves the ends of a copy or mirror.
///
/// # Errors
/// The ends make no sense, or cannot be used; nothing was touched.
pub(crate) async fn resolve(
    sources: &[PathBuf],
    target: &Path,
    circumstances: &Circumstances<'_>,
) -> Result<Ends, Failure> {
    // Spelling first: nobody is asked for a password in vain.
    for path in sources.iter().map(PathBuf::as_path).chain([target]) {
        Place::parse_end(path)?;
    }
    Place::parse_target(target)?;
    let mut found = Vec::with_capacity(sources.len());
    for path in sources {
        found.push(find(path, circumstances.servers).await?);
    }
    let mut target = Target::look(target, circumstances.servers).await?;
    if let [only] = found.as_slice()
        && only.node.kind == Kind::File
    {
        target = target.behind_link()?;
    }
    let resolver = Resolver {
        target: &target,
        serial: serial(&target, circumstances.servers).await,
        circumstances,
    };
    let ends = match found.as_slice() {
        [only] if resolver.is_exact(&found) => resolver.exactly(only).await?,
        _ => resolver.inside(&found).await?,
    };
    if circumstances.writes {
        let folder = if target.is_folder() {
            &target.absolute
        } else {
            &ends.target_tree
        };
        writable(folder)?;
    }
    Ok(ends)
}

/// Finds the two trees of a check: SRC's and DST's.
///
/// DST may be missing: everything is different then.
///
/// # Errors
/// One of them is unreadable, SRC is missing, or they cannot be compared.
pub(crate) async fn resolve_check(
    source: &Path,
    target: &Path,
    servers: &Servers,
) -> Result<(Node, Node), Failure> {
    Place::parse_end(target)?;
    let source = find(source, servers).await?;
    let is_missing = match Place::parse_end(target)? {
        Place::Local(path) => {
            matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
        }
        Place::Remote(url) => {
            matches!(servers.metadata(&url).await, Err(trouble) if trouble.is_missing())
        }
    };
    if is_missing {
        let missing = Target::look(target, servers).await?;
        let (Some(parent), Some(name)) = (missing.absolute.parent(), missing.absolute.name()) else {
            return Err(Failure::new(
                code::TARGET,
                format!("there is no {}", target.display()),
            ));
        };
        let (tree, folder) = parent.rooted();
        return Ok((tree_of(&source)?, (tree, folder.join(&name))));
    }
    let target = find(target, servers).await?;
    if source.node.is_dir != target.node.is_dir {
        let (folder, other) = if source.node.is_dir {
            (&source, &target)
        } else {
            (&target, &source)
        };
        return Err(
            Failure::usage(format!("{} is a folder and {} is not", folder.given, other.given))
                .hint("compare two folders or two files"),
        );
    }
    Ok((tree_of(&source)?, tree_of(&target)?))
}

/// What to tell the volume of a share by, for the identity of a job: another disk under the same name is another target.
async fn serial(target: &Target, servers: &Servers) -> Option<u64> {
    let Place::Remote(_) = &target.absolute else {
        return None;
    };
    let node = match &target.node {
        Some(node) => Some(node.clone()),
        None => node_at(&target.absolute.parent()?, false, servers).await,
    };
    node.and_then(|node| node.volume)
}

/// Decides for one target.
struct Resolver<'a> {
    target: &'a Target,
    serial: Option<u64>,
    circumstances: &'a Circumstances<'a>,
}

impl Resolver<'_> {
    /// Whether DST is the copy itself.
    fn is_exact(&self, found: &[Found]) -> bool {
        match (self.circumstances.manner, found) {
            (_, []) => false,
            (Manner::Mirror, _) => true,
            (Manner::Exact, [_]) => true,
            (Manner::Exact | Manner::Into, [_, _, ..]) => false,
            (Manner::Into, [only]) => {
                !self.target.is_folder()
                    || only.nameless
                    || (self.circumstances.unfinished)(&self.key(found, &self.target.absolute))
            }
        }
    }

    async fn exactly(&self, source: &Found) -> Result<Ends, Failure> {
        let (target, mirror) = (self.target, self.circumstances.manner == Manner::Mirror);
        let (source_is_dir, given) = (source.node.is_dir, &target.given);
        if mirror && !source_is_dir {
            return Err(Failure::usage(format!("{} is not a folder", source.given))
                .hint("mirror makes folders equal; for single files use copy"));
        }
        match &target.node {
            Some(node) if node.is_dir && !source_is_dir => {
                return Err(
                    Failure::usage(format!("{given} is a folder and {} is not", source.given))
                        .hint("without -T it is copied into the folder"),
                );
            }
            Some(node) if !node.is_dir && source_is_dir => return Err(file_where_folder(given)),
            None if target.must_be_folder && !source_is_dir => {
                return Err(Failure::new(code::TARGET, format!("there is no folder {given}"))
                    .hint(format!("make it first: ropeway mkdir -p {given}")));
            }
            _ => {}
        }
        self.keep_apart(source, &target.absolute, target.node.as_ref(), mirror)
            .await?;
        refuse_special(&source.node, target.node.as_ref(), given)?;
        let own_tree = target.is_folder() && (self.circumstances.own_tree || self.is_own_volume().await);
        let (target_tree, target_path) = match (own_tree, target.absolute.parent(), target.absolute.name()) {
            (false, Some(parent), Some(name)) => {
                let (tree, folder) = parent.rooted();
                (tree, folder.join(&name))
            }
            _ => target.absolute.rooted(),
        };
        let (tree, path) = tree_of(source)?;
        let target_base = if source_is_dir {
            target_path.clone()
        } else {
            target_path.parent().unwrap_or_default()
        };
        Ok(Ends {
            sources: vec![SourceEnd {
                tree,
                path,
                target_path,
            }],
            target_tree,
            target_base,
            key: self.key(std::slice::from_ref(source), &target.absolute),
            target_exists: target.node.is_some(),
        })
    }

    async fn inside(&self, found: &[Found]) -> Result<Ends, Failure> {
        let (target, given) = (self.target, &self.target.given);
        if !target.is_folder() {
            return Err(match &target.node {
                Some(_) => Failure::usage(format!("{given} is a file; several sources need a folder"))
                    .hint("give a folder as the last argument"),
                None => Failure::usage(format!("there is no folder {given}; several sources need one"))
                    .hint(format!("make it first: ropeway mkdir -p {given}")),
            });
        }
        let (target_tree, target_base) = target.absolute.rooted();
        let mut ends: Vec<SourceEnd> = Vec::new();
        for source in found {
            let name = source.absolute.name().filter(|_| !source.nameless);
            let Some(name) = name else {
                return Err(Failure::usage(format!("{} has no name of its own", source.given))
                    .hint("give it by its name, or alone"));
            };
            let target_path = target_base.join(&name);
            let place = target.absolute.join(&RelPath::root().join(&name));
            if let Some(earlier) = ends.iter().position(|end| end.target_path == target_path) {
                return Err(Failure::usage(format!(
                    "{} and {} would both become {place}",
                    found[earlier].given, source.given,
                ))
                .hint("copy them one after the other to different names with -T"));
            }
            self.fits(source, &place).await?;
            let (tree, path) = tree_of(source)?;
            ends.push(SourceEnd {
                tree,
                path,
                target_path,
            });
        }
        // The key of a single source is that of its final place, as with -T.
        let identity = match found
            .iter()
            .map(|source| source.absolute.name())
            .collect::<Vec<_>>()
            .as_slice()
        {
            [Some(name)] => target.absolute.join(&RelPath::root().join(name)),
            _ => target.absolute.clone(),
        };
        Ok(Ends {
            key: self.key(found, &identity),
            target_exists: true,
            sources: ends,
            target_tree,
            target_base,
        })
    }

    /// Checks that a source can become what a place is to be.
    async fn fits(&self, source: &Found, place: &Place) -> Result<(), Failure> {
        let node = node_at(place, false, self.circumstances.servers).await;
        if let Some(node) = &node
            && node.is_dir != source.node.is_dir
        {
            let (is, is_not) = if node.is_dir {
                ("a folder", "no folder")
            } else {
                ("no folder", "a folder")
            };
            return Err(Failure::usage(format!(
                "{} is {is_not}, and {place} is {is} already",
                source.given
            ))
            .hint("move one of them away"));
        }
        refuse_special(&source.node, node.as_ref(), &place.to_string())?;
        self.keep_apart(source, place, node.as_ref(), false).await
    }

    /// Refuses a target that is the source, or lies inside it; and a mirror's source inside its target.
    async fn keep_apart(
        &self,
        source: &Found,
        target: &Place,
        existing: Option<&Seen>,
        mirror: bool,
    ) -> Result<(), Failure> {
        let same = existing.is_some_and(|node| node.is_same(&source.node));
        if source.absolute == *target || (same && (source.node.is_dir || source.node.links < 2)) {
            return Err(
                Failure::usage(format!("{} and {target} are the same", source.given))
                    .hint("nothing needs to be copied"),
            );
        }
        if same {
            return Err(Failure::usage(format!(
                "{} and {target} are the same file under two names",
                source.given
            ))
            .hint("nothing needs to be copied"));
        }
        let is_inside = source.node.is_dir
            && (target.starts_with(&source.absolute)
                || self
                    .is_above(target, &source.absolute, &source.node, mirror)
                    .await);
        if is_inside {
            return Err(Failure::usage(format!(
                "the target {target} lies inside the source {}",
                source.given
            ))
            .hint("give a target outside of it: a copy into itself would never end"));
        }
        if let (true, Some(existing)) = (mirror, existing)
            && self.is_above(&source.absolute, target, existing, mirror).await
        {
            return Err(Failure::usage(format!(
                "the source {} lies inside the target {target}",
                source.given
            ))
            .hint("the mirror would delete its own source"));
        }
        Ok(())
    }

    /// Whether `node`, found at `at`, is above `place`; by identity, because bind mounts, links and shares within shares
    /// give one folder several paths. A share may be one of this machine, and a server have two names: that is looked for
    /// where it costs nothing, and where much is at stake (`thorough`), as each folder of a server is a round trip.
    async fn is_above(&self, place: &Place, at: &Place, node: &Seen, thorough: bool) -> bool {
        match (place, at) {
            (Place::Local(_), _) => {}
            (Place::Remote(one), Place::Remote(other))
                if (&one.server.host, one.server.port) == (&other.server.host, other.server.port) => {}
            _ if thorough => {}
            _ => return false,
        }
        let mut above = place.parent();
        while let Some(folder) = above {
            let seen = node_at(&folder, true, self.circumstances.servers).await;
            if seen.is_some_and(|seen| seen.is_same(node)) {
                return true;
            }
            above = folder.parent();
        }
        false
    }

    async fn is_own_volume(&self) -> bool {
        let Some(parent) = self.target.absolute.parent() else {
            return true;
        };
        let parent = node_at(&parent, true, self.circumstances.servers).await;
        let own = self.target.node.as_ref().and_then(|node| node.volume);
        parent.and_then(|parent| parent.volume) != own
    }

    fn key(&self, sources: &[Found], target: &Place) -> JobKey {
        let sources: Vec<String> = sources.iter().map(|source| source.absolute.identity()).collect();
        let target = match self.serial {
            Some(serial) => format!("{}\0{serial:x}", target.identity()),
            None => target.identity(),
        };
        JobKey::new(&sources, &target)
    }
}

/// The tree to open for a node, and the node in it.
fn tree_of(found: &Found) -> Result<Node, Failure> {
    if found.node.is_dir {
        return Ok(found.absolute.rooted());
    }
    match (found.absolute.parent(), found.absolute.name()) {
        (Some(parent), Some(name)) => {
            let (tree, folder) = parent.rooted();
            Ok((tree, folder.join(&name)))
        }
        _ => Err(Failure::usage(format!("{} has no name", found.given))),
    }
}

#[cfg(test)]
mod tests;
