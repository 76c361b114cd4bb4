//! Files of the target that a mirror will delete: one of them may be what was renamed or moved in the
//! source.
//!
//! A file is found by size and modification time. That it is the same is a guess, which the copy proves:
//! it builds the new file from this one and compares all of it with the source (docs/adr/0037). Only files
//! for which that pays are remembered.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use ropeway_plan::TimeGranularity;
use ropeway_vfs::{Kind, Metadata, Name, RelPath, Timestamp};

/// Size in bytes of the smallest file that is remembered. Smaller ones cross a line in one request with
/// others.
const SIZE_MIN: u64 = 8 << 10;
/// Size in bytes of the smallest large file. Small ones take no room from those.
const LARGE_MIN: u64 = 1 << 20;
/// Most files that are remembered, small and large: some 170 bytes each, so 13 MiB. A guess.
const FILES_MAX: (usize, usize) = (64 * 1024, 16 * 1024);
/// Most files of one size and time that are looked at for a new one: thousands may have the same.
const LOOKED_AT_MAX: usize = 256;

/// The files, by their sizes and times.
#[derive(Debug, Default)]
pub(crate) struct ExtraFiles(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    files: BTreeMap<(u64, Timestamp), Vec<RelPath>>,
    small: usize,
    large: usize,
}

impl ExtraFiles {
    /// Remembers a node that will be deleted, if it is a file and worth it.
    pub(crate) fn add(&self, path: &RelPath, metadata: Option<&Metadata>) {
        let file = metadata.filter(|node| node.kind == Kind::File && node.size >= SIZE_MIN);
        let Some((file, modified)) = file.and_then(|file| Some((file, file.modified.known()?))) else {
            return;
        };
        let known = &mut *self.0.lock();
        let (count, max) = match file.size < LARGE_MIN {
            true => (&mut known.small, FILES_MAX.0),
            false => (&mut known.large, FILES_MAX.1),
        };
        if *count < max {
            *count += 1;
            let alike = known.files.entry((file.size, modified));
            // Most are alone.
            alike.or_insert_with(|| Vec::with_capacity(1)).push(path.clone());
        }
    }

    /// Returns the path of a file with the size and time of `file`, with its name if there are several.
    pub(crate) fn find(
        &self,
        name: &Name,
        file: &Metadata,
        granularity: &TimeGranularity,
    ) -> Option<RelPath> {
        let modified = file.modified.known()?;
        let reach = i128::from(granularity.reach_ns());
        let (from, to) = (Timestamp(modified.0 - reach), Timestamp(modified.0 + reach));
        let known = self.0.lock();
        let near = known.files.range((file.size, from)..=(file.size, to));
        let equal = near.filter(|((_, time), _)| granularity.equal(*time, modified));
        let mut equal = equal.flat_map(|(_, paths)| paths).take(LOOKED_AT_MAX);
        let first = equal.next()?;
        let is_named_so = |path: &&RelPath| path.file_name().as_ref() == Some(name);
        let path = match is_named_so(&first) {
            true => first,
            false => equal.find(is_named_so).unwrap_or(first),
        };
        Some(path.clone())
    }

    /// Forgets all: what was to be deleted is.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::Capabilities;
    use ropeway_vfs::MemoryTree;
    use ropeway_vfs::Tree as _;

    use super::*;

    #[test]
    fn files_are_found_by_size_and_time() {
        let capabilities: &Capabilities = &MemoryTree::new().capabilities().clone();
        let granularity = TimeGranularity::between(capabilities, capabilities);
        let file = |size, time| Metadata::bare(Kind::File, size, Timestamp(time));
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let files = ExtraFiles::default();
        files.add(&path("one"), Some(&file(SIZE_MIN, 1000)));
        files.add(&path("two"), Some(&file(SIZE_MIN, 5000)));
        files.add(&path("small"), Some(&file(SIZE_MIN - 1, 1000)));
        files.add(
            &path("folder"),
            Some(&Metadata::bare(Kind::Directory, SIZE_MIN, Timestamp(9000))),
        );
        files.add(
            &path("ageless"),
            Some(&Metadata::bare(Kind::File, SIZE_MIN, Timestamp::UNKNOWN)),
        );
        files.add(&path("unknown"), None);
        let find_named = |name: &str, size, time| {
            let name = Name::new(name.as_bytes()).unwrap();
            files
                .find(&name, &file(size, time), &granularity)
                .map(|path| path.to_string())
        };
        let find = |size, time| find_named("other", size, time);
        assert_eq!(find(SIZE_MIN, 5000).as_deref(), Some("two"));
        assert_eq!(find(SIZE_MIN, 1000).as_deref(), Some("one"));
        for (size, time) in [
            (SIZE_MIN, 2000),
            (SIZE_MIN + 1, 1000),
            (SIZE_MIN - 1, 1000),
            (SIZE_MIN, 9000),
        ] {
            assert_eq!(find(size, time), None, "{size} {time}");
        }
        assert_eq!(find(SIZE_MIN, Timestamp::UNKNOWN.0), None);
        files.add(&path("moved/three"), Some(&file(SIZE_MIN, 1000)));
        assert_eq!(
            find_named("three", SIZE_MIN, 1000).as_deref(),
            Some("moved/three")
        );
        assert_eq!(find_named("four", SIZE_MIN, 1000).as_deref(), Some("one"));
        files.clear();
        assert_eq!(find_named("three", SIZE_MIN, 1000), None);
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let files = ExtraFiles::default();
        let path = RelPath::root();
        let add = |size, time| {
            files.add(&path, Some(&Metadata::bare(Kind::File, size, Timestamp(time))));
        };
        (0..FILES_MAX.0 as i128 + 9).for_each(|time| add(SIZE_MIN, time));
        assert_eq!(files.0.lock().files.len(), FILES_MAX.0);
        // Large ones have room of their own.
        (0..FILES_MAX.1 as i128 + 9).for_each(|time| add(LARGE_MIN, time));
        assert_eq!(files.0.lock().files.len(), FILES_MAX.0 + FILES_MAX.1);
    }
}
