//! `--delta` with the real server: only what changed inside a file crosses the line, and nothing
//! depends on it.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{
    Finished, PASSWORD, Place, Served, beside_far_server, file, no_temporaries, or_skip, write_at,
};
use ropeway_peers::{Share, Smbd};
use serde_json::Value;

/// Larger than what goes as a small file (4 MiB).
const SIZE: u64 = 12 << 20;

/// Makes an old file and a new one with some changed places and an insertion.
fn versions(old: &Path, new: &Path) {
    file(old, SIZE, 1);
    let mut content = fs::read(old).unwrap();
    for at in (0..content.len() - 2_000).step_by(3 << 20) {
        content[at + 1_000..at + 2_000].fill(7);
    }
    content.splice(5_000_000..5_000_000, *b"something new");
    fs::write(new, content).unwrap();
}

fn copy(served: &Served, from: &str, to: &str, flags: &[&str]) -> Finished {
    let run = served.run("copy").args(["-T", "--json"]);
    run.args(flags).args([from, to]).run()
}

#[track_caller]
fn sent_little(finished: &Finished) {
    let (sent, reused) = (finished.number("bytes_sent"), finished.number("bytes_reused"));
    assert!(sent < SIZE / 8, "{finished}");
    assert_eq!(sent + reused, SIZE + 13, "{finished}");
}

#[test]
fn only_what_changed_crosses_the_line_both_ways() {
    let served = Served::start(&[]);
    let (near, far) = (served.place.join("near"), served.behind("far"));
    versions(&far, &near);
    let url = served.url("far");
    let near_text = near.to_str().unwrap();
    let up = copy(&served, near_text, &url, &["--delta", "on", "--verify"]);
    up.assert_code(&[0]);
    sent_little(&up);
    assert!(fs::read(&near).unwrap() == fs::read(&far).unwrap());
    // And back, onto an older one.
    let back = served.place.join("back");
    versions(&back, &served.place.join("unused"));
    let down = copy(&served, &url, back.to_str().unwrap(), &["--delta", "on"]);
    down.assert_code(&[0]);
    sent_little(&down);
    assert!(fs::read(&near).unwrap() == fs::read(&back).unwrap());
    no_temporaries(served.place.path());
    // Off, everything is sent.
    versions(&far, &near);
    let off = copy(&served, near_text, &url, &["--delta", "off", "--force"]);
    off.assert_code(&[0]);
    assert_eq!(off.number("bytes_sent"), SIZE + 13);
}

/// In place, hashes of what the last run wrote tell what changed, at a server that tells nothing. The source is
/// sparse, as images are.
#[test]
fn in_place_only_blocks_that_changed_are_sent_to_smbd() {
    const BLOCK: u64 = 64 << 10;
    let place = Place::new();
    let data = place.folder("data");
    let smbd = Smbd::builder()
        .user("ann", PASSWORD)
        .share(Share::new("data", &data))
        .start();
    let smbd = or_skip!(smbd);
    let (near, far) = (place.join("near"), data.join("far"));
    let image = fs::File::create(&near).unwrap();
    image.set_len(SIZE).unwrap();
    // Versions that are made in one tick of the clock would look equal.
    let mut seconds = 1_700_000_000;
    let mut change = |at: u64, bytes: &[u8]| {
        write_at(&near, at, bytes);
        seconds += 100;
        image
            .set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    };
    let run = |delta: &str, flags: &[&str]| {
        let run = place.ropeway("copy").env("ROPEWAY_PASSWORD", PASSWORD);
        let run = run
            .args(["-T", "--json", "--inplace", "--delta", delta])
            .args(flags);
        run.args([near.to_str().unwrap(), &smbd.url_as(Some("ann"), "data/far")])
    };
    let copy = |delta: &str, flags: &[&str]| {
        let finished = run(delta, flags).run();
        finished.assert_code(&[0]);
        assert!(fs::read(&near).unwrap() == fs::read(&far).unwrap(), "{finished}");
        (finished.number("bytes_sent"), finished.number("bytes_reused"))
    };
    file(&far, SIZE, 1);
    change(2 << 20, &vec![9; 3 << 20]);
    assert_eq!(copy("on", &[]).1, 0, "nothing is known yet");
    // A changed block, one in a hole, and a new hole.
    change((3 << 20) + 5, b"changed");
    change((9 << 20) + 5, b"new");
    change(2 << 20, &vec![0; 64 << 10]);
    assert_eq!(copy("on", &["--verify"]), (3 * BLOCK, SIZE - 3 * BLOCK));
    // A run that is killed leaves a mixture, and nothing that says otherwise.
    change(6 << 20, &vec![7; 4 << 20]);
    let mut killed = run("on", &["--bwlimit", "2M"]).start();
    killed.reach("bytes_sent", BLOCK);
    killed.kill();
    change(6 << 20, &vec![0; 4 << 20]);
    assert_eq!(copy("on", &[]).1, 0);
    // So does somebody else who writes, and a user who has doubts.
    write_at(&far, 1 << 20, b"foreign");
    change(1 << 20, b"own");
    assert_eq!(copy("on", &[]).1, 0);
    assert_eq!(copy("on", &["--force"]).1, 0);
    change(1 << 20, b"OWN");
    assert_eq!(copy("on", &[]), (BLOCK, SIZE - BLOCK));
    // Samba shows the modification time as change time: only a user can decide to trust that.
    change(1 << 20, b"not");
    assert_eq!(copy("auto", &[]).1, 0);
}

/// A sparse image stays sparse.
#[test]
fn holes_stay_holes() {
    let served = Served::start(&[]);
    let (near, far) = (served.place.join("near"), served.behind("far"));
    for (path, byte) in [(&far, 1_u8), (&near, 2)] {
        let image = fs::File::create(path).unwrap();
        image.set_len(64 << 20).unwrap();
        drop(image);
        write_at(path, 40 << 20, &vec![9; 1 << 20]);
        write_at(path, 20 << 20, &[byte; 5000]);
    }
    let up = copy(
        &served,
        near.to_str().unwrap(),
        &served.url("far"),
        // Both may be made in one tick of the clock, and would look equal.
        &["--delta", "on", "--force"],
    );
    up.assert_code(&[0]);
    let (sent, reused) = (up.number("bytes_sent"), up.number("bytes_reused"));
    assert!((1..300_000).contains(&sent) && reused > 0, "{up}");
    assert!(fs::read(&near).unwrap() == fs::read(&far).unwrap(), "{up}");
    use std::os::unix::fs::MetadataExt as _;
    assert!(
        far.metadata().unwrap().blocks() * 512 < 8 << 20,
        "{:?}",
        far.metadata()
    );
}

/// A run that is killed leaves the old file whole, and the next one completes the new file.
#[test]
fn killed_in_the_middle() {
    let served = Served::start(&[]);
    let (near, far) = (served.place.join("near"), served.behind("far"));
    file(&far, 80 << 20, 3);
    let old = fs::read(&far).unwrap();
    let mut new = old.clone();
    for at in (0..new.len()).step_by(1 << 20) {
        new[at..at + 60_000].fill(5);
    }
    fs::write(&near, &new).unwrap();
    for after in [150, 400, 800, 1500] {
        // Slow enough to be killed.
        let run = served
            .run("copy")
            .args(["-T", "--json", "--delta", "on", "--bwlimit", "3M"])
            .args([near.to_str().unwrap(), &served.url("far")])
            .start();
        std::thread::sleep(Duration::from_millis(after));
        run.kill();
        let there = fs::read(&far).unwrap();
        assert!(there == old || there == new, "old or new, after {after} ms");
    }
    let last = copy(
        &served,
        near.to_str().unwrap(),
        &served.url("far"),
        &["--delta", "on"],
    );
    last.assert_code(&[0]);
    assert!(fs::read(&far).unwrap() == new);
    no_temporaries(served.place.path());
}

/// Whatever happens to the old file meanwhile, the new one is the source.
#[test]
fn the_old_file_changes_meanwhile() {
    let served = Served::start(&[]);
    let (near, far) = (served.place.join("near"), served.behind("far"));
    file(&far, 80 << 20, 4);
    let mut new = fs::read(&far).unwrap();
    for at in (0..new.len()).step_by(1 << 20) {
        new[at..at + 60_000].fill(6);
    }
    fs::write(&near, &new).unwrap();
    let run = served
        .run("copy")
        .args(["-T", "--json", "--delta", "on", "--bwlimit", "4M"])
        .args([near.to_str().unwrap(), &served.url("far")])
        .start();
    for number in 0..40 {
        std::thread::sleep(Duration::from_millis(50));
        if fs::metadata(&far).is_ok_and(|found| found.len() == 80 << 20) {
            write_at(&far, number * (2 << 20) + 500_000, &[number as u8; 3000]);
        }
    }
    let finished = run.wait();
    finished.assert_code(&[0]);
    // What was written after the rename is on top of the new file.
    let again = copy(
        &served,
        near.to_str().unwrap(),
        &served.url("far"),
        &["--checksum", "--delta", "on"],
    );
    again.assert_code(&[0]);
    assert!(fs::read(&far).unwrap() == new);
}

/// Samba does not know the question; everything is sent.
#[test]
fn other_servers_get_the_whole_file() {
    let place = Place::in_memory();
    let data = place.folder("data");
    let smbd = Smbd::builder()
        .user("ann", PASSWORD)
        .share(Share::new("data", &data));
    let smbd = or_skip!(smbd.start());
    let near = place.join("near");
    versions(&data.join("far"), &near);
    let url = format!("smb://ann@{}/data/far", smbd.address());
    let run = place
        .ropeway("copy")
        .env("ROPEWAY_PASSWORD", PASSWORD)
        .args(["-T", "--json", "--delta", "on", near.to_str().unwrap(), &url])
        .run();
    run.assert_code(&[0]);
    assert_eq!(run.number("bytes_sent"), SIZE + 13);
    assert_eq!(run.number("bytes_reused"), 0);
    assert!(fs::read(&near).unwrap() == fs::read(data.join("far")).unwrap());
}

const MOVES: &str = r#"
far=$far/tree
"$1" mirror --yes near $far
mv near/album near/renamed
mv near/keep/one near/keep/other
mv near/keep/two near/moved
"$1" mirror --yes --json near $far > up
"$1" mirror --yes $far back
mv data/tree/renamed data/tree/again
mv data/tree/keep/other data/tree/keep/third
"$1" mirror --yes --json $far back > down
"#;

/// Small files are not sent again, whether their folder was renamed or they were, into folders that are new
/// and into others.
#[test]
fn small_files_that_were_moved_are_not_sent_again() {
    let place = Place::in_memory();
    place.folder("near/album/deep");
    place.folder("near/keep");
    let names = ["album/1", "album/2", "album/deep/3", "keep/one", "keep/two"];
    let mut total = 0;
    for (number, name) in (1_u64..).zip(names) {
        let size = number * 100_000;
        file(&place.join("near").join(name), size, number);
        total += size;
    }
    or_skip!(beside_far_server(&place, MOVES));
    // Of what was moved first, one file stays where it is the second time.
    for (way, moved) in [("up", total), ("down", total - 500_000)] {
        let text = fs::read_to_string(place.join(way)).unwrap();
        let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(summary["bytes_reused"], moved, "{way}: {summary}");
        assert_eq!(summary["bytes_sent"], 0, "{way}: {summary}");
    }
    for (near, far) in [
        ("near/renamed/1", "again/1"),
        ("near/renamed/2", "again/2"),
        ("near/renamed/deep/3", "again/deep/3"),
        ("near/keep/other", "keep/third"),
        ("near/moved", "moved"),
    ] {
        let content = fs::read(place.join(near)).unwrap();
        assert!(
            fs::read(place.join("data/tree").join(far)).unwrap() == content,
            "{far}"
        );
        assert!(
            fs::read(place.join("back").join(far)).unwrap() == content,
            "{far}"
        );
    }
    for gone in ["album", "renamed", "keep/one", "keep/two", "keep/other"] {
        assert!(!place.join("back").join(gone).exists(), "{gone}");
    }
    no_temporaries(place.path());
}
