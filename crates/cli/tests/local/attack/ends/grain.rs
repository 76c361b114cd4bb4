//! Times that one end stores with coarser granularity than the other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Ground, Place, Run, Served, Volume, file, or_skip, set_times, small_files, text, walk};

/// Makes a tree whose times have nanoseconds and odd seconds.
fn odd_times(root: &Path) {
    fs::create_dir_all(root.join("deep/empty")).unwrap();
    for (number, size) in [0, 1, 4_096, 65_537, 2 << 20].into_iter().enumerate() {
        file(&root.join(format!("deep/{size}")), size, number as u64);
    }
    small_files(&root.join("more"), 30, 4);
    for (number, path) in walk(root).iter().enumerate() {
        let number = u64::try_from(number).unwrap();
        set_times(path, 1_600_000_001 + number * 7, 987_654_321);
    }
}

/// Copies there and back: nothing differs, and a second copy sends nothing. `flags`: needed for the
/// returned tree to be equal to the original.
#[track_caller]
fn there_and_back(place: &Place, far: &str, flags: &[&str], run: impl Fn(&str) -> Run) {
    let source = place.join("source");
    odd_times(&source);
    let source = source.to_str().unwrap().to_owned();
    let back = place.join("back").to_str().unwrap().to_owned();
    let copy = |from: &str, to: &str| run("copy").args(["--json", "-T"]).args([from, to]);
    copy(&source, far).ok();
    nothing_to_do(&run, &[], &source, far);
    copy(far, &back).ok();
    nothing_to_do(&run, &[], far, &back);
    nothing_to_do(&run, &[], &back, far);
    nothing_to_do(&run, flags, &source, &back);
}

#[track_caller]
fn nothing_to_do(run: &impl Fn(&str) -> Run, flags: &[&str], from: &str, to: &str) {
    run("check").arg("--json").args(flags).args([from, to]).ok();
    let again = run("copy")
        .args(["--json", "-T"])
        .args(flags)
        .args([from, to])
        .ok();
    assert_eq!(
        (again.number("bytes_sent"), again.number("skipped")),
        (0, again.number("files")),
        "{again}"
    );
}

fn on_volume(volume: &Volume, flags: &[&str]) {
    let place = Place::new();
    let far = volume.join("far");
    there_and_back(&place, far.to_str().unwrap(), flags, |command| {
        place.ropeway(command)
    });
}

#[test]
fn a_tree_that_was_on_ext3_with_whole_seconds_is_equal() {
    on_volume(&or_skip!(Volume::seconds("ext3")), &["--modify-window", "1s"]);
}

#[test]
fn a_tree_that_was_on_ext2_with_whole_seconds_is_equal() {
    on_volume(&or_skip!(Volume::seconds("ext2")), &["--modify-window", "1s"]);
}

#[test]
fn a_tree_that_was_on_fat_is_equal() {
    on_volume(
        &or_skip!(Volume::fat(64)),
        &["--modify-window", "2s", "--no-mode"],
    );
}

#[test]
fn a_tree_that_was_on_exfat_is_equal() {
    on_volume(
        &or_skip!(Volume::exfat(64)),
        &["--modify-window", "2s", "--no-mode"],
    );
}

#[test]
fn a_tree_that_was_on_our_server_is_equal() {
    let served = Served::start(&[]);
    let far = served.url("far");
    there_and_back(&served.place, &far, &[], |command| served.run(command));
}

#[test]
fn a_tree_that_was_on_smbd_is_equal() {
    let ground = or_skip!(Ground::start());
    let far = ground.url("data/far");
    there_and_back(&ground.place, &far, &[], |command| ground.run(command));
}

/// Copies a tree that a server has from elsewhere, with all its nanoseconds.
#[track_caller]
fn from_a_share(place: &Place, behind: PathBuf, url: &str, run: impl Fn(&str) -> Run) {
    odd_times(&behind);
    let back = place.join("back").to_str().unwrap().to_owned();
    run("copy").args(["--json", "-T", url, &back]).ok();
    nothing_to_do(&run, &[], url, &back);
    nothing_to_do(&run, &[], &back, url);
    // And compared with the folder behind the share.
    nothing_to_do(&run, &[], behind.to_str().unwrap(), &back);
}

#[test]
fn a_tree_that_came_from_our_server_is_equal() {
    let served = Served::start(&[]);
    let behind = served.behind("tree");
    from_a_share(&served.place, behind, &served.url("tree"), |command| {
        served.run(command)
    });
}

#[test]
fn a_tree_that_came_from_smbd_is_equal() {
    let ground = or_skip!(Ground::start());
    let behind = ground.behind("data/tree");
    let url = ground.url("data/tree");
    from_a_share(&ground.place, behind, &url, |command| ground.run(command));
}

/// A server does not report that its disk stores whole seconds: each run copied everything again.
#[test]
fn a_copy_to_a_share_on_ext3_is_equal() {
    let volume = or_skip!(Volume::seconds("ext3"));
    let ground = or_skip!(Ground::with_shares_at(&["coarse"], &volume.root(), |_, share| {
        share
    }));
    let far = ground.url("coarse/far");
    there_and_back(&ground.place, &far, &["--modify-window", "1s"], |command| {
        ground.run(command)
    });
}

/// The granularity is inferred from all times of a folder, not from one: a change within a second
/// is found.
#[test]
fn a_change_within_a_second_is_found() {
    let place = Place::new();
    odd_times(&place.join("source"));
    let changed = place.join("source/more/d000/f00003");
    set_times(&changed, 1_700_000_000, 0);
    place.copy("source", "target").arg("-T").ok();
    let size = usize::try_from(fs::metadata(&changed).unwrap().len()).unwrap();
    text(&changed, &"x".repeat(size));
    set_times(&changed, 1_700_000_000, 500_000_000);
    place.ropeway("check").args(["source", "target"]).exits(7);
    assert_eq!(
        place.copy("source", "target").arg("-T").ok().number("skipped"),
        34
    );
    assert_eq!(
        fs::read(&changed).unwrap(),
        fs::read(place.join("target/more/d000/f00003")).unwrap()
    );
}
