//! The progress bar.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{PASSWORD, Place, Served, Tmux, file, or_skip, small_files};

const KIB: u64 = 1 << 10;
/// A copy of two thirds of a minute.
const SLOW: &str = "copy --bwlimit 100K source target";

/// Makes 64 files of 64 KiB.
fn ground() -> Place {
    let place = Place::new();
    place.folder("source");
    for number in 0..64 {
        file(&place.join(format!("source/{number}")), 64 * KIB, number);
    }
    place
}

/// Returns the two lines of the bar.
#[track_caller]
fn lines(terminal: &Tmux) -> [String; 2] {
    let text = terminal.text();
    let shown: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let [.., first, second] = shown.as_slice() else {
        panic!("{text}");
    };
    [(*first).to_owned(), (*second).to_owned()]
}

#[test]
fn each_width_shows_percent_rate_estimate_and_files() {
    for columns in [40, 80, 120] {
        let place = ground();
        let terminal = or_skip!(Tmux::open(&place, columns, 24));
        terminal.ropeway(SLOW);
        assert!(terminal.shows("ETA"), "{}", terminal.text());
        let [first, second] = lines(&terminal);
        for part in ["%  ", "B/s", "ETA "] {
            assert!(first.contains(part), "{columns}: {part}\n{}", terminal.text());
        }
        assert!(second.contains("/64 files"), "{columns}:\n{}", terminal.text());
        println!("{columns}\n{first}\n{second}");
        terminal.resize(60, 24);
        assert!(terminal.shows("ETA"), "{}", terminal.text());
        terminal.key("C-c");
        assert!(terminal.shows("interrupted"), "{}", terminal.text());
        assert!(terminal.shows("jobs resume"), "{}", terminal.text());
    }
}

#[test]
fn nothing_is_drawn_in_the_background() {
    let place = ground();
    let terminal = or_skip!(Tmux::open(&place, 80, 24));
    terminal.ropeway(SLOW);
    assert!(terminal.shows("%"), "{}", terminal.text());
    terminal.key("C-z");
    assert!(terminal.shows("topped"), "{}", terminal.text());
    terminal.types("bg");
    terminal.key("Enter");
    terminal.types("clear");
    terminal.key("Enter");
    assert!(terminal.hides("topped"), "{}", terminal.text());
    // Ten times as long as from one drawing to the next.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!terminal.text().contains('%'), "{}", terminal.text());
    terminal.types("fg");
    terminal.key("Enter");
    assert!(terminal.shows("%"), "{}", terminal.text());
    // What was there before stays.
    assert!(terminal.text().contains("fg"), "{}", terminal.text());
    terminal.key("C-c");
    assert!(terminal.shows("interrupted"), "{}", terminal.text());
}

#[test]
fn plain_lines_take_the_bars_place() {
    let place = ground();
    let mut running = place
        .ropeway("copy")
        .args(["--bwlimit", "100K", "--progress", "300ms", "source", "target"])
        .start();
    let count = |text: &str| text.lines().filter(|line| line.contains("/64 files")).count();
    assert!(running.until(|running| count(&running.stderr()) >= 3));
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[130]);
    assert!(!finished.err.contains('\u{1b}'), "{finished}");
    for arguments in [
        &["copy", "--progress", "source", "target"][..],
        &["mirror", "source", "target", "--progress"],
    ] {
        let refused = place.ropeway(arguments[0]).args(&arguments[1..]).exits(1);
        assert!(refused.err.contains("leave --progress out"), "{refused}");
    }
}

#[test]
fn a_lost_connection_is_named_with_the_time_left() {
    let mut served = Served::start(&[]);
    served.place.folder("source");
    for number in 0..64 {
        file(&served.place.join(format!("source/{number}")), 64 * KIB, number);
    }
    let terminal = or_skip!(Tmux::open(&served.place, 80, 24));
    terminal.types(&format!("export ROPEWAY_PASSWORD='{PASSWORD}'"));
    terminal.key("Enter");
    let url = served.url("there");
    terminal.ropeway(&format!("copy --bwlimit 100K --timeout 20s source {url}"));
    assert!(terminal.shows("%"), "{}", terminal.text());
    served.kill();
    assert!(
        terminal.shows("connection lost, trying again ("),
        "{}",
        terminal.text()
    );
    assert!(terminal.shows(" s left)"), "{}", terminal.text());
    println!("{}", terminal.text());
    terminal.key("C-c");
    terminal.key("C-c");
    assert!(terminal.shows("PROMPT>"), "{}", terminal.text());
}

#[test]
fn a_watching_run_says_so() {
    let place = Place::new();
    small_files(&place.join("source"), 3, 1);
    let terminal = or_skip!(Tmux::open(&place, 80, 24));
    terminal.ropeway("copy --watch source target");
    assert!(terminal.shows("watching for changes"), "{}", terminal.text());
    terminal.key("C-c");
    let mut running = place.ropeway("copy").args(["--watch", "source", "plain"]).start();
    let says = |text: String| text.contains("watching for changes");
    assert!(
        running.until(|running| says(running.stderr())),
        "{}",
        running.stderr()
    );
    running.signal(Signal::INT);
    running.wait().assert_code(&[0, 130]);
}
