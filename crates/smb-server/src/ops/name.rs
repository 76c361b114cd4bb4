//! Names of CREATE and SET_INFO, from the wire to the disk.

use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{Name, RelPath};

/// The most components of a path.
const COMPONENTS_MAX: usize = 4096;

/// A path beneath a share, and the stream of it that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// In the names that the disk would have.
    pub(crate) path: RelPath,
    /// The named stream; none for the content itself.
    pub(crate) stream: Option<Name>,
    /// It was written with a stream's type or name.
    pub(crate) names_stream: bool,
}

const BACKSLASH: u16 = b'\\' as u16;
const COLON: u16 = b':' as u16;

/// Reads a name of a CREATE ([MS-SMB2] 2.2.13, [MS-FSCC] 2.1.5).
pub(crate) fn parse(name: &Text) -> Result<Target, NtStatus> {
    let units = name.units();
    // [MS-SMB2] 3.3.5.9: a name that begins with a separator is no name.
    if units.first() == Some(&BACKSLASH) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let units = units.strip_suffix(&[BACKSLASH]).unwrap_or(units);
    if units.is_empty() {
        return Ok(Target {
            path: RelPath::root(),
            stream: None,
            names_stream: false,
        });
    }
    let components: Vec<&[u16]> = units.split(|unit| *unit == BACKSLASH).collect();
    if components.len() > COMPONENTS_MAX {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let (last, parents) = components.split_last().ok_or(NtStatus::OBJECT_NAME_INVALID)?;
    let mut path = RelPath::root();
    for component in parents {
        path = path.join(&component_name(component)?);
    }
    let mut parts = last.splitn(3, |unit| *unit == COLON);
    let file = parts.next().unwrap_or_default();
    let stream = parts.next();
    let kind = parts.next();
    if !file.is_empty() {
        path = path.join(&component_name(file)?);
    } else if stream.is_none() {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    Ok(Target {
        path,
        stream: stream_name(stream, kind)?,
        names_stream: stream.is_some(),
    })
}

/// The new name of a renaming or link without the separators that say nothing: leading ones, which smbclient's `hardlink`
/// sends, and doubled ones. Samba takes them as well; a CREATE has to do without.
pub(crate) fn normalized(name: &Text) -> Text {
    let components = name.units().split(|unit| *unit == BACKSLASH);
    let said: Vec<&[u16]> = components.filter(|component| !component.is_empty()).collect();
    Text::from_units(said.join(&BACKSLASH))
}

/// `:name:$DATA`; no name is the content itself, which has to be written `::$DATA` then.
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

/// One component as the disk has it.
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

/// A path as clients see it.
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

/// A stream's name as the hub compares it.
pub(crate) fn fold_stream(name: &Name) -> Text {
    upcase::fold(&names::to_wire(name.as_bytes(), NameMapping::None))
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
        assert_eq!(target("a:s"), ok("a", Some("s")));
        assert_eq!(target("a:s:$data"), ok("a", Some("s")));
        assert_eq!(target("a::$DATA"), ok("a", None));
        assert_eq!(target(":s"), ok("", Some("s")));
        // What only a Linux name may have, by way of private characters.
        assert_eq!(target("a\u{F022}b\u{F029}"), ok("a:b.", None));
    }

    #[test]
    fn separators_that_say_nothing_are_left_out() {
        for name in ["a\\b", "\\a\\b", "\\\\a\\\\\\b\\\\"] {
            assert_eq!(normalized(&Text::from(name)), Text::from("a\\b"), "{name}");
        }
        assert_eq!(normalized(&Text::from("\\..\\a")), Text::from("..\\a"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["..", "a\\..\\b"] {
            assert_eq!(target(name), Err(NtStatus::OBJECT_PATH_SYNTAX_BAD), "{name}");
        }
        let invalid = [
            "a\\\\b",
            ".",
            "a*",
            "a\\b?",
            "a/b",
            "a:s:$INDEX",
            "a:",
            "a|",
            "a:b:c:d",
            ":",
        ];
        for name in invalid {
            assert_eq!(target(name), Err(NtStatus::OBJECT_NAME_INVALID), "{name}");
        }
        assert_eq!(target("\\a"), Err(NtStatus::INVALID_PARAMETER));
    }
}
