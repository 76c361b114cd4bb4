//! Other people's test suites of file systems on a mount: pjdfstest (POSIX semantics) and fsx
//! (random operations on one file). `cargo xtask ci` installs them below `target/interop`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Mounted, or_skip};

/// Tests of pjdfstest that fail on a mount, each with the reason. There is none.
const EXPECTED_FAILURES: [(&str, &str); 0] = [];

/// What pjdfstest may try. `rename_ctime`: the file systems of Linux change it. `naptime`: seconds in
/// which change times advance. A tick is 4 or 10 ms, but a busy host lets a virtual machine miss
/// some: 28 ms were seen.
const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.06
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// All operations that fsx can do on this kernel, in a file of a mebibyte.
const FSX: &str = "
flen = 1048576
[opsize]
max = 65536
[weights]
close_open = 1
invalidate = 1
truncate = 5
read = 10
write = 10
mapread = 5
mapwrite = 5
punch_hole = 2
copy_file_range = 2
fsync = 1
fdatasync = 1
posix_fallocate = 1
sendfile = 1
";

/// Operations of fsx for each seed.
const OPERATIONS: &str = "5000";

/// Returns a program that `cargo xtask ci` installs.
fn suite(name: &str) -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(target, PathBuf::from);
    let program = target.join("interop/bin").join(name);
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("{name} is not installed: cargo xtask ci --only tools")),
    }
}

#[test]
fn pjdfstest_passes() {
    let program = or_skip!(suite("pjdfstest"));
    let mount = or_skip!(Mounted::new(&["--allow-other", "-o", "suid,dev"]));
    // Other users must reach it.
    fs::set_permissions(mount.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let configuration = mount.place.join("pjdfstest.toml");
    fs::write(&configuration, PJDFSTEST).unwrap();
    let mut run = Command::new(program);
    run.arg("-c").arg(configuration).arg("-p").arg(mount.at(""));
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split_once(' '));
    let failed: Vec<_> = names
        .filter(|(_, result)| result.trim().eq_ignore_ascii_case("failed"))
        .map(|(name, _)| name)
        .filter(|name| !EXPECTED_FAILURES.iter().any(|(known, _)| known == name))
        .collect();
    assert!(failed.is_empty(), "{failed:?}\n{text}");
    let summary = text
        .lines()
        .find(|line| line.starts_with("Summary:"))
        .unwrap_or_default();
    assert!(summary.starts_with("Summary: 0 failed"), "{text}\n{output:?}");
    println!("{summary}");
}

#[test]
fn fsx_finds_no_wrong_byte() {
    let program = or_skip!(suite("fsx"));
    for (seed, flags) in [("1", &[][..]), ("2", &[]), ("3", &["-o", "nopassthrough"])] {
        let mut mount = or_skip!(Mounted::new(flags));
        let configuration = mount.place.join("fsx.toml");
        fs::write(&configuration, FSX).unwrap();
        let mut run = Command::new(&program);
        run.arg("-f")
            .arg(&configuration)
            .args(["-q", "-N", OPERATIONS, "-S", seed, "-P"]);
        run.arg(mount.place.path()).arg(mount.at(format!("file-{seed}")));
        let output = run.output().unwrap();
        assert!(output.status.success(), "seed {seed}: {output:?}");
        mount.unmount();
    }
}
