//! Names and relative paths as raw bytes.
//!
//! A [`Name`] is one component. It is not empty, not `.` or `..`, and contains neither `/` nor NUL.
//! A [`RelPath`] is a list of names below a tree's root; the empty path is the root. Bytes are kept
//! unchanged: names need not be UTF-8 (UTF-16 names of SMB are carried as WTF-8).

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// One component of a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Parses a component; `None` if it is empty, `.`, `..`, or contains `/` or NUL.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bad = bytes.is_empty()
            || bytes == b"."
            || bytes == b".."
            || bytes.iter().any(|b| *b == b'/' || *b == 0);
        (!bad).then(|| Self(bytes.into()))
    }

    /// Returns the raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the same bytes as an operating system string.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A path below a tree's root. The empty path is the root itself.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Returns the root.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses `a/b/c`; `None` if a component is not a [`Name`]. This excludes `..` and leading or
    /// doubled slashes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::root());
        }
        bytes
            .split(|b| *b == b'/')
            .all(|part| Name::new(part).is_some())
            .then(|| Self(bytes.to_vec()))
    }

    /// Appends one component.
    pub fn join(&self, name: &Name) -> Self {
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        path.extend_from_slice(&self.0);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name.0);
        Self(path)
    }

    /// Appends all components of `rest`.
    pub fn join_path(&self, rest: &RelPath) -> Self {
        if rest.is_root() {
            return self.clone();
        }
        if self.is_root() {
            return rest.clone();
        }
        let mut path = self.0.clone();
        path.push(b'/');
        path.extend_from_slice(&rest.0);
        Self(path)
    }

    /// Returns the rest of this path below `base`; `None` if it is not there.
    pub fn strip_prefix(&self, base: &RelPath) -> Option<RelPath> {
        if base.is_root() {
            return Some(self.clone());
        }
        let rest = self.0.strip_prefix(base.0.as_slice())?;
        if rest.is_empty() {
            Some(Self::root())
        } else {
            rest.strip_prefix(b"/").map(|rest| Self(rest.to_vec()))
        }
    }

    /// Returns the path of the folder that holds this node; `None` for the root.
    pub fn parent(&self) -> Option<RelPath> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|b| *b == b'/') {
            Some(at) => Self(self.0[..at].to_vec()),
            None => Self::root(),
        })
    }

    /// Returns the last component; `None` for the root.
    pub fn file_name(&self) -> Option<Name> {
        if self.is_root() {
            return None;
        }
        let start = self.0.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        Name::new(&self.0[start..])
    }

    /// Returns the components in order.
    pub fn components(&self) -> impl Iterator<Item = Name> + '_ {
        self.0.split(|b| *b == b'/').filter_map(Name::new)
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the raw bytes, components separated by `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the same bytes as a relative path for the operating system; the root is `.`.
    pub fn as_path(&self) -> &Path {
        if self.is_root() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(&self.0))
        }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            f.write_str(".")
        } else {
            escape(&self.0, f)
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether a character changes the order in which others are displayed, so that one name can look
/// like another: embeddings, overrides and isolates of the Unicode Bidirectional Algorithm (UAX #9,
/// 2.1 to 2.5).
pub fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes bytes for display: UTF-8 unchanged, control characters and other bytes as `\xNN`,
/// characters that reorder others as `\u{NNNN}`.
fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                write!(f, "\\x{:02x}", c as u32)?
            } else if reorders(c) {
                write!(f, "\\u{{{:x}}}", c as u32)?
            } else {
                write!(f, "{c}")?
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_cannot_be_displayed_as_other_names() {
        let name = Name::new("in\u{202e}fdp.exe \u{2066}x\u{2069} \u{5d0}\u{200f}".as_bytes()).unwrap();
        let shown = RelPath::root().join(&name).to_string();
        assert_eq!(shown, "in\\u{202e}fdp.exe \\u{2066}x\\u{2069} \u{5d0}\u{200f}");
    }

    #[test]
    fn hostile_components_are_refused() {
        for bad in ["/a", "a//b", "..", "a/../b", "a/", ".", "a\0b"] {
            assert!(RelPath::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
        assert!(Name::new(b"a/b").is_none());
    }

    proptest! {
        #[test]
        fn components_rebuild_the_path(parts in prop::collection::vec("[^/\0]{1,8}", 0..6)) {
            let names: Vec<Name> = parts.iter().filter_map(|part| Name::new(part.as_bytes())).collect();
            let path = names.iter().fold(RelPath::root(), |path, name| path.join(name));
            prop_assert_eq!(path.components().collect::<Vec<_>>(), names.clone());
            prop_assert_eq!(path.file_name(), names.last().cloned());
            prop_assert_eq!(RelPath::parse(path.as_bytes()), Some(path.clone()));
            if let Some(parent) = path.parent() {
                prop_assert_eq!(path.strip_prefix(&parent).map(|rest| parent.join_path(&rest)), Some(path));
            }
        }
    }
}
