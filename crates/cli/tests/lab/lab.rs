//! `ropeway lab link` as users run it. Links need root, or user namespaces and an open TUN device.

use std::fs;
use std::time::Duration;

use crate::support::{Place, linked, or_skip, text};
use rustix::process::Signal;

const LINK: [&str; 5] = ["link", "--rtt", "20ms", "--rate", "100mbit"];
/// A command line that no other process has.
const MARK: &str = "987.654321";
const NAME: &str = "sleep-of-a-test";
const NAME_PATH: &[u8] = b"./sleep-of-a-test\0";

/// Counts the processes that have ended and wait for their parent.
fn zombies() -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    lines.filter(|line| line.contains(&format!("({NAME}) Z"))).count()
}

/// Counts the processes that sleep for [`MARK`] seconds.
fn marked() -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.starts_with(NAME_PATH) && line.windows(MARK.len()).any(|part| part == MARK.as_bytes())
        })
        .count()
}

#[test]
fn a_command_runs_at_the_near_end_and_its_exit_code_is_returned() {
    let place = Place::new();
    let script =
        "cat /proc/net/route; echo far=$ROPEWAY_FAR; test -e $ROPEWAY_FAR_NETNS && echo \"$1\"; exit 42";
    let run = place
        .ropeway("lab")
        .args(LINK)
        .args(["--", "sh", "-c", script, "sh", "--json"]);
    let finished = or_skip!(linked(run, 42));
    for part in ["ropeway0", "far=198.18.0.2", "--json"] {
        assert!(finished.out.contains(part), "{finished}");
    }
    assert!(
        finished.err.contains("queue 244.1 KiB"),
        "the queue is shown: {finished}"
    );
    let run = place
        .ropeway("lab")
        .args(LINK)
        .args(["-q", "--", "sh", "-c", "kill -9 $$"]);
    let finished = or_skip!(linked(run, 137));
    assert!(finished.err.is_empty(), "{finished}");
    or_skip!(linked(
        place.ropeway("lab").args(LINK).args(["--", "./nothing"]),
        127
    ));
}

#[test]
fn delays_and_cuts_are_shown() {
    let place = Place::new();
    let run = place
        .ropeway("lab")
        .args(["link", "--up-delay", "5ms", "--down-delay", "15ms"]);
    let run = run.args([
        "--rate",
        "100mbit",
        "--cut-at",
        "30s",
        "--cut-for",
        "2s",
        "--",
        "true",
    ]);
    let finished = or_skip!(linked(run, 0));
    for part in ["round trip 20ms (5ms up, 15ms down)", "cut after 30s for 2s"] {
        assert!(finished.err.contains(part), "{finished}");
    }
}

#[test]
fn a_command_that_is_terminated_leaves_nothing() {
    let place = Place::new();
    or_skip!(linked(place.ropeway("lab").args(LINK).args(["--", "true"]), 0));
    let script = format!(
        "cp $(command -v sleep) {NAME}; nsenter --net=$ROPEWAY_FAR_NETNS ./{NAME} {MARK} & ./{NAME} {MARK} & \
         touch ready; wait; sleep {MARK}"
    );
    let running = place
        .ropeway("lab")
        .args(LINK)
        .args(["--", "sh", "-c", &script])
        .start();
    for _ in 0..500 {
        if place.join("ready").exists() && marked() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(marked() >= 2);
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[143]);
    assert_eq!((marked(), zombies()), (0, 0), "{finished}");
}

#[test]
fn invalid_links_give_one_line_and_a_hint() {
    let place = Place::new();
    for (code, arguments) in [
        (1, &["link", "--rtt", "1ms", "--", "true"][..]),
        (1, &["link", "--rtt", "1ms", "--rate", "10M", "--", "true"]),
        (1, &["link", "--rtt", "1ms", "--rate", "1mbit"]),
        (
            1,
            &[
                "link",
                "--rtt",
                "1ms",
                "--rate",
                "1mbit",
                "--cut-for",
                "1s",
                "--",
                "true",
            ],
        ),
        (
            1,
            &[
                "link", "--rtt", "1ms", "--rate", "1mbit", "--queue", "5", "--", "true",
            ],
        ),
        (
            1,
            &[
                "link", "--rtt", "1ms", "--rate", "1mbit", "--jitter", "1s", "--", "true",
            ],
        ),
        (
            1,
            &[
                "link", "--rtt", "1ms", "--rate", "1mbit", "--loss", "1%", "--relay", "9:10", "--", "true",
            ],
        ),
        (1, &["link", "--up-delay", "1ms", "--rate", "1mbit", "--", "true"]),
        (
            1,
            &[
                "link",
                "--rtt",
                "2ms",
                "--up-delay",
                "1ms",
                "--down-delay",
                "1ms",
                "--rate",
                "1mbit",
                "--",
                "true",
            ],
        ),
        (1, &["link", "--rtt", "1ms", "--rate", "1mbit", "check"]),
        (1, &["link", "check", "--down-delay", "1ms"]),
        (1, &["link", "floor"]),
        (1, &["frobnicate"]),
    ] {
        let finished = place.ropeway("lab").args(arguments).exits(code);
        let lines: Vec<&str> = finished.err.lines().collect();
        assert!(
            lines.len() == 2 && lines[1].trim_start().starts_with("hint:"),
            "{finished}"
        );
    }
}

#[test]
fn subcommands_have_configuration_tables() {
    let place = Place::new();
    text(&place.config_file(), "[lab.link]\nrtt = \"30ms\"\nmtu = 70\n");
    let run = || {
        place
            .ropeway("lab")
            .args(["link", "--rate", "1mbit", "--", "true"])
    };
    let finished = run().exits(1);
    assert!(finished.mentions("MTU"), "{finished}");
    let finished = run().env("ROPEWAY_MTU", "many").exits(1);
    assert!(finished.mentions("ROPEWAY_MTU"), "{finished}");
    text(&place.config_file(), "[lab.lonk]\nrtt = \"30ms\"\n");
    let finished = run().exits(1);
    assert!(finished.mentions("[lab.lonk] is not a command"), "{finished}");
}

#[test]
fn bare_tcp_is_measured() {
    let place = Place::new();
    let run = place
        .ropeway("lab")
        .args(["link", "floor", "--json", "--rtt", "10ms", "--rate", "200mbit"]);
    let finished = or_skip!(linked(run.args(["--bytes", "2MB", "--congestion", "reno"]), 0));
    let last = finished.json().pop().unwrap();
    let (line, best) = (
        last["line_seconds"].as_f64().unwrap(),
        last["best"]["seconds"].as_f64().unwrap(),
    );
    assert!((0.0849..0.0851).contains(&line), "{last}");
    // Plus six round trips.
    assert!(best > line + 0.06 && best < 1.0, "{last}");
}
