//! `ropeway top`: the running processes of ropeway.
//!
//! ```text
//! once     a table, or JSON, and the end
//! collect  threads that find processes and watch them; requests to them
//! app ──── what is chosen, what the keys do; no terminal, no sockets
//!   └ view   drawing: list, details (job, server, others), keys
//! ```

mod app;
mod collect;
mod once;
mod view;

use std::time::Duration;

use nix::unistd::{Uid, User};
use ropeway_live::protocol::INTERVAL_MS;

use self::app::TopApp;
use self::collect::Collector;
use crate::args::TopArgs;
use crate::failure::{Failure, code};
use crate::tui;

/// Time between two updates without --interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two drawings: a new snapshot is shown soon.
const REDRAW_MAX: Duration = Duration::from_millis(250);

/// Runs the command and returns its exit code.
///
/// # Errors
/// There is no terminal, or no such user.
pub(crate) fn run(args: &TopArgs) -> Result<u8, Failure> {
    args.check()?;
    let user = args.user.as_deref().map(user_id).transpose()?;
    if args.once {
        return once::run(args.json, user);
    }
    tui::need_terminal("top", "print once instead: ropeway top --once, or --once --json")?;
    let [least, most] = [INTERVAL_MS.start(), INTERVAL_MS.end()].map(|ms| Duration::from_millis(*ms));
    let interval = args.interval.unwrap_or(INTERVAL).clamp(least, most);
    let collector = Collector::start(interval, user).map_err(|error| {
        Failure::new(code::TARGET, format!("cannot start a thread: {error}"))
            .hint("raise the limit of processes (ulimit -u)")
    })?;
    let mut app = TopApp::new(collector);
    tui::run(&mut app, interval.min(REDRAW_MAX))
}

/// Returns the number of a user given by name or number.
fn user_id(given: &str) -> Result<u32, Failure> {
    let me = Uid::effective();
    let id = match given.parse() {
        Ok(id) => id,
        Err(_) => match User::from_name(given) {
            Ok(Some(user)) => user.uid.as_raw(),
            _ => {
                return Err(
                    Failure::usage(format!("there is no user {given}")).hint("give a name or a number")
                );
            }
        },
    };
    match me.is_root() || me.as_raw() == id {
        true => Ok(id),
        false => Err(
            Failure::new(code::PERMISSION, "only root sees processes of other users").hint("run it as root"),
        ),
    }
}
