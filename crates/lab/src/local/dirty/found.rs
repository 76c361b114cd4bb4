//! What was seen, as figures beside what was expected. Pure.

use serde::Serialize;

use super::fit::{Modes, Shape, fit, model_seconds};
use super::kernel::{Device, Expected, Memory};
use super::write::{Look, Seen};

/// Shorter waits at the end tell nothing of the device's rate.
const DRAIN_MIN_SECONDS: f64 = 0.2;
/// Less is within what the device itself may keep in a cache (a guess).
const DRAIN_MIN_BYTES: f64 = 16e6;

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// What was written.
    pub written_bytes: f64,
    /// Until the last write(2) returned: when a copy's dialog would close.
    pub perceived_seconds: f64,
    /// Until all was durable.
    pub durable_seconds: Option<f64>,
    /// One mode, or two.
    pub shape: Option<Shape>,
    /// Dirty and being written back when writers began to wait: the machine's, or this file's where the device has a limit
    /// of its own.
    pub held_at_bytes: Option<f64>,
    /// Most that was dirty and being written back, the same way.
    pub owed_max_bytes: f64,
    /// Bytes a second that the device really takes: what was still owed at the end, divided by the time that it took.
    pub device_bps: Option<f64>,
    /// The settings at the start.
    pub memory: Memory,
    /// The device's.
    pub device: Option<Device>,
    /// What the kernel was expected to do, at the moment when writers began to wait.
    pub expected: Expected,
    /// How far [`Findings::held_at_bytes`] is from that, as a share.
    pub held_deviation: Option<f64>,
    /// The article's model with what was found, for the last write.
    pub model: Option<Check>,
    /// The same with a threshold from the settings alone.
    pub predicted: Option<Check>,
}

/// A figure beside a measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What it is computed from.
    pub modes: Modes,
    /// Seconds that the model gives for all that was written.
    pub seconds: f64,
    /// How far it is from what was measured, as a share.
    pub deviation: f64,
}

impl Findings {
    /// All that can be told.
    pub fn of(seen: &Seen, memory: &Memory, device: Option<Device>) -> Self {
        let &[written_bytes, perceived_seconds] = seen.writes.last().unwrap_or(&[0.0, 0.0]);
        let shape = fit(&seen.writes);
        let modes = match shape {
            Some(Shape::TwoModes(modes)) => Some(modes),
            _ => None,
        };
        let at = modes.and_then(|modes| look_at(seen, modes.threshold_bytes));
        let now = at.map_or(*memory, |look| Memory {
            kernel_limit_bytes: look.owed.limit_bytes,
            kernel_background_bytes: look.owed.background_bytes,
            ..*memory
        });
        let expected = now.expected(device.as_ref());
        let owed = |look: &Look| match (expected.strict, look.device_bytes) {
            // Only this file's counts against a limit of the device's own.
            (true, Some(taken)) => (look.written_bytes as f64 - taken as f64).max(0.0),
            (true, None) => look.owed.bytes.saturating_sub(seen.before.bytes) as f64,
            (false, _) => look.owed.bytes as f64,
        };
        let held_at_bytes = at.map(|look| owed(&look));
        let device_bps = drained(seen);
        let check = |modes: Modes| {
            let seconds = model_seconds(written_bytes, &modes);
            Check {
                modes,
                seconds,
                deviation: seconds / perceived_seconds - 1.0,
            }
        };
        let real = modes
            .zip(device_bps.or(modes.map(|modes| modes.device_bps)))
            .map(|(modes, device_bps)| Modes { device_bps, ..modes });
        let predicted = real.and_then(|modes| {
            let before = seen.before.bytes as f64;
            let threshold_bytes = expected.written_bytes(modes.memory_bps, modes.device_bps, before)?;
            Some(Modes {
                threshold_bytes,
                ..modes
            })
        });
        Self {
            written_bytes,
            perceived_seconds,
            durable_seconds: seen.durable_seconds,
            shape,
            held_at_bytes,
            owed_max_bytes: seen.looks.iter().map(owed).fold(0.0, f64::max),
            device_bps,
            memory: *memory,
            device,
            expected,
            held_deviation: held_at_bytes.map(|held| held / expected.held_from_bytes - 1.0),
            model: real.map(check),
            predicted: predicted.map(check),
        }
    }

    /// The two modes, if there are two.
    pub fn modes(&self) -> Option<Modes> {
        match self.shape {
            Some(Shape::TwoModes(modes)) => Some(modes),
            _ => None,
        }
    }
}

/// The first look after so much was written.
fn look_at(seen: &Seen, bytes: f64) -> Option<Look> {
    let [_, seconds] = *seen.writes.iter().find(|[written, _]| *written >= bytes)?;
    seen.looks.iter().find(|look| look.seconds >= seconds).copied()
}

/// The device's rate from the last write to the end.
fn drained(seen: &Seen) -> Option<f64> {
    let [_, begun] = *seen.writes.last()?;
    let span = seen.durable_seconds? - begun;
    let last = seen.looks.last()?;
    let bytes = match (last.device_bytes, seen.device_bytes_at_end) {
        (Some(all), Some(before)) => all as f64 - before as f64,
        _ => {
            let first = seen.looks.iter().find(|look| look.seconds >= begun)?;
            first.owed.bytes as f64 - last.owed.bytes as f64
        }
    };
    (span >= DRAIN_MIN_SECONDS && bytes >= DRAIN_MIN_BYTES).then(|| bytes / span)
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Owed;
    use super::*;

    /// What a machine that does just what it is expected to do would show: held from 750 MB, 1 GB/s and 50 MB/s.
    fn seen() -> (Seen, Memory) {
        let (memory_bps, device_bps) = (1e9, 50e6);
        let memory = Memory {
            kernel_limit_bytes: 1_000_000_000,
            kernel_background_bytes: 500_000_000,
            ..Memory::default()
        };
        let modes = Modes {
            memory_bps,
            threshold_bytes: memory
                .expected(None)
                .written_bytes(memory_bps, device_bps, 0.0)
                .unwrap(),
            device_bps,
        };
        let mut seen = Seen::default();
        let owed = |bytes: f64, device: f64, seconds| Look {
            seconds,
            owed: Owed {
                bytes: (bytes - device) as u64,
                limit_bytes: 1_000_000_000,
                background_bytes: 500_000_000,
            },
            written_bytes: bytes as u64,
            device_bytes: Some(device as u64),
        };
        for write in 1..=2000 {
            let bytes = f64::from(write) * 1e6;
            let seconds = model_seconds(bytes, &modes);
            seen.writes.push([bytes, seconds]);
            let device = ((seconds - 0.5) * device_bps).max(0.0);
            seen.looks.push(owed(bytes, device, seconds));
            seen.device_bytes_at_end = Some(device as u64);
        }
        let end = 0.5 + 2e9 / device_bps;
        seen.looks.push(owed(2e9, 2e9, end));
        seen.durable_seconds = Some(end);
        (seen, memory)
    }

    #[test]
    fn a_machine_that_does_as_it_should_deviates_in_nothing() {
        let (seen, memory) = seen();
        let findings = Findings::of(&seen, &memory, None);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.005;
        assert!(near(findings.held_at_bytes.unwrap(), 750e6), "{findings:?}");
        assert!(near(findings.device_bps.unwrap(), 50e6), "{findings:?}");
        assert!(findings.held_deviation.unwrap().abs() < 0.005);
        assert!(findings.model.unwrap().deviation.abs() < 0.005);
        assert!(findings.predicted.unwrap().deviation.abs() < 0.005);
        assert!(near(findings.owed_max_bytes, 750e6));
    }

    #[test]
    fn without_a_counter_what_is_owed_tells_the_rate() {
        let (mut seen, memory) = seen();
        for look in &mut seen.looks {
            look.device_bytes = None;
        }
        let rate = Findings::of(&seen, &memory, None).device_bps.unwrap();
        assert!((rate / 50e6 - 1.0).abs() < 0.005, "{rate}");
        seen.durable_seconds = None;
        let findings = Findings::of(&seen, &memory, None);
        assert!(findings.device_bps.is_none() && findings.model.is_some());
    }

    #[test]
    fn of_nothing_nothing_is_found() {
        let findings = Findings::of(&Seen::default(), &Memory::default(), None);
        assert!(findings.shape.is_none() && findings.model.is_none() && findings.held_at_bytes.is_none());
    }
}
