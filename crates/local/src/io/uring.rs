//! The io_uring engine: a few parked threads, each with one ring.
//!
//! A thread sleeps in `io_uring_enter` until the kernel completes something or a submitter writes to the
//! ring's event descriptor. A submitter writes only if the thread has announced that it will sleep.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Weak, mpsc};

use async_lock::{Semaphore, SemaphoreGuardArc};
use futures_channel::oneshot;
use parking_lot::{Mutex, MutexGuard};
use ropeway_block::Pool;
use rustix::event::EventfdFlags;

use super::{Request, Work};
use crate::sys::ring::{self, Ring};

/// One ring thread serves this many cores; more rings only contend for the page cache (a guess; see ARCHITECTURE).
const CORES_PER_RING: usize = 8;

/// Most ring threads.
const RINGS_MAX: usize = 8;

/// Most requests queued or in flight for one ring; beyond, submitters wait. A few times the ring's depth.
const REQUESTS_MAX: usize = 256;

/// Whether the kernel offers the operations that are used here; probed once.
pub(super) fn available() -> bool {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(ring::available);
    *AVAILABLE
}

/// The ring threads that serve one pool (or no pool). They end when the last handle goes.
pub(crate) struct Rings {
    rings: Vec<Handle>,
}

impl Rings {
    /// Returns the rings for `pool`: existing or new ones.
    pub(super) fn shared(pool: Option<&Pool>) -> io::Result<Arc<Self>> {
        /// Rings by the address of the registered region, 0 without one.
        static SHARED: LazyLock<Mutex<HashMap<usize, Weak<Rings>>>> = LazyLock::new(Mutex::default);
        let key = pool.map_or(0, |pool| pool.region().0 as usize);
        let mut shared = SHARED.lock();
        if let Some(rings) = shared.get(&key).and_then(Weak::upgrade) {
            return Ok(rings);
        }
        shared.retain(|_, rings| rings.strong_count() > 0);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = (cores / CORES_PER_RING).clamp(1, RINGS_MAX);
        let rings = (0..count)
            .map(|_| Handle::start(pool.cloned()))
            .collect::<io::Result<Vec<_>>>()?;
        let rings = Arc::new(Self { rings });
        shared.insert(key, Arc::downgrade(&rings));
        Ok(rings)
    }

    /// Returns the number of a file's ring: at most [`RINGS_MAX`].
    pub(super) fn ring_of(&self, fd: &OwnedFd) -> usize {
        fd.as_raw_fd().unsigned_abs() as usize % self.rings.len()
    }

    /// Performs a request on the ring of its file.
    pub(super) async fn perform(&self, request: Request) -> (Work, io::Result<usize>) {
        let shared = &self.rings[self.ring_of(&request.fd)].shared;
        let permit = shared.permits.acquire_arc().await;
        let (sender, answer) = oneshot::channel();
        shared.push(
            request,
            Reply {
                sender,
                _permit: permit,
            },
        );
        match answer.await {
            Ok(outcome) => outcome,
            Err(oneshot::Canceled) => panic!("an io_uring thread died"),
        }
    }
}

/// Receiver of a request's result, with its permit.
struct Reply {
    sender: oneshot::Sender<(Work, io::Result<usize>)>,
    _permit: SemaphoreGuardArc,
}

impl Reply {
    fn send(self, work: Work, outcome: io::Result<usize>) {
        // If the future was dropped, this returns the buffer to its pool.
        let _ = self.sender.send((work, outcome));
    }
}

/// State shared by submitters and the ring's thread.
struct Shared {
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Request, Reply)>,
    sleeping: bool,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn push(&self, request: Request, reply: Reply) {
        let mut state = self.lock();
        state.queue.push_back((request, reply));
        self.wake_up(state);
    }

    fn wake_up(&self, mut state: MutexGuard<'_, State>) {
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping {
            // An event counter takes 8 bytes; it cannot be full, the thread drains it at each wake-up.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// A running ring thread; dropping it lets the thread finish what is in flight and end.
struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    fn start(pool: Option<Pool>) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            state: Mutex::default(),
            wake: Arc::new(wake),
        });
        let (ready, started) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("ropeway-ring".into())
            .spawn(move || {
                // The ring must be made by the only thread that will use it.
                match Ring::new(Arc::clone(&of_thread.wake), pool.as_ref()) {
                    Ok(ring) => {
                        let _ = ready.send(Ok(()));
                        serve(ring, &of_thread);
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?;
        started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the io_uring thread died")))?;
        Ok(Self { shared })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.wake_up(state);
    }
}

fn serve(mut ring: Ring<Reply>, shared: &Shared) {
    while take_new(&mut ring, shared) {
        if let Err(error) = ring.wait() {
            // The kernel refuses the ring itself: a defect of this program.
            panic!("io_uring_enter: {error}");
        }
        shared.lock().sleeping = false;
        while let Some((mut request, reply, result)) = ring.completed() {
            match request.advance(result) {
                None => ring.push(request, reply),
                Some(outcome) => reply.send(request.work, outcome),
            }
        }
    }
}

/// Moves waiting requests into the ring and announces sleep. False when all is done and nobody is left to ask.
fn take_new(ring: &mut Ring<Reply>, shared: &Shared) -> bool {
    let mut state = shared.lock();
    while ring.has_room()
        && let Some((request, reply)) = state.queue.pop_front()
    {
        ring.push(request, reply);
    }
    // With a full ring a completion comes for sure; a wake-up would find no room.
    state.sleeping = ring.has_room();
    !(state.closing && ring.is_idle() && state.queue.is_empty())
}
