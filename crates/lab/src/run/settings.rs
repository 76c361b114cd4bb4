//! The method of measurement, as every report states it.

use crate::report::Setting;
use crate::scenario::Scenario;

/// Rules that all labs share.
const RULES: [(&str, &str); 10] = [
    (
        "order",
        "clients of the same link, work and direction take turns, each round another one first",
    ),
    (
        "limit",
        "max(60 s, 12 x line time + 120 s) a run; with a small window 12 x what one connection takes",
    ),
    (
        "proof",
        "each link by itself before all copies; measured again, up to three times in all, where it is out of its bounds",
    ),
    (
        "floor",
        "bare TCP after four set-up round trips, best of 1, 4 and 16 connections, before the cells; not measured where it \
         cannot be better than the best so far",
    ),
    (
        "target",
        "ropeway's whole process: 1.05 x floor (one file), 1.04 x floor (1 GB set), and two round trips",
    ),
    (
        "whole seconds",
        "from the start of the client's process to its end; every copy is then compared byte for byte",
    ),
    (
        "transfer seconds",
        "ropeway: its own account, without login, until all is written; others: the whole less the same client's empty \
         operation over the same link (best of 3); absent where that is less than the line's own time",
    ),
    (
        "mounts",
        "transfer seconds from the start of `cp -r` or `ls -lR` to its end, of writes until the share is unmounted and all \
         has arrived; the targets judge these. Caches are new in each run, in the folder for temporary files on its disk; before a \
         second reading the kernel drops what it has of files (drop_caches)",
    ),
    (
        "protocol",
        "each client's and server's defaults; ropeway serve demands signatures, smbd signs where the client wants it; rclone \
         with 4 transfers",
    ),
    (
        "curves",
        "of each cell's first run, in 40 to 80 parts; throughput by the link's counters; operations by ropeway's --trace, which \
         only that run writes; requests by the counters of ropeway serve",
    ),
];

/// Returns all settings of a lab, in the order of the report.
pub(super) fn settings(scenario: &Scenario, in_memory: bool, relay: bool) -> Vec<Setting> {
    let once = scenario.once_above.as_secs_f64();
    let runs = format!(
        "{}, the first discarded; one (which counts) where the line alone or the first run takes more than {once} s",
        scenario.runs
    );
    let side_by_side = match scenario.side_by_side {
        Some(rate) => format!(
            "cells of slow links run at the same time, each with its own link and servers, while the sum of their rates \
             is at most {rate}; floors too, proofs of links not"
        ),
        None => "off: one after the other".to_owned(),
    };
    let link = if relay {
        "relay: TCP over the loopback with delay and rate, no packets; windows, losses, cuts and congestion control of a \
         real line are not there"
    } else {
        "real packets between two network namespaces; tcp_no_metrics_save=1; congestion control of both ends as each link \
         says, the same for all clients"
    };
    let files = if in_memory {
        "works, sources and targets are in memory (tmpfs): servers read from a warm cache and no disk is waited for"
    } else {
        "works, sources and targets are in the folder for temporary files, written just before: in the page cache where \
         it holds them"
    };
    let is_cut = scenario.links.iter().any(|link| !link.spec.cuts.is_empty());
    let cuts = "counted from the start of each run's client; before and after it the link is whole, as it is for its proof \
                and its floor. So no target is set on such a link, and its limit is longer by twice what the cuts last";
    let own = [
        ("runs", runs),
        ("budget", format!("{} s", scenario.budget.as_secs())),
        ("side by side", side_by_side),
        ("link", link.to_owned()),
        ("cache", files.to_owned()),
    ];
    let cuts = is_cut.then(|| ("cuts", cuts.to_owned()));
    let rules = RULES.map(|(name, value)| (name, value.to_owned()));
    Setting::list(own.into_iter().chain(cuts).chain(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_explained_where_there_are_any() {
        let cuts = |scenario: &Scenario| {
            let settings = settings(scenario, true, false);
            settings.into_iter().find(|setting| setting.name == "cuts")
        };
        let cut = "name = \"x\"\ntitle = \"x\"\nworks = [\"small3000\"]\npairs = [\"ropeway:smbd\"]\n\
                   [[link]]\nname = \"x\"\nrtt = \"1ms\"\nrate = \"1mbit\"\ncuts = [{ at = \"1s\" }]\n";
        let mut scenario = Scenario::parse("x.toml", cut).unwrap();
        assert!(cuts(&scenario).is_some_and(|setting| setting.value.contains("no target")));
        scenario.links[0].spec.cuts.clear();
        assert_eq!(cuts(&scenario), None);
    }
}
