//! `fleet`: budgets, and workers that cannot go on: they say why, and the others, or later ones, go on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{
    Compare, Finished, Place, Running, Volume, content_same, or_skip, small_files, text, walk,
};

/// Starts workers for a target.
fn workers(place: &Place, target: &Path, count: usize) -> Vec<Running> {
    let start = |_| {
        let run = place.ropeway("fleet").arg("work").arg(target);
        run.args(["--lease", "4s"]).start()
    };
    (0..count).map(start).collect()
}

fn status(place: &Place, target: &Path) -> serde_json::Value {
    let run = place.ropeway("fleet").arg("status").arg(target).arg("--json");
    run.ok().of_type("fleet_status").remove(0)
}

/// Returns what workers said that have left.
fn reasons(status: &serde_json::Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap().iter();
    let left = workers.filter(|worker| worker["activity"] == "left");
    left.filter_map(|worker| worker["reason"].as_str().map(str::to_owned))
        .collect()
}

/// Files that have their names are whole.
fn is_whole(source: &Path, target: &Path) {
    for path in walk(target) {
        if target.join(&path).is_file() {
            let same = fs::read(source.join(&path)).unwrap() == fs::read(target.join(&path)).unwrap();
            assert!(same, "{}", path.display());
        }
    }
}

/// Fills a volume up to its last page.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
    let page = vec![7; 4_096];
    while file.write_all(&page).is_ok() && file.sync_data().is_ok() {}
}

fn stops_and_goes_on(volume: &Volume, make_room: impl FnOnce()) {
    let place = Place::new();
    let source = place.folder("src");
    small_files(&source.join("small"), 600, 3);
    for number in 0..30 {
        fs::write(source.join(format!("f{number}")), vec![number; 700_000]).unwrap();
    }
    let target = volume.root().join("dst");
    let submit = place.ropeway("fleet").args(["submit", "src"]).arg(&target);
    submit.ok();
    let ended: Vec<Finished> = workers(&place, &target, 3)
        .into_iter()
        .map(Running::wait)
        .collect();
    for worker in &ended {
        worker.assert_code(&[4]);
        assert!(
            worker.err.contains("space") && worker.err.contains("hint:"),
            "{worker}"
        );
        assert!(!worker.mentions("panicked"), "{worker}");
    }
    let open = status(&place, &target);
    assert_eq!(open["state"], "open");
    let reasons = reasons(&open);
    assert!(!reasons.is_empty(), "{open}");
    assert!(
        reasons.iter().all(|reason| reason.contains("target: ")),
        "{reasons:?}"
    );
    is_whole(&source, &target);
    make_room();
    for worker in workers(&place, &target, 2) {
        worker.wait().assert_code(&[0]);
    }
    Compare::ALL.check(&source, &target);
    let complete = status(&place, &target);
    assert_eq!(
        (&complete["failed"], &complete["sums"]["files"]),
        (&0.into(), &630.into())
    );
}

#[test]
fn all_workers_stop_at_a_full_target_and_go_on_when_there_is_room() {
    let volume = or_skip!(Volume::tmpfs(12));
    stops_and_goes_on(&volume, || volume.resize(64));
}

#[test]
fn all_workers_stop_at_a_full_disk_and_go_on_when_there_is_room() {
    let volume = or_skip!(Volume::ext4(48));
    let ballast = volume.root().join("ballast");
    fs::write(&ballast, vec![1; 30 << 20]).unwrap();
    stops_and_goes_on(&volume, || fs::remove_file(&ballast).unwrap());
}

/// There is no room for the catalog itself, not even for a sign of life.
#[test]
fn a_catalog_without_any_room_stops_in_order() {
    let volume = or_skip!(Volume::tmpfs(4));
    let place = Place::new();
    small_files(&place.folder("src"), 100, 3);
    let target = volume.root().join("dst");
    let ballast = volume.root().join("ballast");
    let submit = || place.ropeway("fleet").args(["submit", "src"]).arg(&target);
    fill(&ballast);
    let refused = submit().exits(4);
    assert!(refused.err.contains("space"), "{refused}");
    fs::remove_file(&ballast).unwrap();
    submit().ok();
    fill(&ballast);
    for worker in workers(&place, &target, 2) {
        let ended = worker.wait();
        ended.assert_code(&[4]);
        assert!(
            ended.err.contains("space") && !ended.mentions("panicked"),
            "{ended}"
        );
    }
    // It can be looked at.
    assert_eq!(status(&place, &target)["state"], "open");
    fs::remove_file(&ballast).unwrap();
    for worker in workers(&place, &target, 2) {
        worker.wait().assert_code(&[0]);
    }
    Compare::ALL.check(&place.join("src"), &target);
}

/// It left the hashes out without a word.
#[test]
fn a_worker_without_room_for_temporary_files_leaves_the_job_to_others() {
    let volume = or_skip!(Volume::tmpfs(1));
    let place = Place::new();
    small_files(&place.folder("src"), 400, 3);
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    fill(&volume.root().join("ballast"));
    let work = || place.ropeway("fleet").args(["work", "dst", "--lease", "10m"]);
    let full = work().env("TMPDIR", volume.root()).exits(4);
    assert!(full.mentions("temporary") && full.mentions("TMPDIR"), "{full}");
    let reasons = reasons(&status(&place, Path::new("dst")));
    assert!(reasons[0].contains("temporary"), "{reasons:?}");
    // Its task is free at once.
    let begun = Instant::now();
    work().ok();
    assert!(
        begun.elapsed() < Duration::from_secs(300),
        "{:?}",
        begun.elapsed()
    );
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
}

/// Only the reason why nothing was copied told it, once for each file, and the job was complete.
#[test]
fn a_worker_that_may_not_read_the_source_leaves_it_to_others() {
    let place = Place::new();
    let source = place.folder_of_nobody("src");
    for number in 0..60 {
        text(&source.join(format!("f{number}")), "content");
    }
    place.folder_of_nobody("to");
    let run = |args: &[&str]| or_none(&place).map(|run| run.args(args));
    let Some(submit) = run(&["submit", "src", "to/dst"]) else {
        return;
    };
    submit.ok();
    let close = |mode| {
        for number in 0..60 {
            let file = source.join(format!("f{number}"));
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    close(0o000);
    let denied = run(&["work", "to/dst"]).unwrap().exits(5);
    assert!(denied.mentions("ermission denied"), "{denied}");
    let found = status(&place, Path::new("to/dst"));
    assert!(reasons(&found)[0].starts_with("source: cannot open f"), "{found}");
    assert_eq!((&found["state"], &found["failed"]), (&"open".into(), &0.into()));
    close(0o644);
    run(&["work", "to/dst"]).unwrap().ok();
    content_same(&source, &place.join("to/dst"));
}

fn or_none(place: &Place) -> Option<crate::support::Run> {
    match place.ropeway_as_nobody("fleet") {
        Ok(run) => Some(run),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

#[test]
fn a_worker_whose_source_cannot_be_opened_says_so_to_all() {
    let place = Place::new();
    text(&place.folder("src").join("a"), "a");
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    let missing = place.ropeway("fleet").args(["work", "dst", "--source", "none"]);
    missing.exits(3);
    let shown = place.ropeway("fleet").args(["status", "dst"]).ok();
    assert!(shown.out.contains("left: cannot open none"), "{shown}");
    place.ropeway("fleet").args(["work", "dst"]).ok();
}

#[test]
fn a_budget_of_operations_is_that_of_all_workers_together() {
    let place = Place::in_memory();
    let source = place.folder("src");
    for number in 0..8 {
        small_files(&place.folder(&format!("src/{number}")), 100, number);
    }
    for (flag, value) in [
        ("--source-ops", "0"),
        ("--target-ops", "x"),
        ("--latency-goal", "0ms"),
        ("--latency-goal", "2m"),
    ] {
        let bad = place.ropeway("fleet").args(["submit", flag, value, "src", "dst"]);
        bad.exits(1);
    }
    let budget = ["--source-ops", "100", "--latency-goal", "10s"];
    let takes = |flags: &[&str], target: &str| {
        let submit = place.ropeway("fleet").arg("submit").args(flags);
        submit.args(["src", target]).ok();
        let begun = Instant::now();
        for worker in workers(&place, &place.join(target), 3) {
            worker.wait().assert_code(&[0]);
        }
        let took = begun.elapsed();
        Compare::ALL.check(&source, &place.join(target));
        took
    };
    let (free, limited) = (takes(&[], "free"), takes(&budget, "dst"));
    // 800 files are opened at least. Three with a budget each would take a third of that.
    assert!(limited > Duration::from_secs(7), "{limited:?}");
    // So the budget is what takes the time.
    assert!(limited > free + Duration::from_secs(2), "{limited:?} {free:?}");
}
