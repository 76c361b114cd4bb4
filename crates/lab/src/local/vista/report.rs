//! The frame of the document of `lab vista`: the method, and the published figures.

use std::collections::BTreeMap;
use std::time::Duration;

use ropeway_plan::Engine;

use super::Options;
use super::plan::{Job, Target, WORKS};
use super::score;
use crate::link::{LinkSpec, Rate};
use crate::local::nas::plan;
use crate::local::warnings;
use crate::report::numbers::change;
use crate::report::{Document, LOOPBACK, LinkSummary, Published, Run, Score, Setting};
use crate::run::machine::document;
use crate::work::{Plan, Work};

/// Source of the published figures.
const SOURCE: &str = "Copy files 86% faster with Vista SP1 (facts file, A), to Windows XP";
/// Work, direction, client and seconds. Where only a share is printed, its seconds are computed.
const PUBLISHED: [(&str, &str, &str, f64); 4] = [
    ("file2500mb", "write", "Vista RTM", 540.0),
    ("file2500mb", "write", "Vista SP1", 124.0),
    ("file2500mb", "read", "Vista RTM", 573.0),
    ("file2500mb", "read", "Vista SP1", 80.0),
];
/// What SP1 changed against RTM: target, work, whether back, and the published words (facts file, A).
const CHANGES: [(Target, Work, bool, &str); 10] = [
    (Target::RemoteXp, Work::File2500mb, false, "-77 %"),
    (Target::RemoteXp, Work::File2500mb, true, "-86 %"),
    (Target::RemoteXp, Work::Mp3set, false, "-64 %"),
    (Target::RemoteXp, Work::Mp3set, true, "-83 %"),
    (Target::RemoteVista, Work::File2500mb, false, "6 to 14 s less"),
    (Target::RemoteVista, Work::File2500mb, true, "21 s more"),
    (Target::RemoteVista, Work::Mp3set, false, "6 to 14 s less"),
    (Target::RemoteVista, Work::Mp3set, true, "6 to 14 s less"),
    (Target::Stick, Work::File2500mb, false, "less"),
    (Target::Stick, Work::Mp3set, false, "more"),
];
/// Prefix of the settings that hold the changes beside those.
const CHANGE: &str = "SP1 against RTM: ";
/// Setting that holds further scores.
const FURTHER: &str = "score";

/// The network: 1 Gbit/s, 0.3 ms.
pub(super) fn lan() -> LinkSpec {
    plan::lan(Rate(1_000_000_000), Duration::from_micros(300))
}

/// Returns the document before the first run.
pub(super) fn begun(options: &Options, plans: &[Plan]) -> Document {
    let whole = (options.scale - 1.0).abs() < f64::EPSILON;
    let published = PUBLISHED.into_iter().filter(|_| whole);
    let relay = options.relay && options.targets.iter().any(|target| target.is_remote());
    Document {
        versions: BTreeMap::from([("ropeway".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        settings: settings(options),
        works: plans.iter().map(Plan::summary).collect(),
        links: vec![
            LinkSummary::of_this_machine(LOOPBACK, "", "disks of this machine".to_owned()),
            LinkSummary::emulated("lan", &lan(), options.relay),
        ],
        published: published
            .map(|(work, direction, client, seconds)| Published {
                source: SOURCE.to_owned(),
                link: "lan".to_owned(),
                work: work.to_owned(),
                direction: direction.to_owned(),
                client: client.to_owned(),
                server: Target::RemoteXp.name().to_owned(),
                seconds,
            })
            .collect(),
        warnings: warnings(&[&options.dirs[0], &options.dirs[1]], relay),
        ..document(
            "vista",
            "Copy engines of Windows XP, Vista and Vista SP1, and ours",
        )
    }
}

fn settings(options: &Options) -> Vec<Setting> {
    let pairs = [
        (
            "folders",
            format!("{} and {}", options.dirs[0].display(), options.dirs[1].display()),
        ),
        (
            "runs",
            format!("{} of each cell, engines in turns, the first discarded if there are several", options.runs),
        ),
        ("stick", format!("modelled: {}", options.stick)),
        (
            "remote machines",
            "a private ropeway serve that speaks SMB 1, and SMB 2.0.2 and nothing newer, unsigned; remote-xp is reached \
             over SMB 1 by every engine, remote-vista over SMB 2.0.2, but over SMB 1 by xp"
                .to_owned(),
        ),
        (
            "not rebuilt",
            "what made RTM slow in 2007 beside its order of writes: disks whose heads move, and NTFS, which writes zeros \
             where a write skips bytes; file systems here keep a hole"
                .to_owned(),
        ),
        (
            "weights",
            Target::ALL
                .map(|target| format!("{target} {}", target.weight()))
                .join(", ")
                + &format!(
                    ", responsiveness {}: a guess at how often people copy there",
                    score::RESPONSIVENESS
                ),
        ),
        (
            "directions",
            "write: to the other side; read: back from there, the published write-back".to_owned(),
        ),
        (
            "cache",
            "sources are dropped from the page cache before each run; the server runs on the same machine and uses \
             the same cache"
                .to_owned(),
        ),
        (
            "seconds",
            "transfer: until all was written, when a dialog would close; durable: until it was on the disk, for which \
             every engine waits here; copies are then compared byte for byte"
                .to_owned(),
        ),
        (
            "reads",
            "a thread reads 4 KiB at random positions past the page cache, from a file next to the copy, every 2 ms; \
             the 99th percentile of a run, in which a long read counts as all reads that would have waited"
                .to_owned(),
        ),
        (
            "published",
            "2.5 GB to Windows XP: one file written in just under 9 min by RTM, under 2 by SP1 (-77 %), written back in \
             9:33 and just over a minute (-86 %), many files -64 % and -83 %; whole-system score +12.8 % RTM patched, \
             +14.5 % SP1"
                .to_owned(),
        ),
    ];
    Setting::list(pairs)
}

/// Adds the latency of reads on the idle machine.
pub(super) fn idle_reads(document: &mut Document, p99_ms: Option<f64>) {
    let setting = |p99| Setting::new("reads with nothing else", format!("99th percentile {p99:.2} ms"));
    document.settings.extend(p99_ms.map(setting));
}

/// Puts the changes from RTM to SP1 beside the published ones, among the settings.
pub(super) fn changes(document: &mut Document, jobs: &[Job]) {
    document
        .settings
        .retain(|setting| !setting.name.starts_with(CHANGE));
    for job in jobs {
        let of = |of| score::gain(document, *job, Engine::VistaSp1, of).map(|gain| change(1.0 / gain - 1.0));
        let (Some(written), Some(durable)) = (of(Run::seconds), of(score::until_durable)) else {
            continue;
        };
        let published = CHANGES
            .iter()
            .find(|(target, work, back, _)| {
                (*target, *work, *back) == (job.target, WORKS[job.work], job.back)
            })
            .map_or("nothing", |(.., published)| published);
        document.settings.push(Setting::new(
            format!("{CHANGE}{}", job.name()),
            format!("{written} until written, {durable} until durable; published: {published}"),
        ));
    }
}

/// Adds further scores to the settings.
pub(super) fn further(document: &mut Document, scores: &[Score]) {
    document.settings.retain(|setting| setting.name != FURTHER);
    for score in scores {
        let parts: Vec<String> = score
            .parts
            .iter()
            .map(|part| format!("{} {:.2}", part.name, part.value))
            .collect();
        let value = format!("{:.3}, {} ({})", score.value, score.described, parts.join(", "));
        document.settings.push(Setting::new(FURTHER, value));
    }
}
