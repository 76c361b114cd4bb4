//! Requests that wait for a lock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::Request;
use crate::errno::Answer;

/// Most requests that wait at once (a guess); further ones fail with ENOLCK.
const WAITING_MAX: usize = 4096;

/// Pause between two tries: programs behind the mount release locks without a message.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends the answer to the program.
pub(crate) type Reply = Box<dyn FnOnce(Answer<()>) + Send>;

/// Tries to take a lock.
type Try = Box<dyn Fn(&Request) -> Answer<bool> + Send + Sync>;

/// A request that waits.
pub(crate) struct WaitingRequest {
    pub(crate) request: Request,
    /// Thread of the program, for its pending signals; 0 if it is in another namespace.
    pub(crate) thread: u32,
    pub(crate) reply: Reply,
}

/// Requests that wait, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<WaitingRequest>,
    is_running: bool,
    is_ended: bool,
}

impl Waiting {
    /// Parks a request; `attempt` takes locks.
    pub(crate) fn park(self: &Arc<Self>, request: WaitingRequest, attempt: Try) {
        let mut state = self.state.lock();
        if state.is_ended || state.requests.len() >= WAITING_MAX {
            drop(state);
            return (request.reply)(Err(Errno::NOLCK));
        }
        state.requests.push(request);
        if !state.is_running {
            let waiting = Arc::clone(self);
            let run = move || waiting.run(&attempt);
            if thread::Builder::new()
                .name("ropeway-locks".into())
                .spawn(run)
                .is_err()
            {
                let requests = std::mem::take(&mut state.requests);
                drop(state);
                refuse(requests, Errno::NOLCK);
                return;
            }
            state.is_running = true;
        }
        self.changed.notify_one();
    }

    /// Tries again at once: a lock was released.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Ends all waits.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        self.changed.notify_one();
        refuse(requests, Errno::INTR);
    }

    fn run(&self, attempt: &Try) {
        loop {
            let mut state = self.state.lock();
            if state.requests.is_empty() || state.is_ended {
                state.is_running = false;
                return;
            }
            self.changed.wait_for(&mut state, PAUSE);
            let requests = std::mem::take(&mut state.requests);
            drop(state);
            let mut left = Vec::new();
            for waiting in requests {
                match attempt(&waiting.request) {
                    Ok(true) => (waiting.reply)(Ok(())),
                    Err(error) => (waiting.reply)(Err(error)),
                    Ok(false) if has_signal(waiting.thread) => (waiting.reply)(Err(Errno::INTR)),
                    Ok(false) => left.push(waiting),
                }
            }
            let mut state = self.state.lock();
            // Those that arrived meanwhile come after them.
            left.append(&mut state.requests);
            match state.is_ended {
                true => {
                    drop(state);
                    refuse(left, Errno::INTR);
                }
                false => state.requests = left,
            }
        }
    }
}

fn refuse(requests: Vec<WaitingRequest>, error: Errno) {
    for request in requests {
        (request.reply)(Err(error));
    }
}

/// Whether a signal waits for a thread that does not block it (proc(5)), or the thread is gone.
fn has_signal(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => is_pending(&status),
        Err(_) => true,
    }
}

fn is_pending(status: &str) -> bool {
    let bits = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0)
    };
    (bits("SigPnd:") | bits("ShdPnd:")) & !bits("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_do_not_count() {
        let status = |pending: &str, shared: &str, blocked: &str| {
            format!("Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\n")
        };
        assert!(!is_pending(&status("0", "0", "0")));
        assert!(is_pending(&status("0000000000000100", "0", "0")));
        assert!(is_pending(&status("0", "0000000000004000", "0000000000000001")));
        assert!(!is_pending(&status("0", "0000000000004000", "0000000000004000")));
    }
}
