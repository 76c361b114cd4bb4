//! `ropeway lab`: the laboratory.

mod documents;
mod link;
mod local;
mod measure;
mod predict;
mod reports;
mod run;
mod signals;

use std::time::Duration;

use ropeway_lab::link::{self as wan, Cut, LinkError, LinkSpec, TcpSpec};

pub(super) use run::{catch_signals, stop_signals};

use crate::args::{LabArgs, LabCommand, LinkAction, LinkShape};
use crate::failure::{Failure, code};

/// Runs the command and returns its exit code.
///
/// # Errors
/// The link is invalid or cannot be created, or a lab fails.
pub(crate) fn run(args: &LabArgs) -> Result<u8, Failure> {
    match &args.command {
        LabCommand::Link(args) => match &args.action {
            None => link::run(args),
            Some(LinkAction::Check(args)) => measure::check(args),
            Some(LinkAction::Floor(args)) => measure::floor(args),
        },
        LabCommand::Run(args) => run::file(args),
        LabCommand::Tr3869(args) => run::named("tr3869", &args.how),
        LabCommand::Far(args) => run::named("far", &args.how),
        LabCommand::Quick(args) => run::named("quick", &args.how),
        LabCommand::List(args) => run::list(args),
        LabCommand::Report(args) => reports::report(args),
        LabCommand::Compare(args) => reports::compare(args),
        LabCommand::Predict(args) => predict::run(args),
        LabCommand::Documents(args) => documents::run(args),
        LabCommand::Local(command) => local::run(command),
    }
}

/// Returns whether the flags give a delay.
fn has_delay(shape: &LinkShape) -> bool {
    shape.rtt.or(shape.up_delay).or(shape.down_delay).is_some()
}

/// Returns the link for the flags, which must include delay and rate.
fn spec(shape: &LinkShape) -> Result<LinkSpec, Failure> {
    let Some(rate) = shape.rate.filter(|_| has_delay(shape)) else {
        return Err(Failure::usage("a link needs --rtt and --rate")
            .hint("for example: ropeway lab link --rtt 75ms --rate 622mbit -- COMMAND"));
    };
    let (rtt, up_delay) =
        wan::round_trip(shape.rtt, shape.up_delay, shape.down_delay).map_err(|message| {
            Failure::usage(message).hint("for example: --rtt 75ms, or --up-delay 20ms --down-delay 55ms")
        })?;
    let spec = LinkSpec {
        up_delay,
        jitter: shape.jitter.unwrap_or(Duration::ZERO),
        loss: shape.loss.unwrap_or(0.0),
        down: shape.down_rate.unwrap_or(rate).0,
        queue: shape.queue,
        mtu: shape.mtu,
        seed: shape.seed,
        tcp: TcpSpec {
            congestion: shape.congestion.clone(),
            buffer_max_bytes: shape.tcp_max,
            window_max_bytes: shape.window,
            congestion_open: shape.congestion_open,
            initial_window: shape.initcwnd,
            ecn: shape.ecn,
        },
        ..LinkSpec::new(rtt, rate.0)
    };
    spec.check().map_err(|error| failure(&error))?;
    Ok(spec)
}

/// Returns the cut for the flags.
fn cut(at: Option<Duration>, length: Option<Duration>) -> Result<Vec<Cut>, Failure> {
    match (at, length) {
        (None, None) => Ok(Vec::new()),
        (None, Some(_)) => Err(Failure::usage("--cut-for needs --cut-at").hint("add --cut-at TIME")),
        (Some(at), length) => Ok(vec![Cut {
            at,
            length: length.unwrap_or(Cut::FOR_EVER),
        }]),
    }
}

/// Returns whether only relays are possible; otherwise obtains permission to create links. Must run
/// before any thread is started.
pub(crate) fn needs_relay() -> bool {
    run::needs_relay(true)
}

/// Obtains permission to create links. Must run before any thread is started.
fn enable_namespaces() -> Result<(), Failure> {
    if wan::can_make_namespaces() {
        return Ok(());
    }
    wan::enter_user_namespace().map_err(|error| failure(&error))
}

fn failure(error: &LinkError) -> Failure {
    let code = match error {
        LinkError::Spec(_) | LinkError::Missing { .. } => code::USAGE,
        LinkError::Forbidden { .. } => code::PERMISSION,
        LinkError::Io { .. } => code::NETWORK,
    };
    Failure::new(code, error.to_string()).hint(error.hint())
}
