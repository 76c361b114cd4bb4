//! Looks at processes in a thread of its own, with a time limit.
//!
//! A file of /proc/PID blocks while that process is in execve(2), and execve(2) closes what the program
//! must not inherit: a file on a slow FUSE file system is written back then. Meanwhile the view goes on
//! without the processes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::processes::{Look, Processes, Wanted};
use super::table::Table;
use crate::reading::Offenders;

/// Longest wait for a look, which takes 0.4 s at most unless it is blocked.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Looks at processes. See the module.
#[derive(Debug)]
pub(crate) struct Looker {
    orders: SyncSender<(Arc<Table>, Wanted)>,
    looks: Receiver<Look>,
    /// Whether an earlier look is still under way.
    is_late: bool,
}

impl Looker {
    /// Starts the thread, which ends with the looker, or with the program if it is blocked.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start() -> io::Result<Self> {
        Self::with(Processes::default(), |processes, table, wanted| {
            processes.look(table, wanted)
        })
    }

    fn with<S: Send + 'static>(
        mut state: S,
        look: impl Fn(&mut S, &Table, &Wanted) -> Look + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, ordered) = sync_channel::<(Arc<Table>, Wanted)>(1);
        let (done, looks) = sync_channel(1);
        thread::Builder::new()
            .name("processes".to_owned())
            .spawn(move || {
                for (table, wanted) in ordered {
                    if done.send(look(&mut state, &table, &wanted)).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self {
            orders,
            looks,
            is_late: false,
        })
    }

    /// Looks at all processes, or says that it takes too long.
    pub(crate) fn look(&mut self, table: &Arc<Table>, wanted: Wanted) -> Look {
        if self.is_late {
            // What came late is out of date.
            self.is_late = self.looks.try_recv().is_err();
        }
        if self.is_late || self.orders.send((Arc::clone(table), wanted)).is_err() {
            return missing();
        }
        self.looks.recv_timeout(WAIT_MAX).unwrap_or_else(|_| {
            self.is_late = true;
            missing()
        })
    }
}

fn missing() -> Look {
    Look {
        offenders: Offenders {
            cut_short: Some("the kernel lets nobody look at a process while it starts a program".to_owned()),
            ..Offenders::default()
        },
        ..Look::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_look_is_left_behind_and_taken_up_again() {
        let (go, gate) = sync_channel::<()>(4);
        let mut looker = Looker::with(gate, |gate, _, _| {
            _ = gate.recv();
            Look {
                held_total: 1,
                ..Look::default()
            }
        })
        .unwrap();
        let table = Arc::new(Table::default());
        let wanted = Wanted { bdi: None, top: 3 };
        go.send(()).unwrap();
        assert_eq!(looker.look(&table, wanted.clone()).held_total, 1);
        for _ in 0..2 {
            let blocked = looker.look(&table, wanted.clone());
            assert!(blocked.held_total == 0 && blocked.offenders.cut_short.is_some());
        }
        // The late look is dropped, and the next one counts.
        go.send(()).unwrap();
        go.send(()).unwrap();
        while looker.look(&table, wanted.clone()).held_total == 0 {
            _ = go.try_send(());
        }
        assert!(!looker.is_late);
    }
}
