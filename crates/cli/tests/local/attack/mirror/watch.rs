use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Signal;

use super::{below, put, reads};
use crate::support::{Place, Watching, content_same, holds};

/// Starts `mirror --yes --watch FLAGS source target` and waits for its first pass.
fn watching(place: &Place, flags: &[&str]) -> Watching {
    let run = place.ropeway("mirror").arg("--yes").args(flags);
    Watching::start(run.args(["source", "target"]))
}

/// Makes a change and waits until it is copied; earlier changes are copied by then too.
fn settle(running: &Watching, place: &Place, name: &str) {
    put(&place.join("source").join(name), name);
    let target = place.join("target").join(name);
    running.follows(name, || holds(&target, name));
}

/// Excluded data was deleted with its folder.
#[test]
fn excluded_names_survive_while_watching() {
    let place = Place::new();
    put(&place.join("source/d/x"), "x");
    put(&place.join("source/d/in/y"), "x");
    put(&place.join("source/e"), "x");
    let running = watching(&place, &["--exclude", "*.keep", "--exclude", "/d/secret"]);
    put(&place.join("target/d/in/precious.keep"), "the only one");
    put(&place.join("target/d/secret/z"), "the only other");
    // Patterns from the top apply to subtrees too.
    put(&place.join("source/d/secret/z"), "not to be copied");
    fs::rename(place.join("source/d"), place.join("source/moved")).unwrap();
    fs::rename(place.join("source/moved"), place.join("source/d")).unwrap();
    settle(&running, &place, "one");
    assert_eq!(reads(&place.join("target/d/secret/z")), "the only other");
    fs::remove_dir_all(place.join("source/d")).unwrap();
    running.follows("the removal", || !place.join("target/d/x").exists());
    settle(&running, &place, "two");
    assert_eq!(reads(&place.join("target/d/in/precious.keep")), "the only one");
    assert_eq!(reads(&place.join("target/d/secret/z")), "the only other");
    running.follows("the rest", || !place.join("target/d/in/y").exists());
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A watch deleted permanently what the first pass would have backed up.
#[test]
fn backups_are_kept_while_watching() {
    let place = Place::new();
    put(&place.join("source/d/x"), "x");
    put(&place.join("source/f"), "f");
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &["--backup-dir", ".old"]);
    fs::remove_file(place.join("source/f")).unwrap();
    fs::remove_dir_all(place.join("source/d")).unwrap();
    running.follows("the removals", || {
        !place.join("target/f").exists() && !place.join("target/d").exists()
    });
    running.follows("backups", || {
        holds(&place.join("target/.old/f"), "f") && holds(&place.join("target/.old/d/x"), "x")
    });
    settle(&running, &place, "later");
    assert!(place.join("target/.old/d/x").exists());
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// `--max-delete` applied to the first pass only.
#[test]
fn max_delete_limits_the_whole_watch() {
    let place = Place::new();
    for number in 0..20 {
        put(&place.join(format!("source/d/{number}")), "x");
    }
    put(&place.join("source/one"), "x");
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &["--max-delete", "5"]);
    fs::remove_file(place.join("source/one")).unwrap();
    running.follows("a removal", || !place.join("target/one").exists());
    fs::remove_dir_all(place.join("source/d")).unwrap();
    let finished = running.ended();
    finished.assert_code(&[8]);
    assert!(finished.mentions("--max-delete"), "{finished}");
    assert_eq!(below(&place.join("target/d")).len(), 20, "{finished}");
}

/// A source that was emptied emptied the target.
#[test]
fn an_emptied_source_deletes_nothing_while_watching() {
    let place = Place::new();
    for number in 0..20 {
        put(&place.join(format!("source/d/{number}")), "x");
    }
    let running = watching(&place, &[]);
    fs::remove_dir_all(place.join("source/d")).unwrap();
    running.prints("is empty");
    assert_eq!(below(&place.join("target/d")).len(), 20);
    // With its first file it is a valid source again.
    put(&place.join("source/new"), "new");
    running.follows("the removal", || !place.join("target/d").exists());
    content_same(&place.join("source"), &place.join("target"));
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A folder that was removed and created again kept its old files.
#[test]
fn a_folder_created_again_has_only_its_new_files() {
    let place = Place::new();
    for number in 0..20 {
        put(&place.join(format!("source/d/{number}")), "x");
    }
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &[]);
    fs::remove_dir_all(place.join("source/d")).unwrap();
    put(&place.join("source/d/new"), "new");
    running.follows("the folder", || below(&place.join("target/d")).len() == 1);
    content_same(&place.join("source"), &place.join("target"));
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// Of many removals at once most were lost: the pass over everything only copied.
#[test]
fn many_removals_at_once_are_applied() {
    let place = Place::new();
    for number in 0..10_000 {
        let folder = place.folder(&format!("source/d{}", number % 3));
        fs::write(folder.join(number.to_string()), b"x").unwrap();
    }
    put(&place.join("source/d0/stays"), "x");
    let running = watching(&place, &[]);
    for number in 0..10_000 {
        let path = place.join(format!("source/d{}/{number}", number % 3));
        fs::remove_file(path).unwrap();
    }
    running.follows_within(Duration::from_secs(60), "all removals", || {
        below(&place.join("target")).len() == 4
    });
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// When the kernel's queue overflowed, removed files stayed on the target.
#[test]
fn removals_are_applied_after_an_overflow() {
    let place = Place::new();
    for number in 0..50 {
        put(&place.join(format!("source/gone/{number}")), "x");
    }
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &[]);
    running.signal(Signal::STOP);
    // fs.inotify.max_queued_events is 16,384 by default.
    let noisy = place.folder("source/noisy");
    for number in 0..9_000 {
        fs::write(noisy.join(number.to_string()), b"x").unwrap();
    }
    for number in 0..9_000 {
        fs::remove_file(noisy.join(number.to_string())).unwrap();
    }
    fs::remove_dir_all(place.join("source/gone")).unwrap();
    put(&place.join("source/last"), "last");
    running.signal(Signal::CONT);
    running.follows_within(Duration::from_secs(60), "everything", || {
        below(&place.join("target")) == below(&place.join("source"))
    });
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A file that became a folder ended the watch.
#[test]
fn nodes_change_their_kind_while_watching() {
    let place = Place::new();
    put(&place.join("source/n"), "a file");
    put(&place.join("source/m/x"), "in a folder");
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &[]);
    fs::remove_file(place.join("source/n")).unwrap();
    put(&place.join("source/n/below"), "now a folder");
    running.follows("a folder for a file", || {
        holds(&place.join("target/n/below"), "now a folder")
    });
    fs::remove_dir_all(place.join("source/m")).unwrap();
    put(&place.join("source/m"), "now a file");
    running.follows("a file for a folder", || {
        holds(&place.join("target/m"), "now a file")
    });
    settle(&running, &place, "later");
    content_same(&place.join("source"), &place.join("target"));
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A root that was renamed away was watched under its old name.
#[test]
fn a_root_that_is_renamed_away_ends_the_watch() {
    let place = Place::new();
    put(&place.join("source/a"), "a");
    put(&place.join("source/b"), "b");
    let running = watching(&place, &[]);
    fs::rename(place.join("source"), place.join("elsewhere")).unwrap();
    put(&place.join("source/other"), "other");
    let finished = running.ended();
    finished.assert_code(&[3]);
    assert!(finished.mentions("renamed"), "{finished}");
    fs::remove_file(place.join("elsewhere/a")).unwrap();
    assert_eq!(reads(&place.join("target/a")), "a");
}

/// Each change in a folder gave its copy the time of the copying.
#[test]
fn folder_times_are_kept() {
    let place = Place::new();
    put(&place.join("source/d/x"), "x");
    put(&place.join("source/d/y"), "x");
    put(&place.join("source/stays"), "x");
    let running = watching(&place, &[]);
    let time = |path: &str| {
        let found = fs::metadata(place.join(path)).unwrap();
        (found.mtime(), found.mtime_nsec())
    };
    put(&place.join("source/d/new"), "new");
    running.follows("a new file", || {
        place.join("target/d/new").exists() && time("source/d") == time("target/d")
    });
    fs::remove_file(place.join("source/d/x")).unwrap();
    running.follows("a removal", || {
        !place.join("target/d/x").exists() && time("source/d") == time("target/d")
    });
    put(&place.join("source/top"), "top");
    running.follows("a file at the top", || {
        place.join("target/top").exists() && time("source") == time("target")
    });
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A renamed file that cannot be read was lost under both names.
#[test]
fn removals_wait_while_something_fails() {
    let place = Place::new();
    put(&place.join("source/old"), "the only one");
    put(&place.join("source/stays"), "x");
    let rule = [
        "--retries",
        "0",
        "--fault",
        "source:read:contains=unreadable,errno=EIO",
    ];
    let running = watching(&place, &rule);
    fs::rename(place.join("source/old"), place.join("source/unreadable")).unwrap();
    running.prints("is kept");
    assert_eq!(reads(&place.join("target/old")), "the only one");
    settle(&running, &place, "later");
    assert_eq!(reads(&place.join("target/old")), "the only one");
    fs::rename(place.join("source/unreadable"), place.join("source/fine")).unwrap();
    running.follows("the removal", || !place.join("target/old").exists());
    assert_eq!(reads(&place.join("target/fine")), "the only one");
    running.end(Signal::TERM).assert_code(&[2]);
}

/// A removal of very many files at once empties the source; the first new file makes it a valid
/// source again.
#[test]
fn a_source_emptied_by_a_storm_is_compared_completely_later() {
    let place = Place::new();
    let folder = place.folder("source/d");
    for number in 0..6_000 {
        fs::write(folder.join(number.to_string()), b"x").unwrap();
    }
    let running = watching(&place, &[]);
    running.signal(Signal::STOP);
    fs::remove_dir_all(&folder).unwrap();
    running.signal(Signal::CONT);
    running.prints("is empty");
    put(&place.join("source/new"), "new");
    running.follows_within(Duration::from_secs(60), "the removals", || {
        below(&place.join("target")).len() == 1
    });
    running.end(Signal::TERM).assert_code(&[0, 130]);
}
