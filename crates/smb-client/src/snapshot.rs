//! Earlier states of a share by path: a component such as `@GMT-2026.01.31-12.00.00`, wherever it stands, means the rest
//! of the path as it was then. It was a name on the wire once ([MS-SMB] 2.2.1.1.1); from SMB 2 on the time goes in a
//! context of CREATE ([MS-SMB2] 2.2.13.2.7), and servers take the component for an ordinary name.

use std::borrow::Cow;

use ropeway_smb_wire::fsctl::snapshots::token_time;
use ropeway_smb_wire::{FileTime, Text};

const SEPARATOR: u16 = b'\\' as u16;

/// The path without the component that names a snapshot, and its time; the last one counts.
pub(crate) fn taken_apart(path: &Text) -> (Cow<'_, Text>, Option<FileTime>) {
    let mut time = None;
    let mut kept: Vec<&[u16]> = Vec::new();
    // Nearly every path has none, and is not taken apart.
    if !path.units().contains(&u16::from(b'@')) {
        return (Cow::Borrowed(path), None);
    }
    for component in path.units().split(|unit| *unit == SEPARATOR) {
        match token_time(&Text::from_units(component.to_vec())) {
            Some(then) => time = Some(then),
            None => kept.push(component),
        }
    }
    match time {
        Some(_) => (Cow::Owned(Text::from_units(kept.join(&SEPARATOR))), time),
        None => (Cow::Borrowed(path), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(path: &str) -> (String, Option<FileTime>) {
        let text = Text::from(path);
        let (path, time) = taken_apart(&text);
        (path.to_string_lossy(), time)
    }

    #[test]
    fn a_token_is_taken_out_wherever_it_stands() {
        let then = token_time(&Text::from("@GMT-2026.01.31-12.00.00"));
        assert!(then.is_some());
        for (path, left) in [
            ("@GMT-2026.01.31-12.00.00", ""),
            ("@GMT-2026.01.31-12.00.00\\a\\b", "a\\b"),
            ("a\\@GMT-2026.01.31-12.00.00\\b", "a\\b"),
            ("a\\b\\@GMT-2026.01.31-12.00.00", "a\\b"),
            ("@GMT-2025.01.31-12.00.00\\a\\@GMT-2026.01.31-12.00.00", "a"),
        ] {
            assert_eq!(apart(path), (left.to_owned(), then), "{path}");
        }
    }

    #[test]
    fn other_names_stay() {
        for path in [
            "",
            "a\\b",
            "@GMT",
            "a@b\\c",
            "@GMT-2026.13.31-12.00.00",
            "x@GMT-2026.01.31-12.00.00",
            "@GMT-2026.01.31-12.00.00x\\a",
        ] {
            assert_eq!(apart(path), (path.to_owned(), None));
        }
    }
}
