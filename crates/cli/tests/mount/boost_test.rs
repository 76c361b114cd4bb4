//! `ropeway boost test` with the real binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn ropeway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropeway"));
    command.args(["boost", "test"]).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// The build folder is on a disk; the folder for temporary files may be in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_BIN_EXE_ropeway")).parent().unwrap()).unwrap()
}

/// The verdict follows from the figures, whatever this machine's disk gives. The source is the same
/// disk, so it may win or lose.
#[test]
fn the_verdict_follows_from_the_figures_and_nothing_stays() {
    let (folder, source) = (on_disk(), on_disk());
    fs::create_dir(source.path().join("below")).unwrap();
    fs::write(source.path().join("below/large"), vec![7; 16 << 20]).unwrap();
    let mut command = ropeway();
    command
        .arg(folder.path())
        .arg("--json")
        .arg("--source")
        .arg(source.path());
    let (output, errors) = run(&mut command);
    if errors.contains("no direct I/O") {
        println!("skipped: the build folder's file system has no direct I/O");
        return;
    }
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    println!("{result}");
    let rate = |name: &str| result[name]["bytes_per_s"].as_f64().unwrap();
    let (reads, writes, of_source) = (rate("random_reads"), rate("random_writes"), rate("source_reads"));
    let mut expected = Vec::new();
    expected.extend((reads <= 2.5e6).then_some("slow-reads"));
    expected.extend((writes <= 1.75e6).then_some("slow-writes"));
    expected.extend((of_source >= reads).then_some("slower-than-source"));
    assert_eq!(result["refusals"], serde_json::json!(expected));
    assert_eq!(result["fit"], expected.is_empty());
    assert_eq!(
        output.status.code(),
        Some(if expected.is_empty() { 0 } else { 8 })
    );
    assert!(result["file_bytes"].as_u64().unwrap() >= 8 << 20);
    assert!(is_empty(folder.path()));
}

#[test]
fn an_interrupted_test_leaves_nothing() {
    let folder = on_disk();
    let mut child = ropeway()
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    // It is at work once it has the unnamed file open.
    let is_at_work = || {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        descriptors.flatten().any(|descriptor| {
            let link = fs::read_link(descriptor.path()).unwrap_or_default();
            link.starts_with(folder.path()) && link.to_string_lossy().ends_with("(deleted)")
        })
    };
    while child.try_wait().unwrap().is_none() && !is_at_work() {
        std::thread::yield_now();
    }
    // Ctrl-C does the same, but a program started in the background of a shell ignores it.
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(is_empty(folder.path()));
}

#[test]
fn what_cannot_be_tested_is_refused_in_one_line() {
    let mut memory = ropeway();
    let (output, errors) = run(memory.arg("/dev/shm"));
    assert_eq!(output.status.code(), Some(8), "{errors}");
    assert!(errors.contains("in memory (tmpfs)"), "{errors}");
    let (output, errors) = run(ropeway().arg("/nowhere/at/all"));
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert_eq!(errors.lines().count(), 2, "one line and a hint: {errors}");
    assert!(output.stdout.is_empty());
}
