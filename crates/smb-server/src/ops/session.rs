//! Begin and end of sessions: their effects on the tables.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::auth::Identity;
use ropeway_smb_proto::server::hub::Closed;
use ropeway_smb_proto::server::{ConnectionId, Session};
use ropeway_smb_wire::{NtStatus, SessionId};

use super::close::remove_deleted;
use super::deliver::deliver;
use crate::audit::Record;
use crate::ops::range_locks;
use crate::state::mailbox::Message;
use crate::state::{Counters, SharedState};

/// Longest time that a login waits for the requests of the session that it replaces. A guess: a client
/// must not give up the login because a disk or far server does not answer.
const REPLACED_MAX: Duration = Duration::from_secs(10);

/// Records a successful login.
pub(crate) fn logged_in(
    shared: &Arc<SharedState>,
    session: SessionId,
    replaced: Option<&Session>,
    (peer, connection): (SocketAddr, ConnectionId),
) {
    Counters::add(&shared.counters.logins, 1);
    let user = shared.sessions().get(session).and_then(user_of);
    // Before the session table is locked, because the directory may have many users.
    let held = user.map_or_else(Vec::new, |user| shared.accounts.sids_of_user(&user));
    {
        let sessions = shared.sessions();
        if let Some(session) = sessions.get(session) {
            shared.add_token(session, held);
        }
    }
    if let Some(replaced) = replaced {
        end_replaced(shared, replaced, connection);
    }
    let token = shared.token(session);
    shared.record(&Record {
        action: "login",
        peer: Some(peer),
        user: token.as_deref().map(|token| token.name.as_str()),
        share: None,
        path: None,
        target: None,
        status: NtStatus::SUCCESS,
    });
}

/// Returns the user of a session; `None` for guests and anonymous sessions.
fn user_of(session: &Session) -> Option<String> {
    match &session.identity {
        Identity::User { user, .. } if !session.is_guest => Some(user.to_string_lossy()),
        _ => None,
    }
}

/// Ends a session that another one replaces ([MS-SMB2] 3.3.5.5.3). When this returns, requests of the
/// old one have no further effect: its client may write over what they wrote. Requests of the same
/// connection are not waited for, since they may wait for its thread.
fn end_replaced(shared: &Arc<SharedState>, replaced: &Session, connection: ConnectionId) {
    let figures = shared.figures(replaced.id);
    if let Some(figures) = &figures {
        figures.end();
    }
    ended(shared, replaced);
    if let Some(figures) = figures.filter(|_| !replaced.channels().contains(&connection)) {
        figures.wait_for_requests(REPLACED_MAX);
    }
}

/// Cleans up after a session that was removed. Its client may reconnect durable handles.
pub(crate) fn ended(shared: &Arc<SharedState>, session: &Session) {
    let closed = {
        let now = shared.uptime();
        shared.hub().end_session(now, session.id)
    };
    close_handles(shared, &closed);
    release(shared, session);
}

fn release(shared: &Arc<SharedState>, session: &Session) {
    if let Some(figures) = shared.figures(session.id) {
        // What a worker has not begun for the session is not done any more.
        figures.end();
    }
    shared.drop_pipes(session.id.0, None);
    shared.remove_token(session.id);
    for connection in session.channels() {
        shared.post(*connection, Message::SessionEnded(session.id));
    }
    deliver(shared);
}

/// Cleans up after a lost connection: sessions without another channel end, durable handles stay
/// for a limited time ([MS-SMB2] 3.3.7.1).
pub(crate) fn connection_lost(shared: &Arc<SharedState>, connection: ConnectionId, sessions: &[SessionId]) {
    let (mut gone, mut moved) = (Vec::new(), Vec::new());
    {
        let mut table = shared.sessions();
        for id in sessions {
            if let Some(session) = table.unbind(*id, connection) {
                gone.push(session);
            } else if let Some(other) = table.get(*id).and_then(|session| session.channels().first()) {
                moved.push((*id, *other));
            }
        }
    }
    let closed = {
        let now = shared.uptime();
        shared.hub().disconnect(now, connection, &moved)
    };
    close_handles(shared, &closed);
    for session in &gone {
        release(shared, session);
    }
}

/// Drops opens that the hub has closed, and executes their deletions.
pub(crate) fn close_handles(shared: &Arc<SharedState>, closed: &[Closed]) {
    for closed in closed {
        let handle = shared.take_handle(closed.open.get());
        if let Some(open) = handle.as_ref().and_then(|handle| handle.file()) {
            range_locks::release(shared, open);
        }
        // The error is logged; no client waits for it.
        _ = remove_deleted(shared, closed, handle.as_ref().and_then(|handle| handle.file()));
    }
}
