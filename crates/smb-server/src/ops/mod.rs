//! The operations, one file for each group of commands.
//!
//! The thread of a connection executes them, from the received message to the reply in its frame.

pub(super) mod breaks;
pub(super) mod close;
pub(super) mod context;
pub(super) mod create;
pub(super) mod deliver;
pub(super) mod directory;
pub(super) mod external;
mod folder_leases;
pub(super) mod info;
pub(super) mod io;
pub(super) mod ioctl;
pub(super) mod lock;
pub(super) mod name;
pub(super) mod notify;
pub(super) mod persistent;
pub(super) mod range_locks;
pub(super) mod rename;
pub(super) mod restore;
pub(super) mod session;
pub(super) mod tree;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::header::Command;

pub(super) use context::{Context, Execution, Outcome};

/// Executes one request ([MS-SMB2] 3.3.5).
pub(super) fn execute(context: &mut Context<'_>) -> Outcome {
    let command = context.request.header.command;
    // If a request before it in the compound failed, this one fails too ([MS-SMB2] 3.3.5.2.7.2).
    if context.request.related
        && context.compound.file.is_none()
        && context.compound.status.is_error()
        && !matches!(
            command,
            Command::Create | Command::TreeConnect | Command::TreeDisconnect
        )
    {
        return Err(context.compound.status);
    }
    let outcome = match command {
        Command::TreeConnect => tree::connect(context),
        Command::TreeDisconnect => tree::disconnect(context),
        Command::Create => create::create(context),
        Command::Close => close::close(context),
        Command::Flush => io::flush(context),
        Command::Read => io::read(context),
        Command::Write => io::write(context),
        Command::Lock => lock::lock(context),
        Command::Ioctl => ioctl::ioctl(context),
        Command::QueryDirectory => directory::query(context),
        Command::ChangeNotify => notify::watch(context),
        Command::QueryInfo => info::query(context),
        Command::SetInfo => info::set(context),
        Command::OplockBreak => breaks::acknowledge(context),
        _ => Err(NtStatus::INVALID_PARAMETER),
    };
    if matches!(outcome, Ok(Execution::Replied)) {
        context.compound.status = NtStatus::SUCCESS;
    }
    outcome
}
