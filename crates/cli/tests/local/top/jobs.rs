//! Jobs that are watched, paused, slowed down and cancelled.

use std::fs;
use std::io::BufRead;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Place, file, same, small_files, wait_until};
use crate::top::{MIB, PATIENCE, View, slow_copy, socket};

#[test]
fn a_copy_is_watched_paused_resumed_and_sped_up() {
    let place = Place::new();
    let mut running = slow_copy(&place);
    let mut view = View::open(&place, running.id());
    let job = view.until("it reads", |job| {
        job["counters"]["bytes_read"].as_u64() > Some(MIB)
    });
    assert_eq!(
        (&job["kind"], &job["phase"]),
        (&json!("copy"), &json!("copying")),
        "{job}"
    );
    assert_eq!(
        (&job["bwlimit"], &job["bwlimit_bytes_per_s"]),
        (&json!("1M"), &json!(MIB)),
        "{job}"
    );
    assert!(job["sources"][0].as_str().unwrap().ends_with("/big"), "{job}");
    let cache = view.snapshot()["page_cache"].take();
    assert!(
        cache["limit_bytes"].as_u64() > Some(0) && cache["writers"].is_string(),
        "{cache}"
    );
    let process = view.snapshot()["process"].take();
    assert_eq!(
        (&process["pid"], &process["command"]),
        (&json!(running.id()), &json!("copy")),
        "{process}"
    );

    view.order(json!({"do": "pause"}));
    view.order(json!({"do": "pause"}));
    assert_eq!(view.job()["paused"], true);
    let read = view.rests();
    assert!(read < 64 * MIB, "it went on");
    running.signal(Signal::USR1);
    assert!(
        running.until(|running| running.stderr().contains("PAUSED")),
        "{}",
        running.stderr()
    );
    assert!(
        running.until(|running| running.stdout().contains("\"paused\":true")),
        "{}",
        running.stdout()
    );

    view.order(json!({"do": "resume"}));
    view.until("it goes on", |job| {
        job["counters"]["bytes_read"].as_u64() > Some(read)
    });
    let refused = view.ask(json!({"do": "bwlimit", "value": "fast"}));
    assert!(
        refused["error"].as_str().unwrap().contains("is not a bandwidth"),
        "{refused}"
    );
    view.order(json!({"do": "bwlimit", "value": "off"}));
    // It may have ended by now.
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(
        !socket(&place, process["pid"].as_u64().unwrap() as u32).exists(),
        "its socket is removed"
    );
    same(&place.join("big"), &place.join("target"));
}

#[test]
fn a_copy_is_cancelled_while_it_is_paused_and_can_be_resumed() {
    let place = Place::new();
    let running = slow_copy(&place);
    let mut view = View::open(&place, running.id());
    view.until("it reads", |job| {
        job["counters"]["bytes_read"].as_u64() > Some(MIB)
    });
    view.order(json!({"do": "pause"}));
    view.order(json!({"do": "cancel"}));
    running.wait().assert_code(&[130]);
    assert!(!place.join("target").exists());
    place.copy("big", "target").ok();
    same(&place.join("big"), &place.join("target"));
}

/// A copy without --bwlimit takes the ways inside one tree, which no decorator limits.
#[test]
fn a_copy_without_a_rate_gets_one() {
    let place = Place::in_memory();
    small_files(&place.folder("source"), 3000, 1);
    let running = place
        .copy("source", "target")
        .args(["--slow-target", "op=3ms"])
        .start();
    let mut view = View::open(&place, running.id());
    view.until("it copies", |job| {
        job["counters"]["files_done"].as_u64() > Some(10)
    });
    view.order(json!({"do": "bwlimit", "value": "2K"}));
    let job = view.until("it has a rate", |job| job["bwlimit"] == "2K");
    assert_eq!(job["bwlimit_bytes_per_s"], 2048, "{job}");
    view.order(json!({"do": "pause"}));
    view.rests();
    view.order(json!({"do": "bwlimit", "value": "off"}));
    assert_eq!(view.job()["bwlimit"], "");
    // What waited for the rate ends; nothing else begins.
    let read = view.rests();
    assert_eq!((view.job()["paused"].as_bool(), view.read()), (Some(true), read));
    view.order(json!({"do": "resume"}));
    running.wait().assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

#[test]
fn a_check_is_paused_and_has_no_rate() {
    let place = Place::in_memory();
    file(&place.folder("a").join("big"), 400 * MIB, 1);
    fs::hard_link(place.join("a/big"), place.folder("b").join("big")).unwrap();
    let running = place.ropeway("check").args(["-c", "--json", "a", "b"]).start();
    let mut view = View::open(&place, running.id());
    // It may be over before it is paused; then there is nothing to see.
    view.send(r#"{"do":"pause"}"#);
    let mut line = String::new();
    if view.0.read_line(&mut line).is_ok() && line.contains("\"ok\":true") {
        assert_eq!(view.job()["paused"], true);
        let refused = view.ask(json!({"do": "bwlimit", "value": "1M"}));
        assert!(
            refused["error"].as_str().unwrap().contains("no bandwidth limit"),
            "{refused}"
        );
        view.order(json!({"do": "resume"}));
    }
    // The folders have different times.
    running.wait().assert_code(&[7]);
}

#[test]
fn a_watch_gives_a_snapshot_each_interval_with_its_history() {
    let place = Place::new();
    let running = slow_copy(&place);
    let mut view = View::open(&place, running.id());
    view.until("there is a job", |job| job["id"].is_u64());
    view.send(r#"{"do":"watch","interval_ms":200}"#);
    for _ in 0..8 {
        let reply = view.receive();
        assert!(
            reply["ok"] == true && reply["snapshot"]["jobs"][0]["id"].is_u64(),
            "{reply}"
        );
    }
    // A second has passed, so there is a sample.
    let has_history = wait_until(PATIENCE, || {
        let reply = view.receive();
        let written = reply["snapshot"]["jobs"][0]["history"]["read"]
            .as_array()
            .cloned();
        written.is_some_and(|samples| !samples.is_empty())
    });
    assert!(has_history);
    view.send(r#"{"do":"cancel"}"#);
    running.wait().assert_code(&[130]);
}

/// The thread of the socket is the first to read the time zone then, for the timetable of the rate: it
/// had too small a stack for that.
#[test]
fn copies_are_watched_from_their_first_moment() {
    let place = Place::new();
    file(&place.join("small"), 4 * MIB, 1);
    let copies: Vec<_> = (0..8)
        .map(|number| {
            let target = format!("copy-{number}");
            let running = place.copy("small", target).args(["--bwlimit", "1M"]).start();
            let mut view = View::open(&place, running.id());
            view.send(r#"{"do":"watch","interval_ms":100}"#);
            (running, view)
        })
        .collect();
    for (running, _view) in copies {
        running.wait().assert_code(&[0]);
    }
}
