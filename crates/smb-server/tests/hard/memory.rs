//! Memory of one server: a test that measures it has a process of its own, since tests of one process run side by side.

use ropeway_peers::run_again;

/// Set in the process of a test that is alone.
const ALONE: &str = "ROPEWAY_TEST_ALONE";

/// Resident memory of this process, which is the server's too, in bytes.
pub(crate) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Runs the test of this name in a process of its own.
#[track_caller]
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    run_again(name, |command| {
        command.env(ALONE, "1");
    });
}
