//! Sessions and their trees, which span connections ([MS-SMB2] 3.3.1.8, 3.3.1.9).

use std::collections::{BTreeSet, HashMap};

use super::hub::ConnectionId;
use super::login::same_user;
use crate::auth::Identity;
use crate::crypto::{Cipher, SigningAlgorithm};
use crate::secret::Key;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, NtStatus, SessionId, TreeId};

/// The most trees of one session. A guess: a desktop connects to a handful.
const TREES_MAX: usize = 1024;

/// The most connections of one session, as Windows has it.
const CHANNELS_MAX: usize = 32;

/// A tree connect ([MS-SMB2] 3.3.1.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Which share, as the owner of the shares counts them.
    pub share: u32,
    /// Requests have to be sealed.
    pub encrypt: bool,
}

/// A session ([MS-SMB2] 3.3.1.8).
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Who it is.
    pub identity: Identity,
    /// Nobody, or a guest.
    pub is_anonymous: bool,
    /// A guest.
    pub is_guest: bool,
    /// Requests have to be signed.
    pub signing_required: bool,
    /// Requests have to be sealed.
    pub encrypt: bool,
    /// The dialect of all its connections.
    pub dialect: Dialect,
    /// `ClientGuid` of the connection that it began on.
    pub client: Guid,
    /// Listings tell what a Mac wants to know (`SUPPORTS_READ_DIR_ATTR` of `AAPL`).
    pub apple_listings: bool,
    /// COPYCHUNK without chunks copies whole files (`SUPPORTS_OSX_COPYFILE` of `AAPL`).
    pub apple_copies: bool,
    pub(super) keys: SecretKeys,
    channels: Vec<ConnectionId>,
    channel_number: u16,
    trees: HashMap<TreeId, Tree>,
    tree_last: u32,
}

/// What further channels need.
pub(super) struct SecretKeys {
    pub(super) signing: (SigningAlgorithm, Key),
    /// Cipher, key from client to server, key back.
    pub(super) cipher: Option<(Cipher, Key, Key)>,
}

/// What a new session begins with.
pub(super) struct NewSession {
    pub(super) id: SessionId,
    pub(super) identity: Identity,
    pub(super) is_guest: bool,
    pub(super) signing_required: bool,
    pub(super) encrypt: bool,
    pub(super) dialect: Dialect,
    pub(super) client: Guid,
    pub(super) keys: SecretKeys,
    pub(super) connection: ConnectionId,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The connections that it is on; never empty but at its end.
    pub fn channels(&self) -> &[ConnectionId] {
        &self.channels
    }

    /// The tree of that id.
    pub fn tree(&self, id: TreeId) -> Option<&Tree> {
        self.trees.get(&id)
    }

    /// All trees.
    pub fn trees(&self) -> impl Iterator<Item = (TreeId, &Tree)> {
        self.trees.iter().map(|(id, tree)| (*id, tree))
    }

    /// Connects to a share.
    ///
    /// # Errors
    /// [`NtStatus::INSUFFICIENT_RESOURCES`]: too many trees.
    pub fn connect(&mut self, tree: Tree) -> Result<TreeId, NtStatus> {
        if self.trees.len() >= TREES_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        loop {
            self.tree_last = self.tree_last.wrapping_add(1);
            let id = TreeId(self.tree_last);
            if id != TreeId::default() && id != TreeId::RELATED && !self.trees.contains_key(&id) {
                self.trees.insert(id, tree);
                return Ok(id);
            }
        }
    }

    /// Leaves a share.
    pub fn disconnect(&mut self, id: TreeId) -> Option<Tree> {
        self.trees.remove(&id)
    }
}

/// All sessions of a server.
#[derive(Default)]
pub struct Sessions {
    sessions: HashMap<SessionId, Session>,
    clients: HashMap<Guid, BTreeSet<SessionId>>,
}

impl Sessions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// The session of that id.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    pub(super) fn insert(&mut self, new: NewSession) {
        let session = Session {
            id: new.id,
            is_anonymous: new.is_guest || new.identity == Identity::Anonymous,
            is_guest: new.is_guest,
            identity: new.identity,
            signing_required: new.signing_required,
            encrypt: new.encrypt,
            dialect: new.dialect,
            client: new.client,
            apple_listings: false,
            apple_copies: false,
            keys: new.keys,
            channels: vec![new.connection],
            channel_number: 0,
            trees: HashMap::new(),
            tree_last: 0,
        };
        self.clients.entry(new.client).or_default().insert(new.id);
        self.sessions.insert(new.id, session);
    }

    /// Where the breaks of a client's leases are sent: its oldest connection, as with Samba (smb2.lease.v2_complex1). A
    /// lease is the client's ([MS-SMB2] 3.3.4.7 finds it by `ClientGuid`, and its break names no session), so its opens may
    /// be on younger ones.
    ///
    /// Anybody can claim a `ClientGuid`: only connections on which the user of `session` is logged in count, in the same
    /// dialect. What is sealed with a session's keys stays on its connections. `None` without such a session.
    pub fn break_connection(&self, client: Guid, session: SessionId) -> Option<ConnectionId> {
        let own = self.sessions.get(&session)?;
        if own.encrypt || own.is_anonymous {
            return None;
        }
        let sessions = self.clients.get(&client)?.iter();
        sessions
            .filter_map(|id| self.sessions.get(id))
            .filter(|other| other.dialect == own.dialect && !other.encrypt && !other.is_anonymous)
            .filter(|other| same_user(&other.identity, &own.identity))
            .filter_map(|other| other.channels.iter().min().copied())
            .min()
    }

    /// A further channel; its number, which no other channel of the session had.
    pub(super) fn bind(&mut self, id: SessionId, connection: ConnectionId) -> Option<u16> {
        let session = self.sessions.get_mut(&id)?;
        if session.channels.len() >= CHANNELS_MAX {
            return None;
        }
        session.channel_number = session.channel_number.checked_add(1)?;
        session.channels.push(connection);
        Some(session.channel_number)
    }

    /// Ends a session; its opens are the owner's to close.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        if let Some(of_client) = self.clients.get_mut(&session.client) {
            of_client.remove(&id);
            if of_client.is_empty() {
                self.clients.remove(&session.client);
            }
        }
        Some(session)
    }

    /// Takes a lost connection off a session; the session if that was its last one.
    pub fn unbind(&mut self, id: SessionId, connection: ConnectionId) -> Option<Session> {
        let session = self.sessions.get_mut(&id)?;
        session.channels.retain(|channel| *channel != connection);
        if session.channels.is_empty() {
            return self.remove(id);
        }
        None
    }
}
