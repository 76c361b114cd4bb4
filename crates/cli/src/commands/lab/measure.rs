//! `ropeway lab link check` and `ropeway lab link floor`.

use std::io::IsTerminal;
use std::time::Duration;

use ropeway_lab::link::{self as wan, Check, CheckPlan, Flow, Link, LinkSpec, Measured, Rate, describe};
use serde_json::json;

use crate::args::{LinkCheckArgs, LinkFloorArgs};
use crate::failure::{Failure, code};
use crate::ui::format;
use crate::ui::messages::{Color, paint, print_line};

/// Links to check if none is given: rate in Mbit/s, round trip in milliseconds.
const LINKS: [(u64, u64); 3] = [(155, 32), (622, 75), (1000, 10)];
/// Numbers of connections for bare TCP.
const CONNECTIONS: [usize; 3] = [1, 4, 16];

/// Checks the emulator; returns exit code 7 if a link is out of bounds.
///
/// # Errors
/// A link is invalid, cannot be created or cannot be measured.
pub(super) fn check(args: &LinkCheckArgs) -> Result<u8, Failure> {
    let shape = &args.shape;
    let specs = if shape.rate.is_none() && !super::has_delay(shape) {
        LINKS
            .map(|(mbit, ms)| LinkSpec::new(Duration::from_millis(ms), Some(Rate(mbit * 1_000_000))))
            .to_vec()
    } else {
        vec![super::spec(shape)?]
    };
    super::enable_namespaces()?;
    if !args.json {
        print_line(
            "link                    round trip            rate up, UDP            rate down, TCP          loss",
        );
    }
    let mut checks = Vec::new();
    for spec in &specs {
        let check =
            wan::check(spec, CheckPlan::default(), &|| false).map_err(|error| super::failure(&error))?;
        if !args.json {
            print_line(&row(&check));
        }
        checks.push(check);
    }
    let holds = checks.iter().all(Check::holds);
    if args.json {
        let line = json!({
            "type": "link_check",
            "version": 1,
            "holds": holds,
            "kernel": kernel(),
            "checks": checks,
        });
        print_line(&line.to_string());
    } else {
        print_line(&verdict(holds));
    }
    Ok(if holds { code::DONE } else { code::DIFFERS })
}

fn verdict(holds: bool) -> String {
    let terminal = std::io::stdout().is_terminal();
    let bounds = "rate within 1 %, round trip within 2 %, loss within 4 standard deviations";
    if holds {
        format!(
            "{} {bounds} (kernel {})",
            paint(Color::Green, "✓", terminal),
            kernel()
        )
    } else {
        format!(
            "{} out of bounds, marked with !: {bounds}",
            paint(Color::Red, "✗", terminal)
        )
    }
}

fn row(check: &Check) -> String {
    let mark = |measured: &Measured| if measured.holds() { ' ' } else { '!' };
    let percent = |measured: &Measured| format!("{:+.2} %", measured.error() * 100.0);
    let rate = |measured: &Measured| {
        format!(
            "{:.2} Mbit/s {}{}",
            measured.found / 1e6,
            percent(measured),
            mark(measured)
        )
    };
    let (trip, loss) = (&check.round_trip, &check.loss);
    let name = format!(
        "{}, {:?}",
        check.link.up.map_or(String::new(), |rate| rate.to_string()),
        check.link.rtt
    );
    let trip = format!("{:.3} ms {}{}", trip.found * 1e3, percent(trip), mark(trip));
    let loss = format!(
        "{:.3} % of {:.1} % (±{:.2}){}",
        loss.found * 100.0,
        loss.wanted * 100.0,
        loss.bound * 100.0,
        mark(loss)
    );
    format!(
        "{name:22}  {trip:20}  {:22}  {:22}  {loss}",
        rate(&check.rate_udp),
        rate(&check.rate_tcp)
    )
    .trim_end()
    .to_owned()
}

/// Measures bare TCP.
///
/// # Errors
/// The link is invalid, cannot be created or cannot be measured.
pub(super) fn floor(args: &LinkFloorArgs) -> Result<u8, Failure> {
    let spec = super::spec(&args.shape)?;
    super::enable_namespaces()?;
    let flow = if args.download { Flow::Down } else { Flow::Up };
    let rate = if args.download { spec.down } else { spec.up };
    let line = wan::line_time(args.bytes, rate, spec.mtu).map(|span| span.as_secs_f64());
    let mut runs = Vec::new();
    let mut congestion = String::new();
    for connections in CONNECTIONS {
        // Each run has its own link, so that it inherits nothing from the run before and has the
        // same losses.
        let link = Link::start(spec.clone()).map_err(|error| super::failure(&error))?;
        if congestion.is_empty() {
            link.congestion().clone_into(&mut congestion);
            if !args.json {
                print_line(&format!(
                    "{} {} over {}",
                    format::bytes(args.bytes),
                    if args.download { "down" } else { "up" },
                    describe(&spec, &congestion)
                ));
                if let Some(line) = line {
                    print_line(&format!("line time        {line:8.3} s"));
                }
            }
        }
        let taken = wan::floor(&link, args.bytes, connections, flow, &|| false)
            .map_err(|error| super::failure(&error))?;
        let (taken, stats) = (taken.as_secs_f64(), link.stats());
        if !args.json {
            let share = line.map_or(String::new(), |line| {
                format!("   {:.3} x line time", taken / line)
            });
            print_line(&format!(
                "{connections:2} connection{} {taken:8.3} s{share}",
                if connections == 1 { "   " } else { "s  " }
            ));
        }
        runs.push(json!({ "connections": connections, "seconds": taken, "stats": stats }));
    }
    let seconds = |run: &serde_json::Value| run["seconds"].as_f64().unwrap_or(f64::MAX);
    let best = runs
        .iter()
        .min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
        .cloned()
        .unwrap_or_default();
    if args.json {
        let line = json!({
            "type": "link_floor",
            "version": 1,
            "link": spec,
            "queue_bytes": spec.queue_bytes(rate),
            "congestion": congestion,
            "flow": flow,
            "bytes": args.bytes,
            "line_seconds": line,
            "runs": runs,
            "best": { "connections": best["connections"], "seconds": best["seconds"] },
            "kernel": kernel(),
        });
        print_line(&line.to_string());
    } else {
        let connections = best["connections"].as_u64().unwrap_or(0);
        let (best, counted) = (
            seconds(&best),
            format::counted(connections, "connection", "connections"),
        );
        print_line(&format!("floor            {best:8.3} s, {counted}"));
    }
    Ok(code::DONE)
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
