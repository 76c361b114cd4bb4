//! What a mirror would delete, and the question before it does.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_copy::{Job, JobSpec, Options, Verification};
use ropeway_vfs::event::Event;

use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::ui::{Reporter, format};

/// Deletions that the question names.
const DELETIONS_SHOWN: usize = 5;

/// What a mirror would delete.
#[derive(Default)]
struct Deletions {
    nodes: u64,
    bytes: u64,
    /// The first ones, with their bytes.
    first: Vec<(String, u64)>,
}

impl Deletions {
    fn hear(&mut self, event: Event) {
        let Event::Item {
            path,
            action: "delete",
            bytes,
            ..
        } = event
        else {
            return;
        };
        self.nodes += 1;
        self.bytes += bytes;
        if self.first.len() < DELETIONS_SHOWN {
            self.first.push((path, bytes));
        }
    }

    fn lines(&self) -> Vec<String> {
        let size = |bytes: u64| match bytes {
            0 => String::new(),
            bytes => format!("  ({})", format::bytes(bytes)),
        };
        let line = |(path, bytes): &(String, u64)| format!("delete     {path}{}", size(*bytes));
        let mut lines: Vec<String> = self.first.iter().map(line).collect();
        let more = self.nodes - self.first.len() as u64;
        lines.extend((more > 0).then(|| format!("… and {} more", format::count(more))));
        lines
    }

    fn sentence(&self, target: &Path) -> String {
        let nodes = format::counted(self.nodes, "node", "nodes");
        let bytes = format::bytes(self.bytes);
        format!("{nodes} ({bytes}) on {} would be deleted", target.display())
    }
}

/// Counts by a dry run what a mirror would delete, and asks if there is something. Returns the
/// number of confirmed deletions.
pub(super) async fn confirm(
    spec: &JobSpec,
    target: &Path,
    reporter: &Arc<Reporter>,
    signals: &mut Signals,
) -> Result<u64, Failure> {
    let options = Options {
        dry_run: true,
        only_deletions: true,
        watch: false,
        verify: Verification::default(),
        report_items: false,
        // Hard links make no difference to deletions.
        hard_links: false,
        ..spec.options.clone()
    };
    let job = Job::new(JobSpec {
        roots: spec.roots.clone(),
        target: Arc::clone(&spec.target),
        options,
        environment: spec.environment.clone(),
        journal: None,
    });
    let counted = Arc::new(Mutex::new(Deletions::default()));
    let sink = {
        let counted = Arc::clone(&counted);
        Arc::new(move |event: Event| counted.lock().hear(event))
    };
    let outcome = job::until_stopped(signals, job.run(sink)).await;
    let interrupted = || Failure::new(code::INTERRUPTED, "interrupted; nothing was changed");
    let outcome = outcome.ok_or_else(interrupted)?;
    if let Some(message) = outcome.fatal {
        let failure = Failure::new(outcome.status.exit_code(), message);
        return Err(match outcome.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        });
    }
    let counted = std::mem::take(&mut *counted.lock());
    if counted.nodes == 0 {
        return Ok(0);
    }
    let what = counted.sentence(target);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::new(
            code::REFUSED,
            format!("{what}, and there is no terminal to ask on; nothing was changed"),
        )
        .hint("check with --dry-run, then use --yes"));
    }
    for line in counted.lines() {
        reporter.say(&line);
    }
    reporter.say(&format!("{what}."));
    let answer = tokio::task::spawn_blocking(ask);
    match job::until_stopped(signals, answer).await {
        Some(Ok(true)) => Ok(counted.nodes),
        Some(_) => {
            Err(Failure::new(code::REFUSED, "nothing was changed")
                .hint("--dry-run lists what would be deleted"))
        }
        None => Err(interrupted()),
    }
}

/// Asks on the terminal; any answer but yes means no.
fn ask() -> bool {
    let mut err = io::stderr().lock();
    _ = write!(err, "Delete? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer).is_ok();
    read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
