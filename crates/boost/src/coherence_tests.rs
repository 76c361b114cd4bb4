//! Coherence by seed, against a source with coarse change times and a store with a memory.

use ropeway_vfs::{FileId, Owner, Timestamp};

use super::*;

const START: i128 = 1_000_000_000_000;

fn stat(changed: i128, size: u64) -> NodeStat {
    let time = Timestamp(changed);
    NodeStat {
        kind: Kind::File,
        size,
        allocated: size,
        links: 1,
        id: FileId { volume: 1, index: 2 },
        mode: 0o644,
        owner: Owner { user: 0, group: 0 },
        created: Timestamp(1),
        accessed: Timestamp(1),
        modified: Timestamp(1),
        changed: time,
        dos_attributes: None,
    }
}

/// A source whose file changes, the store in front of it, and a cache of one block.
struct World {
    random: fastrand::Rng,
    now: Duration,
    tick: Duration,
    source: Versioning,
    /// The file: content, change time, and when it changed.
    content: u64,
    changed: i128,
    /// What the store remembers of content and attributes, and since when.
    read: Option<(u64, Duration)>,
    known: Option<(i128, Duration)>,
    /// Writes that the store has acknowledged and not sent.
    unsent: Option<u64>,
    /// What was in the file, with the times at which it was replaced.
    past: Vec<(u64, Duration)>,
    coherence: Coherence,
    cache: Vec<(Version, u64)>,
    question: u64,
    hits: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let millis = |random: &mut fastrand::Rng, most: u64| Duration::from_millis(random.u64(0..most));
        let tick = millis(&mut random, 2000) + Duration::from_millis(1);
        let memory = millis(&mut random, 5000);
        Self {
            now: Duration::from_secs(100),
            tick,
            source: Versioning {
                now: Timestamp(START),
                settle: tick,
                memory,
                writes_at_once: memory.is_zero(),
            },
            content: 0,
            changed: START,
            read: None,
            known: None,
            unsent: None,
            past: Vec::new(),
            coherence: Coherence::default(),
            cache: Vec::new(),
            question: 0,
            hits: 0,
            random,
        }
    }

    /// Returns the change time that the source stamps now: its clock stands between ticks.
    fn stamp(&self) -> i128 {
        let nanos = self.now.as_nanos() / self.tick.as_nanos() * self.tick.as_nanos();
        START + i128::try_from(nanos).unwrap()
    }

    fn set_content(&mut self, content: u64) {
        self.past.push((self.content, self.now));
        self.content = content;
        self.changed = self.stamp();
    }

    /// Asks the store for the attributes; it may remember them.
    fn ask(&mut self) {
        self.question += 1;
        let memory = self.source.memory;
        let known = self
            .known
            .filter(|(_, at)| self.now.saturating_sub(*at) < memory / 2);
        let (changed, at) = known.unwrap_or((self.changed, self.now));
        self.known = Some((changed, at));
        self.coherence.learn(
            (self.question, self.now),
            self.now,
            &stat(changed, 1),
            &self.source,
        );
    }

    /// Reads through the store, which may remember the content.
    fn read_source(&mut self) -> u64 {
        self.coherence.begin_read(Some(&self.source));
        let memory = self.source.memory;
        let read = self.read.filter(|(_, at)| self.now.saturating_sub(*at) < memory);
        let (content, at) = read.unwrap_or((self.content, self.now));
        self.read = Some((content, at));
        self.coherence.end_read(self.now, Some(&self.source));
        self.unsent.unwrap_or(content)
    }

    fn read(&mut self) {
        self.ask();
        let Some(version) = self.coherence.usable(self.now, &self.source) else {
            self.read_source();
            return;
        };
        if let Some((_, kept)) = self.cache.iter().find(|(of, _)| *of == version) {
            self.hits += 1;
            // The attributes may be as old as the store's memory; so may the content then be.
            let oldest = self.now.saturating_sub(self.source.memory);
            let was = |(content, until): &(u64, Duration)| content == kept && *until >= oldest;
            let is_current = self.unsent.is_none() && (*kept == self.content || self.past.iter().any(was));
            assert!(is_current, "{kept} is stale: {} at {:?}", self.content, self.now);
            return;
        }
        let content = self.read_source();
        if self.coherence.usable(self.now, &self.source) == Some(version) {
            self.cache.push((version, content));
        }
    }

    fn write(&mut self) {
        self.coherence.begin_change();
        let content = self.random.u64(..);
        (self.known, self.read) = (None, None);
        if self.source.writes_at_once {
            self.set_content(content);
        } else {
            self.unsent = Some(content);
        }
        self.question += 1;
        self.coherence.end_change(self.question, self.now, &self.source);
    }

    fn write_out(&mut self) {
        let changes = self.coherence.changes();
        if let Some(content) = self.unsent.take() {
            self.set_content(content);
        }
        self.question += 1;
        self.coherence
            .written_out(changes, self.question, self.now, &self.source);
    }

    fn step(&mut self) {
        let most = self.random.u64(1..=4000);
        self.now += Duration::from_millis(self.random.u64(0..most));
        let elapsed = i128::try_from(self.now.as_nanos()).unwrap();
        self.source.now = Timestamp(START + elapsed);
        match self.random.u8(0..20) {
            0 => {
                // Another client.
                let content = self.random.u64(..);
                self.set_content(content);
            }
            1 => self.write(),
            2 => self.write_out(),
            3 => self.ask(),
            _ => self.read(),
        }
    }
}

#[test]
fn a_hit_is_never_older_than_the_attributes() {
    let mut hits = 0;
    for seed in 0..2000 {
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.step();
        }
        hits += world.hits;
    }
    assert!(hits > 10_000, "{hits}");
}

fn source() -> Versioning {
    Versioning {
        now: Timestamp(START),
        settle: Duration::from_secs(2),
        memory: Duration::ZERO,
        writes_at_once: true,
    }
}

#[test]
fn a_file_that_changed_a_moment_ago_is_not_cached() {
    let mut coherence = Coherence::default();
    let now = Duration::from_secs(1);
    coherence.learn((0, now), now, &stat(START - 1_999_999_999, 5), &source());
    assert_eq!(coherence.usable(now, &source()), None);
    coherence.learn((1, now), now, &stat(START - 2_000_000_000, 5), &source());
    assert!(coherence.usable(now, &source()).is_some());
    coherence.learn((2, now), now, &stat(START + 1, 5), &source());
    assert_eq!(coherence.usable(now, &source()), None, "from the future");
}

#[test]
fn a_file_without_id_or_change_time_is_not_cached() {
    let old = stat(1, 5);
    let without_id = NodeStat {
        id: FileId { volume: 1, index: 0 },
        ..old
    };
    for none in [stat(0, 5), stat(Timestamp::UNKNOWN.0, 5), without_id] {
        let mut coherence = Coherence::default();
        coherence.learn((0, Duration::ZERO), Duration::ZERO, &none, &source());
        assert_eq!(coherence.usable(Duration::ZERO, &source()), None);
    }
}

#[test]
fn a_restored_write_time_is_another_version() {
    let restored = NodeStat {
        changed: Timestamp(2),
        ..stat(1, 5)
    };
    assert_ne!(version_of(&stat(1, 5)), version_of(&restored));
    let replaced = NodeStat {
        created: Timestamp(2),
        ..stat(1, 5)
    };
    assert_ne!(
        version_of(&stat(1, 5)),
        version_of(&replaced),
        "a number used again"
    );
}

#[test]
fn a_late_answer_does_not_bring_an_old_version_back() {
    let (mut coherence, now) = (Coherence::default(), Duration::from_secs(9));
    coherence.learn((5, now), now, &stat(20, 5), &source());
    coherence.learn((4, now), now, &stat(10, 5), &source());
    assert_eq!(coherence.usable(now, &source()), version_of(&stat(20, 5)));
}
