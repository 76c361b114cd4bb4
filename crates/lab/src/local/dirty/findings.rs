//! The figures of a recording, compared with the expected ones. Pure.

use serde::Serialize;

use super::fit::{Modes, Shape, fit, model_seconds};
use super::kernel::{Device, Expected, Memory};
use super::write::{Recording, Sample};

/// Least time of the final flush for an estimate of the device's rate.
const DRAIN_MIN_SECONDS: f64 = 0.2;
/// Least number of bytes of the final flush; fewer may stay in the device's own cache (a guess).
const DRAIN_MIN_BYTES: f64 = 16e6;

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Written bytes.
    pub written_bytes: f64,
    /// Time until the last write(2) returned: when the dialog of a copy would close.
    pub perceived_seconds: f64,
    /// Time until everything was durable.
    pub durable_seconds: Option<f64>,
    /// One mode or two.
    pub shape: Option<Shape>,
    /// Dirty bytes, with those being written back, when writers began to wait: of the machine, or of this
    /// file where the device has its own limit.
    pub held_at_bytes: Option<f64>,
    /// Largest number of such bytes.
    pub owed_max_bytes: f64,
    /// Rate of the device in bytes a second: the bytes still dirty at the last write, divided by the time
    /// of the flush.
    pub device_bps: Option<f64>,
    /// Settings of the kernel at the start.
    pub memory: Memory,
    /// Limits of the device.
    pub device: Option<Device>,
    /// Expected behaviour of the kernel when writers began to wait.
    pub expected: Expected,
    /// Deviation of [`Findings::held_at_bytes`] from the expected value, as a share.
    pub held_deviation: Option<f64>,
    /// The article's model with the measured threshold, for the last write.
    pub model: Option<Check>,
    /// The same with the threshold that follows from the settings.
    pub predicted: Option<Check>,
}

/// A computed figure, compared with the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Input of the computation.
    pub modes: Modes,
    /// Seconds of the model for all written bytes.
    pub seconds: f64,
    /// Deviation from the measured seconds, as a share.
    pub deviation: f64,
}

impl Findings {
    /// Returns the figures of a recording.
    pub fn of(recording: &Recording, memory: &Memory, device: Option<Device>) -> Self {
        let &[written_bytes, perceived_seconds] = recording.writes.last().unwrap_or(&[0.0, 0.0]);
        let shape = fit(&recording.writes);
        let modes = shape.and_then(Shape::modes);
        let at = modes.and_then(|modes| sample_at(recording, modes.threshold_bytes));
        let now = at.map_or(*memory, |sample| Memory {
            kernel_limit_bytes: sample.dirty.limit_bytes,
            kernel_background_bytes: sample.dirty.background_bytes,
            ..*memory
        });
        let expected = Expected::of(&now, device.as_ref());
        let dirty = |sample: &Sample| match (expected.strict, sample.device_bytes) {
            // Only this file counts against a limit of the device.
            (true, Some(taken)) => (sample.written_bytes as f64 - taken as f64).max(0.0),
            (true, None) => sample.dirty.bytes.saturating_sub(recording.before.bytes) as f64,
            (false, _) => sample.dirty.bytes as f64,
        };
        let held_at_bytes = at.map(|sample| dirty(&sample));
        let device_bps = drained(recording);
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
            let before = recording.before.bytes as f64;
            let threshold_bytes = expected.written_bytes(modes.memory_bps, modes.device_bps, before)?;
            Some(Modes {
                threshold_bytes,
                ..modes
            })
        });
        Self {
            written_bytes,
            perceived_seconds,
            durable_seconds: recording.durable_seconds,
            shape,
            held_at_bytes,
            owed_max_bytes: recording.samples.iter().map(dirty).fold(0.0, f64::max),
            device_bps,
            memory: *memory,
            device,
            expected,
            held_deviation: held_at_bytes.map(|held| held / expected.held_from_bytes - 1.0),
            model: real.map(check),
            predicted: predicted.map(check),
        }
    }

    /// Returns the two modes, if there are two.
    pub fn modes(&self) -> Option<Modes> {
        self.shape.and_then(Shape::modes)
    }
}

/// Returns the first sample after so many bytes were written.
fn sample_at(recording: &Recording, bytes: f64) -> Option<Sample> {
    let [_, seconds] = *recording.writes.iter().find(|[written, _]| *written >= bytes)?;
    recording
        .samples
        .iter()
        .find(|sample| sample.seconds >= seconds)
        .copied()
}

/// Returns the device's rate from the last write to the end of the flush.
fn drained(recording: &Recording) -> Option<f64> {
    let [_, begun] = *recording.writes.last()?;
    let span = recording.durable_seconds? - begun;
    let last = recording.samples.last()?;
    let bytes = match (last.device_bytes, recording.device_bytes_at_end) {
        (Some(all), Some(before)) => all as f64 - before as f64,
        _ => {
            let first = recording.samples.iter().find(|sample| sample.seconds >= begun)?;
            first.dirty.bytes as f64 - last.dirty.bytes as f64
        }
    };
    (span >= DRAIN_MIN_SECONDS && bytes >= DRAIN_MIN_BYTES).then(|| bytes / span)
}

#[cfg(test)]
mod tests {
    use super::super::kernel::DirtyPages;
    use super::*;

    /// A machine that behaves as expected: writers wait from 750 MB; 1 GB/s, then 50 MB/s.
    fn recording() -> (Recording, Memory) {
        let (memory_bps, device_bps) = (1e9, 50e6);
        let memory = Memory {
            kernel_limit_bytes: 1_000_000_000,
            kernel_background_bytes: 500_000_000,
            ..Memory::default()
        };
        let modes = Modes {
            memory_bps,
            threshold_bytes: Expected::of(&memory, None)
                .written_bytes(memory_bps, device_bps, 0.0)
                .unwrap(),
            device_bps,
        };
        let mut recording = Recording::default();
        let sample = |bytes: f64, device: f64, seconds| Sample {
            seconds,
            dirty: DirtyPages {
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
            recording.writes.push([bytes, seconds]);
            let device = ((seconds - 0.5) * device_bps).max(0.0);
            recording.samples.push(sample(bytes, device, seconds));
            recording.device_bytes_at_end = Some(device as u64);
        }
        let end = 0.5 + 2e9 / device_bps;
        recording.samples.push(sample(2e9, 2e9, end));
        recording.durable_seconds = Some(end);
        (recording, memory)
    }

    #[test]
    fn a_machine_that_behaves_as_expected_does_not_deviate() {
        let (recording, memory) = recording();
        let findings = Findings::of(&recording, &memory, None);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.005;
        assert!(near(findings.held_at_bytes.unwrap(), 750e6), "{findings:?}");
        assert!(near(findings.device_bps.unwrap(), 50e6), "{findings:?}");
        assert!(findings.held_deviation.unwrap().abs() < 0.005);
        assert!(findings.model.unwrap().deviation.abs() < 0.005);
        assert!(findings.predicted.unwrap().deviation.abs() < 0.005);
        assert!(near(findings.owed_max_bytes, 750e6));
    }

    #[test]
    fn without_a_counter_dirty_bytes_give_the_rate() {
        let (mut recording, memory) = recording();
        for sample in &mut recording.samples {
            sample.device_bytes = None;
        }
        let rate = Findings::of(&recording, &memory, None).device_bps.unwrap();
        assert!((rate / 50e6 - 1.0).abs() < 0.005, "{rate}");
        recording.durable_seconds = None;
        let findings = Findings::of(&recording, &memory, None);
        assert!(findings.device_bps.is_none() && findings.model.is_some());
    }

    #[test]
    fn an_empty_recording_has_no_figures() {
        let findings = Findings::of(&Recording::default(), &Memory::default(), None);
        assert!(findings.shape.is_none() && findings.model.is_none() && findings.held_at_bytes.is_none());
    }
}
