//! Runs a test again in a process of its own.

use std::process::{Command, Stdio};

/// Runs the test `name` again, alone in a new process, and passes on its output. `change` prepares the process, e.g.
/// its environment.
///
/// # Panics
/// The test fails there, or no test has this name.
#[track_caller]
#[allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]
pub fn run_again(name: &str, change: impl FnOnce(&mut Command)) {
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
