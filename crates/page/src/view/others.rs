//! Mounts, caches and write-back backlogs in words.

use ropeway_live::format;
use ropeway_live::model::{Backlog, Cache, Mount};

use super::{Bar, Graph, Note, Section, Tone, kinds, note, tile, warning};

/// Returns the section of a mount.
pub(super) fn mount(mount: &Mount) -> Section {
    let history = &mount.history;
    let state = if mount.read_only {
        "mounted, read-only"
    } else {
        "mounted"
    };
    Section {
        key: format!("mount-{}", mount.id),
        kind: "mount".to_owned(),
        what: format!("{} on {}", mount.source, mount.mountpoint),
        state: note(state, Tone::Good),
        tiles: vec![
            tile("read by programs", format::bytes(mount.bytes_read)),
            tile("written by programs", format::bytes(mount.bytes_written)),
            tile("not flushed", format::bytes(mount.unflushed_bytes)),
            tile("open files", format::count(mount.open_files)),
            tile("requests", format::count(mount.requests)),
        ],
        graphs: vec![
            Graph::bytes("read", &history.read, Tone::Read),
            Graph::bytes("written", &history.written, Tone::Sent),
            Graph::count("requests", &history.operations),
        ],
        tables: kinds(&mount.operations).into_iter().collect(),
        ..Section::default()
    }
}

/// Returns the section of a cache.
pub(super) fn cache(cache: &Cache) -> Section {
    let status = &cache.status;
    let hits = status.hits();
    let lookups = hits.saturating_add(status.misses);
    let (state, mut notes): (Note, Vec<Note>) = match status.is_on {
        true => (note("on", Tone::Good), Vec::new()),
        false => {
            let why = note(format!("the cache is off: {}", status.off_because), Tone::Bad);
            (note("off", Tone::Bad), vec![why])
        }
    };
    if status.is_offline {
        let since = format::seconds(status.offline_seconds);
        notes.push(warning(format!(
            "the source does not answer for {since}; reads are answered from the cache"
        )));
    }
    Section {
        key: format!("cache-{}", cache.id),
        kind: "cache".to_owned(),
        what: format!("{} for {}", format::bytes(status.size_bytes), status.used_by),
        state,
        notes,
        bars: vec![Bar {
            name: "hits".to_owned(),
            share: format::share(hits, lookups),
            percent: format::percent(status.hit_ratio),
            value: format!(
                "{} of {} · {}",
                format::count(hits),
                format::counted(lookups, "lookup", "lookups"),
                format::rate(status.hit_read_bytes_per_s)
            ),
            tone: Tone::Durable,
        }],
        tiles: vec![
            tile("from memory", format::count(status.memory_hits)),
            tile("from the device", format::count(status.device_hits)),
            tile("misses", format::count(status.misses)),
            tile("blocks", format::count(status.blocks)),
            tile("written to flash", format::bytes(status.bytes_written)),
            tile("prefetched", format::bytes(status.predict.bytes_fetched)),
        ],
        ..Section::default()
    }
}

/// Returns the section of what a far share lacks.
pub(super) fn backlog(index: usize, backlog: &Backlog) -> Section {
    let mut notes = Vec::new();
    if !backlog.last_error.is_empty() {
        notes.push(note(
            format!("it waits after an error: {}", backlog.last_error),
            Tone::Bad,
        ));
    }
    if !backlog.failing_because.is_empty() {
        let why = &backlog.failing_because;
        notes.push(note(
            format!("writes go past the journal, since its disk fails: {why}"),
            Tone::Bad,
        ));
    }
    let state = match (backlog.files, notes.is_empty()) {
        (_, false) => note("waiting", Tone::Bad),
        (0, true) => note("nothing waits", Tone::Good),
        _ => note("writing back", Tone::Plain),
    };
    let share = format::share(backlog.journal_bytes, backlog.journal_bytes_max);
    Section {
        key: format!("backlog-{index}"),
        kind: "write-back".to_owned(),
        what: format!("to {}", backlog.far),
        state,
        notes,
        bars: vec![Bar {
            name: "journal".to_owned(),
            share,
            percent: format::percent(share),
            value: format!(
                "{} of {}",
                format::bytes(backlog.journal_bytes),
                format::bytes(backlog.journal_bytes_max)
            ),
            tone: Tone::Warning,
        }],
        tiles: vec![
            tile("waits", format::bytes(backlog.bytes)),
            tile("files", format::count(backlog.files)),
            tile("the oldest", format::seconds(backlog.oldest_s as f64)),
            tile("written back", format::bytes(backlog.drained_bytes)),
            tile("conflicts", format::count(backlog.conflicts)),
        ],
        ..Section::default()
    }
}
