//! The binary against an attacker on the line that changes, drops or delays a server's replies.

mod relay;

use std::fs;
use std::time::Duration;

use crate::support::{Finished, Served, text};
use relay::{Attack, Relay};

/// Far longer than any command below takes to give up: three or ten timeouts of a second, several
/// times in a row.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// Starts a server with a few names behind a relay that commits this attack.
fn behind(attack: Attack) -> (Served, Relay) {
    let served = Served::start(&[]);
    served.place.folder("source");
    text(&served.place.join("source/file"), "new content");
    let relay = Relay::start(served.address(), attack, 0);
    (served, relay)
}

/// Runs a command with the share's URLs, which must not hang. Every run starts from the same files.
fn run(served: &Served, arguments: &[&str], flags: &[&str]) -> Finished {
    text(&served.behind("file"), "content");
    _ = fs::remove_file(served.behind("other"));
    fs::create_dir_all(served.behind("folder")).unwrap();
    text(&served.behind("folder/inner"), "inner");
    let run = served.run(arguments[0]).args(flags).args(&arguments[1..]);
    run.hang_after(HANGS_AFTER).run()
}

/// Returns commands that read and write, on URLs of the relay.
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

/// Returns whether a run met the attack; a short one may not.
#[track_caller]
fn is_reached(relay: &Relay, after: usize, finished: &Finished) -> bool {
    assert!(relay.is_done() || after > 0, "{finished}");
    relay.is_done()
}

fn borrowed(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// One bit of a signed or encrypted reply is flipped: the error names the violation, once, and
/// there is no new login.
#[test]
fn a_changed_reply_ends_a_run_without_a_new_login() {
    for (flags, violated) in [
        (["--encrypt", "off"], "sign"),
        (["--encrypt", "required"], "encrypted"),
    ] {
        let (served, probe) = behind(Attack::Nothing);
        let count = commands(&probe).len();
        for (number, after) in (0..count).flat_map(|number| [(number, 0), (number, 2)]) {
            // An encrypted reply may be that to the logoff.
            let after = if violated == "encrypted" { 0 } else { after };
            let relay = Relay::start(served.address(), Attack::Flip, after);
            let command = commands(&relay).swap_remove(number);
            let finished = run(&served, &borrowed(&command), &flags);
            if !is_reached(&relay, after, &finished) {
                continue;
            }
            // The command may have removed something before.
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

/// A capability is removed on the line: the validation (3.0.2) or the hash of the negotiation
/// (3.1.1) detects it.
#[test]
fn a_changed_negotiation_ends_a_run() {
    let served = Served::start(&[]);
    for dialect in ["3.0.2", "3.1.1"] {
        for encrypt in ["off", "desired"] {
            let relay = Relay::start(served.address(), Attack::Downgrade, 0);
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

/// All other attacks: a reply that never comes ends its request. Each command has its own server,
/// and all run at once.
fn end_in_time(attack: Attack) {
    let commands = ["ls", "stat", "mv", "mirror"];
    std::thread::scope(|scope| {
        for (name, after) in commands.iter().flat_map(|name| [(name, 0), (name, 2)]) {
            scope.spawn(move || {
                let (served, _) = behind(Attack::Nothing);
                let attempt = || {
                    let relay = Relay::start(served.address(), attack, after);
                    let command = self::commands(&relay)
                        .into_iter()
                        .find(|command| command[0] == *name);
                    let flags = ["--encrypt", "off", "--timeout", "300ms"];
                    let finished = run(&served, &borrowed(&command.unwrap()), &flags);
                    (relay, finished)
                };
                // On a busy machine a login may take longer, and the attack is not met.
                let mut tries = std::iter::repeat_with(attempt).take(10);
                let (relay, finished) = tries
                    .find(|(relay, _)| relay.is_done() || after > 0)
                    .unwrap_or_else(attempt);
                if is_reached(&relay, after, &finished) {
                    // After a single loss a request may be repeated; one node may fail, and there
                    // is no other.
                    let codes: &[i32] = match (attack, *name) {
                        (Attack::DropOne, _) => &[0, 2, 6],
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
fn a_dropped_reply_ends_its_request() {
    end_in_time(Attack::DropOne);
}

#[test]
fn a_reply_that_stays_pending_forever_ends_its_request() {
    end_in_time(Attack::Pending);
}

#[test]
fn a_reply_sent_byte_by_byte_ends_its_request() {
    end_in_time(Attack::Drip);
}
