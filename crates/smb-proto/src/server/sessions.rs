//! Sessions and their trees, which span connections ([MS-SMB2] 3.3.1.8, 3.3.1.9).

use std::collections::{BTreeSet, HashMap};

use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, NtStatus, SessionId, TreeId};

use super::hub::ConnectionId;
use crate::auth::Identity;
use crate::crypto::{Cipher, SigningAlgorithm};
use crate::secret::Key;

/// Maximum number of trees in one session. A guess: a desktop connects to a handful.
const TREES_MAX: usize = 1024;

/// Maximum number of connections of one session, as on Windows.
const CHANNELS_MAX: usize = 32;

/// A tree connect ([MS-SMB2] 3.3.1.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The share, numbered by the owner of the shares.
    pub share: u32,
    /// Whether requests must be sealed.
    pub encrypt: bool,
}

/// The session and the tree that a request addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub(super) session: SessionId,
    pub(super) tree: TreeId,
}

impl Scope {
    pub(super) fn of(header: &Header) -> Self {
        Self {
            session: header.session_id,
            tree: header.tree_id().unwrap_or_default(),
        }
    }
}

/// A copy of what [`Connection::admit`](super::Connection::admit) needs to know of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSnapshot {
    pub(super) scope: Scope,
    /// The tree, if the session is connected to it.
    pub(super) tree: Option<Tree>,
}

/// A session ([MS-SMB2] 3.3.1.8).
pub struct Session {
    /// The id.
    pub id: SessionId,
    /// The user.
    pub identity: Identity,
    /// Whether the session is anonymous or a guest's.
    pub is_anonymous: bool,
    /// Whether the session is a guest's.
    pub is_guest: bool,
    /// Whether requests must be signed.
    pub signing_required: bool,
    /// Whether requests must be sealed.
    pub encrypt: bool,
    /// The dialect of all its connections.
    pub dialect: Dialect,
    /// `ClientGuid` of its first connection.
    pub client: Guid,
    /// Whether listings include Apple's metadata (`SUPPORTS_READ_DIR_ATTR` of `AAPL`).
    pub apple_listings: bool,
    /// Whether COPYCHUNK without chunks copies whole files (`SUPPORTS_OSX_COPYFILE` of `AAPL`).
    pub apple_copies: bool,
    pub(super) keys: SecretKeys,
    channels: Vec<ConnectionId>,
    channel_number: u16,
    trees: HashMap<TreeId, Tree>,
    tree_last: u32,
}

/// The keys that further channels need.
pub(super) struct SecretKeys {
    pub(super) signing: (SigningAlgorithm, Key),
    /// The cipher, its key from client to server, and its key back.
    pub(super) cipher: Option<(Cipher, Key, Key)>,
}

/// The initial state of a session.
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
    /// Returns its connections. Empty only at its end.
    pub fn channels(&self) -> &[ConnectionId] {
        &self.channels
    }

    /// Returns the algorithm of its signatures.
    pub fn signing_algorithm(&self) -> SigningAlgorithm {
        self.keys.signing.0
    }

    /// Returns the first 16 bytes of the login's session key, with which dialects before 3.0 sign;
    /// `None` for newer dialects, and for anonymous and guest sessions.
    pub fn login_key(&self) -> Option<&Key> {
        let has_key = !self.is_anonymous && self.dialect < Dialect::Smb300;
        has_key.then_some(&self.keys.signing.1)
    }

    /// Returns its cipher; `None` if the client cannot encrypt.
    pub fn cipher(&self) -> Option<Cipher> {
        self.keys.cipher.as_ref().map(|(cipher, ..)| *cipher)
    }

    /// Returns the tree with that id.
    pub fn tree(&self, id: TreeId) -> Option<&Tree> {
        self.trees.get(&id)
    }

    /// Returns all trees.
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

    /// Disconnects from a share.
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
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the session with that id.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Returns a copy of the state that the admission of a request needs. `None` if the session
    /// does not exist.
    pub fn snapshot(&self, scope: Scope) -> Option<SessionSnapshot> {
        let session = self.get(scope.session)?;
        Some(SessionSnapshot {
            scope,
            tree: session.tree(scope.tree).cloned(),
        })
    }

    /// Returns the session with that id for modification.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns all sessions.
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

    /// Returns the connection for the lease breaks of a client: its oldest one, as with Samba
    /// (smb2.lease.v2_complex1). A lease belongs to the client ([MS-SMB2] 3.3.4.7 finds it by
    /// `ClientGuid`, and its break names no session), so its opens may be on younger connections.
    ///
    /// Any client can claim any `ClientGuid`. Only connections on which the user of `session` is
    /// logged in with the same dialect qualify. A session that seals keeps its breaks on its own
    /// connections. Returns `None` in that case, and without such a session.
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

    /// Adds a channel. Returns its number, which no other channel of the session ever had.
    pub(super) fn bind(&mut self, id: SessionId, connection: ConnectionId) -> Option<u16> {
        let session = self.sessions.get_mut(&id)?;
        if session.channels.len() >= CHANNELS_MAX {
            return None;
        }
        session.channel_number = session.channel_number.checked_add(1)?;
        session.channels.push(connection);
        Some(session.channel_number)
    }

    /// Removes a session. The owner closes its opens.
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

    /// Removes a lost connection from a session. Returns the session if this was its last
    /// connection.
    pub fn unbind(&mut self, id: SessionId, connection: ConnectionId) -> Option<Session> {
        let session = self.sessions.get_mut(&id)?;
        session.channels.retain(|channel| *channel != connection);
        if session.channels.is_empty() {
            return self.remove(id);
        }
        None
    }
}

/// Returns whether two identities are the same user. Case is ignored. The domain is the client's
/// assumption and is ignored too.
pub(super) fn same_user(a: &Identity, b: &Identity) -> bool {
    match (a, b) {
        (Identity::Anonymous, Identity::Anonymous) => true,
        (Identity::User { user: a, .. }, Identity::User { user: b, .. }) => {
            ropeway_smb_wire::upcase::equal(a, b)
        }
        _ => false,
    }
}
