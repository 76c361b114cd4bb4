//! The figures as text, for people. Pure.

use super::Options;
use super::findings::Findings;
use super::fit::Shape;

/// Returns the figures as text.
pub(super) fn lines(found: &Findings) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    let expected = &found.expected;
    match found.shape {
        Some(Shape::TwoModes(modes)) => {
            line("rate of memory", rate(modes.memory_bps));
            line(
                "threshold",
                format!(
                    "writers waited after {} were written",
                    size(modes.threshold_bytes)
                ),
            );
            line("rate while they waited", rate(modes.device_bps));
        }
        Some(Shape::OneMode { bps }) => line("rate", format!("{}; writers never waited", rate(bps))),
        None => line("rate", "too little was written for a figure".to_owned()),
    }
    if let Some(held) = found.held_at_bytes {
        let whose = if expected.strict {
            "the device's own"
        } else {
            "the machine's"
        };
        line(
            "dirty at the threshold",
            format!(
                "{}; expected {} from {whose} limit of {}{}",
                size(held),
                size(expected.held_from_bytes),
                size(expected.limit_bytes),
                off(found.held_deviation)
            ),
        );
    }
    if let Some(bps) = found.device_bps {
        line(
            "rate of the device",
            format!("{}, from the flush at the end", rate(bps)),
        );
    }
    let seemed = found.perceived_seconds;
    line(
        "seconds",
        match found.durable_seconds {
            Some(durable) => format!(
                "{seemed:.1} until the last write returned, {durable:.1} until all was durable: {:.1} later",
                durable - seemed
            ),
            None => format!("{seemed:.1} until the last write returned"),
        },
    );
    for (name, check) in [
        ("model with the measured threshold", &found.model),
        ("model with the kernel's settings", &found.predicted),
    ] {
        if let Some(check) = check {
            line(
                name,
                format!(
                    "{:.1} s for the last write{}",
                    check.seconds,
                    off(Some(check.deviation))
                ),
            );
        }
    }
    lines
}

/// Returns the settings and limits of the kernel.
pub(super) fn settings(found: &Findings) -> Vec<(String, String)> {
    let memory = &found.memory;
    let either = |bytes: u64, ratio: u64| match bytes {
        0 => format!("{ratio} %"),
        bytes => size(bytes as f64),
    };
    let mut all = vec![(
        "vm.dirty".to_owned(),
        format!(
            "limit {}, background {} of {} dirtyable: {}; the kernel says {}{}",
            either(memory.dirty_bytes, memory.dirty_ratio),
            either(memory.background_bytes, memory.background_ratio),
            size(memory.dirtyable_bytes as f64),
            size(memory.limit_bytes() as f64),
            size(memory.kernel_limit_bytes as f64),
            off(memory.deviation()),
        ),
    )];
    let device = found.device.as_ref().map_or_else(
        || "unknown to the kernel".to_owned(),
        |device| {
            let ratio = device
                .max_ratio
                .map_or_else(|| "?".to_owned(), |ratio| ratio.to_string());
            let bytes = device
                .max_bytes
                .map_or_else(String::new, |bytes| format!(" ({})", size(bytes as f64)));
            let how = if device.strict {
                ", strict"
            } else {
                ", not strict: it is no limit"
            };
            format!("bdi {}: max_ratio {ratio} %{bytes}{how}", device.name)
        },
    );
    all.push(("device".to_owned(), device));
    all
}

/// Returns the conditions of the measurement.
pub(super) fn conditions(options: &Options, bytes: u64) -> Vec<(String, String)> {
    vec![
        (
            "before".to_owned(),
            format!(
                "{} s of small synced writes, so that the kernel learns the rate of the device",
                options.warm_up.as_secs_f64()
            ),
        ),
        ("folder".to_owned(), options.dir.display().to_string()),
        (
            "written".to_owned(),
            format!("{} in writes of 1 MiB, one after the other", size(bytes as f64)),
        ),
        (
            "model".to_owned(),
            "min(size, threshold) / rate of memory + the rest / rate of the device".to_owned(),
        ),
        (
            "expected".to_owned(),
            "from the middle between the background limit and the limit, plus the bytes that the device completes meanwhile"
                .to_owned(),
        ),
    ]
}

/// Formats bytes by powers of 1000, as the articles do.
pub(super) fn size(bytes: f64) -> String {
    match bytes.abs() {
        least if least >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        least if least >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} kB", bytes / 1e3),
    }
}

fn rate(bps: f64) -> String {
    format!("{}/s", size(bps))
}

fn off(deviation: Option<f64>) -> String {
    deviation.map_or_else(String::new, |share| format!(" ({:+.1} %)", share * 100.0))
}
