//! `ropeway lab link -- COMMAND`: runs it over an emulated link; its exit code is ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use ropeway_lab::link::{Counters, Link, LinkSpec, Relay, Side, describe, rates};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, waitpid};

use super::signals::Caught;
use crate::args::LinkArgs;
use crate::failure::Failure;
use crate::ui::format;
use crate::ui::messages::complain;

/// As shells, env(1) and timeout(1) have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Time that an ended process has to be gone (a guess).
const REAP_PATIENCE: Duration = Duration::from_millis(300);

/// Runs the command; gives its exit code.
///
/// # Errors
/// The link makes no sense or cannot be made, or there is no such command.
pub(super) fn run(args: &LinkArgs) -> Result<u8, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no command to run over the link")
            .hint("write it behind two dashes: ropeway lab link --rtt 75ms --rate 622mbit -- COMMAND"));
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
    super::get_permission()?;
    let caught = Caught::begin()?;
    // Daemons of the command become our children, so that their ends can be awaited. Where that is refused they are
    // the system's, and it awaits them.
    _ = set_child_subreaper(Some(getpid()));
    let link = Link::start(spec).map_err(|error| super::failure(&error))?;
    if !args.quiet {
        complain(&format!("link: {}", describe(link.spec(), link.congestion())));
    }
    let status = wait(caught, link.spawn(Side::Near, command), &args.command)?;
    if !args.quiet {
        let stats = link.stats();
        complain(&format!(
            "link: up {}; down {}",
            told(&stats.up),
            told(&stats.down)
        ));
    }
    drop(link);
    reap();
    Ok(exit_code(status))
}

/// Takes note of the ends of all processes that the link has ended.
fn reap() {
    let patience = Instant::now() + REAP_PATIENCE;
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(2)),
            // None is left, or one that went elsewhere and is not ours to end.
            Ok(None) | Err(_) => return,
        }
    }
}

fn over_relay(args: &LinkArgs, spec: &LinkSpec, command: &mut Command) -> Result<u8, Failure> {
    let caught = Caught::begin()?;
    let relays: Result<Vec<Relay>, _> = args
        .relay
        .iter()
        .map(|ports| Relay::start(ports.near, ports.far, spec))
        .collect();
    let relays = relays.map_err(|error| super::failure(&error))?;
    if !args.quiet {
        for (ports, relay) in args.relay.iter().zip(&relays) {
            complain(&format!(
                "relay, not packets: {} to port {}, {}, round trip {:?}",
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
    let status = wait(caught, command.spawn(), &args.command)?;
    drop(relays);
    Ok(exit_code(status))
}

/// Waits for the command; signals go to it meanwhile.
fn wait(caught: Caught, child: io::Result<Child>, command: &[OsString]) -> Result<ExitStatus, Failure> {
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
            .hint("give a program that is there, as you would type it in a shell")
    };
    let mut child = child.map_err(failed)?;
    let runtime = caught.pass_to(&child);
    let status = child.wait().map_err(failed)?;
    if let Ok(runtime) = runtime {
        runtime.shutdown_background();
    }
    Ok(status)
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        // As shells have it.
        (None, signal) => 128_u8.saturating_add(signal.and_then(|n| u8::try_from(n).ok()).unwrap_or(0)),
    }
}

fn told(counters: &Counters) -> String {
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
