//! Conversion of the names in CREATE and SET_INFO to paths on disk.

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_smb_wire::names::{self, BACKSLASH, NameMapping, is_separator};
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Name, RelPath};

/// Maximum number of components of a path.
const COMPONENTS_MAX: usize = 4096;

/// A path below a share, and possibly a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Path in the names of the disk.
    pub(crate) path: RelPath,
    /// Name of the stream; `None` for the content.
    pub(crate) stream: Option<Name>,
    /// Whether the name contains the name or type of a stream.
    pub(crate) names_stream: bool,
}

const COLON: u16 = b':' as u16;
const DOT: u16 = b'.' as u16;

/// Parses the name of a CREATE ([MS-SMB2] 2.2.13, [MS-FSCC] 2.1.5).
///
/// `..` leads to the folder before it, by the name alone ([MS-FSCC] 2.1.5.1; smb2.notify.tree): the
/// disk never sees it, and it leads nowhere from the root of the share. A folder `.` is the folder
/// before it, as on Windows (note to [MS-SMB2] 3.3.5.9).
///
/// The same note says that Windows refuses `folder\..\name`. Here it means `name`, as in SMB 1.
pub(crate) fn parse(name: &Text) -> Result<Target, NtStatus> {
    let units = name.units();
    // [MS-SMB2] 3.3.5.9: a name must not begin with a separator.
    if units.first().is_some_and(is_separator) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let units = match units.split_last() {
        Some((last, rest)) if is_separator(last) => rest,
        _ => units,
    };
    if units.is_empty() {
        return Ok(Target {
            path: RelPath::root(),
            stream: None,
            names_stream: false,
        });
    }
    // Windows and Samba take several separators for one.
    let components = units
        .split(is_separator)
        .filter(|component| !component.is_empty());
    let components: Vec<&[u16]> = components.collect();
    if components.len() > COMPONENTS_MAX {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let (last, parents) = components.split_last().ok_or(NtStatus::OBJECT_NAME_INVALID)?;
    let mut path = RelPath::root();
    for component in parents {
        if *component != [DOT] {
            path = enter(&path, component)?;
        }
    }
    let mut parts = last.splitn(3, |unit| *unit == COLON);
    let file = parts.next().unwrap_or_default();
    let stream = parts.next();
    let kind = parts.next();
    if !file.is_empty() {
        path = enter(&path, file)?;
    } else if stream.is_none() {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    Ok(Target {
        path,
        stream: stream_name(stream, kind)?,
        names_stream: stream.is_some(),
    })
}

/// Returns the path of an entry of a folder, or of the folder above.
fn enter(folder: &RelPath, component: &[u16]) -> Result<RelPath, NtStatus> {
    match component == [DOT, DOT] {
        true => folder.parent().ok_or(NtStatus::OBJECT_PATH_SYNTAX_BAD),
        false => Ok(folder.join(&component_name(component)?)),
    }
}

/// Parses `:name:$DATA`. An empty name means the content, which must be written `::$DATA`.
fn stream_name(name: Option<&[u16]>, kind: Option<&[u16]>) -> Result<Option<Name>, NtStatus> {
    if let Some(kind) = kind {
        let kind = Text::from_units(kind.to_vec());
        if !upcase::equal(&kind, &Text::from("$DATA")) {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
    }
    match name {
        None => Ok(None),
        Some([]) if kind.is_some() => Ok(None),
        Some([]) => Err(NtStatus::OBJECT_NAME_INVALID),
        Some(name) => {
            let text = Text::from_units(name.to_vec());
            if name.iter().any(|unit| *unit == 0 || *unit == u16::from(b'/')) || name.len() > 255 {
                return Err(NtStatus::OBJECT_NAME_INVALID);
            }
            Name::new(&names::from_wire(&text, NameMapping::None))
                .map(Some)
                .ok_or(NtStatus::OBJECT_NAME_INVALID)
        }
    }
}

/// Converts one component to its name on disk.
pub(crate) fn component_name(units: &[u16]) -> Result<Name, NtStatus> {
    let dots = units.iter().all(|unit| *unit == u16::from(b'.'));
    if dots && units.len() == 2 {
        return Err(NtStatus::OBJECT_PATH_SYNTAX_BAD);
    }
    if units.is_empty() || (dots && units.len() == 1) {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let forbidden = |unit: &u16| *unit < 0x20 || b"\"*/:<>?|".iter().any(|byte| u16::from(*byte) == *unit);
    if units.iter().any(forbidden) {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let text = Text::from_units(units.to_vec());
    Name::new(&names::from_wire(&text, NameMapping::Sfm)).ok_or(NtStatus::OBJECT_NAME_INVALID)
}

/// Converts a path on disk to the wire format.
pub(crate) fn to_wire(path: &RelPath) -> Text {
    let mut units = Vec::new();
    for component in path.components() {
        if !units.is_empty() {
            units.push(BACKSLASH);
        }
        units.extend_from_slice(names::to_wire(component.as_bytes(), NameMapping::Sfm).units());
    }
    Text::from_units(units)
}

/// Folds the name of a stream for comparison in the hub.
pub(crate) fn fold_stream(name: &Name) -> Text {
    upcase::fold(&names::to_wire(name.as_bytes(), NameMapping::None))
}

/// Returns the hub's key of a file.
pub(crate) fn key_of(stat: &NodeStat, stream: Option<&Name>) -> FileKey {
    FileKey {
        share_volume: stat.id.volume,
        index: stat.id.index,
        stream: stream.map(fold_stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> Result<(String, Option<String>), NtStatus> {
        parse(&Text::from(name)).map(|target| {
            let stream = target.stream.map(|stream| stream.to_string());
            (
                String::from_utf8_lossy(target.path.as_bytes()).into_owned(),
                stream,
            )
        })
    }

    #[test]
    fn paths_and_streams() {
        let ok = |path: &str, stream: Option<&str>| Ok((path.to_owned(), stream.map(str::to_owned)));
        assert_eq!(target(""), ok("", None));
        assert_eq!(target("a\\b"), ok("a/b", None));
        assert_eq!(target("a\\b\\"), ok("a/b", None));
        assert_eq!(target("a/b\\c/"), ok("a/b/c", None));
        assert_eq!(target("a\\\\b//c"), ok("a/b/c", None));
        assert_eq!(target("a\\..\\b\\c\\.."), ok("b", None));
        assert_eq!(target("a\\.."), ok("", None));
        assert_eq!(target("a\\.\\b"), ok("a/b", None));
        assert_eq!(target(".\\a\\.\\.\\..\\b:s"), ok("b", Some("s")));
        assert_eq!(target("a:s"), ok("a", Some("s")));
        assert_eq!(target("a:s:$data"), ok("a", Some("s")));
        assert_eq!(target("a::$DATA"), ok("a", None));
        assert_eq!(target(":s"), ok("", Some("s")));
        // Characters that only Linux names may have appear as private characters.
        assert_eq!(target("a\u{F022}b\u{F029}"), ok("a:b.", None));
    }

    #[test]
    fn redundant_separators_are_removed() {
        for name in ["a\\b", "\\a\\b", "\\\\a\\\\\\b\\\\"] {
            assert_eq!(
                names::without_extra_separators(&Text::from(name)),
                Text::from("a\\b"),
                "{name}"
            );
        }
        assert_eq!(
            names::without_extra_separators(&Text::from("\\..\\a")),
            Text::from("..\\a")
        );
    }

    #[test]
    fn invalid_names_are_refused() {
        for name in ["..", "../a", "a\\..\\..\\b", "a/../../a/b"] {
            assert_eq!(target(name), Err(NtStatus::OBJECT_PATH_SYNTAX_BAD), "{name}");
        }
        let invalid = [
            ".",
            "a*",
            "a\\b?",
            "a\\.",
            ".\\.",
            "a:s:$INDEX",
            "a:",
            "a|",
            "a:b:c:d",
            ":",
        ];
        for name in invalid {
            assert_eq!(target(name), Err(NtStatus::OBJECT_NAME_INVALID), "{name}");
        }
        for name in ["\\a", "/a"] {
            assert_eq!(target(name), Err(NtStatus::INVALID_PARAMETER), "{name}");
        }
    }
}
