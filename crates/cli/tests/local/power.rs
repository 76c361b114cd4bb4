//! Power cuts and vanishing volumes: data called durable survives, a rerun completes the rest,
//! nothing hangs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    self, Place, Volume, file, mixed, or_skip, power_cut, same, small_files, snapshot, tool,
};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

/// Cuts the power and returns as after a boot: unmounted, journal replayed, mounted.
fn cut_and_return(volume: &mut Volume) {
    power_cut(&volume.root()).unwrap();
    volume.unmount_completely();
    volume.mount().unwrap();
}

fn tree(root: &Path) -> u64 {
    fs::create_dir_all(root).unwrap();
    for number in 0..4 {
        file(&root.join(format!("big {number}")), 16 * MIB, number);
    }
    64 * MIB + small_files(&root.join("small"), 400, 3)
}

/// Checks that every file with its final name is complete.
#[track_caller]
fn final_names_are_whole(source: &Path, target: &Path) {
    let (wanted, found) = (snapshot(source), snapshot(target));
    for (path, node) in &found {
        if node.hash.is_some() && !path.to_string_lossy().contains(".ropeway-") {
            assert_eq!(
                node.hash, wanted[path].hash,
                "{path:?} is neither whole nor absent"
            );
        }
    }
}

/// Checks that a finished copy survives a cut immediately afterwards.
fn finished_copy_survives(volume: Result<Volume, String>, flags: &[&str]) {
    let mut volume = or_skip!(volume);
    let place = Place::new();
    let source = place.join("source");
    tree(&source);
    mixed(&source.join("mixed"));
    // Once to a new name, once over an older tree.
    fs::create_dir_all(volume.join("again/small/d000")).unwrap();
    support::text(&volume.join("again/small/d000/f00001"), "an older version");
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    place.copy(&source, volume.join("target")).args(flags).ok();
    place
        .copy(&source, volume.join("again"))
        .arg("-T")
        .args(flags)
        .ok();
    or_skip!(power_cut(&volume.root()));
    volume.unmount_completely();
    volume.mount().unwrap();
    same(&source, &volume.join("target"));
    same(&source, &volume.join("again"));
}

#[test]
fn a_finished_copy_survives_on_ext4() {
    finished_copy_survives(Volume::ext4(300), &[]);
}

#[test]
fn a_finished_copy_survives_on_xfs() {
    finished_copy_survives(Volume::xfs(), &[]);
}

#[test]
fn a_finished_copy_with_durable_files_survives() {
    finished_copy_survives(Volume::ext4(300), &["--durability", "file"]);
}

#[test]
fn a_finished_mirror_has_deleted_for_good() {
    let mut volume = or_skip!(Volume::ext4(128));
    let place = Place::new();
    mixed(&place.join("source"));
    let target = volume.join("target");
    fs::create_dir(&target).unwrap();
    small_files(&target.join("extra"), 100, 1);
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    place
        .ropeway("mirror")
        .args(["--json", "--yes", "source"])
        .arg(&target)
        .ok();
    cut_and_return(&mut volume);
    same(&place.join("source"), &target);
}

/// Cuts in the middle: a rerun completes, sends no more than what was not durable, and trusts no
/// lost data.
fn cut_in_the_middle(volume: Result<Volume, String>, flags: &[&str]) {
    let mut volume = or_skip!(volume);
    let place = Place::new();
    let source = place.join("source");
    let total = tree(&source);
    for round in 1..=3_u64 {
        let target = volume.join(format!("target {round}"));
        let mut running = place
            .copy(&source, &target)
            .args(["--bwlimit", "16M"])
            .args(flags)
            .start();
        let wanted = if flags.contains(&"none") {
            "bytes_sent"
        } else {
            "bytes_durable"
        };
        running.reach(wanted, round * 12 * MIB);
        // Power and program end together: the program must not notice that the device fails.
        running.signal(Signal::STOP);
        let durable = running.counter("bytes_durable");
        or_skip!(power_cut(&volume.root()));
        running.kill();
        volume.unmount_completely();
        volume.mount().unwrap();
        if flags.contains(&"file") && target.exists() {
            final_names_are_whole(&source, &target);
        }
        // It is the same boot, but data that was only written is lost and must not be trusted.
        let again = place.copy(&source, &target).arg("-T").ok();
        same(&source, &target);
        let sent = again.number("bytes_sent");
        assert!(
            sent <= total - durable,
            "{durable} of {total} were called durable, {sent} sent again"
        );
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn a_cut_in_the_middle_on_ext4() {
    cut_in_the_middle(Volume::ext4(300), &[]);
}

#[test]
fn a_cut_in_the_middle_on_xfs() {
    cut_in_the_middle(Volume::xfs(), &[]);
}

#[test]
fn a_cut_in_the_middle_with_durable_files() {
    cut_in_the_middle(Volume::ext4(300), &["--durability", "file"]);
}

#[test]
fn a_cut_without_any_durability_is_never_silently_different() {
    cut_in_the_middle(Volume::ext4(300), &["--durability", "none"]);
}

#[test]
fn a_cut_in_place() {
    cut_in_the_middle(Volume::ext4(300), &["--inplace"]);
}

#[test]
fn a_target_that_dies_is_reported_without_hanging() {
    for kind in [Volume::ext4 as fn(u64) -> Result<Volume, String>, |_| {
        Volume::xfs()
    }] {
        let mut volume = or_skip!(kind(200));
        let place = Place::new();
        let source = place.join("source");
        tree(&source);
        let target = volume.join("target");
        let mut running = place
            .copy(&source, &target)
            .args(["--bwlimit", "16M"])
            .hang_after(Duration::from_secs(60))
            .start();
        assert!(running.until(|running| running.counter("bytes_durable") > 8 * MIB));
        or_skip!(power_cut(&volume.root()));
        let finished = running.wait();
        finished.assert_code(&[4]);
        volume.unmount_completely();
        volume.mount().unwrap();
        place.copy(&source, &target).ok();
        same(&source, &target);
    }
}

#[test]
fn a_fuse_target_whose_server_dies_is_reported_without_hanging() {
    let mut volume = or_skip!(Volume::fat(128));
    let place = Place::new();
    fs::create_dir(place.join("source")).unwrap();
    for number in 0..6 {
        file(&place.join(format!("source/{number}")), 8 * MIB, number);
    }
    let mut running = place
        .copy("source", volume.join("target"))
        .args(["--bwlimit", "8M"])
        .hang_after(Duration::from_secs(60))
        .start();
    assert!(running.until(|running| running.stdout().contains("\"progress\"")));
    std::thread::sleep(Duration::from_secs(1));
    volume.kill_server();
    running.wait().assert_code(&[4]);
}

#[test]
fn a_source_that_dies_is_reported_without_hanging() {
    let volume = or_skip!(Volume::ext4(200));
    let place = Place::new();
    let source = volume.join("source");
    tree(&source);
    // The page cache must not serve reads of the dead device.
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    let mut running = place
        .copy(&source, "target")
        .args(["--bwlimit", "16M", "--retries", "1"])
        .hang_after(Duration::from_secs(60))
        .start();
    assert!(running.until(|running| running.stdout().contains("\"progress\"")));
    std::thread::sleep(Duration::from_secs(1));
    or_skip!(power_cut(&volume.root()));
    let finished = running.wait();
    finished.assert_code(&[2, 3]);
    support::no_temporaries(&place.join("target"));
}
