//! A test in a process of its own.

use std::process::{Command, Stdio};

/// Runs the test of this name again, alone in a process that is made as told, and passes on what it says.
#[track_caller]
pub(crate) fn run_again(name: &str, change: impl FnOnce(&mut Command)) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .stdin(Stdio::null());
    change(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"));
}
