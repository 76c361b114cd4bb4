//! `ropeway dirty` as users run it, on devices that are slow, full, shared or in use.

/// Ends of `dirty drain`.
mod drain;
/// The laboratory's comparison with the truth.
mod lab;
/// File systems that share a disk, or lie upon others.
mod layers;
/// What the view shows, to whom, and for how long.
mod look;
/// What is called safe to unplug.
mod unplug;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::Finished;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Most attempts of [`look_while_dirty`].
const ATTEMPTS: usize = 30;

/// Returns the device number of a mount, `7:0`.
fn number(root: &Path) -> String {
    let device = fs::metadata(root).unwrap().dev();
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// A limit of the bytes that a volume's device takes in a second (cgroup v1); lifted on drop.
struct Throttle(String);

impl Throttle {
    const FILE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

    fn new(root: &Path, bytes_per_second: u64) -> Result<Self, String> {
        let throttle = Self(number(root));
        let set = fs::write(Self::FILE, format!("{} {bytes_per_second}", throttle.0));
        set.map_err(|error| format!("no throttle: {error}"))?;
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, format!("{} 0", self.0));
    }
}

/// Writes a file and leaves it in the page cache.
fn dirty_file(path: &Path, mib: u64) {
    let mut file = File::create(path).unwrap();
    for number in 0..mib {
        file.write_all(&vec![number as u8; MIB as usize]).unwrap();
    }
}

/// Writes a file and looks, again until the look is as wanted: sync(2) of another test writes everything
/// back at any time, and while other tests write much, a slow device is written to at once.
fn look_while_dirty(
    path: &Path,
    mib: u64,
    look: impl Fn() -> Finished,
    wanted: impl Fn(&Finished) -> bool,
) -> Finished {
    for _ in 0..ATTEMPTS {
        // A file that was truncated is written back when it is closed.
        let _ = fs::remove_file(path);
        dirty_file(path, mib);
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        thread::sleep(Duration::from_millis(300));
    }
    panic!("{} is never seen dirty: {}", path.display(), look());
}

/// Whether the first device of a look is owed nearly so much.
fn owes(seen: &Finished, mib: u64) -> bool {
    let own = &seen.summary()["devices"][0];
    backlog(own).abs_diff(mib * MIB) < 2 * MIB
}

/// Returns the reading of one device.
fn device<'a>(reading: &'a Value, bdi: &str) -> &'a Value {
    let devices = reading["devices"].as_array().unwrap();
    let found = devices.iter().find(|device| device["bdi"] == bdi);
    found.unwrap_or_else(|| panic!("no {bdi} in {reading}"))
}

fn backlog(of: &Value) -> u64 {
    of["dirty_bytes"].as_u64().unwrap() + of["writeback_bytes"].as_u64().unwrap()
}

/// A process that is killed on drop.
struct Holder(Child);

impl Holder {
    fn start(script: &str, path: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(path).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
