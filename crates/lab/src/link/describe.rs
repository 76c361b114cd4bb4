//! A link in one line for people.

use ropeway_live::format::bytes;

use super::spec::{LinkSpec, Rate};
use crate::report::numbers;

/// Describes all settings of a link in one line.
pub fn describe(spec: &LinkSpec, congestion: &str) -> String {
    let (up, down) = (spec.queue_bytes(spec.up), spec.queue_bytes(spec.down));
    let queue = if up == down {
        bytes(up)
    } else {
        format!("{} up, {} down", bytes(up), bytes(down))
    };
    let mut text = format!("{}, round trip {:?}", rates(spec), spec.rtt);
    if spec.up_delay.is_some() {
        let [up, down] = spec.delays();
        text.push_str(&format!(" ({up:?} up, {down:?} down)"));
    }
    text.push_str(&format!(", queue {queue}, MTU {}", spec.mtu));
    if !spec.jitter.is_zero() {
        text.push_str(&format!(", jitter {:?}", spec.jitter));
    }
    if spec.loss > 0.0 {
        text.push_str(&format!(", loss {} %, seed {}", spec.loss * 100.0, spec.seed));
    }
    text.push_str(&format!(", {congestion}"));
    if spec.tcp.congestion.is_some() && spec.tcp.congestion_open {
        text.push_str(" unless a program chooses another");
    }
    if let Some(most) = spec.tcp.buffer_max_bytes {
        text.push_str(&format!(", TCP buffers {}", bytes(most)));
    }
    if let Some(most) = spec.tcp.window_max_bytes {
        text.push_str(&format!(", window {}", numbers::count(most.into())));
    }
    if let Some(segments) = spec.tcp.initial_window {
        text.push_str(&format!(", initcwnd {segments}"));
    }
    if spec.tcp.ecn {
        text.push_str(", ECN");
    }
    for cut in &spec.cuts {
        text.push_str(&format!(", cut after {:?}", cut.at));
        if cut.is_for_ever() {
            text.push_str(" for good");
        } else {
            text.push_str(&format!(" for {:?}", cut.length));
        }
    }
    text
}

/// Describes the rates of both directions.
pub fn rates(spec: &LinkSpec) -> String {
    let rate = |rate: Option<Rate>| rate.map_or("no rate".to_owned(), |rate| rate.to_string());
    if spec.up == spec.down {
        rate(spec.up)
    } else {
        format!("{} up, {} down", rate(spec.up), rate(spec.down))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::spec::Cut;
    use super::*;

    #[test]
    fn everything_that_is_set_is_said() {
        let mut spec = LinkSpec::new(Duration::from_millis(75), Some(Rate(622_000_000)));
        assert_eq!(
            describe(&spec, "bbr"),
            "622 Mbit/s, round trip 75ms, queue 5.6 MiB, MTU 1500, bbr"
        );
        spec.down = None;
        spec.loss = 0.01;
        spec.tcp.window_max_bytes = Some(17_520);
        spec.tcp.initial_window = Some(4);
        spec.tcp.ecn = true;
        spec.up_delay = Some(Duration::from_millis(20));
        let at = Duration::from_secs(1);
        spec.cuts = [Duration::from_millis(2), Cut::FOR_EVER]
            .map(|length| Cut { at, length })
            .to_vec();
        let text = describe(&spec, "reno");
        for part in [
            "no rate down",
            "round trip 75ms (20ms up, 55ms down), queue",
            "loss 1 %",
            "window 17,520",
            "initcwnd 4",
            "ECN, cut after 1s for 2ms, cut after 1s for good",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
