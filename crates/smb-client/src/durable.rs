//! Durable handles, which survive a lost connection: how to request and reclaim them.

use std::sync::Arc;

use ropeway_smb_proto::client::Operation;
use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::create_context::{
    DurableHandleV2Flags, DurableReconnect, DurableReconnectV2, DurableRequestV2, RequestContext,
};
use ropeway_smb_wire::header::HeaderFlags;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::tree_connect::ShareType;
use ropeway_smb_wire::{FileId, Guid, NtStatus, Text};

use crate::caching::CachingRight;
use crate::error::{Error, LostReason, Result};
use crate::login;
use crate::open::OpenFile;
use crate::replies::first;
use crate::session::{Outcome, Session};
use crate::share::{Share, replay_of};
use crate::tree::{ATTEMPTS, Completed, Replay, Tree};

/// The parameters with which a durable handle is requested and reclaimed.
#[derive(Debug)]
pub(crate) struct Durability {
    right: CachingRight,
    create_guid: Option<Guid>,
    is_wanted: bool,
}

impl Durability {
    /// Returns the parameters of an open that is not durable.
    pub(crate) fn none() -> Self {
        Self {
            right: CachingRight::None,
            create_guid: None,
            is_wanted: false,
        }
    }

    /// Returns the parameters for a directory: a lease if `open` asks for one, and no durable handle.
    pub(crate) fn for_directory(share: &Share, open: &OpenFile) -> Result<Self> {
        let link = share.client().link();
        let negotiated = &link.last().negotiated;
        let right = match open.directory_lease && share.share_type() == ShareType::Disk {
            true => CachingRight::of_directory(negotiated.dialect, negotiated.capabilities, &link.leases)?,
            false => CachingRight::None,
        };
        Ok(Self {
            right,
            ..Self::none()
        })
    }

    /// Returns the parameters for an open on `share`: version 2 of durable handles where the
    /// dialect has it, version 1 otherwise.
    pub(crate) fn for_open(share: &Share, open: &OpenFile) -> Result<Self> {
        if open.directory_lease {
            return Self::for_directory(share, open);
        }
        let link = share.client().link();
        let is_wanted = open.durable
            && link.options.durable
            && share.share_type() == ShareType::Disk
            && !open.options.contains(CreateOptions::DIRECTORY_FILE);
        if !is_wanted {
            return Ok(Self::none());
        }
        let session = link.last();
        let dialect = session.negotiated.dialect;
        Ok(Self {
            right: CachingRight::of(dialect, session.negotiated.capabilities, &link.leases)?,
            create_guid: match dialect >= Dialect::Smb300 {
                true => Some(Guid(login::random()?)),
                false => None,
            },
            is_wanted,
        })
    }

    /// Returns the caching right of the open.
    pub(crate) fn right(&self) -> &CachingRight {
        &self.right
    }

    /// Returns the CREATE that requests the handle.
    pub(crate) fn create(&self, share: &Share, tree: &Tree, path: &Text, open: &OpenFile) -> Operation {
        self.right.register((tree.id, tree.is_sealed()));
        let durable = match (self.is_wanted, self.create_guid) {
            (false, _) => None,
            (true, None) => Some(RequestContext::DurableRequest),
            (true, Some(create_guid)) => Some(RequestContext::DurableRequestV2(DurableRequestV2 {
                timeout_ms: 0,
                flags: DurableHandleV2Flags::default(),
                create_guid,
            })),
        };
        let contexts = durable
            .into_iter()
            .chain(self.right.context(open.parent_lease))
            .chain(share.inner().private.query(tree))
            .collect();
        share
            .inner()
            .create(tree, path, open, self.right.level(), contexts)
    }

    /// Returns the CREATE that reclaims the handle `file_id` ([MS-SMB2] 3.2.4.4).
    pub(crate) fn reclaim(
        &self,
        share: &Share,
        tree: &Tree,
        path: &Text,
        open: &OpenFile,
        file_id: FileId,
    ) -> Operation {
        self.right.register((tree.id, tree.is_sealed()));
        let context = match self.create_guid {
            Some(create_guid) => RequestContext::DurableReconnectV2(DurableReconnectV2 {
                file_id,
                create_guid,
                flags: DurableHandleV2Flags::default(),
            }),
            None => RequestContext::DurableReconnect(DurableReconnect { file_id }),
        };
        let open = OpenFile {
            allocation: None,
            security: None,
            query_on_disk_id: false,
            query_maximal_access: false,
            ..open.clone()
        };
        let contexts = std::iter::once(context)
            .chain(self.right.context(open.parent_lease))
            .collect();
        share
            .inner()
            .create(tree, path, &open, self.right.level(), contexts)
    }
}

impl Share {
    /// Sends CREATE until it is answered. Also returns the parameters with which the handle can be
    /// reclaimed.
    ///
    /// A CREATE that was sent and lost with its channel is replayed on another channel of the
    /// session, where the server finds the first one's outcome by the GUID. So even exclusive
    /// creation happens once ([MS-SMB2] 3.2.7.1, 3.3.5.9.10). In another session it would be
    /// another open, which needs a GUID of its own, since servers refuse the old one.
    pub(crate) async fn create_durably(
        &self,
        path: &Text,
        open: &OpenFile,
    ) -> Result<(Durability, Completed)> {
        let mut durability = Durability::for_open(self, open)?;
        let once = replay_of(open) == Replay::Once;
        let mut sent_in: Option<Arc<Session>> = None;
        let mut is_new_tree = false;
        for _ in 0..ATTEMPTS {
            let (session, tree) = self.inner().tree().await?;
            let is_replay = sent_in.as_ref().is_some_and(|sent| sent.number == session.number);
            if sent_in.is_some() && !is_replay {
                if once {
                    return Err(Error::Lost(LostReason::OutcomeUnknown));
                }
                durability = Durability::for_open(self, open)?;
                sent_in = None;
            }
            let mut operation = durability.create(self, &tree, path, open);
            if is_replay {
                operation.flags |= HeaderFlags::REPLAY_OPERATION;
            }
            match session.exchange(tree.compound(vec![operation]), 0).await {
                Outcome::Replied(replies) => match first(&replies)?.status() {
                    NtStatus::NETWORK_SESSION_EXPIRED => {}
                    NtStatus::NETWORK_NAME_DELETED if !is_new_tree => {
                        is_new_tree = true;
                        self.inner().forget(tree);
                    }
                    // The first CREATE made the file, but the server did not keep its GUID.
                    NtStatus::OBJECT_NAME_COLLISION if is_replay && once => {
                        return Err(Error::Lost(LostReason::OutcomeUnknown));
                    }
                    _ => {
                        let completed = Completed {
                            session,
                            tree,
                            replies,
                        };
                        return Ok((durability, completed));
                    }
                },
                Outcome::Lost { sent, .. } => {
                    let replayable =
                        durability.create_guid.is_some() && session.negotiated.has_channel_sequence();
                    if sent && once && !replayable {
                        return Err(Error::Lost(LostReason::OutcomeUnknown));
                    }
                    if sent && replayable {
                        sent_in = Some(session);
                    }
                }
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }
}
