//! The way of a task of a folder, as a state machine: what its worker does, in which order.
//!
//! ```text
//!   Fence ─> List … ─> Copy ─> Publish ─> Rename ─> Offer ─┐
//!              ^                                           │   slice by slice
//!              └───────────────────────────────────────────┘
//!                          last slice: … Rename ─> Flush ─> Offer ─> Finish
//! ```
//!
//! Files are copied in slices. A slice is durable in the stage of the claim before its segment is
//! published, and its segment is published before one of its files gets its name. So a file under
//! its name is always in the catalog, and a worker that takes over finds in the catalog which files
//! of the stage it may name. What is given away is published before it is offered: whoever takes
//! the task over leaves it out.

use std::collections::VecDeque;
use std::sync::Arc;

use ropeway_vfs::{ContentHash, Metadata, Name, RelPath};

use crate::catalog::{Done, Record, State, Sums};
use crate::cut::Collected;
use crate::mutations::{self, Mutation};
use crate::partition::{Next, Walk, WalkLimits};
use crate::parts::{LargeFile, Part, PartLimits};
use crate::task::{Scope, Task, TaskId, nanoseconds};

/// Records of nodes that only the target has in memory at once. A guess: a few MiB.
const RECORDS_MAX: usize = 10_000;

/// Size of a slice.
#[derive(Clone, Copy, Debug)]
pub struct SliceLimits {
    /// Files. What a kill costs at most, together with `bytes_max`. A guess: a segment and two
    /// flushes for 1,000 small files are a small part of their time.
    pub files_max: usize,
    /// Bytes, except that one file may have more.
    pub bytes_max: u64,
    /// Which files are cut into parts for several workers. All workers of a job must have the same.
    pub parts: PartLimits,
}

impl Default for SliceLimits {
    fn default() -> Self {
        Self {
            files_max: 1_000,
            bytes_max: 512 << 20,
            parts: PartLimits::default(),
        }
    }
}

/// A node to copy.
#[derive(Clone, Debug)]
pub struct Item {
    /// The folder that holds it in the source.
    pub folder: RelPath,
    /// Its name there.
    pub name: Name,
    /// Its attributes as listed.
    pub metadata: Metadata,
}

impl Item {
    /// Returns its path in the source.
    pub fn path(&self) -> RelPath {
        self.folder.join(&self.name)
    }
}

/// What became of an item. A copied one is durable in the stage, under its number in the task.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What became of it; for [`State::Copied`] the number is set by the worker.
    pub state: State,
    /// Size of the copied version.
    pub size: u64,
    /// Its time of last change.
    pub modified: i64,
    /// Hash of its content.
    pub hash: Option<ContentHash>,
}

impl Outcome {
    /// Makes the outcome of an item whose version is that of the listing.
    pub fn listed(item: &Item, state: State) -> Self {
        Self {
            state,
            size: item.metadata.size,
            modified: nanoseconds(item.metadata.modified),
            hash: None,
        }
    }
}

/// What the driver of a worker does next. It answers [`Step::Fence`], [`Step::List`] and
/// [`Step::Copy`] with the function that the step names.
#[derive(Debug)]
pub enum Step {
    /// Fence earlier claims, and name what they published. Answer: [`Worker::fenced`].
    Fence,
    /// Make the folder on the target, and list it in the source. Answer: [`Worker::listed`] or
    /// [`Worker::unlisted`].
    List {
        /// The folder in the source.
        path: RelPath,
        /// Its entries that are wanted.
        scope: Scope,
    },
    /// Copy what differs into the stage, the first under the number `first`, and make it durable.
    /// Answer: [`Worker::copied`].
    Copy {
        /// Number of the first item.
        first: u32,
        /// The items.
        items: Arc<Vec<Item>>,
    },
    /// Publish a segment.
    Publish {
        /// Its number.
        number: u32,
        /// Its records.
        records: Arc<Vec<Record>>,
        /// Tasks that are given away.
        given: Vec<Task>,
    },
    /// Give those of these nodes that are staged files their names.
    Rename(Arc<Vec<Record>>),
    /// Make all names durable.
    Flush,
    /// Offer tasks to other workers.
    Offer(Vec<Task>),
    /// Report the task as done.
    Finish(Done),
    /// Nothing is left to do.
    Ended,
}

/// The work on one task of a folder.
#[derive(Debug)]
pub struct Worker {
    task: Task,
    walk: Option<Walk>,
    limits: (WalkLimits, SliceLimits),
    queue: VecDeque<Step>,
    slice: Vec<Item>,
    slice_bytes: u64,
    copying: Arc<Vec<Item>>,
    records: Vec<Record>,
    /// Tasks that are given away and not published yet.
    giving: Vec<Task>,
    given: Vec<TaskId>,
    sums: Sums,
    segments: u32,
    staged: u32,
    is_last: bool,
}

impl Worker {
    /// Begins the work on a task.
    ///
    /// # Panics
    /// If the task is not one of a folder.
    pub fn new(task: &Task, limits: WalkLimits, slice: SliceLimits) -> Self {
        Self {
            task: task.clone(),
            walk: None,
            limits: (limits, slice),
            queue: VecDeque::from([Step::Fence]),
            slice: Vec::new(),
            slice_bytes: 0,
            copying: Arc::default(),
            records: Vec::new(),
            giving: Vec::new(),
            given: Vec::new(),
            sums: Sums::default(),
            segments: 0,
            staged: 0,
            is_last: false,
        }
    }

    /// Returns the next step. The one before it must be done.
    pub fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.queue.pop_front() {
                return self.with_failures(step);
            }
            if self.is_last {
                return Step::Ended;
            }
            let Some(walk) = &mut self.walk else {
                return Step::Fence;
            };
            match walk.advance() {
                Next::List { path, scope } => return Step::List { path, scope },
                Next::Folder { folder, entry } => self.note_folder(folder.join(&entry.name), &entry.metadata),
                Next::Node { folder, entry } => self.add(Item {
                    folder,
                    name: entry.name,
                    metadata: entry.metadata,
                }),
                Next::Give(tasks) => self.give(tasks),
                Next::Finished => {
                    self.is_last = true;
                    self.end_slice();
                }
            }
        }
    }

    /// Puts what failed since the last segment before the end of the task.
    fn with_failures(&mut self, step: Step) -> Step {
        let Step::Finish(done) = step else {
            return step;
        };
        if self.records.is_empty() {
            return Step::Finish(done);
        }
        let sums = self.sums;
        self.queue.push_front(Step::Finish(Done { sums, ..done }));
        self.segments += 1;
        Step::Publish {
            number: self.segments - 1,
            records: Arc::new(std::mem::take(&mut self.records)),
            given: Vec::new(),
        }
    }

    /// Earlier claims are fenced. `given`: what they gave away.
    pub fn fenced(&mut self, given: Vec<Task>) {
        self.given = given.iter().map(Task::id).collect();
        // They may have died before they offered it.
        if !given.is_empty() {
            self.queue.push_back(Step::Offer(given.clone()));
        }
        self.walk = Some(Walk::new(&self.task, given, self.limits.0));
    }

    /// Notes a folder whose attributes are set at the end.
    pub fn note_folder(&mut self, path: RelPath, metadata: &Metadata) {
        self.sums.folders += 1;
        self.records.push(Record::new(
            path,
            0,
            nanoseconds(metadata.modified),
            State::Folder,
        ));
    }

    /// Whether earlier claims gave something away: a listing is then not cut.
    pub fn has_inherited(&self) -> bool {
        self.walk.as_ref().is_some_and(Walk::has_inherited)
    }

    /// Takes a listing.
    pub fn listed(&mut self, collected: Collected) {
        let ranges = self.walk.as_mut().map(|walk| walk.listed(collected));
        self.give(ranges.unwrap_or_default());
    }

    /// Notes that a folder could not be made or listed.
    pub fn unlisted(&mut self, path: RelPath, reason: String) {
        if let Some(walk) = &mut self.walk {
            walk.unlisted();
        }
        self.note_failed(path, reason);
    }

    /// Notes that a node failed outside of a slice.
    pub fn note_failed(&mut self, path: RelPath, reason: String) {
        self.sums.failed += 1;
        self.records.push(Record::new(path, 0, 0, State::Failed(reason)));
    }

    /// Notes a node that only the target has.
    pub fn note_extra(&mut self, path: RelPath) {
        self.sums.extra += 1;
        self.records.push(Record::new(path, 0, 0, State::Extra));
    }

    /// Returns records that are to be published now, with the number of their segment, if there are many. Call it
    /// while a folder is listed: none of them has a file that must get its name.
    pub fn overflow(&mut self) -> Option<(u32, Vec<Record>)> {
        (self.records.len() >= RECORDS_MAX).then(|| {
            self.segments += 1;
            (self.segments - 1, std::mem::take(&mut self.records))
        })
    }

    /// Whether this is a moment for [`Worker::split`] and [`Worker::set_slice`]: no step is planned.
    pub fn is_between_slices(&self) -> bool {
        !self.is_last && self.queue.is_empty()
    }

    /// Gives away shares of what is left for `ways` idle workers, where that is worth it. It does nothing while steps
    /// are planned.
    pub fn split(&mut self, ways: usize) {
        if !self.is_between_slices() {
            return;
        }
        let tasks = self.walk.as_mut().map(|walk| walk.split(ways));
        self.give(tasks.unwrap_or_default());
    }

    /// Sets the size of further slices.
    pub fn set_slice(&mut self, limits: SliceLimits) {
        self.limits.1 = limits;
    }

    fn add(&mut self, item: Item) {
        self.slice_bytes = self.slice_bytes.saturating_add(item.metadata.size);
        self.slice.push(item);
        let SliceLimits {
            files_max, bytes_max, ..
        } = self.limits.1;
        if self.slice.len() >= files_max || self.slice_bytes >= bytes_max {
            self.end_slice();
        }
    }

    fn give(&mut self, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        self.given.extend(tasks.iter().map(Task::id));
        self.giving.extend(tasks);
        // At once, for those who wait for it.
        self.publish();
    }

    /// Copies the slice, and ends the task after the last one.
    fn end_slice(&mut self) {
        self.slice_bytes = 0;
        if self.slice.is_empty() {
            self.publish();
            return;
        }
        let next = Vec::with_capacity(self.slice.len());
        self.copying = Arc::new(std::mem::replace(&mut self.slice, next));
        let items = Arc::clone(&self.copying);
        self.queue.push_back(Step::Copy {
            first: self.staged,
            items,
        });
    }

    /// Takes what became of the items of [`Step::Copy`], in their order.
    ///
    /// # Panics
    /// If there is not one outcome for each item.
    pub fn copied(&mut self, outcomes: Vec<Outcome>) {
        let items = std::mem::take(&mut self.copying);
        assert_eq!(items.len(), outcomes.len(), "each item has an outcome");
        self.records.reserve(items.len());
        for ((item, mut outcome), staged) in items.iter().zip(outcomes).zip(self.staged..) {
            if let State::Copied { staged: place } = &mut outcome.state {
                *place = staged;
            }
            count(&mut self.sums, &outcome);
            if let State::Parted { .. } = outcome.state {
                self.cut(item);
            }
            let mut record = Record::new(item.path(), outcome.size, outcome.modified, outcome.state);
            record.hash = outcome.hash;
            self.records.push(record);
            self.staged = staged + 1;
        }
        self.publish();
    }

    /// Gives away the parts of a large file.
    fn cut(&mut self, item: &Item) {
        let file = LargeFile::listed(self.task.round, item.path(), &item.metadata);
        let before = self.giving.len();
        let tasks = file.parts(self.limits.1.parts).map(Part::task);
        self.giving.extend(tasks);
        let new = &self.giving[before..];
        self.sums.parts += new.len() as u64;
        self.given.extend(new.iter().map(Task::id));
    }

    /// Puts the steps that follow a slice in their order.
    fn publish(&mut self) {
        let records = Arc::new(std::mem::take(&mut self.records));
        let given = std::mem::take(&mut self.giving);
        let copied = |record: &Record| matches!(record.state, State::Copied { .. });
        let rename = records.iter().any(copied).then(|| Arc::clone(&records));
        let mut steps = Vec::new();
        if !records.is_empty() || !given.is_empty() {
            steps.push(Step::Publish {
                number: self.segments,
                records,
                given: given.clone(),
            });
            self.segments += 1;
        }
        if let Some(rename) = rename {
            let place = match mutations::is(Mutation::RenameBeforePublish) {
                true => 0,
                false => steps.len(),
            };
            steps.insert(place, Step::Rename(rename));
        }
        if self.is_last {
            steps.push(Step::Flush);
        }
        if !given.is_empty() {
            let place = match mutations::is(Mutation::GiveBeforePublish) {
                true => 0,
                false => steps.len(),
            };
            steps.insert(place, Step::Offer(given));
        }
        if self.is_last {
            let done = Step::Finish(Done {
                round: self.task.round,
                sums: self.sums,
                given: self.given.clone(),
                ..Done::default()
            });
            let before = |step: &Step| match step {
                Step::Rename(_) => mutations::is(Mutation::DoneBeforeRename),
                _ => false,
            };
            let place = steps.iter().position(before).unwrap_or(steps.len());
            steps.insert(place, done);
        }
        self.queue.extend(steps);
    }
}

fn count(sums: &mut Sums, outcome: &Outcome) {
    sums.files += 1;
    match &outcome.state {
        State::Copied { .. } => {
            sums.bytes += outcome.size;
            sums.copied += 1;
            sums.copied_bytes += outcome.size;
        }
        State::Equal => sums.bytes += outcome.size,
        State::Skipped => sums.skipped += 1,
        State::Failed(_) => sums.failed += 1,
        State::Linked(_) => sums.linked += 1,
        // The sums of a large file are those of the task that joins it.
        State::Parted { .. } | State::Part { .. } | State::PartFailed { .. } | State::Joined { .. } => {}
        State::Extra | State::Deleted => {}
        State::Folder | State::FolderLeft => {}
    }
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::{Kind, Timestamp};

    use super::*;
    use crate::cut::Entry;

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry {
            key: Name::new(name.as_bytes()).unwrap(),
            name: Name::new(name.as_bytes()).unwrap(),
            metadata: Metadata::bare(kind, 10, Timestamp(5)),
        }
    }

    /// Runs a task over a folder of five files and an empty folder; returns the steps.
    fn steps(task: &Task, given: Vec<Task>) -> (Vec<&'static str>, Done) {
        let slice = SliceLimits {
            files_max: 2,
            bytes_max: 1 << 20,
            ..SliceLimits::default()
        };
        let mut worker = Worker::new(task, WalkLimits::default(), slice);
        let (mut steps, mut done) = (Vec::new(), None);
        loop {
            steps.push(match worker.step() {
                Step::Fence => {
                    worker.fenced(given.clone());
                    "fence"
                }
                Step::List { path, .. } => {
                    let mut entries = Vec::new();
                    if path.is_root() {
                        entries.extend(["1", "2", "3", "4", "6"].map(|name| entry(name, Kind::File)));
                        entries.insert(4, entry("5", Kind::Directory));
                    }
                    worker.listed(Collected::Entries(entries));
                    "list"
                }
                Step::Copy { items, .. } => {
                    let state = |item: &Item| match item.name.as_bytes() {
                        b"2" => State::Equal,
                        b"6" => State::Failed("no".to_owned()),
                        _ => State::Copied { staged: 0 },
                    };
                    let outcomes = items.iter().map(|item| Outcome::listed(item, state(item)));
                    worker.copied(outcomes.collect());
                    "copy"
                }
                Step::Publish { .. } => "publish",
                Step::Rename(_) => "rename",
                Step::Flush => "flush",
                Step::Offer(_) => "offer",
                Step::Finish(sums) => {
                    done = Some(sums);
                    "finish"
                }
                Step::Ended => break,
            });
        }
        (steps, done.unwrap())
    }

    #[test]
    fn a_file_is_durable_then_published_then_named_and_the_task_done_at_last() {
        let (steps, done) = steps(&Task::root(), Vec::new());
        let slice = ["copy", "publish", "rename"];
        let expected = [
            &["fence", "list"],
            &slice[..],
            &slice,
            &["list", "copy", "publish", "flush", "finish"],
        ];
        assert_eq!(steps, expected.concat());
        let sums = Sums {
            files: 5,
            bytes: 40,
            copied: 3,
            copied_bytes: 30,
            failed: 1,
            folders: 1,
            ..Sums::default()
        };
        assert_eq!(done.sums, sums);
    }

    #[test]
    fn what_an_earlier_worker_gave_away_is_offered_again_and_counts_as_given() {
        let task = Task::folder(0, RelPath::parse(b"x").unwrap(), Scope::all());
        let (steps, done) = steps(&task, vec![task.clone()]);
        assert_eq!(steps, ["fence", "offer", "flush", "finish"]);
        assert_eq!(done.given, [task.id()]);
    }
}
