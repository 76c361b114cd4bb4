//! Totals of operations: count, failures, bytes and times.

use ropeway_vfs::trace::Record;
use serde::Serialize;

use crate::trace_file::Operation;

/// Number of histogram buckets: 8 for each power of two in nanoseconds, so a quantile is right
/// within 9 %.
const BUCKETS: usize = 64 * 8;

/// Kinds whose result is a number of bytes.
pub(super) fn moves_bytes(kind: &str) -> bool {
    matches!(kind, "read" | "write" | "copy_range" | "reflink")
}

/// Returns the bytes that an operation moved.
pub(super) fn bytes_of(operation: &Operation) -> u64 {
    bytes_moved(&operation.kind, operation.result)
}

fn bytes_moved(kind: &str, result: i64) -> u64 {
    match u64::try_from(result) {
        Ok(bytes) if moves_bytes(kind) => bytes,
        _ => 0,
    }
}

/// Returns the size of an operation: the bytes asked for; of a copy inside the kernel those done, since
/// programs ask it for all that there is.
pub(super) fn size_of(operation: &Operation) -> u64 {
    match operation.kind.as_str() {
        "copy_range" => bytes_of(operation),
        _ => operation.length,
    }
}

/// Totals for one kind of operation.
pub(super) struct Statistics {
    count: u64,
    failed: u64,
    bytes: u64,
    total_ns: u64,
    max_ns: u64,
    histogram: Box<[u64; BUCKETS]>,
}

/// Totals of a recording by kind, while it is made: the trace need not be read again for them.
#[derive(Default)]
pub(super) struct Totals(Vec<(&'static str, Statistics)>);

impl Totals {
    pub(super) fn add(&mut self, record: &Record<'_>) {
        // There are a few dozen kinds, and the busiest are met early.
        let place = self.0.iter().position(|(kind, _)| *kind == record.kind);
        let place = place.unwrap_or_else(|| {
            self.0.push((record.kind, Statistics::default()));
            self.0.len() - 1
        });
        let duration_ns = u64::try_from(record.duration.as_nanos()).unwrap_or(u64::MAX);
        self.0[place].1.add(record.kind, record.result, duration_ns);
    }

    pub(super) fn into_kinds(self) -> impl Iterator<Item = (&'static str, Statistics)> {
        self.0.into_iter()
    }
}

/// One line of the summary.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) end: &'a str,
    pub(super) kind: &'a str,
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    /// Sum of all durations; operations overlap.
    pub(super) seconds: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            count: 0,
            failed: 0,
            bytes: 0,
            total_ns: 0,
            max_ns: 0,
            histogram: Box::new([0; BUCKETS]),
        }
    }
}

impl Statistics {
    pub(super) fn add(&mut self, kind: &str, result: i64, duration_ns: u64) {
        self.count += 1;
        self.failed += u64::from(result < 0);
        self.bytes = self.bytes.saturating_add(bytes_moved(kind, result));
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        self.histogram[bucket(duration_ns)] += 1;
    }

    /// Returns the duration that the fraction `fraction` of all operations does not exceed.
    fn quantile(&self, fraction: f64) -> u64 {
        let wanted = (self.count as f64 * fraction).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, number) in self.histogram.iter().enumerate() {
            seen += number;
            if seen >= wanted {
                return upper(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    pub(super) fn row<'a>(&self, end: &'a str, kind: &'a str) -> Row<'a> {
        let micro = |nanoseconds: f64| (nanoseconds / 10.0).round() / 100.0;
        Row {
            end,
            kind,
            count: self.count,
            failed: self.failed,
            bytes: self.bytes,
            seconds: self.total_ns as f64 / 1e9,
            mean_us: micro(self.total_ns as f64 / self.count.max(1) as f64),
            p50_us: micro(self.quantile(0.5) as f64),
            p99_us: micro(self.quantile(0.99) as f64),
            max_us: micro(self.max_ns as f64),
        }
    }
}

/// Returns the bucket of a duration: exponent, and the three bits after the leading one.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < 8 {
        return nanoseconds as usize;
    }
    let exponent = nanoseconds.ilog2() as usize;
    exponent * 8 + ((nanoseconds >> (exponent - 3)) & 7) as usize
}

/// Returns the largest duration in a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (exponent, part) = (bucket / 8, bucket as u64 % 8);
    let top = u128::from(8 + part + 1) << exponent.saturating_sub(3);
    u64::try_from(top - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_its_bucket() {
        for nanoseconds in [0, 1, 7, 8, 9, 15, 16, 1000, 123_456_789, u64::MAX / 3, u64::MAX] {
            let index = bucket(nanoseconds);
            assert!(index < BUCKETS, "{nanoseconds}");
            assert!(upper(index) >= nanoseconds, "{nanoseconds}");
            assert!(
                nanoseconds < 8 || upper(index) as f64 <= nanoseconds as f64 * 1.13,
                "{nanoseconds}"
            );
        }
    }
}
