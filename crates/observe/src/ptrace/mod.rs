//! Watching by ptrace(2): for everybody who may trace a program, without privileges.
//!
//! A program that is started gets a seccomp filter, so that it stops at the calls of the catalogue
//! only. A process that runs already stops at every system call.
//!
//! ```text
//!   stop at the begin: number, arguments ──> goes on ──> stop at the end: result, memory ──> RawEvent
//! ```

mod filter;

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::filter::filter;
use crate::call::{BYTES_MAX, Captured, RawCall, RawEvent, TEXT_MAX};
use crate::catalogue::{Capture, Catalogue, Shape};
use crate::decode::System as _;
use crate::mechanism::Losses;
use crate::proc::{self, Procfs};
use crate::sys::ptrace::{ARCHITECTURE, EVENT_STOP, Happened, Stop, Tracer, read_memory};

/// Pages of memory, which texts are read up to.
const PAGE_BYTES: u64 = 4096;

/// A traced thread.
#[derive(Debug)]
struct Thread {
    process: u32,
    call: Option<Progress>,
    /// Stopped before its parent's stop told about it.
    waits: bool,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
struct Progress {
    number: u32,
    start_ns: u64,
    args: [u64; 6],
}

/// Traced threads.
#[derive(Debug)]
pub(crate) struct Ptrace {
    tracer: Tracer,
    catalogue: Catalogue,
    /// Whether a filter selects the calls.
    is_filtered: bool,
    threads: HashMap<u32, Thread>,
    /// The process that the recording is about, and its status once it has ended.
    process: u32,
    status: Option<i32>,
    foreign: u64,
    memory: [Vec<u8>; 2],
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Threads run.
    Some,
    /// All have ended.
    None,
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

impl Ptrace {
    /// Prepares; with `is_filtered` for a program that is started with the filter.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start(catalogue: &Catalogue, is_filtered: bool) -> io::Result<Self> {
        Ok(Self {
            tracer: Tracer::new()?,
            catalogue: catalogue.clone(),
            is_filtered,
            threads: HashMap::new(),
            process: 0,
            status: None,
            foreign: 0,
            memory: [Vec::new(), Vec::new()],
        })
    }

    /// Returns how the process ended, as wait(2) tells it.
    pub(crate) fn status(&self) -> Option<i32> {
        self.status
    }

    /// Traces a thread.
    ///
    /// # Errors
    /// It may not be traced.
    pub(crate) fn watch(&mut self, process: u32, thread: u32) -> io::Result<()> {
        if self.process == 0 {
            self.process = process;
        }
        match self.tracer.seize(thread, self.is_filtered) {
            Ok(()) => {}
            // It has ended since it was listed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            // It is ending, or a traced thread has made it meanwhile, so that it is traced already.
            Err(_) if self.threads.contains_key(&thread) || proc::is_ended_or_ours(thread) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let new = Thread {
            process,
            call: None,
            waits: false,
        };
        self.threads.insert(thread, new);
        if !self.is_filtered {
            // From its next stop on, it stops at every call.
            self.tracer.interrupt(thread)?;
        }
        Ok(())
    }

    /// Handles what happens to the threads, for about this time.
    pub(crate) fn poll(&mut self, timeout: Duration, pass: &mut dyn FnMut(RawEvent<'_>)) -> Left {
        let end = Instant::now() + timeout;
        loop {
            match self.tracer.wait() {
                Ok(Some((thread, happened))) => self.handle(thread, happened, pass),
                Ok(None) => {}
                // No tracee and no child is left.
                Err(_) => return Left::None,
            }
            if self.threads.is_empty() {
                return Left::None;
            }
            if Instant::now() >= end {
                return Left::Some;
            }
        }
    }

    fn handle(&mut self, thread: u32, happened: Happened, pass: &mut dyn FnMut(RawEvent<'_>)) {
        match happened {
            Happened::Ended(status) => self.ended(thread, status, pass),
            Happened::Syscall => self.at_call(thread, pass),
            Happened::Event(libc::PTRACE_EVENT_SECCOMP, _) => self.at_call(thread, pass),
            Happened::Event(
                libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE,
                _,
            ) => {
                if let Ok(child) = self.tracer.event_number(thread) {
                    self.forked(thread, child, pass);
                }
                self.resume(thread, 0);
            }
            Happened::Event(libc::PTRACE_EVENT_EXEC, _) => {
                self.executed(thread, pass);
                self.resume(thread, 0);
            }
            Happened::Event(EVENT_STOP, signal) => self.stopped(thread, signal),
            Happened::Event(..) => self.resume(thread, 0),
            Happened::Signal(signal) => self.resume(thread, signal),
        }
    }

    /// Lets a thread go on. If that fails, it has ended, which is reported.
    fn resume(&self, thread: u32, signal: i32) {
        let in_call = self
            .threads
            .get(&thread)
            .is_some_and(|thread| thread.call.is_some());
        let _ = self.tracer.resume(thread, in_call || !self.is_filtered, signal);
    }

    fn stopped(&mut self, thread: u32, signal: i32) {
        let Some(known) = self.threads.get_mut(&thread) else {
            // New; its parent has not told yet.
            let waiting = Thread {
                process: thread,
                call: None,
                waits: true,
            };
            self.threads.insert(thread, waiting);
            return;
        };
        if known.waits {
            return;
        }
        match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                // If that fails, it has ended, which is reported.
                let _ = self.tracer.listen(thread);
            }
            _ => self.resume(thread, 0),
        }
    }

    fn forked(&mut self, parent: u32, child: u32, pass: &mut dyn FnMut(RawEvent<'_>)) {
        let parent_process = self.threads.get(&parent).map_or(parent, |thread| thread.process);
        let child_process = proc::process_of(child).unwrap_or(child);
        pass(RawEvent::Fork {
            parent,
            parent_process,
            child,
            child_process,
        });
        let new = Thread {
            process: child_process,
            call: None,
            waits: false,
        };
        if self.threads.insert(child, new).is_some_and(|known| known.waits) {
            self.resume(child, 0);
        }
    }

    fn executed(&mut self, thread: u32, pass: &mut dyn FnMut(RawEvent<'_>)) {
        // The thread has the number of its process now.
        if let Ok(old) = self.tracer.event_number(thread)
            && old != thread
            && let Some(moved) = self.threads.remove(&old)
        {
            self.threads.insert(thread, moved);
        }
        let process = self.threads.get(&thread).map_or(thread, |thread| thread.process);
        let program = Procfs.program(process).unwrap_or_default();
        let program = &program;
        pass(RawEvent::Execute { process, program });
    }

    fn ended(&mut self, thread: u32, status: i32, pass: &mut dyn FnMut(RawEvent<'_>)) {
        if thread == self.process {
            self.status = Some(status);
        }
        let Some(ended) = self.threads.remove(&thread) else {
            return;
        };
        let process = ended.process;
        if let Some(call) = ended.call {
            pass(RawEvent::Unfinished(raw(
                &call,
                (thread, process),
                0,
                [Captured::Nothing; 2],
            )));
        }
        pass(RawEvent::Exit { thread, process });
    }

    /// A thread has stopped at the begin or at the end of a call.
    fn at_call(&mut self, thread: u32, pass: &mut dyn FnMut(RawEvent<'_>)) {
        match self.tracer.stop(thread) {
            Ok(Stop::Begin {
                architecture,
                number,
                args,
            }) if architecture == ARCHITECTURE => {
                self.begin(thread, number, args, pass);
            }
            Ok(Stop::Begin { .. }) => self.foreign += 1,
            Ok(Stop::End(result)) => self.end(thread, result, pass),
            Ok(Stop::Other) | Err(_) => {}
        }
        self.resume(thread, 0);
    }

    fn begin(&mut self, thread: u32, number: u64, args: [u64; 6], pass: &mut dyn FnMut(RawEvent<'_>)) {
        let Some((number, entry)) = u32::try_from(number)
            .ok()
            .and_then(|number| Some((number, self.catalogue.entry(number)?)))
        else {
            return;
        };
        let Some(known) = self.threads.get_mut(&thread) else {
            return;
        };
        let call = Progress {
            number,
            start_ns: now_ns(),
            args,
        };
        known.call = Some(call);
        let process = known.process;
        if matches!(entry.shape, Shape::Execute { .. }) {
            let captured = capture(thread, entry.captures, &args, &mut self.memory);
            pass(RawEvent::Entered(raw(&call, (thread, process), 0, captured)));
        }
    }

    fn end(&mut self, thread: u32, result: i64, pass: &mut dyn FnMut(RawEvent<'_>)) {
        let Some(known) = self.threads.get_mut(&thread) else {
            return;
        };
        let (process, call) = (known.process, known.call.take());
        let Some(call) = call else {
            return;
        };
        let captures = self.catalogue.entry(call.number).map(|entry| entry.captures);
        let captures = captures.unwrap_or([Capture::Nothing; 2]);
        let captured = capture(thread, captures, &call.args, &mut self.memory);
        pass(RawEvent::Call(raw(&call, (thread, process), result, captured)));
    }

    /// Lets go of all threads. Those with a filter cannot go on without a tracer: they are traced on,
    /// without records, until they end.
    pub(crate) fn stop(&mut self, pass: &mut dyn FnMut(RawEvent<'_>)) {
        if self.is_filtered {
            while self.poll(Duration::from_secs(1), &mut |_| {}) == Left::Some {}
            return;
        }
        for thread in self.threads.keys() {
            // If that fails, it has ended, which is reported.
            let _ = self.tracer.interrupt(*thread);
        }
        while !self.threads.is_empty() {
            match self.tracer.wait() {
                Ok(Some((thread, Happened::Ended(status)))) => self.ended(thread, status, pass),
                Ok(Some((thread, happened))) => {
                    let signal = match happened {
                        Happened::Signal(signal) => signal,
                        _ => 0,
                    };
                    // If that fails, it has ended.
                    let _ = self.tracer.detach(thread, signal);
                    self.threads.remove(&thread);
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns what was lost up to now.
    pub(crate) fn losses(&self) -> Losses {
        Losses {
            events: 0,
            foreign: self.foreign,
        }
    }
}

fn raw<'a>(
    call: &Progress,
    (thread, process): (u32, u32),
    result: i64,
    captured: [Captured<'a>; 2],
) -> RawCall<'a> {
    RawCall {
        thread,
        process,
        number: call.number,
        start_ns: call.start_ns,
        end_ns: now_ns(),
        result,
        args: call.args,
        captured,
        position: None,
    }
}

/// Reads what the catalogue wants from a stopped thread's memory.
fn capture<'m>(
    thread: u32,
    captures: [Capture; 2],
    args: &[u64; 6],
    memory: &'m mut [Vec<u8>; 2],
) -> [Captured<'m>; 2] {
    let mut captured = [Captured::Nothing; 2];
    for ((capture, memory), captured) in captures.into_iter().zip(memory).zip(&mut captured) {
        let arg = |index: u8| args.get(usize::from(index)).copied().unwrap_or(0);
        let is_read = match capture {
            Capture::Nothing => continue,
            Capture::Text(index) => read_text(thread, arg(index), memory),
            Capture::Words(index, words) => read_bytes(thread, arg(index), usize::from(words) * 8, memory),
            Capture::Vectors(index) => {
                let count = usize::try_from(arg(index + 1)).unwrap_or(usize::MAX);
                let length = count.saturating_mul(16).min(BYTES_MAX);
                read_bytes(thread, arg(index), length, memory)
            }
        };
        *captured = if is_read {
            Captured::Bytes(memory)
        } else {
            Captured::Unreadable
        };
    }
    captured
}

fn read_bytes(thread: u32, address: u64, length: usize, memory: &mut Vec<u8>) -> bool {
    memory.clear();
    memory.resize(length, 0);
    read_memory(thread, address, memory) == length
}

/// Reads a text up to its NUL, page by page: the next page may not be there.
fn read_text(thread: u32, address: u64, memory: &mut Vec<u8>) -> bool {
    memory.clear();
    let mut at = address;
    while memory.len() < TEXT_MAX {
        let from = memory.len();
        // At most a page.
        let room = (PAGE_BYTES - at % PAGE_BYTES) as usize;
        memory.resize(from + room.min(TEXT_MAX - from), 0);
        let read = read_memory(thread, at, &mut memory[from..]);
        memory.truncate(from + read);
        if let Some(end) = memory[from..].iter().position(|byte| *byte == 0) {
            memory.truncate(from + end);
            return true;
        }
        if read < room {
            return false;
        }
        at += read as u64;
    }
    true
}
