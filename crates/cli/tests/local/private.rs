//! Privacy of a run: the password in its memory, and its files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use crate::support::{NOBODY, PASSWORD, Place, Run, Served, Watching, or_skip, patterned, walk};
use rustix::process::Signal;

/// A umask that removes no permissions.
const OPEN: [&str; 4] = ["sh", "-c", "umask 0; exec \"$@\"", "sh"];

/// Checks that nobody else can access anything below a folder.
#[track_caller]
fn is_private(root: &Path) {
    let mut seen = 0;
    for path in walk(root) {
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        seen += 1;
    }
    assert!(seen > 0, "nothing below {}", root.display());
}

#[test]
fn only_the_owner_can_access_logs_traces_and_state() {
    let place = Place::new();
    patterned(&place.folder("source").join("file"), 100_000);
    // The second run finds files that an older version created with its umask.
    for round in 0..2 {
        let target = place.join(format!("target{round}"));
        let kept = place.folder("kept");
        // The last source file is never read to its end, so the job's state stays.
        let run = place.ropeway_by(&OPEN, "copy").args(["--verify", "--fault"]);
        run.arg("source:read:contains=file,errno=EIO")
            .args(["--log", "kept/log", "--trace", "kept/trace"])
            .args([&place.join("source"), &target])
            .exits(2);
        is_private(&kept);
        let jobs = place.jobs();
        is_private(&place.join(".state"));
        assert_eq!(
            fs::metadata(&jobs).unwrap().permissions().mode() & 0o777,
            0o700,
            "the folder itself"
        );
        for path in walk(&jobs).into_iter().chain([jobs.clone()]) {
            let wide = if path.is_dir() { 0o755 } else { 0o644 };
            fs::set_permissions(&path, Permissions::from_mode(wide)).unwrap();
        }
        fs::remove_dir_all(&kept).unwrap();
    }
}

/// Searches all writable memory of a process except its first stack page; root may read it.
fn memory_holds(id: u32, wanted: &[&[u8]]) -> Option<String> {
    let memory = File::open(format!("/proc/{id}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let mut bytes = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (from, to) = (number(from), number(to));
        if !rights.starts_with("rw") {
            continue;
        }
        bytes.resize(usize::try_from(to - from).unwrap(), 0);
        // Guard pages and the kernel's own pages cannot be read.
        let Ok(count) = memory.read_at(&mut bytes, from) else {
            continue;
        };
        for wanted in wanted {
            if bytes[..count].windows(wanted.len()).any(|there| there == *wanted) {
                return Some(line.to_owned());
            }
        }
    }
    None
}

/// Starts a copy from a share as an ordinary user, waiting for changes.
fn waiting(served: &Served, secret: &str) -> Result<(Watching, u32), String> {
    let target = served.place.folder_of_nobody("near");
    let credentials = target.join("credentials");
    fs::write(&credentials, format!("username=ann\npassword={secret}\n")).unwrap();
    fs::set_permissions(&credentials, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&credentials, Some(NOBODY), Some(NOBODY)).unwrap();
    let run: Run = served.place.ropeway_as_nobody("copy")?;
    let run = run
        .arg("--credentials")
        .arg(&credentials)
        .arg(served.url("."))
        .arg(target.join("copy"));
    let watching = Watching::start(run);
    let id = watching.id();
    Ok((watching, id))
}

#[test]
fn a_password_is_wiped_once_it_is_hashed_and_memory_is_protected() {
    let served = Served::start(&[]);
    patterned(&served.behind("file"), 300_000);
    let (watching, id) = or_skip!(waiting(&served, PASSWORD));
    assert!(served.place.join("near/copy/file").exists());
    // The /proc files of a process that cannot be dumped belong to root (proc(5)).
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{id}/mem")).unwrap());
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size"));
    let cores: Vec<_> = cores
        .unwrap()
        .split_whitespace()
        .skip(4)
        .take(2)
        .map(str::to_owned)
        .collect();
    let wide: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let seen = memory_holds(id, &[PASSWORD.as_bytes(), &wide]);
    watching.end(Signal::INT);
    assert_eq!(seen, None, "the password is in its memory");
    assert_eq!(owner, 0, "it can be dumped");
    assert_eq!(cores, ["0", "0"], "core files");
}

#[test]
fn a_server_that_keeps_hashes_is_not_dumpable() {
    let place = Place::new();
    let run = or_skip!(place.ropeway_as_nobody("serve"));
    let share = place.folder_of_nobody("data");
    let secret = share.join("secret");
    fs::write(&secret, PASSWORD).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&secret, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut server = run
        .args(["--listen", "127.0.0.1:0", "--user", "ann", "--password-file"])
        .arg(&secret)
        .arg(format!("data={}", share.display()))
        .start();
    assert!(
        server.until(|server| server.stdout().contains("smb://")),
        "{}",
        server.stderr()
    );
    let owner =
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}/mem", server.id())).unwrap());
    let wide: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let seen = memory_holds(server.id(), &[PASSWORD.as_bytes(), &wide]);
    // The server reopens files through /proc/self/fd, which must still work without root.
    patterned(&place.folder("source").join("file"), 100_000);
    let said = server.stdout();
    let url = said
        .split_whitespace()
        .find(|word| word.starts_with("smb://"))
        .unwrap();
    for _ in 0..2 {
        let copy = place
            .ropeway("mirror")
            .args(["--yes", "source"])
            .arg(format!("{url}/copy"));
        copy.env("ROPEWAY_PASSWORD", PASSWORD).ok();
        fs::remove_file(place.join("source/file")).unwrap();
        patterned(&place.join("source/another"), 50_000);
        patterned(&place.join("source/file"), 200_000);
    }
    server.signal(Signal::TERM);
    server.wait().assert_code(&[0]);
    assert_eq!(owner, 0, "it can be dumped");
    assert_eq!(seen, None, "the password is in its memory");
}
