//! What a session's beginning and end mean for the tables.

use std::net::SocketAddr;
use std::sync::Arc;

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

/// A login ended well.
pub(crate) fn logged_in(
    shared: &Arc<SharedState>,
    session: SessionId,
    replaced: Option<&Session>,
    peer: SocketAddr,
) {
    Counters::add(&shared.counters.logins, 1);
    let user = shared.sessions().get(session).and_then(user_of);
    // Not while the table of sessions is locked: there may be many users to look through.
    let held = user.map_or_else(Vec::new, |user| shared.accounts.sids_of_user(&user));
    {
        let sessions = shared.sessions();
        if let Some(session) = sessions.get(session) {
            shared.add_token(session, held);
        }
    }
    if let Some(replaced) = replaced {
        ended(shared, replaced);
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

/// The user of a session; none of a guest or nobody.
fn user_of(session: &Session) -> Option<String> {
    match &session.identity {
        Identity::User { user, .. } if !session.is_guest => Some(user.to_string_lossy()),
        _ => None,
    }
}

/// A session is off the table; its client may come back for durable handles.
pub(crate) fn ended(shared: &Arc<SharedState>, session: &Session) {
    let closed = {
        let now = shared.uptime();
        shared.hub().end_session(now, session.id)
    };
    close_handles(shared, &closed);
    release(shared, session);
}

fn release(shared: &Arc<SharedState>, session: &Session) {
    shared.drop_pipes(session.id.0, None);
    shared.remove_token(session.id);
    for connection in session.channels() {
        shared.post(*connection, Message::SessionEnded(session.id));
    }
    deliver(shared);
}

/// A connection was lost: sessions that had no other one end, durable handles stay for a while ([MS-SMB2] 3.3.7.1).
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

/// Forgets opens that the hub has closed, and deletes what is to go with them.
pub(crate) fn close_handles(shared: &Arc<SharedState>, closed: &[Closed]) {
    for closed in closed {
        let handle = shared.take_handle(closed.open.get());
        if let Some(open) = handle.as_ref().and_then(|handle| handle.file()) {
            range_locks::release(shared, open);
        }
        // It is logged; nobody waits for an answer.
        _ = remove_deleted(shared, closed, handle.as_ref().and_then(|handle| handle.file()));
    }
}
