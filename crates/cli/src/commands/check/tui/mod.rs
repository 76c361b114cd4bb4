//! `check --tui`: differences side by side, some of them chosen and copied.
//!
//! ```text
//! list   the differences: filter, sort, choice, outcomes; no terminal, no files
//! app    keys and dialogs
//! view   drawing
//! work   the comparison and the copies, on the runtime
//! ```
//!
//! A copy of what is chosen is an ordinary job over both trees, with a list of paths as its filter: the
//! same temporary names, the same journal, the same durability.

mod app;
mod list;
mod view;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ropeway_live::Part;

use self::app::CheckApp;
use self::work::Worker;
use super::Plan;
use crate::args::CheckArgs;
use crate::failure::{Failure, code};
use crate::job;
use crate::live::{self, JobPart};
use crate::servers::Servers;
use crate::tui;

/// Time between two drawings.
const REDRAW: Duration = Duration::from_millis(250);

/// Runs the command and returns its exit code: 0 if nothing differs, 7 if something does that was not
/// copied.
///
/// # Errors
/// There is no terminal, or nothing could be compared.
pub(super) fn run(args: &CheckArgs) -> Result<u8, Failure> {
    if args.manifest.is_some() {
        return Err(
            Failure::usage("--tui compares two trees, not a tree with a manifest")
                .hint("leave out --tui or --manifest"),
        );
    }
    if args.output.json || args.output.trace.is_some() {
        return Err(
            Failure::usage("--tui works with neither --json nor --trace").hint("leave out one of them")
        );
    }
    if args.output.http.http.is_some() {
        return Err(Failure::usage("--tui does not work with --http")
            .hint("leave out one of them; `ropeway top` shows it too"));
    }
    tui::need_terminal("check --tui", "leave out --tui to list the differences")?;
    let live = live::start("check");
    let servers = Servers::new(&args.share)?;
    let runtime = job::runtime()?;
    // A password is asked for before the terminal belongs to the view.
    let plan = runtime.block_on(Plan::new(args, &servers))?;
    let part = JobPart::new("check", &[plan.source()], &plan.target(), None);
    let registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let worker = Worker::new(args.clone(), plan, Arc::new(servers), runtime.handle().clone())?;
    worker.compare(Some(&part));
    let mut app = CheckApp::new(worker);
    let shown = tui::run(&mut app, REDRAW);
    let worker = app.into_worker();
    worker.stop();
    let (left, failed, servers) = (worker.left(), worker.failed(), worker.servers());
    drop((worker, registered));
    job::shut_down(runtime, &servers);
    match (shown?, failed, left) {
        (code::DONE, Some(failure), _) => Err(failure),
        (code::DONE, None, 0) => Ok(code::DONE),
        (code::DONE, None, _) => Ok(code::DIFFERS),
        (other, ..) => Ok(other),
    }
}
