//! A connected share.

use std::fmt;
use std::sync::Arc;

use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::info::{
    FileFsAttributeInformation, FileFsFullSizeInformation, FileFsVolumeInformation,
};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::tree_connect::{ShareCapabilities, ShareFlags, ShareType};
use ropeway_smb_wire::{NtStatus, Text};

use crate::client::Client;
use crate::error::{Error, LostReason, Result};
use crate::open::OpenFile;
use crate::session::Outcome;
use crate::tree::{Replay, ShareInner};
use crate::{dfs, ops};

/// A connected share. Clones are the same share. The client re-establishes a lost connection, and
/// the share with it.
#[derive(Clone)]
pub struct Share {
    inner: Arc<ShareInner>,
}

/// The size limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum bytes of one READ.
    pub read_max: u32,
    /// Maximum bytes of one WRITE.
    pub write_max: u32,
    /// Maximum bytes of one QUERY_INFO, SET_INFO, IOCTL or QUERY_DIRECTORY.
    pub transact_max: u32,
    /// The negotiated dialect.
    pub dialect: Dialect,
}

/// The properties of a share's volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// Serial number, label and creation time.
    pub volume: FileFsVolumeInformation,
    /// Features, name and longest file name of the file system.
    pub attributes: FileFsAttributeInformation,
    /// Total and free space.
    pub size: FileFsFullSizeInformation,
}

impl Share {
    pub(crate) fn new(inner: ShareInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn inner(&self) -> &ShareInner {
        &self.inner
    }

    /// Returns the name as the caller gave it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the client that the share belongs to.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Returns the type of the share: disk, pipe or printer.
    pub fn share_type(&self) -> ShareType {
        self.inner.last().share_type
    }

    /// Returns the share's flags: caching, DFS, encryption.
    pub fn flags(&self) -> ShareFlags {
        self.inner.last().flags
    }

    /// Returns the share's capabilities.
    pub fn capabilities(&self) -> ShareCapabilities {
        self.inner.last().capabilities
    }

    /// Returns the size limits of one request.
    pub fn limits(&self) -> Limits {
        let session = self.client().link().last();
        let negotiated = &session.negotiated;
        Limits {
            read_max: negotiated.max_read,
            write_max: negotiated.max_write,
            transact_max: negotiated.max_transact,
            dialect: negotiated.dialect,
        }
    }

    /// Sends the caller's own requests as one compound. Fills in the tree of each operation. Sends
    /// them once: after a lost connection, the caller has to find out what was done.
    ///
    /// # Errors
    /// The requests or the replies were lost. The server's status for each request is in its
    /// [`Reply`].
    pub async fn send_compound(&self, mut operations: Vec<Operation>, related: bool) -> Result<Vec<Reply>> {
        let (session, tree) = self.inner.tree().await?;
        for operation in &mut operations {
            operation.tree = tree.id;
        }
        let mut compound = tree.compound(operations);
        compound.related = related;
        match session.exchange(compound, 0).await {
            Outcome::Replied(replies) => Ok(replies),
            Outcome::Lost { sent: false, .. } => Err(Error::Lost(LostReason::Closed)),
            Outcome::Lost { sent: true, .. } => Err(Error::Lost(LostReason::OutcomeUnknown)),
            Outcome::Failed { error, .. } => Err(error),
        }
    }
}

impl Client {
    /// Connects to a share (TREE_CONNECT). Operations on it follow DFS referrals.
    ///
    /// # Errors
    /// [`Error::PeerRefused`](crate::Error::PeerRefused) if the share does not exist or the user
    /// has no access to it.
    pub async fn share(&self, name: &str) -> Result<Share> {
        let mut left = dfs::TARGETS_MAX;
        self.share_by_referral(name, 0, &mut left).await
    }

    /// Connects to a share, or to the one that DFS puts in its place: a namespace may lie on
    /// another server ([MS-DFSC] 3.1.4.2, steps 5 and 6). `hops` referrals led here, and `left`
    /// targets may still be tried.
    async fn share_by_referral(&self, name: &str, hops: usize, left: &mut usize) -> Result<Share> {
        let mut refused = match ShareInner::connect(self, name).await {
            Ok(share) => return Ok(Share::new(share)),
            Err(error) => error,
        };
        let has_dfs = || {
            let negotiated = &self.link().last().negotiated;
            negotiated.capabilities.contains(Capabilities::DFS)
        };
        let may_lead = refused.status() == Some(NtStatus::BAD_NETWORK_NAME)
            && hops < dfs::HOPS_MAX
            && !name.eq_ignore_ascii_case(dfs::IPC)
            && has_dfs();
        if !may_lead {
            return Err(refused);
        }
        let targets = dfs::root_targets(self, name).await.unwrap_or_default();
        for (host, share) in targets {
            let Some(fewer) = left.checked_sub(1) else { break };
            *left = fewer;
            let found = async {
                self.at(&host)
                    .await?
                    .share_by_referral(&share, hops + 1, left)
                    .await
            };
            match Box::pin(found).await {
                Ok(found) => return Ok(found),
                Err(error @ Error::ReferralRefused { .. }) => refused = error,
                Err(_) => {}
            }
        }
        Err(refused)
    }
}

/// Checks that CREATE and a DFS referral request can carry a path. A zero unit would end the
/// latter.
pub(crate) fn check_path(path: &Text) -> Result<()> {
    if path.units().len() > ops::PATH_UNITS_MAX {
        return Err(Error::refused("open", NtStatus::NAME_TOO_LONG));
    }
    if path.units().contains(&0) {
        return Err(Error::refused("open", NtStatus::OBJECT_NAME_INVALID));
    }
    Ok(())
}

/// Returns whether CREATE may be sent again when its outcome is unknown.
pub(crate) fn replay_of(open: &OpenFile) -> Replay {
    match open.disposition {
        CreateDisposition::Create => Replay::Once,
        _ => Replay::Safe,
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({}/{})", self.client().endpoint(), self.name())
    }
}
