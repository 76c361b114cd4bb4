//! What the binary makes of somebody on the line who changes, drops or delays what a server says.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod relay;

use std::fs;
use std::time::Duration;

use relay::{Deed, Relay};
use support::{Finished, Served, text};

/// Far longer than any command below takes to give up: three or ten times a second, some times in a row.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// A server with a few names behind a relay that does this.
fn behind(deed: Deed) -> (Served, Relay) {
    let served = Served::start(&[]);
    served.place.folder("source");
    text(&served.place.join("source/file"), "new content");
    let relay = Relay::start(served.address(), deed, 0);
    (served, relay)
}

/// Runs a command with the share's URLs, which must not hang. Every run finds the same.
fn run(served: &Served, arguments: &[&str], flags: &[&str]) -> Finished {
    text(&served.behind("file"), "content");
    _ = fs::remove_file(served.behind("other"));
    fs::create_dir_all(served.behind("folder")).unwrap();
    text(&served.behind("folder/inner"), "inner");
    let run = served.run(arguments[0]).args(flags).args(&arguments[1..]);
    run.hang_after(HANGS_AFTER).run()
}

/// Commands that read and write, on URLs of the relay.
fn commands(relay: &Relay) -> Vec<Vec<String>> {
    let url = |path| relay.url(path);
    [
        vec!["ls".into(), url("folder")],
        vec!["stat".into(), url("file")],
        vec!["mv".into(), url("file"), url("other")],
        vec!["copy".into(), "source".into(), url("copied")],
        vec!["mirror".into(), "--yes".into(), "source".into(), url("folder")],
        vec!["copy".into(), "-T".into(), url("folder"), "near".into()],
        vec!["check".into(), "source".into(), url("folder")],
        vec!["rm".into(), "-ry".into(), url("folder")],
    ]
    .into()
}

/// Whether a run came as far as the deed; a short one need not.
#[track_caller]
fn is_reached(relay: &Relay, after: usize, finished: &Finished) -> bool {
    assert!(relay.is_done() || after > 0, "{finished}");
    relay.is_done()
}

fn borrowed(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// One bit of a signed or sealed answer is another one: it is said what was violated, once, and nobody logs in again.
#[test]
fn a_changed_answer_ends_a_run_and_nobody_logs_in_again() {
    for (flags, violated) in [
        (["--encrypt", "off"], "sign"),
        (["--encrypt", "required"], "encrypted"),
    ] {
        let (served, probe) = behind(Deed::Nothing);
        let count = commands(&probe).len();
        for (number, after) in (0..count).flat_map(|number| [(number, 0), (number, 2)]) {
            // What is sealed may be the farewell.
            let after = if violated == "encrypted" { 0 } else { after };
            let relay = Relay::start(served.address(), Deed::Flip, after);
            let command = commands(&relay).swap_remove(number);
            let finished = run(&served, &borrowed(&command), &flags);
            if !is_reached(&relay, after, &finished) {
                continue;
            }
            // It may have removed something before.
            let codes: &[i32] = if command[0] == "rm" { &[2, 6] } else { &[6] };
            finished.assert_code(codes);
            let said = format!("{}{}", finished.out, finished.err);
            assert_eq!(said.matches("not connecting again").count(), 1, "{finished}");
            assert!(said.contains(violated), "{finished}");
            assert_eq!(relay.later_logins(), 0, "{finished}");
        }
        served.stop();
    }
}

/// A capability is taken away on the line: the validation (3.0.2) or the hash of the negotiation (3.1.1) tells.
#[test]
fn a_changed_negotiation_ends_a_run() {
    let served = Served::start(&[]);
    for dialect in ["3.0.2", "3.1.1"] {
        for encrypt in ["off", "desired"] {
            let relay = Relay::start(served.address(), Deed::Downgrade, 0);
            let flags = ["--max-dialect", dialect, "--encrypt", encrypt];
            let finished = run(&served, &["ls", &relay.url("")], &flags);
            assert!(relay.is_done(), "{finished}");
            finished.assert_code(&[6]);
            assert_eq!(
                finished.err.matches("not connecting again").count(),
                1,
                "{finished}"
            );
            assert_eq!(relay.logins(), 1, "{finished}");
        }
    }
    served.stop();
}

/// Whatever else comes from the server: an answer that does not come ends its request. Each command waits at a server of its
/// own, and all at once.
fn end_in_time(deed: Deed) {
    let commands = ["ls", "stat", "mv", "mirror"];
    std::thread::scope(|scope| {
        for (name, after) in commands.iter().flat_map(|name| [(name, 0), (name, 2)]) {
            scope.spawn(move || {
                let (served, _) = behind(Deed::Nothing);
                let relay = Relay::start(served.address(), deed, after);
                let command = self::commands(&relay)
                    .into_iter()
                    .find(|command| command[0] == *name);
                let flags = ["--encrypt", "off", "--timeout", "300ms"];
                let finished = run(&served, &borrowed(&command.unwrap()), &flags);
                if is_reached(&relay, after, &finished) {
                    // What may be asked again is, after a single loss; one node may fail, and no other is there.
                    let codes: &[i32] = match (deed, *name) {
                        (Deed::DropOne, _) => &[0, 2, 6],
                        (_, "mirror") => &[2, 6],
                        _ => &[6],
                    };
                    finished.assert_code(codes);
                }
                served.stop();
            });
        }
    });
}

#[test]
fn a_dropped_answer_ends_its_request() {
    end_in_time(Deed::DropOne);
}

#[test]
fn an_answer_that_is_announced_for_ever_ends_its_request() {
    end_in_time(Deed::Pending);
}

#[test]
fn an_answer_byte_by_byte_ends_its_request() {
    end_in_time(Deed::Drip);
}
