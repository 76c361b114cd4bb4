//! Start-up: diagnostics, and the folders for configuration and state.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

/// Starts diagnostics on stderr if `ROPEWAY_DEBUG` names a filter (e.g. `debug` or
/// `ropeway_copy=trace`).
pub(crate) fn start_diagnostics() {
    let Ok(filter) = std::env::var("ROPEWAY_DEBUG") else {
        return;
    };
    // An invalid filter falls back to `debug`: a user who sets the variable wants to see something.
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("debug"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

/// Prints warnings on stderr, for commands that run unattended, unless [`start_diagnostics`]
/// already prints more.
pub(crate) fn start_warnings() {
    // Fails if there is a subscriber already; that one prints what the user asked for.
    _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
}

/// Returns `$XDG_CONFIG_HOME/ropeway/config.toml`, by default below `~/.config`; `None` without a
/// home folder.
pub(crate) fn config_file() -> Option<PathBuf> {
    base("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("ropeway/config.toml"))
}

/// Returns `$XDG_CONFIG_HOME/ropeway/users`, the users who may log in to `ropeway serve`; `None`
/// without a home folder.
pub(crate) fn users_file() -> Option<PathBuf> {
    base("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("ropeway/users"))
}

/// Returns `$XDG_STATE_HOME/ropeway/jobs`, by default below `~/.local/state`; `None` without a home
/// folder.
pub(crate) fn jobs_folder() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("ropeway/jobs"))
}

/// Returns `$XDG_STATE_HOME/ropeway/blocks`, the hashes of what was written in place; `None` without a home
/// folder.
pub(crate) fn blocks_folder() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("ropeway/blocks"))
}

/// Returns `$XDG_STATE_HOME/ropeway/handles`, the records of persistent handles; `None` without a home
/// folder.
pub(crate) fn handles_folder() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("ropeway/handles"))
}

/// Returns an XDG base directory; relative values are ignored, as the specification requires.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    given.or_else(|| {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        home.map(|home| home.join(below_home))
    })
}
