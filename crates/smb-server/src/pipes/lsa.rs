//! The service `lsarpc`: accounts by name and by SID. Guests and anonymous sessions get no policy
//! handle, so they see no names.

use ropeway_smb_wire::rpc::account::{ContextHandle, Handles};
use ropeway_smb_wire::rpc::lsa::{self, Call, Policy};
use ropeway_smb_wire::rpc::server::FAULT_CONTEXT_MISMATCH;
use ropeway_smb_wire::{NtStatus, Text};

use super::PipeHost;

/// State of one client.
#[derive(Default)]
pub(super) struct Lsa {
    /// Policy handles; they are all alike.
    handles: Handles<()>,
}

impl Lsa {
    /// Executes a call.
    ///
    /// # Errors
    /// The status of a fault: the handle is not open.
    pub(super) fn answer(&mut self, host: &PipeHost, call: &Call) -> Result<Vec<u8>, u32> {
        let check = |handle| self.handles.get(handle).copied().ok_or(FAULT_CONTEXT_MISMATCH);
        Ok(match call {
            Call::OpenPolicy => match (
                &host.user,
                host.user.is_some().then(|| self.handles.open(())).flatten(),
            ) {
                (None, _) => lsa::handle(ContextHandle::default(), NtStatus::ACCESS_DENIED),
                (_, None) => lsa::handle(ContextHandle::default(), NtStatus::INSUFFICIENT_RESOURCES),
                (_, Some(handle)) => lsa::handle(handle, NtStatus::SUCCESS),
            },
            Call::Close { handle } => {
                check(*handle)?;
                self.handles.close(*handle);
                lsa::handle(ContextHandle::default(), NtStatus::SUCCESS)
            }
            Call::QueryPolicy { handle, class } => {
                check(*handle)?;
                let policy = Policy {
                    account_domain: host.names.machine().clone(),
                    workgroup: host.domain.as_str().into(),
                };
                lsa::query_policy(*class, &policy)
            }
            Call::LookupNames { handle, names, form } => {
                check(*handle)?;
                let accounts = host.names.snapshot();
                let found: Vec<_> = names.iter().map(|name| accounts.by_name(name)).collect();
                lsa::lookup_names(*form, &found)
            }
            Call::LookupSids { handle, sids, form } => {
                check(*handle)?;
                let accounts = host.names.snapshot();
                let found: Vec<_> = sids.iter().map(|sid| accounts.by_sid(sid)).collect();
                lsa::lookup_sids(*form, sids, &found)
            }
            Call::GetUserName { with_domain } => {
                let (name, domain) = match &host.user {
                    Some(user) => (user.as_str().into(), host.names.machine().name.clone()),
                    // Windows' name for sessions without a user.
                    None => (Text::from("ANONYMOUS LOGON"), Text::from("NT AUTHORITY")),
                };
                lsa::get_user_name(&name, with_domain.then_some(&domain))
            }
        })
    }
}
