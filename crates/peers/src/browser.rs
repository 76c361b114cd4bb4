//! Chromium without a window, for tests of pages.

use std::path::Path;
use std::process::Command;

use crate::procfs::program;

/// Names of the program in Debian and other systems.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Returns the command of a Chromium without a window, with a profile of its own that asks for nothing and fetches
/// nothing; `None` if none is installed.
pub fn chromium(profile: &Path) -> Option<Command> {
    let found = NAMES.iter().find_map(|name| program(name))?;
    let mut command = Command::new(found);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    Some(command)
}
