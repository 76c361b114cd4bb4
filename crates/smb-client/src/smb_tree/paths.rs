//! Converts paths of a tree to paths of its share, and back.

use ropeway_smb_wire::Text;
use ropeway_smb_wire::names::{self, NameError, NameMapping};
use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath};

/// The separator of a share's paths.
const BACKSLASH: u16 = b'\\' as u16;

/// Longest path in a share, in UTF-16 units: counts of bytes in requests have 16 bits ([MS-SMB2] 2.2.13),
/// and server, share and stream are put before and behind it.
const PATH_UNITS_MAX: usize = (u16::MAX / 2) as usize - 1024;

/// The path of a tree's root in its share.
#[derive(Clone, Debug)]
pub struct Base(Vec<u16>);

impl Base {
    /// Parses a path with slashes or backslashes. The empty path is the share's root.
    pub fn parse(base: &str) -> Self {
        let parts: Vec<&str> = base
            .split(['/', '\\'])
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        Self(parts.join("\\").encode_utf16().collect())
    }

    /// Returns a folder below as a base; `None` if its path holds a name that no share can store.
    pub fn below(&self, path: &RelPath) -> Option<Self> {
        self.text(Op::Open, path)
            .ok()
            .map(|text| Self(text.units().to_vec()))
    }

    /// Returns the parent folder; `None` at the share's root.
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().rposition(|unit| *unit == BACKSLASH);
        Some(Self(self.0[..end.unwrap_or(0)].to_vec()))
    }

    /// Returns the path of a name in each folder of the share above this one.
    pub fn above(&self, name: &Name) -> Vec<Text> {
        let part = names::to_wire(name.as_bytes(), NameMapping::None);
        let ends = self.0.iter().enumerate().filter(|(_, unit)| **unit == BACKSLASH);
        let mut folders: Vec<&[u16]> = ends.map(|(at, _)| &self.0[..=at]).collect();
        if !self.0.is_empty() {
            folders.push(&[]);
        }
        let path = |folder: &[u16]| Text::from_units([folder, part.units()].concat());
        folders.into_iter().map(path).collect()
    }

    /// Returns the path in the share of a node to create. Also refuses names that servers change or
    /// hide (a dot or space at the end, device names).
    ///
    /// # Errors
    /// [`ErrorKind::NameRefused`].
    pub fn new_text(&self, op: Op, path: &RelPath) -> Result<Text, Error> {
        let last = path
            .file_name()
            .map(|name| names::to_wire(name.as_bytes(), NameMapping::None));
        match last.map(|name| names::check(&name)) {
            Some(Err(fault)) => Err(refused(op, path, fault)),
            _ => self.text(op, path),
        }
    }

    /// Returns the path in the share. Refuses names with another meaning there (a separator, a
    /// stream, a pattern); a copy's plan has mapped them before. Refuses paths that fit no request.
    ///
    /// # Errors
    /// [`ErrorKind::NameRefused`].
    pub fn text(&self, op: Op, path: &RelPath) -> Result<Text, Error> {
        let mut units = self.0.clone();
        for name in path.components() {
            let part = names::to_wire(name.as_bytes(), NameMapping::None);
            if let Err(fault @ (NameError::NotAName | NameError::Character(_))) = names::check(&part) {
                return Err(refused(op, path, fault));
            }
            if !units.is_empty() {
                units.push(BACKSLASH);
            }
            units.extend_from_slice(part.units());
        }
        if units.len() > PATH_UNITS_MAX {
            return Err(refused(op, path, "the path is too long for a share"));
        }
        Ok(Text::from_units(units))
    }
}

fn refused(op: Op, path: &RelPath, fault: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let mut error = Error::new(op, path, ErrorKind::NameRefused);
    error.source = Some(std::io::Error::other(fault));
    error
}

/// Maximum length of a name in any file system, in UTF-16 units (NTFS, APFS; less in ext4).
const NAME_UNITS_MAX: usize = 255;
/// Units shown of a longer name.
const NAME_UNITS_SHOWN: usize = 40;

/// Converts a server's name of one node. Returns `None` if no Linux name can express it (a slash,
/// NUL, `.` or `..`), if it holds a backslash, which separates names in a share, or if it is too
/// long. Unpaired surrogates are allowed: [MS-FSCC] 2.1.5 requires 16-bit units only.
pub fn name_of(text: &Text) -> Option<Name> {
    let fits = text.units().len() <= NAME_UNITS_MAX && !text.units().contains(&BACKSLASH);
    fits.then(|| Name::new(&names::from_wire(text, NameMapping::None)))
        .flatten()
}

/// Returns the text that messages show for an invalid name. It holds a backslash, so no node of a
/// share has it.
pub fn shown_name(text: &Text) -> Name {
    let shown = text.units().len().min(NAME_UNITS_SHOWN);
    let mut bytes = Vec::new();
    for byte in names::from_wire(
        &Text::from_units(text.units()[..shown].to_vec()),
        NameMapping::None,
    ) {
        match byte {
            b'/' | 0 => bytes.extend(format!("\\x{byte:02x}").bytes()),
            byte => bytes.push(byte),
        }
    }
    if bytes.iter().all(|byte| *byte == b'.') {
        bytes = bytes.iter().flat_map(|_| *b"\\x2e").collect();
    }
    if shown < text.units().len() {
        bytes.extend(b"\\...");
    }
    if bytes.is_empty() {
        bytes.extend(b"\\x");
    }
    Name::new(&bytes).expect("no slash, no NUL, neither empty nor dots alone")
}

/// Returns the text that messages show for a name of a malformed record, even if it looks valid.
pub(crate) fn marked_name(text: &Text) -> Name {
    let mut bytes = shown_name(text).as_bytes().to_vec();
    if !bytes.contains(&b'\\') {
        bytes.extend(b"\\...");
    }
    Name::new(&bytes).expect("a name and more")
}

/// Converts the name of one node to that of a share.
pub fn wire_name(name: &Name) -> Text {
    names::to_wire(name.as_bytes(), NameMapping::None)
}

/// Returns a pattern that matches at least the names that begin with `prefix`. It ends before what looks different
/// on the wire depending on the bytes that follow, and before what has another meaning in patterns.
pub fn pattern_of(prefix: &[u8]) -> Text {
    let mut stem = names::to_wire(settled(prefix), NameMapping::None)
        .units()
        .to_vec();
    let is_special = |unit: &u16| char::from_u32(u32::from(*unit)).is_some_and(|c| SPECIAL.contains(c));
    stem.truncate(stem.iter().position(is_special).unwrap_or(stem.len()));
    stem.push(u16::from(b'*'));
    Text::from_units(stem)
}

/// Characters of patterns and paths ([MS-FSA] 2.1.4.4), which few shares take in names.
const SPECIAL: &str = "*?<>\"\\/:";

/// Returns the begin of a name that has the same form on the wire whatever follows it.
fn settled(mut bytes: &[u8]) -> &[u8] {
    // A character that is cut off, or the first of a pair of surrogates, which are raw bytes together.
    let may_go_on = |at: &usize| {
        matches!(
            &bytes[*at..],
            [0xED, 0xA0..=0xAF, _, ..]
                | [0xC2..=0xF4]
                | [0xE0..=0xF4, 0x80..=0xBF]
                | [0xF0..=0xF4, 0x80..=0xBF, 0x80..=0xBF]
        )
    };
    let mut last = bytes.len().saturating_sub(PAIR - 1)..bytes.len();
    bytes = &bytes[..last.find(may_go_on).unwrap_or(bytes.len())];
    // How escapes are read depends on those behind them (`names`).
    while let [before @ .., 0xEE, 0xBE | 0xBF, 0x80..=0xBF] = bytes {
        bytes = before;
    }
    bytes
}

/// Bytes of a pair of surrogates.
const PAIR: usize = 6;

/// Converts a server's path below a folder.
pub(crate) fn path_of(text: &Text) -> Option<RelPath> {
    let mut path = RelPath::root();
    for part in text.units().split(|unit| *unit == BACKSLASH) {
        path = path.join(&name_of(&Text::from_units(part.to_vec()))?);
    }
    Some(path)
}

/// Returns the path of a stream of a node, `path:name:$DATA` ([MS-FSCC] 2.1.5.3).
pub(crate) fn stream_of(path: &Text, stream: &[u16]) -> Text {
    let mut units = path.units().to_vec();
    units.push(u16::from(b':'));
    units.extend_from_slice(stream);
    units.extend(":$DATA".encode_utf16());
    Text::from_units(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn paths_lie_below_the_base() {
        let base = Base::parse("/some//folder/");
        let text = base.text(Op::Open, &path("a/ä b")).unwrap();
        assert_eq!(text.to_string(), "some\\folder\\a\\ä b");
        assert_eq!(
            base.text(Op::Open, &RelPath::root()).unwrap().to_string(),
            "some\\folder"
        );
        let name = Name::new(b"n").unwrap();
        let above: Vec<String> = base.above(&name).iter().map(ToString::to_string).collect();
        assert_eq!(above, ["some\\n", "n"]);
        assert!(Base::parse("").above(&name).is_empty());
        let deeper = base.below(&path("x")).unwrap();
        assert_eq!(
            deeper.text(Op::Open, &path("y")).unwrap().to_string(),
            "some\\folder\\x\\y"
        );
        assert!(base.below(&path("a:b")).is_none());
        let root = Base::parse("");
        assert!(root.text(Op::Open, &RelPath::root()).unwrap().is_empty());
        assert_eq!(root.text(Op::Open, &path("a/b")).unwrap().to_string(), "a\\b");
    }

    #[test]
    fn names_with_another_meaning_are_refused() {
        for odd in ["a\\b", "a:stream", "star*", "new\nline", "x?"] {
            let error = Base::parse("").text(Op::Create, &path(odd)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NameRefused, "{odd}");
        }
    }

    /// A path from the command line or of a deep tree ended the program.
    #[test]
    fn paths_that_fit_no_request_are_refused() {
        let name = "n".repeat(255);
        let long = path(&vec![name.as_str(); 130].join("/"));
        for base in ["", "top"] {
            let error = Base::parse(base).text(Op::Stat, &long).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NameRefused);
            assert!(error.to_string().contains("too long for a share"), "{error}");
        }
        let most = path(&vec![name.as_str(); 120].join("/"));
        assert!(Base::parse("top").text(Op::Stat, &most).is_ok());
    }

    #[test]
    fn lone_surrogates_and_raw_bytes_survive_a_round_trip() {
        let lone = Text::from_units(vec![0x61, 0xD83D, 0x62]);
        let name = name_of(&lone).unwrap();
        let text = Base::parse("")
            .text(Op::Open, &RelPath::root().join(&name))
            .unwrap();
        assert_eq!(text, lone);
        let raw = Name::new(b"\xff\x80").unwrap();
        let text = Base::parse("")
            .text(Op::Open, &RelPath::root().join(&raw))
            .unwrap();
        assert_eq!(name_of(&text), Some(raw));
        assert_eq!(name_of(&Text::from("a/b")), None);
        assert_eq!(name_of(&Text::from("..")), None);
        assert_eq!(name_of(&Text::from("a\\b")), None);
        let long = "n".repeat(255);
        assert!(name_of(&Text::from(long.as_str())).is_some());
        assert_eq!(name_of(&Text::from(format!("{long}n").as_str())), None);
        assert_eq!(path_of(&Text::from("a\\b")), Some(path("a/b")));
    }

    #[test]
    fn invalid_names_are_shown_escaped() {
        let long = "n".repeat(300);
        for (wire, shown) in [
            ("a/b", "a\\x2fb"),
            ("../../etc", "..\\x2f..\\x2fetc"),
            ("a\0", "a\\x00"),
            ("..", "\\x2e\\x2e"),
            ("", "\\x"),
            (long.as_str(), &format!("{}\\...", &long[..40])),
        ] {
            assert_eq!(
                shown_name(&Text::from(wire)).as_bytes(),
                shown.as_bytes(),
                "{wire:?}"
            );
        }
    }

    /// Pieces of names that look different on the wire, depending on what follows.
    const PIECES: &[&[u8]] = &[
        b"a",
        b"bad\xff",
        "\u{e4}".as_bytes(),
        "\u{1f600}".as_bytes(),
        "\u{efe9}".as_bytes(),
        "\u{ef80}".as_bytes(),
        b"\xc3",
        b"\xa4",
        b"\xed\xa0\xbd",
        b"\xed\xb8\x80",
        b"\xe9",
        b"\xf0",
        b"*",
        b"\\",
    ];

    /// Names that are not UTF-8 were not found again.
    #[test]
    fn patterns_hold_raw_bytes_as_names_do() {
        for (prefix, pattern) in [
            (&b"plain"[..], "plain*"),
            (b"", "*"),
            (b"bad\xff", "bad\u{efff}*"),
            (b"caf\xe9s", "caf\u{efe9}s*"),
            // Another character may begin here.
            (b"caf\xe9", "caf*"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}*"),
            (b"a\\b", "a*"),
        ] {
            assert_eq!(pattern_of(prefix), Text::from(pattern), "{prefix:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn patterns_match_all_names_that_begin_so(
            pieces in proptest::collection::vec(proptest::sample::select(PIECES), 1..8),
            at: proptest::sample::Index,
        ) {
            let name = pieces.concat();
            let pattern = pattern_of(&name[..at.index(name.len() + 1)]);
            let (star, stem) = pattern.units().split_last().unwrap();
            proptest::prop_assert_eq!(*star, u16::from(b'*'));
            let wire = names::to_wire(&name, NameMapping::None);
            proptest::prop_assert!(wire.units().starts_with(stem), "{:?} {:?}", wire, pattern);
            proptest::prop_assert!(!stem.contains(&BACKSLASH));
        }

        #[test]
        fn every_invalid_name_can_be_shown(units in proptest::collection::vec(proptest::prelude::any::<u16>(), 0..600)) {
            let text = Text::from_units(units);
            let marked = marked_name(&text);
            proptest::prop_assert!(marked.as_bytes().contains(&b'\\'));
            if name_of(&text).is_none() {
                let shown = shown_name(&text);
                proptest::prop_assert!(shown.as_bytes().len() <= 4 * NAME_UNITS_SHOWN + 4);
            }
        }
    }

    #[test]
    fn streams_follow_the_path() {
        let stream: Vec<u16> = "Zone.Identifier".encode_utf16().collect();
        let text = stream_of(&Text::from("a\\file"), &stream);
        assert_eq!(text.to_string(), "a\\file:Zone.Identifier:$DATA");
    }
}
