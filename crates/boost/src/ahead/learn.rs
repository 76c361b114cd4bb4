//! Learns from a recording (docs/recording.md) what a session would have learned. Pure.
//!
//! The recording is taken as if nothing were in the cache: what is learned serves a new cache. A
//! block that is asked for again counts anew, unless it is among the last [`SAME_USE`] ones. A
//! fetch takes as long as the recorded reads for which programs had to wait.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ropeway_cache::FileKey;
use ropeway_cache::predict::{Block, Found, Lag, Moment, Prediction, Program, Superfetch};
use ropeway_cache::recording::{Open, Read, Record, Session};
use ropeway_vfs::RelPath;

use super::table::{Table, Taken};
use super::worker::program_name;
use super::{FILES_LEAST, FILES_MAX, NAMES_MAX, saved};
use crate::ranges;

/// Different blocks within which a second request is the same use. A guess: programs read a block in
/// pieces, and several at a time.
const SAME_USE: usize = 64;
/// Predicted blocks that wait to be used, at most.
const PREDICTED_MAX: usize = 4096;
/// Time from which on a read is taken to have waited for the source. A guess: memory is faster.
const WAITED: Duration = Duration::from_millis(1);
/// Numbers of processes (PID_MAX_LIMIT): those of another session are others.
const PIDS: u32 = 1 << 22;

/// What was learned from a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedFigures {
    /// Opens and reads in the recording.
    pub opens: u64,
    /// See [`opens`](Self::opens).
    pub reads: u64,
    /// Requests for blocks of 64 KiB.
    pub requests: u64,
    /// Different files, and programs, of which something was learned.
    pub files: u64,
    /// See [`files`](Self::files).
    pub programs: u64,
    /// Opens and reads that the recording lacks, or whose file is not known.
    pub lost: u64,
    /// Sources in the recording, by name.
    pub sources: Vec<String>,
    /// Pairs of blocks that are known now.
    pub pairs: u64,
    /// Files of a program after which another one is expected now.
    pub next_files: u64,
}

/// Sources that are named, at most.
const SOURCES_MAX: usize = 8;

/// Takes a recording, record by record.
pub(crate) struct Learner {
    blocks: usize,
    learned: Superfetch,
    table: Table,
    names: Vec<u64>,
    session: Option<Session>,
    sessions: u32,
    /// Where the files of this session are, by their number on the volume.
    paths: HashMap<u64, RelPath>,
    known: HashSet<FileKey>,
    programs: HashSet<u64>,
    lag: Lag,
    /// Requests so far: the time of predictions.
    now: u64,
    recent: VecDeque<Block>,
    /// Blocks that were predicted, and the request at which their fetch is done.
    predicted: HashMap<Block, u64>,
    order: VecDeque<Block>,
    figures: LearnedFigures,
}

impl Learner {
    /// Begins for a cache of so many blocks, with what was saved of earlier sessions.
    pub(crate) fn new(blocks: usize, saved: Option<&[u8]>) -> Self {
        let files = blocks.clamp(FILES_LEAST, FILES_MAX);
        let before = saved.and_then(|bytes| saved::decode(bytes, blocks, files).ok());
        let new = || (Superfetch::new(blocks), Table::new(files), Vec::new());
        let (learned, table, names) = before.unwrap_or_else(new);
        Self {
            blocks,
            learned,
            table,
            names,
            session: None,
            sessions: 0,
            paths: HashMap::new(),
            known: HashSet::new(),
            programs: HashSet::new(),
            lag: Lag::default(),
            now: 0,
            recent: VecDeque::new(),
            predicted: HashMap::new(),
            order: VecDeque::new(),
            figures: LearnedFigures::default(),
        }
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, record: Record) {
        match record {
            Record::Session(session) => self.begin(session),
            Record::Open(open) => self.opened(&open),
            Record::Read(read) => self.read(&read),
            Record::Lost(count) => self.lost(count),
        }
    }

    /// Returns what was learned as it is saved, and the figures.
    pub(crate) fn finish(mut self) -> (Vec<u8>, LearnedFigures) {
        let (pairs, next_files) = self.learned.known();
        self.figures.pairs = pairs as u64;
        self.figures.next_files = next_files as u64;
        self.figures.files = self.known.len() as u64;
        self.figures.programs = self.programs.len() as u64;
        let bytes = saved::encode(&self.learned, self.blocks, &self.table, &self.names);
        (bytes, self.figures)
    }

    fn lost(&mut self, count: u64) {
        self.figures.lost = self.figures.lost.saturating_add(count);
    }

    fn begin(&mut self, session: Session) {
        let name = String::from_utf8_lossy(&session.source).into_owned();
        let sources = &mut self.figures.sources;
        if sources.len() < SOURCES_MAX && !sources.contains(&name) {
            sources.push(name);
        }
        self.sessions = self.sessions.wrapping_add(1);
        self.paths.clear();
        self.lag = Lag::default();
        self.session = Some(session);
    }

    fn opened(&mut self, open: &Open) {
        self.figures.opens += 1;
        let path = RelPath::parse(&open.path);
        let (Some(session), Some(path)) = (&self.session, path) else {
            self.lost(1);
            return;
        };
        let seconds = (session.start_us / 1_000_000)
            .saturating_add(open.at_us / 1_000_000)
            .saturating_add_signed(i64::from(session.utc_offset_s));
        let program = Program {
            name: program_name(&open.program),
            pid: open.pid.wrapping_add(self.sessions.wrapping_mul(PIDS)),
        };
        if self.paths.len() == FILES_MAX && !self.paths.contains_key(&open.file) {
            self.paths.clear();
        }
        self.paths.insert(open.file, path.clone());
        if !self.names.contains(&program.name) {
            if self.names.len() == NAMES_MAX {
                self.names.remove(0);
            }
            self.names.push(program.name);
        }
        if self.programs.len() < FILES_MAX {
            self.programs.insert(program.name);
        }
        let Some(number) = self.number(open.file, &path) else {
            return;
        };
        self.learned.files.opened(program, number).for_each(drop);
        self.learned.calendar.used(number, Moment::from_seconds(seconds));
    }

    fn read(&mut self, read: &Read) {
        self.figures.reads += 1;
        let length = usize::try_from(read.length).unwrap_or(usize::MAX);
        let number = self.paths.get(&read.file).cloned();
        let Some(number) = number.and_then(|path| self.number(read.file, &path)) else {
            self.lost(1);
            return;
        };
        let took = Duration::from_micros(read.took_us);
        if took >= WAITED {
            self.lag.fetched(took);
        }
        for index in ranges::blocks(read.offset, length, read.size) {
            self.table.asked(number, index);
            if let Some(block) = Block::new(number, index) {
                self.lag.request(Duration::from_micros(read.at_us));
                self.request(block);
            }
        }
    }

    /// Takes a request for a block.
    fn request(&mut self, block: Block) {
        self.now += 1;
        self.figures.requests += 1;
        let found = self.find(block);
        self.learned.blocks.set_lag(self.lag.requests());
        let mut predictions: Vec<Prediction> = Vec::new();
        let (recent, predicted) = (&self.recent, &self.predicted);
        let is_cached = |other: Block| predicted.contains_key(&other) || recent.contains(&other);
        self.learned
            .blocks
            .request(block, found, is_cached, &mut predictions);
        let due = self.now + u64::from(self.lag.requests());
        for prediction in predictions.iter().filter(|prediction| !prediction.is_cached) {
            self.predict(prediction.block, due);
        }
        if self.recent.contains(&block) {
            return;
        }
        if self.recent.len() == SAME_USE {
            self.recent.pop_front();
        }
        self.recent.push_back(block);
    }

    fn find(&mut self, block: Block) -> Found {
        let due = self.predicted.remove(&block);
        let is_there = due.is_some_and(|due| due <= self.now) || self.recent.contains(&block);
        if is_there { Found::Hit } else { Found::Miss }
    }

    fn predict(&mut self, block: Block, due: u64) {
        if self.order.len() == PREDICTED_MAX
            && let Some(oldest) = self.order.pop_front()
            && self.predicted.remove(&oldest).is_some()
        {
            self.learned.blocks.evicted(oldest);
        }
        self.order.push_back(block);
        self.predicted.insert(block, due);
    }

    /// Returns the number of a file; forgets another that had it.
    fn number(&mut self, file: u64, path: &RelPath) -> Option<u32> {
        let session = self.session.as_ref()?;
        let key = FileKey {
            share: session.share,
            volume: session.volume,
            file: u128::from(file),
        };
        if self.known.len() < FILES_MAX {
            self.known.insert(key);
        }
        let (number, taken) = self.table.number(key, path);
        if let Some(Taken { number, blocks }) = taken {
            self.learned.forget_file(number, blocks, &self.names);
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: usize = 4096;

    fn session(share: u8) -> Record {
        Record::Session(Session {
            share: [share; 16],
            volume: 5,
            start_us: 1_700_000_000_000_000,
            utc_offset_s: 0,
            source: b"disk".to_vec(),
        })
    }

    fn open(pid: u32, file: u64) -> Record {
        Record::Open(Open {
            at_us: file * 1000,
            pid,
            program: b"cc".to_vec(),
            file,
            size: 1 << 30,
            path: format!("folder/{file}").into_bytes(),
        })
    }

    fn read(file: u64, offset: u64, length: u64) -> Record {
        Record::Read(Read {
            at_us: 0,
            took_us: 20_000,
            pid: 1,
            program: b"cc".to_vec(),
            file,
            size: 1 << 30,
            offset,
            length,
        })
    }

    fn learn(records: impl IntoIterator<Item = Record>, saved: Option<&[u8]>) -> (Vec<u8>, LearnedFigures) {
        let mut learner = Learner::new(BLOCKS, saved);
        records.into_iter().for_each(|record| learner.take(record));
        learner.finish()
    }

    /// A program opens ten files in order, and reads a block of each, which takes twice as long as the
    /// next one takes to come.
    fn run(pid: u32) -> Vec<Record> {
        let each = |file| {
            let mut read = read(file, 65_536 * (file * 7 % 5), 4096);
            if let Record::Read(read) = &mut read {
                read.at_us = u64::from(pid) * 1_000_000 + file * 10_000;
            }
            [open(pid, file), read]
        };
        (0..10).flat_map(each).collect()
    }

    fn next(bytes: &[u8], file: u128) -> Vec<u128> {
        let (learned, table, names) = saved::decode(bytes, BLOCKS, BLOCKS).unwrap();
        let files = table.files();
        let number = files.iter().position(|known| known.key.file == file).unwrap();
        let next = learned.files.after(
            Program {
                name: names[0],
                pid: 0,
            },
            number as u32,
        );
        next.map(|(number, _)| table.get(number).unwrap().key.file)
            .collect()
    }

    #[test]
    fn a_sequence_that_came_three_times_is_known_and_one_that_came_once_is_not() {
        let once = learn([vec![session(1)], run(1)].concat(), None).0;
        assert_eq!(next(&once, 3), []);
        let days = [vec![session(1)], run(1), run(2), run(3)].concat();
        let (bytes, figures) = learn(days, None);
        assert_eq!(next(&bytes, 3), [4]);
        assert_eq!((figures.opens, figures.reads, figures.requests), (30, 30, 30));
        assert_eq!((figures.files, figures.programs, figures.lost), (10, 1, 0));
        assert!(figures.next_files >= 9 && figures.pairs >= 7, "{figures:?}");
        assert_eq!(figures.sources, ["disk"]);
    }

    #[test]
    fn what_is_learned_adds_to_what_was_known() {
        let two = [vec![session(1)], run(1), run(2)].concat();
        let (bytes, _) = learn(two, None);
        let (bytes, figures) = learn([vec![session(2)], run(1), run(2)].concat(), Some(&bytes));
        let (_, table, _) = saved::decode(&bytes, BLOCKS, BLOCKS).unwrap();
        assert_eq!((figures.files, table.files().len()), (10, 20), "two shares");
        assert_eq!(next(&bytes, 3), [4]);
        let (bytes, _) = learn([session(1), open(1, 2)], Some(b"damaged"));
        assert_eq!(saved::decode(&bytes, BLOCKS, BLOCKS).unwrap().1.files().len(), 1);
    }

    #[test]
    fn a_block_that_is_read_in_pieces_is_used_once() {
        let pieces = |file: u64| (0..16).map(move |piece| read(file, piece * 4096, 4096));
        let files = (0..200).flat_map(|file| [open(1, file)].into_iter().chain(pieces(file)));
        let (bytes, figures) = learn([session(1)].into_iter().chain(files), None);
        assert_eq!(figures.requests, 3200);
        let (learned, ..) = saved::decode(&bytes, BLOCKS, BLOCKS).unwrap();
        assert!(learned.known().0 <= 200, "{}", learned.known().0);
    }

    #[test]
    fn reads_of_files_that_were_never_opened_are_counted_as_lost() {
        let records = [
            session(1),
            read(7, 0, 1),
            open(1, 7),
            read(7, 0, 1),
            Record::Lost(4),
        ];
        let figures = learn(records, None).1;
        assert_eq!((figures.lost, figures.requests), (5, 1));
        // The next session may be of another source.
        let figures = learn([session(1), open(1, 7), session(2), read(7, 0, 1)], None).1;
        assert_eq!((figures.lost, figures.requests), (1, 0));
    }

    proptest! {
        /// Whatever a recording holds, what is learned from it can be saved and used.
        #[test]
        fn any_recording_can_be_learned(seed in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut any = |_| match random.u8(0..20) {
                0 => session(random.u8(0..3)),
                1..6 => open(random.u32(..), random.u64(0..40)),
                6 => Record::Open(Open {
                    at_us: random.u64(..),
                    pid: random.u32(..),
                    program: vec![random.u8(..); 3],
                    file: random.u64(..),
                    size: random.u64(..),
                    path: vec![random.u8(..); 5],
                }),
                7 => Record::Lost(random.u64(..)),
                8 => read(random.u64(0..40), random.u64(0..1 << 62), 65_536),
                _ => read(random.u64(0..40), random.u64(0..1 << 24), random.u64(0..1 << 20)),
            };
            let (bytes, _) = learn((0..300).map(&mut any), None);
            prop_assert!(saved::decode(&bytes, BLOCKS, BLOCKS).is_ok());
        }
    }
}
