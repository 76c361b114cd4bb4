//! Output of a run: JSON Lines, text, SIGUSR1, log, trace; and its effect on the page cache and the
//! bandwidth.

use std::fs;
use std::path::Path;

use crate::support::{self, Finished, Place, file, mixed, needs, or_skip, patterned, same, text, tool};
use rustix::fs::Advice;
use rustix::process::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn with_tree() -> Place {
    let place = Place::new();
    mixed(&place.join("source"));
    place
}

#[test]
fn json_lines_have_types_and_end_with_a_summary() {
    let place = with_tree();
    let finished = place
        .copy("source", "target")
        .args(["--verify", "--bwlimit", "4M"])
        .ok();
    assert!(finished.err.is_empty(), "{finished}");
    let lines = finished.json();
    assert!(lines.iter().all(|line| line["type"].is_string()), "{finished}");
    assert_eq!(lines.iter().filter(|line| line["type"] == "summary").count(), 1);
    let phases: Vec<_> = finished
        .of_type("phase")
        .iter()
        .map(|line| line["phase"].clone())
        .collect();
    assert!(
        phases.contains(&Value::from("copying")) && phases.contains(&Value::from("verifying")),
        "{phases:?}"
    );
    let progress = finished.of_type("progress");
    assert!(!progress.is_empty(), "{finished}");
    let mut before = (0, 0, 0);
    for line in &progress {
        let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
        let now = (
            number("bytes_read"),
            number("bytes_sent"),
            number("bytes_durable"),
        );
        assert!(
            now.0 >= before.0 && now.1 >= before.1 && now.2 >= before.2,
            "counters never go back: {line}"
        );
        before = now;
        assert!(
            line["rate"].is_number() && line.get("eta").is_some() && line.get("limit").is_some(),
            "{line}"
        );
    }
    let summary = finished.summary();
    for name in ["files", "bytes", "bytes_sent", "bytes_durable", "errors"] {
        assert!(summary[name].is_u64(), "{name} in {summary}");
    }
    for name in ["seconds_perceived", "seconds_durable"] {
        assert!(summary[name].is_f64(), "{name} in {summary}");
    }
    let files: Vec<_> = support::walk(&place.join("source"))
        .into_iter()
        .filter(|path| fs::symlink_metadata(path).unwrap().is_file())
        .collect();
    let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(
        finished.number("bytes"),
        bytes,
        "logical size of finished files: {summary}"
    );
    assert_eq!(finished.number("bytes_durable"), bytes);
    assert!(finished.number("files") >= files.len() as u64);
}

#[test]
fn plain_output_has_no_colour_and_says_when_it_is_safe() {
    let place = with_tree();
    let finished = place.ropeway("copy").args(["source", "target"]).ok();
    let said = format!("{}{}", finished.out, finished.err);
    assert!(said.contains("durable"), "{said}");
    assert!(
        !said.contains('\u{1b}') && !said.contains('\r'),
        "no bar without a terminal: {said:?}"
    );
    let quiet = place
        .ropeway("copy")
        .args(["-T", "--quiet", "source", "target"])
        .ok();
    assert!(quiet.out.is_empty() && quiet.err.is_empty(), "{quiet}");
    let verbose = place.ropeway("copy").args(["--verbose", "source", "other"]).ok();
    assert!(verbose.mentions("3145745.bin"), "{verbose}");
}

/// Runs ropeway on a terminal of script(1).
fn in_a_terminal(place: &Place, arguments: &str, environment: &str) -> Result<String, String> {
    needs(false, &["script"])?;
    let binary = env!("CARGO_BIN_EXE_ropeway");
    let command = format!(
        "cd '{}' && env {environment} TERM=xterm XDG_STATE_HOME=.state XDG_CONFIG_HOME=.config '{binary}' {arguments}",
        place.path().display()
    );
    tool("script", &["-q", "-e", "-f", "-c", &command, "/dev/null"])
}

#[test]
fn a_terminal_gets_a_bar_after_a_second() {
    let place = Place::new();
    file(&place.join("big"), 12 * MIB, 1);
    let said = or_skip!(in_a_terminal(&place, "copy --bwlimit 4M big copy", ""));
    assert!(
        said.contains('\r') && said.contains("sent") && said.contains("durable"),
        "{said:?}"
    );
    text(&place.join("small"), "x");
    let said = or_skip!(in_a_terminal(&place, "copy small copy2", ""));
    assert!(!said.contains("ETA"), "a short copy shows none: {said:?}");
    fs::remove_file(place.join("copy")).unwrap();
    let said = or_skip!(in_a_terminal(&place, "copy --bwlimit 4M big copy", "NO_COLOR=1"));
    let colours = said.split('\u{1b}').skip(1).filter(|rest| {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        rest.starts_with('[') && rest[end..].starts_with('m')
    });
    assert_eq!(colours.count(), 0, "{said:?}");
}

#[test]
fn sigusr1_prints_a_status_line() {
    let place = Place::new();
    file(&place.join("big"), 24 * MIB, 1);
    for flags in [&[][..], &["--quiet"]] {
        let target = place.join(format!("copy{}", flags.len()));
        let mut running = place
            .ropeway("copy")
            .args(["--bwlimit", "4M"])
            .args(flags)
            .arg("big")
            .arg(&target)
            .start();
        running.catches(Signal::USR1);
        std::thread::sleep(std::time::Duration::from_millis(1_000));
        let before = running.stderr().len();
        running.signal(Signal::USR1);
        let told = running.until(|running| running.stderr()[before..].contains("durable"));
        assert!(told, "{:?}", running.stderr());
        running.wait().assert_code(&[0]);
        same(&place.join("big"), &target);
    }
}

#[test]
fn a_log_lists_events_and_is_appended_to() {
    let place = with_tree();
    place.copy("source", "target").args(["--log", "log"]).ok();
    let first = fs::read_to_string(place.join("log")).unwrap();
    assert!(first.contains("deep/3145745.bin"), "{first}");
    text(&place.join("source/later"), "x");
    let rule = "source:read:contains=later,errno=EIO";
    place
        .copy("source", "target")
        .args(["-T", "--log", "log", "--retries", "0", "--fault", rule])
        .exits(2);
    let second = fs::read_to_string(place.join("log")).unwrap();
    assert!(
        second.starts_with(&first) && second[first.len()..].contains("later"),
        "{second}"
    );
}

/// Returns the operations of some kinds at one end of a file, as (offset, length), sorted.
fn operations(trace: &Finished, end: &str, kinds: &[&str], path: &str) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = trace
        .json()
        .iter()
        .filter(|line| {
            line["end"] == end
                && kinds.iter().any(|kind| line["kind"] == *kind)
                && line["path"]
                    .as_str()
                    .is_some_and(|found| end == "target" || found.contains(path))
        })
        .map(|line| {
            let number = |name: &str| line[name].as_i64().unwrap_or_else(|| panic!("{name} in {line}"));
            assert_eq!(number("result"), number("length").min(number("result")), "{line}");
            (
                u64::try_from(number("offset")).unwrap(),
                u64::try_from(number("result")).unwrap(),
            )
        })
        .filter(|(_, length)| *length > 0)
        .collect();
    found.sort_unstable();
    found
}

/// Checks that they cover a file from start to end without gap or overlap.
#[track_caller]
fn cover(operations: &[(u64, u64)], size: u64) {
    let mut reached = 0;
    for (offset, length) in operations {
        assert_eq!(*offset, reached, "a gap or an overlap: {operations:?}");
        reached += length;
    }
    assert_eq!(reached, size, "{operations:?}");
}

#[test]
fn a_trace_has_every_operation() {
    let place = Place::in_memory();
    let other = Place::new();
    let size = 3 * MIB;
    patterned(&place.join("file"), size);
    for (engine, io) in [
        ("auto", "psync"),
        ("auto", "uring"),
        ("xp", "psync"),
        ("vista", "uring"),
        ("vista-sp1", "uring"),
    ] {
        let name = format!("{engine}-{io}");
        let target = other.join(&name);
        place
            .copy("file", &target)
            .args(["--engine", engine, "--trace"])
            .arg(place.join(&name))
            .env("ROPEWAY_IO", io)
            .ok();
        same(&place.join("file"), &target);
        let trace = place.ropeway("trace").arg("--json").arg(place.join(&name)).ok();
        assert!(!trace.json().is_empty());
        let inside = operations(&trace, "target", &["copy_range", "reflink"], "");
        if inside.is_empty() {
            cover(&operations(&trace, "source", &["read"], "file"), size);
            cover(&operations(&trace, "target", &["write"], ""), size);
        } else {
            cover(&inside, size);
        }
        if engine == "xp" {
            let reads = operations(&trace, "source", &["read"], "file");
            assert!(
                reads.len() == 48 && reads.iter().all(|(_, length)| *length == 65_536),
                "XP: 64 KiB each: {reads:?}"
            );
        }
    }
}

#[test]
fn a_trace_is_shown_in_many_ways() {
    let place = with_tree();
    place.copy("source", "target").args(["--trace", "trace"]).ok();
    let whole = place.ropeway("trace").args(["--json", "trace"]).ok().json().len();
    let csv = place.ropeway("trace").args(["--csv", "trace"]).ok();
    assert_eq!(csv.out.lines().count(), whole + 1, "a head and a line for each");
    let some = place
        .ropeway("trace")
        .args(["--json", "--end", "source", "--path", "65536", "trace"])
        .ok()
        .json();
    assert!(!some.is_empty() && some.len() < whole);
    assert_eq!(
        place
            .ropeway("trace")
            .args(["--json", "-n", "5", "trace"])
            .ok()
            .json()
            .len(),
        5
    );
    assert!(
        place
            .ropeway("trace")
            .args(["--summary", "trace"])
            .ok()
            .out
            .lines()
            .count()
            > 2
    );
    assert!(
        place
            .ropeway("trace")
            .args(["--json", "--failed", "trace"])
            .ok()
            .json()
            .len()
            < whole
    );
    // A truncated trace (of a killed run) is readable up to its end.
    let bytes = fs::read(place.join("trace")).unwrap();
    fs::write(place.join("cut"), &bytes[..bytes.len() * 2 / 3]).unwrap();
    let cut = place.ropeway("trace").args(["--json", "cut"]).run();
    assert!(cut.json().len() > whole / 3, "{cut}");
}

#[test]
fn bwlimit_limits_the_rate() {
    let place = Place::new();
    file(&place.join("big"), 24 * MIB, 1);
    for engine in ["auto", "xp"] {
        let target = place.join(engine);
        let finished = place
            .copy("big", &target)
            .args(["--bwlimit", "6M", "--engine", engine])
            .ok();
        let seconds = finished.summary()["seconds_perceived"].as_f64().unwrap();
        assert!(seconds >= 3.6, "24 MiB at 6 MiB/s in {seconds} s");
    }
    let finished = place.copy("big", "table").args(["--bwlimit", "00:00,8M"]).ok();
    assert!(finished.summary()["seconds_perceived"].as_f64().unwrap() >= 2.5);
}

/// Returns the bytes of a file in the page cache.
fn resident(path: &Path) -> Result<u64, String> {
    let arguments = ["-b", "-n", "-r", "-o", "RES"].map(std::ffi::OsStr::new);
    let all: Vec<&std::ffi::OsStr> = arguments.into_iter().chain([path.as_os_str()]).collect();
    tool("fincore", &all)?
        .trim()
        .parse()
        .map_err(|error| format!("fincore: {error}"))
}

/// Writes a file to the device and drops it from the page cache.
fn evict(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// Copies a source that is fully cached and asserts that it stays cached. A witness, read before
/// the source and not used since, shows what the kernel reclaimed for other reasons. After several
/// such rounds there is no result.
fn cached_stays(place: &Place, source: &Path, target: &Path, io: &str) -> Result<(), String> {
    let witness = place.join("witness");
    file(&witness, 16 * MIB, 2);
    for _ in 0..5 {
        for path in [&witness, source] {
            std::io::copy(&mut fs::File::open(path).unwrap(), &mut std::io::sink()).unwrap();
        }
        let before = [resident(&witness)?, resident(source)?];
        _ = fs::remove_file(target);
        place.copy(source, target).env("ROPEWAY_IO", io).ok();
        let after = [resident(&witness)?, resident(source)?];
        if after[1] >= before[1] - before[1] / 10 {
            return Ok(());
        }
        assert!(
            after[0] < before[0],
            "a cached source stays cached ({io}): of {} bytes {} are left, the witness has all its {}",
            before[1],
            after[1],
            after[0]
        );
    }
    Err("the kernel reclaims the page cache faster than a copy takes".to_owned())
}

#[test]
fn a_big_copy_leaves_the_page_cache_as_it_was() {
    let place = Place::new();
    let size = 160 * MIB;
    let source = place.join("big");
    file(&source, size, 1);
    for (number, io) in ["psync", "uring"].into_iter().enumerate() {
        evict(&source);
        let before = or_skip!(resident(&source));
        if before > size / 20 {
            support::skip!("the page cache of this file system cannot be dropped");
        }
        let target = place.join(format!("cold {number}"));
        place.copy(&source, &target).env("ROPEWAY_IO", io).ok();
        for path in [&source, &target] {
            let after = resident(path).unwrap();
            assert!(
                after < size / 10,
                "{} keeps {after} bytes in the cache ({io})",
                path.display()
            );
        }
        let target = place.join(format!("warm {number}"));
        or_skip!(cached_stays(&place, &source, &target, io));
        assert!(resident(&target).unwrap() < size / 10);
    }
    let target = place.join("kept");
    evict(&source);
    place.copy(&source, &target).args(["--cache", "keep"]).ok();
    same(&source, &target);
}

#[test]
fn a_copy_of_several_sources_reports_them_together() {
    let place = with_tree();
    text(&place.join("file"), "12345");
    place.folder("into");
    let finished = place
        .ropeway("copy")
        .args(["--json", "source", "file", "into"])
        .ok();
    let alone = place.copy("source", "alone").ok();
    assert_eq!(finished.number("bytes"), alone.number("bytes") + 5);
    assert_eq!(finished.number("files"), alone.number("files") + 1);
}
