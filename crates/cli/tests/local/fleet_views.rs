//! `fleet status`, `top` and `page`: rates, time left, stragglers, failures; examples of deployment.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Running, file, needs, or_skip, small_files, text, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

fn worker(place: &Place) -> Running {
    place
        .ropeway("fleet")
        .args(["work", "dst", "--lease", "2s"])
        .start()
}

fn status(place: &Place) -> Value {
    let status = place.ropeway("fleet").args(["status", "dst", "--json"]).ok();
    status.of_type("fleet_status")[0].clone()
}

/// Waits until a status is like this.
#[track_caller]
fn becomes(place: &Place, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    assert!(
        wait_until(PATIENCE, || is(&status(place))),
        "{what} never came: {:#}",
        status(place)
    );
    status(place)
}

/// Sends a request; returns the whole reply.
fn get(address: &str, path: &str, host: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn rates_and_stragglers_are_shown_and_a_page_has_the_same() {
    let place = Place::new();
    file(&place.folder("src").join("big"), 40 << 20, 1);
    small_files(&place.join("src/small"), 50, 1);
    place
        .ropeway("fleet")
        .args(["submit", "--bwlimit", "2M", "src", "dst"])
        .ok();
    let nobody = status(&place);
    assert_eq!(nobody["eta_unknown"], "nobody_works", "{nobody:#}");
    let both = [worker(&place), worker(&place)];
    let rate = |status: &Value, of: &str| status["rates"][of].as_f64().unwrap();
    let seen = becomes(&place, "a rate", |status| rate(status, "written") > 100_000.0);
    assert!(rate(&seen, "read") > 100_000.0, "{seen:#}");
    assert_eq!((&seen["phase"], &seen["eta"]), (&"copying".into(), &Value::Null));
    let shown = place.ropeway("fleet").args(["status", "dst"]).ok();
    assert!(
        shown.mentions("2 workers") && shown.mentions("left     unknown"),
        "{shown}"
    );

    let page = place
        .ropeway("fleet")
        .args(["page", "dst", "--json", "--listen", "127.0.0.1:0"]);
    let mut page = page.start();
    assert!(page.until(|page| page.stdout().contains("http_url")));
    let told: Value = serde_json::from_str(page.stdout().lines().next().unwrap()).unwrap();
    let address = told["http"].as_str().unwrap();
    // Both stand still. Whoever holds a task is silent, and stays so, since nobody takes it.
    both.iter().for_each(|worker| worker.signal(Signal::STOP));
    let are_over = |status: &Value| {
        let mut workers = status["workers"].as_array().unwrap().iter();
        workers.all(|worker| worker["state"] == "silent" || worker["state"] == "gone")
    };
    let seen = becomes(&place, "two that stand still", are_over);
    let silent = seen["workers"].as_array().unwrap().iter();
    let silent: Vec<_> = silent.filter(|worker| worker["state"] == "silent").collect();
    assert!(!silent.is_empty(), "{seen:#}");
    assert_eq!(seen["stragglers"], silent.len(), "{seen:#}");
    assert!(silent[0]["silent_seconds"].as_f64().unwrap() > 2.0);
    assert!(wait_until(PATIENCE, || get(address, "/", address)
        .contains("no sign of life for")));
    let html = get(address, "/", address);
    assert!(
        html.contains("Content-Security-Policy") && html.contains("Workers"),
        "{html}"
    );
    assert!(get(address, "/", "evil.example").starts_with("HTTP/1.1 421 "));
    let json = get(address, "/snapshot.json", address);
    let (_, body) = json.split_once("\r\n\r\n").unwrap();
    let snapshot: Value = serde_json::from_str(body).unwrap();
    let fleet = &snapshot["fleets"][0];
    assert_eq!(
        (&fleet["phase"], &fleet["stragglers"]),
        (&"copying".into(), &silent.len().into()),
        "{fleet:#}"
    );
    both.iter().for_each(|worker| worker.signal(Signal::CONT));
    page.signal(Signal::INT);
    page.wait().assert_code(&[0]);
    for running in both {
        running.signal(Signal::INT);
        running.wait().assert_code(&[130]);
    }
}

#[test]
fn a_later_job_knows_about_how_much_there_is_and_top_prints_json() {
    let place = Place::new();
    small_files(&place.join("src"), 20, 1);
    for expected in [Value::Null, 20.into()] {
        place.ropeway("fleet").args(["submit", "src", "dst"]).ok();
        let before = status(&place);
        assert_eq!(before["expected"]["files"], expected, "{before:#}");
        place.ropeway("fleet").args(["work", "dst"]).ok();
    }
    let top = place.ropeway("fleet").args(["top", "dst", "--json"]).ok();
    assert_eq!(top.of_type("fleet_status")[0]["phase"], "complete", "{top}");
}

#[test]
fn the_unit_of_a_worker_is_valid() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/fleet/ropeway-fleet@.service");
    let content = fs::read_to_string(&unit).unwrap();
    or_skip!(needs(false, &["systemd-analyze"]));
    let place = Place::new();
    // The program and its user need not exist for this check.
    let here = content
        .replace("/usr/bin/ropeway", "/bin/true")
        .replace("=ropeway\n", "=root\n");
    let copy = place.join("ropeway-fleet@.service");
    text(&copy, &here);
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_it: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("ropeway-fleet"))
        .collect();
    assert!(about_it.is_empty(), "{said}");
}
