//! Durable opens, which survive the loss of their connection ([MS-SMB2] 3.3.5.9.6, .7, .10, .12;
//! 3.3.7.1).

use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileId, Guid, NtStatus, SessionId, Text, TreeId};

use super::caching::{H, W, level_of};
use super::durability::{Durability, DurableGrant, DurableOpenRequest};
use super::event::Closed;
use super::ids::{ConnectionId, LeaseName, OpenId};
use super::lease::LeaseRequest;
use super::open::{Granted, OpenRequest};
use super::table::Open;
use super::{Hub, Timer};

/// A request to reconnect to a durable open (`DHnC`, `DH2C`). The remaining fields of its CREATE
/// are ignored.
#[derive(Clone, Debug)]
pub struct ReconnectRequest {
    /// The open. Only the persistent half is used.
    pub file_id: FileId,
    /// The create guid, in version 2.
    pub create_guid: Option<Guid>,
    /// Whether the flag for persistent opens is set, on a tree that has them.
    pub persistent: bool,
    /// The lease context, if present.
    pub lease: Option<LeaseRequest>,
    /// The path. It must match the open's if there is a lease.
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
    /// The user, who must be the one who opened the file.
    pub user: Arc<str>,
    /// `ChannelSequence`; 0 before 3.0.
    pub channel_sequence: u16,
}

impl Hub {
    /// Makes an open durable, if the client may cache its handle ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10).
    /// A persistent open needs no caching, and may be one of a folder
    /// (smb2.persistent-open.leaselevels, directory-disconnect).
    pub(super) fn make_durable(&mut self, id: OpenId, request: &OpenRequest) -> Option<DurableGrant> {
        let wish = request.durable?;
        let open = self.tables.opens.get(&id)?;
        let persistent = self.may_persist(&wish);
        if !persistent && (request.directory || !self.holds(open, H)) {
            return None;
        }
        let durability = match wish {
            DurableOpenRequest::V1 => Durability {
                create_guid: None,
                timeout_ms: self.limits.durable_timeout_ms,
                persistent: false,
            },
            DurableOpenRequest::V2 {
                create_guid,
                timeout_ms,
                ..
            } => Durability {
                create_guid: Some(create_guid),
                timeout_ms: match timeout_ms {
                    0 if persistent => self.limits.persistent_timeout_ms,
                    0 => self.limits.durable_timeout_ms,
                    asked => asked.min(self.limits.durable_timeout_max_ms),
                },
                persistent,
            },
        };
        self.tables.opens.get_mut(&id)?.durable = Some(durability);
        if let Some(guid) = durability.create_guid.filter(|_| persistent) {
            self.persistent.add(guid, id);
        }
        Some(durability.grant())
    }

    pub(super) fn holds(&self, open: &Open, what: LeaseState) -> bool {
        let caching = self.caching(Self::holder(open));
        caching.is_some_and(|caching| caching.state.contains(what))
    }

    /// Returns whether an open survives the loss of its connection: it is durable, caches its
    /// handle, no break is in progress, no deletion is pending, and if it has locks it caches
    /// writes (smb2.durable-open.lock-noW-lease). A persistent open survives in any case.
    fn survives(&self, open: &Open) -> bool {
        open.is_persistent()
            || open.durable.is_some()
                && self.holds(open, H)
                && !self.is_breaking(Self::holder(open))
                && !self.delete_pending(&open.info.file)
                && (open.lock_count == 0 || self.holds(open, W))
    }

    /// Handles the loss of a connection ([MS-SMB2] 3.3.7.1). `moved` lists the sessions that have
    /// another channel; their opens continue there. Of the other opens, durable ones wait for their
    /// clients and the rest is closed. Requests of the connection are dropped, except for a waiting
    /// create that may be replayed on another channel: it stays pending until its wait ends.
    pub fn disconnect(
        &mut self,
        now: Duration,
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
                None => closed.extend(self.detach_or_close(now, id)),
            }
        }
        closed
    }

    /// Ends a session, after LOGOFF or because a new session replaces it ([MS-SMB2] 3.3.5.6,
    /// 3.3.5.5.3). Its opens are treated as if all its connections were lost
    /// (smb2.durable-open.reopen4).
    pub fn end_session(&mut self, now: Duration, session: SessionId) -> Vec<Closed> {
        let opens = self.tables.of_session(session).into_iter();
        opens.filter_map(|open| self.detach_or_close(now, open)).collect()
    }

    /// Detaches an open from its client, or closes it if it does not survive that.
    fn detach_or_close(&mut self, now: Duration, id: OpenId) -> Option<Closed> {
        let open = self.tables.opens.get(&id)?;
        let Some(durable) = open.durable.filter(|_| self.survives(open)) else {
            return self.close(now, id);
        };
        let info = open.info.clone();
        self.tables.detach(&info);
        if let Some(open) = self.tables.opens.get_mut(&id) {
            open.info.connection = None;
        }
        if let Some(stream) = self.tables.stream_mut(&info.file) {
            stream.summary.set_absent(id, true);
        }
        self.wake_own_lock_waiters(id);
        let due = now.saturating_add(Duration::from_millis(durable.timeout_ms.into()));
        self.set_timer(due, Timer::Durable(id));
        if durable.persistent {
            self.client_left(now, id);
        }
        None
    }

    /// Moves an open to another connection of its session.
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

    /// Attaches an open to a client.
    pub(super) fn attach_client(
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
            // Its record names the client.
            self.persistent.changed_if(open);
            let file = open.info.file.clone();
            self.tables.attach(id, connection, session);
            if let Some(stream) = self.tables.stream_mut(&file) {
                stream.summary.set_absent(id, false);
            }
        }
    }

    /// Closes a durable open whose client did not return in time.
    pub(super) fn expire(&mut self, now: Duration, open: OpenId) {
        self.close_absent(now, open);
    }

    /// Reconnects a client to its durable open ([MS-SMB2] 3.3.5.9.7, 3.3.5.9.12). The response has
    /// no durable context.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is no such open, it still has a client, or guid,
    /// lease or persistence differ; `STATUS_INVALID_PARAMETER` if the name differs; `STATUS_ACCESS_DENIED` for
    /// another user; `STATUS_TOO_MANY_OPENED_FILES`.
    pub fn reconnect(&mut self, now: Duration, request: &ReconnectRequest) -> Result<Granted, NtStatus> {
        let id = OpenId::from_persistent(request.file_id);
        let id = match self.tables.opens.contains_key(&id) {
            true => Some(id),
            false => self.persistent_by_guid(request),
        };
        let open = id.and_then(|id| self.tables.opens.get(&id));
        let open = open.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        self.check_reconnect(open, request)?;
        let id = open.info.id;
        if self.session_open_count(request.session) >= self.limits.opens_per_session_max {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
        let (lease, oplock) = (open.lease, level_of(open.oplock.state));
        self.renew_lease(id, request.lease.as_ref());
        let (connection, session) = (request.connection, request.session);
        self.attach_client(id, connection, session, request.tree, request.client);
        if let Some(open) = self.tables.opens.get_mut(&id) {
            // Requests of the lost connection may still be executing. They must not undo later
            // requests.
            open.sequence.advance(request.channel_sequence);
        }
        let granted = Granted {
            open: id,
            oplock: if lease.is_some() {
                OplockLevel::Lease
            } else {
                oplock
            },
            lease: lease.and_then(|name| self.leases.granted(name, request.lease.as_ref())),
            durable: None,
            replayed: true,
        };
        self.send_kept_break(now, id);
        Ok(granted)
    }

    pub(super) fn check_reconnect(&self, open: &Open, request: &ReconnectRequest) -> Result<(), NtStatus> {
        let missing = Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        let Some(durable) = open.durable.filter(|_| open.info.connection.is_none()) else {
            return missing;
        };
        // [MS-SMB2] 3.3.5.9.12; version 1 has no such flag.
        if durable.persistent && !request.persistent {
            return missing;
        }
        // Version 1 also finds opens of version 2 (smb2.durable-v2-open.reopen2b), and version 2
        // with a zero guid finds those of version 1 (smb2.durable-open.reopen2-lease).
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
