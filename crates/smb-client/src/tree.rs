//! A share's tree connection, and requests that outlive a lost one.

use std::sync::{Arc, Mutex, PoisonError};

use ropeway_block::Block;
use ropeway_smb_proto::client::{Chain, Reply};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::tree_connect::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectFlags, TreeConnectRequest, TreeConnectResponse,
};
use ropeway_smb_wire::unc::SharePath;
use ropeway_smb_wire::{NtStatus, Text, TreeId};

use crate::channel::Side;
use crate::dfs::Redirects;
use crate::link::{Outcome, Session};
use crate::look::{Looks, Seen};
use crate::{Client, Error, LostReason, OpenFile, Operation, Result, ops};

/// Attempts at one request, each on a session of its own. A guess: a server restarted as often during one request has
/// other troubles.
pub(crate) const ATTEMPTS: u32 = 16;

/// Whether a request may be sent again when nobody knows whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// Twice is as good as once.
    Safe,
    /// Twice is something else.
    Once,
}

/// A share, connected to.
pub(crate) struct ShareInner {
    pub(crate) client: Client,
    pub(crate) name: String,
    path: SharePath,
    connected: Mutex<Option<Tree>>,
    connecting: tokio::sync::Mutex<()>,
    pub(crate) redirects: Redirects,
}

/// A tree connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    session: u64,
    pub(crate) id: TreeId,
    pub(crate) share_type: ShareType,
    pub(crate) flags: ShareFlags,
    pub(crate) capabilities: ShareCapabilities,
}

impl Tree {
    /// A chain in this tree.
    pub(crate) fn chain(&self, operations: Vec<Operation>) -> Chain {
        let related = operations.len() > 1;
        Chain {
            operations,
            related,
            encrypt: self.is_sealed(),
        }
    }

    /// Whether the share is part of a DFS namespace ([MS-SMB2] 3.2.5.5, `TreeConnect.IsDfsShare`).
    pub(crate) fn is_dfs(&self) -> bool {
        self.capabilities.contains(ShareCapabilities::DFS)
    }

    /// Whether the share demands encryption ([MS-SMB2] 3.2.5.5).
    pub(crate) fn is_sealed(&self) -> bool {
        self.flags.contains(ShareFlags::ENCRYPT_DATA)
    }
}

/// Makes the operations of an attempt, anew for each.
pub(crate) trait Build {
    /// The operations in this tree.
    ///
    /// # Errors
    /// What they carried is gone.
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>>;

    /// An attempt failed, and this is the payload that it carried.
    fn take_back(&mut self, _payload: Block) {}
}

impl<F: FnMut(&Tree) -> Vec<Operation>> Build for F {
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>> {
        Ok(self(tree))
    }
}

/// Answers, and where they came from.
pub(crate) struct Ran {
    pub(crate) session: Arc<Session>,
    pub(crate) tree: Tree,
    pub(crate) replies: Vec<Reply>,
}

impl ShareInner {
    pub(crate) async fn connect(client: &Client, name: &str) -> Result<Self> {
        let share = Self::new(client, name)?;
        share.tree().await?;
        Ok(share)
    }

    /// Connects and looks around in the same round trip, where the server allows that.
    pub(crate) async fn connect_looking(client: &Client, name: &str, looks: &Looks) -> Result<(Self, Seen)> {
        let share = Self::new(client, name)?;
        if !client.link().compounds.may_be_sent() {
            share.tree().await?;
            return Ok((share, Seen::default()));
        }
        let session = client.link().session().await?;
        let seen = match share.connect_tree(&session, looks.operations(client)).await {
            Ok((tree, replies)) => {
                *share.lock() = Some(tree);
                match tree.is_dfs() {
                    // What was asked without DFS may lie elsewhere.
                    true => Seen::default(),
                    false => looks.seen(&replies),
                }
            }
            // Lost on the way, or too much for this server at once.
            Err(Error::Lost(_) | Error::PeerMisbehaved(_) | Error::Senseless(_)) => {
                share.tree().await?;
                Seen::default()
            }
            Err(error) => return Err(error),
        };
        Ok((share, seen))
    }

    fn new(client: &Client, name: &str) -> Result<Self> {
        let host = client.link().endpoint.unc_host();
        let path = SharePath::new(&host, name).map_err(|_| Error::Misuse("not the name of a share"))?;
        Ok(Self {
            client: client.clone(),
            name: name.to_owned(),
            path,
            connected: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            redirects: Redirects::default(),
        })
    }

    /// The session and the tree in it, both made again if they were lost.
    pub(crate) async fn tree(&self) -> Result<(Arc<Session>, Tree)> {
        let mut error = Error::Lost(LostReason::Closed);
        for _ in 0..ATTEMPTS {
            let session = self.client.link().session().await?;
            if let Some(tree) = self.tree_in(&session) {
                return Ok((session, tree));
            }
            let _guard = self.connecting.lock().await;
            if let Some(tree) = self.tree_in(&session) {
                return Ok((session, tree));
            }
            match self.connect_tree(&session, Vec::new()).await {
                Ok((tree, _)) => {
                    *self.lock() = Some(tree);
                    return Ok((session, tree));
                }
                Err(lost @ Error::Lost(_)) => error = lost,
                Err(error) => return Err(error),
            }
        }
        Err(error)
    }

    /// The last tree connection, standing or not.
    pub(crate) fn last(&self) -> Tree {
        self.lock().expect("a share was connected to when it was made")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Tree>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_in(&self, session: &Session) -> Option<Tree> {
        self.lock().filter(|tree| tree.session == session.number)
    }

    /// The server says that the tree is gone.
    pub(crate) fn forget(&self, tree: Tree) {
        if let Some(connected) = &mut *self.lock()
            && connected.id == tree.id
            && connected.session == tree.session
        {
            // No session has this number.
            connected.session = u64::MAX;
        }
    }

    /// TREE_CONNECT, and related to it what is to be done there at once; the answers to that.
    async fn connect_tree(&self, session: &Session, then: Vec<Operation>) -> Result<(Tree, Vec<Reply>)> {
        let request = TreeConnectRequest {
            flags: TreeConnectFlags::default(),
            path: self.path.to_text(),
        };
        let mut operations = vec![Operation::encoded(Command::TreeConnect, TreeId(0), |w| {
            request.encode(w)
        })];
        operations.extend(then);
        let chain = Chain {
            related: operations.len() > 1,
            operations,
            encrypt: false,
        };
        let mut replies = match session.exchange(chain, 0).await {
            Outcome::Replied(replies) => replies,
            Outcome::Lost { .. } => return Err(Error::Lost(LostReason::Closed)),
            Outcome::Failed { error, .. } => return Err(error),
        };
        let reply = first(&replies)?;
        check("connect to the share", reply)?;
        let response = TreeConnectResponse::decode(&mut reply.body())?;
        let id = reply.header.tree_id().ok_or_else(|| {
            Error::PeerMisbehaved("an asynchronous answer to a connection with a share".to_owned())
        })?;
        let tree = Tree {
            session: session.number,
            id,
            share_type: response.share_type,
            flags: response.share_flags,
            capabilities: response.capabilities,
        };
        replies.remove(0);
        Ok((tree, replies))
    }

    /// Sends what is built, related if it is several, until there are answers.
    pub(crate) async fn run(&self, replay: Replay, bytes: u64, mut build: impl Build) -> Result<Ran> {
        let compounds = &self.client.link().compounds;
        let mut is_new_tree = false;
        for _ in 0..ATTEMPTS {
            let (session, tree) = self.tree().await?;
            let operations = build.operations(&tree)?;
            let is_compound = operations.len() > 1;
            let mut outcome = session.exchange(tree.chain(operations), bytes).await;
            if let Some(payload) = outcome.take_payload() {
                build.take_back(payload);
            }
            match outcome {
                Outcome::Replied(replies) => {
                    let status = first(&replies)?.status();
                    match status {
                        // The driver logs in again meanwhile, and keeps what is sent until then.
                        NtStatus::NETWORK_SESSION_EXPIRED => {}
                        NtStatus::NETWORK_NAME_DELETED if !is_new_tree => {
                            is_new_tree = true;
                            self.forget(tree);
                        }
                        _ => {
                            return Ok(Ran {
                                session,
                                tree,
                                replies,
                            });
                        }
                    }
                }
                Outcome::Lost { sent: true, .. } if replay == Replay::Once => {
                    return Err(Error::Lost(LostReason::OutcomeUnknown));
                }
                // Sent as a compound, it would be lost again.
                Outcome::Lost { .. } if is_compound && !compounds.may_be_sent() => break,
                Outcome::Lost { .. } => {}
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// CREATE in this share. In a share that is part of a DFS namespace the path is the whole one, from the host on
    /// ([MS-SMB2] 2.2.13, 3.2.4.3); paths in other requests (renaming, linking) are not: servers look there for one in
    /// the share.
    pub(crate) fn create<'a>(
        &self,
        tree: &Tree,
        path: &Text,
        open: &'a OpenFile,
        oplock: OplockLevel,
        contexts: Vec<RequestContext<'a>>,
    ) -> Operation {
        if !tree.is_dfs() {
            return ops::create(tree.id, path, open, oplock, contexts);
        }
        let mut units = self.path.to_text().units()[2..].to_vec();
        if !path.is_empty() {
            units.push(u16::from(b'\\'));
            units.extend_from_slice(path.units());
        }
        let mut operation = ops::create(tree.id, &Text::from_units(units), open, oplock, contexts);
        operation.flags |= HeaderFlags::DFS_OPERATIONS;
        operation
    }
}

impl Drop for ShareInner {
    /// Leaves the share ([MS-SMB2] 3.2.4.22): its last handle is closed, since each holds it.
    fn drop(&mut self) {
        let Some(tree) = *self.lock() else { return };
        let session = self.client.link().last();
        if session.number == tree.session {
            session.aside(Side::Leave {
                tree: tree.id,
                encrypt: tree.is_sealed(),
            });
        }
    }
}

/// The first answer; a chain has as many answers as operations.
pub(crate) fn first(replies: &[Reply]) -> Result<&Reply> {
    nth(replies, 0)
}

/// The answer to operation `index`.
pub(crate) fn nth(replies: &[Reply], index: usize) -> Result<&Reply> {
    replies
        .get(index)
        .ok_or_else(|| Error::PeerMisbehaved("an answer is missing".to_owned()))
}

/// Whether the server did `op`.
pub(crate) fn check(op: &'static str, reply: &Reply) -> Result<()> {
    match reply.status().is_success() {
        true => Ok(()),
        false => Err(Error::refused(op, reply.status())),
    }
}
