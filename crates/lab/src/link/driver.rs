//! Threads that move packets between the two devices, one for each direction.
//!
//! Each waits in poll(2) until its device has packets or the next one is due, to the nanosecond; nothing spins. Two
//! threads move 46 Gbit/s without a rate on two processors, one for both directions 40; at set rates they are alike.
//! Handing a packet to a device runs the receiving TCP in our thread, which is most of the work.
//!
//! An idle processor wakes late (60 us and more in a virtual machine), once when a packet comes and again when it is due.
//! Each thread measures how late its timers are and lets packets out earlier by twice that, so that round trips are
//! right on average; under load it is next to nothing. The rate is not concerned: it is the line's arithmetic.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Stats;
use super::arena::{Arena, Slot};
use super::error::LinkError;
use super::line::{Counters, Line, LineConfig};
use super::packet::{Shape, cut_out};
use super::spec::{Cut, LinkSpec, Rate};
use super::sys::Tun;
use super::window;

/// Packets taken in before those that are due are looked at again (a guess: about 100 us of work).
const BATCH: usize = 64;
/// Pause when the device reports an error (a guess).
const GONE_PAUSE: Duration = Duration::from_millis(10);
/// Most that a timer is believed to be late (a guess: more is not waking but waiting for a processor).
const LATE_MAX: Duration = Duration::from_micros(150);
/// Each timer counts so much in the mean: 1/16.
const LATE_SHARE: u64 = 16;
/// Priority of the threads where we may choose: a packet that is due waits for nobody.
const NICE: i32 = -20;

/// Both threads.
#[derive(Debug)]
pub(super) struct Driver {
    directions: [Arc<Shared>; 2],
    threads: Vec<JoinHandle<()>>,
}

/// What a thread and the outside share.
#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    stop: AtomicBool,
    cut: AtomicBool,
    /// Where the planned cuts are counted from; `None`: they do not happen.
    cuts_from: Mutex<Option<Instant>>,
    counters: Mutex<Counters>,
}

impl Driver {
    /// Starts both threads.
    pub(super) fn start(spec: &LinkSpec, near: &Arc<Tun>, far: &Arc<Tun>) -> Result<Self, LinkError> {
        let start = Instant::now();
        let mut driver = Self {
            directions: [shared(start)?, shared(start)?],
            threads: Vec::new(),
        };
        // Other seeds for the two directions, else both would lose the same packets.
        let ways = [
            ("link up", near, far, spec.up, spec.seed),
            ("link down", far, near, spec.down, !spec.seed),
        ];
        let ways = ways.into_iter().zip(spec.delays());
        for (((name, input, output, rate, seed), delay), shared) in ways.zip(&driver.directions) {
            let direction = Direction {
                input: Arc::clone(input),
                output: Arc::clone(output),
                line: Line::new(line_config(spec, rate, delay, seed)),
                arena: Arena::default(),
                whole: Vec::new(),
                part: Vec::new(),
                cuts: spec.cuts.clone(),
                window: spec.tcp.small_window(),
                start,
                late_ns: 0,
                shared: Arc::clone(shared),
            };
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || direction.run())
                .map_err(|error| LinkError::of("start a thread", error))?;
            driver.threads.push(thread);
        }
        Ok(driver)
    }

    pub(super) fn cut(&self, cut: bool) {
        for shared in &self.directions {
            shared.cut.store(cut, Ordering::Release);
            shared.wake();
        }
    }

    /// Counts the planned cuts from a moment; `None`: they do not happen.
    pub(super) fn count_cuts(&self, from: Option<Instant>) {
        for shared in &self.directions {
            *shared.cuts_from.lock().unwrap_or_else(PoisonError::into_inner) = from;
            shared.wake();
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let [up, down] = &self.directions;
        let read = |shared: &Shared| *shared.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            up: read(up),
            down: read(down),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for shared in &self.directions {
            shared.stop.store(true, Ordering::Release);
            shared.wake();
        }
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

fn shared(start: Instant) -> Result<Arc<Shared>, LinkError> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| LinkError::of("make an event descriptor", error.into()))?;
    Ok(Arc::new(Shared {
        wake,
        stop: AtomicBool::new(false),
        cut: AtomicBool::new(false),
        cuts_from: Mutex::new(Some(start)),
        counters: Mutex::default(),
    }))
}

impl Shared {
    fn wake(&self) {
        // It can only fail when it is about to overflow, and then it wakes anyway.
        _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn line_config(spec: &LinkSpec, rate: Option<Rate>, delay: Duration, seed: u64) -> LineConfig {
    LineConfig {
        rate_bits: rate.map(|rate| rate.0),
        delay,
        jitter: spec.jitter,
        loss: spec.loss,
        queue_bytes: spec.queue_bytes(rate),
        seed,
    }
}

/// One direction, owned by its thread.
struct Direction {
    input: Arc<Tun>,
    output: Arc<Tun>,
    line: Line<Slot>,
    arena: Arena,
    /// A packet of which only parts go on, and such a part.
    whole: Vec<u8>,
    part: Vec<u8>,
    cuts: Vec<Cut>,
    /// Most that a segment may announce, where that fits without a scale.
    window: Option<u16>,
    start: Instant,
    /// How late timers are, in the mean.
    late_ns: u64,
    shared: Arc<Shared>,
}

impl Direction {
    fn run(mut self) {
        // Both are refused to ordinary users or old kernels; then timers are late by some 50 us.
        _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        while !self.shared.stop.load(Ordering::Acquire) {
            self.follow_cuts();
            self.deliver();
            self.publish();
            let readable = self.wait();
            self.deliver();
            if readable {
                self.receive();
            }
        }
        self.publish();
    }

    fn now(&self) -> u64 {
        // 584 years.
        self.start.elapsed().as_nanos() as u64
    }

    /// How much earlier than due a packet goes out.
    fn ahead_ns(&self) -> u64 {
        2 * self.late_ns
    }

    /// What the planned cuts are compared with; `None`: they do not happen.
    fn cuts_clock(&self) -> Option<Duration> {
        if self.cuts.is_empty() {
            return None;
        }
        let from = *self
            .shared
            .cuts_from
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        from.map(|from| from.elapsed())
    }

    /// Cuts or restores the line as plan and user say.
    fn follow_cuts(&mut self) {
        let planned = self
            .cuts_clock()
            .is_some_and(|now| self.cuts.iter().any(|cut| cut.at <= now && now < cut.end()));
        let cut = planned || self.shared.cut.load(Ordering::Acquire);
        if cut != self.line.is_cut() {
            let arena = &mut self.arena;
            self.line.set_cut(cut, |slot| arena.release(slot));
        }
    }

    /// Hands on what is due.
    fn deliver(&mut self) {
        let now = self.now() + self.ahead_ns();
        while let Some(slot) = self.line.pop(now) {
            if let Err(error) = self.output.send(self.arena.get(&slot)) {
                tracing::debug!(%error, "a packet was refused");
                self.line.refused();
            }
            self.arena.release(slot);
        }
    }

    /// Takes in what the kernel sends, one batch at most.
    fn receive(&mut self) {
        for _ in 0..BATCH {
            let length = match self.input.receive(self.arena.room()) {
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The device is going down; nothing more will come.
                    tracing::debug!(%error, "the device gives no packet");
                    return;
                }
            };
            if let Some(most) = self.window {
                window::clamp(&mut self.arena.room()[..length], most);
            }
            let now = self.now();
            let shape = Shape::of(self.arena.pending(length));
            let (arena, whole, part) = (&mut self.arena, &mut self.whole, &mut self.part);
            whole.clear();
            self.line.offer(now, shape.load(), |run| {
                if whole.is_empty() && run.segments == (0..shape.segments()) {
                    return arena.keep(length);
                }
                if whole.is_empty() {
                    whole.extend_from_slice(arena.pending(length));
                }
                cut_out(whole, shape, run.segments.clone(), part);
                arena.put(part)
            });
        }
    }

    fn publish(&self) {
        *self
            .shared
            .counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = self.line.counters();
    }

    /// Waits for packets, for the next that is due, for the next cut or for a call; true if there are packets.
    fn wait(&mut self) -> bool {
        let begun = self.now();
        let due = self
            .line
            .next_due()
            .map(|due| due.saturating_sub(self.ahead_ns()));
        let due = due.map(|due| Duration::from_nanos(due.saturating_sub(begun)));
        let change = self.cuts_clock().and_then(|now| {
            let changes = self.cuts.iter().flat_map(|cut| [cut.at, cut.end()]);
            changes.filter(|at| *at > now).min().map(|at| at - now)
        });
        let timeout = due.into_iter().chain(change).min().map(|span| Timespec {
            tv_sec: span.as_secs().cast_signed(),
            tv_nsec: span.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::from_borrowed_fd(self.input.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        // An interrupted wait is a short one.
        let ready = poll(&mut fds, timeout.as_ref());
        if let (Ok(0), Some(due)) = (ready, due.filter(|due| !due.is_zero())) {
            let late = self
                .start
                .elapsed()
                .saturating_sub(Duration::from_nanos(begun) + due);
            let late_ns = late.min(LATE_MAX).as_nanos() as u64;
            self.late_ns = (self.late_ns * (LATE_SHARE - 1) + late_ns) / LATE_SHARE;
        }
        if !fds[1].revents().is_empty() {
            _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        }
        let events = fds[0].revents();
        if events.intersects(PollFlags::ERR | PollFlags::HUP) {
            // Never spin on a device that is gone.
            std::thread::sleep(GONE_PAUSE);
        }
        events.contains(PollFlags::IN)
    }
}
