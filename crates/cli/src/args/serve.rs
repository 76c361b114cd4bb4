//! Flags of `serve` and of its commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ropeway_smb_client::{Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;

use super::{AFTER_HELP, values};

/// `ropeway serve`.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "ropeway serve [OPTIONS] [NAME=]DIR[:ro][:encrypt]...\n       ropeway serve user <add|rm|list>"
)]
pub(crate) struct ServeArgs {
    /// `serve user …`; a folder of that name is ./user.
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    /// Folders to share, by their own names or by those given
    ///
    /// Behind the folder may stand `:ro` (nothing can be changed) and `:encrypt` (only for clients that encrypt). A folder
    /// whose name itself ends like that is written with one more colon: `odd:ro:`. A folder with `=` in its name is
    /// written with a slash: `./a=b`.
    #[arg(value_name = "[NAME=]DIR")]
    pub(crate) shares: Vec<String>,
    /// Another folder to share, as above; for the configuration, which SIGHUP reads again
    #[arg(long, value_name = "[NAME=]DIR")]
    pub(crate) share: Vec<String>,
    /// Where to listen (default 127.0.0.1:4450); may be given several times
    ///
    /// Beyond this machine only if told to: 0.0.0.0 or `[::]` for everywhere. Without a port it is 445, for which a
    /// capability is needed, see docs/serve.md.
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1:4450", value_parser = values::listen, hide_default_value = true)]
    pub(crate) listen: Vec<SocketAddr>,
    /// What the server calls itself (default: the machine's name)
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Let nobody change anything
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Symbolic links that clients may make: refuse (none), inside (those that stay in the share; default), or any
    ///
    /// The server follows none that leads out; local programs would.
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "inside",
        hide_default_value = true
    )]
    pub(crate) links: ServeLinks,
    /// Who may log in.
    #[command(flatten)]
    pub(crate) login: ServeLoginArgs,
    /// How to speak with clients.
    #[command(flatten)]
    pub(crate) protocol: ServeProtocolArgs,
    /// How to be watched.
    #[command(flatten)]
    pub(crate) watch: ServeWatchArgs,
}

/// Who may log in.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Users")]
pub(crate) struct ServeLoginArgs {
    /// Users and their hashes (default: $XDG_CONFIG_HOME/ropeway/users)
    ///
    /// `ropeway serve user add NAME` writes it. Nobody but its owner may read it. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) users: Option<PathBuf>,
    /// One user more; its password from --password-file or ROPEWAY_PASSWORD
    ///
    /// Without this and without a file of users there is a user `ropeway` with a new random pass phrase, which is printed.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// 0600 file whose first line is that user's password
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Let clients in that name no user
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Let the user `guest` in without a password
    ///
    /// What guests do is neither signed nor encrypted. Users that are not known are never taken for guests.
    #[arg(long)]
    pub(crate) guest: bool,
    /// Let users in by Kerberos ticket, with the key of the service from this file
    ///
    /// Nobody but its owner may read it. It is read again at each login, so that new keys need no restart.
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// The service whose key that is (default: cifs/ and the machine's name)
    #[arg(long, value_name = "NAME[@REALM]")]
    pub(crate) service_principal: Option<String>,
    /// Who may come with a ticket: listed (users there are, by their name in the service's realm; default), or any
    ///
    /// `any` lets in whoever the realm, and those that it trusts, give a ticket.
    #[arg(
        long,
        value_name = "WHO",
        value_enum,
        default_value = "listed",
        hide_default_value = true
    )]
    pub(crate) kerberos_users: KerberosUsers,
}

#[cfg(test)]
impl ServeLoginArgs {
    /// As if no flag was given.
    pub(crate) fn none() -> Self {
        Self {
            users: None,
            user: None,
            password_file: None,
            anonymous: false,
            guest: false,
            keytab: None,
            service_principal: None,
            kerberos_users: KerberosUsers::Listed,
        }
    }
}

/// Who may come with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KerberosUsers {
    /// Users there are.
    Listed,
    /// Everybody.
    Any,
}

/// Symbolic links that clients may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServeLinks {
    /// None.
    Refuse,
    /// Those that lead to somewhere in the share.
    Inside,
    /// All.
    Any,
}

/// How to speak with clients.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct ServeProtocolArgs {
    /// Signatures: required (default), or offered
    #[arg(long, value_name = "HOW", default_value = "required", value_parser = values::sign, hide_default_value = true)]
    pub(crate) sign: Signing,
    /// Encryption: off, desired (where the client wants it; default), or required
    #[arg(long, value_name = "HOW", default_value = "desired", value_parser = values::encrypt, hide_default_value = true)]
    pub(crate) encrypt: Encryption,
    /// Oldest dialect to speak (default 2.0.2)
    #[arg(long, value_name = "DIALECT", value_parser = values::dialect)]
    pub(crate) min_dialect: Option<Dialect>,
    /// Newest dialect to speak (default 3.1.1)
    #[arg(long, value_name = "DIALECT", value_parser = values::dialect)]
    pub(crate) max_dialect: Option<Dialect>,
    /// Most connections at once (default 4096)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) max_connections: Option<u32>,
    /// One connection for each session
    #[arg(long)]
    pub(crate) no_multichannel: bool,
    /// Keep byte-range locks of clients and locks of local programs apart
    ///
    /// Otherwise each sees the other's: what a client locks, programs that lock by fcntl or lockf (and NFS, and smbd) do not
    /// get, and what they have locked, clients can neither lock nor read or write. See docs/serve.md.
    #[arg(long)]
    pub(crate) no_posix_locks: bool,
}

/// How to be found and watched.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Watching")]
pub(crate) struct ServeWatchArgs {
    /// Answer GET /metrics (Prometheus) and /healthz here, e.g. 127.0.0.1:9450
    ///
    /// A port alone is one of 127.0.0.1. There is no login: whoever reaches it can read it.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = values::http)]
    pub(crate) http: Option<SocketAddr>,
    /// Append a JSON line for each login and file operation to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Let others find the server by multicast DNS and WS-Discovery
    #[arg(long)]
    pub(crate) announce: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands of `serve`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Who may log in
    ///
    /// The file keeps NT hashes, which are as good as passwords to whoever reads them: it is 0600, and refused otherwise. A
    /// running server takes changes on SIGHUP.
    User(UserArgs),
}

/// `ropeway serve user`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UserArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

/// What to do with users.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or give one another password
    Add(UserAddArgs),
    /// Remove users
    Rm(UserRmArgs),
    /// List the users
    List(UserListArgs),
}

/// `ropeway serve user add`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct UserAddArgs {
    /// The user; case does not count
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// 0600 file whose first line is the password; else ROPEWAY_PASSWORD, else it is asked for
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `ropeway serve user rm`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct UserRmArgs {
    /// The users
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

/// `ropeway serve user list`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct UserListArgs {
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
