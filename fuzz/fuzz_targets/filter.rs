//! Filters, sizes, ages and lists of paths. The first character of each input line gives its
//! meaning: `+` an include pattern, `-` an exclude pattern, `=` a listed path, `s` a size, `a` an
//! age, anything else a path to judge.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_plan::filter::{parse_age, parse_file_list, parse_size};
use ropeway_plan::{Filter, FilterSpec};
use ropeway_vfs::{Kind, Metadata, RelPath, Timestamp};

/// 2023-11-14; any moment works.
const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

fn check_size(text: &str) -> Option<u64> {
    let bytes = parse_size(text).ok()?;
    assert!(bytes <= 1 << 63, "{text:?}");
    assert_eq!(parse_size(&bytes.to_string()), Ok(bytes), "{text:?}");
    Some(bytes)
}

/// An accepted list, written with NUL as separator, is accepted again.
fn check_list(data: &[u8], zero_separated: bool) {
    let Ok(list) = parse_file_list(data, zero_separated) else {
        return;
    };
    let entries = list.iter().map(|path| match path.is_root() {
        true => b".".as_slice(),
        false => path.as_bytes(),
    });
    let joined = entries.collect::<Vec<_>>().join(&0);
    assert_eq!(parse_file_list(&joined, true), Ok(list));
}

/// Checks what holds for every filter and path.
fn check_path(filter: &Filter, spec: &FilterSpec, path: &RelPath) {
    assert_eq!(filter.excluded(path, true), !filter.directory(path));
    let size = path.as_bytes().len() as u64;
    let file = Metadata::bare(Kind::File, size, NOW);
    let taken = filter.node(path, &file);
    assert!(!taken || !filter.excluded(path, false), "{path}");
    assert!(!taken || spec.size_min.is_none_or(|min| size >= min), "{path}");
    assert!(
        !taken || spec.newer_than.is_none_or(|moment| NOW >= moment),
        "{path}"
    );
    assert!(taken || !filter.is_empty(), "{path}");
    let folder = Metadata::bare(Kind::Directory, 0, NOW);
    assert_eq!(filter.node(path, &folder), filter.directory(path));
    if let Some(parent) = path.parent()
        && !filter.directory(&parent)
    {
        let brought_back = filter.directory(path) || !filter.excluded(path, false);
        assert!(!brought_back, "{path} lies in an excluded folder");
    }
}

fuzz_target!(|data: &[u8]| {
    check_list(data, false);
    check_list(data, true);
    let mut spec = FilterSpec::default();
    let mut paths = vec![RelPath::root()];
    for line in data.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
        match line.first() {
            Some(b'+') => spec.include.push(text),
            Some(b'-') => spec.exclude.push(text),
            Some(b'=') => spec
                .files_from
                .get_or_insert_default()
                .extend(RelPath::parse(text.as_bytes())),
            Some(b'i') => spec.ignore_case = true,
            Some(b's') => spec.size_min = check_size(&text),
            Some(b'a') => spec.newer_than = parse_age(&text, NOW).ok(),
            _ => paths.extend(RelPath::parse(line)),
        }
    }
    let Ok(filter) = Filter::new(&spec) else {
        return;
    };
    for path in &paths {
        check_path(&filter, &spec, path);
        let below = paths.iter().take(4);
        below.for_each(|rest| check_path(&filter, &spec, &path.join_path(rest)));
    }
});
