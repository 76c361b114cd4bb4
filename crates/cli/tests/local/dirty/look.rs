use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::dirty::{Holder, MIB, Throttle, dirty_file, number};
use crate::support::{Finished, Place, Volume, needs, or_skip};

/// Returns a number of /proc/vmstat in bytes.
fn vmstat(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line = lines.find(|words| words.clone().next() == Some(name)).unwrap();
    line.nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn one_look_has_the_kernels_figures_and_one_line() {
    let place = Place::new();
    let finished = place.ropeway("dirty").arg("--json").ok();
    let lines = finished.json();
    assert_eq!(lines.len(), 1, "{finished}");
    let machine = &lines[0]["machine"];
    assert_eq!(
        (&lines[0]["type"], &lines[0]["exit_code"]),
        (&"summary".into(), &0.into())
    );
    let limit = machine["limits"]["limit_bytes"].as_u64().unwrap();
    // It moves with free memory.
    assert!(
        limit.abs_diff(vmstat("nr_dirty_threshold")) < limit / 4,
        "{finished}"
    );
    assert!(machine["limits"]["held_from_bytes"].as_u64().unwrap() < limit);
    assert!(
        lines[0]["offenders"]["processes_seen"].as_u64() > Some(0),
        "{finished}"
    );
    let text = place.ropeway("dirty").ok();
    assert!(text.mentions("writers wait from"), "{text}");
    place.ropeway("dirty").arg("nowhere").exits(3);
    place.ropeway("dirty").args(["--watch", "5parsecs"]).exits(1);
    place.ropeway("dirty").args(["--count", "3"]).exits(1);
    place
        .ropeway("dirty")
        .args([".", "--watch", "elsewhere"])
        .exits(1);
}

#[test]
fn memory_is_never_written_back() {
    let volume = or_skip!(Volume::tmpfs(16));
    dirty_file(&volume.join("file"), 4);
    let place = Place::new();
    let shown = place.ropeway("dirty").arg(volume.root()).ok();
    assert!(shown.mentions("in memory only"), "{shown}");
    let drained = place
        .ropeway("dirty")
        .args(["drain", "--json"])
        .arg(volume.root())
        .ok();
    assert_eq!(drained.summary()["verdict"], "in_memory", "{drained}");
}

/// A limit of the dirty pages of a device; lifted on drop, since loop devices keep it.
struct Strict(PathBuf);

impl Strict {
    fn new(bdi: &str, bytes: u64) -> Result<Self, String> {
        let strict = Self(Path::new("/sys/class/bdi").join(bdi));
        let set = |name: &str, value: &str| fs::write(strict.0.join(name), value);
        set("strict_limit", "1")
            .and_then(|()| set("max_bytes", &bytes.to_string()))
            .map_err(|error| format!("no strict limits before Linux 6.2: {error}"))?;
        Ok(strict)
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("strict_limit"), "0");
        let _ = fs::write(self.0.join("max_ratio"), "100");
    }
}

/// The device takes less than the writer gives, and has its own limit.
#[test]
fn a_writer_that_is_held_is_named() {
    let volume = or_skip!(Volume::ext4(300));
    let bdi = number(&volume.root());
    let _throttle = or_skip!(Throttle::new(&volume.root(), 10_000_000));
    let _strict = or_skip!(Strict::new(&bdi, 12 * MIB));
    let place = Place::new();
    let writer = Holder::start(
        "exec dd if=/dev/zero of=\"$1\" bs=64k count=1600 status=none",
        &volume.join("file"),
    );
    let mut running = place
        .ropeway("dirty")
        .args(["--json", "--held", "--watch", "300ms"])
        .arg(volume.root())
        .start();
    let held = |line: &Value| {
        let own = &line["devices"][0];
        own["writers"]["state"] == "held" && own["own_limits"]["limit_bytes"].as_u64() <= Some(16 * MIB)
    };
    let lines = |text: &str| -> Vec<Value> {
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    let seen = running.until(|running| lines(&running.stdout()).iter().any(held));
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[130]);
    assert!(seen, "{finished}");
    let named = finished.json().iter().any(|line| {
        let processes = line["offenders"]["processes"].as_array().unwrap();
        processes
            .iter()
            .any(|process| process["pid"] == writer.0.id() && process["name"] == "dd")
    });
    assert!(named, "{finished}");
    let paused = finished
        .json()
        .iter()
        .any(|line| line["devices"][0]["writers"]["paused_ms"].as_u64() > Some(0));
    let without = finished.mentions("pauses of writers cannot be counted");
    assert!(paused || without, "{finished}");
    let instances = fs::read_dir("/sys/kernel/tracing/instances")
        .into_iter()
        .flatten()
        .flatten();
    let own = instances.filter(|entry| entry.file_name().to_string_lossy().starts_with("ropeway-dirty-"));
    assert_eq!(own.count(), 0);
}

#[test]
fn an_ordinary_user_gets_a_part_and_one_note() {
    let place = Place::new();
    let run = or_skip!(place.ropeway_as_nobody("dirty"));
    let finished = run.arg("--json").ok();
    let summary = finished.summary();
    let notes = summary["notes"].as_array().unwrap();
    assert!(
        notes.len() == 1 && notes[0].as_str().unwrap().starts_with("as root"),
        "{finished}"
    );
    assert!(summary["machine"]["dirty_bytes"].is_u64(), "{finished}");
    for device in summary["devices"].as_array().unwrap() {
        assert!(device["dirty_bytes"].is_null(), "{finished}");
    }
    assert!(
        summary["offenders"]["processes_hidden"].as_u64() > Some(0),
        "{finished}"
    );
    let own = place.folder_of_nobody("own");
    let run = or_skip!(place.ropeway_as_nobody("dirty"));
    let drained = run.args(["drain", "--json"]).arg(&own).ok();
    let flush = &drained.summary()["cache_flush"];
    assert!(
        flush == "file_system" || drained.summary()["verdict"] == "in_memory",
        "{drained}"
    );
    let refused = or_skip!(place.ropeway_as_nobody("dirty"));
    refused.args(["--held", "--json"]).ok();
}

/// Thousands of looks while processes come and go: the memory of the first hundred is enough.
#[test]
fn a_long_watch_keeps_its_memory_and_survives_dying_processes() {
    let place = Place::new();
    let churn = "while :; do (exec 9>\"$1/x$$\"; echo x >&9; true) & wait; done";
    let _churn = Holder::start(churn, &place.folder("churn"));
    let watch = |looks: &str| {
        place
            .ropeway("dirty")
            .args(["--json", "--watch", "10ms", "--count", looks])
            .ok()
    };
    let short = watch("50");
    let long = watch("500");
    assert_eq!((short.json().len(), long.json().len()), (50, 500));
    assert_eq!(long.summary()["exit_code"], 0);
    let grown = long.peak_kib().saturating_sub(short.peak_kib());
    assert!(
        grown < 4 * 1024,
        "{} KiB, then {} KiB",
        short.peak_kib(),
        long.peak_kib()
    );
}

#[test]
fn without_proc_nothing_is_said_to_be_clean() {
    or_skip!(needs(true, &["unshare"]));
    let place = Place::new();
    let hidden = [
        "unshare",
        "-m",
        "sh",
        "-c",
        "umount -l /proc && exec \"$@\"",
        "sh",
    ];
    let look = place.ropeway_by(&hidden, "dirty").exits(3);
    assert!(
        look.mentions("/proc/vmstat") && look.mentions("hint: mount /proc"),
        "{look}"
    );
    assert!(look.out.is_empty(), "{look}");
}

/// What is hidden costs its part of the answer, and a note says so.
#[test]
fn what_the_system_hides_is_missing_and_said() {
    or_skip!(needs(true, &["unshare", "setpriv"]));
    let place = Place::new();
    let hidden = |script: &str, flags: &[&str]| {
        let script = format!("{script} && exec \"$@\"");
        let run = place.ropeway_by(&["unshare", "-m", "sh", "-c", &script, "sh"], "dirty");
        run.args(flags).ok()
    };
    let notes = |finished: &Finished| finished.summary()["notes"].to_string();
    let sysfs = "mount -t tmpfs none /sys";
    let no_devices = hidden(sysfs, &["--json"]);
    let summary = no_devices.summary();
    assert!(summary["devices"].as_array().unwrap().is_empty(), "{no_devices}");
    assert!(summary["machine"]["dirty_bytes"].is_u64(), "{no_devices}");
    assert!(notes(&no_devices).contains("devices are unknown"), "{no_devices}");
    let watched = hidden(sysfs, &["--watch", "20ms", "--count", "3"]);
    assert!(
        watched.out.contains("note: devices are unknown") && !watched.mentions("every device is clean"),
        "{watched}"
    );
    let folder = place.folder("own");
    let drained = hidden(sysfs, &["drain", "--json", folder.to_str().unwrap()]);
    let how = &drained.summary()["cache_flush"];
    assert!(how != "device" && how != "remote", "{drained}");
    // Without the right to mount, what is not there cannot be had.
    let less = "mount -t tmpfs none /sys/kernel/debug && mount -t tmpfs none /sys/kernel/tracing \
        && set -- setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let no_debug = hidden(less, &["--json", "--held"]);
    for said in ["debugfs cannot be read", "pauses of writers cannot be counted"] {
        assert!(notes(&no_debug).contains(said), "{no_debug}");
    }
    let devices = no_debug.summary()["devices"].as_array().unwrap().clone();
    assert!(
        devices.iter().all(|device| device["dirty_bytes"].is_null()),
        "{no_debug}"
    );
}
