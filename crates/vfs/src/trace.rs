//! One record for each operation, for `--trace` and for the operations of other programs.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{End, Error};

/// All kinds of operations, in alphabetical order. docs/trace.md explains them.
pub const KINDS: [&str; 33] = [
    "access",
    "advise",
    "allocate",
    "cached",
    "change_dir",
    "close",
    "copy_range",
    "create",
    "drop_cache",
    "execute",
    "extents",
    "link",
    "list",
    "lock",
    "make_dir",
    "map",
    "open",
    "read",
    "read_link",
    "reflink",
    "remove",
    "rename",
    "resolve",
    "seek",
    "set_attributes",
    "set_length",
    "stat",
    "sync",
    "volume",
    "watch",
    "write",
    "writeback",
    "xattr",
];

/// One finished operation.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Start: time since the observer's zero.
    pub start: Duration,
    /// Duration.
    pub duration: Duration,
    /// The end of the copy; `None` if the run is no copy.
    pub end: Option<End>,
    /// The operation: one of [`KINDS`].
    pub kind: &'static str,
    /// The node: relative to the tree's or store's root, which is empty; absolute for other programs.
    pub path: &'a [u8],
    /// The second path, of a rename or link; empty if there is none.
    pub to: &'a [u8],
    /// Byte offset; 0 where it has no meaning.
    pub offset: u64,
    /// Bytes asked for; 0 where it has no meaning.
    pub length: u64,
    /// Bytes done, or the negative errno (-5 if there is none).
    pub result: i64,
    /// Who did it.
    pub by: By<'a>,
}

/// Who did an operation, as far as it is known and has a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct By<'a> {
    /// Connection to a client or server: a number that is unique within the run.
    pub connection: Option<u64>,
    /// io_uring that carried it out; rings are counted from 0.
    pub ring: Option<u32>,
    /// Process.
    pub process: Option<u32>,
    /// Thread.
    pub thread: Option<u32>,
    /// Name of the program; empty if it is not known.
    pub program: &'a [u8],
    /// Name of the system call; empty if it was none.
    pub call: &'static str,
}

/// Receives records. It must be fast and never fail.
pub trait Observer: Send + Sync {
    /// Returns the time since the observer's zero.
    fn now(&self) -> Duration;
    /// Takes one record.
    fn record(&self, record: Record<'_>);
}

/// An observer shared by trees and files.
pub type SharedObserver = Arc<dyn Observer>;

/// For whom this thread works: what a server or mount knows of the one that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Connection of the client.
    pub connection: Option<u64>,
    /// Process of this machine; FUSE tells the number of its thread.
    pub process: Option<u32>,
}

thread_local! {
    static REQUESTER: Cell<Requester> = const { Cell::new(Requester { connection: None, process: None }) };
}

/// Restores the requester of the thread, after a panic too.
struct Restore(Requester);

impl Drop for Restore {
    fn drop(&mut self) {
        REQUESTER.set(self.0);
    }
}

impl Requester {
    /// Returns the requester of the present call.
    pub fn present() -> Self {
        REQUESTER.get()
    }

    /// Calls stores on this thread for this requester, so that records name it.
    pub fn ask<T>(self, call: impl FnOnce() -> T) -> T {
        let _restore = Restore(REQUESTER.replace(self));
        call()
    }
}

thread_local! {
    static CARRIER: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The operation that this task performs goes over a connection. The number is unique in the process.
pub fn carried_by(connection: u64) {
    CARRIER.set(Some(connection));
}

/// A future that learns over which connection its operation goes: the last one that [`carried_by`] named
/// while it ran.
#[derive(Debug)]
pub struct Carried<F> {
    operation: F,
    connection: Option<u64>,
}

impl<F> Carried<F> {
    /// Wraps an operation.
    pub fn new(operation: F) -> Self {
        Self {
            operation,
            connection: None,
        }
    }

    /// Returns the connection, if one was named.
    pub fn connection(&self) -> Option<u64> {
        self.connection
    }
}

impl<F: Future + Unpin> Future for Carried<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let outer = CARRIER.replace(this.connection);
        let polled = Pin::new(&mut this.operation).poll(cx);
        this.connection = CARRIER.replace(outer);
        polled
    }
}

/// Returns the result of a failed operation in a record: the negative errno of the system, else that of
/// the kind of error.
pub fn failure(error: &Error) -> i64 {
    let errno = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    -i64::from(errno.unwrap_or_else(|| error.kind.errno()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Op, RelPath};

    #[test]
    fn the_requester_is_that_of_the_innermost_call() {
        let of = |connection| Requester {
            connection: Some(connection),
            process: None,
        };
        let inner = of(1).ask(|| of(2).ask(Requester::present));
        assert_eq!((inner, Requester::present()), (of(2), Requester::default()));
        let panicked = std::panic::catch_unwind(|| of(3).ask(|| panic!("on purpose")));
        assert!(panicked.is_err() && Requester::present() == Requester::default());
    }

    #[test]
    fn operations_learn_their_connection() {
        let mut polls = 0;
        let operation = std::future::poll_fn(|_| {
            polls += 1;
            if polls == 1 {
                carried_by(7);
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        let mut carried = Carried::new(operation);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut carried).poll(&mut context).is_pending());
        // Another operation on this thread.
        let mut other = Carried::new(std::future::ready(()));
        assert!(Pin::new(&mut other).poll(&mut context).is_ready());
        assert!(Pin::new(&mut carried).poll(&mut context).is_ready());
        assert_eq!((carried.connection(), other.connection()), (Some(7), None));
    }

    #[test]
    fn failures_have_an_errno() {
        let error = |kind| Error::new(Op::Open, &RelPath::root(), kind);
        assert_eq!(failure(&error(ErrorKind::NotFound)), -2);
        assert_eq!(failure(&error(ErrorKind::Other)), -5);
        let source = std::io::Error::from_raw_os_error(122);
        assert_eq!(failure(&Error::from_io(Op::Open, &RelPath::root(), source)), -122);
    }
}
