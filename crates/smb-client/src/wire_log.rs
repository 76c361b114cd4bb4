//! Each request and answer with its time, for whoever counts round trips: `ROPEWAY_DEBUG=ropeway_smb_client::wire_log=trace`.
//!
//! Times are since the connection's first packet, so that two lines of one connection tell how long it waited. Names and
//! contents are not written.

use std::time::Duration;

use ropeway_smb_proto::client::{Chain, Reply, Ticket};

/// The commands of a chain, if anybody reads them.
pub(crate) fn commands(chain: &Chain) -> Option<String> {
    tracing::enabled!(tracing::Level::TRACE).then(|| {
        let names = chain
            .operations
            .iter()
            .map(|operation| format!("{:?}", operation.command));
        names.collect::<Vec<_>>().join("+")
    })
}

/// A chain went to the connection.
pub(crate) fn asked(now: Duration, ticket: Ticket, commands: Option<String>, bytes: u64) {
    if let Some(commands) = commands {
        tracing::trace!(at_ms = ms(now), ?ticket, %commands, bytes, "asked");
    }
}

/// All its answers came.
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

/// A stage of the connection's beginning is over.
pub(crate) fn passed(now: Duration, stage: &'static str) {
    tracing::trace!(at_ms = ms(now), stage, "passed");
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
