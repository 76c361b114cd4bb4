//! Compares and builds the parts of a file, all at the same time.
//!
//! ```text
//!   old parts, in order ──▶ what is known ──┐
//!   new parts, in order ──▶ waiting ────────┴──▶ building (some at once) ──▶ landed, in order
//! ```
//!
//! A part of which most is known already is built before the whole old file is: an image that was
//! changed in place. The others wait for the rest of the old file, where their content may have
//! moved to.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::Ordering;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use ropeway_plan::delta::{self, OldChunks};
use ropeway_vfs::chunks::{Chunk, Cutter};
use ropeway_vfs::{EndError, Error, File, Op, Pending};

use super::build::PartPlan;
use super::chunks::{self, Part};
use super::{Delta, Direction, Unusable, far_error};
use crate::job::outcome::cancelled;

/// Parts that are built at once: each takes two round trips and some tens of milliseconds, so over
/// 75 ms these are 2 GB/s.
const BUILDS_AT_ONCE: usize = 12;

/// The parts of a file as they are cut, in order.
type Parts<'a> = Pin<Box<dyn Stream<Item = Result<Part, Unusable>> + Send + 'a>>;

/// What is known of both files.
struct Known {
    old: OldChunks,
    old_is_whole: bool,
    new_is_whole: bool,
    /// Where the new part that is cut next begins.
    new_upto: u64,
    /// Parts that may be built.
    ready: VecDeque<PartPlan>,
    /// Parts that wait for the old file.
    waiting: VecDeque<Part>,
    hole: Option<Chunk>,
    /// Bytes of parts that are ready, building or built which need not be sent.
    spared: u64,
}

impl Known {
    fn plan(&self, part: &Part) -> PartPlan {
        PartPlan {
            pieces: self.old.plan(part.range.start, &part.chunks, self.hole),
            range: part.range.clone(),
            hash: part.hash,
        }
    }

    fn ready(&mut self, plan: PartPlan) {
        self.spared += plan.spared();
        self.ready.push_back(plan);
    }

    /// Takes a part of the new file. It is ready at once if most of it is known.
    fn new_part(&mut self, part: Part) {
        self.new_upto = part.range.end;
        self.waiting.push_back(part);
        self.look_at_waiting();
    }

    /// Makes those parts ready that the old file reaches and of which most is known.
    fn look_at_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for part in waiting {
            let is_reached = self.old.end() >= part.range.end && !part.was_planned;
            let plan = is_reached.then(|| self.plan(&part));
            match plan {
                Some(plan) if plan.spared() * 2 >= plan.range.end - plan.range.start => self.ready(plan),
                plan => self.waiting.push_back(Part {
                    was_planned: part.was_planned || plan.is_some(),
                    ..part
                }),
            }
        }
    }

    /// Whether nothing is left to build, even if the old file goes on.
    fn is_done(&self) -> bool {
        self.new_is_whole && self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Makes all parts ready once both files are known, if the old file helps.
    fn settle(&mut self, (start, size): (u64, u64)) -> Result<(), Unusable> {
        if !self.old_is_whole || !self.new_is_whole || self.waiting.is_empty() {
            return Ok(());
        }
        for part in std::mem::take(&mut self.waiting) {
            let plan = self.plan(&part);
            self.ready(plan);
        }
        match delta::is_worthwhile(self.spared, size - start) {
            true => Ok(()),
            false => Err(Unusable::Other),
        }
    }
}

impl Delta<'_> {
    /// Builds the new file from `old` and the source. Returns up to where it is right, and why it
    /// is not complete.
    pub(super) async fn build_all(
        &self,
        direction: Direction,
        (old, old_size): (&dyn File, u64),
    ) -> (u64, Result<(), Unusable>) {
        let cutter = delta::cutter_for(self.size.max(old_size));
        let parts = self.parts(direction, (old, old_size), cutter);
        let mut known = Known {
            old: OldChunks::default(),
            old_is_whole: false,
            new_is_whole: false,
            new_upto: self.start,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            hole: self.keeps_holes.then(|| delta::zeroes(cutter)),
            spared: 0,
        };
        let mut building = FuturesUnordered::new();
        let mut built = Built {
            upto: self.start,
            early: BTreeMap::new(),
        };
        let mut result = match parts {
            Ok(parts) => {
                let drive = self.drive((direction, old), parts, (&mut known, &mut building, &mut built));
                drive.await
            }
            Err(unusable) => Err(unusable),
        };
        self.has_failed.store(result.is_err(), Ordering::Relaxed);
        // What is under way is awaited: its writes must not come after those of what follows.
        while let Some(part) = building.next().await {
            match part {
                Ok(part) => built.add(self, part),
                Err(unusable) => result = result.and(Err(unusable)),
            }
        }
        (built.upto, result)
    }

    async fn drive<'s>(
        &'s self,
        (direction, old): (Direction, &'s dyn File),
        (mut old_parts, mut new_parts): (Parts<'s>, Parts<'s>),
        (known, building, built): (&mut Known, &mut Building<'s>, &mut Built),
    ) -> Result<(), Unusable> {
        loop {
            let durability = &self.context.durability;
            durability.check_not_in_doubt(self.attempt, &*self.target)?;
            known.settle((self.start, self.size))?;
            while building.len() < BUILDS_AT_ONCE
                && let Some(plan) = known.ready.pop_front()
            {
                building.push(Box::pin(self.build_when_free(direction, old, plan)));
            }
            if known.is_done() && building.is_empty() {
                return match known.new_upto == self.size {
                    true => Ok(()),
                    // The source is shorter than it was.
                    false => Err(Unusable::Differs),
                };
            }
            tokio::select! {
                part = old_parts.next(), if !known.old_is_whole => match part {
                    Some(part) => {
                        let part = part?;
                        known.old.skip_to(part.range.start);
                        known.old.add(&part.chunks);
                        known.look_at_waiting();
                    }
                    None => known.old_is_whole = true,
                },
                part = new_parts.next(), if !known.new_is_whole => match part {
                    Some(part) => {
                        let part = part?;
                        if part.range.start != known.new_upto {
                            return Err(Unusable::Differs);
                        }
                        known.new_part(part);
                    }
                    None => known.new_is_whole = true,
                },
                Some(part) = building.next(), if !building.is_empty() => built.add(self, part?),
            }
        }
    }

    /// Builds a part once the target has room for it.
    async fn build_when_free(
        &self,
        direction: Direction,
        old: &dyn File,
        plan: PartPlan,
    ) -> Result<PartPlan, Unusable> {
        let context = self.context;
        context.pass().await;
        if self.is_counted {
            context.durability.wait_for_room(&context.cancel).await;
        }
        if context.stopped() {
            return Err(EndError::on_target(cancelled(Op::Write, self.target.path())).into());
        }
        self.build(direction, old, plan).await
    }

    /// Returns the parts of the old and of the new file, cut at their ends.
    fn parts<'s>(
        &'s self,
        direction: Direction,
        (old, old_size): (&'s dyn File, u64),
        cutter: Cutter,
    ) -> Result<(Parts<'s>, Parts<'s>), Unusable> {
        let context = self.context;
        let (whole, rest) = ((0, old_size), (self.start, self.size));
        let far = move |error: Error| far_error(direction, error);
        Ok(match direction {
            Direction::Up => {
                let content = old.far_content().ok_or(Unusable::Silent)?;
                let there = chunks::far(context, (old, content), whole, cutter);
                let here = chunks::near(context, &*self.source, rest, cutter);
                let here = here.map(move |part| {
                    let part = part.map_err(EndError::on_source)?;
                    let read = part.range.end - part.range.start;
                    context.report.live.bytes_read.fetch_add(read, Ordering::Relaxed);
                    Ok(part)
                });
                (Box::pin(there.map(move |part| part.map_err(far))), Box::pin(here))
            }
            Direction::Down => {
                let content = self.source.far_content().ok_or(Unusable::Silent)?;
                let there = chunks::far(context, (&*self.source, content), rest, cutter);
                // A file that cannot be read can still be replaced.
                let here = chunks::near(context, old, whole, cutter);
                let here = here.map(|part| part.map_err(|_| Unusable::NoCopy));
                (Box::pin(here), Box::pin(there.map(move |part| part.map_err(far))))
            }
        })
    }
}

/// The parts that are being built.
type Building<'a> = FuturesUnordered<Pending<'a, Result<PartPlan, Unusable>>>;

/// The parts that are built.
struct Built {
    /// All below is there.
    upto: u64,
    /// Parts beyond, by their beginning.
    early: BTreeMap<u64, PartPlan>,
}

impl Built {
    fn add(&mut self, delta: &Delta<'_>, part: PartPlan) {
        self.early.insert(part.range.start, part);
        while let Some(part) = self.early.remove(&self.upto) {
            self.upto = part.range.end;
            delta.landed(&part);
        }
    }
}
