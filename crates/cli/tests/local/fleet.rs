//! `fleet`: several workers on one tree, killed at random; failures and resume; shares.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{
    self, Compare, Ground, Place, Running, bind_mounted, content_same, has_xattrs, mixed, odd_names,
    set_xattr, small_files, text, xattr,
};
use ropeway_peers::Share;

/// Returns the folder of the only job that is left.
fn run_of(place: &Place, catalog: &str) -> PathBuf {
    let all = fs::read_dir(place.join(catalog)).unwrap();
    let mut runs: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    runs.retain(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"run."));
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

/// Entries of the catalog that only live while somebody works.
fn nothing_is_left(place: &Place, catalog: &str) {
    let run = run_of(place, catalog);
    for folder in ["claims", "stage", "tmp", "tasks"] {
        let left: Vec<_> = fs::read_dir(run.join(folder)).unwrap().collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
}

#[test]
fn a_fleet_of_one_copies_like_copy_and_a_second_job_copies_nothing() {
    let place = Place::new();
    mixed(&place.folder("src"));
    odd_names(&place.folder("src/odd"));
    fs::hard_link(place.join("src/one byte"), place.join("src/deep/again")).unwrap();
    fs::create_dir(place.join("src/closed")).unwrap();
    text(&place.join("src/closed/inside"), "x");
    fs::set_permissions(place.join("src/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    // The job is not complete.
    let refused = place.ropeway("fleet").args(["submit", "src", "dst"]).exits(8);
    assert!(refused.mentions("fleet work"), "{refused}");
    place.ropeway("fleet").args(["work", "dst"]).ok();
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
    nothing_is_left(&place, ".ropeway-fleet-dst");
    place.ropeway("check").args(["--checksum", "src", "dst"]).ok();

    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    let worked = place.ropeway("fleet").args(["work", "dst", "--json"]).ok();
    assert_eq!(worked.of_type("fleet_worker")[0]["files"], 0, "{worked}");
    let status = place.ropeway("fleet").args(["status", "dst", "--json"]).ok();
    let status = &status.of_type("fleet_status")[0];
    assert_eq!(
        (&status["state"], &status["failed"]),
        (&"complete".into(), &0.into())
    );
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
}

#[test]
fn wrong_ends_are_refused() {
    let place = Place::new();
    text(&place.folder("src").join("a"), "a");
    place.ropeway("fleet").args(["work", "dst"]).exits(3);
    place.ropeway("fleet").args(["status", "dst"]).exits(3);
    place.ropeway("fleet").args(["submit", "src", "src/dst"]).exits(1);
    place.ropeway("fleet").args(["submit", "none", "dst"]).exits(3);
    place
        .ropeway("fleet")
        .args(["submit", "src", "none/dst"])
        .exits(4);
    text(&place.join("file"), "x");
    place.ropeway("fleet").args(["submit", "src", "file"]).exits(4);
    let left = fs::read_dir(place.path()).unwrap();
    let catalogs = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".ropeway-fleet")
    });
    assert_eq!(catalogs.count(), 0);
}

#[test]
fn a_worker_with_another_source_is_refused() {
    let place = Place::new();
    small_files(&place.folder("src"), 60, 3);
    place.folder("empty");
    place.folder("to/dst/inside");
    place.ropeway("fleet").args(["submit", "src", "to/dst"]).ok();
    let work = |source: &str, code| {
        let run = place
            .ropeway("fleet")
            .args(["work", "to/dst", "--source", source]);
        run.exits(code)
    };
    let refused = work("empty", 3);
    assert!(refused.mentions("not the source of the job"), "{refused}");
    // The target lies in it, or it in the target.
    assert!(work("to", 1).mentions("one in the other"));
    assert!(work("to/dst/inside", 1).mentions("one in the other"));
    work("src", 0);
    fs::remove_dir(place.join("to/dst/inside")).unwrap();
    content_same(&place.join("src"), &place.join("to/dst"));
}

#[test]
fn a_catalog_of_another_user_is_refused() {
    let place = Place::new();
    text(&place.folder("src").join("a"), "a");
    support::or_skip!(place.ropeway_as_nobody("fleet"));
    let catalog = place.folder_of_nobody(".ropeway-fleet-dst");
    let refused = place.ropeway("fleet").args(["submit", "src", "dst"]).exits(4);
    assert!(refused.mentions("another user"), "{refused}");
    fs::remove_dir(&catalog).unwrap();
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    fs::set_permissions(&catalog, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = place.ropeway("fleet").args(["work", "dst"]).exits(4);
    assert!(refused.mentions("another user"), "{refused}");
    fs::set_permissions(&catalog, fs::Permissions::from_mode(0o700)).unwrap();
    place.ropeway("fleet").args(["work", "dst"]).ok();
}

/// Three workers at a time, each killed after a random moment, over many small files.
#[test]
fn workers_that_are_killed_lose_nothing() {
    let place = Place::in_memory();
    let files = small_files(&place.folder("src"), 6_000, 5);
    assert!(files > 0);
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    let mut random = fastrand::Rng::with_seed(11);
    let worker = || {
        place
            .ropeway("fleet")
            .args(["work", "dst", "--lease", "2s"])
            .start()
    };
    let mut slots: Vec<(Running, Instant)> = Vec::new();
    let (mut kills, mut finished) = (0, false);
    while kills < 40 && !finished {
        while slots.len() < 3 {
            let life = Duration::from_millis(random.u64(20..700));
            slots.push((worker(), Instant::now() + life));
        }
        std::thread::sleep(Duration::from_millis(5));
        let mut kept = Vec::new();
        for (mut running, end) in slots {
            if !running.runs() {
                // The job is complete: other workers end too.
                running.wait().assert_code(&[0]);
                finished = true;
            } else if Instant::now() > end {
                running.kill();
                kills += 1;
            } else {
                kept.push((running, end));
            }
        }
        slots = kept;
    }
    for (running, _) in slots {
        running.kill();
    }
    place
        .ropeway("fleet")
        .args(["resume", "dst", "--lease", "2s"])
        .ok();
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
    let status = place.ropeway("fleet").args(["status", "dst", "--json"]).ok();
    let status = &status.of_type("fleet_status")[0];
    assert_eq!(
        (&status["state"], &status["failed"]),
        (&"complete".into(), &0.into())
    );
    assert_eq!(status["sums"]["files"], 6_000);
    nothing_is_left(&place, ".ropeway-fleet-dst");
    println!("{kills} kills");
}

#[test]
fn what_failed_is_told_and_tried_again() {
    let place = Place::new();
    let source = place.folder_of_nobody("src");
    text(&source.join("a"), "a");
    text(&source.join("b"), "b");
    fs::create_dir(source.join("c")).unwrap();
    text(&source.join("c/d"), "d");
    fs::set_permissions(source.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(source.join("c"), fs::Permissions::from_mode(0o000)).unwrap();
    place.folder_of_nobody("to");
    support::or_skip!(place.ropeway_as_nobody("fleet"))
        .args(["submit", "src", "to/dst"])
        .ok();
    let failed = place
        .ropeway_as_nobody("fleet")
        .unwrap()
        .args(["work", "to/dst"])
        .exits(2);
    assert!(failed.mentions("resume"), "{failed}");
    let status = place.ropeway_as_nobody("fleet").unwrap();
    let status = status.args(["status", "to/dst", "--failures", "--json"]).exits(2);
    assert_eq!(
        status.of_type("fleet_status")[0]["losses"]["owner"],
        2,
        "{status}"
    );
    let paths: Vec<_> = status
        .of_type("fleet_failure")
        .iter()
        .map(|line| line["path"].clone())
        .collect();
    assert_eq!(paths, ["b", "c"], "{status}");
    // Neither a worker that is refused, nor one of another user, opens the job again or leaves something in it.
    place.folder_of_nobody("other");
    let other = place.ropeway_as_nobody("fleet").unwrap();
    let refused = other.args(["resume", "--source", "other", "to/dst"]).exits(3);
    assert!(refused.mentions("not the source of the job"), "{refused}");
    for command in ["work", "resume"] {
        let foreign = place.ropeway("fleet").args([command, "to/dst"]).exits(4);
        assert!(foreign.mentions("another user"), "{foreign}");
    }
    let status = place.ropeway_as_nobody("fleet").unwrap();
    let status = status.args(["status", "to/dst", "--json"]).exits(2);
    assert_eq!(status.of_type("fleet_status")[0]["rounds"], 0, "{status}");
    assert_eq!(status.of_type("fleet_status")[0]["workers_total"], 1, "{status}");
    fs::set_permissions(source.join("b"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(source.join("c"), fs::Permissions::from_mode(0o755)).unwrap();
    place
        .ropeway_as_nobody("fleet")
        .unwrap()
        .args(["resume", "to/dst"])
        .ok();
    content_same(&source, &place.join("to/dst"));
    let top = place
        .ropeway_as_nobody("fleet")
        .unwrap()
        .args(["top", "to/dst"])
        .ok();
    assert!(
        top.out.contains("complete") && top.out.contains("failed   0"),
        "{top}"
    );
    assert!(top.out.contains("owners not set"), "{top}");
}

#[test]
fn what_a_job_cannot_hold_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;

    let place = Place::new();
    let odd = place.join(std::ffi::OsString::from_vec(b"s\xff".to_vec()));
    fs::create_dir(&odd).unwrap();
    fs::create_dir(place.join("src")).unwrap();
    text(&place.join("src/a"), "a");
    let submit = || place.ropeway("fleet").args(["submit"]);
    let refused = submit().arg(&odd).arg("dst").exits(1);
    assert!(refused.mentions("UTF-8"), "{refused}");
    let refused = submit().args(["--nats-user", "ann", "src", "dst"]).exits(1);
    assert!(refused.mentions("--queue"), "{refused}");
    submit().args(["src", "dst"]).ok();
    for ends in [["src", ".ropeway-fleet-dst/x"], [".ropeway-fleet-dst", "other"]] {
        let refused = submit().args(ends).exits(1);
        assert!(refused.mentions("a folder of a job"), "{refused}");
    }
    let catalog = run_of(&place, ".ropeway-fleet-dst").join("job");
    let job = fs::read_to_string(&catalog).unwrap();
    text(&catalog, &job.replace("\"version\": 6", "\"version\": 5"));
    let refused = place.ropeway("fleet").args(["work", "dst"]).exits(4);
    assert!(refused.mentions("another version"), "{refused}");
}

#[test]
fn deletions_come_last_and_only_if_nothing_failed() {
    let place = Place::new();
    let source = place.folder_of_nobody("src");
    text(&source.join("a"), "a");
    text(&source.join("b"), "b");
    place.folder_of_nobody("to");
    let target = place.folder_of_nobody("to/dst");
    text(&target.join("old"), "only there");
    let run = |args: &[&str]| place.ropeway_as_nobody("fleet").unwrap().args(args);
    fs::set_permissions(source.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    support::or_skip!(place.ropeway_as_nobody("fleet"))
        .args(["submit", "--delete", "src", "to/dst"])
        .ok();
    run(&["work", "to/dst"]).exits(2);
    assert!(target.join("old").exists());
    fs::set_permissions(source.join("b"), fs::Permissions::from_mode(0o644)).unwrap();
    run(&["resume", "to/dst"]).ok();
    content_same(&source, &target);
    let top = run(&["top", "to/dst"]).ok();
    assert!(top.out.contains("deleted  1"), "{top}");

    // A source that lost everything deletes nothing, also if it was emptied after `submit`.
    run(&["submit", "--delete", "src", "to/dst"]).ok();
    fs::remove_file(source.join("a")).unwrap();
    fs::remove_file(source.join("b")).unwrap();
    run(&["work", "to/dst"]).exits(3);
    assert!(target.join("a").exists() && target.join("b").exists());
    let refused = run(&["submit", "--delete", "src", "to/new"]).exits(8);
    assert!(refused.mentions("is it mounted?"), "{refused}");
}

#[test]
fn a_limit_is_that_of_all_workers_together() {
    let place = Place::in_memory();
    let source = place.folder("src");
    for number in 0..40 {
        let folder = place.folder(&format!("src/{number}"));
        text(&folder.join("f"), &"x".repeat(100_000));
    }
    let bad = place
        .ropeway("fleet")
        .args(["submit", "--bwlimit", "fast", "src", "dst"]);
    bad.exits(1);
    place
        .ropeway("fleet")
        .args(["submit", "--bwlimit", "1M", "src", "dst"])
        .ok();
    let begun = Instant::now();
    let workers: Vec<Running> = (0..3)
        .map(|_| place.ropeway("fleet").args(["work", "dst"]).start())
        .collect();
    for worker in workers {
        worker.wait().assert_code(&[0]);
    }
    // 4 MB, less the burst at the start. Three with a limit each would take a third of it.
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    Compare::ALL.check(&source, &place.join("dst"));
}

#[test]
fn a_share_is_the_target_and_the_source() {
    let ground = ropeway_peers::or_skip!(Ground::start());
    small_files(&ground.place.folder("src"), 400, 3);
    let target = ground.url("data/dst");
    ground.run("fleet").args(["submit", "src", &target]).ok();
    let other = ground
        .run("fleet")
        .args(["work", &target, "--lease", "4s"])
        .start();
    ground.run("fleet").args(["work", &target, "--lease", "4s"]).ok();
    other.wait().assert_code(&[0]);
    content_same(&ground.place.join("src"), &ground.behind("data/dst"));
    ground.run("check").args(["--checksum", "src", &target]).ok();

    // smbd follows links: what it shows as a folder may lie elsewhere.
    let refused = ground
        .run("fleet")
        .args(["submit", "--delete", "src", &target])
        .exits(8);
    assert!(refused.mentions("symbolic links"), "{refused}");
    ground.run("fleet").args(["submit", &target, "back"]).ok();
    ground.run("fleet").args(["work", "back"]).ok();
    content_same(&ground.place.join("src"), &ground.place.join("back"));
}

/// By another share of the server the source lies in the target: its own files would be replaced by others
/// of its own.
#[test]
fn a_source_in_the_target_is_refused_whatever_its_share_is_called() {
    for source in ["dst/sub", "dst"] {
        let ground = ropeway_peers::or_skip!(Ground::with(|place, builder| {
            let inner = place.folder(&format!("data/{source}"));
            builder
                .share(Share::new("data", &place.folder("data")))
                .share(Share::new("inner", &inner))
        }));
        ground.place.folder("data/dst/sub/sub");
        text(&ground.behind("data/dst/sub/x"), "the source's own");
        text(&ground.behind("data/dst/sub/sub/x"), "another file of the source");
        let (from, to) = (ground.url("inner"), ground.url("data/dst"));
        ground.run("fleet").args(["submit", &from, &to]).ok();
        let refused = ground.run("fleet").args(["work", &to]).exits(3);
        assert!(refused.mentions("one in the other"), "{refused}");
        let own = fs::read_to_string(ground.behind("data/dst/sub/x")).unwrap();
        assert_eq!(own, "the source's own");
        let left = fs::read_dir(ground.behind("data").join(source)).unwrap();
        let probes = left.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("probe")
        });
        assert_eq!(probes.count(), 0);
    }
}

#[test]
fn extended_attributes_that_changed_are_copied_by_the_next_job() {
    let place = Place::new();
    if !has_xattrs(&place) {
        println!("skipped: no extended attributes in the folder for temporary files");
        return;
    }
    text(&place.folder("src").join("f"), "content");
    let job = || {
        place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
        place.ropeway("fleet").args(["work", "dst"]).ok();
    };
    let note = || xattr(&place.join("dst/f"), "user.note");
    job();
    assert_eq!(note(), None);
    // Longer than the kernel's clock for change times takes to tick.
    std::thread::sleep(Duration::from_millis(20));
    set_xattr(&place.join("src/f"), "user.note", b"changed later");
    job();
    assert_eq!(note().as_deref(), Some(&b"changed later"[..]));
    std::thread::sleep(Duration::from_millis(20));
    rustix::fs::removexattr(place.join("src/f"), "user.note").unwrap();
    job();
    assert_eq!(note(), None);
}

/// Nothing can be renamed into it from beside it, although that is the same volume.
#[test]
fn a_bind_mount_of_the_same_volume_is_a_target() {
    let place = Place::new();
    small_files(&place.folder("src"), 40, 3);
    let (from, to) = (place.folder("elsewhere"), place.folder("dst"));
    if !bind_mounted(&from, &to) {
        return;
    }
    let submitted = place.ropeway("fleet").args(["submit", "src", "dst"]).run();
    let worked = place.ropeway("fleet").args(["work", "dst"]).run();
    Command::new("umount").arg(&to).status().unwrap();
    submitted.assert_code(&[0]);
    worked.assert_code(&[0]);
    fs::remove_dir_all(place.join("elsewhere/.ropeway-fleet")).unwrap();
    content_same(&place.join("src"), &place.join("elsewhere"));
}

/// It emptied the mounted folder: a folder of the same volume has the same number.
#[test]
fn a_folder_that_is_mounted_in_what_is_deleted_keeps_its_content() {
    let place = Place::new();
    text(&place.folder("src/sub").join("f"), "the source's own");
    text(&place.folder("precious").join("f"), "precious");
    for from in ["precious", "src/sub"] {
        let to = place.folder("dst/extra/deep/mounted");
        if !bind_mounted(&place.join(from), &to) {
            return;
        }
        let submit = place.ropeway("fleet").args(["submit", "--delete", "src", "dst"]);
        let submitted = submit.run();
        let worked = place.ropeway("fleet").args(["work", "dst"]).run();
        let status = place.ropeway("fleet").args(["status", "dst", "--failures"]).run();
        Command::new("umount").arg(&to).status().unwrap();
        submitted.assert_code(&[0]);
        worked.assert_code(&[2]);
        assert!(status.mentions("something is mounted at"), "{status}");
        assert!(place.join("src/sub/f").exists() && place.join("precious/f").exists());
        place.ropeway("fleet").args(["resume", "dst"]).ok();
        Compare::ALL.check(&place.join("src"), &place.join("dst"));
    }
}

/// The attributes of one name were set at all others, of which the source knows nothing.
#[test]
fn names_of_one_file_on_the_target_that_are_two_in_the_source_get_their_own_attributes() {
    let place = Place::new();
    let (source, target) = (place.folder("src"), place.folder("dst"));
    for (name, mode) in [("a", 0o600), ("b", 0o644)] {
        text(&source.join(name), "same");
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
        let file = fs::File::options().write(true).open(source.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_500_000_000))
            .unwrap();
    }
    place.ropeway("copy").args(["-T", "src/b", "dst/b"]).ok();
    fs::hard_link(target.join("b"), target.join("a")).unwrap();
    place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
    place.ropeway("fleet").args(["work", "dst"]).ok();
    Compare::ALL.check(&source, &target);
}

#[cfg(feature = "nats")]
#[test]
fn a_server_of_nats_hands_out_tasks_and_may_be_gone_when_work_has_begun() {
    let mut nats = ropeway_peers::or_skip!(ropeway_peers::Nats::new().user("ann", "secret").start());
    let place = Place::new();
    small_files(&place.folder("src"), 300, 5);
    let url = format!("--queue=nats://{}", nats.address());
    let fleet = |arguments: &[&str]| place.ropeway("fleet").args(arguments);
    let secret = |run: support::Run| run.env("ROPEWAY_NATS_PASSWORD", "secret");
    let login = ["--nats-user", "ann"];
    let refused = fleet(&[
        "submit",
        "src",
        "dst",
        &url.replace("nats://", "nats://ann:secret@"),
    ])
    .exits(1);
    assert!(
        refused.mentions("--nats-user") && !refused.mentions("ann:"),
        "{refused}"
    );
    // One server cannot keep three copies.
    let copies = [&url, "--queue-replicas=3"].map(str::to_owned);
    secret(fleet(&["submit", "src", "dst"]).args(copies).args(login)).exits(6);
    // A login that is refused makes no job.
    let refused = fleet(&["submit", "src", "dst", &url]).exits(5);
    assert!(refused.mentions("cannot use NATS"), "{refused}");
    fleet(&["status", "dst"]).exits(3);
    secret(fleet(&["submit", "src", "dst", &url]).args(login)).ok();
    let refused = fleet(&["work", "dst"]).exits(5);
    assert!(refused.mentions("cannot use NATS"), "{refused}");
    secret(fleet(&["work", "dst"]).args(login)).ok();
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
    // The stream is removed with the job.
    let streams = nats.folder().join("store/jetstream/$G/streams");
    let left: Vec<_> = fs::read_dir(&streams).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");

    small_files(&place.folder("src/more"), 3_000, 5);
    secret(fleet(&["submit", "src", "dst", &url]).args(login)).ok();
    let worker = secret(fleet(&["work", "dst", "--lease", "2s"]).args(login)).start();
    let copied = place.join("dst/more");
    let begun = Instant::now();
    while !copied.exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    nats.kill();
    worker.wait().assert_code(&[0]);
    Compare::ALL.check(&place.join("src"), &place.join("dst"));
    nothing_is_left(&place, ".ropeway-fleet-dst");
}
