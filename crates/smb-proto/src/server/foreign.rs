//! Connections of clients that negotiate, log in and sign by another protocol, while their requests
//! are executed as those of SMB 2.1.
//!
//! The owner checks everything that [`Connection::admit`] checks for clients of SMB 2. Sessions of
//! such a connection are in the table of all sessions, with keys that nobody knows.

use std::sync::Arc;

use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, NtStatus, SessionId};

use super::channel::Channel;
use super::config::Config;
use super::connection::Connection;
use super::hub::ConnectionId;
use super::negotiate::Negotiated;
use super::sessions::{NewSession, SecretKeys, Sessions};
use crate::auth::Identity;
use crate::crypto::SigningAlgorithm;
use crate::secret::Key;

impl Connection {
    /// Creates a connection that has negotiated.
    pub fn foreign(config: Arc<Config>, id: ConnectionId) -> Self {
        let mut negotiated = Negotiated::plain(Dialect::Smb210);
        negotiated.client_guid = Guid(config.random());
        negotiated.multi_credit = true;
        negotiated.io_max = config.io_max;
        let mut connection = Self::new(config, id);
        connection.settle(negotiated);
        connection
    }

    /// Adds a session of a user who has logged in.
    ///
    /// # Errors
    /// [`NtStatus::INSUFFICIENT_RESOURCES`]: too many sessions.
    pub fn add_session(
        &mut self,
        sessions: &mut Sessions,
        identity: Identity,
    ) -> Result<SessionId, NtStatus> {
        let Some(negotiated) = &self.negotiated else {
            return Err(NtStatus::INVALID_PARAMETER);
        };
        if self.channels.len() >= self.config.sessions_per_connection_max {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let (dialect, client) = (negotiated.dialect, negotiated.client_guid);
        let id = self.new_id(sessions);
        let nobodys = Key::new(self.config.random::<16>().to_vec());
        sessions.insert(NewSession {
            id,
            is_guest: self.config.is_guest(&identity),
            identity,
            signing_required: true,
            encrypt: false,
            dialect,
            client,
            keys: SecretKeys {
                signing: (SigningAlgorithm::HmacSha256, nobodys),
                cipher: None,
            },
            connection: self.id,
        });
        self.channels.insert(id, Channel::unprotected());
        Ok(id)
    }
}
