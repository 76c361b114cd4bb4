//! How recordings of running processes end.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{MECHANISMS, operations};
use crate::support::{Place, Running, or_skip, text};

/// A program that reads a file again and again; ended on drop.
pub(crate) struct Busy(pub(crate) Child);

impl Busy {
    pub(crate) fn start(place: &Place) -> Self {
        text(&place.join("read again"), "content");
        let script = "while :; do cat 'read again' >/dev/null; read line < 'read again'; done";
        let child = Command::new("sh")
            .args(["-c", script])
            .current_dir(place.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a process, and waits until some of it is kept. An error says why it cannot be recorded.
fn recording(place: &Place, busy: &Busy, flags: &[&str]) -> Result<Running, String> {
    let trace = place.ropeway("trace").args(flags);
    let mut trace = trace.args(["-o", "trace", "--pid", &busy.id()]).start();
    // The writer hands lines over once a second.
    let is_recorded = |_: &_| fs::metadata(place.join("trace")).is_ok_and(|found| found.len() > 2000);
    match trace.until(is_recorded) {
        true => Ok(trace),
        false => Err(trace.wait().err.trim().to_owned()),
    }
}

#[test]
fn a_recording_ends_with_its_process() {
    let place = Place::new();
    for how in MECHANISMS {
        let mut busy = Busy::start(&place);
        let trace = match recording(&place, &busy, &["--with", how]) {
            Ok(trace) => trace,
            Err(why) => {
                assert!(why.contains("cannot record other programs"), "{why}");
                println!("skipped: {how}: {why}");
                continue;
            }
        };
        // Nobody waits for its end before the recording has seen it.
        busy.0.kill().unwrap();
        let finished = trace.wait();
        finished.assert_code(&[0]);
        assert!(!operations(&place, "trace").is_empty());
        fs::remove_file(place.join("trace")).unwrap();
    }
}

#[test]
fn a_signal_ends_the_recording_and_not_the_process() {
    let place = Place::new();
    let mut busy = Busy::start(&place);
    let trace = or_skip!(recording(&place, &busy, &[]));
    trace.signal(Signal::INT);
    trace.wait().assert_code(&[0]);
    assert!(busy.0.try_wait().unwrap().is_none());
    let shown = place.ropeway("trace").args(["-s", "trace"]).ok();
    assert!(!shown.mentions("truncated"), "{shown}");
}

#[test]
fn a_recording_that_is_killed_can_be_read_and_the_process_goes_on() {
    for how in MECHANISMS {
        let place = Place::new();
        let mut busy = Busy::start(&place);
        match recording(&place, &busy, &["--with", how]) {
            Ok(trace) => trace.kill(),
            Err(why) => {
                println!("skipped: {how}: {why}");
                continue;
            }
        };
        let shown = place.ropeway("trace").args(["-s", "trace"]).ok();
        assert!(shown.mentions("truncated"), "{how}: {shown}");
        assert!(busy.0.try_wait().unwrap().is_none(), "{how}: it goes on");
        // Nobody traces it any more.
        let again = place
            .ropeway("trace")
            .args(["--with", how, "--pid", &busy.id(), "--for", "100ms"]);
        again.ok();
    }
}
