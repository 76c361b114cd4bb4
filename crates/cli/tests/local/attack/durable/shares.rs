//! The same cases on a server: temporary names of two machines, and versions that look alike.

use std::fs;
use std::path::Path;

use ropeway_peers::or_skip;

use super::names::complete_despite_a_second_run_that_is_killed;
use crate::support::{Ground, Run, Served, content_same, file, no_temporaries, write_at};

const MIB: u64 = 1 << 20;

/// Two machines that use one NAS are two unrelated runs.
#[test]
fn two_runs_onto_one_share_use_different_temporary_files() {
    let ground = or_skip!(Ground::start());
    let source = ground.place.folder("source");
    for number in 0..6 {
        file(&source.join(format!("file {number}")), 5 * MIB, number);
    }
    fs::create_dir(ground.behind("data/target")).unwrap();
    let url = ground.url("data/target");
    let run = |state: &str, limit: &str| {
        ground
            .run("copy")
            .args(["--json", "-T", "--bwlimit", limit, "source", &url])
            .env("XDG_STATE_HOME", ground.place.folder(state))
    };
    let target = ground.behind("data/target");
    complete_despite_a_second_run_that_is_killed((&source, &target), 6, |state| {
        run(state, if state == "state 1" { "6M" } else { "4M" })
    });
    run("state 2", "200M").ok();
    content_same(&source, &target);
    no_temporaries(&target);
}

/// Kills a copy, changes the source without changing its size and time, and copies again.
fn not_mixed(run: &dyn Fn() -> Run, (source, copy): (&Path, &Path), change: fn(&Path)) {
    let big = source.join("big");
    file(&big, 24 * MIB, 1);
    let time = fs::metadata(&big).unwrap().modified().unwrap();
    // Slow enough that it has not ended when it is killed, on a busy machine too.
    let mut running = run().args(["--bwlimit", "3M"]).start();
    running.reach("bytes_sent", 10 * MIB);
    running.kill();
    change(&big);
    fs::File::options()
        .write(true)
        .open(&big)
        .unwrap()
        .set_modified(time)
        .unwrap();
    run().ok();
    content_same(source, copy);
}

fn overwritten(big: &Path) {
    write_at(big, 1_000, b"another version, of the same size and time");
}

fn replaced(big: &Path) {
    let other = big.with_file_name("other");
    file(&other, 24 * MIB, 2);
    fs::rename(other, big).unwrap();
}

#[test]
fn versions_that_look_alike_are_not_mixed_onto_a_share() {
    let ground = or_skip!(Ground::start());
    let here = ground.place.folder("here");
    let run = || ground.copy("here", &ground.url("data/copy")).arg("-T");
    not_mixed(&run, (&here, &ground.behind("data/copy")), overwritten);
}

/// Samba has no change time, so only a replaced file can be recognised.
#[test]
fn a_file_replaced_on_a_share_is_not_mixed_with_its_old_version() {
    let ground = or_skip!(Ground::start());
    let there = ground.place.folder("data/there");
    let run = || ground.copy(&ground.url("data/there"), "copy").arg("-T");
    not_mixed(&run, (&there, &ground.place.join("copy")), replaced);
}

#[test]
fn versions_that_look_alike_are_not_mixed_from_our_server() {
    let served = Served::start(&[]);
    let there = served.place.folder("data/there");
    let run = || {
        let run = served.run("copy").args(["--json", "-T"]);
        run.arg(served.url("there")).arg("copy")
    };
    not_mixed(&run, (&there, &served.place.join("copy")), overwritten);
}
