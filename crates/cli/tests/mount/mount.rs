//! `ropeway mount` with the real binary and kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    self, Mounted, Place, can_mount, detach, is_mounted, one_line_and_a_hint, or_skip, patterned, skip,
};
use rustix::process::{Pid, Signal, kill_process};

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn files_are_used_through_the_mount() {
    let finished = or_skip!(use_files(&[]));
    // The kernel may have written some to the disk by itself.
    assert!(finished.out.contains(": flushed "), "{finished}");
    let finished = or_skip!(use_files(&["-o", "nopassthrough"]));
    assert!(finished.out.contains("flushed 2.9 MiB"), "{finished}");
}

fn use_files(flags: &[&str]) -> Result<support::Finished, String> {
    let mut mount = Mounted::new(flags)?;
    fs::create_dir(mount.at("dir")).unwrap();
    patterned(&mount.at("dir/file"), 3_000_000);
    assert_eq!(
        fs::read(mount.at("dir/file")).unwrap(),
        fs::read(mount.behind("dir/file")).unwrap()
    );
    symlink("dir/file", mount.at("link")).unwrap();
    assert_eq!(fs::read(mount.at("link")).unwrap().len(), 3_000_000);
    fs::hard_link(mount.at("dir/file"), mount.at("hard")).unwrap();
    let (one, other) = (
        fs::metadata(mount.at("hard")).unwrap(),
        fs::metadata(mount.at("dir/file")).unwrap(),
    );
    assert_eq!((one.ino(), one.nlink()), (other.ino(), 2));
    fs::set_permissions(mount.at("hard"), fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(mount.at("hard"), Some(12), Some(34)).unwrap();
    let changed = fs::metadata(mount.behind("hard")).unwrap();
    // A change of owner takes the set-user-id bit away.
    assert_eq!(
        (changed.mode() & 0o7777, changed.uid(), changed.gid()),
        (0o751, 12, 34)
    );
    fs::rename(mount.at("dir"), mount.at("renamed")).unwrap();
    let names: Vec<_> = fs::read_dir(mount.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3);
    assert_eq!(
        fs::remove_dir(mount.at("renamed")).unwrap_err().raw_os_error(),
        Some(39)
    );
    // What changes behind the mount is seen within a second.
    fs::write(mount.behind("hard"), b"short").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(fs::read(mount.at("hard")).unwrap(), b"short");
    let finished = mount.unmount();
    assert!(!is_mounted(&mount.at("")));
    Ok(finished)
}

#[test]
fn ten_thousand_names_are_listed_once() {
    let mount = or_skip!(Mounted::new(&[]));
    for index in 0..10_000 {
        File::create(mount.behind(format!("a-rather-long-name-{index}"))).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(mount.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 10_000);
    // Removal while listing, as rm -r does.
    for entry in fs::read_dir(mount.at("")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::read_dir(mount.behind("")).unwrap().count(), 0);
}

#[test]
fn open_files_outlive_their_names() {
    let mount = or_skip!(Mounted::new(&[]));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.at("a"))
        .unwrap();
    file.write_all(b"one").unwrap();
    fs::remove_file(mount.at("a")).unwrap();
    file.write_all(b"two").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("onetwo", 0));
    file.set_len(1).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1);
    // The same for a file that a rename replaces.
    fs::write(mount.at("b"), b"old").unwrap();
    let old = File::open(mount.at("b")).unwrap();
    fs::write(mount.at("c"), b"new").unwrap();
    fs::rename(mount.at("c"), mount.at("b")).unwrap();
    let mut buffer = [0; 3];
    old.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(
        (&buffer, fs::read(mount.at("b")).unwrap().as_slice()),
        (b"old", &b"new"[..])
    );
}

#[test]
fn a_killed_process_leaves_no_mount() {
    let mut mount = or_skip!(Mounted::new(&["-o", "nopassthrough"]));
    fs::write(mount.at("a"), b"text").unwrap();
    let open = File::open(mount.at("a")).unwrap();
    let point = mount.at("");
    mount.running.take().unwrap().kill();
    wait_for("the mount stayed", || !is_mounted(&point));
    assert!(open.read_exact_at(&mut [0], 0).is_err());
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"text");
    fs::read_dir(point).unwrap();
}

#[test]
fn sigterm_flushes_and_says_how_much() {
    let mut mount = or_skip!(Mounted::new(&["-o", "nopassthrough"]));
    fs::write(mount.at("a"), vec![1; 1 << 20]).unwrap();
    let point = mount.at("");
    let running = mount.running.take().unwrap();
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(finished.out.contains("flushed 1.0 MiB"), "{finished}");
    assert!(!is_mounted(&point));
    // With an open file the mount is detached; the file gives errors from then on.
    let mut mount = or_skip!(Mounted::new(&["-o", "nopassthrough"]));
    let mut open = File::create(mount.at("a")).unwrap();
    open.write_all(b"text").unwrap();
    let point = mount.at("");
    let running = mount.running.take().unwrap();
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(
        finished.out.contains("open files: 1") && finished.out.contains("flushed 4 B"),
        "{finished}"
    );
    assert!(!is_mounted(&point) && open.write_all(b"more").is_err());
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"text");
}

/// Whether the kernel can read and write local files by itself (FUSE_PASSTHROUGH).
fn can_pass_through() -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version >= (6, 9) && rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err("passing through needs root and Linux 6.9".to_owned()),
    }
}

#[test]
fn files_pass_through_and_stay_the_same_for_all() {
    or_skip!(can_pass_through());
    let mut mount = or_skip!(Mounted::new(&["-o", "suid"]));
    let mut open = File::create(mount.at("a")).unwrap();
    open.write_all(b"text").unwrap();
    // Both sides see the same bytes at once, also what is written behind the mount.
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"text");
    let behind = OpenOptions::new().write(true).open(mount.behind("a")).unwrap();
    behind.write_at(b"N", 0).unwrap();
    assert_eq!(fs::read(mount.at("a")).unwrap(), b"Next");
    let mut appending = OpenOptions::new().append(true).open(mount.at("a")).unwrap();
    appending.write_all(b" one").unwrap();
    assert_eq!(fs::metadata(mount.at("a")).unwrap().len(), 8);
    open.set_len(4).unwrap();
    appending.write_all(b"!").unwrap();
    assert_eq!(fs::read(mount.at("a")).unwrap(), b"Next!");
    // A write takes the set-user-id bit away, though the serving process may keep it.
    fs::set_permissions(mount.at("a"), fs::Permissions::from_mode(0o4755)).unwrap();
    appending.write_all(b"!").unwrap();
    assert_eq!(fs::metadata(mount.behind("a")).unwrap().mode() & 0o7777, 0o755);
    // The kernel needs nobody to go on.
    let running = mount.running.take().unwrap();
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(finished.out.contains("open files: 2"), "{finished}");
    appending.write_all(b"!").unwrap();
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"Next!!!");
}

#[test]
fn read_only_allows_no_change() {
    let place = Place::new();
    place.folder("source");
    support::text(&place.join("source/file"), "content");
    let mount = or_skip!(Mounted::of(place, &["--read-only"]));
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"content");
    assert_eq!(
        fs::write(mount.at("file"), b"").unwrap_err().raw_os_error(),
        Some(30)
    );
    assert_eq!(
        fs::create_dir(mount.at("dir")).unwrap_err().raw_os_error(),
        Some(30)
    );
}

#[test]
fn owner_and_mode_can_be_shown_otherwise() {
    let place = Place::new();
    place.folder("source");
    support::text(&place.join("source/file"), "content");
    let flags = ["--uid", "1000", "-o", "gid=1001,umask=077,threads=2,noatime"];
    let mount = or_skip!(Mounted::of(place, &flags));
    let seen = fs::metadata(mount.at("file")).unwrap();
    assert_eq!((seen.uid(), seen.gid(), seen.mode() & 0o777), (1000, 1001, 0o600));
    std::os::unix::fs::chown(mount.at("file"), Some(1000), None).unwrap();
    assert!(std::os::unix::fs::chown(mount.at("file"), Some(1), None).is_err());
    fs::write(mount.at("new"), b"").unwrap();
    assert_eq!(fs::metadata(mount.behind("new")).unwrap().uid(), 0);
}

/// Other users have their own rights, and own what they make.
#[test]
fn other_users_use_it_if_allowed() {
    for allowed in [false, true] {
        let flags: &[&str] = if allowed { &["--allow-other"] } else { &[] };
        let mount = or_skip!(Mounted::new(flags));
        fs::set_permissions(mount.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(mount.behind("free")).unwrap();
        fs::set_permissions(mount.behind("free"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(mount.behind("free/secret"), b"x").unwrap();
        fs::set_permissions(mount.behind("free/secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let as_nobody = |script: &str| {
            let mut shell = Command::new("setpriv");
            shell.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-c",
                script,
            ]);
            shell
                .current_dir("/")
                .env("M", mount.at(""))
                .stderr(Stdio::null());
            shell.status().map(|status| status.success())
        };
        let Ok(made) = as_nobody("umask 027; echo x > $M/free/made") else {
            skip!("there is no setpriv");
        };
        assert_eq!(made, allowed);
        if !allowed {
            continue;
        }
        let made = fs::metadata(mount.behind("free/made")).unwrap();
        assert_eq!(
            (made.uid(), made.gid(), made.mode() & 0o777),
            (65534, 65534, 0o640)
        );
        assert!(!as_nobody("cat $M/free/secret").unwrap());
        assert!(!as_nobody("rm -f $M/free/secret; test ! -e $M/free/secret").unwrap());
        assert!(as_nobody("chmod 600 $M/free/made && rm $M/free/made").unwrap());
    }
}

#[test]
fn thirty_two_threads_work_at_once() {
    let mut mount = or_skip!(Mounted::new(&[]));
    let root = mount.at("");
    for name in ["moving/inner", "dir-0", "dir-1", "dir-2"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("moving/inner/file"), vec![7; 100_000]).unwrap();
    let work = |thread: u8| {
        // A file in a folder that is renamed meanwhile stays usable.
        let file =
            File::open(root.join("moving/inner/file")).or_else(|_| File::open(root.join("moved/inner/file")));
        let own = root.join(format!("dir-{}", thread % 3));
        for round in 0..40_u8 {
            let (one, two) = (own.join(format!("{thread}-a")), own.join(format!("{thread}-b")));
            let content = vec![thread ^ round; 10_000 + usize::from(round) * 1000];
            fs::write(&one, &content).unwrap();
            fs::rename(&one, &two).unwrap();
            assert_eq!(fs::read(&two).unwrap(), content);
            fs::remove_file(&two).unwrap();
            if let Ok(file) = &file {
                assert_eq!(file.metadata().unwrap().len(), 100_000);
                let mut buffer = [0; 1000];
                file.read_exact_at(&mut buffer, u64::from(round) * 1000).unwrap();
                assert_eq!(buffer, [7; 1000]);
            }
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        for thread in 0..31 {
            scope.spawn(move || work(thread));
        }
        for _ in 0..100 {
            fs::rename(root.join("moving"), root.join("moved")).unwrap();
            fs::rename(root.join("moved"), root.join("moving")).unwrap();
        }
    });
    assert_eq!(fs::read_dir(mount.behind("dir-1")).unwrap().count(), 0);
    mount.unmount();
}

#[test]
fn locks_exclude_wait_and_can_be_interrupted() {
    let mount = or_skip!(Mounted::new(&[]));
    let python = |code: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", code]).current_dir(mount.at(""));
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        python.spawn()
    };
    fs::write(mount.at("f"), b"").unwrap();
    let hold = "import fcntl,sys\nf=open('f','r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\n";
    let Ok(mut holder) = python(&format!("{hold}sys.stdin.read()")) else {
        skip!("there is no python3");
    };
    let mut line = [0; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    // A program behind the mount sees the lock.
    let behind = format!(
        "import fcntl\nf=open({:?},'r+')\nfcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)",
        mount.behind("f")
    );
    assert!(
        !Command::new("python3")
            .args(["-c", &behind])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let mut waiter = python(hold).unwrap();
    let mut second = python(hold).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert!(waiter.try_wait().unwrap().is_none());
    kill_process(Pid::from_child(&waiter), Signal::TERM).unwrap();
    let start = Instant::now();
    assert!(!waiter.wait().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(5));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(second.wait().unwrap().success());
}

#[test]
fn wrong_mount_points_get_one_line() {
    or_skip!(can_mount());
    let place = Place::new();
    place.folder("source/inner");
    place.folder("full");
    support::text(&place.join("full/file"), "x");
    place.folder("empty");
    let refused = |code: i32, arguments: &[&str]| {
        let finished = place.ropeway("mount").args(arguments).exits(code);
        one_line_and_a_hint(&finished);
        finished
    };
    assert!(refused(4, &["source", "none"]).mentions("mkdir"));
    assert!(refused(8, &["source", "full"]).mentions("nonempty"));
    assert!(refused(8, &["source", "/proc"]).mentions("umount"));
    assert!(refused(8, &["source", "source/inner"]).mentions("inside"));
    refused(1, &["source", "empty", "-o", "nonsense"]);
    refused(1, &["smb://host/share", "empty"]);
    place.ropeway("mount").args(["source", "full/file"]).exits(4);
    place.ropeway("mount").args(["none", "empty"]).exits(3);
    // In the background: files can be used when the command returns.
    place.ropeway("mount").args(["source", "empty"]).ok();
    assert!(place.join("empty/inner").is_dir());
    assert!(refused(8, &["source", "empty"]).mentions("umount"));
    Command::new("umount").arg(place.join("empty")).status().unwrap();
    wait_for("it stayed mounted", || !is_mounted(&place.join("empty")));
    place
        .ropeway("mount")
        .args(["source", "full", "-o", "nonempty"])
        .ok();
    assert!(place.join("full/inner").is_dir());
    detach(&place.join("full"));
    // The root of the mount may be the source itself.
    place
        .ropeway("mount")
        .args(["source", "source", "-o", "nonempty"])
        .ok();
    fs::write(place.join("source/inner/file"), b"text").unwrap();
    detach(&place.join("source"));
    assert_eq!(fs::read(place.join("source/inner/file")).unwrap(), b"text");
}

/// A dead mount whose guard is dead too.
#[test]
fn a_stale_mount_is_named_as_such() {
    let mut mount = or_skip!(Mounted::new(&[]));
    let point = mount.at("");
    let pattern = format!("ropeway-mount-guard {}", mount.place.join("mnt").display());
    let mut guards = Command::new("pgrep");
    guards.args(["-f", &pattern]);
    let Ok(found) = guards.output() else {
        skip!("there is no pgrep");
    };
    for pid in String::from_utf8(found.stdout).unwrap().split_whitespace() {
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    mount.running.take().unwrap().kill();
    assert!(is_mounted(&point));
    assert_eq!(fs::metadata(&point).unwrap_err().raw_os_error(), Some(107));
    let finished = mount.place.ropeway("mount").args(["source", "mnt"]).exits(4);
    one_line_and_a_hint(&finished);
    assert!(finished.mentions("fusermount3 -u"), "{finished}");
    detach(&point);
    assert!(!is_mounted(&point));
}

/// As mount(8) and fstab call it.
#[test]
fn mount_calls_the_helper() {
    or_skip!(can_mount());
    let place = Place::new();
    place.folder("source/inner");
    place.folder("mnt");
    let helper = place.join("mount.fuse.ropeway");
    symlink(support::binary(), &helper).unwrap();
    let mut call = Command::new(&helper);
    call.arg(place.join("source")).arg(place.join("mnt")).args([
        "-n",
        "-o",
        "ro,_netdev",
        "-t",
        "fuse.ropeway",
    ]);
    assert!(call.status().unwrap().success());
    assert!(place.join("mnt/inner").is_dir());
    let lines = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = place.join("mnt").display().to_string();
    let line = lines.lines().find(|line| line.contains(&point)).unwrap();
    assert!(
        line.contains(" - fuse.ropeway ") && line.contains(" ro,"),
        "{line}"
    );
    detach(&place.join("mnt"));
}

/// systemd hears when files can be used, and when the mount ends.
#[test]
fn systemd_is_told() {
    or_skip!(can_mount());
    let place = Place::new();
    place.folder("source");
    place.folder("mnt");
    let socket = std::os::unix::net::UnixDatagram::bind(place.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let run = place.ropeway("mount").args(["--foreground", "source", "mnt"]);
    let running = run.env("NOTIFY_SOCKET", place.join("notify")).start();
    let mut buffer = [0; 100];
    let count = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"READY=1");
    assert!(is_mounted(&place.join("mnt")));
    running.signal(Signal::TERM);
    let count = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"STOPPING=1");
    running.wait().assert_code(&[0]);
}

/// The kernel gives the device number of a mount to the next one, and the process of the first one
/// ends only when everything is durable.
#[test]
fn a_new_mount_survives_the_end_of_the_last_one() {
    let mut mount = or_skip!(Mounted::new(&[]));
    for _ in 0..5 {
        let old = mount.running.take().unwrap();
        support::unmount(&mount.at(""));
        let run = mount.place.ropeway("mount").arg("--foreground");
        let mut new = run.args(["source", "mnt"]).start();
        let is_up = new.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", new.stdout(), new.stderr());
        old.wait().assert_code(&[0]);
        // The guard of the old mount acts after the process.
        std::thread::sleep(Duration::from_millis(100));
        assert!(is_mounted(&mount.at("")));
        fs::write(mount.at("file"), b"x").unwrap();
        mount.running = Some(new);
    }
    mount.unmount();
}
