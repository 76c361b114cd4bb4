//! Checks of responses.

use ropeway_smb_wire::change_notify::ChangeNotifyResponse;
use ropeway_smb_wire::close::CloseResponse;
use ropeway_smb_wire::create::CreateResponse;
use ropeway_smb_wire::error::ErrorResponse;
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::query_directory::QueryDirectoryResponse;
use ropeway_smb_wire::query_info::QueryInfoResponse;
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::session_setup::SessionSetupResponse;
use ropeway_smb_wire::tree_connect::TreeConnectResponse;
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{MessageId, NtStatus, Reader, SessionId};

use crate::connection::{Connection, Reply};

/// Checks one response against the pending requests of its connection.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(line: &mut Connection, reply: &Reply) -> Result<(), String> {
    let header = &reply.header;
    if header.message_id == MessageId::UNSOLICITED {
        if header.command != Command::OplockBreak {
            return Err(format!("{:?} without a request", header.command));
        }
        return decodes(header.command, BreakNotification::decode(&mut reply.body()));
    }
    let Some(command) = line.pending.get(&header.message_id.0).copied() else {
        return Err(format!("an answer to no request: {header:?}"));
    };
    if command != header.command {
        return Err(format!("an answer of {:?} to {command:?}", header.command));
    }
    let (signs, seals) = line.protection();
    if seals && !reply.sealed {
        return Err(format!("an answer in plain text in a sealed session: {header:?}"));
    }
    if header.status == NtStatus::PENDING {
        return Ok(());
    }
    line.pending.remove(&header.message_id.0);
    let is_protected = reply.sealed || header.flags.contains(HeaderFlags::SIGNED);
    // An ECHO without a session has no key ([MS-SMB2] 3.3.5.2.9).
    let signs = signs && header.session_id != SessionId::default();
    if signs && header.status == NtStatus::SUCCESS && !is_protected {
        return Err(format!("success that is not signed: {header:?}"));
    }
    body(reply).map_err(|fault| format!("{fault}: {:?}", reply.header.status))
}

fn body(reply: &Reply) -> Result<(), String> {
    let reader = &mut reply.body();
    let command = reply.header.command;
    if reply.header.status != NtStatus::SUCCESS {
        // Warnings have data, and so have unfinished logins and copies of chunks that end early
        // ([MS-SMB2] 3.3.4.4).
        let ends = match command {
            Command::Ioctl => IoctlResponse::decode(&mut reply.body()).is_ok(),
            Command::SessionSetup => SessionSetupResponse::decode(&mut reply.body()).is_ok(),
            _ => false,
        };
        return match reply.header.status.is_error() && !ends {
            true => decodes(command, ErrorResponse::decode(reader)),
            false => sized(command, reader, 8),
        };
    }
    match command {
        Command::Create => decodes(command, CreateResponse::decode(reader)),
        Command::Close => decodes(command, CloseResponse::decode(reader)),
        Command::Read => decodes(command, ReadResponse::decode(reader)),
        Command::Write => decodes(command, WriteResponse::decode(reader)),
        Command::Ioctl => decodes(command, IoctlResponse::decode(reader)),
        Command::QueryDirectory => decodes(command, QueryDirectoryResponse::decode(reader)),
        Command::QueryInfo => decodes(command, QueryInfoResponse::decode(reader)),
        Command::ChangeNotify => decodes(command, ChangeNotifyResponse::decode(reader)),
        Command::TreeConnect => decodes(command, TreeConnectResponse::decode(reader)),
        Command::SessionSetup => decodes(command, SessionSetupResponse::decode(reader)),
        Command::OplockBreak => sized(command, reader, 24),
        Command::SetInfo => sized(command, reader, 2),
        _ => sized(command, reader, 4),
    }
}

fn decodes<T, E: std::fmt::Display>(command: Command, outcome: Result<T, E>) -> Result<(), String> {
    outcome.map(drop).map_err(|error| format!("{command:?}: {error}"))
}

fn sized(command: Command, reader: &mut Reader<'_>, length: usize) -> Result<(), String> {
    decodes(command, reader.skip(length))
}
