//! Memory of one server. Tests that measure it run in a separate process, because tests of one
//! process run in parallel.

use ropeway_peers::run_again;

/// Set in the process of a test that runs alone.
const ALONE: &str = "ROPEWAY_TEST_ALONE";

/// Returns the resident memory of this process, including the server, in bytes.
pub(crate) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Runs the test with this name in a separate process.
#[track_caller]
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    run_again(name, |command| {
        command.env(ALONE, "1");
    });
}
