//! The machine and the time of a lab.

use std::fs;

use ropeway_peers::procfs::number;

use crate::report::{Document, Machine, VERSION, Warning};

/// Describes this machine.
pub fn machine() -> Machine {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processor: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown".to_owned()),
        processors,
        memory_bytes: memory("MemTotal"),
        system: field("/etc/os-release", "PRETTY_NAME", '=')
            .map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned()),
    }
}

/// Available memory in bytes.
pub fn memory_available() -> u64 {
    memory("MemAvailable")
}

fn memory(what: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    number(&text, what).unwrap_or(0).saturating_mul(1024)
}

/// Load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

/// Load of the machine above which other processes surely run (a guess).
const LOAD_MAX: f64 = 0.5;

/// Returns a warning if other processes keep the machine busy.
pub fn load_warning() -> Option<Warning> {
    let busy = load();
    let text = format!("the machine was busy at the start: load average {busy:.2}");
    (busy > LOAD_MAX).then(|| Warning::of_lab(text))
}

/// Returns the current time, RFC 3339, to the millisecond.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Millisecond).unwrap_or(now).to_string()
}

/// Returns the document of a lab that starts now.
pub(crate) fn document(lab: &str, title: &str) -> Document {
    Document {
        version: VERSION,
        lab: lab.to_owned(),
        title: title.to_owned(),
        started: now(),
        updated: now(),
        machine: machine(),
        ..Document::default()
    }
}

/// Returns the value of a key in a file of lines.
fn field(path: &str, key: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        let machine = machine();
        assert!(!machine.kernel.is_empty() && machine.processors > 0 && machine.memory_bytes > 1 << 20);
        assert!(memory_available() <= machine.memory_bytes && load() >= 0.0);
        assert!(now().ends_with('Z') && now().len() <= 24, "{}", now());
    }
}
