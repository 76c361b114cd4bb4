//! `ropeway mount` of a share, with the real binary and kernel, over our own server.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Running, Served, can_mount, detach, is_mounted, or_skip, patterned};

/// A mounted share. The mount goes before its server.
struct MountedShare {
    running: Option<Running>,
    served: Served,
}

impl MountedShare {
    fn new(flags: &[&str]) -> Result<Self, String> {
        can_mount()?;
        let served = Served::start(&[]);
        fs::create_dir(served.place.join("mnt")).unwrap();
        let mut running = served
            .run("mount")
            .arg("--foreground")
            .args(flags)
            .args([served.url(""), "mnt".to_owned()])
            .start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        Ok(Self {
            running: Some(running),
            served,
        })
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.served.place.join("mnt").join(name)
    }

    fn unmount(&mut self) -> support::Finished {
        let status = Command::new("umount").arg(self.at("")).status().unwrap();
        assert!(status.success(), "umount: {status}");
        self.running.take().unwrap().wait()
    }
}

impl Drop for MountedShare {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
    }
}

#[test]
fn a_share_is_used_as_a_folder() {
    let mut mount = or_skip!(MountedShare::new(&[]));
    fs::create_dir_all(mount.at("a/b")).unwrap();
    patterned(&mount.at("a/b/file"), 5_000_000);
    assert_eq!(
        fs::read(mount.at("a/b/file")).unwrap(),
        fs::read(mount.served.behind("a/b/file")).unwrap(),
        "what a closed file has is on the server"
    );
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(mount.at("log"))
        .unwrap();
    for line in 0..100 {
        writeln!(log, "line {line}").unwrap();
    }
    log.sync_all().unwrap();
    assert_eq!(
        fs::read(mount.served.behind("log"))
            .unwrap()
            .split(|byte| *byte == b'\n')
            .count(),
        101
    );
    symlink("a/b/file", mount.at("link")).unwrap();
    assert_eq!(fs::read(mount.at("link")).unwrap().len(), 5_000_000);
    fs::rename(mount.at("a/b"), mount.at("c")).unwrap();
    assert!(!mount.at("a/b").exists() && mount.served.behind("c/file").exists());
    assert_eq!(
        fs::remove_dir(mount.at("c")).unwrap_err().raw_os_error(),
        Some(39)
    );
    let owner = fs::metadata(mount.at("c/file")).unwrap();
    assert_eq!(owner.uid(), rustix::process::geteuid().as_raw());
    // Without a close: the end of the mount flushes it.
    log.write_all(b"the end").unwrap();
    drop(log);
    let finished = mount.unmount();
    finished.assert_code(&[0]);
    assert!(finished.out.contains("unmounted"), "{finished}");
    assert!(
        fs::read(mount.served.behind("log"))
            .unwrap()
            .ends_with(b"the end")
    );
}

#[test]
fn the_mount_of_a_dead_server_gives_errors_and_can_be_left() {
    let mut mount = or_skip!(MountedShare::new(&["--timeout", "2s"]));
    fs::write(mount.at("file"), b"content").unwrap();
    mount.served.kill();
    let start = Instant::now();
    let error = fs::write(mount.at("another"), b"lost").unwrap_err();
    assert!(error.raw_os_error().is_some(), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let _ = mount.unmount();
    assert!(!is_mounted(&mount.at("")));
}

#[test]
fn a_share_that_cannot_be_opened_is_reported_and_not_mounted() {
    or_skip!(can_mount());
    let served = Served::start(&[]);
    fs::create_dir(served.place.join("mnt")).unwrap();
    let wrong = served
        .run("mount")
        .env("ROPEWAY_PASSWORD", "wrong")
        .args([served.url(""), "mnt".to_owned()])
        .exits(5);
    assert!(wrong.mentions("log"), "{wrong}");
    let missing = served
        .run("mount")
        .args([served.url("").replace("/data/", "/none/"), "mnt".to_owned()])
        .exits(3);
    assert!(missing.mentions("none"), "{missing}");
    let folder = served
        .run("mount")
        .args([served.url("no/such"), "mnt".to_owned()])
        .exits(3);
    assert!(folder.mentions("no/such"), "{folder}");
    assert!(!is_mounted(&served.place.join("mnt")));
}
