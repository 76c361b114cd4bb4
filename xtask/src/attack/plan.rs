//! The plan of a seed: a command line, and the events between its start and its end.

use ropeway_lab::random::SplitMix64 as Rng;

use super::testbed::Kind as TestbedKind;
use super::tree::Shape;

/// A round, except the moments of timed kills.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) testbed: TestbedKind,
    pub(crate) shape: Shape,
    pub(crate) command: Command,
    /// Whether the target exists before the first run, with parts equal to the source.
    pub(crate) target_exists: bool,
    pub(crate) legs: Vec<Leg>,
}

/// Flags that the judgement depends on, and some others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pub(crate) mirror: bool,
    pub(crate) update: bool,
    pub(crate) ignore_existing: bool,
    pub(crate) checksum: bool,
    pub(crate) inplace: bool,
    pub(crate) backup: Backup,
    pub(crate) exclude: bool,
    pub(crate) moves: bool,
    /// `--durability none`.
    pub(crate) careless: bool,
    pub(crate) no_hard_links: bool,
    /// Flags that do not change the result.
    pub(crate) further: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Backup {
    #[default]
    None,
    Suffix,
    Folder,
}

/// Folder of `--backup-dir`, below the target.
pub(crate) const BACKUP_FOLDER: &str = "kept";

/// A run that does not end by itself, and the events before it.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    pub(crate) source_changes: u64,
    pub(crate) target_changes: u64,
    pub(crate) event: Event,
    pub(crate) stop: Stop,
    /// Whether the target is a model of a slow device, so that data is in flight.
    pub(crate) slow: bool,
}

impl Leg {
    /// Describes the leg in a few words.
    pub(crate) fn describe(&self) -> String {
        let slow = if self.slow { " slow" } else { "" };
        let (source, target) = (self.source_changes, self.target_changes);
        format!(
            "{source}+{target} changes, {:?}, {:?}{slow}",
            self.event, self.stop
        )
    }
}

/// What happens to the machine before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    None,
    /// The device of the target keeps its content of that moment, the page cache is lost, and a new
    /// boot follows.
    PowerCut,
    /// The target is unmounted and mounted again, in another boot.
    Reboot,
    /// The run keeps its state in a new folder; the old folder stays.
    OtherState,
    /// As [`Self::OtherState`], and the old folder is removed.
    StateLost,
    /// The program's clock is off by this number of seconds.
    Clock(i64),
    /// The target's volume is full until the run has ended.
    Full,
    /// Write-back fails until the run has ended: the device cannot take more.
    FlushFails,
    /// The server is killed and started again.
    ServerKilled,
}

/// How a run is stopped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    /// SIGKILL after this fraction of the time that a run takes.
    Kill(f64),
    /// SIGINT, in the same way.
    Interrupt(f64),
    /// SIGKILL instead of the n-th call of this system call.
    KillAt(&'static str, u64),
    /// This system call fails from the n-th on, three times.
    Fails(&'static str, &'static str, u64),
    /// Another run of the same command with another state folder is killed beside it.
    Beside(f64),
}

impl Plan {
    /// Returns the plan of a seed.
    pub(crate) fn of(seed: u64, testbeds: &[TestbedKind]) -> Self {
        let mut rng = Rng::new(seed);
        let testbed = testbeds[rng.below(testbeds.len() as u64) as usize];
        let command = command(&mut rng, testbed);
        let shape = Shape {
            files: 6 + rng.below(30),
            big: rng.below(3),
            odd_kinds: testbed.is_local(),
        };
        let target_exists = rng.below(2) == 0;
        let legs = (0..1 + rng.below(5))
            .map(|number| leg(&mut rng, testbed, &command, number))
            .collect();
        Self {
            seed,
            testbed,
            shape,
            command,
            target_exists,
            legs,
        }
    }
}

fn one_in(rng: &mut Rng, bound: u64) -> bool {
    rng.below(bound) == 0
}

fn command(rng: &mut Rng, testbed: TestbedKind) -> Command {
    let mirror = one_in(rng, 2);
    let mut command = Command {
        mirror,
        update: one_in(rng, 8),
        ignore_existing: one_in(rng, 10),
        checksum: one_in(rng, 6),
        inplace: one_in(rng, 6),
        backup: match rng.below(8) {
            0 => Backup::Suffix,
            1 => Backup::Folder,
            _ => Backup::None,
        },
        exclude: one_in(rng, 3),
        moves: !mirror && one_in(rng, 6),
        careless: one_in(rng, 12),
        no_hard_links: one_in(rng, 8),
        further: Vec::new(),
    };
    // A move without durability moves nothing; other tests check that.
    if command.moves {
        command.careless = false;
    }
    // Ropeway refuses this contradiction.
    command.ignore_existing &= !command.update;
    let keeps = command.update || command.ignore_existing;
    let mut add = |chance: u64, words: &[&str]| {
        if rng.below(chance) == 0 {
            command.further.extend(words.iter().map(ToString::to_string));
        }
    };
    add(5, &["--verify"]);
    add(6, &["--durability", "file"]);
    add(8, &["--cache", "direct"]);
    add(8, &["--dirty-max", "4M"]);
    add(8, &["--preflight"]);
    add(10, &["-x"]);
    if testbed.is_local() {
        add(8, &["--engine", "vista-sp1"]);
    }
    if command.careless {
        command
            .further
            .retain(|word| !matches!(word.as_str(), "--durability" | "file" | "--verify"));
    }
    if keeps {
        // A kept file differs from its source, which verification would report.
        command.further.retain(|word| word != "--verify");
    }
    command
}

fn leg(rng: &mut Rng, testbed: TestbedKind, command: &Command, number: u64) -> Leg {
    let event = match rng.below(14) {
        0 | 1 if testbed.has_power() && !command.careless => Event::PowerCut,
        2 if testbed.has_power() => Event::Reboot,
        3 => Event::OtherState,
        4 => Event::StateLost,
        5 | 6 => Event::Clock([-3_600, 3_600, -86_400 * 400, 120][rng.below(4) as usize]),
        7 if testbed.has_power() => Event::Full,
        8 if testbed.can_fail() && !command.careless => Event::FlushFails,
        9 if !testbed.is_local() => Event::ServerKilled,
        _ => Event::None,
    };
    let calls = [
        "renameat2",
        "mkdirat",
        "unlinkat",
        "utimensat",
        "pwrite64",
        "syncfs",
        "fdatasync",
        "fsync",
        "openat2",
        "linkat",
        "fchmod",
        "write",
        "sendto",
        "sendmsg",
    ];
    let call = calls[rng.below(if testbed.is_local() { 12 } else { 14 }) as usize];
    let nth = 1 + rng.log_uniform(1, 60);
    let stop = match rng.below(10) {
        0 => Stop::Interrupt(rng.fraction()),
        1..=3 => Stop::KillAt(call, nth),
        4 if testbed.is_local() => {
            let error = ["EIO", "ENOSPC", "EACCES"][rng.below(3) as usize];
            // A failing write(2) would be that of the program's output or of its runtime.
            let call = if call == "write" { "pwrite64" } else { call };
            Stop::Fails(call, error, nth)
        }
        5 => Stop::Beside(rng.fraction()),
        _ => Stop::Kill(rng.fraction()),
    };
    let quiet = number == 0 || one_in(rng, 2);
    Leg {
        source_changes: if quiet { 0 } else { rng.below(5) },
        target_changes: if quiet || one_in(rng, 2) { 0 } else { rng.below(3) },
        event,
        stop,
        slow: one_in(rng, 3),
    }
}

impl Command {
    /// Returns the arguments of `ropeway`, without source and target.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = match self.mirror {
            true => vec!["mirror".into(), "--yes".into()],
            false => vec!["copy".into(), "-T".into()],
        };
        words.push("--json".into());
        let mut add = |wanted: bool, word: &str| {
            if wanted {
                words.push(word.into());
            }
        };
        add(self.update, "--update");
        add(self.ignore_existing, "--ignore-existing");
        add(self.checksum, "--checksum");
        add(self.inplace, "--inplace");
        add(self.exclude, "--exclude=*.tmp");
        add(self.moves, "--move");
        add(self.careless, "--durability=none");
        add(self.no_hard_links, "--no-hard-links");
        add(self.backup == Backup::Suffix, "--backup=~");
        if self.backup == Backup::Folder {
            words.extend(["--backup-dir".into(), BACKUP_FOLDER.into()]);
        }
        words.extend(self.further.iter().cloned());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_plan_each_time() {
        let testbeds = [TestbedKind::Ext4, TestbedKind::Serve];
        let shown = |seed| format!("{:?}", Plan::of(seed, &testbeds));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn plans_are_of_all_sorts() {
        let plans: Vec<Plan> = (0..500)
            .map(|seed| Plan::of(seed, &[TestbedKind::Ext4]))
            .collect();
        let any = |test: fn(&Plan) -> bool| plans.iter().any(test);
        assert!(any(|plan| plan.command.mirror) && any(|plan| plan.command.moves));
        assert!(any(|plan| plan
            .legs
            .iter()
            .any(|leg| leg.event == Event::PowerCut)));
        assert!(any(|plan| plan
            .legs
            .iter()
            .any(|leg| leg.event == Event::FlushFails)));
        assert!(any(|plan| matches!(plan.legs[0].stop, Stop::KillAt(..))));
    }
}
