//! Views that fill a terminal.

use std::fs;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::{self, Place, Served, Tmux, file, or_skip, skip, wait_until};
use crate::top::{PATIENCE, View, slow_copy};

#[test]
fn without_a_terminal_there_is_no_view() {
    let place = Place::new();
    for arguments in [&["top"][..], &["check", "--tui", ".", "."], &["top", "--json"]] {
        let finished = place.ropeway(arguments[0]).args(&arguments[1..]).exits(1);
        let said = format!("{}{}", finished.err, finished.out);
        assert!(said.contains("hint"), "{finished}");
    }
    let none = place
        .ropeway("top")
        .args(["--once", "--user", "no-such-user"])
        .exits(1);
    assert!(none.err.contains("no-such-user"), "{none}");
}

#[test]
fn top_fills_a_terminal_and_gives_it_back() {
    let place = Place::new();
    for (columns, rows) in [(80, 24), (200, 50), (40, 12)] {
        let terminal = or_skip!(Tmux::open(&place, columns, rows));
        let running = slow_copy(&place);
        drop(View::open(&place, running.id()));
        terminal.ropeway("top --interval 200ms");
        assert!(terminal.shows("durable"), "{}", terminal.text());
        let pid = running.id().to_string();
        for part in [pid.as_str(), "copy", "read", "sent", "q quit"] {
            assert!(terminal.shows(part), "{part}\n{}", terminal.text());
        }
        assert!(terminal.colored().contains('\u{1b}'));
        terminal.key("p");
        assert!(terminal.shows("PAUSED"), "{}", terminal.text());
        terminal.key("r");
        assert!(terminal.hides("PAUSED"), "{}", terminal.text());
        terminal.resize(columns.max(60) - 20, rows.max(14) - 4);
        terminal.resize(columns, rows);
        assert!(terminal.shows("durable"), "{}", terminal.text());
        if columns >= 80 {
            terminal.key("b");
            assert!(terminal.shows("--bwlimit: 1M"), "{}", terminal.text());
            for _ in 0..2 {
                terminal.key("BSpace");
            }
            terminal.types("2M");
            terminal.key("Enter");
            assert!(terminal.shows("--bwlimit 2M"), "{}", terminal.text());
        }
        terminal.key("c");
        assert!(terminal.shows("[y/N]"), "{}", terminal.text());
        terminal.types("y");
        running.wait().assert_code(&[130]);
        assert!(terminal.shows("ended"), "{}", terminal.text());
        terminal.key("q");
        assert!(
            terminal.hides("ended") && terminal.shows("PROMPT>"),
            "{}",
            terminal.text()
        );
        fs::remove_file(place.join("big")).unwrap();
    }
}

#[test]
fn the_terminal_is_given_back_after_sigterm_and_without_colours() {
    let place = Place::new();
    let terminal = or_skip!(Tmux::open(&place, 80, 24));
    terminal.types("export NO_COLOR=1");
    terminal.key("Enter");
    terminal.ropeway("top & TOP=$!; fg; echo ended-with $?");
    if !terminal.shows("no ropeway is running") {
        // A shell without job control.
        skip!("no job control: {}", terminal.text());
    }
    let colored = terminal.colored();
    let colours = colored.split('\u{1b}').skip(1).filter(|rest| {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        let codes = rest[..end].trim_start_matches('[').split(';');
        rest[end..].starts_with('m')
            && codes
                .into_iter()
                // 39 and 49 are the terminal's own colours.
                .any(|code| code.len() == 2 && code.starts_with(['3', '4']) && !code.ends_with('9'))
    });
    assert_eq!(colours.count(), 0, "{colored:?}");
    let top = children_named(&place, "top");
    assert_eq!(top.len(), 1, "{top:?}");
    let pid = rustix::process::Pid::from_raw(top[0]).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(terminal.shows("ended-with 130"), "{}", terminal.text());
    assert!(
        !terminal.text().contains("no ropeway is running"),
        "{}",
        terminal.text()
    );
}

/// The library for terminals reads on for ever from one that is gone.
#[test]
fn a_view_ends_with_its_terminal() {
    let place = Place::new();
    differing(&place);
    for (command, shown) in [("top", "no ropeway is running"), ("check --tui a b", "compared")] {
        let terminal = or_skip!(Tmux::open(&place, 80, 24));
        terminal.ropeway(command);
        assert!(terminal.shows(shown), "{}", terminal.text());
        let name = command.split(' ').next().unwrap();
        let running = || children_named(&place, name);
        assert_eq!(running().len(), 1);
        terminal.close();
        assert!(wait_until(PATIENCE, || running().is_empty()), "{:?}", running());
    }
}

/// Returns the processes of the program under test with this first argument in this place.
fn children_named(place: &Place, command: &str) -> Vec<i32> {
    let folder = fs::canonicalize(place.path()).unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_it =
            words.next() == Some(support::binary().as_bytes()) && words.next() == Some(command.as_bytes());
        if is_it && fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder) {
            found.push(pid);
        }
    }
    found
}

/// Makes two trees that differ in every way.
fn differing(place: &Place) {
    for tree in ["a", "b"] {
        place.folder(&format!("{tree}/deep"));
        file(&place.join(format!("{tree}/same")), 1000, 1);
        file(&place.join(format!("{tree}/deep/changed")), 5000, 2);
    }
    // Both have equal times for what is equal.
    place.ropeway("copy").args(["-T", "a", "b"]).ok();
    file(&place.join("a/deep/changed"), 7000, 3);
    file(&place.join("a/new"), 3000, 4);
    file(&place.join("b/extra"), 10, 5);
    let earlier = SystemTime::now() - Duration::from_secs(3600);
    for folder in ["a/deep", "a"] {
        let folder = fs::File::open(place.join(folder)).unwrap();
        folder.set_modified(earlier).unwrap();
    }
}

/// Chosen alone, the top folder brings its attributes and nothing of what is in it.
#[test]
fn attributes_of_the_top_folder_come_alone() {
    let place = Place::new();
    differing(&place);
    let terminal = or_skip!(Tmux::open(&place, 100, 24));
    terminal.ropeway("check --tui a b; echo ended-with $?");
    assert!(terminal.shows("5 differences"), "{}", terminal.text());
    assert!(terminal.shows("compared"), "{}", terminal.text());
    // The first row.
    terminal.types(" ");
    assert!(terminal.shows("1 chosen"), "{}", terminal.text());
    terminal.types(">");
    assert!(terminal.shows("[y/N]"), "{}", terminal.text());
    terminal.types("y");
    assert!(
        terminal.shows("copied 0 files, durable; 0 errors"),
        "{}",
        terminal.text()
    );
    terminal.types("q");
    assert!(terminal.shows("ended-with 7"), "{}", terminal.text());
    assert!(!place.join("b/new").exists(), "{}", terminal.text());
    let modified = |path: &str| fs::metadata(place.join(path)).unwrap().modified().unwrap();
    assert_eq!(modified("a"), modified("b"));
}

#[test]
fn differences_are_shown_chosen_and_copied() {
    let place = Place::new();
    differing(&place);
    let terminal = or_skip!(Tmux::open(&place, 100, 24));
    terminal.ropeway("check --tui a b; echo ended-with $?");
    for part in ["deep/changed", "new", "missing", "extra", "compared"] {
        assert!(terminal.shows(part), "{part}\n{}", terminal.text());
    }
    // Only what is missing or changed, not what only the target has.
    terminal.types("a");
    terminal.types(">");
    assert!(
        terminal.shows("[y/N]") && terminal.shows("not there"),
        "{}",
        terminal.text()
    );
    terminal.types("y");
    assert!(
        terminal.shows("copied 2 files, durable; 0 errors"),
        "{}",
        terminal.text()
    );
    assert!(place.join("b/extra").exists(), "nothing is deleted");
    for path in ["new", "deep/changed"] {
        assert_eq!(
            fs::read(place.join("a").join(path)).unwrap(),
            fs::read(place.join("b").join(path)).unwrap()
        );
    }
    // And back.
    terminal.types("n");
    terminal.types("/");
    terminal.types("extra");
    terminal.key("Enter");
    terminal.types(" ");
    terminal.types("<");
    assert!(terminal.shows("[y/N]"), "{}", terminal.text());
    terminal.types("y");
    assert!(terminal.shows("copied 1 file, durable"), "{}", terminal.text());
    terminal.types("q");
    assert!(terminal.shows("ended-with 0"), "{}", terminal.text());
    support::no_temporaries(place.path());
    place.ropeway("check").args(["-c", "a", "b"]).ok();
    let jobs = fs::read_dir(place.jobs()).map_or(0, |entries| entries.count());
    assert_eq!(jobs, 0, "no journal is left");
}

#[test]
fn differences_with_a_share_are_copied() {
    let served = Served::start(&[]);
    let place = &served.place;
    place.folder("local/deep");
    file(&place.join("local/deep/one"), 300_000, 1);
    file(&place.join("local/two"), 10, 2);
    fs::create_dir_all(served.behind("there")).unwrap();
    let terminal = or_skip!(Tmux::open(place, 120, 30));
    terminal.types(&format!("export ROPEWAY_PASSWORD='{}'", support::PASSWORD));
    terminal.key("Enter");
    terminal.ropeway(&format!(
        "check --tui local {}; echo ended-with $?",
        served.url("there")
    ));
    assert!(
        terminal.shows("deep") && terminal.shows("two"),
        "{}",
        terminal.text()
    );
    assert!(terminal.shows("compared"), "{}", terminal.text());
    terminal.types("a");
    terminal.types(">");
    assert!(terminal.shows("[y/N]"), "{}", terminal.text());
    terminal.types("y");
    assert!(terminal.shows("copied 2 files"), "{}", terminal.text());
    terminal.types("q");
    assert!(terminal.shows("ended-with 0"), "{}", terminal.text());
    for path in ["deep/one", "two"] {
        let there = fs::read(served.behind("there").join(path)).unwrap();
        assert_eq!(fs::read(place.join("local").join(path)).unwrap(), there, "{path}");
    }
    served.stop();
}
