//! Memory use does not grow with the tree or the file.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::support::{self, Place, content_same, file};

const MIB: u64 = 1 << 20;

/// The limit is 64 MiB of resident memory. The code of a program that is not optimised takes more of it:
/// `ropeway --version` has a peak of 26 MiB, and of 10 MiB as it is installed.
const PEAK_KIB_MAX: u64 = if cfg!(debug_assertions) {
    73 << 10
} else {
    64 << 10
};

#[test]
fn a_sparse_terabyte() {
    let place = Place::new();
    let source = place.folder("source");
    let size = 1_u64 << 40;
    let sparse = File::create(source.join("terabyte")).unwrap();
    if sparse.set_len(size).is_err() {
        support::skip!("the temporary folder's file system holds no file of 1 TiB");
    }
    let offsets = [0, 12_345, 1 << 30, (700 << 30) + 77, size - 10];
    for offset in offsets {
        sparse.write_all_at(b"some data!", offset).unwrap();
    }
    let target = place.join("target");
    for io in ["psync", "uring"] {
        let finished = place.copy(&source, &target).env("ROPEWAY_IO", io).ok();
        let copied = fs::metadata(target.join("terabyte")).unwrap();
        assert_eq!(copied.len(), size);
        assert!(copied.blocks() * 512 < MIB, "{} blocks", copied.blocks());
        assert_eq!(finished.number("bytes"), size);
        assert!(finished.number("bytes_sent") < MIB, "{finished}");
        assert!(finished.peak_kib() <= PEAK_KIB_MAX, "{} KiB", finished.peak_kib());
        let read = File::open(target.join("terabyte")).unwrap();
        for offset in offsets {
            let mut bytes = [0; 10];
            read.read_exact_at(&mut bytes, offset).unwrap();
            assert_eq!(&bytes, b"some data!", "at {offset}");
        }
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn sixty_thousand_files() {
    let place = Place::in_memory();
    let source = place.join("source");
    for folder in 0..30 {
        let folder = source.join(format!("a folder with quite a long name, number {folder}"));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..2_000 {
            fs::write(
                folder.join(format!("a file with quite a long name, number {number}")),
                b"x",
            )
            .unwrap();
        }
    }
    let target = place.join("target");
    let finished = place.copy(&source, &target).ok();
    assert_eq!(finished.number("files"), 60_000);
    assert!(finished.peak_kib() <= PEAK_KIB_MAX, "{} KiB", finished.peak_kib());
    content_same(&source, &target);
    let again = place.copy(&source, &target).arg("-T").ok();
    assert_eq!(again.number("bytes_sent"), 0);
    assert!(again.peak_kib() <= PEAK_KIB_MAX, "{} KiB", again.peak_kib());
}

#[test]
fn one_folder_of_very_many_files() {
    let place = Place::in_memory();
    let source = place.folder("source");
    for number in 0..30_000 {
        File::create(source.join(format!("{number:0200}"))).unwrap();
    }
    let finished = place.ropeway("mirror").args(["--json", "source", "target"]).ok();
    assert_eq!(finished.number("files"), 30_000);
    assert!(finished.peak_kib() <= PEAK_KIB_MAX, "{} KiB", finished.peak_kib());
    content_same(&source, &place.join("target"));
}

#[test]
fn a_big_file_needs_no_more_memory_than_a_small_one() {
    let place = Place::new();
    file(&place.join("big"), 200 * MIB, 1);
    for flags in [
        &[][..],
        &["--cache", "direct"],
        &["--engine", "vista"],
        &["--verify"],
    ] {
        let finished = place.copy("big", "copy").args(flags).arg("--force").ok();
        assert!(
            finished.peak_kib() <= PEAK_KIB_MAX,
            "{flags:?}: {} KiB",
            finished.peak_kib()
        );
    }
    content_same(&place.join("big"), &place.join("copy"));
}

#[test]
fn many_hard_links_need_little_memory() {
    let place = Place::in_memory();
    let (a, b) = (place.folder("source/a"), place.folder("source/b"));
    for number in 0..10_000 {
        fs::write(a.join(number.to_string()), b"x").unwrap();
        fs::hard_link(a.join(number.to_string()), b.join(number.to_string())).unwrap();
    }
    let finished = place.copy("source", "target").ok();
    assert!(finished.peak_kib() <= PEAK_KIB_MAX, "{} KiB", finished.peak_kib());
    let id = |name: &str| fs::metadata(place.join("target").join(name)).unwrap().ino();
    for number in [0, 5_000, 9_999] {
        assert_eq!(id(&format!("a/{number}")), id(&format!("b/{number}")));
    }
}
