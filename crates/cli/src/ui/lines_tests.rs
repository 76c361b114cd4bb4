//! Tests of the bar's text.

use super::*;
use ropeway_vfs::event::{Eta, Limit};

const GIB: u64 = 1 << 30;

fn progress() -> Event {
    Event::Progress {
        seconds: 1.0,
        counters: Counters {
            files_total: 18_330,
            bytes_total: 96 * GIB,
            totals_final: true,
            files_done: 1204,
            files_skipped: 2,
            bytes_read: 41 * GIB,
            bytes_sent: 40 * GIB,
            bytes_durable: 38 * GIB,
            ..Counters::default()
        },
        rate: 39_950_745.6,
        files_rate: 120.4,
        percent: Some(39.99),
        eta: Some(Eta {
            seconds: 1500.0,
            low: 1320.0,
            high: 1740.0,
        }),
        limit: Some(Limit::Destination),
        paused: false,
        connection_lost: None,
    }
}

/// Returns the report after a change.
fn changed(change: impl FnOnce(&mut Counters, &mut bool, &mut Option<LostConnection>)) -> Event {
    let mut event = progress();
    let Event::Progress {
        counters,
        paused,
        connection_lost,
        ..
    } = &mut event
    else {
        panic!("{event:?}");
    };
    change(counters, paused, connection_lost);
    event
}

#[test]
fn each_width_keeps_percent_rate_estimate_and_files() {
    let shown = |width| bar(&progress(), Some(Phase::Copying), width);
    assert_eq!(
        shown(120),
        [
            "  39%  durable 38.0 GiB / 96.0 GiB  38.1 MiB/s to device  ETA 25m (22-29m)",
            " 1,204/18,330 files · 120/s · 2 skipped · limit: destination · read 41.0 GiB · sent 40.0 GiB",
        ]
    );
    assert_eq!(
        shown(80),
        [
            "  39%  durable 38.0 GiB / 96.0 GiB  38.1 MiB/s to device  ETA 25m (22-29m)",
            " 1,204/18,330 files · 120/s · 2 skipped · limit: destination · read 41.0 GiB",
        ]
    );
    assert_eq!(
        shown(40),
        [
            "  39%  38.1 MiB/s  ETA 25m (22-29m)",
            " 1,204/18,330 files · 120/s · 2 skipped",
        ]
    );
    assert_eq!(shown(24)[0], "  39%  38.1 MiB/s  ETA 2");
    assert_eq!(one_line(&progress(), None).lines().count(), 1);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let lost = |seconds_left| {
        changed(|_, _, lost| {
            *lost = Some(LostConnection {
                server: "nas.example.net".into(),
                silent_seconds: Some(5.0),
                seconds_left,
            });
        })
    };
    let counting = changed(|counters, _, _| counters.totals_final = false);
    for event in [progress(), counting, lost(None), lost(Some(13.2))] {
        for phase in [
            None,
            Some(Phase::Preflight),
            Some(Phase::Flushing),
            Some(Phase::Watching),
        ] {
            for width in [1, 8, 20, 40, 60, 80, 120, 200] {
                for line in bar(&event, phase, width) {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
    }
    let [first, second] = bar(&lost(Some(13.2)), Some(Phase::Copying), 80);
    assert!(!first.contains("ETA"), "{first}");
    assert_eq!(
        second,
        " connection lost, trying again (14 s left) · 1,204/18,330 files · 2 skipped"
    );
    let [_, second] = bar(&lost(Some(13.2)), Some(Phase::Copying), 40);
    assert_eq!(second, " connection lost, 14 s left");
    let [_, second] = bar(&lost(None), Some(Phase::Copying), 60);
    assert_eq!(
        second,
        " no answer from nas.example.net for 5 s · 1,204/18,330 files"
    );
}

#[test]
fn pauses_and_phases_are_named() {
    let paused = changed(|_, paused, _| *paused = true);
    let [first, second] = bar(&paused, Some(Phase::Copying), 80);
    assert!(
        !first.contains("ETA") && second.starts_with(" PAUSED · "),
        "{first}{second}"
    );
    assert!(one_line(&paused, None).contains("PAUSED"));
    let [_, second] = bar(&progress(), Some(Phase::Flushing), 40);
    assert!(second.contains("waiting for the device"), "{second}");
    let [first, second] = bar(&progress(), Some(Phase::Watching), 40);
    assert!(
        second.starts_with(" watching for changes") && !first.contains("ETA"),
        "{first}{second}"
    );
}
