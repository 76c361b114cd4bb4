//! TREE_CONNECT and TREE_DISCONNECT ([MS-SMB2] 3.3.5.7, 3.3.5.8).

use ropeway_smb_proto::server::Tree;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::bare::{TreeDisconnectRequest, TreeDisconnectResponse};
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::tree_connect::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse,
};
use ropeway_smb_wire::unc::{PathError, SharePath};

use super::context::{Context, Outcome};
use super::session::close_handles;

/// Value of [`Tree::share`] for IPC$.
pub(crate) const IPC: u32 = u32::MAX;

pub(super) fn connect(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(TreeConnectRequest::decode)?;
    let path = SharePath::parse(&request.path).map_err(|fault| match fault {
        PathError::TooLong => NtStatus::BAD_NETWORK_NAME,
        _ => NtStatus::INVALID_PARAMETER,
    });
    let path = path?;
    let name = path.share().to_string_lossy();
    let token = context.token()?;
    let (tree, response) = if name.eq_ignore_ascii_case("IPC$") {
        (
            Tree {
                share: IPC,
                encrypt: false,
            },
            ipc(),
        )
    } else {
        let found = context.shared.find_share(&name);
        // Anonymous sessions do not learn which shares exist.
        let is_open = found.as_ref().is_some_and(|(_, share)| share.anonymous);
        if token.is_anonymous && !is_open {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let Some((index, share)) = found else {
            context.record("connect", Some(&name), None, None, NtStatus::BAD_NETWORK_NAME);
            return Err(NtStatus::BAD_NETWORK_NAME);
        };
        let can_seal = context.protocol.can_seal(context.request.session);
        // [MS-SMB2] 3.3.5.7: a client that cannot encrypt has no access to an encrypted share.
        if share.encrypt && !can_seal {
            context.record("connect", Some(&share.name), None, None, NtStatus::ACCESS_DENIED);
            return Err(NtStatus::ACCESS_DENIED);
        }
        let mut share_flags = ShareFlags::default();
        if share.encrypt {
            share_flags |= ShareFlags::ENCRYPT_DATA;
        }
        let mut capabilities = ShareCapabilities::default();
        // [MS-SMB2] 3.3.5.7.
        if share.journal.is_some() && context.protocol.dialect() >= Dialect::Smb300 {
            capabilities |= ShareCapabilities::CONTINUOUS_AVAILABILITY;
        }
        let response = TreeConnectResponse {
            share_type: ShareType::Disk,
            share_flags,
            capabilities,
            maximal_access: share.access(),
        };
        let tree = Tree {
            share: index,
            encrypt: share.encrypt,
        };
        context.record("connect", Some(&share.name), None, None, NtStatus::SUCCESS);
        (tree, response)
    };
    let id = {
        let mut sessions = context.shared.sessions();
        let session = sessions
            .get_mut(context.request.session)
            .ok_or(NtStatus::USER_SESSION_DELETED)?;
        session.connect(tree)?
    };
    context.compound.set_tree(id);
    context.reply_in(id, |w| response.encode(w))
}

fn ipc() -> TreeConnectResponse {
    TreeConnectResponse {
        share_type: ShareType::Pipe,
        share_flags: ShareFlags::default(),
        capabilities: ShareCapabilities::default(),
        maximal_access: AccessMask::FILE_ALL,
    }
}

pub(super) fn disconnect(context: &mut Context<'_>) -> Outcome {
    context.decode(TreeDisconnectRequest::decode)?;
    let session = context.session();
    let tree = context.request.tree;
    let gone = {
        let mut sessions = context.shared.sessions();
        sessions
            .get_mut(session)
            .and_then(|session| session.disconnect(tree))
    };
    gone.ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    let closed = context
        .shared
        .hub()
        .end_tree(context.shared.uptime(), session, tree);
    close_handles(context.shared, &closed);
    context.shared.drop_pipes(session.0, Some(tree.0));
    context.reply(|w| TreeDisconnectResponse.encode(w))
}
