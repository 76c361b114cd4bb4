//! A file system whose device has less space than it claims. What the page cache has accepted
//! cannot be written back, and the kernel reports that only once.

use std::fs;
use std::path::Path;

use crate::support::{Place, Volume, content_same, file, or_skip, same, tool};

const MIB: u64 = 1 << 20;

/// A file system of 320 MiB on an image with 100 MiB of space.
struct OvercommittedVolume {
    // Dropped in this order.
    inner: Volume,
    outer: Volume,
}

impl OvercommittedVolume {
    fn new(make: fn(&Volume) -> Result<Volume, String>) -> Result<Self, String> {
        let outer = Volume::tmpfs(100)?;
        let inner = make(&outer)?;
        fs::create_dir(inner.join("into")).unwrap();
        Ok(Self { inner, outer })
    }

    /// Makes an ext4 without a journal whose free space is in pieces of 64 KiB.
    fn in_pieces() -> Result<Self, String> {
        let volume = Self::new(ext4)?;
        let pieces = volume.inner.join("pieces");
        fs::create_dir(&pieces).unwrap();
        let piece = |number: u32| pieces.join(format!("{number}"));
        let full = (0..).find(|number| {
            let made = fs::File::create(piece(*number)).unwrap();
            rustix::fs::fallocate(&made, rustix::fs::FallocateFlags::empty(), 0, 64 << 10).is_err()
        });
        for number in (0..full.unwrap()).step_by(2) {
            fs::remove_file(piece(number)).unwrap();
        }
        tool("sync", &["-f".as_ref(), volume.inner.root().as_os_str()])?;
        Ok(volume)
    }

    /// Enlarges the device; changes nothing else.
    fn enlarge(&self) {
        self.outer.resize(500);
    }

    /// Drops the page cache, so that the device's contents are visible.
    fn remount(&mut self) {
        self.inner.unmount_completely();
        self.inner.mount().unwrap();
    }
}

fn xfs(outer: &Volume) -> Result<Volume, String> {
    Volume::within(outer, "xfs", 320, "mkfs.xfs", &["-q", "-f"])
}

fn ext4(outer: &Volume) -> Result<Volume, String> {
    let options = ["-q", "-F", "-m", "0", "-O", "^has_journal"];
    Volume::within(outer, "ext4", 320, "mkfs.ext4", &options)
}

fn sources(root: &Path, count: u64, size: u64) {
    fs::create_dir(root).unwrap();
    for number in 0..count {
        file(&root.join(format!("file {number}")), size, number);
    }
}

/// Checks that the failing run reports its failure and the next run repairs its result.
fn repaired(volume: Result<OvercommittedVolume, String>, (count, size): (u64, u64), flags: &[&str]) {
    let mut volume = or_skip!(volume);
    let place = Place::new();
    let source = place.join("source");
    sources(&source, count, size);
    let target = volume.inner.join("into");
    // Slow enough for parts to be durable before the failure.
    place
        .copy(&source, &target)
        .args(["-T", "--bwlimit", "32M"])
        .exits(4);
    volume.enlarge();
    place.copy(&source, &target).arg("-T").args(flags).ok();
    volume.remount();
    same(&source, &target);
}

/// A second run gave final names to data that the first run had written and the device had lost.
#[test]
fn a_failed_flush_is_remembered_on_xfs() {
    repaired(OvercommittedVolume::new(xfs), (12, 9 * MIB), &[]);
}

#[test]
fn a_failed_flush_is_remembered_on_ext4_without_a_journal() {
    repaired(OvercommittedVolume::new(ext4), (12, 9 * MIB), &[]);
}

/// With fragmented free space, a file's block map needs its own blocks. Such a block can be lost
/// too, and is not written again when the file's data is written to the same place.
#[test]
fn a_failed_flush_that_lost_the_map_of_a_file_is_repaired() {
    repaired(OvercommittedVolume::in_pieces(), (12, 9 * MIB), &[]);
}

#[test]
fn a_failed_flush_of_one_big_file_is_remembered() {
    repaired(OvercommittedVolume::new(xfs), (1, 110 * MIB), &[]);
}

/// A comparison reads the page cache.
#[test]
fn a_comparison_of_contents_is_no_proof_after_a_failed_flush() {
    repaired(OvercommittedVolume::new(xfs), (12, 9 * MIB), &["--checksum"]);
}

#[test]
fn a_new_folder_and_small_files_are_repaired_after_a_failed_flush() {
    let mut volume = or_skip!(OvercommittedVolume::new(xfs));
    let place = Place::new();
    let source = place.join("source");
    sources(&source, 220, MIB / 2);
    let target = volume.inner.join("new");
    place.copy(&source, &target).arg("-T").exits(4);
    volume.enlarge();
    place.copy(&source, &target).arg("-T").ok();
    volume.remount();
    same(&source, &target);
}

/// A run that found everything equal called it durable without flushing.
#[test]
fn data_in_the_page_cache_from_another_run_is_flushed_before_it_is_called_durable() {
    let mut volume = or_skip!(OvercommittedVolume::new(xfs));
    let place = Place::new();
    let source = place.join("source");
    sources(&source, 12, 9 * MIB);
    let target = volume.inner.join("into");
    let run = || place.copy(&source, &target).arg("-T");
    run().args(["--durability", "none"]).ok();
    run().args(["--bwlimit", "32M"]).exits(4);
    volume.enlarge();
    run().ok();
    volume.remount();
    same(&source, &target);
}

#[test]
fn data_written_in_place_before_a_failed_flush_is_written_again() {
    repaired_in_place(OvercommittedVolume::new(xfs));
}

#[test]
fn the_map_of_a_file_written_in_place_before_a_failed_flush_is_written_again() {
    repaired_in_place(OvercommittedVolume::in_pieces());
}

/// The next run is killed too: data that the first run lost stays lost.
#[test]
fn a_failed_flush_is_remembered_over_a_killed_run() {
    let mut volume = or_skip!(OvercommittedVolume::new(xfs));
    let place = Place::new();
    let source = place.join("source");
    sources(&source, 12, 9 * MIB);
    let target = volume.inner.join("into");
    place.copy(&source, &target).arg("-T").exits(4);
    volume.enlarge();
    let mut running = place
        .copy(&source, &target)
        .args(["-T", "--bwlimit", "24M"])
        .start();
    running.reach("bytes_sent", 30 * MIB);
    running.kill();
    place.copy(&source, &target).arg("-T").ok();
    volume.remount();
    same(&source, &target);
}

/// A move removed sources whose copies the device did not have.
#[test]
fn a_move_after_a_failed_flush_loses_nothing() {
    let mut volume = or_skip!(OvercommittedVolume::new(xfs));
    let place = Place::new();
    let (source, kept) = (place.join("source"), place.join("kept"));
    sources(&source, 12, 9 * MIB);
    sources(&kept, 12, 9 * MIB);
    let target = volume.inner.join("into");
    let run = || place.copy(&source, &target).args(["-T", "--move"]);
    run().exits(4);
    for number in 0..12 {
        let name = format!("file {number}");
        assert!(source.join(&name).exists(), "{name} is lost");
    }
    volume.enlarge();
    run().ok();
    volume.remount();
    content_same(&kept, &target);
}

/// In place: over files with holes, which have no space either.
fn repaired_in_place(volume: Result<OvercommittedVolume, String>) {
    let mut volume = or_skip!(volume);
    let place = Place::new();
    let source = place.join("source");
    sources(&source, 12, 9 * MIB);
    let target = volume.inner.join("into");
    for number in 0..12 {
        let hole = fs::File::create(target.join(format!("file {number}"))).unwrap();
        hole.set_len(9 * MIB).unwrap();
    }
    let run = || place.copy(&source, &target).args(["-T", "--inplace"]);
    run().exits(4);
    volume.enlarge();
    run().ok();
    volume.remount();
    same(&source, &target);
}
