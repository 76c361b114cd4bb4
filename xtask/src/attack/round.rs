//! One round: a tree, a job that is killed and disturbed, its end, and the judgement.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropeway_lab::random::SplitMix64 as Rng;

use super::judge::{self, Case};
use super::plan::{Event, Leg, Plan, Stop};
use super::run::{Ended, Setting};
use super::snapshot::{Snapshot, snapshot, temporaries};
use super::testbed::{Host, Testbed};
use super::tree::{self, History};

/// Model of the slow device of some runs: most written data is in flight for some time.
const SLOW: &str = "write=60MB,op=50us";

/// Usual time of a run on a kind of test bed, learned from earlier runs, so that kills strike in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual(pub(crate) Duration);

impl Default for Usual {
    fn default() -> Self {
        Self(Duration::from_millis(150))
    }
}

impl Usual {
    fn learn(&mut self, took: Duration) {
        self.0 = (self.0 * 3 + took.min(Duration::from_secs(3))) / 4;
    }
}

/// Figures of a round.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) kills: u64,
    pub(crate) power_cuts: u64,
    /// Bytes sent and not durable at each kill that struck a running copy.
    pub(crate) in_flight: Vec<u64>,
}

/// Plays a round.
///
/// # Errors
/// The broken promise, or a failure of the test bed.
pub(crate) fn play(host: &mut Host, plan: &Plan, program: &Path, usual: &mut Usual) -> Result<Seen> {
    let fails = plan.legs.iter().any(|leg| leg.event == Event::FlushFails);
    let mut round = Round::new(host, plan, program, fails)?;
    for (number, leg) in plan.legs.iter().enumerate() {
        round
            .leg(host, number, leg, *usual)
            .with_context(|| format!("run {} ({:?}, {:?})", number + 1, leg.event, leg.stop))?;
    }
    round.last(host, usual).context("the run that finishes")?;
    Ok(round.seen)
}

struct Round<'a> {
    plan: &'a Plan,
    testbed: Testbed,
    history: History,
    rng: Rng,
    setting: Setting,
    states: u64,
    outside: Snapshot,
    seen: Seen,
}

impl<'a> Round<'a> {
    fn new(host: &Host, plan: &'a Plan, program: &Path, fails: bool) -> Result<Self> {
        let testbed = Testbed::new(host, plan.testbed, fails, program)?;
        let mut rng = Rng::new(plan.seed ^ 0x5eed);
        let mut history = History::default();
        tree::make(&testbed.source(), plan.shape, &mut rng, &mut history)?;
        history.learn(&snapshot(&testbed.source())?);
        fs::write(testbed.outside().join("precious"), "not part of any copy")?;
        if plan.target_exists {
            older_target(&testbed, plan, &mut rng, &mut history)?;
        }
        testbed.sync()?;
        let scratch = testbed.folder().join("scratch");
        fs::create_dir(&scratch)?;
        let mut words = plan.command.words();
        words.extend([testbed.source_word(), testbed.target_word()]);
        let setting = Setting {
            program: program.to_owned(),
            words,
            state: testbed.folder().join("state0"),
            scratch,
            clock: 0,
        };
        let outside = snapshot(&testbed.outside())?;
        Ok(Self {
            plan,
            testbed,
            history,
            rng,
            setting,
            states: 0,
            outside,
            seen: Seen::default(),
        })
    }

    fn change(&mut self, root: &Path, times: u64) -> Result<()> {
        if !root.is_dir() {
            return Ok(());
        }
        for _ in 0..times {
            tree::change(root, self.plan.shape.odd_kinds, &mut self.rng, &mut self.history)?;
        }
        let now = snapshot(root)?;
        self.history.learn(&without_temporaries(now));
        Ok(())
    }

    fn leg(&mut self, host: &mut Host, number: usize, leg: &Leg, usual: Usual) -> Result<()> {
        self.change(&self.testbed.source(), leg.source_changes)?;
        if leg.target_changes > 0 && !self.plan.command.inplace {
            self.change(&self.testbed.target(), leg.target_changes)?;
            self.testbed.sync()?;
        }
        self.event(host, leg.event)?;
        let (source, target) = self.both()?;
        let mut setting = self.setting.clone();
        let mut usual = usual.0;
        if leg.slow {
            setting.words.extend(["--slow-target".into(), SLOW.into()]);
            usual *= 4;
        }
        let ended = setting.stopped(&format!("run{number}"), &leg.stop, usual)?;
        self.setting.clock = 0;
        self.testbed.free(host)?;
        self.count(leg, &ended);
        self.judge_any_moment(&source, &target)
            .with_context(|| format!("it said:\n{}", ended.said))
    }

    fn count(&mut self, leg: &Leg, ended: &Ended) {
        if ended.code.is_none() || matches!(leg.stop, Stop::KillAt(..)) {
            self.seen.kills += 1;
        }
        self.seen.in_flight.extend(ended.in_flight);
    }

    fn event(&mut self, host: &mut Host, event: Event) -> Result<()> {
        let new_state = |round: &mut Self| {
            round.states += 1;
            round.setting.state = round.testbed.folder().join(format!("state{}", round.states));
        };
        match event {
            Event::None => {}
            Event::PowerCut => {
                self.testbed.power_cut(host)?;
                self.seen.power_cuts += 1;
                let target = snapshot(&self.testbed.target())?;
                judge::versions_are_whole(&self.plan.command, &self.history, &target)
                    .context("after a power cut")?;
            }
            Event::Reboot => self.testbed.reboot(host)?,
            Event::OtherState => new_state(self),
            Event::StateLost => {
                // There may be none yet.
                let _ = fs::remove_dir_all(&self.setting.state);
                new_state(self);
            }
            Event::Clock(seconds) => self.setting.clock = seconds,
            Event::Full => self.testbed.fill(self.rng.below(6 << 20))?,
            Event::FlushFails => self.testbed.fail_flushes(self.rng.below(8 << 20))?,
            Event::ServerKilled => self.testbed.restart_server()?,
        }
        Ok(())
    }

    fn both(&self) -> Result<(Snapshot, Snapshot)> {
        Ok((
            snapshot(&self.testbed.source())?,
            snapshot(&self.testbed.target())?,
        ))
    }

    /// Checks the promises that hold however a run ended.
    fn judge_any_moment(&self, source: &Snapshot, target: &Snapshot) -> Result<()> {
        let (source_now, target_now) = self.both()?;
        judge::untouched("outside", &self.outside, &snapshot(&self.testbed.outside())?)?;
        judge::versions_are_whole(&self.plan.command, &self.history, &target_now)?;
        if self.plan.command.moves {
            return self.nothing_lost(source, &source_now, &target_now);
        }
        judge::untouched("the source", source, &source_now)?;
        // Two runs into one target at the same time may back up each other's new files.
        let alone = !self
            .plan
            .legs
            .iter()
            .any(|leg| matches!(leg.stop, Stop::Beside(_)));
        if self.plan.command.backup != super::plan::Backup::None && !self.plan.command.inplace && alone {
            let kept = judge::contents(&target_now);
            let lost = judge::worth_keeping(&self.plan.command, target)
                .into_iter()
                .filter(|hash| !kept.contains(hash))
                .count();
            ensure!(
                lost == 0 || !self.plan.command.mirror,
                "{lost} contents of the target have no backup"
            );
        }
        Ok(())
    }

    fn nothing_lost(&self, before: &Snapshot, source: &Snapshot, target: &Snapshot) -> Result<()> {
        let mut there = judge::contents(source);
        there.extend(judge::contents(&without_temporaries(target.clone())));
        for (path, node) in before {
            // Over a network, size and time decide.
            let looks_equal = self.history.stealthy.contains(path) && !self.plan.command.checksum;
            if looks_equal && !self.plan.testbed.is_local() {
                continue;
            }
            let lost = node.hash().is_some_and(|hash| !there.contains(&hash));
            ensure!(
                !lost,
                "{} is neither on the source nor on the target",
                path.display()
            );
        }
        Ok(())
    }

    /// Makes the run that finishes the job, a power cut right after it, and one more run without work.
    fn last(&mut self, host: &mut Host, usual: &mut Usual) -> Result<()> {
        let (source, before) = self.both()?;
        let ended = self.setting.finish("last")?;
        usual.learn(ended.took);
        let said = || format!("exit {:?}; it said:\n{}", ended.code, ended.said);
        self.judge_any_moment(&source, &before).with_context(said)?;
        self.no_temporaries().with_context(said)?;
        let is_durable =
            !self.plan.command.careless && !self.plan.legs.iter().any(|leg| leg.event == Event::FlushFails);
        let after = if is_durable {
            self.testbed.after_a_cut(host, snapshot)?
        } else {
            self.testbed.reboot(host)?;
            snapshot(&self.testbed.target())?
        };
        // A power cut may restore an empty claim, since its removal is not flushed; the next run sweeps it.
        let after = without_temporaries(after);
        let before = without_temporaries(before);
        // A killed move leaves an empty file.
        let source = without_temporaries(source);
        let case = Case {
            command: &self.plan.command,
            history: &self.history,
            is_local: self.plan.testbed.is_local(),
            source: &source,
            before: &before,
            after: &after,
        };
        let blocked = case.judge().with_context(said)?;
        ensure!(
            ended.code == Some(0) || blocked && ended.code == Some(2),
            "it did not finish: {}",
            said()
        );
        if !self.plan.command.moves && !blocked {
            self.nothing_more_to_do(&after)?;
        }
        Ok(())
    }

    fn no_temporaries(&self) -> Result<()> {
        for root in [self.testbed.source(), self.testbed.target()] {
            let above = root.parent().map(Path::to_path_buf).unwrap_or_default();
            let found: Vec<PathBuf> = temporaries(&above)?;
            let claims: Vec<String> = found
                .iter()
                .filter_map(|path| fs::read_to_string(path).ok())
                .collect();
            ensure!(
                found.is_empty(),
                "temporary names stay: {found:?}; claims say {claims:?}"
            );
        }
        Ok(())
    }

    fn nothing_more_to_do(&self, after: &Snapshot) -> Result<()> {
        let again = self.setting.finish("again")?;
        let said = || format!("exit {:?}; it said:\n{}", again.code, again.said);
        ensure!(again.code == Some(0), "the run after it failed: {}", said());
        ensure!(
            again.sent == 0,
            "the run after it sent {} bytes: {}",
            again.sent,
            said()
        );
        judge::untouched(
            "the target, by a second run",
            after,
            &snapshot(&self.testbed.target())?,
        )
        .with_context(said)
    }
}

fn without_temporaries(tree: Snapshot) -> Snapshot {
    tree.into_iter()
        .filter(|(path, _)| !judge::is_temporary(path))
        .collect()
}

/// Creates a target with an older copy of a part of the source, and with other files.
fn older_target(testbed: &Testbed, plan: &Plan, rng: &mut Rng, history: &mut History) -> Result<()> {
    let target = testbed.target();
    tree::make(&target, plan.shape, rng, history)?;
    let equal = crate::process::find_program("cp").context("cp is missing")?;
    for entry in fs::read_dir(testbed.source())? {
        let entry = entry?;
        let there = target.join(entry.file_name());
        if rng.below(3) == 0 && fs::symlink_metadata(&there).is_err() {
            let mut copy = std::process::Command::new(&equal);
            crate::process::capture(copy.arg("-a").arg(entry.path()).arg(&there))?;
        }
    }
    for _ in 0..rng.below(3) {
        tree::change(&target, plan.shape.odd_kinds, rng, history)?;
    }
    history.learn(&snapshot(&target)?);
    Ok(())
}
