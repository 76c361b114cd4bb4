//! Paths of programs: made absolute, without questions to the file system.

/// Joins a folder and a path as the kernel does: an absolute path stands alone. Empty components and
/// `.` are left out; `..` is kept, since it means another folder if a component is a link.
pub(super) fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let folder = match path.first() {
        Some(b'/') => &[][..],
        _ => folder,
    };
    // The first component of an unknown folder has no slash before it.
    let is_absolute = [folder, path].iter().any(|part| part.first() == Some(&b'/'));
    let mut joined = Vec::with_capacity(folder.len() + 1 + path.len());
    let components = [folder, path]
        .into_iter()
        .flat_map(|part| part.split(|byte| *byte == b'/'));
    for component in components.filter(|component| !matches!(component, [] | [b'.'])) {
        if is_absolute || !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(component);
    }
    if joined.is_empty() {
        joined.push(if is_absolute { b'/' } else { b'.' });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::join;
    use proptest::prelude::*;

    fn joined(folder: &str, path: &str) -> String {
        String::from_utf8(join(folder.as_bytes(), path.as_bytes())).unwrap()
    }

    #[test]
    fn relative_paths_begin_at_their_folder() {
        for (folder, path, expected) in [
            ("/a", "b", "/a/b"),
            ("/a", "./b//c/.", "/a/b/c"),
            ("/a", "../b", "/a/../b"),
            ("/a", "/b", "/b"),
            ("/a", ".", "/a"),
            ("/a", "", "/a"),
            ("/", ".", "/"),
            ("/", "b", "/b"),
            ("", "b", "b"),
            ("", ".", "."),
            ("fd 7", "b", "fd 7/b"),
        ] {
            assert_eq!(joined(folder, path), expected, "{folder} + {path}");
        }
    }

    proptest! {
        #[test]
        fn joining_twice_is_joining_once(folder in "[a/.]{0,8}", path in "[a/.]{0,8}") {
            let once = joined(&folder, &path);
            prop_assert!(!once.is_empty());
            prop_assert_eq!(joined("", &once), once);
        }
    }
}
