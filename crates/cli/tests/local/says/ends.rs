//! Ends of runs that did not do everything, and the question before deletions.

use std::fs;

use rustix::process::Signal;

use crate::support::{Place, Served, Tmux, file, or_skip, text};

const MIB: u64 = 1 << 20;

/// Returns the names in the folder of the journals.
fn journals(place: &Place) -> usize {
    fs::read_dir(place.jobs()).map_or(0, Iterator::count)
}

#[test]
fn an_interrupted_copy_says_where_its_data_lies_and_what_comes_next() {
    let place = Place::new();
    place.folder("source");
    text(&place.join("source/a"), "a");
    file(&place.join("source/big"), 32 * MIB, 1);
    let copy = place
        .ropeway("copy")
        .args(["--json", "--bwlimit", "1M", "source", "target"]);
    let mut running = copy.start();
    running.reach("bytes_sent", 2 * MIB);
    running.signal(Signal::INT);
    running.wait().assert_code(&[130]);
    // Once more, for people.
    let again = place
        .ropeway("copy")
        .args(["--bwlimit", "1M", "--progress", "200ms"]);
    let mut running = again.args(["source", "target"]).start();
    assert!(running.until(|running| running.stderr().contains("files")));
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[130]);
    let target = place.join("target").display().to_string();
    for part in [
        "run it again to resume",
        &format!("{target}: "),
        " of unfinished files are kept under temporary names",
        "ropeway jobs resume ",
    ] {
        assert!(finished.out.contains(part), "{part}: {finished}");
    }
    assert_eq!(journals(&place), 1);
    let (_, rest) = finished.out.split_once("ropeway jobs resume ").unwrap();
    let id = rest.split('`').next().unwrap();
    let removed = place.ropeway("jobs").args(["rm", id]).ok();
    assert!(removed.out.contains("MiB"), "{removed}");
    assert_eq!(journals(&place), 0);
}

#[test]
fn a_refused_run_leaves_no_journal() {
    let place = Place::new();
    place.folder("empty");
    place.folder("source");
    place.folder("target");
    text(&place.join("source/new"), "new");
    text(&place.join("target/old"), "old");
    text(&place.join("target/older"), "older");
    for arguments in [
        &["--yes", "empty", "target"][..],
        &["--yes", "--max-delete", "1", "source", "target"],
        &["source", "target"],
    ] {
        let refused = place.ropeway("mirror").args(arguments).exits(8);
        assert_eq!(journals(&place), 0, "{refused}");
        assert!(!refused.out.contains("resume"), "{refused}");
    }
    assert!(!place.join("target/new").exists() && place.join("target/old").exists());
}

#[test]
fn a_mirrors_question_names_the_first_deletions_and_their_bytes() {
    let place = Place::new();
    place.folder("source");
    place.folder("target");
    text(&place.join("source/kept"), "kept");
    for number in 0..7 {
        text(&place.join(format!("target/old{number}")), "1234");
    }
    let terminal = or_skip!(Tmux::open(&place, 100, 24));
    terminal.ropeway("mirror source target");
    assert!(terminal.shows("[y/N]"), "{}", terminal.text());
    let asked = terminal.text();
    for part in [
        "target/old",
        "(4 B)",
        "… and 2 more",
        "7 nodes (28 B) on target would be deleted",
    ] {
        assert!(asked.contains(part), "{part}\n{asked}");
    }
    terminal.types("n");
    terminal.key("Enter");
    assert!(terminal.shows("nothing was changed"), "{}", terminal.text());
    assert_eq!(journals(&place), 0);
}

/// The totals of a run that counts before its first write were twice as high while it copied.
#[test]
fn files_are_counted_once() {
    let place = Place::new();
    place.folder("source");
    for number in 0..16 {
        file(&place.join(format!("source/{number}")), MIB, number);
    }
    let copy = place
        .ropeway("copy")
        .args(["--json", "--preflight", "--bwlimit", "8M", "source", "target"]);
    let finished = copy.ok();
    let totals: Vec<u64> = finished
        .of_type("progress")
        .iter()
        .map(|line| line["files_total"].as_u64().unwrap())
        .collect();
    assert!(totals.iter().all(|total| *total <= 16), "{totals:?}");
}

#[test]
fn what_a_server_never_keeps_is_said_once() {
    let served = Served::start(&[]);
    text(&served.place.join("one"), "1");
    let notes = |flags: &[&str], name: &str| {
        let run = served.run("copy").args(flags).args(["one", &served.url(name)]);
        run.ok().out.matches("not kept by the target").count()
    };
    assert_eq!(notes(&[], "a"), 1);
    assert_eq!(notes(&[], "b"), 0);
    assert_eq!(notes(&["-v"], "c"), 1);
    let told = fs::read_to_string(served.place.jobs().parent().unwrap().join("told")).unwrap();
    assert!(told.lines().any(|line| line.ends_with("\tmode")), "{told}");
    served.stop();
}

#[test]
fn a_command_runs_however_a_run_ends() {
    let place = Place::new();
    text(&place.folder("source").join("a"), "a");
    let told = place.join("told");
    let command = format!(
        "echo \"$JOB_COMMAND $JOB_EXIT: $JOB_TEXT\" | tee -a '{}'",
        told.display()
    );
    let copy = |source: &str| {
        let copy = place.copy(source, "target").arg("--on-end");
        copy.arg(&command).run()
    };
    let done = copy("source");
    done.assert_code(&[0]);
    assert!(
        done.err.contains("copy 0: ") && !done.out.contains("copy 0: "),
        "{done}"
    );
    copy("missing").assert_code(&[3]);
    let told = fs::read_to_string(told).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[0].starts_with("copy 0: copy to ") && lines[0].ends_with(" is done"),
        "{told}"
    );
    assert!(
        lines[1].starts_with("copy 3: copy to ") && lines[1].contains("missing"),
        "{told}"
    );
    let wrong = place.copy("source", "target").args(["--on-end", "exit 9"]).run();
    wrong.assert_code(&[0]);
    assert!(
        wrong.mentions("warning: --on-end ended with exit status: 9"),
        "{wrong}"
    );
}
