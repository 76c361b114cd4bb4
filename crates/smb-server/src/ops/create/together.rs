//! What is common to the private controls on many small files: for whom they are, and how a file is
//! opened and closed.

use std::net::SocketAddr;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::{FileKey, OpenId, OpenOutcome, OpenRequest, WaiterId};
use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, ImpersonationLevel, OplockLevel, ShareAccess,
};
use ropeway_smb_wire::{FileAttributes, Guid, NtStatus, SessionId, Text, TreeId};
use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeStat;

use super::find::{FoundFile, Place};
use super::{is_deleted, open_of};
use crate::audit::Record;
use crate::ops::close::remove_deleted;
use crate::ops::context::Context;
use crate::ops::deliver::deliver;
use crate::ops::name::{self, Target, key_of};
use crate::share::Share;
use crate::state::SharedState;
use crate::state::figures::SessionFigures;
use crate::state::open::Open;
use crate::token::Token;

/// For whom files are made or read, and where.
pub(super) struct FilesJob {
    pub(super) shared: Arc<SharedState>,
    pub(super) figures: Arc<SessionFigures>,
    pub(super) share: Arc<Share>,
    share_id: u32,
    pub(super) token: Arc<Token>,
    peer: SocketAddr,
    session: SessionId,
    tree: TreeId,
    client: Guid,
    pub(super) waiter: WaiterId,
}

impl FilesJob {
    pub(super) fn new(context: &Context<'_>, share: Arc<Share>, token: Arc<Token>) -> Self {
        Self {
            shared: Arc::clone(context.shared),
            figures: Arc::clone(context.figures),
            share,
            share_id: context.tree.map_or(0, |tree| tree.share),
            token,
            peer: context.peer,
            session: context.session(),
            tree: context.request.tree,
            client: context.client(),
            waiter: context.waiter,
        }
    }

    /// Returns the status of whatever is not begun when the session has ended: another one of the
    /// client may be there already, and decide what becomes of its files.
    pub(super) fn check_session(&self) -> Result<(), NtStatus> {
        match self.figures.is_ended() {
            true => Err(NtStatus::USER_SESSION_DELETED),
            false => Ok(()),
        }
    }

    /// Opens a file that `find` finds or makes, and reports that to the audit. Returns its attributes, too.
    pub(super) fn open(
        &self,
        request: &CreateRequest<'_>,
        find: impl FnOnce(&Place<'_>, &Target) -> Result<FoundFile, NtStatus>,
    ) -> Result<(Arc<Open>, NodeStat), NtStatus> {
        let target = name::parse(&request.name)?;
        if target.names_stream {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
        let place = Place {
            share: &self.share,
            share_id: self.share_id,
            tunnel: &self.shared.tunnel,
            now: self.shared.uptime(),
        };
        let opened = find(&place, &target).and_then(|found| self.open_found(request, found));
        match &opened {
            Ok((open, _)) => self.record(request, &open.path(), NtStatus::SUCCESS),
            Err(status) => self.record(request, &target.path, *status),
        }
        opened
    }

    fn open_found(
        &self,
        request: &CreateRequest<'_>,
        found: FoundFile,
    ) -> Result<(Arc<Open>, NodeStat), NtStatus> {
        let shared = &self.shared;
        let file = key_of(&found.stat, None);
        let hub_request = self.hub_request(request, &found, file.clone());
        // Not in the match: the hub would be locked there until its end.
        let outcome = shared.hub().open(shared.uptime(), &hub_request);
        let granted = match outcome {
            OpenOutcome::Granted(granted) => granted,
            // A new file stays, as after such a CREATE: somebody else has it open already.
            outcome => {
                shared.hub().forget(self.waiter);
                // Who is asked to give up caching hears of it now, not after the last file.
                deliver(shared);
                return Err(match outcome {
                    OpenOutcome::Refused(status) => status,
                    _ => NtStatus::FILE_NOT_AVAILABLE,
                });
            }
        };
        if hub_request.existed && is_deleted(&self.share, &found) {
            self.close_open(granted.open, None)?;
            return Err(NtStatus::DELETE_PENDING);
        }
        let (owner, stat) = ((self.session, self.tree), found.stat);
        let open = Arc::new(open_of(granted.open, owner, &self.share, file, found));
        Ok((open, stat))
    }

    fn hub_request(&self, request: &CreateRequest<'_>, found: &FoundFile, file: FileKey) -> OpenRequest {
        OpenRequest {
            file,
            path: name::to_wire(&found.path),
            share_id: self.share_id,
            directory: false,
            existed: !found.created,
            size: found.stat.size,
            overwrites: false,
            access: found.access,
            share_access: request.share_access,
            delete_on_close: false,
            oplock: OplockLevel::None,
            lease: None,
            durable: None,
            app_instance: None,
            replay: false,
            channel_sequence: 0,
            connection: self.waiter.connection,
            session: self.session,
            tree: self.tree,
            client: self.client,
            user: Arc::from(self.token.name.as_str()),
            waiter: self.waiter,
        }
    }

    /// Closes the file. Another client may have marked it for deletion meanwhile.
    pub(super) fn close(&self, open: &Arc<Open>) -> Result<(), NtStatus> {
        self.close_open(open.hub_id(), Some(open))
    }

    fn close_open(&self, id: OpenId, open: Option<&Arc<Open>>) -> Result<(), NtStatus> {
        let closed = self.shared.hub().close(self.shared.uptime(), id);
        match closed {
            Some(closed) => remove_deleted(&self.shared, &closed, open),
            None => Ok(()),
        }
    }

    /// Writes an audit record, if there is a receiver.
    fn record(&self, request: &CreateRequest<'_>, path: &RelPath, status: NtStatus) {
        if self.shared.audit.is_some() {
            let creates = request.disposition == CreateDisposition::Create;
            self.shared.record(&Record {
                action: if creates && status.is_success() {
                    "create"
                } else {
                    "open"
                },
                peer: Some(self.peer),
                user: Some(&self.token.name),
                share: Some(&self.share.name),
                path: Some(&path.to_string()),
                target: None,
                status,
            });
        }
    }
}

/// Returns the CREATE of a file, as this project's client would send it.
pub(super) fn create_request<'a>(
    path: Text,
    disposition: CreateDisposition,
    access: AccessMask,
) -> CreateRequest<'a> {
    CreateRequest {
        name: path,
        disposition,
        desired_access: access,
        file_attributes: FileAttributes::NORMAL,
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        options: CreateOptions::NON_DIRECTORY_FILE,
        oplock_level: OplockLevel::None,
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        contexts: Vec::new(),
    }
}
