//! Threads that move packets between the two devices, one for each direction.
//!
//! Each waits in poll(2) until its device has packets or the next packet is due, to the nanosecond;
//! neither spins. On two processors two threads move 46 Gbit/s without a rate limit, and one thread for
//! both directions 40 Gbit/s; with rate limits both are equal. Writing a packet to a device runs the
//! receiving TCP in this thread, which is most of the work.
//!
//! An idle processor wakes late (by 60 us and more in a virtual machine), once when a packet arrives and
//! again when it is due. Each thread measures the lateness of its timers and sends packets earlier by
//! twice that, so that round trips are right on average; under load the lateness is next to nothing. The
//! rate does not depend on timers: the line computes it.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Stats;
use super::arena::{Arena, Slot};
use super::error::LinkError;
use super::line::{Counters, Line, LineConfig};
use super::packet::{Shape, cut_out};
use super::spec::{Cut, LinkSpec, Rate};
use super::sys::Tun;
use super::window;

/// Packets that are read before due packets are sent (a guess: about 100 us of work).
const BATCH: usize = 64;
/// Pause when the device reports an error (a guess).
const GONE_PAUSE: Duration = Duration::from_millis(10);
/// Largest lateness of a timer that counts (a guess: a longer one is a wait for a processor).
const LATE_MAX: Duration = Duration::from_micros(150);
/// Weight of a timer in the moving mean: 1/16.
const LATE_SHARE: u64 = 16;
/// Priority of the threads where the user may set it, so that due packets do not wait.
const NICE: i32 = -20;

/// Both threads.
#[derive(Debug)]
pub(super) struct Driver {
    directions: [Arc<Shared>; 2],
    threads: Vec<JoinHandle<()>>,
}

/// State that a thread shares with [`Driver`].
#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    stop: AtomicBool,
    cut: AtomicBool,
    /// Start of the clock of the planned cuts; `None` if they are suspended.
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
        // The directions have different seeds, so that they do not lose the same packets.
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

    /// Sets the start of the clock of the planned cuts; `None` suspends them.
    pub(super) fn count_cuts(&self, from: Option<Instant>) {
        for shared in &self.directions {
            *shared.cuts_from.lock() = from;
            shared.wake();
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let [up, down] = &self.directions;
        let read = |shared: &Shared| *shared.counters.lock();
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
        // It fails only if the counter would overflow, and then the thread is awake.
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
    /// Buffers for a packet of which only parts are sent, and for such a part.
    whole: Vec<u8>,
    part: Vec<u8>,
    cuts: Vec<Cut>,
    /// Largest window that a segment may announce, where that fits without a scale.
    window: Option<u16>,
    start: Instant,
    /// Mean lateness of timers.
    late_ns: u64,
    shared: Arc<Shared>,
}

impl Direction {
    fn run(mut self) {
        // Ordinary users and old kernels cannot set both. Then timers are late by some 50 us.
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
        // A u64 of nanoseconds lasts 584 years.
        self.start.elapsed().as_nanos() as u64
    }

    /// Time by which a packet is sent early.
    fn ahead_ns(&self) -> u64 {
        2 * self.late_ns
    }

    /// Time on the clock of the planned cuts; `None` if they are suspended.
    fn cuts_clock(&self) -> Option<Duration> {
        if self.cuts.is_empty() {
            return None;
        }
        let from = *self.shared.cuts_from.lock();
        from.map(|from| from.elapsed())
    }

    /// Cuts or restores the line by the plan and by the user's command.
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

    /// Sends due packets.
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

    /// Reads packets from the kernel, at most one batch.
    fn receive(&mut self) {
        for _ in 0..BATCH {
            let length = match self.input.receive(self.arena.room()) {
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The device is going down.
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
        *self.shared.counters.lock() = self.line.counters();
    }

    /// Waits for packets, for the next due packet, for the next cut or for a command. Returns true if
    /// there are packets.
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
        // An interrupted wait counts as a short one.
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
            // Do not spin on a device that is gone.
            std::thread::sleep(GONE_PAUSE);
        }
        events.contains(PollFlags::IN)
    }
}
