//! What a server does at one moment: shares, sessions, open files, requests by kind.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_proto::server::Session;
use ropeway_smb_proto::server::hub::OpenId;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::create::AccessMask;

use crate::ops::tree::IPC;
use crate::state::SharedState;
use crate::state::figures::{BUCKETS, KINDS, SessionFigures};
use crate::state::open::{Handle, Open};

/// What a server does at one moment.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// The shares.
    pub shares: Vec<ShareReport>,
    /// Number of users with a session.
    pub users: u64,
    /// Number of sessions.
    pub sessions_total: u64,
    /// The sessions that opened most recently last, as many as were asked for.
    pub sessions: Vec<SessionReport>,
    /// Number of open files, folders and pipes.
    pub open_total: u64,
    /// Open files and folders, as many as were asked for.
    pub opens: Vec<OpenReport>,
    /// Requests by kind since the start.
    pub kinds: Vec<KindReport>,
    /// Requests that took up to 2^n microseconds and more than half of it, by n; the last one has all
    /// slower ones. The wait for other clients does not count.
    pub buckets: Vec<u64>,
}

/// A share.
#[derive(Clone, Debug, Default)]
pub struct ShareReport {
    /// Its name.
    pub name: String,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Whether only encrypted requests are accepted.
    pub encrypt: bool,
    /// Whether it is on a far server.
    pub far: bool,
    /// Number of sessions that are connected to it.
    pub sessions: u64,
}

/// A session.
#[derive(Clone, Debug, Default)]
pub struct SessionReport {
    /// Its number.
    pub id: u64,
    /// The user; empty for an anonymous one.
    pub user: String,
    /// Addresses of its client, one for each connection.
    pub clients: Vec<String>,
    /// Dialect, such as `3.1.1`.
    pub dialect: &'static str,
    /// Algorithm of the signatures.
    pub signing: &'static str,
    /// Whether requests must be signed.
    pub signing_required: bool,
    /// The cipher; empty if the client cannot encrypt.
    pub cipher: &'static str,
    /// Whether all requests are encrypted.
    pub encrypted: bool,
    /// Whether it is a guest's.
    pub guest: bool,
    /// Time since the login.
    pub age: Duration,
    /// Time since the last request.
    pub idle: Duration,
    /// Names of the shares that it is connected to.
    pub shares: Vec<String>,
    /// Number of open files, folders and pipes.
    pub open: u64,
    /// Number of locked ranges.
    pub locks: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests by kind.
    pub kinds: Vec<KindReport>,
}

/// An open file or folder.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Number of its session.
    pub session: u64,
    /// The share.
    pub share: String,
    /// Path in it, with the name of a stream.
    pub path: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// Whether it is open for reading.
    pub reads: bool,
    /// Whether it is open for writing.
    pub writes: bool,
    /// Number of locked ranges.
    pub locks: u64,
    /// Whether it outlives the loss of its connection.
    pub durable: bool,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindReport {
    /// The kind: `read`, `write`, `open`, …
    pub name: &'static str,
    /// Their number.
    pub count: u64,
    /// Seconds that they took altogether, without the wait for other clients.
    pub seconds: f64,
}

/// Reports what the server does, with at most `rows` sessions and open files. Each table is locked by
/// itself and only while it is looked through.
pub(crate) fn of(shared: &SharedState, rows: usize) -> ServerReport {
    let locks = shared.hub().locks_by_open();
    let mut opens: HashMap<u64, (u64, u64)> = HashMap::new();
    let (mut shown, mut open_total) = (Vec::new(), 0);
    shared.each_handle(|handle| {
        open_total += 1;
        let (session, locked) = match handle {
            Handle::File(open) => {
                let locked = locks.get(&open.hub_id()).copied().unwrap_or(0);
                if shown.len() < rows {
                    shown.push((Arc::clone(open), locked));
                }
                (open.session.load(Ordering::Relaxed), locked)
            }
            Handle::Pipe(pipe) => (pipe.session, 0),
        };
        let of_session = opens.entry(session).or_default();
        of_session.0 += 1;
        of_session.1 += locked;
    });
    let durable: Vec<bool> = {
        let hub = shared.hub();
        let ids = shown.iter().map(|(open, _)| open.hub_id());
        ids.map(|id: OpenId| hub.is_durable(id)).collect()
    };
    let files = shown.iter().zip(durable);
    let mut files: Vec<OpenReport> = files
        .map(|((open, locks), durable)| open_report(open, *locks, durable))
        .collect();
    files.sort_by(|a, b| (&a.share, &a.path, a.session).cmp(&(&b.share, &b.path, b.session)));
    let mut report = ServerReport {
        open_total,
        opens: files,
        ..ServerReport::default()
    };
    add_sessions(shared, &opens, rows, &mut report);
    report
}

fn open_report(open: &Open, locks: u64, durable: bool) -> OpenReport {
    let path = open.path();
    OpenReport {
        session: open.session.load(Ordering::Relaxed),
        share: open.share.name.clone(),
        path: match &open.stream {
            Some(stream) => format!("{path}:{stream}"),
            None => path.to_string(),
        },
        folder: open.directory,
        reads: open
            .access
            .intersects(AccessMask::READ_DATA | AccessMask::EXECUTE),
        writes: open
            .access
            .intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA),
        locks,
        durable,
    }
}

/// Adds sessions, shares and requests by kind.
fn add_sessions(
    shared: &SharedState,
    opens: &HashMap<u64, (u64, u64)>,
    rows: usize,
    report: &mut ServerReport,
) {
    let (mut logins, all) = shared.logins();
    logins.sort_unstable_by_key(|(id, _, since, _)| (*since, id.0));
    let (mut users, mut connected) = (BTreeSet::new(), HashMap::<u32, u64>::new());
    let now = shared.uptime();
    for (id, token, since, figures) in &logins {
        all.add(figures);
        let mut session = {
            let sessions = shared.sessions();
            let Some(session) = sessions.get(*id) else {
                continue;
            };
            for share in shares_of(session) {
                *connected.entry(share).or_default() += 1;
            }
            report.sessions_total += 1;
            if !token.is_anonymous {
                users.insert(token.name.to_lowercase());
            }
            if report.sessions.len() >= rows {
                continue;
            }
            (
                session_report(session),
                session.channels().to_vec(),
                shares_of(session),
            )
        };
        let foreign = session.1.iter().find_map(|channel| shared.foreign_of(*channel));
        if let Some((name, signing)) = foreign {
            (session.0.dialect, session.0.signing) = (name, signing);
        }
        let clients = session
            .1
            .drain(..)
            .filter_map(|channel| shared.client_of(channel));
        let (peers, used): (Vec<_>, Vec<_>) = clients.unzip();
        let (open, locks) = opens.get(&id.0).copied().unwrap_or_default();
        let (bytes_read, bytes_written) = figures.bytes();
        let shares = session.2.iter().filter_map(|share| shared.share(*share));
        report.sessions.push(SessionReport {
            user: match token.is_anonymous {
                true => String::new(),
                false => token.name.clone(),
            },
            clients: peers.iter().map(shown).collect(),
            age: now.saturating_sub(*since),
            idle: used
                .iter()
                .max()
                .map_or(Duration::ZERO, |used| now.saturating_sub(*used)),
            shares: shares.map(|share| share.name.clone()).collect(),
            open,
            locks,
            bytes_read,
            bytes_written,
            kinds: kinds(figures),
            ..session.0
        });
    }
    report.users = users.len() as u64;
    report.kinds = kinds(&all);
    report.buckets = all.buckets()[..BUCKETS].to_vec();
    report.shares = shares(shared, &connected);
}

/// Returns an address as people write it: IPv4 also where the socket is one of IPv6.
fn shown(peer: &SocketAddr) -> String {
    SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string()
}

fn shares_of(session: &Session) -> BTreeSet<u32> {
    let trees = session.trees().map(|(_, tree)| tree.share);
    trees.filter(|share| *share != IPC).collect()
}

fn session_report(session: &Session) -> SessionReport {
    let SessionId(id) = session.id;
    SessionReport {
        id,
        dialect: session.dialect.name(),
        signing: match session.signing_algorithm() {
            SigningAlgorithm::HmacSha256 => "HMAC-SHA256",
            SigningAlgorithm::AesCmac => "AES-CMAC",
            SigningAlgorithm::AesGmac => "AES-GMAC",
        },
        signing_required: session.signing_required,
        cipher: match session.cipher() {
            None => "",
            Some(Cipher::Aes128Ccm) => "AES-128-CCM",
            Some(Cipher::Aes128Gcm) => "AES-128-GCM",
            Some(Cipher::Aes256Ccm) => "AES-256-CCM",
            Some(Cipher::Aes256Gcm) => "AES-256-GCM",
        },
        encrypted: session.encrypt,
        guest: session.is_guest,
        ..SessionReport::default()
    }
}

fn kinds(figures: &SessionFigures) -> Vec<KindReport> {
    let all = KINDS.iter().zip(figures.kinds());
    let used = all.filter(|(_, (count, _))| *count > 0);
    used.map(|(name, (count, seconds))| KindReport { name, count, seconds })
        .collect()
}

fn shares(shared: &SharedState, connected: &HashMap<u32, u64>) -> Vec<ShareReport> {
    let indices = shared.share_indices(|_| true).into_iter();
    let shares = indices.filter_map(|index| Some((index, shared.share(index)?)));
    shares
        .map(|(index, share)| ShareReport {
            name: share.name.clone(),
            read_only: share.read_only,
            encrypt: share.encrypt,
            far: share.far,
            sessions: connected.get(&index).copied().unwrap_or(0),
        })
        .collect()
}
