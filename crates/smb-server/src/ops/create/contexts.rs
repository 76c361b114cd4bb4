//! Create contexts of requests and replies ([MS-SMB2] 3.3.5.9.1 and following).

use ropeway_smb_proto::server::Connection;
use ropeway_smb_proto::server::hub::{
    AppInstance, DurableGrant, DurableOpenRequest, FileKey, Granted, GrantedLease, LeaseRequest,
};
use ropeway_smb_wire::create::{AccessMask, CreateRequest, OplockLevel};
use ropeway_smb_wire::create_context::{
    AppInstanceId, AppleServerQuery, DurableHandleV2Flags, DurableReconnect, DurableReconnectV2, Lease,
    LeaseV2, MaximalAccess, OnDiskId, PrivateQuery, RequestContext, ResponseContext,
};
use ropeway_smb_wire::info::{FileFullEaInformation, FullEa, Information};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_smb_wire::{FileTime, NtStatus};
use ropeway_vfs::store::NodeStat;

use crate::files::{apple, attributes, fsctl, security};
use crate::ops::context::Context;
use crate::share::Share;
use crate::state::open::Open;

/// All create contexts of a request.
#[derive(Debug, Default)]
pub(super) struct CreateContexts<'a> {
    pub(super) eas: Vec<FullEa>,
    descriptor: Option<&'a [u8]>,
    durable: Option<DurableOpenRequest>,
    pub(super) reconnect: Option<DurableReconnect>,
    pub(super) reconnect_v2: Option<DurableReconnectV2>,
    maximal_access: Option<Option<FileTime>>,
    pub(super) allocation: Option<u64>,
    on_disk_id: bool,
    lease: Option<Lease>,
    lease_v2: Option<LeaseV2>,
    apple: Option<AppleServerQuery>,
    private: Option<PrivateQuery>,
    pub(super) app_instance: Option<AppInstance>,
    /// The time of the snapshot that is asked for.
    pub(super) snapshot: Option<FileTime>,
}

impl<'a> CreateContexts<'a> {
    /// Collects them. Contexts that the dialect does not have are ignored.
    pub(super) fn read(request: &CreateRequest<'a>, dialect: Dialect) -> Result<Self, NtStatus> {
        let mut contexts = Self::default();
        let (mut app_instance, mut app_version) = (None, None);
        for context in &request.contexts {
            match context {
                RequestContext::EaBuffer(bytes) => {
                    let list =
                        FileFullEaInformation::decode(bytes).map_err(|_| NtStatus::INVALID_PARAMETER)?;
                    contexts.eas = list.attributes;
                }
                RequestContext::SecurityDescriptor(bytes) => contexts.descriptor = Some(bytes),
                RequestContext::DurableRequest => {
                    contexts.durable.get_or_insert(DurableOpenRequest::V1);
                }
                RequestContext::DurableReconnect(reconnect) => contexts.reconnect = Some(*reconnect),
                RequestContext::DurableRequestV2(durable) if dialect >= Dialect::Smb300 => {
                    contexts.durable = Some(DurableOpenRequest::V2 {
                        create_guid: durable.create_guid,
                        timeout_ms: durable.timeout_ms,
                        persistent: durable.flags.contains(DurableHandleV2Flags::PERSISTENT),
                    });
                }
                RequestContext::DurableReconnectV2(reconnect) if dialect >= Dialect::Smb300 => {
                    contexts.reconnect_v2 = Some(*reconnect);
                }
                RequestContext::QueryMaximalAccess(since) => contexts.maximal_access = Some(*since),
                RequestContext::AllocationSize(bytes) => contexts.allocation = Some(*bytes),
                RequestContext::TimewarpToken(time) => contexts.snapshot = Some(*time),
                RequestContext::QueryOnDiskId => contexts.on_disk_id = true,
                RequestContext::Lease(lease) if dialect >= Dialect::Smb210 => contexts.lease = Some(*lease),
                RequestContext::LeaseV2(lease) if dialect >= Dialect::Smb300 => {
                    contexts.lease_v2 = Some(*lease)
                }
                RequestContext::Apple(query) => contexts.apple = Some(*query),
                RequestContext::Private(query) => contexts.private = Some(*query),
                RequestContext::AppInstanceId(AppInstanceId(id)) if dialect >= Dialect::Smb300 => {
                    app_instance = Some(*id);
                }
                RequestContext::AppInstanceVersion(version) if dialect == Dialect::Smb311 => {
                    app_version = Some(*version);
                }
                _ => {}
            }
        }
        contexts.app_instance = app_instance.map(|id| AppInstance {
            id,
            version: app_version,
        });
        contexts.check(request)?;
        if contexts.snapshot.is_some() {
            // What never changes needs no caching, and a reconnect would look for the file of now.
            (contexts.durable, contexts.lease, contexts.lease_v2) = (None, None, None);
        }
        Ok(contexts)
    }

    /// Checks for contexts that exclude each other ([MS-SMB2] 3.3.5.9.7, .10, .12).
    fn check(&self, request: &CreateRequest<'_>) -> Result<(), NtStatus> {
        let names = |wanted: fn(&RequestContext<'_>) -> bool| {
            request.contexts.iter().filter(|one| wanted(one)).count()
        };
        let v1 = names(|one| matches!(one, RequestContext::DurableRequest));
        let v2 = names(|one| matches!(one, RequestContext::DurableRequestV2(_)));
        let back = usize::from(self.reconnect.is_some());
        let back_v2 = usize::from(self.reconnect_v2.is_some());
        let clash = (v2 > 0 && v1 + back + back_v2 > 0) || (back_v2 > 0 && v1 + back > 0);
        if clash {
            Err(NtStatus::INVALID_PARAMETER)
        } else {
            Ok(())
        }
    }

    pub(super) fn is_reconnect(&self) -> bool {
        self.reconnect.is_some() || self.reconnect_v2.is_some()
    }

    /// Returns the request for a durable open. It is one for a persistent open only where there are
    /// any ([MS-SMB2] 3.3.5.9.10).
    pub(super) fn durable(&self, context: &Context<'_>, share: &Share) -> Option<DurableOpenRequest> {
        let mut durable = self.durable?;
        if let DurableOpenRequest::V2 { persistent, .. } = &mut durable {
            *persistent &= has_persistent_opens(context, share);
        }
        Some(durable)
    }

    /// Returns whether a reconnect is one to a persistent open ([MS-SMB2] 3.3.5.9.12).
    pub(super) fn wants_persistent(&self, context: &Context<'_>, share: &Share) -> bool {
        let flags = self.reconnect_v2.map(|v2| v2.flags).unwrap_or_default();
        flags.contains(DurableHandleV2Flags::PERSISTENT) && has_persistent_opens(context, share)
    }

    /// Returns the lease of a reconnect, regardless of the oplock level.
    pub(super) fn kept_lease(&self) -> Option<LeaseRequest> {
        let v2 = self.lease_v2.as_ref().map(LeaseRequest::from);
        v2.or_else(|| self.lease.as_ref().map(LeaseRequest::from))
    }

    /// Returns the requested lease, if the oplock level says so and the connection supports it.
    pub(super) fn lease(
        &self,
        request: &CreateRequest<'_>,
        directory: bool,
        connection: &Connection,
    ) -> Option<LeaseRequest> {
        let capabilities = connection
            .negotiated()
            .map(|both| both.capabilities)
            .unwrap_or_default();
        if request.oplock_level != OplockLevel::Lease || !capabilities.contains(Capabilities::LEASING) {
            return None;
        }
        if directory && !(self.lease_v2.is_some() && capabilities.contains(Capabilities::DIRECTORY_LEASING)) {
            return None;
        }
        match (&self.lease_v2, &self.lease) {
            (Some(lease), _) => Some(LeaseRequest::from(lease)),
            (None, Some(lease)) => Some(LeaseRequest::from(lease)),
            _ => None,
        }
    }

    /// Whether the lease key already belongs to another file ([MS-SMB2] 3.3.5.9.8), even if no
    /// lease is granted.
    pub(super) fn clashes(&self, context: &Context<'_>, file: &FileKey) -> bool {
        let key = self.lease_v2.map(|lease| lease.lease.lease_key);
        let key = key.or(self.lease.map(|lease| lease.lease_key));
        key.is_some_and(|key| {
            context
                .shared
                .hub()
                .is_leased_elsewhere(context.client(), key, file)
        })
    }

    /// Returns the descriptor for a new file.
    pub(super) fn security(&self) -> Result<Option<SecurityDescriptor>, NtStatus> {
        self.descriptor.map(security::explicit).transpose()
    }

    /// Returns the allocation to report. A requested one is reported even if the disk did not
    /// reserve it.
    pub(super) fn allocation_shown(&self, stat: &NodeStat) -> u64 {
        match self.allocation {
            Some(bytes) if stat.size == 0 => bytes.checked_next_multiple_of(4096).unwrap_or(bytes),
            _ => 0,
        }
    }
}

/// Returns whether the client may have persistent opens on the share.
fn has_persistent_opens(context: &Context<'_>, share: &Share) -> bool {
    let negotiated = context.protocol.negotiated();
    let capabilities = negotiated.map(|both| both.capabilities).unwrap_or_default();
    share.journal.is_some() && capabilities.contains(Capabilities::PERSISTENT_HANDLES)
}

/// Returns the contexts of the reply.
pub(super) fn answers<'a>(
    context: &Context<'_>,
    open: &Open,
    granted: &Granted,
    contexts: &CreateContexts<'_>,
    stat: &NodeStat,
) -> Vec<ResponseContext<'a>> {
    let mut answers = Vec::new();
    if let Some(since) = contexts.maximal_access {
        // [MS-SMB2] 3.3.5.9.5: nothing has changed since then.
        let unchanged = since.is_some_and(|since| since == attributes::file_time(stat.modified));
        let (query_status, maximal_access) = if unchanged {
            (NtStatus::NONE_MAPPED, AccessMask::default())
        } else {
            let node = open.base.as_deref().unwrap_or(&*open.node);
            let allowed = context
                .token()
                .and_then(|token| security::rights(&open.share, &token, node, stat, &open.path()));
            match allowed {
                Ok(allowed) => (NtStatus::SUCCESS, allowed),
                Err(status) => (status, AccessMask::default()),
            }
        };
        answers.push(ResponseContext::MaximalAccess(MaximalAccess {
            query_status,
            maximal_access,
        }));
    }
    if contexts.on_disk_id {
        let features = open.share.store.features();
        answers.push(ResponseContext::OnDiskId(OnDiskId {
            disk_file_id: attributes::index_number(stat.id, features),
            volume_id: features.volume,
            reserved: [0; 16],
        }));
    }
    match granted.lease {
        Some(GrantedLease::V1(lease)) => answers.push(ResponseContext::Lease(lease)),
        Some(GrantedLease::V2(lease)) => answers.push(ResponseContext::LeaseV2(lease)),
        None => {}
    }
    match granted.durable {
        Some(DurableGrant::V1) => answers.push(ResponseContext::Durable),
        Some(DurableGrant::V2(response)) => answers.push(ResponseContext::DurableV2(response)),
        None => {}
    }
    if let Some(query) = &contexts.apple {
        if let Some(session) = context.shared.sessions().get_mut(context.session()) {
            session.apple_listings |= apple::wants_listings(query);
            session.apple_copies |= apple::offers_copies(query);
        }
        let reply = apple::reply(query, apple::AppleView::default());
        answers.push(ResponseContext::Apple(reply));
    }
    let private = contexts
        .private
        .and_then(|query| fsctl::private_offer(&open.share, query));
    answers.extend(private.map(ResponseContext::Private));
    answers
}
