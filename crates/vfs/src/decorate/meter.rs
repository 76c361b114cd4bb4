//! Counts what passes: operations by kind, errors, bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Action, Call, Done, Layer, Layered};
use crate::{Op, Pending, Result, Tree};

/// A tree that counts.
pub type Meter = Layered<MeterLayer>;

impl Layered<MeterLayer> {
    /// Counts what is asked of `inner` from now on.
    pub fn new(inner: Arc<dyn Tree>) -> Arc<Self> {
        Self::wrap(inner, MeterLayer::default())
    }

    /// The counts at this moment. Each is exact; together they may be from slightly different moments.
    pub fn snapshot(&self) -> MeterSnapshot {
        let counted = OPS.iter().zip(&self.layer.operations);
        MeterSnapshot {
            operations: counted
                .map(|((_, word), count)| (*word, count.load(Ordering::Relaxed)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            errors: self.layer.errors.load(Ordering::Relaxed),
            bytes_read: self.layer.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.layer.bytes_written.load(Ordering::Relaxed),
        }
    }
}

/// What passed through a [`Meter`] so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MeterSnapshot {
    /// Finished operations by the word of [`Op`], failed ones included; kinds that never happened are absent. A small file
    /// in one go is one read or write.
    pub operations: BTreeMap<&'static str, u64>,
    /// Failed operations.
    pub errors: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl MeterSnapshot {
    /// Finished operations of one kind.
    pub fn count(&self, op: Op) -> u64 {
        let word = OPS.iter().find(|(own, _)| *own == op).map(|(_, word)| *word);
        word.and_then(|word| self.operations.get(word))
            .copied()
            .unwrap_or(0)
    }
}

/// Every operation with its word; the order is that of the counters.
const OPS: [(Op, &str); 17] = [
    (Op::Open, "open"),
    (Op::Create, "create"),
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Sync, "sync"),
    (Op::Stat, "stat"),
    (Op::SetAttributes, "set_attributes"),
    (Op::List, "list"),
    (Op::MakeDir, "make_dir"),
    (Op::Remove, "remove"),
    (Op::Rename, "rename"),
    (Op::Link, "link"),
    (Op::CopyRange, "copy_range"),
    (Op::Extents, "extents"),
    (Op::SetLength, "set_length"),
    (Op::Watch, "watch"),
    (Op::Xattr, "xattr"),
];

/// The layer of [`Meter`].
#[derive(Default)]
pub struct MeterLayer {
    operations: [AtomicU64; OPS.len()],
    errors: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Layer for MeterLayer {
    const WHOLE_SMALL: bool = true;

    async fn around<'a, T, F>(&'a self, call: Call<'a>, attempt: F) -> Result<Done<T>>
    where
        T: Send + 'a,
        F: Fn(u32) -> Pending<'a, Result<Done<T>>> + Send + Sync + 'a,
    {
        let result = attempt(0).await;
        let op = call.action.op();
        if let Some(at) = OPS.iter().position(|(own, _)| *own == op) {
            self.operations[at].fetch_add(1, Ordering::Relaxed);
        }
        match (&result, call.action) {
            (Err(_), _) => self.errors.fetch_add(1, Ordering::Relaxed),
            (Ok(done), Action::Read | Action::GetSmall) => {
                self.bytes_read.fetch_add(done.amount, Ordering::Relaxed)
            }
            (Ok(done), Action::Write | Action::PutSmall) => {
                self.bytes_written.fetch_add(done.amount, Ordering::Relaxed)
            }
            _ => 0,
        };
        result
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
