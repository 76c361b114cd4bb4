//! Builds the server's options from the flags, and raises system limits.

use ropeway_smb_client::{Encryption, Signing};
use ropeway_smb_proto::server::{Accounts, Sealing};
use ropeway_smb_server::ServerOptions;
use ropeway_smb_wire::negotiate::Dialect;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::directory;
use super::shares::RequestedShare;
use crate::args::ServeArgs;
use crate::failure::Failure;

/// Descriptors reserved for the program itself rather than for clients and their files. A guess.
const DESCRIPTORS_OWN: usize = 256;

/// Returns the server's options without shares and audit log.
///
/// # Errors
/// The flags contradict each other.
pub(super) fn options(args: &ServeArgs, accounts: Accounts) -> Result<ServerOptions, Failure> {
    args.check()?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let protocol = &args.protocol;
    let mut options = ServerOptions::new(&name, accounts);
    options.config.signing_required = protocol.sign == Signing::Required;
    options.config.sealing = match protocol.encrypt {
        Encryption::Off => Sealing::Off,
        Encryption::Desired => Sealing::Offered,
        Encryption::Required => Sealing::Required,
    };
    options.config.dialect_min = protocol.min_dialect.unwrap_or(Dialect::Smb202);
    options.config.dialect_max = protocol.max_dialect.unwrap_or(Dialect::Smb311);
    options.config.multichannel = !protocol.no_multichannel;
    protocol.congestion.check().map_err(|error| {
        let message = format!(
            "--congestion {}: {}",
            protocol.congestion,
            crate::ends::cause(&error)
        );
        Failure::usage(message).hint("/proc/sys/net/ipv4/tcp_available_congestion_control has the names")
    })?;
    options.congestion.clone_from(&protocol.congestion);
    options.posix_locks = !protocol.no_posix_locks;
    options.config.anonymous = args.login.anonymous;
    options.config.guest = args.login.guest;
    if let Some(numbers) = directory::machine_numbers(&name) {
        options.machine_sid = numbers;
    }
    options.release_memory = Some(ropeway_local::give_back_memory);
    options.release_stack = Some(ropeway_local::give_back_stack);
    if let Some(most) = protocol.max_connections {
        options.connections_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    Ok(options)
}

/// Checks that the server encrypts if a share is for encrypting clients only.
///
/// # Errors
/// The flags turn encryption off.
pub(super) fn check_shares(args: &ServeArgs, wanted: &[RequestedShare]) -> Result<(), Failure> {
    let old = args
        .protocol
        .max_dialect
        .is_some_and(|newest| newest < Dialect::Smb300);
    let sealed = wanted.iter().find(|share| share.encrypt);
    match sealed {
        Some(share) if old || args.protocol.encrypt == Encryption::Off => Err(Failure::usage(format!(
            "{} needs encryption, but the server does not encrypt",
            share.name
        ))
        .hint("leave out --encrypt off, --max-dialect or :encrypt")),
        _ => Ok(()),
    }
}

/// Raises the limit of descriptors as far as this user may; returns how many are left for clients'
/// files.
pub(super) fn descriptors(connections_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let all = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // If raising is forbidden, the limit stays as it is.
        _ = setrlimit(Resource::Nofile, all);
    }
    let limit = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    // Connections that do not exist yet reserve at most half of a small limit.
    let others = DESCRIPTORS_OWN + connections_max.min(limit / 2);
    limit.saturating_sub(others).max(limit / 4)
}
