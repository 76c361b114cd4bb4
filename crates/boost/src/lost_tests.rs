//! Reading while the source is lost, by seed: outages, changes by others and by this store at any
//! time, reads that are under way when the line is cut, and a line that comes and goes.
//!
//! Checked is what a reader gets: all blocks are of one version; it is one that the source had when it
//! was last asked, or later; own changes are in it; and the time since the first moment in which it
//! could not be confirmed is bounded.

use std::time::Duration;

use ropeway_cache::Version;
use ropeway_vfs::store::{NodeStat, Versioning};
use ropeway_vfs::{FileId, Kind, Owner, Timestamp};

use crate::coherence::Coherence;
use crate::outages::Outages;

const START: i128 = 1_000_000_000_000;
const BLOCKS: usize = 3;
const BOUND: Duration = Duration::from_secs(60);

/// A read of the source that has not returned.
struct Under {
    version: Option<Version>,
    block: usize,
}

struct World {
    random: fastrand::Rng,
    now: Duration,
    tick: Duration,
    source: Versioning,
    /// How long the store returns earlier attributes.
    memory: Duration,
    content: u64,
    changed: i128,
    /// What was in the file, with the times at which it was replaced.
    past: Vec<(u64, Duration)>,
    /// What the store remembers of content and attributes, and since when.
    read: [Option<(u64, Duration)>; BLOCKS],
    known: Option<(i128, Duration)>,
    unsent: Option<u64>,
    /// When the last own change reached the source.
    own: Duration,
    is_cut: bool,
    coherence: Coherence,
    outages: Outages,
    cache: Vec<(Version, usize, u64)>,
    under: Vec<Under>,
    question: u64,
    /// When the source was last asked with success, and when the first outage after that began.
    asked: Duration,
    first_outage: Option<Duration>,
    served: usize,
    stale: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let millis = |random: &mut fastrand::Rng, most: u64| Duration::from_millis(random.u64(0..most));
        let tick = millis(&mut random, 2000) + Duration::from_millis(1);
        let memory = millis(&mut random, 3000);
        Self {
            now: Duration::from_secs(100),
            tick,
            source: Versioning {
                now: Timestamp(START),
                settle: tick,
                memory: memory * 2,
                writes_at_once: memory.is_zero(),
            },
            memory,
            content: 0,
            changed: START,
            past: Vec::new(),
            read: [None; BLOCKS],
            known: None,
            unsent: None,
            own: Duration::ZERO,
            is_cut: false,
            coherence: Coherence::default(),
            outages: Outages::new(BOUND),
            cache: Vec::new(),
            under: Vec::new(),
            question: 0,
            asked: Duration::ZERO,
            first_outage: None,
            served: 0,
            stale: 0,
            random,
        }
    }

    fn set_content(&mut self, content: u64) {
        self.past.push((self.content, self.now));
        self.content = content;
        let nanos = self.now.as_nanos() / self.tick.as_nanos() * self.tick.as_nanos();
        self.changed = START + i128::try_from(nanos).unwrap();
    }

    fn stat(&self, changed: i128) -> NodeStat {
        NodeStat {
            kind: Kind::File,
            size: BLOCKS as u64,
            allocated: 0,
            links: 1,
            id: FileId { volume: 1, index: 2 },
            mode: 0o644,
            owner: Owner { user: 0, group: 0 },
            created: Timestamp(1),
            accessed: Timestamp(1),
            modified: Timestamp(1),
            changed: Timestamp(changed),
            dos_attributes: None,
        }
    }

    /// Asks the store for the attributes; it may remember them.
    fn ask(&mut self) {
        if self.is_cut {
            return;
        }
        self.question += 1;
        let known = self
            .known
            .filter(|(_, at)| self.now.saturating_sub(*at) < self.memory);
        let (changed, at) = known.unwrap_or((self.changed, self.now));
        self.known = Some((changed, at));
        let (question, stat) = ((self.question, self.now), self.stat(changed));
        self.coherence.learn(question, self.now, &stat, &self.source);
        (self.asked, self.first_outage) = (self.now, None);
    }

    fn kept(&self, version: Version, block: usize) -> Option<u64> {
        let mut kept = self.cache.iter();
        let kept = kept.find(|(of, at, _)| (*of, *at) == (version, block));
        kept.map(|(_, _, content)| *content)
    }

    /// Begins a read of one block, as a node does: the source is asked for the attributes only if the
    /// block may be in the cache.
    fn begin_read(&mut self, block: usize) {
        let mut version = self.coherence.usable(self.now, &self.source);
        if version.is_some_and(|version| self.kept(version, block).is_some()) {
            self.ask();
            version = self.coherence.usable(self.now, &self.source);
            if version.is_some_and(|version| self.kept(version, block).is_some()) {
                return;
            }
        }
        self.coherence.begin_read(Some(&self.source));
        self.under.push(Under { version, block });
    }

    /// The source answers a read: with what is in the file now, or what the store has read ahead.
    fn end_read(&mut self) {
        if self.is_cut || self.under.is_empty() {
            return;
        }
        let Under { version, block } = self.under.swap_remove(self.random.usize(..self.under.len()));
        let memory = self.source.memory;
        let read = self.read[block].filter(|(_, at)| self.now.saturating_sub(*at) < memory);
        let (content, at) = read.unwrap_or((self.content, self.now));
        self.read[block] = Some((content, at));
        self.coherence.end_read(self.now, Some(&self.source));
        let Some(version) = version else { return };
        self.coherence.was_kept(self.now);
        if self.coherence.usable(self.now, &self.source) == Some(version)
            && self.kept(version, block).is_none()
            && self.unsent.is_none()
        {
            self.cache.push((version, block, content));
        }
    }

    /// Reads all blocks while the source is lost.
    fn read_lost(&mut self) {
        let Some((asked, _)) = self.coherence.last() else {
            return;
        };
        let version = self.coherence.usable_lost(self.now, self.memory, &self.source);
        let Some(version) = version.filter(|_| self.outages.allows(self.now, asked)) else {
            return;
        };
        let blocks: Vec<u64> = (0..BLOCKS)
            .filter_map(|block| self.kept(version, block))
            .collect();
        let Some(first) = blocks.first() else { return };
        self.served += 1;
        assert!(blocks.iter().all(|block| block == first), "mixed: {blocks:?}");
        assert!(self.unsent.is_none(), "an own change is missing");
        // It was in the file when the source was asked last, or later: attributes that the store
        // remembered may be older.
        let oldest = self.asked.saturating_sub(self.memory);
        let is_recent = |until: Duration| until >= oldest && (self.own.is_zero() || until > self.own);
        let was = |(content, until): &(u64, Duration)| content == first && is_recent(*until);
        let is_known = *first == self.content || self.past.iter().any(was);
        assert!(is_known, "{first} is older than the last answer");
        let since = self.first_outage.expect("it is lost");
        assert!(self.now - since < BOUND, "too old");
        self.stale += usize::from(*first != self.content);
    }

    fn write(&mut self) {
        if self.is_cut {
            return;
        }
        self.coherence.begin_change();
        let content = self.random.u64(..);
        (self.known, self.read) = (None, [None; BLOCKS]);
        self.unsent = Some(content);
        self.question += 1;
        self.coherence.end_change(self.question, self.now, &self.source);
        if self.source.writes_at_once {
            self.sent();
        }
    }

    fn sent(&mut self) {
        if let Some(content) = self.unsent.take() {
            self.set_content(content);
            self.own = self.now;
        }
    }

    fn write_out(&mut self) {
        if self.is_cut {
            return;
        }
        let changes = self.coherence.changes();
        self.sent();
        self.question += 1;
        self.coherence
            .written_out(changes, self.question, self.now, &self.source);
    }

    fn turn(&mut self) {
        self.is_cut = !self.is_cut;
        self.outages
            .observe(self.now, self.is_cut.then_some(Duration::ZERO));
        if self.is_cut {
            self.first_outage.get_or_insert(self.now);
        }
    }

    fn step(&mut self) {
        let most = self.random.u64(1..=3000);
        self.now += Duration::from_millis(self.random.u64(0..most));
        let elapsed = i128::try_from(self.now.as_nanos()).unwrap();
        self.source.now = Timestamp(START + elapsed);
        match self.random.u8(0..40) {
            // Another client, also while the line is cut.
            0 => {
                let content = self.random.u64(..);
                self.set_content(content);
            }
            1 => self.write(),
            2 | 3 => self.write_out(),
            4 | 5 => self.turn(),
            6 => self.ask(),
            7..=14 => {
                // As `confirm` does.
                let due = self.coherence.to_confirm(self.memory);
                if due.is_some_and(|due| due <= self.now) {
                    self.ask();
                }
            }
            15..=22 => {
                let block = self.random.usize(..BLOCKS);
                self.begin_read(block);
            }
            23..=32 => self.end_read(),
            _ if self.is_cut => self.read_lost(),
            _ => {}
        }
    }
}

#[test]
fn a_lost_source_is_replaced_by_one_version_of_its_last_answer() {
    let (mut served, mut stale) = (0, 0);
    for seed in 0..4000 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        served += world.served;
        stale += world.stale;
    }
    assert!(served > 2000 && stale > 500, "{served} {stale}");
}
