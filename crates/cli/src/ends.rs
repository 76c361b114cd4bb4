//! What SRC and DST mean, decided before anything is touched.
//!
//! The rule for DST is that of `cp -r`: into DST if it is a folder, unless `-T`, or unless DST is the recorded target
//! of an unfinished copy of the same SRC (then that copy goes on). Everything that makes no sense (a source that is
//! not there, a target inside its source, a file where a folder must be, …) is refused here with one line and a hint.
//!
//! A source folder becomes a tree of its own; any other node is named within its parent's tree. The target tree is
//! DST itself when the copy goes into it, or when it is another volume than its parent (so that space, granularity
//! and syncs are those of the right volume); else DST's parent.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ropeway_copy::JobKey;
use ropeway_vfs::RelPath;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::failure::{Failure, code};

/// Root of a tree to open, and a node in it.
pub(crate) type Node = (PathBuf, RelPath);

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
    pub(crate) tree: PathBuf,
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
    pub(crate) target_tree: PathBuf,
    /// The folder that DST names (or will be), on the target tree: where relative paths of flags belong.
    pub(crate) target_base: RelPath,
    /// Identity of the job.
    pub(crate) key: JobKey,
    /// Whether DST is there already.
    pub(crate) target_exists: bool,
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
}

/// A source as found.
struct Found {
    given: PathBuf,
    /// Absolute, without links above the last component.
    absolute: PathBuf,
    metadata: Metadata,
    /// `.`, `..`, `x/.`, `/`: stands for the folder's content and has no name of its own.
    nameless: bool,
}

/// Resolves the ends of a copy or mirror.
///
/// # Errors
/// The ends make no sense, or cannot be used; nothing was touched.
pub(crate) fn resolve(
    sources: &[PathBuf],
    target: &Path,
    circumstances: &Circumstances<'_>,
) -> Result<Ends, Failure> {
    for path in sources.iter().map(PathBuf::as_path).chain([target]) {
        refuse_url(path)?;
    }
    let found = sources
        .iter()
        .map(|path| find(path))
        .collect::<Result<Vec<_>, _>>()?;
    let target = Target::look(target)?;
    let ends = if let ([only], true) = (found.as_slice(), exact(&found, &target, circumstances)) {
        exactly(only, &target, circumstances)?
    } else {
        into(&found, &target)?
    };
    if circumstances.writes {
        writable(&target, &ends)?;
    }
    Ok(ends)
}

/// Finds the two trees of a check: SRC's and DST's.
///
/// DST may be missing: everything is different then.
///
/// # Errors
/// One of them is unreadable, SRC is missing, or they cannot be compared.
pub(crate) fn resolve_check(source: &Path, target: &Path) -> Result<(Node, Node), Failure> {
    refuse_url(source)?;
    refuse_url(target)?;
    let source = find(source)?;
    let target = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let missing = Target::look(target)?;
            let (Some(parent), Some(name)) = (missing.absolute.parent(), missing.absolute.file_name()) else {
                return Err(Failure::new(
                    code::TARGET,
                    format!("there is no {}", target.display()),
                ));
            };
            return Ok((tree_of(&source)?, (parent.to_path_buf(), relative(name)?)));
        }
        _ => find(target)?,
    };
    if source.metadata.is_dir() != target.metadata.is_dir() {
        let (folder, other) = if source.metadata.is_dir() {
            (&source, &target)
        } else {
            (&target, &source)
        };
        return Err(Failure::usage(format!(
            "{} is a folder and {} is not",
            folder.given.display(),
            other.given.display()
        ))
        .hint("compare two folders or two files"));
    }
    Ok((tree_of(&source)?, tree_of(&target)?))
}

/// The SMB client is not part of this build.
fn refuse_url(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().as_bytes().starts_with(b"smb://") {
        return Err(
            Failure::usage(format!("{}: the SMB client is not built in yet", path.display()))
                .hint("mount the share (mount -t cifs) and give its folder"),
        );
    }
    Ok(())
}

fn find(given: &Path) -> Result<Found, Failure> {
    let missing = |error: &io::Error| {
        let failure = Failure::of_end(
            format!("cannot read the source {}: {}", given.display(), cause(error)),
            error,
            code::SOURCE,
        );
        match failure.code {
            code::PERMISSION => failure.hint("run as a user who may read it"),
            _ => failure.hint("check the spelling, and that its volume is mounted"),
        }
    };
    if given.as_os_str().is_empty() {
        return Err(
            Failure::usage("a source is empty").hint("quote variables: an unset one gives an empty name")
        );
    }
    let metadata = fs::symlink_metadata(given).map_err(|error| missing(&error))?;
    // `link/` and `link/.` mean the folder behind the link; lstat has followed it already.
    let nameless = is_nameless(given);
    let absolute = absolute(given, metadata.is_dir()).map_err(|error| missing(&error))?;
    if metadata.is_dir() {
        fs::read_dir(given).map_err(|error| missing(&error))?;
    } else if metadata.is_file() {
        may(given, Access::READ_OK).map_err(|error| missing(&error))?;
    }
    Ok(Found {
        given: given.to_path_buf(),
        absolute,
        metadata,
        nameless,
    })
}

/// Whether the last component is `.` or `..`, or there is none. (`Path` hides a `.` at the end.)
fn is_nameless(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let trimmed = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&b""[..], |last| &bytes[..=last]);
    let last = trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

/// The absolute path: links are resolved above the last component, and in it if it is a folder.
fn absolute(path: &Path, is_dir: bool) -> io::Result<PathBuf> {
    if is_dir {
        return fs::canonicalize(path);
    }
    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
    Ok(fs::canonicalize(parent_of(path))?.join(name))
}

/// The folder that holds `path`; `.` for a bare name.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// DST as found.
struct Target {
    given: PathBuf,
    absolute: PathBuf,
    metadata: Option<Metadata>,
    /// Ends with a slash: can only be a folder.
    must_be_folder: bool,
}

impl Target {
    fn look(given: &Path) -> Result<Self, Failure> {
        if given.as_os_str().is_empty() {
            return Err(Failure::usage("the target is empty")
                .hint("quote variables: an unset one gives an empty name"));
        }
        let fault = |what: &str, error: &io::Error| {
            let message = format!("cannot use the target {}: {what}", given.display());
            let failure = Failure::of_end(message, error, code::TARGET);
            match failure.code {
                code::PERMISSION => failure.hint("run as a user who may write there"),
                _ => failure.hint("check the spelling, and that its volume is mounted"),
            }
        };
        let must_be_folder = given.as_os_str().as_bytes().ends_with(b"/") || is_nameless(given);
        let followed = fs::metadata(given);
        if let Ok(metadata) = &followed
            && metadata.is_dir()
        {
            let absolute = fs::canonicalize(given).map_err(|error| fault(&cause(&error), &error))?;
            return Ok(Self {
                given: given.to_path_buf(),
                absolute,
                metadata: followed.ok(),
                must_be_folder,
            });
        }
        let metadata = match fs::symlink_metadata(given) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Failure::usage(format!(
                    "{}: a file stands where a folder must be",
                    given.display()
                ))
                .hint("give another target, or move that file away"));
            }
            Err(error) => return Err(fault(&cause(&error), &error)),
        };
        let parent = parent_of(given);
        let parent = match fs::canonicalize(parent) {
            Ok(absolute) if absolute.is_dir() => absolute,
            Ok(_) => {
                return Err(
                    Failure::usage(format!("{} is a file where a folder must be", parent.display()))
                        .hint("give another target, or move that file away"),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(fault(&format!("there is no folder {}", parent.display()), &error)
                    .hint(format!("make it first: mkdir -p {}", parent.display())));
            }
            Err(error) => return Err(fault(&cause(&error), &error)),
        };
        let name = given
            .file_name()
            .ok_or_else(|| Failure::new(code::TARGET, format!("there is no folder {}", given.display())))?;
        Ok(Self {
            given: given.to_path_buf(),
            absolute: parent.join(name),
            metadata,
            must_be_folder,
        })
    }

    fn is_folder(&self) -> bool {
        self.metadata.as_ref().is_some_and(Metadata::is_dir)
    }
}

/// Whether DST is the copy itself.
fn exact(found: &[Found], target: &Target, circumstances: &Circumstances<'_>) -> bool {
    match (circumstances.manner, found) {
        (_, []) => false,
        (Manner::Mirror, _) => true,
        (Manner::Exact, [_]) => true,
        (Manner::Exact | Manner::Into, [_, _, ..]) => false,
        (Manner::Into, [only]) => {
            !target.is_folder() || only.nameless || (circumstances.unfinished)(&key(found, &target.absolute))
        }
    }
}

fn exactly(source: &Found, target: &Target, circumstances: &Circumstances<'_>) -> Result<Ends, Failure> {
    let mirror = circumstances.manner == Manner::Mirror;
    let (source_is_dir, given) = (source.metadata.is_dir(), target.given.display());
    if mirror && !source_is_dir {
        return Err(
            Failure::usage(format!("{} is not a folder", source.given.display()))
                .hint("mirror makes folders equal; for single files use copy"),
        );
    }
    match &target.metadata {
        Some(metadata) if metadata.is_dir() && !source_is_dir => {
            return Err(Failure::usage(format!(
                "{given} is a folder and {} is not",
                source.given.display()
            ))
            .hint("without -T it is copied into the folder"));
        }
        Some(metadata) if !metadata.is_dir() && source_is_dir => {
            return Err(
                Failure::usage(format!("{given} is a file where a folder must be"))
                    .hint("give another target, or move that file away"),
            );
        }
        None if target.must_be_folder && !source_is_dir => {
            return Err(Failure::new(code::TARGET, format!("there is no folder {given}"))
                .hint(format!("make it first: mkdir -p {given}")));
        }
        _ => {}
    }
    keep_apart(source, &target.absolute, target.metadata.as_ref(), mirror)?;
    let own_tree = target.is_folder() && (circumstances.own_tree || is_own_volume(&target.absolute));
    let (target_tree, target_path) = match (own_tree, target.absolute.parent(), target.absolute.file_name()) {
        (false, Some(parent), Some(name)) => (parent.to_path_buf(), relative(name)?),
        _ => (target.absolute.clone(), RelPath::root()),
    };
    let (tree, path) = tree_of(source)?;
    let target_base = if source_is_dir {
        target_path.clone()
    } else {
        parent_path(&target_path)
    };
    Ok(Ends {
        sources: vec![SourceEnd {
            tree,
            path,
            target_path,
        }],
        target_tree,
        target_base,
        key: key(std::slice::from_ref(source), &target.absolute),
        target_exists: target.metadata.is_some(),
    })
}

fn into(found: &[Found], target: &Target) -> Result<Ends, Failure> {
    let given = target.given.display();
    if !target.is_folder() {
        return Err(match &target.metadata {
            Some(_) => Failure::usage(format!("{given} is a file; several sources need a folder"))
                .hint("give a folder as the last argument"),
            None => Failure::usage(format!("there is no folder {given}; several sources need one"))
                .hint(format!("make it first: mkdir -p {given}")),
        });
    }
    let mut ends = Vec::new();
    for source in found {
        let name = source.absolute.file_name().filter(|_| !source.nameless);
        let Some(name) = name else {
            return Err(
                Failure::usage(format!("{} has no name of its own", source.given.display()))
                    .hint("give it by its name, or alone"),
            );
        };
        let place = target.absolute.join(name);
        let metadata = fs::symlink_metadata(&place).ok();
        if let Some(metadata) = &metadata
            && metadata.is_dir() != source.metadata.is_dir()
        {
            let (is, is_not) = if metadata.is_dir() {
                ("a folder", "no folder")
            } else {
                ("no folder", "a folder")
            };
            return Err(Failure::usage(format!(
                "{} is {is_not}, and {} is {is} already",
                source.given.display(),
                place.display()
            ))
            .hint("move one of them away"));
        }
        keep_apart(source, &place, metadata.as_ref(), false)?;
        let target_path = relative(name)?;
        if let Some(position) = ends
            .iter()
            .position(|end: &SourceEnd| end.target_path == target_path)
        {
            return Err(Failure::usage(format!(
                "{} and {} would both become {}",
                found[position].given.display(),
                source.given.display(),
                place.display()
            ))
            .hint("copy them one after the other to different names with -T"));
        }
        let (tree, path) = tree_of(source)?;
        ends.push(SourceEnd {
            tree,
            path,
            target_path,
        });
    }
    // The key of a single source is that of its final place, as with -T.
    let identity = match (found, ends.as_slice()) {
        ([_], [end]) => target.absolute.join(end.target_path.as_path()),
        _ => target.absolute.clone(),
    };
    Ok(Ends {
        key: key(found, &identity),
        target_exists: true,
        sources: ends,
        target_tree: target.absolute.clone(),
        target_base: RelPath::root(),
    })
}

/// Refuses a target that is the source, or lies inside it; and a mirror's source inside its target.
fn keep_apart(
    source: &Found,
    target: &Path,
    existing: Option<&Metadata>,
    mirror: bool,
) -> Result<(), Failure> {
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let own = id(&source.metadata);
    let same = existing.is_some_and(|metadata| id(metadata) == own);
    if source.absolute == target || (same && (source.metadata.is_dir() || source.metadata.nlink() < 2)) {
        return Err(Failure::usage(format!(
            "{} and {} are the same",
            source.given.display(),
            target.display()
        ))
        .hint("nothing needs to be copied"));
    }
    if same {
        return Err(Failure::usage(format!(
            "{} and {} are the same file under two names",
            source.given.display(),
            target.display()
        ))
        .hint("nothing needs to be copied"));
    }
    // By identity too: bind mounts and links give one folder several paths.
    let is_above = |path: &Path, what: (u64, u64)| {
        path.ancestors()
            .skip(1)
            .filter_map(|above| fs::metadata(above).ok())
            .any(|above| id(&above) == what)
    };
    if source.metadata.is_dir() && (target.starts_with(&source.absolute) || is_above(target, own)) {
        return Err(Failure::usage(format!(
            "the target {} lies inside the source {}",
            target.display(),
            source.given.display()
        ))
        .hint("give a target outside of it: a copy into itself would never end"));
    }
    if mirror && existing.is_some_and(|metadata| is_above(&source.absolute, id(metadata))) {
        return Err(Failure::usage(format!(
            "the source {} lies inside the target {}",
            source.given.display(),
            target.display()
        ))
        .hint("the mirror would delete its own source"));
    }
    Ok(())
}

/// The tree to open for a node, and the node in it.
fn tree_of(found: &Found) -> Result<Node, Failure> {
    if found.metadata.is_dir() {
        return Ok((found.absolute.clone(), RelPath::root()));
    }
    match (found.absolute.parent(), found.absolute.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_path_buf(), relative(name)?)),
        _ => Err(Failure::usage(format!("{} has no name", found.given.display()))),
    }
}

/// Checks that what has to be made can be made.
fn writable(target: &Target, ends: &Ends) -> Result<(), Failure> {
    let folder = if target.is_folder() {
        &target.absolute
    } else {
        &ends.target_tree
    };
    may(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let failure = Failure::of_end(
            format!("cannot write to {}: {}", folder.display(), cause(&error)),
            &error,
            code::TARGET,
        );
        match failure.code {
            code::PERMISSION => failure.hint("run as a user who may write there"),
            _ => failure.hint("is it mounted read-only?"),
        }
    })
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

fn is_own_volume(folder: &Path) -> bool {
    let volume = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    folder
        .parent()
        .is_none_or(|parent| volume(parent) != volume(folder))
}

fn relative(name: &OsStr) -> Result<RelPath, Failure> {
    RelPath::parse(name.as_bytes())
        .ok_or_else(|| Failure::usage(format!("{} is no usable name", Path::new(name).display())))
}

fn parent_path(path: &RelPath) -> RelPath {
    path.parent().unwrap_or_default()
}

fn key(sources: &[Found], target: &Path) -> JobKey {
    let sources: Vec<String> = sources.iter().map(|source| identity(&source.absolute)).collect();
    JobKey::new(&sources, &identity(target))
}

/// A path as text, different for different paths: UTF-8 as it is, else its bytes in hexadecimal after a NUL (which no
/// path can hold).
fn identity(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => {
            let bytes = path.as_os_str().to_owned().into_vec();
            bytes
                .iter()
                .fold(String::from("\0"), |text, byte| format!("{text}{byte:02x}"))
        }
    }
}

/// The cause without the number that std appends.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;
