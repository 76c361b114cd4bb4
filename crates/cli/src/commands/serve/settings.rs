//! From flags to the server's options, and the limits of the system.

use ropeway_smb_client::{Encryption, Signing};
use ropeway_smb_proto::server::{Accounts, Sealing};
use ropeway_smb_server::ServerOptions;
use ropeway_smb_wire::negotiate::Dialect;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::directory;
use super::shares::Wanted;
use crate::args::ServeArgs;
use crate::failure::Failure;

/// Descriptors that are for neither clients nor their files: the program's own, with room. A guess.
const DESCRIPTORS_OWN: usize = 256;

/// The server's options, without shares and audit.
///
/// # Errors
/// Flags contradict each other.
pub(super) fn options(args: &ServeArgs, accounts: Accounts) -> Result<ServerOptions, Failure> {
    let name = match &args.name {
        Some(name) => {
            check_server_name(name).map_err(|why| {
                Failure::usage(format!("{name:?} cannot be a server: {why}")).hint("e.g. --name nas")
            })?;
            name.clone()
        }
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
    options.posix_locks = !protocol.no_posix_locks;
    options.config.anonymous = args.login.anonymous;
    options.config.guest = args.login.guest;
    if let Some(numbers) = directory::machine_numbers(&name) {
        options.machine = numbers;
    }
    options.give_back = Some(ropeway_local::give_back_memory);
    if let Some(most) = protocol.max_connections {
        options.connections_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if options.config.dialect_min > options.config.dialect_max {
        return Err(Failure::usage("--min-dialect is newer than --max-dialect").hint("leave one of them out"));
    }
    if protocol.encrypt == Encryption::Required {
        if options.config.dialect_max < Dialect::Smb300 {
            return Err(Failure::usage("there is no encryption below SMB 3.0")
                .hint("leave --encrypt required or --max-dialect out"));
        }
        if args.login.anonymous || args.login.guest {
            return Err(Failure::usage(
                "nobody has no key, and a guest neither: --anonymous and --guest cannot be encrypted",
            )
            .hint("leave --encrypt required, or --anonymous and --guest out"));
        }
    }
    Ok(options)
}

/// Shares that only encrypting clients may use need encryption.
///
/// # Errors
/// There is none.
pub(super) fn check_shares(args: &ServeArgs, wanted: &[Wanted]) -> Result<(), Failure> {
    let old = args
        .protocol
        .max_dialect
        .is_some_and(|newest| newest < Dialect::Smb300);
    let sealed = wanted.iter().find(|share| share.encrypt);
    match sealed {
        Some(share) if old || args.protocol.encrypt == Encryption::Off => Err(Failure::usage(format!(
            "{} is to be encrypted, and the server does not encrypt",
            share.name
        ))
        .hint("leave --encrypt off, --max-dialect or :encrypt out")),
        _ => Ok(()),
    }
}

fn check_server_name(name: &str) -> Result<(), &'static str> {
    // RFC 1123 names, and the underscore that Windows takes.
    let fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 {
        return Err("it has between 1 and 63 bytes");
    }
    if !name.chars().all(fine) || name.starts_with(['-', '.']) {
        return Err("letters, digits, - and . are in it");
    }
    Ok(())
}

/// Raises the limit of descriptors as far as this user may, and gives how many there are for files of clients.
pub(super) fn descriptors(connections_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let all = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Where that is forbidden, the limit stays as it is.
        _ = setrlimit(Resource::Nofile, all);
    }
    let limit = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    // Of a small limit, connections that are not there take no more than half.
    let others = DESCRIPTORS_OWN + connections_max.min(limit / 2);
    limit.saturating_sub(others).max(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers() {
        for good in ["nas", "nas-2.example", "büro", "A_1"] {
            assert!(check_server_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "-a", "a/b", "a\n", &"x".repeat(64)] {
            assert!(check_server_name(bad).is_err(), "{bad}");
        }
    }
}
