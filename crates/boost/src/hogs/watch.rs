//! When what memory hogs threw out is brought back. Pure.
//!
//! ```text
//!            memory is short                relaxed for a while            idle, and there is room
//!   Calm ──────────────────────> Pressed ─────────────────────> Due ─────────────────────> Bringing
//!    ^                              ^                          │ ^ └ memory is short again:   │
//!    │                              └──────────────────────────┼─┼───────── Pressed <─────────┤
//!    └── all is there, no room left, or nobody was idle <──────┘ └──── a program waits <──────┘
//! ```

use std::time::Duration;

/// Share of the time in which tasks wait for memory: short from the first on, relaxed below the
/// second. Guesses: a desktop becomes sluggish at some percent.
const SHORT: f32 = 0.05;
const RELAXED: f32 = 0.01;
/// Share of the memory that is available: short below the first, relaxed above the second. Guesses:
/// for a kernel without pressure figures these are all there is.
const AVAILABLE_SHORT: f32 = 0.04;
const AVAILABLE_RELAXED: f32 = 0.08;
/// For how long memory must be relaxed before the hogs have gone.
const QUIET: Duration = Duration::from_secs(3);
/// For how long no program may have waited for the source or the cache.
const IDLE: Duration = Duration::from_secs(2);
/// Share of the time in which all that runs waits for disks: then the machine is not idle.
const DISKS_BUSY: f32 = 0.5;
/// Time after which what was thrown out is left where it is.
const DUE_MAX: Duration = Duration::from_secs(3600);
/// Bytes below which there is no room.
const ROOM_MIN: u64 = 8 << 20;

/// What is seen of the machine at a moment. `None`: this system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sight {
    /// Share of the last time in which tasks waited for memory.
    pub(crate) stalled: Option<f32>,
    /// Whether the limit of a group was hit since the last look.
    pub(crate) was_limited: bool,
    /// Share of the memory that is available.
    pub(crate) available: Option<f32>,
    /// Share of the last time in which all that runs waited for disks.
    pub(crate) disks: Option<f32>,
    /// Bytes that may be filled.
    pub(crate) room: u64,
    /// For how long no program has waited for the source or the cache.
    pub(crate) idle_for: Duration,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was thrown out.
    #[default]
    Calm,
    /// Memory is short, or was a moment ago.
    Pressed,
    /// The hogs have gone.
    Due,
    /// Blocks are brought back.
    Bringing,
}

impl Phase {
    /// Returns its name for people and programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Pressed => "memory is short",
            Self::Due => "waiting until idle",
            Self::Bringing => "bringing back",
        }
    }
}

/// Decides.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    phase: Phase,
    /// The last moment at which memory was not relaxed, and that at which the hogs had gone.
    last_short: Duration,
    due: Duration,
    /// Times that memory was short.
    episodes: u64,
}

impl Sight {
    fn is_short(&self) -> bool {
        self.was_limited
            || self.stalled.is_some_and(|share| share >= SHORT)
            || self.available.is_some_and(|share| share < AVAILABLE_SHORT)
    }

    fn is_relaxed(&self) -> bool {
        !self.was_limited
            && self.stalled.is_none_or(|share| share < RELAXED)
            && self.available.is_none_or(|share| share >= AVAILABLE_RELAXED)
    }
}

impl Watch {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn episodes(&self) -> u64 {
        self.episodes
    }

    /// Takes a look. Returns whether blocks are to be brought back now.
    pub(crate) fn look(&mut self, now: Duration, sight: &Sight) -> bool {
        if sight.is_short() {
            if self.phase != Phase::Pressed {
                self.episodes += 1;
            }
            (self.phase, self.last_short) = (Phase::Pressed, now);
        }
        if self.phase == Phase::Pressed {
            if !sight.is_relaxed() {
                self.last_short = now;
            } else if now.saturating_sub(self.last_short) >= QUIET {
                (self.phase, self.due) = (Phase::Due, now);
            }
        }
        let is_waiting = matches!(self.phase, Phase::Due | Phase::Bringing);
        if is_waiting && now.saturating_sub(self.due) > DUE_MAX {
            self.phase = Phase::Calm;
        } else if is_waiting {
            let is_idle = sight.idle_for >= IDLE && sight.disks.is_none_or(|share| share < DISKS_BUSY);
            let goes = is_idle && sight.room >= ROOM_MIN;
            self.phase = if goes { Phase::Bringing } else { Phase::Due };
        }
        self.phase == Phase::Bringing
    }

    /// Takes a look between two reads, after so many bytes of `most`. Returns whether it goes on.
    pub(crate) fn goes_on(&mut self, now: Duration, sight: &Sight, brought: u64, most: u64) -> bool {
        if sight.is_short() {
            return self.look(now, sight);
        }
        if brought >= most || sight.room < ROOM_MIN {
            // What is likeliest is there. More would drive out what others have in memory.
            self.phase = Phase::Calm;
        } else if sight.idle_for < IDLE {
            self.phase = Phase::Due;
        }
        self.phase == Phase::Bringing
    }

    /// Notes that everything is there, or cannot be brought back.
    pub(crate) fn done(&mut self) {
        if self.phase == Phase::Bringing {
            self.phase = Phase::Calm;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn calm() -> Sight {
        Sight {
            stalled: Some(0.0),
            available: Some(0.5),
            disks: Some(0.0),
            room: 1 << 30,
            idle_for: at(60),
            ..Sight::default()
        }
    }

    fn short() -> Sight {
        Sight {
            stalled: Some(0.3),
            ..calm()
        }
    }

    /// Returns a watch that has seen hogs at second 0, and that it is due at second 3.
    fn due() -> Watch {
        let mut watch = Watch::default();
        assert!(!watch.look(at(0), &short()));
        let busy = Sight {
            idle_for: at(0),
            ..calm()
        };
        assert!(!watch.look(at(2), &busy));
        assert_eq!(watch.phase(), Phase::Pressed);
        assert!(!watch.look(at(3), &busy));
        assert_eq!(watch.phase(), Phase::Due);
        watch
    }

    #[test]
    fn nothing_is_brought_back_before_memory_was_short_and_relaxed_again() {
        let mut watch = Watch::default();
        for second in 0..100 {
            assert!(!watch.look(at(second), &calm()));
        }
        assert_eq!((watch.phase(), watch.episodes()), (Phase::Calm, 0));
        for second in 100..110 {
            assert!(!watch.look(at(second), &short()));
        }
        // Neither short nor relaxed: the hogs are still there.
        let between = Sight {
            stalled: Some(0.02),
            ..calm()
        };
        for second in 110..120 {
            assert!(!watch.look(at(second), &between));
        }
        assert!(!watch.look(at(121), &calm()));
        assert!(watch.look(at(122), &calm()));
        assert_eq!((watch.phase(), watch.episodes()), (Phase::Bringing, 1));
        watch.done();
        assert!(!watch.look(at(123), &calm()), "once");
    }

    #[test]
    fn it_waits_for_idle_programs_idle_disks_and_room() {
        let mut watch = due();
        let waits = [
            Sight {
                idle_for: Duration::from_millis(1900),
                ..calm()
            },
            Sight {
                disks: Some(0.8),
                ..calm()
            },
            Sight {
                room: ROOM_MIN - 1,
                ..calm()
            },
        ];
        for sight in waits {
            assert!(!watch.look(at(10), &sight), "{sight:?}");
            assert_eq!(watch.phase(), Phase::Due);
        }
        assert!(watch.look(at(11), &calm()));
    }

    #[test]
    fn it_stops_at_once_when_a_program_waits_or_memory_is_short_again() {
        let mut watch = due();
        assert!(watch.look(at(4), &calm()));
        assert!(watch.goes_on(at(4), &calm(), 1 << 20, 1 << 30));
        let demand = Sight {
            idle_for: at(0),
            ..calm()
        };
        assert!(!watch.goes_on(at(5), &demand, 2 << 20, 1 << 30));
        assert_eq!(watch.phase(), Phase::Due);
        assert!(watch.look(at(9), &calm()), "it goes on later");
        assert!(!watch.goes_on(at(10), &short(), 3 << 20, 1 << 30));
        assert_eq!((watch.phase(), watch.episodes()), (Phase::Pressed, 2));
        assert!(!watch.look(at(12), &calm()));
        assert!(watch.look(at(13), &calm()));
    }

    #[test]
    fn its_bytes_are_bounded() {
        let mut watch = due();
        assert!(watch.look(at(4), &calm()));
        assert!(watch.goes_on(at(4), &calm(), 99, 100));
        assert!(!watch.goes_on(at(4), &calm(), 100, 100));
        assert_eq!(watch.phase(), Phase::Calm);
        let mut watch = due();
        assert!(watch.look(at(4), &calm()));
        let full = Sight {
            room: ROOM_MIN - 1,
            ..calm()
        };
        assert!(!watch.goes_on(at(4), &full, 0, 100));
        assert_eq!(watch.phase(), Phase::Calm);
    }

    #[test]
    fn what_was_thrown_out_long_ago_is_left_where_it_is() {
        let mut watch = due();
        let busy = Sight {
            idle_for: at(0),
            ..calm()
        };
        assert!(!watch.look(at(3603), &busy));
        assert_eq!(watch.phase(), Phase::Due);
        assert!(!watch.look(at(3604), &calm()));
        assert_eq!(watch.phase(), Phase::Calm);
    }

    /// Without figures of pressure (a kernel without PSI, no cgroup of version 2), memory that is not
    /// available tells.
    #[test]
    fn without_figures_of_pressure_the_available_memory_decides() {
        let blind = Sight {
            stalled: None,
            disks: None,
            ..calm()
        };
        let with = |share: f32| Sight {
            available: Some(share),
            ..blind
        };
        let mut watch = Watch::default();
        assert!(!watch.look(at(0), &with(0.5)) && watch.phase() == Phase::Calm);
        assert!(!watch.look(at(1), &with(0.03)) && watch.phase() == Phase::Pressed);
        assert!(!watch.look(at(5), &with(0.05)), "not relaxed yet");
        assert!(!watch.look(at(7), &with(0.5)));
        assert!(watch.look(at(8), &with(0.5)));
        // And where a group's limit was hit.
        let mut watch = Watch::default();
        let limited = Sight {
            was_limited: true,
            available: None,
            ..blind
        };
        assert!(!watch.look(at(0), &limited) && watch.phase() == Phase::Pressed);
        // Nothing is known: nothing is done.
        let mut watch = Watch::default();
        let nothing = Sight {
            available: None,
            ..blind
        };
        assert!((0..50).all(|second| !watch.look(at(second), &nothing)));
    }

    /// Whatever is seen: it brings back only after pressure, when idle and with room, and stops at
    /// pressure and demand.
    #[test]
    fn random_machines() {
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut watch = Watch::default();
            let (mut last_short, mut now) = (None, Duration::ZERO);
            for _ in 0..200 {
                now += Duration::from_millis(random.u64(50..2000));
                let sight = Sight {
                    stalled: (seed % 3 > 0).then(|| if random.u8(..) < 20 { random.f32() } else { 0.0 }),
                    was_limited: random.u8(..) < 5,
                    available: (seed % 2 > 0).then(|| random.f32().max(0.02)),
                    disks: Some(random.f32()),
                    room: random.u64(..1 << 25),
                    idle_for: Duration::from_millis(random.u64(..8000)),
                };
                let was_bringing = watch.phase() == Phase::Bringing;
                let goes = match was_bringing && random.bool() {
                    true => watch.goes_on(now, &sight, random.u64(..200), 150),
                    false => watch.look(now, &sight),
                };
                if sight.is_short() {
                    last_short = Some(now);
                }
                if goes {
                    let short = last_short.expect("memory was short once");
                    assert!(now - short >= QUIET, "seed {seed}");
                    assert!(sight.idle_for >= IDLE && sight.room >= ROOM_MIN, "seed {seed}");
                }
                assert_eq!(goes, watch.phase() == Phase::Bringing, "seed {seed}");
            }
        }
    }
}
