//! An SMB server as a part of this process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_live::history::Totals;
use ropeway_live::model::{Latency, OpenFile, Operation, Operations, Server, Session, Share, Snapshot};
use ropeway_live::{Control, Part, Response, View, clean};
use ropeway_smb_server::{KindReport, OpenReport, ServerHandle};

/// Most sessions and open files in a snapshot. A guess: more than anybody looks at.
const ROWS_MAX: usize = 256;

/// A server as other processes see it.
pub(crate) struct ServerPart {
    server: ServerHandle,
    name: String,
    addresses: Vec<String>,
}

impl ServerPart {
    /// Makes the part of a server.
    pub(crate) fn new(server: ServerHandle, name: &str, addresses: &[SocketAddr]) -> Self {
        Self {
            server,
            name: name.to_owned(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Part for ServerPart {
    fn totals(&self) -> Totals {
        let counters = self.server.counters();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            read: get(&counters.bytes_read),
            written: get(&counters.bytes_written),
            operations: get(&counters.requests),
            ..Totals::default()
        }
    }

    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        let counters = self.server.counters();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let report = self.server.report(ROWS_MAX);
        let shares = report.shares.into_iter().map(|share| Share {
            name: clean(&share.name),
            read_only: share.read_only,
            encrypt: share.encrypt,
            far: share.far,
            sessions: share.sessions,
        });
        let sessions = report.sessions.into_iter().map(|session| Session {
            id: format!("{:x}", session.id),
            user: clean(&session.user),
            clients: session.clients,
            dialect: session.dialect.to_owned(),
            signing: session.signing.to_owned(),
            signing_required: session.signing_required,
            cipher: session.cipher.to_owned(),
            encrypted: session.encrypted,
            guest: session.guest,
            seconds: session.age.as_secs(),
            idle_seconds: session.idle.as_secs(),
            shares: session.shares.iter().map(|share| clean(share)).collect(),
            open: session.open,
            locks: session.locks,
            bytes_read: session.bytes_read,
            bytes_written: session.bytes_written,
            operations: operations(&session.kinds),
        });
        let mut server = Server {
            id: view.id,
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            shares: shares.collect(),
            connections: get(&counters.connections_open),
            connections_total: get(&counters.connections),
            logins: get(&counters.logins),
            logins_failed: get(&counters.logins_failed),
            requests: get(&counters.requests),
            bytes_read: get(&counters.bytes_read),
            bytes_written: get(&counters.bytes_written),
            unsent_bytes: self.server.unsent() as u64,
            users: report.users,
            sessions_total: report.sessions_total,
            sessions: sessions.collect(),
            open_total: report.open_total,
            open_files: report.opens.iter().map(open_file).collect(),
            operations: operations(&report.kinds),
            latency: Latency {
                seconds: report.kinds.iter().map(|kind| kind.seconds).sum(),
                buckets: report.buckets,
            },
            rates: view.rates,
            history: view.history,
            ..Server::default()
        };
        // The busiest first.
        let moved = |session: &Session| session.bytes_read.saturating_add(session.bytes_written);
        server
            .sessions
            .sort_by_key(|session| std::cmp::Reverse((moved(session), session.requests())));
        server.bound();
        snapshot.servers.push(server);
    }

    fn control(&self, control: Control<'_>) -> Response {
        match control {
            Control::CloseSession(id) if self.server.close_session(id) => Response::Done,
            _ => Response::NotMine,
        }
    }
}

fn open_file(open: &OpenReport) -> OpenFile {
    OpenFile {
        session: format!("{:x}", open.session),
        share: clean(&open.share),
        path: clean(&open.path),
        folder: open.folder,
        reads: open.reads,
        writes: open.writes,
        locks: open.locks,
        durable: open.durable,
    }
}

fn operations(kinds: &[KindReport]) -> Operations {
    let of = |kind: &KindReport| {
        let operation = Operation {
            count: kind.count,
            seconds: kind.seconds,
        };
        (kind.name.to_owned(), operation)
    };
    kinds.iter().map(of).collect()
}
