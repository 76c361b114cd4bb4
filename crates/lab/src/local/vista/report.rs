//! The frame of the document of `lab vista`: how it is measured, and what was published.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Options;
use super::plan::Target;
use crate::link::{LinkSpec, Rate, TcpSpec, describe};
use crate::local::doubts;
use crate::report::{Document, LinkSummary, Published, Score, Setting, VERSION, Warning};
use crate::run::machine::{machine, now};
use crate::work::Plan;

/// Where the published figures are from.
const SOURCE: &str = "Copy files 86% faster with Vista SP1 (facts file, A), to Windows XP";
/// Link, work, direction, client and seconds; where only a share is printed, the seconds that it gives.
const PUBLISHED: [(&str, &str, &str, f64); 4] = [
    ("file2500mb", "write", "Vista RTM", 540.0),
    ("file2500mb", "write", "Vista SP1", 124.0),
    ("file2500mb", "read", "Vista RTM", 573.0),
    ("file2500mb", "read", "Vista SP1", 80.0),
];
/// Setting that holds further scores.
const FURTHER: &str = "score";

/// The network: 1 Gbit/s, 0.3 ms.
pub(super) fn lan() -> LinkSpec {
    LinkSpec {
        tcp: TcpSpec {
            // Every kernel has it, and Windows of that time was like it.
            congestion: "reno".parse().ok(),
            ..TcpSpec::default()
        },
        ..LinkSpec::new(Duration::from_micros(300), Some(Rate(1_000_000_000)))
    }
}

/// The document before the first run.
pub(super) fn begun(options: &Options, plans: &[Plan], started: &str) -> Document {
    let whole = (options.scale - 1.0).abs() < f64::EPSILON;
    let mut warnings = doubts(&[&options.dirs[0], &options.dirs[1]]);
    if options.relay && options.targets.contains(&Target::Remote) {
        warnings.push(Warning {
            cell: None,
            text: "the network is a relay on the loopback, not packets".to_owned(),
        });
    }
    Document {
        version: VERSION,
        lab: "vista".to_owned(),
        title: "Copy engines of Windows XP, Vista and Vista SP1, and ours".to_owned(),
        started: started.to_owned(),
        updated: now(),
        complete: false,
        machine: machine(),
        versions: BTreeMap::from([("ropeway".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        settings: settings(options),
        works: plans.iter().map(Plan::summary).collect(),
        links: links(options),
        published: PUBLISHED
            .into_iter()
            .filter(|_| whole)
            .map(|(work, direction, client, seconds)| Published {
                source: SOURCE.to_owned(),
                link: "lan".to_owned(),
                work: work.to_owned(),
                direction: direction.to_owned(),
                client: client.to_owned(),
                server: "Windows XP".to_owned(),
                seconds,
            })
            .collect(),
        warnings,
        ..Document::default()
    }
}

fn links(options: &Options) -> Vec<LinkSummary> {
    let spec = lan();
    let congestion = if options.relay {
        "that of the loopback"
    } else {
        "reno"
    };
    let none = LinkSummary::of_this_machine("none", "", "disks of this machine".to_owned());
    let lan = LinkSummary {
        name: "lan".to_owned(),
        kind: if options.relay { "relay" } else { "packets" }.to_owned(),
        rtt_ms: spec.rtt.as_secs_f64() * 1e3,
        up_bps: spec.up.map(|rate| rate.0),
        down_bps: spec.down.map(|rate| rate.0),
        described: describe(&spec, congestion),
        congestion: congestion.to_owned(),
        ..none.clone()
    };
    vec![none, lan]
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
            "directions",
            "write: to the other side; read: back from there, the published write-back".to_owned(),
        ),
        (
            "cache",
            "sources are dropped from the page cache before each run; the server is on the same machine, with its own \
             part of that cache"
                .to_owned(),
        ),
        (
            "seconds",
            "transfer: until all was written, when a dialog would close; durable: until it was on the disk, for which \
             every engine waits here; copies are compared byte for byte afterwards"
                .to_owned(),
        ),
        (
            "reads",
            "another process reads 4 KiB at random past the page cache, from a file beside the copy, every 2 ms; the \
             99th percentile of a run, in which a long read counts as all that would have waited meanwhile"
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
    pairs
        .into_iter()
        .map(|(name, value)| Setting {
            name: name.to_owned(),
            value,
        })
        .collect()
}

/// Adds what is known once everything is set up.
pub(super) fn described(document: &mut Document, idle_p99_ms: Option<f64>, congestion: Option<&str>) {
    if let Some(p99) = idle_p99_ms {
        document.settings.push(Setting {
            name: "reads with nothing else".to_owned(),
            value: format!("99th percentile {p99:.2} ms"),
        });
    }
    let lan = document.links.iter_mut().find(|link| link.name == "lan");
    if let (Some(link), Some(congestion)) = (lan, congestion) {
        congestion.clone_into(&mut link.congestion);
    }
}

/// Notes scores beside the main one.
pub(super) fn further(document: &mut Document, scores: &[Score]) {
    document.settings.retain(|setting| setting.name != FURTHER);
    for score in scores {
        let parts: Vec<String> = score
            .parts
            .iter()
            .map(|part| format!("{} {:.2}", part.name, part.value))
            .collect();
        document.settings.push(Setting {
            name: FURTHER.to_owned(),
            value: format!("{:.3}, {} ({})", score.value, score.described, parts.join(", ")),
        });
    }
}
