//! `ropeway lab link -- COMMAND`: runs a command over an emulated link and returns its exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use ropeway_lab::link::{Counters, Link, LinkSpec, Relay, Side, describe, rates};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, waitpid};

use super::signals::ForwardedSignals;
use crate::args::LinkArgs;
use crate::failure::Failure;
use crate::live::{self, RunPart};
use crate::ui::format;
use crate::ui::messages::print_stderr;

/// Exit codes as in shells, env(1) and timeout(1).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Time for ended processes to disappear (a guess).
const REAP_PATIENCE: Duration = Duration::from_millis(300);

/// Runs the command and returns its exit code.
///
/// # Errors
/// The link is invalid or cannot be created, or the command does not exist.
pub(super) fn run(args: &LinkArgs) -> Result<u8, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no command to run over the link")
            .hint("write it after two dashes: ropeway lab link --rtt 75ms --rate 622mbit -- COMMAND"));
    };
    let mut spec = super::spec(&args.shape)?;
    spec.cuts = super::cut(args.cut_at, args.cut_for)?;
    let mut command = Command::new(program);
    command.args(rest);
    if args.relay.is_empty() {
        over_packets(args, spec, &mut command)
    } else {
        over_relay(args, &spec, &mut command)
    }
}

fn over_packets(args: &LinkArgs, spec: LinkSpec, command: &mut Command) -> Result<u8, Failure> {
    super::enable_namespaces()?;
    let caught = ForwardedSignals::catch()?;
    // Daemons that the command starts become our children, so that we can wait for their end. If
    // the kernel refuses, init waits for them.
    _ = set_child_subreaper(Some(getpid()));
    let link = Link::start(spec).map_err(|error| super::failure(&error))?;
    if !args.quiet {
        print_stderr(&format!("link: {}", describe(link.spec(), link.congestion())));
    }
    let status = wait(caught, link.spawn(Side::Near, command), &args.command)?;
    if !args.quiet {
        let stats = link.stats();
        print_stderr(&format!(
            "link: up {}; down {}",
            traffic(&stats.up),
            traffic(&stats.down)
        ));
    }
    drop(link);
    reap();
    Ok(exit_code(status))
}

/// Waits for all processes that the link has ended.
fn reap() {
    let patience = Instant::now() + REAP_PATIENCE;
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(2)),
            // No child is left, or one has moved elsewhere and is not ours to end.
            Ok(None) | Err(_) => return,
        }
    }
}

fn over_relay(args: &LinkArgs, spec: &LinkSpec, command: &mut Command) -> Result<u8, Failure> {
    let caught = ForwardedSignals::catch()?;
    let relays: Result<Vec<Relay>, _> = args
        .relay
        .iter()
        .map(|ports| Relay::start(ports.near, ports.far, spec))
        .collect();
    let relays = relays.map_err(|error| super::failure(&error))?;
    if !args.quiet {
        for (ports, relay) in args.relay.iter().zip(&relays) {
            print_stderr(&format!(
                "relay, no packets: {} to port {}, {}, round trip {:?}",
                relay.address(),
                ports.far,
                rates(spec),
                spec.rtt
            ));
        }
    }
    command
        .env("ROPEWAY_FAR", "127.0.0.1")
        .env("ROPEWAY_LINK", "relay");
    command.env_remove("ROPEWAY_FAR_NETNS");
    if let Some(rate) = spec.rate_most() {
        command.env("ROPEWAY_LINK_RATE", format!("{}bit", rate.0));
    }
    let status = wait(caught, command.spawn(), &args.command)?;
    drop(relays);
    Ok(exit_code(status))
}

/// Waits for the command and passes signals on to it.
fn wait(
    caught: ForwardedSignals,
    child: io::Result<Child>,
    command: &[OsString],
) -> Result<ExitStatus, Failure> {
    let name = || {
        command
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let failed = |error: io::Error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        Failure::new(code, format!("cannot run {}: {error}", name()))
            .hint("give the name of an existing program, as in a shell")
    };
    let mut child = child.map_err(failed)?;
    let live = live::start("lab");
    let part = RunPart::new("link", &name());
    let _registered = live.add(part);
    let runtime = caught.forward_to(&child);
    let status = child.wait().map_err(failed)?;
    if let Ok(runtime) = runtime {
        runtime.shutdown_background();
    }
    Ok(status)
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        // As in shells.
        (None, signal) => 128_u8.saturating_add(signal.and_then(|n| u8::try_from(n).ok()).unwrap_or(0)),
    }
}

fn traffic(counters: &Counters) -> String {
    let mut text = format!(
        "{} in {}, queue up to {}, {} dropped",
        format::bytes(counters.wire_bytes),
        format::counted(counters.delivered, "segment", "segments"),
        format::bytes(counters.queue_max_bytes),
        format::count(counters.dropped),
    );
    for (number, what) in [
        (counters.lost, "lost"),
        (counters.cut, "cut off"),
        (counters.refused, "refused"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {} {what}", format::count(number)));
        }
    }
    text
}
