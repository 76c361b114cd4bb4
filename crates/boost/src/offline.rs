//! Answers while the source is lost.
//!
//! ```text
//! question ──▶ the source, impatiently ──▶ its answer ──▶ kept in `known` and `coherence`
//!                   └─ it is lost ──▶ known, and allowed by `outages`? ──▶ the same answer again
//!                                          └─ no ──▶ the source, patiently: waits for the line
//! ```
//! Only what changes nothing is answered here. The rules for blocks are those of
//! [`coherence`](crate::coherence), rule 6.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::patience::{self, Reachability};
use ropeway_vfs::store::{Access, Entries, NodeOpen, NodeStat, Opened, Store};
use ropeway_vfs::{Error, ErrorKind, Kind, Name, Op, RelPath, Result, Space};

use crate::extras::FolderExtras;
use crate::files::FileState;
use crate::known::{Answer, Ask, Found, Known, NAMES_MAX, Question};
use crate::node::BoostNode;
use crate::outages::{Outages, Turn};
use crate::store::StoreShared;

/// What a store has for the time in which its source is lost.
pub(crate) struct Offline {
    pub(crate) known: Mutex<Known>,
    outages: Mutex<Outages>,
    space: Mutex<Option<(Duration, Space)>>,
    pub(crate) extras: Mutex<FolderExtras>,
    /// How long the source returns attributes that it got earlier.
    pub(crate) memory: Duration,
}

/// Figures of all stores of a cache.
#[derive(Debug, Default)]
pub(crate) struct OfflineFigures {
    /// Reads of content, and other questions, that were answered while a source was lost.
    pub(crate) reads: AtomicU64,
    pub(crate) answers: AtomicU64,
    /// Outages so far.
    pub(crate) outages: AtomicU64,
    /// When the present outages began, by the number of their store.
    pub(crate) present: Mutex<Vec<(usize, Duration)>>,
    /// What happened and was not said yet.
    pub(crate) news: Mutex<Vec<String>>,
}

/// News that wait to be said, at most; more are only logged.
const NEWS_MAX: usize = 16;

impl Offline {
    /// Returns what is needed for a source that may be lost. `bound`: for how long answers are given.
    pub(crate) fn new(source: &dyn Store, bound: Duration) -> Option<Self> {
        source.reachability()?;
        let lifetime = source.attribute_lifetime();
        Some(Self {
            known: Mutex::new(Known::new(NAMES_MAX)),
            outages: Mutex::new(Outages::new(bound)),
            space: Mutex::default(),
            extras: Mutex::default(),
            // And some more for a question that was under way.
            memory: lifetime + lifetime / 2,
        })
    }

    /// Whether the answer to a question that was asked at `asked` may be given now.
    pub(crate) fn allows(&self, now: Duration, asked: Duration) -> bool {
        self.outages.lock().allows(now, asked)
    }
}

impl StoreShared {
    /// Begins a question to the source.
    pub(crate) fn question(&self) -> Question {
        Question {
            number: self.files.ask(),
            at: self.boost.shared.now(),
            changes: self
                .offline
                .as_ref()
                .map_or(0, |offline| offline.known.lock().changes()),
        }
    }

    /// Whether the source is lost now.
    pub(crate) fn is_lost(&self) -> bool {
        let Some(offline) = &self.offline else {
            return false;
        };
        let silent = match self.inner.reachability() {
            Some(Reachability::Lost { silent }) => Some(silent),
            _ => None,
        };
        let now = self.boost.shared.now();
        let turn = offline.outages.lock().observe(now, silent);
        if let Some(turn) = turn {
            self.turned(turn);
        }
        silent.is_some()
    }

    fn turned(&self, turn: Turn) {
        let figures = &self.boost.shared.offline;
        let number = std::ptr::from_ref(self).addr();
        let line = {
            let mut present = figures.present.lock();
            present.retain(|(of, _)| *of != number);
            match turn {
                Turn::Began(start) => {
                    figures.outages.fetch_add(1, Ordering::Relaxed);
                    present.push((number, start));
                    format!(
                        "{}: the source does not answer; what is in the cache can be read",
                        self.name
                    )
                }
                Turn::Ended(after) => {
                    format!(
                        "{}: the source answers again, after {:.0} s",
                        self.name,
                        after.as_secs_f64()
                    )
                }
            }
        };
        tracing::info!("{line}");
        let mut news = figures.news.lock();
        if news.len() < NEWS_MAX {
            news.push(line);
        }
    }

    /// Asks the source. While it is lost, `known` may answer instead; without an answer, the caller
    /// waits for the source as long as it allows.
    pub(crate) fn ask_or<T>(
        &self,
        ask: impl Fn() -> Result<T>,
        known: impl FnOnce(&Offline, Duration) -> Option<Result<T>>,
    ) -> Result<T> {
        let Some(offline) = &self.offline else {
            return ask();
        };
        if !self.is_lost() {
            match patience::impatiently(&ask) {
                Err(error) if error.kind == ErrorKind::Unreachable => {}
                answered => return answered,
            }
            if !self.is_lost() {
                // It came back in this moment.
                return ask();
            }
        }
        match known(offline, self.boost.shared.now()) {
            Some(answer) => {
                self.boost.shared.offline.answers.fetch_add(1, Ordering::Relaxed);
                answer
            }
            None => ask(),
        }
    }

    /// Keeps what the source said of a path.
    pub(crate) fn note<'a>(
        &self,
        question: Question,
        path: &RelPath,
        ask: Ask,
        stat: impl Into<Option<&'a NodeStat>>,
    ) {
        let Some(offline) = &self.offline else { return };
        let found = match stat.into() {
            // Own changes of such a file would not be noticed.
            Some(stat) if stat.kind == Kind::File && !self.is_ours(stat) => return,
            Some(stat) => {
                if let Some(file) = self.files.get(stat.id).filter(|_| stat.kind == Kind::File) {
                    self.learn(&file, (question.number, question.at), stat);
                }
                Found::There(*stat)
            }
            None => Found::Missing,
        };
        offline.known.lock().put(question, path, ask, found);
    }

    /// Keeps the outcome of a question about a path.
    pub(crate) fn note_result(
        &self,
        question: Question,
        path: &RelPath,
        ask: Ask,
        stat: std::result::Result<&NodeStat, &Error>,
    ) {
        match stat {
            Ok(stat) => self.note(question, path, ask, stat),
            Err(error) if error.kind == ErrorKind::NotFound => self.note(question, path, ask, None),
            Err(_) => {}
        }
    }

    /// Runs a change of names.
    pub(crate) fn changing_names<T>(&self, paths: &[&RelPath], change: impl FnOnce() -> T) -> T {
        self.names_changed(paths);
        let changed = change();
        self.names_changed(paths);
        changed
    }

    /// Notes a change of names.
    pub(crate) fn names_changed(&self, paths: &[&RelPath]) {
        if let Some(offline) = &self.offline {
            let mut known = offline.known.lock();
            for path in paths {
                known.changed(path);
            }
        }
    }

    /// Returns the last answer about a path, if it may be given now. Attributes of a file that was
    /// changed through this store, and not asked for since, may not.
    pub(crate) fn answer(&self, offline: &Offline, now: Duration, path: &RelPath, ask: Ask) -> Option<Found> {
        let answer: Answer = offline.known.lock().get(path, ask)?;
        let Found::There(stat) = answer.found else {
            return offline.allows(now, answer.question.at).then_some(Found::Missing);
        };
        if stat.kind != Kind::File {
            return offline.allows(now, answer.question.at).then_some(answer.found);
        }
        let file = self.file_of(&stat)?;
        let question = (answer.question.number, answer.question.at);
        self.learn(&file, question, &stat);
        self.last_stat(offline, now, &file).map(Found::There)
    }

    /// Returns the last attributes of a file, if they may be given now.
    pub(crate) fn last_stat(&self, offline: &Offline, now: Duration, file: &FileState) -> Option<NodeStat> {
        let (asked, stat) = file.coherence.lock().last()?;
        offline.allows(now, asked).then_some(stat)
    }

    /// Returns the last attributes of a path.
    pub(crate) fn last_look(
        &self,
        offline: &Offline,
        now: Duration,
        path: &RelPath,
    ) -> Option<Result<NodeStat>> {
        Some(match self.answer(offline, now, path, Ask::Itself)? {
            Found::There(stat) => Ok(stat),
            Found::Missing => Err(Error::new(Op::Stat, path, ErrorKind::NotFound)),
        })
    }

    /// Opens what is known of a path. The source's node is opened when it is needed.
    pub(crate) fn open_known(
        self: &Arc<Self>,
        offline: &Offline,
        now: Duration,
        path: &RelPath,
        how: &NodeOpen,
    ) -> Option<Result<Opened>> {
        if how.create.is_some() || (how.access == Access::Write && !how.allow_less_access) {
            return None;
        }
        let ask = if how.link_itself {
            Ask::Itself
        } else {
            Ask::Followed
        };
        let stat = match self.answer(offline, now, path, ask)? {
            Found::There(stat) => stat,
            Found::Missing => return Some(Err(Error::new(Op::Open, path, ErrorKind::NotFound))),
        };
        let access = match stat.kind {
            Kind::File => how.access.min(Access::Read),
            Kind::Directory => how.access,
            _ => Access::Attributes,
        };
        let node = BoostNode::known(self, path, NodeOpen { access, ..*how }, &stat);
        Some(Ok(Opened {
            node: Arc::new(node),
            stat,
            created: false,
        }))
    }

    /// Returns the spelling of a path on the source.
    pub(crate) fn resolve_known(offline: &Offline, now: Duration, path: &RelPath) -> Option<Result<RelPath>> {
        let (found, question) = offline.known.lock().resolve(path)?;
        offline.allows(now, question.at).then_some(Ok(found))
    }

    /// Returns the entries of a folder that was listed to its end, if the attributes of all of them
    /// are known.
    pub(crate) fn list_known(
        &self,
        offline: &Offline,
        now: Duration,
        dir: &RelPath,
    ) -> Option<Result<Box<dyn Entries>>> {
        let (names, question) = offline.known.lock().listing(dir)?;
        if !offline.allows(now, question.at) {
            return None;
        }
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            match self.answer(offline, now, &dir.join(&name), Ask::Itself)? {
                Found::There(stat) => entries.push((name, stat)),
                // Asked after the folder was listed.
                Found::Missing => {}
            }
        }
        Some(Ok(Box::new(KnownEntries(entries.into_iter()))))
    }

    /// Returns the size and free space of the volume.
    pub(crate) fn space(&self) -> Result<Space> {
        let ask = || {
            let at = self.boost.shared.now();
            let space = self.inner.space()?;
            if let Some(offline) = &self.offline {
                *offline.space.lock() = Some((at, space));
            }
            Ok(space)
        };
        self.ask_or(ask, |offline, now| {
            let (at, space) = (*offline.space.lock())?;
            offline.allows(now, at).then_some(Ok(space))
        })
    }
}

impl Drop for StoreShared {
    /// An outage of a source that nobody uses any more is none.
    fn drop(&mut self) {
        let number = std::ptr::from_ref(self).addr();
        let mut present = self.boost.shared.offline.present.lock();
        present.retain(|(of, _)| *of != number);
    }
}

/// Entries that were listed before.
struct KnownEntries(std::vec::IntoIter<(Name, NodeStat)>);

impl Entries for KnownEntries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        Ok(self.0.next())
    }
}

/// Entries that the source lists, kept at the end.
pub(crate) struct NotedEntries {
    inner: Box<dyn Entries>,
    store: Arc<StoreShared>,
    question: Question,
    dir: RelPath,
    /// All entries so far; `None` if they are not kept.
    all: Option<Vec<(Name, NodeStat)>>,
}

impl NotedEntries {
    pub(crate) fn new(
        inner: Box<dyn Entries>,
        store: &Arc<StoreShared>,
        question: Question,
        dir: &RelPath,
    ) -> Self {
        Self {
            inner,
            store: Arc::clone(store),
            question,
            dir: dir.clone(),
            all: Some(Vec::new()),
        }
    }

    fn finish(&mut self) {
        if let (Some(all), Some(offline)) = (self.all.take(), &self.store.offline) {
            offline.known.lock().put_listing(self.question, &self.dir, all);
        }
    }
}

impl Entries for NotedEntries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        let next = self.inner.next()?;
        let Some((name, stat)) = &next else {
            self.finish();
            return Ok(None);
        };
        let store = &self.store;
        if stat.kind == Kind::File && !store.is_ours(stat) {
            self.all = None;
        } else if let Some(file) = store.files.get(stat.id) {
            store.learn(&file, (self.question.number, self.question.at), stat);
        }
        let entries_max = store
            .offline
            .as_ref()
            .map_or(0, |offline| offline.known.lock().entries_max());
        if let Some(all) = &mut self.all {
            all.push((name.clone(), *stat));
            if all.len() > entries_max {
                self.all = None;
            }
        }
        Ok(next)
    }
}
