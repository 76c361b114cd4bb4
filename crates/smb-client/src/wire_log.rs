//! A log of requests and replies with their times, to count round trips:
//! `ROPEWAY_DEBUG=ropeway_smb_client::wire_log=trace`. Each line belongs to the span `connection`
//! (level debug, target `ropeway_smb_client::link`), which names the server and the local port.
//! Requests of a caller run in the span `operation` (level trace, target
//! `ropeway_smb_client::session`), below the caller's own spans.
//!
//! Times count from the start of the connection, so that the difference of two lines of one
//! connection is the wait between them. Names and contents are not logged.

use std::time::Duration;

use ropeway_smb_proto::client::{Compound, Reply, Ticket};

/// Returns the names of a compound's commands, if the log is on.
pub(crate) fn commands(compound: &Compound) -> Option<String> {
    tracing::enabled!(tracing::Level::TRACE).then(|| {
        let names = compound
            .operations
            .iter()
            .map(|operation| format!("{:?}", operation.command));
        names.collect::<Vec<_>>().join("+")
    })
}

/// Logs a compound that was handed to the connection.
pub(crate) fn asked(now: Duration, ticket: Ticket, commands: Option<String>, bytes: u64) {
    if let Some(commands) = commands {
        tracing::trace!(at_ms = ms(now), ?ticket, %commands, bytes, "asked");
    }
}

/// Logs that all replies to a compound have arrived.
pub(crate) fn answered(now: Duration, asked_at: Duration, ticket: Ticket, replies: &[Reply]) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let failed = replies.iter().find(|reply| !reply.status().is_success());
        let status = failed.map(|reply| reply.status().to_string());
        let took_ms = ms(now.saturating_sub(asked_at));
        tracing::trace!(
            at_ms = ms(now),
            ?ticket,
            took_ms,
            failed = status.as_deref(),
            "answered"
        );
    }
}

/// Logs the end of a stage of the connection's set-up.
pub(crate) fn passed(now: Duration, stage: &'static str) {
    tracing::trace!(at_ms = ms(now), stage, "passed");
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
