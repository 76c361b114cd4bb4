//! Temporary names: those of running jobs are left alone, those of dead jobs are removed, and
//! neither is data.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{
    Ground, Place, Run, Running, Served, content_same, file, no_temporaries, or_skip, same, walk,
};

const MIB: u64 = 1 << 20;

/// Name of a user's own file that looks like a temporary name.
const NOTES: &str = ".ropeway-notes";

fn temporaries(below: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let parts = name
            .strip_prefix(".ropeway-")
            .map(|rest| rest.split('-').collect::<Vec<_>>());
        parts.is_some_and(|parts| parts.len() <= 2 && parts.iter().all(|part| part.len() == 16))
    };
    walk(below).into_iter().filter(is_one).collect()
}

#[track_caller]
pub(crate) fn none_left(below: &Path) {
    let left = temporaries(below);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Returns temporary files and folders, without claims.
pub(crate) fn nodes(below: &Path) -> Vec<PathBuf> {
    let is_node = |path: &PathBuf| path.file_name().unwrap().len() > 26;
    temporaries(below).into_iter().filter(is_node).collect()
}

fn text(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Makes a folder with some files that take a while at 8 MB/s.
pub(crate) fn tree(root: &Path, seed: u64) {
    fs::create_dir_all(root).unwrap();
    for number in 0..3 {
        file(&root.join(format!("{seed}-{number}")), 6 * MIB, seed + number);
    }
    text(&root.join("sub/small"), "small");
}

/// Runs as a separate user, without access to other users' journals.
fn of(run: Run, user: &str, place: &Place) -> Run {
    run.env("XDG_STATE_HOME", place.folder(user))
}

/// Starts a slow run and waits until it has written something.
#[track_caller]
pub(crate) fn begin(run: Run) -> Running {
    begin_at("2M", run)
}

/// Like [`begin`], at a rate at which the run outlasts what the test does meanwhile, on a busy machine too.
#[track_caller]
fn begin_at(rate: &str, run: Run) -> Running {
    let mut running = run.args(["--bwlimit", rate]).start();
    running.reach("bytes_sent", 2 * MIB);
    running
}

/// Before, the mirror deleted them as extra nodes; the copy then failed, or started again and
/// again.
#[test]
fn a_mirror_leaves_a_running_copys_names_alone_and_sweeps_a_dead_ones() {
    let place = Place::new();
    for (name, seed) in [("dead", 10), ("alive", 20), ("mirrored", 30)] {
        tree(&place.join(name), seed);
    }
    // The folders exist already, so that single files have temporary names in them.
    let target = place.folder("target");
    place.ropeway("copy").args(["mirrored/sub", "target"]).ok();
    begin(of(place.copy("dead", "target"), "user-1", &place)).kill();
    let left = nodes(&target);
    assert!(!left.is_empty());
    let alive = begin(of(place.copy("alive", "target"), "user-2", &place));
    let running: Vec<PathBuf> = nodes(&target)
        .into_iter()
        .filter(|path| !left.contains(path))
        .collect();
    assert!(!running.is_empty(), "{left:?}");
    let mirror = of(place.ropeway("mirror"), "user-3", &place);
    mirror.args(["--json", "--yes", "mirrored", "target"]).ok();
    let now = nodes(&target);
    assert!(
        left.iter().all(|path| !now.contains(path)),
        "the dead one's: {now:?}"
    );
    assert!(running.iter().any(|path| now.contains(path)) || target.join("alive").exists());
    alive.wait().assert_code(&[0]);
    same(&place.join("alive"), &target.join("alive"));
    no_temporaries(&target);
}

/// Before, a guard counted temporary names of other jobs as nodes to delete.
#[test]
fn no_guard_counts_temporary_names() {
    let place = Place::new();
    tree(&place.join("alive"), 1);
    text(&place.join("mirrored/a"), "a");
    text(&place.join("target/a"), "a");
    let alive = begin(of(place.copy("alive", "target"), "user-1", &place));
    let mirror = of(place.ropeway("mirror"), "user-2", &place);
    mirror
        .args(["--json", "--yes", "--max-delete", "0", "mirrored", "target"])
        .ok();
    alive.wait().assert_code(&[0]);
}

/// Before, the names stayed forever without a journal, and a later copy treated them as data.
#[test]
fn a_copy_whose_journal_is_lost_leaves_nothing_behind() {
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 1);
    for (name, run) in [("new", "copy"), ("old", "mirror")] {
        let target = place.join(name);
        if run == "mirror" {
            fs::create_dir_all(&target).unwrap();
        }
        let command = || {
            let flags: &[&str] = if run == "mirror" { &["--yes"] } else { &["-T"] };
            place
                .ropeway(run)
                .arg("--json")
                .args(flags)
                .arg(&source)
                .arg(&target)
        };
        begin(command()).kill();
        assert!(!nodes(place.path()).is_empty());
        fs::remove_dir_all(place.join(".state/ropeway")).unwrap();
        command().ok();
        same(&source, &target);
        none_left(place.path());
    }
}

/// Before, the folder kept its temporary name forever, and the journal that knew it was removed.
#[test]
fn a_staged_folder_whose_source_vanished_goes_with_the_next_run() {
    let place = Place::new();
    tree(&place.join("source/gone"), 1);
    text(&place.join("source/stays/a"), "a");
    let target = place.folder("target");
    text(&target.join("other"), "other");
    begin(place.copy("source", "target").arg("-T")).kill();
    assert!(!nodes(&target).is_empty());
    fs::remove_dir_all(place.join("source/gone")).unwrap();
    place.copy("source", "target").arg("-T").ok();
    none_left(place.path());
    assert!(!target.join("gone").exists() && target.join("other").exists());
}

/// Before, the temporary folder stayed without a job that knew it.
#[test]
fn a_staged_folder_whose_name_was_taken_meanwhile_goes_with_the_next_run() {
    let place = Place::new();
    tree(&place.join("source/taken"), 1);
    let target = place.folder("target");
    begin(place.copy("source", "target").arg("-T")).kill();
    assert!(!nodes(&target).is_empty());
    text(&target.join("taken/theirs"), "theirs");
    place.copy("source", "target").arg("-T").ok();
    none_left(place.path());
    assert!(target.join("taken/theirs").exists());
    same(&place.join("source/taken/sub"), &target.join("taken/sub"));
}

/// Before, leftovers of a killed run were copied as data, by mirrors too.
#[test]
fn leftovers_in_a_source_are_not_copied_but_similar_user_files_are() {
    let place = Place::new();
    tree(&place.join("first"), 1);
    begin(place.copy("first", "source").arg("-T")).kill();
    // The killed copy's folder, half filled, next to data.
    let source = place.folder("data");
    for path in temporaries(place.path()) {
        if path.parent() == Some(place.path()) {
            fs::rename(&path, source.join(path.file_name().unwrap())).unwrap();
        }
    }
    let left = temporaries(&source);
    assert!(left.len() > 1, "{left:?}");
    text(&source.join("a"), "a");
    text(&source.join(NOTES), "mine");
    for (command, flags, target) in [
        ("copy", vec!["-T"], "copied"),
        ("mirror", vec!["--yes"], "mirrored"),
    ] {
        let done = place
            .ropeway(command)
            .arg("--json")
            .args(&flags)
            .args(["data", target])
            .ok();
        assert!(done.mentions("in the source skipped"), "{done}");
        let target = place.join(target);
        none_left(&target);
        assert_eq!(fs::read(target.join(NOTES)).unwrap(), b"mine");
        assert_eq!(fs::read(target.join("a")).unwrap(), b"a");
        place.ropeway("check").arg("data").arg(&target).ok();
    }
    // For a mirror, leftovers do not make a source non-empty.
    fs::remove_file(source.join("a")).unwrap();
    fs::remove_file(source.join(NOTES)).unwrap();
    place
        .ropeway("mirror")
        .args(["--yes", "data", "mirrored"])
        .exits(8);
    assert!(place.join("mirrored").join(NOTES).exists());
}

/// Before, `check` ignored it, and a move left it behind.
#[test]
fn a_user_file_with_a_similar_name_is_data_everywhere() {
    let place = Place::new();
    text(&place.join("source").join(NOTES), "mine");
    text(&place.join("source/a"), "a");
    fs::create_dir(place.join("target")).unwrap();
    text(&place.join("target").join(NOTES), "other");
    text(&place.join("target/.ropeway-0123456789abcdef-notes"), "other");
    text(&place.join("target/a"), "a");
    let check = place.ropeway("check").args(["source", "target"]).exits(7);
    assert!(
        check.mentions("0123456789abcdef-notes") && check.mentions(NOTES),
        "{check}"
    );
    place.ropeway("mirror").args(["--yes", "source", "target"]).ok();
    assert_eq!(fs::read(place.join("target").join(NOTES)).unwrap(), b"mine");
    assert!(!place.join("target/.ropeway-0123456789abcdef-notes").exists());
    place.ropeway("check").args(["source", "target"]).ok();
    place
        .ropeway("copy")
        .args(["--move", "-T", "source", "moved"])
        .ok();
    assert_eq!(fs::read(place.join("moved").join(NOTES)).unwrap(), b"mine");
    assert!(!place.join("source").join(NOTES).exists());
}

/// An interrupted copy resumes even if another copy into the same folder ran in between.
#[test]
fn other_copies_leave_resumable_files_alone() {
    let place = Place::new();
    for (name, seed) in [("first", 1), ("second", 2)] {
        place.folder(name);
        file(&place.join(name).join("big"), 24 * MIB, seed);
    }
    place.folder("target");
    let mut running = place.copy("first", "target").args(["--bwlimit", "4M"]).start();
    running.reach("bytes_durable", 1);
    running.kill();
    place.copy("second", "target").ok();
    let again = place.copy("first", "target").ok();
    assert!(again.number("bytes_resumed") > 0, "{again}");
    content_same(&place.join("first"), &place.join("target/first"));
    no_temporaries(&place.join("target"));
}

/// A mirror that removes a folder keeps the names of a running job in it.
#[test]
fn a_folder_that_a_mirror_removes_keeps_names_of_running_jobs() {
    let place = Place::new();
    tree(&place.join("alive"), 1);
    text(&place.join("mirrored/a"), "a");
    text(&place.join("target/extra/deep/old"), "old");
    let run = place
        .ropeway("copy")
        .args(["--json", "alive/1-0", "alive/1-1", "target/extra/deep"]);
    let alive = begin(of(run, "user-1", &place));
    let running = nodes(&place.join("target"));
    assert!(!running.is_empty());
    let mirror = of(place.ropeway("mirror"), "user-2", &place);
    mirror.args(["--yes", "mirrored", "target"]).ok();
    assert!(!place.join("target/extra/deep/old").exists());
    alive.wait().assert_code(&[0]);
    assert_eq!(
        fs::read(place.join("target/extra/deep/1-0")).unwrap(),
        fs::read(place.join("alive/1-0")).unwrap()
    );
    no_temporaries(&place.join("target"));
}

/// The same on a share: running jobs are left alone, leftovers of dead jobs are removed.
fn on_a_share(place: &Place, behind: &Path, url: &str, command: impl Fn(&str) -> Run) {
    for (name, seed) in [("dead", 10), ("alive", 20), ("mirrored", 30)] {
        tree(&place.join(name), seed);
    }
    text(&behind.join("target").join(NOTES), "extra");
    let copy = |source: &str, user: &str| {
        let run = command("copy").arg("--json").arg(place.join(source)).arg(url);
        of(run, user, place)
    };
    begin(copy("dead", "user-1")).kill();
    let left = nodes(behind);
    assert!(!left.is_empty());
    let alive = begin_at("1500K", copy("alive", "user-2"));
    let mirror = of(command("mirror"), "user-3", place);
    mirror
        .args(["--json", "--yes"])
        .arg(place.join("mirrored"))
        .arg(url)
        .ok();
    let now = nodes(behind);
    assert!(
        left.iter().all(|path| !now.contains(path)),
        "the dead one's: {now:?}"
    );
    alive.wait().assert_code(&[0]);
    content_same(&place.join("alive"), &behind.join("target/alive"));
    assert!(!behind.join("target").join(NOTES).exists());
    // A copy whose journal is gone.
    let again = || {
        of(command("copy"), "user-4", place)
            .args(["--json", "-T"])
            .arg(place.join("dead"))
            .arg(format!("{url}/again"))
    };
    begin(again()).kill();
    assert!(!nodes(behind).is_empty());
    fs::remove_dir_all(place.join("user-4/ropeway")).unwrap();
    again().ok();
    content_same(&place.join("dead"), &behind.join("target/again"));
    none_left(behind);
}

#[test]
fn on_our_server_running_jobs_are_left_alone_and_leftovers_removed() {
    let served = Served::start(&[]);
    let url = served.url("target");
    on_a_share(&served.place, &served.behind(""), &url, |command| {
        served.run(command)
    });
    served.stop();
}

#[test]
fn on_smbd_running_jobs_are_left_alone_and_leftovers_removed() {
    let ground = or_skip!(Ground::start());
    let url = ground.url("data/target");
    on_a_share(&ground.place, &ground.behind("data"), &url, |command| {
        ground.run(command)
    });
}

/// Runs `jobs --json` and returns the jobs.
fn listed(place: &Place) -> Vec<serde_json::Value> {
    place.ropeway("jobs").arg("--json").ok().of_type("job")
}

#[test]
fn unfinished_jobs_are_listed_resumed_and_removed_with_their_leftovers() {
    let place = Place::new();
    tree(&place.join("first"), 1);
    tree(&place.join("second"), 2);
    place.folder("target");
    assert!(listed(&place).is_empty());
    begin(place.copy("first", "target")).kill();
    begin(place.copy("second", "target")).kill();
    let jobs = listed(&place);
    let id = |name: &str| {
        let of = |job: &&serde_json::Value| job["sources"][0].as_str().unwrap().ends_with(name);
        jobs.iter().find(of).unwrap()["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    assert!(
        jobs.iter()
            .all(|job| job["bytes_left"].as_u64().unwrap() >= MIB && job["running"] == false)
    );
    // Runs the same command line again, from any folder.
    let resumed = place
        .ropeway("jobs")
        .args(["resume", &id("first")[..6]])
        .current_dir(Path::new("/"))
        .ok();
    assert_eq!(resumed.number("errors"), 0);
    content_same(&place.join("first"), &place.join("target/first"));
    assert_eq!(listed(&place).len(), 1);
    let left = nodes(&place.join("target"));
    assert!(!left.is_empty());
    let forgotten = place.ropeway("jobs").args(["rm", &id("second")]).ok();
    assert!(forgotten.mentions("MiB"), "{forgotten}");
    none_left(place.path());
    assert!(listed(&place).is_empty() && !place.join("target/second").exists());
    place.ropeway("jobs").args(["rm", "0123"]).exits(1);
}

#[test]
fn a_running_job_is_not_forgotten() {
    let place = Place::new();
    tree(&place.join("source"), 1);
    place.folder("target");
    let running = begin(place.copy("source", "target"));
    let jobs = listed(&place);
    assert_eq!((jobs.len(), &jobs[0]["running"]), (1, &true.into()), "{jobs:?}");
    for action in ["rm", "resume"] {
        place
            .ropeway("jobs")
            .args([action, jobs[0]["id"].as_str().unwrap()])
            .exits(8);
    }
    place.ropeway("jobs").args(["sweep", "target"]).ok();
    running.wait().assert_code(&[0]);
    same(&place.join("source"), &place.join("target/source"));
    no_temporaries(&place.join("target"));
}

#[test]
fn a_sweep_removes_leftovers_of_dead_jobs_and_no_data() {
    let place = Place::new();
    tree(&place.join("dead"), 1);
    text(&place.join("target/deep").join(NOTES), "mine");
    let run = place
        .ropeway("copy")
        .args(["--json", "dead/1-0", "dead/1-1", "target/deep"]);
    begin(of(run, "user-1", &place)).kill();
    // A job with no other trace: it may be running on a machine that sees its claim elsewhere.
    let unknown = place.join("target/.ropeway-00112233445566aa-0123456789abcdef");
    text(&unknown, "unknown");
    let outside = place.folder("outside");
    text(&outside.join("kept"), "kept");
    std::os::unix::fs::symlink(
        &outside,
        place.join("target/.ropeway-00112233445566aa-0123456789abcdee"),
    )
    .unwrap();
    let before = temporaries(&place.join("target")).len();
    let dry = place.ropeway("jobs").args(["sweep", "-n", "target"]).ok();
    assert!(dry.mentions("would be removed"), "{dry}");
    assert_eq!(temporaries(&place.join("target")).len(), before);
    let swept = place.ropeway("jobs").args(["sweep", "target"]).ok();
    assert!(swept.mentions("--all"), "{swept}");
    assert_eq!(temporaries(&place.join("target")).len(), 2);
    place.ropeway("jobs").args(["sweep", "--all", "target"]).ok();
    none_left(&place.join("target"));
    assert!(place.join("target/deep").join(NOTES).exists() && outside.join("kept").exists());
}

/// A move that is killed at the wrong moment leaves an empty file in its source. Before, only the
/// same job removed it.
#[test]
fn a_move_removes_leftovers_of_another_move_in_its_source() {
    let place = Place::new();
    let probe = ".ropeway-00112233445566aa-ffffffffffffffff";
    let data = ".ropeway-00112233445566ab-ffffffffffffffff";
    text(&place.join("source/sub/small"), "small");
    text(&place.join("source/sub").join(probe), "");
    text(&place.join("source/kept").join(data), "not empty");
    place
        .ropeway("copy")
        .args(["--move", "-T", "source", "target"])
        .ok();
    assert!(!place.join("source/sub").exists() && place.join("target/sub/small").exists());
    assert!(place.join("source/kept").join(data).exists());

    text(&place.join("source/kept").join(probe), "");
    place.ropeway("jobs").args(["sweep", "source"]).ok();
    assert_eq!(
        temporaries(&place.join("source")),
        [place.join("source/kept").join(data)]
    );
}

/// Leftovers on a distant share of a job that was killed before its claim named all folders.
/// Before, the next run of the same copy removed the claim, and nothing found the names then.
#[track_caller]
fn names_missing_from_a_claim_are_found(behind: &Path, url: &str, run: impl Fn(&str) -> Run) {
    let place = Place::new();
    text(&place.join("source/sub/deep/file"), "file");
    let partial = "{\"ropeway\":1,\"kind\":\"share\",\"aside\":true}\0";
    for (number, claim) in ["", partial].into_iter().enumerate() {
        let of = format!(".ropeway-00112233445566a{number}");
        text(&behind.join("target").join(&of), claim);
        text(
            &behind
                .join("target/sub/deep")
                .join(format!("{of}-0123456789abcdef")),
            "half",
        );
        text(
            &behind.join("beside").join(format!("{of}-0123456789abcdef")),
            "anybody's",
        );
        run("copy")
            .arg("-T")
            .arg(place.join("source"))
            .arg(format!("{url}target"))
            .ok();
        none_left(&behind.join("target"));
        assert!(behind.join("target/sub/deep/file").exists());
        fs::remove_file(behind.join("target/sub/deep/file")).unwrap();
    }
    assert_eq!(temporaries(&behind.join("beside")).len(), 2);
}

#[test]
fn on_our_server_names_missing_from_a_claim_are_found() {
    let served = Served::start(&[]);
    names_missing_from_a_claim_are_found(&served.behind(""), &served.url(""), |command| served.run(command));
    served.stop();
}

#[test]
fn on_smbd_names_missing_from_a_claim_are_found() {
    let ground = or_skip!(Ground::start());
    names_missing_from_a_claim_are_found(&ground.behind("data"), &ground.url("data/"), |command| {
        ground.run(command)
    });
}

/// The message blamed another program that has the folder open. That program was this one.
#[track_caller]
fn a_folder_does_not_go_into_itself(behind: &Path, url: &str, run: impl Fn(&str) -> Run) {
    text(&behind.join("dir/sub/a"), "a");
    text(&behind.join("dir/file"), "file");
    for target in ["dir/new", "dir/sub", "dir/sub/new"] {
        let refused = run("mv")
            .args([format!("{url}dir"), format!("{url}{target}")])
            .exits(1);
        assert!(
            refused.mentions("is inside") && !refused.mentions("another program"),
            "{refused}"
        );
    }
    run("mv")
        .args([format!("{url}dir"), format!("{url}directory")])
        .ok();
    assert!(behind.join("directory/sub/a").exists());
}

#[test]
fn on_our_server_a_folder_does_not_go_into_itself() {
    let served = Served::start(&[]);
    a_folder_does_not_go_into_itself(&served.behind(""), &served.url(""), |command| served.run(command));
    served.stop();
}

#[test]
fn on_smbd_a_folder_does_not_go_into_itself() {
    let ground = or_skip!(Ground::start());
    let url = ground.url("data/");
    a_folder_does_not_go_into_itself(&ground.behind("data"), &url, |command| ground.run(command));
}

/// A folder was in progress when the run was killed, and is now a file: its temporary name is that
/// of the file.
fn a_folder_that_became_a_file(place: &Place, behind: &Path, url: &str, run: impl Fn(&str) -> Run) {
    place.folder("source/dir");
    file(&place.join("source/dir/big"), 24 * MIB, 1);
    text(&place.join("source/keep"), "keep");
    text(&behind.join("target/keep"), "keep");
    let mirror = || {
        run("mirror")
            .args(["--json", "--yes"])
            .arg(place.join("source"))
            .arg(url)
    };
    let mut running = mirror().args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 8 * MIB);
    running.kill();
    assert!(!nodes(behind).is_empty());
    fs::remove_dir_all(place.join("source/dir")).unwrap();
    file(&place.join("source/dir"), 54_034, 2);
    mirror().ok();
    content_same(&place.join("source"), &behind.join("target"));
    none_left(behind);
}

#[test]
fn on_our_server_a_folder_that_became_a_file_is_copied() {
    let served = Served::start(&[]);
    let url = served.url("target");
    a_folder_that_became_a_file(&served.place, &served.behind(""), &url, |command| {
        served.run(command)
    });
    served.stop();
}

#[test]
fn on_smbd_a_folder_that_became_a_file_is_copied() {
    let ground = or_skip!(Ground::start());
    let url = ground.url("data/target");
    a_folder_that_became_a_file(&ground.place, &ground.behind("data"), &url, |command| {
        ground.run(command)
    });
}
