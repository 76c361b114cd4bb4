//! The comparison and the copies behind the view, on the runtime.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_copy::{
    CheckOutcome, CheckWatch, Difference, Handle, Job, JobKey, JobSpec, JournalFolder, JournalSpec, Options,
    Outcome, Root, Status, pool_for,
};
use ropeway_plan::Filter;
use ropeway_vfs::event::{Counters, Event, Phase};
use ropeway_vfs::{Kind, RelPath};
use tokio::task::JoinHandle;

use super::list::{Direction, List};
use crate::args::CheckArgs;
use crate::commands::check::{Plan, compare, watched};
use crate::commands::transfer::{environment, preserve};
use crate::ends::Node;
use crate::failure::Failure;
use crate::live::JobPart;
use crate::servers::Servers;
use crate::trees::Opener;
use crate::{boot, filters};

/// Failures that are kept by path. A guess: more are not looked at one by one.
const FAILURES_MAX: usize = 10_000;

/// What is copied.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Nodes, with all that is in them.
    whole: Vec<RelPath>,
    /// Folders whose attributes are copied, and nothing that is in them.
    alone: Vec<RelPath>,
}

/// What the view shows of the work.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) list: List,
    pub(super) activity: Activity,
    /// Failures of the comparison: nodes that could not be compared.
    pub(super) errors: Vec<String>,
    /// Why the comparison could not be made.
    failure: Option<Failure>,
}

/// What is under way.
#[derive(Default)]
pub(super) enum Activity {
    /// Nothing.
    #[default]
    Idle,
    /// A comparison.
    Comparing(CheckWatch),
    /// A copy.
    Copying(Copying),
    /// A comparison has ended.
    Compared(CheckOutcome),
    /// A copy has ended; the text says how.
    Copied(String),
}

/// A copy that is under way.
pub(super) struct Copying {
    handle: Handle,
    pub(super) direction: Direction,
    pub(super) files: usize,
    pub(super) is_stopping: bool,
}

impl Copying {
    /// Returns the counters so far.
    pub(super) fn counters(&self) -> Counters {
        self.handle.counters()
    }

    /// Whether it is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.handle.limit().is_paused()
    }
}

/// Does the work.
pub(super) struct Worker {
    args: CheckArgs,
    source: Node,
    target: Node,
    servers: Arc<Servers>,
    runtime: tokio::runtime::Handle,
    shared: Arc<Mutex<Shared>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Makes the worker for two trees.
    ///
    /// # Errors
    /// The plan compares something else.
    pub(super) fn new(
        args: CheckArgs,
        plan: Plan,
        servers: Arc<Servers>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self, Failure> {
        let Plan::Trees { source, target } = plan else {
            return Err(Failure::usage("--tui compares two trees").hint("ropeway check --tui SRC DST"));
        };
        Ok(Self {
            args,
            source,
            target,
            servers,
            runtime,
            shared: Arc::default(),
            task: Mutex::default(),
        })
    }

    /// Returns what the view shows.
    pub(super) fn shared(&self) -> &Arc<Mutex<Shared>> {
        &self.shared
    }

    /// Returns the two ends for people.
    pub(super) fn ends(&self) -> (String, String) {
        (
            self.source.0.below(&self.source.1),
            self.target.0.below(&self.target.1),
        )
    }

    /// Returns the connections.
    pub(super) fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.servers)
    }

    /// Returns the number of differences that were not copied.
    pub(super) fn left(&self) -> u64 {
        self.shared.lock().list.left()
    }

    /// Returns why nothing could be compared, once.
    pub(super) fn failed(&self) -> Option<Failure> {
        self.shared.lock().failure.take()
    }

    /// Begins to compare, anew if it was done before. `part` is what other processes see.
    pub(super) fn compare(&self, part: Option<&Arc<JobPart>>) {
        let list = Arc::clone(&self.shared);
        let watch = CheckWatch::of_differences(Arc::new(move |difference: &Difference| {
            list.lock().list.add([difference.clone()]);
        }));
        if let Some(part) = part {
            part.attach(watched(&watch));
        }
        {
            let mut shared = self.shared.lock();
            shared.list.clear();
            shared.errors.clear();
            shared.failure = None;
            shared.activity = Activity::Comparing(watch.clone());
        }
        let (args, servers) = (self.args.clone(), Arc::clone(&self.servers));
        let plan = Plan::Trees {
            source: self.source.clone(),
            target: self.target.clone(),
        };
        let shared = Arc::clone(&self.shared);
        let errors = Arc::clone(&self.shared);
        let (part, hearing) = (part.cloned(), part.cloned());
        let sink = Arc::new(move |event: Event| {
            if let Some(part) = &hearing {
                part.event(&event);
            }
            if let Event::ItemError { message, .. } = event {
                let mut shared = errors.lock();
                if shared.errors.len() < FAILURES_MAX {
                    shared.errors.push(message);
                }
            }
        });
        self.start(async move {
            let opener = Opener::plain(&servers, None);
            let compared = compare(&args, plan, &opener, &watch, sink).await;
            if let Some(part) = part {
                part.event(&Event::Phase { phase: Phase::Done });
            }
            let mut shared = shared.lock();
            shared.activity = match compared {
                Ok(outcome) => Activity::Compared(outcome),
                Err(failure) => {
                    let text = failure.message.clone();
                    shared.failure = Some(failure);
                    Activity::Copied(text)
                }
            };
        });
    }

    /// Runs the only task.
    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut task = self.task.lock();
        if let Some(before) = task.replace(self.runtime.spawn(work)) {
            before.abort();
        }
    }

    /// Copies the chosen differences.
    pub(super) fn copy(&self, direction: Direction) {
        let (indices, wanted) = {
            let mut shared = self.shared.lock();
            let (indices, _) = shared.list.copyable(direction);
            let rows = indices.iter().map(|index| &shared.list.all()[*index]);
            let wanted = wanted(direction, rows.map(|row| &row.difference));
            shared.list.begin(&indices);
            (indices, wanted)
        };
        let prepared = self.runtime.block_on(self.prepare(direction, wanted));
        let job = match prepared {
            Ok(job) => job,
            Err(failure) => {
                return self.ended(direction, &indices, &[], Some(&failure.message), &BTreeSet::new());
            }
        };
        self.shared.lock().activity = Activity::Copying(Copying {
            handle: job.handle(),
            direction,
            files: indices.len(),
            is_stopping: false,
        });
        let base = match direction {
            Direction::Forward => (self.source.1.clone(), self.target.1.clone()),
            Direction::Back => (self.target.1.clone(), self.source.1.clone()),
        };
        let shared = Arc::clone(&self.shared);
        self.start(async move {
            let seen: Arc<Mutex<Seen>> = Arc::default();
            let hearing = Arc::clone(&seen);
            let outcome = job
                .run(Arc::new(move |event: Event| hearing.lock().hear(&event, &base)))
                .await;
            let seen = std::mem::take(&mut *seen.lock());
            conclude(&shared, (direction, &indices), &seen, &outcome);
        });
    }

    /// Opens both trees and makes the job.
    async fn prepare(&self, direction: Direction, wanted: Wanted) -> Result<Job, Failure> {
        let (from, to) = match direction {
            Direction::Forward => (&self.source, &self.target),
            Direction::Back => (&self.target, &self.source),
        };
        let opener = Opener::plain(&self.servers, None).writing();
        let options = self.options(wanted)?;
        let pool = pool_for(options.engine, true);
        let spec = JobSpec {
            roots: vec![Root {
                source: opener.source(&from.0).await?,
                source_name: from.0.shown_name(),
                source_path: from.1.clone(),
                target_path: to.1.clone(),
            }],
            target: opener.target(&to.0).await?,
            options,
            environment: environment(&to.0),
            journal: boot::jobs_folder().map(|folder| journal(&folder, from, to)),
        };
        Ok(Job::new(spec)
            .with_pool(pool)
            .with_limit(Arc::clone(opener.limit())))
    }

    /// Returns the options of a copy: the rules of the comparison decide what differs.
    fn options(&self, wanted: Wanted) -> Result<Options, Failure> {
        let args = &self.args;
        let mut filter = filters::spec(&args.select)?;
        if !wanted.whole.iter().any(RelPath::is_root) {
            filter.files_from = Some(wanted.whole);
            filter.folders_alone = wanted.alone;
        }
        let filter = Filter::new(&filter).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Options {
            checksum: args.checksum,
            modify_window: args.modify_window.unwrap_or_default(),
            preserve: preserve(&args.attributes),
            devices: args.select.devices,
            filter,
            report_items: true,
            timeout: args.share.timeout,
            ..Options::default()
        })
    }

    fn ended(
        &self,
        direction: Direction,
        indices: &[usize],
        failures: &[(RelPath, String)],
        stopped: Option<&str>,
        done: &BTreeSet<RelPath>,
    ) {
        let mut shared = self.shared.lock();
        shared.list.end((direction, indices), failures, stopped, done);
        shared.activity = Activity::Copied(stopped.unwrap_or("done").to_owned());
    }

    /// Pauses or resumes what is under way. Returns whether there is something.
    pub(super) fn pause(&self) -> bool {
        let shared = self.shared.lock();
        let limit = match &shared.activity {
            Activity::Comparing(watch) => watch.limit(),
            Activity::Copying(copying) => copying.handle.limit(),
            _ => return false,
        };
        if !limit.pause() {
            limit.resume();
        }
        true
    }

    /// Ends what is under way in order. Returns whether there is something.
    pub(super) fn stop(&self) -> bool {
        let mut shared = self.shared.lock();
        match &mut shared.activity {
            Activity::Copying(copying) => {
                copying.is_stopping = true;
                copying.handle.cancel();
            }
            Activity::Comparing(watch) => {
                let outcome = watch.outcome();
                shared.activity = Activity::Compared(outcome);
                drop(shared);
                if let Some(task) = self.task.lock().take() {
                    task.abort();
                }
                return true;
            }
            _ => return false,
        }
        drop(shared);
        true
    }

    /// Waits for a copy that ends.
    pub(super) fn wait(&self) {
        if let Some(task) = self.task.lock().take() {
            // A task that was aborted has nothing to say.
            _ = self.runtime.block_on(task);
        }
    }
}

/// Returns what to copy for differences. Of a folder that differs in attributes only, nothing inside
/// is wanted.
fn wanted<'a>(direction: Direction, differences: impl Iterator<Item = &'a Difference>) -> Wanted {
    let mut wanted = Wanted::default();
    for difference in differences {
        let is_folder = difference.source.is_some_and(|side| side.kind == Kind::Directory);
        let paths = match difference.action == "attributes" && is_folder {
            true => &mut wanted.alone,
            false => &mut wanted.whole,
        };
        paths.push(direction.path(difference).clone());
    }
    wanted
}

/// Returns the journal of a copy. It is not that of a copy of the whole tree.
fn journal(folder: &Path, from: &Node, to: &Node) -> JournalSpec {
    let identity = |node: &Node| format!("{}\0{}", node.0.identity(), node.1);
    let shown = |node: &Node| node.0.below(&node.1);
    JournalSpec {
        store: Arc::new(JournalFolder::new(folder)),
        key: JobKey::new(&[identity(from)], &format!("{}\0chosen", identity(to))),
        sources: vec![shown(from)],
        target: shown(to),
    }
}

/// What a copy said of its nodes, by their paths below the end where it began.
#[derive(Default)]
struct Seen {
    failures: Vec<(RelPath, String)>,
    done: BTreeSet<RelPath>,
}

impl Seen {
    /// Hears an event. `base` has the roots of both ends: failures name the node of either.
    fn hear(&mut self, event: &Event, (from, to): &(RelPath, RelPath)) {
        let below = |path: &str| {
            let path = RelPath::parse(path.as_bytes())?;
            path.strip_prefix(to).or_else(|| path.strip_prefix(from))
        };
        match event {
            Event::ItemError { path, message, .. } if self.failures.len() < FAILURES_MAX => {
                if let Some(path) = below(path) {
                    self.failures.push((path, message.clone()));
                }
            }
            Event::Item { path, .. } => self.done.extend(below(path)),
            _ => {}
        }
    }
}

fn conclude(
    shared: &Mutex<Shared>,
    (direction, indices): (Direction, &[usize]),
    seen: &Seen,
    outcome: &Outcome,
) {
    let stopped = match outcome.status {
        Status::Done | Status::SomeFailed => None,
        Status::Interrupted => Some("interrupted".to_owned()),
        _ => Some(outcome.fatal.clone().unwrap_or_else(|| "stopped".to_owned())),
    };
    let mut shared = shared.lock();
    shared.list.end(
        (direction, indices),
        &seen.failures,
        stopped.as_deref(),
        &seen.done,
    );
    let counters = &outcome.summary.counters;
    let durable = match outcome.summary.durable {
        Some(_) => "durable",
        None => "not known to be durable",
    };
    shared.activity = Activity::Copied(match stopped {
        Some(why) => why,
        None => format!(
            "copied {}, {durable}; {}",
            crate::ui::format::counted(
                counters.files_done.saturating_sub(counters.files_skipped),
                "file",
                "files"
            ),
            crate::ui::format::counted(outcome.summary.errors, "error", "errors"),
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn events_are_heard_by_the_path_below_both_ends() {
        let mut seen = Seen::default();
        let base = (path("photos"), path("backup/photos"));
        let item = |path: &str| Event::Item {
            path: path.into(),
            action: "copy",
            bytes: 1,
            reasons: Vec::new(),
        };
        seen.hear(&item("backup/photos/a/b"), &base);
        seen.hear(&item("elsewhere/c"), &base);
        assert_eq!(seen.done, BTreeSet::from([path("a/b")]));
    }

    #[test]
    fn nothing_of_a_folder_is_copied_for_its_attributes() {
        let side = ropeway_copy::Side {
            kind: Kind::Directory,
            size: 0,
            modified: ropeway_vfs::Timestamp::from_unix(0, 0),
            mode: None,
            owner: None,
        };
        let difference = |action| Difference {
            path: path("a/d"),
            target_path: path("a/D"),
            action,
            source: Some(side),
            target: Some(side),
            reasons: Vec::new(),
        };
        let of = |direction, action| wanted(direction, [difference(action)].iter());
        let whole = |name| Wanted {
            whole: vec![path(name)],
            ..Wanted::default()
        };
        assert_eq!(of(Direction::Forward, "missing"), whole("a/d"));
        assert_eq!(of(Direction::Back, "missing"), whole("a/D"));
        let alone = of(Direction::Forward, "attributes");
        assert_eq!(alone.alone, [path("a/d")]);
        assert!(alone.whole.is_empty());
    }

    #[test]
    fn the_journal_is_not_that_of_the_whole_tree() {
        let node = |text: &str| (Place::Local(text.into()), RelPath::root());
        let one = journal(Path::new("/x"), &node("/a"), &node("/b"));
        let back = journal(Path::new("/x"), &node("/b"), &node("/a"));
        let whole = JobKey::new(&["/a".to_owned()], "/b");
        assert!(one.key != whole && one.key != back.key);
    }
}
