//! Paths: only clean ones are accepted, their parts rebuild them, and the displayed form has no
//! control character.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_vfs::{Name, RelPath};

/// The rules of a component, written independently of the code under test.
fn is_name(part: &[u8]) -> bool {
    !matches!(part, b"" | b"." | b"..") && !part.contains(&b'/') && !part.contains(&0)
}

fn check_shown(shown: &str) {
    assert!(
        !shown.is_empty() && !shown.chars().any(char::is_control),
        "{shown:?}"
    );
}

fn check(path: &RelPath) {
    check_shown(&path.to_string());
    let json = serde_json::to_value(path).expect("a path is a text");
    assert_eq!(json.as_str(), Some(path.to_string().as_str()));
    let names: Vec<Name> = path.components().collect();
    names.iter().for_each(|name| check_shown(&name.to_string()));
    let rebuilt = names.iter().fold(RelPath::root(), |path, name| path.join(name));
    assert_eq!(rebuilt, *path);
    assert_eq!(path.file_name(), names.last().cloned());
    assert_eq!(path.parent().is_none(), path.is_root());
    assert!(path.as_path().is_relative());
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        assert_eq!(parent.join(&name), *path);
        let rest = path.strip_prefix(&parent).expect("a path lies in its parent");
        assert_eq!(rest.as_bytes(), name.as_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    assert_eq!(Name::new(data).is_some(), is_name(data));
    let parsed = RelPath::parse(data);
    let clean = data.is_empty() || data.split(|byte| *byte == b'/').all(is_name);
    assert_eq!(parsed.is_some(), clean);
    if let Some(path) = &parsed {
        assert_eq!(path.as_bytes(), data);
        check(path);
    }
    // A line end separates two paths to join.
    let mut halves = data.splitn(2, |byte| *byte == b'\n').map(RelPath::parse);
    if let (Some(Some(above)), Some(Some(below))) = (halves.next(), halves.next()) {
        let joined = above.join_path(&below);
        check(&joined);
        assert_eq!(joined.strip_prefix(&above), Some(below));
    }
});
