//! Opens that survive a lost connection: how they are asked for, and reclaimed.

use std::sync::Arc;

use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::create_context::{
    DurableHandleV2Flags, DurableReconnect, DurableReconnectV2, DurableRequestV2, RequestContext,
};
use ropeway_smb_wire::header::HeaderFlags;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::tree_connect::ShareType;
use ropeway_smb_wire::{FileId, Guid, NtStatus, Text};

use crate::link::{Outcome, Session};
use crate::rights::Right;
use crate::share::replay_of;
use crate::tree::{ATTEMPTS, Ran, Replay, Tree, first};
use crate::{Error, LostReason, OpenFile, Operation, Result, Share, login};

/// How to ask for a durable open, and for it again.
#[derive(Debug)]
pub(crate) struct Durability {
    right: Right,
    create_guid: Option<Guid>,
    is_wanted: bool,
}

impl Durability {
    /// An open that is not to be durable.
    pub(crate) fn none() -> Self {
        Self {
            right: Right::None,
            create_guid: None,
            is_wanted: false,
        }
    }

    /// For an open of `open` on `share`: the second version where it is spoken, the first else.
    pub(crate) fn of(share: &Share, open: &OpenFile) -> Result<Self> {
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
            right: Right::of(dialect, session.negotiated.capabilities, &link.leases)?,
            create_guid: match dialect >= Dialect::Smb300 {
                true => Some(Guid(login::random()?)),
                false => None,
            },
            is_wanted,
        })
    }

    /// CREATE on `share`.
    pub(crate) fn create(&self, share: &Share, tree: &Tree, path: &Text, open: &OpenFile) -> Operation {
        self.right.live_in((tree.id, tree.is_sealed()));
        let durable = match (self.is_wanted, self.create_guid) {
            (false, _) => None,
            (true, None) => Some(RequestContext::DurableRequest),
            (true, Some(create_guid)) => Some(RequestContext::DurableRequestV2(DurableRequestV2 {
                timeout_ms: 0,
                flags: DurableHandleV2Flags::default(),
                create_guid,
            })),
        };
        let contexts = durable.into_iter().chain(self.right.context()).collect();
        share
            .inner()
            .create(tree, path, open, self.right.level(), contexts)
    }

    /// CREATE that reclaims the open `file_id` ([MS-SMB2] 3.2.4.4).
    pub(crate) fn reclaim(
        &self,
        share: &Share,
        tree: &Tree,
        path: &Text,
        open: &OpenFile,
        file_id: FileId,
    ) -> Operation {
        self.right.live_in((tree.id, tree.is_sealed()));
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
        let contexts = std::iter::once(context).chain(self.right.context()).collect();
        share
            .inner()
            .create(tree, path, &open, self.right.level(), contexts)
    }
}

impl Share {
    /// CREATE, until there is an answer, and what it takes to have the open again.
    ///
    /// One that was sent and lost with its channel is replayed on another channel of the session, where the server finds
    /// by the guid what it made of it: so even exclusive creation is done once ([MS-SMB2] 3.2.7.1, 3.3.5.9.10). In
    /// another session it would be another open; that one has a guid of its own, since servers refuse the old one's.
    pub(crate) async fn create_durably(&self, path: &Text, open: &OpenFile) -> Result<(Durability, Ran)> {
        let mut durability = Durability::of(self, open)?;
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
                durability = Durability::of(self, open)?;
                sent_in = None;
            }
            let mut operation = durability.create(self, &tree, path, open);
            if is_replay {
                operation.flags |= HeaderFlags::REPLAY_OPERATION;
            }
            match session.exchange(tree.chain(vec![operation]), 0).await {
                Outcome::Replied(replies) => match first(&replies)?.status() {
                    NtStatus::NETWORK_SESSION_EXPIRED => {}
                    NtStatus::NETWORK_NAME_DELETED if !is_new_tree => {
                        is_new_tree = true;
                        self.inner().forget(tree);
                    }
                    // Made by the first, which the server does not find: it did not keep the guid.
                    NtStatus::OBJECT_NAME_COLLISION if is_replay && once => {
                        return Err(Error::Lost(LostReason::OutcomeUnknown));
                    }
                    _ => {
                        let ran = Ran {
                            session,
                            tree,
                            replies,
                        };
                        return Ok((durability, ran));
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
