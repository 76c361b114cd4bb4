//! Parses values in rule and model texts: sizes, durations, `key=value` lists.

use std::time::Duration;

/// Parses a size in bytes: `4096`, `64K`, `20M`, `2G` (powers of 1024) or `20MB` (powers of 1000).
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(format!("\"{text}\" is not a size (like 4096, 64K, 20MB)")),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("\"{text}\" is not a size (like 4096, 64K, 20MB)"))
}

/// Parses a duration: `1500us`, `15ms`, `2s`, `1m`; the number may have a fraction.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("\"{text}\" is not a time (like 500us, 15ms, 2s)");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|span| *span <= DURATION_MAX)
        .ok_or_else(bad)
}

/// Longest duration accepted, about 31 years: sums of several stay far from overflow.
const DURATION_MAX: Duration = Duration::from_secs(1_000_000_000);

/// Splits a comma-separated list of `key=value`.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = Result<(&str, &str), String>> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("\"{part}\" is not of the form key=value"))?;
            Ok((key.trim(), value.trim()))
        })
}

/// A text in a rule or model that cannot be parsed. Its message says which part and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub(super) String);

impl From<String> for TextError {
    fn from(message: String) -> Self {
        Self(message)
    }
}
