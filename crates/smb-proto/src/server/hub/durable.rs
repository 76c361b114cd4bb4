//! Opens that survive a lost connection ([MS-SMB2] 3.3.5.9.6, .7, .10, .12; 3.3.7.1).

use std::sync::Arc;

use super::caching::{H, W, level_of};
use super::event::Closed;
use super::ids::{ConnectionId, LeaseName, OpenId};
use super::lease::LeaseRequest;
use super::open::{Granted, OpenRequest};
use super::table::Open;
use super::{Hub, Timer};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::{DurableHandleV2Flags, DurableResponseV2, LeaseState};
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileId, Guid, NtStatus, SessionId, Text, TreeId};

/// A durable open as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableWish {
    /// `DHnQ`.
    V1,
    /// `DH2Q`. Persistent opens, which survive a restart of the server, are granted as durable ones.
    V2 {
        /// The client's name for the open.
        create_guid: Guid,
        /// How long to wait for the client; 0: the server decides.
        timeout_ms: u32,
    },
}

/// The response's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableGrant {
    /// `DHnQ`.
    V1,
    /// `DH2Q`.
    V2(DurableResponseV2),
}

/// A durable open's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durability {
    /// Second version.
    create_guid: Option<Guid>,
    timeout_ms: u32,
}

impl Durability {
    pub(super) fn grant(&self) -> DurableGrant {
        match self.create_guid {
            None => DurableGrant::V1,
            Some(_) => DurableGrant::V2(DurableResponseV2 {
                timeout_ms: self.timeout_ms,
                flags: DurableHandleV2Flags::default(),
            }),
        }
    }
}

/// `DHnC` or `DH2C`: a client is back for its open. All else that the CREATE says is ignored.
#[derive(Clone, Debug)]
pub struct ReconnectRequest {
    /// The open; its persistent half counts.
    pub file_id: FileId,
    /// Of the second version.
    pub create_guid: Option<Guid>,
    /// The lease context, if there is one.
    pub lease: Option<LeaseRequest>,
    /// The name, which has to be the file's if there is a lease.
    pub path: Text,
    /// The share.
    pub share_id: u32,
    /// The connection.
    pub connection: ConnectionId,
    /// The session.
    pub session: SessionId,
    /// The tree.
    pub tree: TreeId,
    /// The connection's `ClientGuid`.
    pub client: Guid,
    /// Who asks; must be who opened.
    pub user: Arc<str>,
    /// `ChannelSequence`; 0 before 3.0.
    pub channel_sequence: u16,
}

impl Hub {
    /// Durability is for files whose handles the client may cache ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10).
    pub(super) fn make_durable(&mut self, id: OpenId, request: &OpenRequest) -> Option<DurableGrant> {
        let wish = request.durable?;
        let open = self.tables.opens.get(&id)?;
        if request.directory || !self.holds(open, H) {
            return None;
        }
        let durability = match wish {
            DurableWish::V1 => Durability {
                create_guid: None,
                timeout_ms: self.limits.durable_timeout_ms,
            },
            DurableWish::V2 {
                create_guid,
                timeout_ms,
            } => Durability {
                create_guid: Some(create_guid),
                timeout_ms: match timeout_ms {
                    0 => self.limits.durable_timeout_ms,
                    asked => asked.min(self.limits.durable_timeout_max_ms),
                },
            },
        };
        self.tables.opens.get_mut(&id)?.durable = Some(durability);
        Some(durability.grant())
    }

    fn holds(&self, open: &Open, what: LeaseState) -> bool {
        let caching = self.caching(Self::holder(open));
        caching.is_some_and(|caching| caching.state.contains(what))
    }

    /// Whether a lost connection leaves the open: it is durable, may still cache its handle, no break is under way,
    /// nobody deletes it, and with locks it may cache writes (smb2.durable-open.lock-noW-lease).
    fn survives(&self, open: &Open) -> bool {
        open.durable.is_some()
            && self.holds(open, H)
            && !self.is_breaking(Self::holder(open))
            && !self.delete_pending(&open.info.file)
            && (open.lock_count == 0 || self.holds(open, W))
    }

    /// A connection is lost ([MS-SMB2] 3.3.7.1). Opens of sessions that have another channel (`moved` says which) go on
    /// there; of the others, those that are durable wait for their clients, and the rest is closed. Requests that came on it are
    /// forgotten; but a create that waits, and may be repeated on another channel, is one under way until its wait ends.
    pub fn disconnect(
        &mut self,
        now_ms: u64,
        connection: ConnectionId,
        moved: &[(SessionId, ConnectionId)],
    ) -> Vec<Closed> {
        self.forget_connection(connection, moved);
        let mut closed = Vec::new();
        for id in self.tables.of_connection(connection) {
            let Some(session) = self.info(id).map(|info| info.session) else {
                continue;
            };
            match moved.iter().find(|(moved, _)| *moved == session) {
                Some((_, to)) => self.reattach(id, *to),
                None => closed.extend(self.abandon(now_ms, id)),
            }
        }
        closed
    }

    /// A session ends, by LOGOFF or because a new one replaces it ([MS-SMB2] 3.3.5.6, 3.3.5.5.3): its opens are treated
    /// as if all its connections were lost (smb2.durable-open.reopen4).
    pub fn end_session(&mut self, now_ms: u64, session: SessionId) -> Vec<Closed> {
        let opens = self.tables.of_session(session).into_iter();
        opens.filter_map(|open| self.abandon(now_ms, open)).collect()
    }

    /// The open has no client any more: it waits for it, or is closed.
    fn abandon(&mut self, now_ms: u64, id: OpenId) -> Option<Closed> {
        let open = self.tables.opens.get(&id)?;
        let Some(durable) = open.durable.filter(|_| self.survives(open)) else {
            return self.close(now_ms, id);
        };
        let info = open.info.clone();
        self.tables.detach(&info);
        if let Some(open) = self.tables.opens.get_mut(&id) {
            open.info.connection = None;
        }
        if let Some(stream) = self.tables.stream_mut(&info.file) {
            stream.crowd.set_absent(id, true);
        }
        self.wake_lockers(id);
        let due = now_ms.saturating_add(u64::from(durable.timeout_ms));
        self.set_timer(due, Timer::Durable(id));
        None
    }

    /// The open goes on on another connection of its session.
    fn reattach(&mut self, id: OpenId, connection: ConnectionId) {
        let Some(open) = self.tables.opens.get(&id) else {
            return;
        };
        let info = open.info.clone();
        self.tables.detach(&info);
        self.tables.attach(id, connection, info.session);
        if let Some(open) = self.tables.opens.get_mut(&id) {
            open.info.connection = Some(connection);
        }
    }

    /// The open has a client again.
    pub(super) fn adopt(
        &mut self,
        id: OpenId,
        connection: ConnectionId,
        session: SessionId,
        tree: TreeId,
        client: Guid,
    ) {
        self.clear_timer(Timer::Durable(id));
        if let Some(open) = self.tables.opens.get_mut(&id) {
            open.info.connection = Some(connection);
            open.info.session = session;
            open.info.tree = tree;
            open.info.client = client;
            let file = open.info.file.clone();
            self.tables.attach(id, connection, session);
            if let Some(stream) = self.tables.stream_mut(&file) {
                stream.crowd.set_absent(id, false);
            }
        }
    }

    /// Nobody came back.
    pub(super) fn expire(&mut self, now_ms: u64, open: OpenId) {
        self.give_up(now_ms, open);
    }

    /// A client is back ([MS-SMB2] 3.3.5.9.7, 3.3.5.9.12). The response has no durable context.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is no such open, it still has a client, or guid or lease differ;
    /// `STATUS_INVALID_PARAMETER` if the name does; `STATUS_ACCESS_DENIED` for another user;
    /// `STATUS_TOO_MANY_OPENED_FILES`.
    pub fn reconnect(&mut self, request: &ReconnectRequest) -> Result<Granted, NtStatus> {
        let id = OpenId::from_persistent(request.file_id);
        let open = self
            .tables
            .opens
            .get(&id)
            .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        self.check_reconnect(open, request)?;
        if self.session_open_count(request.session) >= self.limits.opens_per_session_max {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
        let (lease, oplock) = (open.lease, level_of(open.oplock.state));
        let (connection, session) = (request.connection, request.session);
        self.adopt(id, connection, session, request.tree, request.client);
        if let Some(open) = self.tables.opens.get_mut(&id) {
            // What came on the lost connection may be under way still, and is not to undo what comes now.
            open.sequence.advance(request.channel_sequence);
        }
        Ok(Granted {
            open: id,
            oplock: if lease.is_some() {
                OplockLevel::Lease
            } else {
                oplock
            },
            lease: lease.and_then(|name| self.leases.granted(name, request.lease.as_ref())),
            durable: None,
            replayed: true,
        })
    }

    fn check_reconnect(&self, open: &Open, request: &ReconnectRequest) -> Result<(), NtStatus> {
        let missing = Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        let Some(durable) = open.durable.filter(|_| open.info.connection.is_none()) else {
            return missing;
        };
        // The first version finds opens of the second too (smb2.durable-v2-open.reopen2b).
        // and the second those of the first by no guid (smb2.durable-open.reopen2-lease).
        let guid = durable.create_guid.unwrap_or_default();
        if request.create_guid.is_some_and(|named| named != guid) {
            return missing;
        }
        let name = request.lease.map(|lease| LeaseName {
            client: request.client,
            key: lease.key,
        });
        if open.lease != name || open.info.share_id != request.share_id {
            return missing;
        }
        let named = open.lease.is_some() && !open.info.delete_on_close;
        if named && !upcase::equal(&open.info.path, &request.path) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if open.info.user != request.user {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(())
    }
}
