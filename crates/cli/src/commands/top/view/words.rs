//! Figures in words, for the table of `--once` and for the view.

use ropeway_live::model::{Job, Rates, Snapshot};

use crate::tui::text;
use crate::ui::format;

/// Returns the throughput of a process: what it writes, or reads if that is more.
pub(in crate::commands::top) fn throughput(rates: &Rates) -> f64 {
    rates.read.max(rates.written)
}

/// Returns what each part of a process is, one text for each.
pub(in crate::commands::top) fn parts(snapshot: &Snapshot) -> Vec<String> {
    let mut parts: Vec<String> = snapshot.jobs.iter().map(Job::ends).collect();
    parts.extend(snapshot.servers.iter().map(|server| {
        format!(
            "{} on {}: {}, {}, {} open",
            server.name,
            server.addresses.first().map_or("?", String::as_str),
            format::counted(server.shares.len() as u64, "share", "shares"),
            format::counted(server.sessions_total, "session", "sessions"),
            format::count(server.open_total),
        )
    }));
    parts.extend(snapshot.mounts.iter().map(|mount| {
        format!(
            "{} on {}: {} open, {} not flushed",
            mount.source,
            mount.mountpoint,
            format::count(mount.open_files),
            format::bytes(mount.unflushed_bytes),
        )
    }));
    parts.extend(snapshot.caches.iter().map(|cache| {
        let status = &cache.status;
        let state = match status.is_on {
            true => format!("{} hits", text::percent(status.hit_ratio)),
            false => format!("off ({})", status.off_because),
        };
        format!("cache of {}: {state}", format::bytes(status.size_bytes))
    }));
    parts.extend(snapshot.backlogs.iter().map(|backlog| {
        let files = format::counted(backlog.files, "file", "files");
        format!(
            "write-back to {}: {} in {files}",
            backlog.far,
            format::bytes(backlog.bytes)
        )
    }));
    parts.extend(snapshot.fleets.iter().map(|fleet| {
        format!(
            "{}: {}, {} tasks done, {} open",
            fleet.ends(),
            fleet.phase,
            format::count(fleet.tasks_done),
            format::count(fleet.tasks_open)
        )
    }));
    parts.extend(snapshot.runs.iter().map(|run| {
        let done = match run.total {
            0 => String::new(),
            total => format!(" {} of {}", format::count(run.done), format::count(total)),
        };
        format!("{} {}{done}: {}", run.kind, run.name, run.step)
    }));
    parts
}

/// Returns what a process takes of the machine.
pub(super) fn resources(snapshot: &Snapshot) -> String {
    let process = &snapshot.process;
    let mut parts = Vec::new();
    if !process.user.is_empty() {
        parts.push(process.user.clone());
    }
    parts.push(format!("up {}", text::seconds(snapshot.taken - process.started)));
    let resources = &process.resources;
    parts.extend(
        resources
            .cpu_seconds
            .map(|seconds| format!("cpu {}", text::seconds(seconds))),
    );
    parts.extend(
        resources
            .resident_bytes
            .map(|bytes| format!("memory {}", format::bytes(bytes))),
    );
    parts.extend(
        resources
            .threads
            .map(|threads| format::counted(threads, "thread", "threads")),
    );
    parts.extend(process.stopping.then(|| "stopping".to_owned()));
    parts.join(" · ")
}
