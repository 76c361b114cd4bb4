//! `ropeway mount` of a share, with the real binary and kernel, over our own server.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MountedShare, Place, Served, Volume, can_mount, is_mounted, or_skip, patterned};

#[test]
fn a_share_is_used_as_a_folder() {
    let mut mount = or_skip!(MountedShare::new(&["--allow-other"]));
    fs::set_permissions(mount.served.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
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
    let as_nobody = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"])
        .arg(mount.at("a/b"))
        .output();
    assert_eq!(as_nobody.unwrap().stdout, b"file\n", "other users may list it");
    fs::write(mount.at("program"), "#!/bin/sh\nexit 7\n").unwrap();
    let ran = Command::new(mount.at("program")).status().unwrap();
    assert_eq!(ran.code(), Some(7), "programs on a share can run");
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

/// Whoever closes the file first hears that a write has failed. That must not make fsync(2) of the
/// program that wrote say that all is well.
#[test]
fn a_lost_write_is_an_error_of_fsync_whoever_has_closed_the_file_before() {
    or_skip!(can_mount());
    let small = or_skip!(Volume::tmpfs(8));
    let served = Served::serving(Place::in_memory(), &small.root(), &[]);
    let mut mount = MountedShare::served(served, &[]);
    for how in ["another program", "a duplicate", "a child"] {
        let path = mount.at("file");
        let mut file = fs::File::create(&path).unwrap();
        let mut is_full = false;
        for _ in 0..24 {
            is_full |= file.write_all(&vec![1; 1 << 20]).is_err();
        }
        match how {
            "another program" => drop(fs::read(&path)),
            "a duplicate" => drop(file.try_clone().unwrap()),
            _ => {
                let held = Stdio::from(file.try_clone().unwrap());
                assert!(Command::new("true").stdin(held).status().unwrap().success());
            }
        }
        assert!(
            is_full || file.sync_all().is_err(),
            "{how}: the server has no room for it"
        );
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    mount.unmount();
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
