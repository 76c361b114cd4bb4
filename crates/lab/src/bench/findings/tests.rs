use super::*;
use crate::bench::reason::Reason;
use crate::bench::result::{Conditions, Device, Filled, Link, Sample};
use crate::bench::samples::report;

fn reasons(report: &Report) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = findings(report)
        .into_iter()
        .map(|finding| finding.reason)
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons
}

fn text_of(report: &Report, reason: Reason) -> String {
    let found: Vec<String> = findings(report)
        .into_iter()
        .filter(|finding| finding.reason == reason)
        .map(|finding| finding.text)
        .collect();
    found.join("\n")
}

fn change(report: &mut Report, of: impl Fn(&Key) -> bool, change: impl Fn(&mut Sample)) {
    let cells = report.cells.iter_mut().filter(|cell| of(&cell.key));
    cells.flat_map(|cell| &mut cell.runs).for_each(change);
}

#[test]
fn a_quiet_disk_has_only_the_warnings_of_the_page_cache() {
    let report = report();
    assert_eq!(reasons(&report), [Reason::PageCache, Reason::NotWritten]);
    let cached = text_of(&report, Reason::PageCache);
    assert!(
        cached.starts_with("reread cached: up to 100 % of the file was in the page cache before (58 cells"),
        "{cached}"
    );
    assert!(
        cached.contains("memory 16 GiB") && cached.contains("files of up to 4 GiB"),
        "{cached}"
    );
    let dirty = text_of(&report, Reason::NotWritten);
    assert!(
        dirty
            .starts_with("write, rewrite, random-write cached: up to 100 % of the bytes were in memory only"),
        "{dirty}"
    );
    // Cells of other modes are not concerned.
    let keys = findings(&report).into_iter().flat_map(|finding| finding.cells);
    assert!(keys.into_iter().all(|key| key.mode == Mode::Cached));
}

#[test]
fn a_cache_that_could_not_be_dropped_or_is_unknown_is_named() {
    let mut rest = report();
    let first = |key: &Key| key.pattern == Pattern::Read && key.mode == Mode::Cached;
    change(&mut rest, first, |run| run.in_memory_before = Some(0.2));
    assert!(
        text_of(&rest, Reason::PageCache)
            .contains("read cached: up to 20 % of the file could not be dropped")
    );
    change(&mut rest, first, |run| run.in_memory_before = None);
    assert!(text_of(&rest, Reason::PageCache).contains("does not say"));
}

#[test]
fn old_kernels_judge_writes_by_the_threshold() {
    let mut report = report();
    change(&mut report, |_| true, |run| run.not_written = None);
    let found = findings(&report);
    let dirty: Vec<_> = found
        .iter()
        .filter(|finding| finding.reason == Reason::NotWritten)
        .collect();
    // 4 GiB is above the 1.6 GiB from which the kernel writes.
    assert!(
        dirty
            .iter()
            .flat_map(|finding| &finding.cells)
            .all(|key| key.size < 1 << 30)
    );
    assert!(!dirty.is_empty());
}

#[test]
fn rates_above_direct_io_need_an_explanation() {
    let mut fast = report();
    change(
        &mut fast,
        |key| key.pattern == Pattern::Read && key.mode == Mode::Cached && key.size == 256 << 20,
        |run| run.seconds /= 3.0,
    );
    let text = text_of(&fast, Reason::AboveDevice);
    assert!(
        text.contains("read cached: up to 588 MB/s, and direct I/O gives at most 196 MB/s"),
        "{text}"
    );
    let mut flush = report();
    change(
        &mut flush,
        |key| key.mode == Mode::Fsync && key.pattern == Pattern::Write,
        |run| run.seconds /= 2.0,
    );
    assert!(text_of(&flush, Reason::AboveDevice).contains("confirms a flush"));
}

#[test]
fn a_burst_is_one_of_the_drives_cache() {
    let mut report = report();
    let big = |key: &Key| key.mode == Mode::Direct && key.pattern == Pattern::Write && key.size == 4 << 30;
    change(&mut report, big, |run| {
        run.first_bps = Some(500e6);
        run.last_bps = Some(100e6);
    });
    let text = text_of(&report, Reason::DriveCache);
    assert!(
        text.contains("began with 500 MB/s and ended with 100 MB/s (14 cells)"),
        "{text}"
    );
}

#[test]
fn the_link_is_a_limit_or_a_proof() {
    let far = |bits_per_s| {
        let mut report = report();
        report.conditions = Conditions {
            far: true,
            link: Some(Link {
                name: "eth0".to_owned(),
                bits_per_s,
            }),
            ..report.conditions
        };
        report
    };
    // 200 MB/s, and memory far above it.
    let slow = far(1_000_000_000);
    let above = text_of(&slow, Reason::AboveLink);
    assert!(
        above.contains("the link (eth0) carries at most 125 MB/s"),
        "{above}"
    );
    let at = text_of(&far(1_700_000_000), Reason::AtLink);
    assert!(
        at.contains("200 MB/s of payload") && at.contains("the link is the limit"),
        "{at}"
    );
    assert!(!reasons(&far(10_000_000_000)).contains(&Reason::AtLink));
    // A share has no page cache here.
    assert!(!text_of(&slow, Reason::NotWritten).contains("begins to write at"));
    let mut unknown = far(1_000_000_000);
    unknown.conditions.link = None;
    assert!(!reasons(&unknown).contains(&Reason::AboveLink));
}

#[test]
fn a_server_answers_from_memory_and_a_line_makes_one_request_wait() {
    let mut report = report();
    report.conditions.far = true;
    // A line of 10 ms: one request waits, sixteen do not.
    change(
        &mut report,
        |key| key.depth == 1,
        |run| {
            run.seconds = run.operations as f64 * 0.01;
            run.p50_us = 10_000.0;
        },
    );
    let trip = text_of(&report, Reason::RoundTrip);
    assert!(
        trip.starts_with("one request in flight waits at least 10.0 ms for its answer"),
        "{trip}"
    );
    let server = text_of(&report, Reason::ServerCache);
    assert!(
        server.contains("its memory cannot be emptied from here"),
        "{server}"
    );
    assert!(server.contains("the second read is up to"), "{server}");
}

#[test]
fn what_the_machine_and_the_volume_are_is_said() {
    let mut report = report();
    report.conditions = Conditions {
        in_memory: true,
        virtual_machine: true,
        load: 2.0,
        governor: Some("powersave".to_owned()),
        compression: Some("compress=zstd:1".to_owned()),
        device: Some(Device {
            name: "loop0".to_owned(),
            in_page_cache: true,
            ..Device::default()
        }),
        ..report.conditions
    };
    report.files.push(Filled {
        size: 1 << 20,
        allocated: Some(0.1),
    });
    change(
        &mut report,
        |_| true,
        |run| {
            run.others_busy = Some(1.4);
            run.steal = Some(0.2);
        },
    );
    change(&mut report, |key| key.record == 4096, |run| run.cut = true);
    let slow = report.cells.len() - 1;
    report.cells[slow].runs[0].seconds *= 2.0;
    let all = reasons(&report);
    for reason in [
        Reason::InMemory,
        Reason::LoopCache,
        Reason::Host,
        Reason::Compression,
        Reason::Noise,
        Reason::Governor,
        Reason::Cut,
    ] {
        assert!(all.contains(&reason), "{reason}");
    }
    let noise = text_of(&report, Reason::Noise);
    for part in [
        "2.00 at the start",
        "1.4 processors",
        "20 % of the time",
        "1 of 986 cells",
    ] {
        assert!(noise.contains(part), "{part}: {noise}");
    }
    assert!(text_of(&report, Reason::Compression).contains("takes 10 % of its size"));
    assert!(text_of(&report, Reason::Cut).contains("after 1 s"));
    let empty = Report::default();
    assert_eq!(findings(&empty), []);
}

#[test]
fn what_lies_behind_a_mount_may_be_memory() {
    let of = |kind: &str, source: &str| {
        let mut report = report();
        report.target.file_system = Some(kind.to_owned());
        report.target.source = Some(source.to_owned());
        change(
            &mut report,
            |key| key.mode == Mode::Direct && key.pattern == Pattern::Write,
            |run| (run.first_bps, run.last_bps) = (Some(3e8), Some(1e8)),
        );
        (
            text_of(&report, Reason::BehindMount),
            text_of(&report, Reason::DriveCache),
        )
    };
    for (kind, source) in [
        ("fuse.ropeway", "/srv/data"),
        ("overlay", "overlay"),
        ("nfs4", "nas:/export"),
    ] {
        let (behind, burst) = of(kind, source);
        assert!(behind.starts_with(kind), "{behind}");
        assert!(burst.contains("a cache behind the mount took"), "{burst}");
    }
    let (behind, burst) = of("ext4", "/dev/sda1");
    assert!(
        behind.is_empty() && burst.contains("a cache in the drive took"),
        "{burst}"
    );
}
