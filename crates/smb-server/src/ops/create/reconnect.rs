//! CREATE that reconnects a durable handle ([MS-SMB2] 3.3.5.9.7, 3.3.5.9.12).

use std::sync::Arc;

use ropeway_smb_proto::server::hub::ReconnectRequest;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::{CreateAction, CreateDisposition, CreateRequest, OplockLevel};
use ropeway_smb_wire::header::HEADER_LEN;

use super::contexts::CreateContexts;
use super::reply;
use crate::ops::context::{Context, Outcome};
use crate::ops::name;
use crate::share::Share;
use crate::state::open::Handle;

/// Returns the message with valid values of CreateDisposition and RequestedOplockLevel ([MS-SMB2]
/// 2.2.13).
pub(super) fn with_valid_fields(message: &[u8]) -> Option<Vec<u8>> {
    const OPLOCK_LEVEL: usize = HEADER_LEN + 3;
    const DISPOSITION: usize = HEADER_LEN + 36;
    let mut message = message.to_vec();
    let level = message.get_mut(OPLOCK_LEVEL)?;
    if OplockLevel::from_wire(*level).is_none() {
        *level = OplockLevel::None.to_wire();
    }
    let disposition = message.get_mut(DISPOSITION..DISPOSITION + 4)?;
    disposition.copy_from_slice(&CreateDisposition::Open.to_wire().to_le_bytes());
    Some(message)
}

pub(super) fn reconnect(
    context: &mut Context<'_>,
    request: &CreateRequest<'_>,
    contexts: &CreateContexts<'_>,
    share: &Arc<Share>,
    share_id: u32,
) -> Outcome {
    let token = context.token()?;
    let (file_id, create_guid) = match (&contexts.reconnect_v2, &contexts.reconnect) {
        (Some(v2), _) => (v2.file_id, Some(v2.create_guid)),
        (None, Some(v1)) => (v1.file_id, None),
        (None, None) => return Err(NtStatus::INVALID_PARAMETER),
    };
    // The name as on disk, if it exists; the name of a lease must be the same.
    let path =
        name::parse(&request.name).map(|target| share.store.resolve(&target.path).unwrap_or(target.path));
    let path = path
        .map(|path| name::to_wire(&path))
        .unwrap_or_else(|_| request.name.clone());
    let granted = {
        let mut hub = context.shared.hub();
        let request = ReconnectRequest {
            file_id,
            create_guid,
            persistent: contexts.wants_persistent(context, share),
            lease: contexts.kept_lease(),
            path,
            share_id,
            connection: context.waiter.connection,
            session: context.session(),
            tree: context.request.tree,
            client: context.client(),
            user: Arc::from(token.name.as_str()),
            channel_sequence: context.channel_sequence(),
        };
        hub.reconnect(context.shared.uptime(), &request)?
    };
    let Some(Handle::File(open)) = context.shared.handle(granted.open.get()) else {
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    };
    open.set_owner(context.session(), context.request.tree);
    reply(context, &open, &granted, contexts, CreateAction::OPENED, None)
}
