//! Filters nodes by name, size, age, or a list of paths.
//!
//! Patterns are those of gitignore(5), matched on raw bytes below the tree's root: `*.o` at any
//! depth, `/build` only at the root, `cache/` only folders, `**` across folders.
//!
//! * `exclude` patterns drop nodes. `include` patterns bring back what an exclude pattern dropped.
//!   (All excludes come first, and the last match wins.)
//! * As in gitignore, nothing inside an excluded folder can be brought back, since the folder is
//!   not entered. To take only some files of everything, exclude `*` and include `*/` and the
//!   files.
//! * `include` without any `exclude` would have no effect. It therefore means: take only what the
//!   include patterns match, and what is in folders they match. Every folder is entered.
//! * A list of paths (`files_from`) takes the paths it names and, for a folder, everything inside.
//! * Size and age apply to regular files only.
//!
//! [`Filter::excluded`] reports what is excluded by name; on the target of a mirror that is
//! protected from deletion. A file excluded by size or age is not protected, since its name takes
//! part.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ropeway_vfs::{Kind, Metadata, RelPath, Timestamp};

pub use parse::{parse_age, parse_age_in, parse_file_list, parse_size};

/// The filter options as given by the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterSpec {
    /// Patterns that bring nodes back.
    pub include: Vec<String>,
    /// Patterns that drop nodes.
    pub exclude: Vec<String>,
    /// Whether patterns match the letters a to z in either case.
    pub ignore_case: bool,
    /// Smallest file size in bytes.
    pub size_min: Option<u64>,
    /// Largest file size in bytes.
    pub size_max: Option<u64>,
    /// Take only files modified at this moment or later.
    pub newer_than: Option<Timestamp>,
    /// Take only files modified before this moment.
    pub older_than: Option<Timestamp>,
    /// Take only these paths.
    pub files_from: Option<Vec<RelPath>>,
    /// Folders that take part beside the paths of `files_from`, without what is in them.
    pub folders_alone: Vec<RelPath>,
}

/// A filter option that cannot be parsed or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Not a glob.
    #[error("the pattern {pattern:?} is not valid: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a number of bytes.
    #[error("{0:?} is not a size; sizes look like 4096, 64K, 1.5M, 2GiB or 1GB (10^9)")]
    Size(String),
    /// Neither a duration nor a date.
    #[error(
        "{0:?} is neither an age such as 90s, 2h, 3d, 1w nor a date such as 2026-01-02 or 2026-01-02T15:04"
    )]
    Age(String),
    /// An entry of a list that is not a path below the root.
    #[error(
        "line {line} of the list of files is not a path below the source: {text:?} (no leading `/`, no `..`)"
    )]
    Path {
        /// Number of the entry, counted from 1.
        line: usize,
        /// The entry.
        text: String,
    },
    /// No size can satisfy both bounds.
    #[error("no file is at least {min} and at most {max} bytes long")]
    SizeRange {
        /// Smallest size.
        min: u64,
        /// Largest size.
        max: u64,
    },
}

/// How names are matched.
#[derive(Clone, Debug)]
enum Names {
    /// There are no patterns.
    All,
    /// Excludes, then includes.
    Excluding(Gitignore),
    /// Includes only.
    Only(Gitignore),
}

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    names: Names,
    size_min: u64,
    size_max: u64,
    newer_than: Option<Timestamp>,
    older_than: Option<Timestamp>,
    listed: Option<Listed>,
}

impl Default for Filter {
    /// Everything takes part.
    fn default() -> Self {
        Self {
            names: Names::All,
            size_min: 0,
            size_max: u64::MAX,
            newer_than: None,
            older_than: None,
            listed: None,
        }
    }
}

impl Filter {
    /// Compiles `spec`.
    ///
    /// # Errors
    /// A pattern that is not a glob, or a range of sizes that no file can have.
    pub fn new(spec: &FilterSpec) -> Result<Self, FilterError> {
        let names = match (spec.exclude.is_empty(), spec.include.is_empty()) {
            (true, true) => Names::All,
            (true, false) => Names::Only(compile((&[], &spec.include), spec.ignore_case, "")?),
            (false, _) => Names::Excluding(compile((&spec.exclude, &spec.include), spec.ignore_case, "!")?),
        };
        let (min, max) = (spec.size_min.unwrap_or(0), spec.size_max.unwrap_or(u64::MAX));
        if min > max {
            return Err(FilterError::SizeRange { min, max });
        }
        Ok(Self {
            names,
            size_min: min,
            size_max: max,
            newer_than: spec.newer_than,
            older_than: spec.older_than,
            listed: spec
                .files_from
                .as_deref()
                .map(|list| Listed::new(list, &spec.folders_alone)),
        })
    }

    /// Returns the paths of the list (`files_from`), if there is one.
    pub fn listed(&self) -> impl Iterator<Item = RelPath> + '_ {
        let paths = self.listed.iter().flat_map(|listed| &listed.paths);
        paths.filter_map(|path| RelPath::parse(path))
    }

    /// Whether the list names exactly this path.
    pub fn is_listed(&self, path: &RelPath) -> bool {
        let listed = self.listed.as_ref();
        listed.is_some_and(|listed| listed.paths.contains(path.as_bytes()))
    }

    /// Whether only included names take part (`include` without `exclude`).
    pub fn takes_included_only(&self) -> bool {
        matches!(self.names, Names::Only(_))
    }

    /// Whether to enter this folder. The root is always entered.
    pub fn directory(&self, path: &RelPath) -> bool {
        let named = match &self.names {
            // A file inside may match.
            Names::Only(_) => true,
            _ => !self.excluded_by_pattern(path, true),
        };
        named && self.listed.as_ref().is_none_or(|listed| listed.leads_to(path))
    }

    /// Whether this node takes part. For folders this is [`directory`](Self::directory).
    pub fn node(&self, path: &RelPath, metadata: &Metadata) -> bool {
        if metadata.is_dir() {
            return self.directory(path);
        }
        if self.excluded(path, false) {
            return false;
        }
        metadata.kind != Kind::File
            || (self.size_min..=self.size_max).contains(&metadata.size)
                && self.newer_than.is_none_or(|moment| {
                    // A file of unknown age may be new, so it is taken.
                    metadata.modified >= moment || !metadata.modified.is_known()
                })
                && self
                    .older_than
                    .is_none_or(|moment| metadata.modified < moment && metadata.modified.is_known())
    }

    /// Whether this node is excluded by its name, or by not being in the list of paths. It is then
    /// not copied, and not deleted from the target of a mirror.
    pub fn excluded(&self, path: &RelPath, is_dir: bool) -> bool {
        if is_dir {
            return !self.directory(path);
        }
        self.excluded_by_pattern(path, false)
            || self.listed.as_ref().is_some_and(|listed| !listed.holds(path))
    }

    /// Whether everything takes part.
    pub fn is_empty(&self) -> bool {
        matches!(self.names, Names::All)
            && self.listed.is_none()
            && self.size_min == 0
            && self.size_max == u64::MAX
            && self.newer_than.is_none()
            && self.older_than.is_none()
    }

    fn excluded_by_pattern(&self, path: &RelPath, is_dir: bool) -> bool {
        match &self.names {
            Names::All => false,
            // From the top: in an excluded folder nothing is brought back.
            Names::Excluding(globs) => lineage(path, is_dir)
                .any(|(prefix, is_dir)| globs.matched(as_os_path(prefix), is_dir).is_ignore()),
            Names::Only(globs) => !lineage(path, is_dir)
                .any(|(prefix, is_dir)| globs.matched(as_os_path(prefix), is_dir).is_ignore()),
        }
    }
}

/// Returns the folders above `path` from the top, then `path` itself; nothing for the root.
fn lineage(path: &RelPath, is_dir: bool) -> impl Iterator<Item = (&[u8], bool)> {
    let bytes = path.as_bytes();
    let parents = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| (&bytes[..at], true));
    let itself = (!path.is_root()).then_some((bytes, is_dir));
    parents.chain(itself)
}

fn as_os_path(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Compiles all of `exclude`, then all of `include` with `mark` in front of each.
fn compile(
    (exclude, include): (&[String], &[String]),
    ignore_case: bool,
    mark: &str,
) -> Result<Gitignore, FilterError> {
    let mut builder = GitignoreBuilder::new("");
    // git takes it literally; in an option it is a slip.
    builder.allow_unclosed_class(false);
    let whole = |error: &ignore::Error| FilterError::Pattern {
        pattern: [exclude, include].concat().join(", "),
        reason: reason(error),
    };
    builder
        .case_insensitive(ignore_case)
        .map_err(|error| whole(&error))?;
    let excludes = exclude.iter().map(|pattern| ("", pattern));
    let includes = include.iter().map(|pattern| (mark, pattern));
    for (mark, pattern) in excludes.chain(includes) {
        let fault = |reason: &str| FilterError::Pattern {
            pattern: pattern.clone(),
            reason: reason.to_owned(),
        };
        if pattern.trim().is_empty() {
            return Err(fault("it is empty"));
        }
        if pattern.starts_with('!') {
            return Err(fault(
                "`!` reverses nothing here; use --include and --exclude, or `\\!` for the character",
            ));
        }
        // gitignore treats this as a comment; in an option it can only be a name.
        let escape = if pattern.starts_with('#') { "\\" } else { "" };
        builder
            .add_line(None, &format!("{mark}{escape}{pattern}"))
            .map_err(|error| fault(&reason(&error)))?;
    }
    builder.build().map_err(|error| whole(&error))
}

/// Returns the reason alone; the message already names the glob.
fn reason(error: &ignore::Error) -> String {
    match error {
        ignore::Error::Glob { err, .. } => err.clone(),
        other => other.to_string(),
    }
}

/// The paths of a list, and the folders that lead to them or take part alone.
#[derive(Clone, Debug)]
struct Listed {
    paths: HashSet<Vec<u8>>,
    parents: HashSet<Vec<u8>>,
}

impl Listed {
    fn new(list: &[RelPath], alone: &[RelPath]) -> Self {
        let mut parents: HashSet<Vec<u8>> = alone
            .iter()
            .flat_map(|path| lineage(path, true))
            .map(|(prefix, _)| prefix.to_vec())
            .collect();
        for path in list {
            for (prefix, _) in lineage(path, true) {
                if prefix.len() < path.as_bytes().len() {
                    parents.insert(prefix.to_vec());
                }
            }
        }
        Self {
            paths: list.iter().map(|path| path.as_bytes().to_vec()).collect(),
            parents,
        }
    }

    /// Whether the path itself or a folder above it (possibly the root) is listed.
    fn holds(&self, path: &RelPath) -> bool {
        self.paths.contains(b"".as_slice())
            || lineage(path, true).any(|(prefix, _)| self.paths.contains(prefix))
    }

    fn leads_to(&self, path: &RelPath) -> bool {
        path.is_root() || self.parents.contains(path.as_bytes()) || self.holds(path)
    }
}
