//! Resolves SRC and DST before anything is changed.
//!
//! DST follows the rule of `cp -r`: the copy goes into DST if DST is a folder. With `-T` it does
//! not; nor does it if DST is the recorded target of an unfinished copy of the same SRC, which is
//! then resumed. This module refuses all combinations that cannot work (a missing source, a target
//! inside its source, a file where a folder is needed, …) with one line and a hint. A link to a
//! file is treated as `cp` treats it: the file is replaced, and the link stays; a dangling link is
//! refused. FIFOs, sockets and devices are never replaced. The rules are the same for paths and
//! URLs ([`Place`]).
//!
//! A source folder becomes a tree. Any other source is a name in its parent's tree. The target tree
//! is DST itself if the copy goes into it, or if it is on another volume than its parent (so that
//! space, granularity and syncs are those of the right volume). Otherwise it is DST's parent. The
//! top of a share has no parent.

mod find;

use std::path::{Path, PathBuf};

use ropeway_copy::JobKey;
use ropeway_plan::Engine;
use ropeway_vfs::{End, Kind, RelPath};

use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use find::{Found, Node as Seen, Target, file_where_folder, find, node_at, refuse_special, writable};
pub(crate) use find::{cause, is_nameless, parent_of};

/// Root of a tree to open, and a node in the tree.
pub(crate) type Node = (Place, RelPath);

/// How DST is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetMode {
    /// The copy goes into DST if DST is a folder.
    Into,
    /// DST is the copy itself (`-T`).
    Exact,
    /// DST becomes equal to SRC; both are folders.
    Mirror,
}

/// One source and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceEnd {
    /// Root of the tree to open.
    pub(crate) tree: Place,
    /// Path of the source in the tree.
    pub(crate) path: RelPath,
    /// Path of its copy in the target tree.
    pub(crate) target_path: RelPath,
}

/// The resolved ends of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The sources in the order given.
    pub(crate) sources: Vec<SourceEnd>,
    /// Root of the target tree, which exists.
    pub(crate) target_tree: Place,
    /// The folder that DST names or will name, in the target tree; relative paths in flags start
    /// there.
    pub(crate) target_base: RelPath,
    /// Identity of the job.
    pub(crate) key: JobKey,
    /// Whether DST exists already.
    pub(crate) target_exists: bool,
}

impl Ends {
    /// Returns whether an end is a share.
    pub(crate) fn any_remote(&self) -> bool {
        let sources = self.sources.iter().map(|source| &source.tree);
        let mut places = sources.chain([&self.target_tree]);
        places.any(|place| place.url().is_some())
    }
}

/// Options for [`resolve`].
pub(crate) struct ResolveOptions<'a> {
    /// How DST is interpreted.
    pub(crate) target_mode: TargetMode,
    /// Whether the target must be writable (not for a dry run).
    pub(crate) writes: bool,
    /// Whether a DST that is a folder must be the root of the target tree, for flags with paths
    /// relative to it.
    pub(crate) own_tree: bool,
    /// Returns whether there is an unfinished job with a key.
    pub(crate) unfinished: &'a dyn Fn(&JobKey) -> bool,
    /// The engine, which may need servers of a protocol.
    pub(crate) engine: Engine,
    /// The servers for URLs.
    pub(crate) servers: &'a Servers,
}

/// Checks that the engine and the ends are of the same protocol.
fn check_protocol(engine: Engine, places: &[Place]) -> Result<(), Failure> {
    let Some(wanted) = engine.protocol() else {
        return Ok(());
    };
    let mut urls = places.iter().filter_map(Place::url).peekable();
    if urls.peek().is_none() {
        let refused = format!("--engine {engine} is for shares, and no end is one");
        return Err(Failure::usage(refused).hint("without a server there are xp, vista and vista-sp1"));
    }
    match urls.find(|url| url.server.protocol() != wanted) {
        None => Ok(()),
        Some(url) => Err(
            Failure::usage(format!("--engine {engine} speaks {wanted}, and {url} does not"))
                .hint("smb1:// is for SMB 1, smb:// for SMB 2 and 3"),
        ),
    }
}

/// Resolves the ends of a copy or mirror.
///
/// # Errors
/// The ends do not fit together, or cannot be used. Nothing was changed.
pub(crate) async fn resolve(
    sources: &[PathBuf],
    target: &Path,
    options: &ResolveOptions<'_>,
) -> Result<Ends, Failure> {
    // Spelling comes first, so that nobody types a password for nothing.
    let given = sources.iter().map(PathBuf::as_path).chain([target]);
    let places: Vec<Place> = given.map(Place::parse_end).collect::<Result<_, _>>()?;
    Place::parse_target(target)?;
    check_protocol(options.engine, &places)?;
    let mut found = Vec::with_capacity(sources.len());
    for path in sources {
        found.push(find(path, End::Source, options.servers).await?);
    }
    let mut target = Target::find(target, options.servers).await?;
    if let [only] = found.as_slice()
        && only.node.kind == Kind::File
    {
        target = target.through_link()?;
    }
    let resolver = Resolver {
        target: &target,
        serial: serial(&target, options.servers).await,
        options,
    };
    let ends = match found.as_slice() {
        [only] if resolver.is_exact(&found) => resolver.exactly(only).await?,
        _ => resolver.inside(&found).await?,
    };
    if options.writes {
        let folder = if target.is_folder() {
            &target.absolute
        } else {
            &ends.target_tree
        };
        writable(folder)?;
    }
    Ok(ends)
}

/// Resolves the two trees of a check.
///
/// # Errors
/// One end is missing or unreadable, or the ends cannot be compared.
pub(crate) async fn resolve_check(
    source: &Path,
    target: &Path,
    servers: &Servers,
) -> Result<(Node, Node), Failure> {
    Place::parse_end(target)?;
    let source = find(source, End::Source, servers).await?;
    let target = find(target, End::Target, servers).await?;
    if source.node.is_dir != target.node.is_dir {
        let (folder, other) = if source.node.is_dir {
            (&source, &target)
        } else {
            (&target, &source)
        };
        return Err(
            Failure::usage(format!("{} is a folder and {} is not", folder.given, other.given))
                .hint("compare two folders, or two files"),
        );
    }
    Ok((tree_of(&source)?, tree_of(&target)?))
}

/// Returns the volume number of a share, for the key of a job: another disk under the same name is
/// another target.
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

/// Resolves the ends for one target.
struct Resolver<'a> {
    target: &'a Target,
    serial: Option<u64>,
    options: &'a ResolveOptions<'a>,
}

impl Resolver<'_> {
    /// Returns whether DST is the copy itself.
    fn is_exact(&self, found: &[Found]) -> bool {
        match (self.options.target_mode, found) {
            (_, []) => false,
            (TargetMode::Mirror, _) => true,
            (TargetMode::Exact, [_]) => true,
            (TargetMode::Exact | TargetMode::Into, [_, _, ..]) => false,
            (TargetMode::Into, [only]) => {
                !self.target.is_folder()
                    || only.nameless
                    || (self.options.unfinished)(&self.key(found, &self.target.absolute))
            }
        }
    }

    async fn exactly(&self, source: &Found) -> Result<Ends, Failure> {
        let (target, mirror) = (self.target, self.options.target_mode == TargetMode::Mirror);
        let (source_is_dir, given) = (source.node.is_dir, &target.given);
        if mirror && !source_is_dir {
            return Err(Failure::usage(format!("{} is not a folder", source.given))
                .hint("mirror works on folders; use copy for single files"));
        }
        match &target.node {
            Some(node) if node.is_dir && !source_is_dir => {
                return Err(
                    Failure::usage(format!("{given} is a folder and {} is not", source.given))
                        .hint("leave out -T to copy it into the folder"),
                );
            }
            Some(node) if !node.is_dir && source_is_dir => return Err(file_where_folder(given)),
            None if target.must_be_folder && !source_is_dir => {
                return Err(Failure::new(code::TARGET, format!("there is no folder {given}"))
                    .hint(format!("create it first: ropeway mkdir -p {given}")));
            }
            _ => {}
        }
        self.check_overlap(source, &target.absolute, target.node.as_ref(), mirror)
            .await?;
        refuse_special(&source.node, target.node.as_ref(), given)?;
        let own_tree = target.is_folder() && (self.options.own_tree || self.is_own_volume().await);
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
                Some(_) => Failure::usage(format!("{given} is a file, but several sources need a folder"))
                    .hint("give a folder as the last argument"),
                None => Failure::usage(format!("there is no folder {given}; several sources need one"))
                    .hint(format!("create it first: ropeway mkdir -p {given}")),
            });
        }
        let (target_tree, target_base) = target.absolute.rooted();
        let mut ends: Vec<SourceEnd> = Vec::new();
        for source in found {
            let name = source.absolute.name().filter(|_| !source.nameless);
            let Some(name) = name else {
                return Err(Failure::usage(format!("{} has no name", source.given))
                    .hint("give the folder by its name, or as the only source"));
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

    /// Checks that a source can become the node at a place.
    async fn fits(&self, source: &Found, place: &Place) -> Result<(), Failure> {
        let node = node_at(place, false, self.options.servers).await;
        if let Some(node) = &node
            && node.is_dir != source.node.is_dir
        {
            let (is, is_not) = if node.is_dir {
                ("a folder", "not a folder")
            } else {
                ("not a folder", "a folder")
            };
            return Err(Failure::usage(format!(
                "{} is {is_not}, but {place} is {is} already",
                source.given
            ))
            .hint("move one of them away"));
        }
        refuse_special(&source.node, node.as_ref(), &place.to_string())?;
        self.check_overlap(source, place, node.as_ref(), false).await
    }

    /// Refuses a target that is the source or is inside it, and a mirror's source inside its
    /// target.
    async fn check_overlap(
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
                    .hint("there is nothing to copy"),
            );
        }
        if same {
            return Err(Failure::usage(format!(
                "{} and {target} are the same file under two names",
                source.given
            ))
            .hint("there is nothing to copy"));
        }
        let is_inside = source.node.is_dir
            && (target.starts_with(&source.absolute)
                || self
                    .is_above(target, &source.absolute, &source.node, mirror)
                    .await);
        if is_inside {
            return Err(Failure::usage(format!(
                "the target {target} is inside the source {}",
                source.given
            ))
            .hint("choose a target outside the source: a copy into itself would never end"));
        }
        if let (true, Some(existing)) = (mirror, existing)
            && self.is_above(&source.absolute, target, existing, mirror).await
        {
            return Err(Failure::usage(format!(
                "the source {} is inside the target {target}",
                source.given
            ))
            .hint("choose another target: the mirror would delete its own source"));
        }
        Ok(())
    }

    /// Returns whether `node`, found at `at`, is above `place`. Compares identities, because bind
    /// mounts, links and nested shares give one folder several paths. A share may be one of this
    /// machine, and a server may have two names. That is checked only if it costs nothing or if
    /// much is at stake (`thorough`), because each folder on a server takes a round trip.
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
            let seen = node_at(&folder, true, self.options.servers).await;
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
        let parent = node_at(&parent, true, self.options.servers).await;
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

/// Returns the tree to open for a node, and the node's path in it.
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
