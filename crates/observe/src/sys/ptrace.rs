//! ptrace(2), waiting for tracees, and reading their memory.
//!
//! Only the thread that seized a tracee may control it, so [`Tracer`] stays on its thread.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// `AUDIT_ARCH_*` of this processor (linux/audit.h).
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;

/// Events in the upper half of a stop's status (linux/ptrace.h).
pub(crate) const EVENT_STOP: i32 = 128;
/// Bit in the signal of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const SYSCALL_BIT: i32 = 0x80;
/// How often a wait is interrupted, so that the tracer can look at other things.
const TICK: Duration = Duration::from_millis(20);

/// What happened to a tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// It has ended, with this status of wait(2).
    Ended(i32),
    /// It stopped at a system call.
    Syscall,
    /// It stopped for an event: its number, and the signal.
    Event(i32, i32),
    /// It stopped since a signal is delivered.
    Signal(i32),
}

/// A stop at a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At the begin: architecture, number and arguments.
    Begin {
        architecture: u32,
        number: u64,
        args: [u64; 6],
    },
    /// At the end: the result.
    End(i64),
    /// Elsewhere.
    Other,
}

/// Control over tracees, bound to its thread.
#[derive(Debug)]
pub(crate) struct Tracer {
    _ticker: Ticker,
    _not_send: PhantomData<*const ()>,
}

/// Interrupts the waits of a thread.
#[derive(Debug)]
struct Ticker {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start() -> io::Result<Self> {
        extern "C" fn nothing(_signal: libc::c_int) {}
        // SAFETY: all of `action` is set: the rest is zero, which is a valid empty mask and no flags, so
        // waits end with EINTR. The handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as libc::sighandler_t;
            if libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: returns the calling thread's handle, and cannot fail.
        let tracer = unsafe { libc::pthread_self() };
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let thread = std::thread::Builder::new()
            .name("ropeway-tick".into())
            .spawn(move || {
                while !seen.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    // SAFETY: the thread of the tracer waits for this one when it drops the ticker, so it
                    // still runs.
                    unsafe { libc::pthread_kill(tracer, libc::SIGURG) };
                }
            })?;
        Ok(Self {
            stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Makes a request that has numbers only.
fn request(request: libc::c_uint, thread: u32, data: usize) -> io::Result<()> {
    // SAFETY: these requests take numbers in place of pointers, and follow none.
    let result = unsafe {
        libc::ptrace(
            request,
            thread.cast_signed(),
            std::ptr::null_mut::<libc::c_void>(),
            std::ptr::without_provenance_mut::<libc::c_void>(data),
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Tracer {
    /// Makes the calling thread a tracer.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            _ticker: Ticker::start()?,
            _not_send: PhantomData,
        })
    }

    /// Begins to trace a thread, which goes on. With `kill_with_us` it dies if this process does.
    ///
    /// # Errors
    /// It has ended, or may not be traced.
    pub(crate) fn seize(&self, thread: u32, kill_with_us: bool) -> io::Result<()> {
        let mut options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACESECCOMP
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC;
        if kill_with_us {
            options |= libc::PTRACE_O_EXITKILL;
        }
        request(libc::PTRACE_SEIZE, thread, options.cast_unsigned() as usize)
    }

    /// Lets a thread stop soon.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn interrupt(&self, thread: u32) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, thread, 0)
    }

    /// Lets a stopped thread go on to the next stop, with `signal` delivered if it is not 0; with
    /// `at_syscall` also to the begin or end of the next system call.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn resume(&self, thread: u32, at_syscall: bool, signal: i32) -> io::Result<()> {
        let how = if at_syscall {
            libc::PTRACE_SYSCALL
        } else {
            libc::PTRACE_CONT
        };
        request(how, thread, signal.cast_unsigned() as usize)
    }

    /// Leaves a thread stopped by a signal, as it would be without a tracer.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn listen(&self, thread: u32) -> io::Result<()> {
        request(libc::PTRACE_LISTEN, thread, 0)
    }

    /// Lets go of a stopped thread.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn detach(&self, thread: u32, signal: i32) -> io::Result<()> {
        request(libc::PTRACE_DETACH, thread, signal.cast_unsigned() as usize)
    }

    /// Returns the number that belongs to an event: the new thread, or an old number.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn event_number(&self, thread: u32) -> io::Result<u32> {
        let mut number: libc::c_ulong = 0;
        // SAFETY: the kernel writes an unsigned long, which `number` is.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GETEVENTMSG,
                thread.cast_signed(),
                std::ptr::null_mut::<libc::c_void>(),
                &raw mut number,
            )
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        u32::try_from(number).map_err(io::Error::other)
    }

    /// Returns where a thread has stopped (Linux 5.3).
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn stop(&self, thread: u32) -> io::Result<Stop> {
        // SAFETY: the structure consists of numbers, for which zero is valid.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most as many bytes as the third argument says.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GET_SYSCALL_INFO,
                thread.cast_signed(),
                std::mem::size_of_val(&info),
                &raw mut info,
            )
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        let architecture = info.arch;
        Ok(match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: `op` says which member the kernel has written.
                let entry = unsafe { info.u.entry };
                Stop::Begin {
                    architecture,
                    number: entry.nr,
                    args: entry.args,
                }
            }
            libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                // SAFETY: as above.
                let entry = unsafe { info.u.seccomp };
                Stop::Begin {
                    architecture,
                    number: entry.nr,
                    args: entry.args,
                }
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: as above.
                Stop::End(unsafe { info.u.exit }.sval)
            }
            _ => Stop::Other,
        })
    }

    /// Waits until something happens to a tracee, or for a tick. Returns its number and what happened.
    ///
    /// # Errors
    /// `ECHILD` if there is no tracee any more.
    pub(crate) fn wait(&self) -> io::Result<Option<(u32, Happened)>> {
        let mut status = 0;
        // SAFETY: the kernel writes an int.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if thread < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let happened = if libc::WIFSTOPPED(status) {
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            match event {
                0 if signal == libc::SIGTRAP | SYSCALL_BIT => Happened::Syscall,
                0 => Happened::Signal(signal),
                event => Happened::Event(event, signal),
            }
        } else {
            Happened::Ended(status)
        };
        Ok(Some((thread.cast_unsigned(), happened)))
    }
}

/// Reads memory of another process; returns the bytes read, fewer than asked for if the rest cannot be.
pub(crate) fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> usize {
    let Ok(address) = usize::try_from(address) else {
        return 0;
    };
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: into.len(),
    };
    // SAFETY: the local vector is `into`; the remote one is an address of another process, which the
    // kernel checks.
    let read =
        unsafe { libc::process_vm_readv(thread.cast_signed(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}
