//! The tree connection of a share, and requests that survive its loss.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use ropeway_block::Block;
use ropeway_smb_proto::client::{Compound, Operation, Reply};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::tree_connect::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectFlags, TreeConnectRequest, TreeConnectResponse,
};
use ropeway_smb_wire::unc::SharePath;
use ropeway_smb_wire::{NtStatus, Text, TreeId};
use tokio::time::Instant;

use crate::channel::Control;
use crate::client::Client;
use crate::dfs::Redirects;
use crate::error::{Error, LostReason, Result};
use crate::get_files::Gets;
use crate::open::OpenFile;
use crate::ops;
use crate::private::PrivateSupport;
use crate::put_files::Puts;
use crate::replies::{check, first};
use crate::same_files::{Copies, Sames};
use crate::session::{Outcome, Session};
use crate::together::Queue;

/// Maximum number of attempts at one request, each on another session. A guess: a server that
/// restarts this often during one request has other problems.
pub(crate) const ATTEMPTS: u32 = 16;
/// Pauses before a server that lacks memory is asked again. A guess.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// Whether a request may be sent again when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// Running twice has the same effect as running once.
    Safe,
    /// Running twice has another effect.
    Once,
}

/// The shared state of a connected share.
pub(crate) struct ShareInner {
    pub(crate) client: Client,
    pub(crate) name: String,
    path: SharePath,
    connected: Mutex<Option<Tree>>,
    connecting: tokio::sync::Mutex<()>,
    pub(crate) redirects: Redirects,
    pub(crate) private: PrivateSupport,
    pub(crate) puts: Queue<Puts>,
    pub(crate) gets: Queue<Gets>,
    pub(crate) copies: Queue<Copies>,
    pub(crate) sames: Queue<Sames>,
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
    /// Returns what no other tree connection of the client has: its session and its id.
    pub(crate) fn key(&self) -> (u64, TreeId) {
        (self.session, self.id)
    }

    /// Returns the tree connection of a disk.
    #[cfg(test)]
    pub(crate) fn of_disk(session: u64, id: u32) -> Self {
        Self {
            session,
            id: TreeId(id),
            share_type: ShareType::Disk,
            flags: ShareFlags::default(),
            capabilities: ShareCapabilities::default(),
        }
    }

    /// Returns a compound of these operations in this tree.
    pub(crate) fn compound(&self, operations: Vec<Operation>) -> Compound {
        let related = operations.len() > 1;
        Compound {
            operations,
            related,
            encrypt: self.is_sealed(),
        }
    }

    /// Returns whether the share is part of a DFS namespace ([MS-SMB2] 3.2.5.5,
    /// `TreeConnect.IsDfsShare`).
    pub(crate) fn is_dfs(&self) -> bool {
        self.capabilities.contains(ShareCapabilities::DFS)
    }

    /// Returns whether the share demands encryption ([MS-SMB2] 3.2.5.5).
    pub(crate) fn is_sealed(&self) -> bool {
        self.flags.contains(ShareFlags::ENCRYPT_DATA)
    }
}

/// Builds the operations of a request, anew for each attempt.
pub(crate) trait BuildRequest {
    /// Returns the operations for a tree.
    ///
    /// # Errors
    /// The payload is no longer available.
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>>;

    /// Takes the payload back after a failed attempt.
    fn put_back(&mut self, _payload: Block) {}
}

impl<F: FnMut(&Tree) -> Vec<Operation>> BuildRequest for F {
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>> {
        Ok(self(tree))
    }
}

/// The replies to a request, with their session and tree.
pub(crate) struct Completed {
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

    pub(crate) fn new(client: &Client, name: &str) -> Result<Self> {
        let host = client.link().endpoint.unc_host();
        let path = SharePath::new(&host, name).map_err(|_| Error::Misuse("the share's name is invalid"))?;
        Ok(Self {
            client: client.clone(),
            name: name.to_owned(),
            path,
            connected: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            redirects: Redirects::default(),
            private: PrivateSupport::default(),
            puts: Queue::new(),
            gets: Queue::new(),
            copies: Queue::new(),
            sames: Queue::new(),
        })
    }

    /// Returns the session and the tree connection in it, both re-established if they were lost.
    ///
    /// A server that has just started may lack memory for the tree connection (smbd reports
    /// `STATUS_NO_MEMORY` then). That is waited for, within the client's time limit.
    pub(crate) async fn tree(&self) -> Result<(Arc<Session>, Tree)> {
        let mut error = Error::Lost(LostReason::Closed);
        let deadline = Instant::now() + self.client.link().options.timeout;
        let (mut lost, mut pause) = (0, PAUSE_FIRST);
        while lost < ATTEMPTS {
            let session = self.client.link().session().await?;
            if let Some(tree) = self.tree_in(&session) {
                return Ok((session, tree));
            }
            let _guard = self.connecting.lock().await;
            if let Some(tree) = self.tree_in(&session) {
                return Ok((session, tree));
            }
            // On the heap: most requests find a tree.
            match Box::pin(self.connect_tree(&session, Vec::new())).await {
                Ok((tree, _)) => {
                    *self.lock() = Some(tree);
                    return Ok((session, tree));
                }
                Err(closed @ Error::Lost(_)) => {
                    error = closed;
                    lost += 1;
                }
                Err(refused) if is_exhausted(&refused) && Instant::now() + pause < deadline => {
                    tracing::debug!(error = %refused, "no tree connection yet; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_LAST);
                }
                Err(error) => return Err(error),
            }
        }
        Err(error)
    }

    /// Returns the last tree connection, valid or not.
    pub(crate) fn last(&self) -> Tree {
        self.lock()
            .expect("a share has a tree connection from its creation on")
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Tree>> {
        self.connected.lock()
    }

    fn tree_in(&self, session: &Session) -> Option<Tree> {
        self.lock().filter(|tree| tree.session == session.number)
    }

    /// Notes that the server has closed the tree connection.
    pub(crate) fn forget(&self, tree: Tree) {
        if let Some(connected) = &mut *self.lock()
            && connected.id == tree.id
            && connected.session == tree.session
        {
            // No session has this number.
            connected.session = u64::MAX;
        }
    }

    /// Sends TREE_CONNECT and, related to it, the operations in `then`. Returns the tree and the
    /// replies to `then`.
    pub(crate) async fn connect_tree(
        &self,
        session: &Session,
        then: Vec<Operation>,
    ) -> Result<(Tree, Vec<Reply>)> {
        let request = TreeConnectRequest {
            flags: TreeConnectFlags::default(),
            path: self.path.to_text(),
        };
        let mut operations = vec![Operation::encoded(Command::TreeConnect, TreeId(0), |w| {
            request.encode(w)
        })];
        operations.extend(then);
        let compound = Compound {
            related: operations.len() > 1,
            operations,
            encrypt: false,
        };
        let mut replies = match session.exchange(compound, 0).await {
            Outcome::Replied(replies) => replies,
            Outcome::Lost { .. } => return Err(Error::Lost(LostReason::Closed)),
            Outcome::Failed { error, .. } => return Err(error),
        };
        let reply = first(&replies)?;
        check("connect to the share", reply)?;
        let response = TreeConnectResponse::decode(&mut reply.body())?;
        let id = reply
            .header
            .tree_id()
            .ok_or_else(|| Error::PeerMisbehaved("an asynchronous reply to TREE_CONNECT".to_owned()))?;
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

    /// Sends a request until it is answered. Several operations become a related compound.
    pub(crate) async fn run(
        &self,
        replay: Replay,
        bytes: u64,
        mut build: impl BuildRequest,
    ) -> Result<Completed> {
        let compounds = &self.client.link().compounds;
        let mut is_new_tree = false;
        for _ in 0..ATTEMPTS {
            let (session, tree) = self.tree().await?;
            let operations = build.operations(&tree)?;
            let is_compound = operations.len() > 1;
            let mut outcome = session.exchange(tree.compound(operations), bytes).await;
            if let Some(payload) = outcome.take_payload() {
                build.put_back(payload);
            }
            match outcome {
                Outcome::Replied(replies) => {
                    let status = first(&replies)?.status();
                    match status {
                        // The driver logs in again, and holds requests until then.
                        NtStatus::NETWORK_SESSION_EXPIRED => {}
                        NtStatus::NETWORK_NAME_DELETED if !is_new_tree => {
                            is_new_tree = true;
                            self.forget(tree);
                        }
                        _ => {
                            return Ok(Completed {
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
                Outcome::Lost { .. } if is_compound && !compounds.is_usable_for_queries() => break,
                Outcome::Lost { .. } => {}
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Returns a CREATE in this share. In a share of a DFS namespace CREATE takes the full path,
    /// from the host on ([MS-SMB2] 2.2.13, 3.2.4.3). Other requests (renaming, linking) take a path
    /// within the share.
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

/// Whether a server lacks resources, which may pass.
fn is_exhausted(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(NtStatus::NO_MEMORY | NtStatus::INSUFFICIENT_RESOURCES | NtStatus::INSUFF_SERVER_RESOURCES)
    )
}

impl Drop for ShareInner {
    /// Disconnects from the share ([MS-SMB2] 3.2.4.22). All handles are closed, since each of them
    /// holds the share.
    fn drop(&mut self) {
        let Some(tree) = *self.lock() else { return };
        let session = self.client.link().last();
        if session.number == tree.session {
            session.send_control(Control::TreeDisconnect {
                tree: tree.id,
                encrypt: tree.is_sealed(),
            });
        }
    }
}
