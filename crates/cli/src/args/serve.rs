//! Flags of `serve` and its commands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ropeway_smb_client::{Congestion, Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;

use super::{AFTER_HELP, FarArgs, HttpArgs, ShareSpec, values};

/// `ropeway serve`.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "ropeway serve [OPTIONS] [NAME=]DIR|URL[:ro][:encrypt][:timemachine][:bin][:snapshots][:ca]...\n       ropeway serve user <add|rm|list>"
)]
pub(crate) struct ServeArgs {
    /// `serve user …`. To share a folder of that name, write ./user.
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    /// Folders, or shares of other servers (smb://user@host/share/path), to share under their own
    /// names or under NAME
    ///
    /// A share of another server makes this server a gateway to it: see docs/serve.md, "Gateway".
    /// Options follow the folder: `:ro` (clients cannot change anything), `:encrypt` (only
    /// clients that encrypt may connect), `:timemachine` (Macs are told that it takes their backups),
    /// `:bin` (deleted files are kept in `.recycle` for 30 days, in a tenth of the volume at most;
    /// `:bin=7d,20G` for other limits), `:snapshots` (clients may look at the snapshots that ZFS or
    /// snapper make; `:snapshots=/data/.snap/*` for others, whose names say when) and `:ca` (handles that
    /// clients ask to persist survive a crash and a restart of the server). If the folder's own name ends like an option, add one more colon:
    /// `odd:ro:`. If it contains `=`, write it with a slash: `./a=b`.
    #[arg(value_name = "[NAME=]DIR|URL", value_parser = ShareSpec::parse)]
    pub(crate) shares: Vec<ShareSpec>,
    /// Another folder or URL to share, as above; for the configuration, which SIGHUP reads again
    #[arg(long, value_name = "[NAME=]DIR|URL", value_parser = ShareSpec::parse)]
    pub(crate) share: Vec<ShareSpec>,
    /// Address to listen on (default 127.0.0.1:4450; repeatable)
    ///
    /// Other machines can connect only if you ask for it: use 0.0.0.0 or `[::]` for all addresses.
    /// Without a port it is 445, for which a capability is needed, see docs/serve.md.
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1:4450", value_parser = values::listen, hide_default_value = true)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Name of the server (default: the machine's name)
    #[arg(long, value_name = "NAME", value_parser = values::server_name)]
    pub(crate) name: Option<String>,
    /// Share every folder read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Symbolic links clients may create: refuse (none), inside (if they stay in the share;
    /// default), any
    ///
    /// The server never follows a link out of the share. Local programs do.
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "inside",
        hide_default_value = true
    )]
    pub(crate) links: ServeLinks,
    /// Users.
    #[command(flatten)]
    pub(crate) login: ServeLoginArgs,
    /// Protocol settings.
    #[command(flatten)]
    pub(crate) protocol: ServeProtocolArgs,
    /// SMB 1.
    #[cfg(feature = "smb1")]
    #[command(flatten)]
    pub(crate) smb1: super::smb1::ServeSmb1Args,
    /// Monitoring and discovery.
    #[command(flatten)]
    pub(crate) watch: ServeWatchArgs,
    /// Far servers.
    #[command(flatten)]
    pub(crate) far: FarArgs,
}

/// Who may log in.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Users")]
pub(crate) struct ServeLoginArgs {
    /// File of users and password hashes (default: $XDG_CONFIG_HOME/ropeway/users)
    ///
    /// `ropeway serve user add NAME` writes it. Only its owner may have access to it. SIGHUP reads
    /// it again.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) users: Option<PathBuf>,
    /// One more user; the password comes from --password-file or ROPEWAY_PASSWORD
    ///
    /// Without this flag and without a file of users, the server creates a user `ropeway` with a
    /// new random pass phrase and prints it.
    #[arg(long, value_name = "NAME", value_parser = values::user_name)]
    pub(crate) user: Option<String>,
    /// 0600 file whose first line is the password of --user
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Accept anonymous sessions, which name no user
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Accept the user `guest` without a password
    ///
    /// Guest sessions are neither signed nor encrypted. Unknown users are never accepted as guests.
    #[arg(long)]
    pub(crate) guest: bool,
    /// Accept Kerberos tickets, with the service key from this file
    ///
    /// Only the file's owner may have access to it. It is read again at each login, so new keys
    /// need no restart.
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// Service principal of that key (default: cifs/ and the machine's name)
    #[arg(long, value_name = "NAME[@REALM]")]
    pub(crate) service_principal: Option<String>,
    /// Tickets to accept: listed (of users in the file, by their name in the realm; default), any
    ///
    /// `any` accepts every ticket that the realm, or a realm it trusts, has issued.
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
    /// Returns the values that apply if no flag is given.
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

/// Which Kerberos tickets are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KerberosUsers {
    /// Tickets of users in the file.
    Listed,
    /// Tickets of everybody.
    Any,
}

/// Symbolic links that clients may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServeLinks {
    /// None.
    Refuse,
    /// Links whose target is in the share.
    Inside,
    /// All links.
    Any,
}

/// Protocol settings of the server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Protocol")]
pub(crate) struct ServeProtocolArgs {
    /// Signing: required (default), offered
    #[arg(long, value_name = "HOW", default_value = "required", value_parser = values::sign, hide_default_value = true)]
    pub(crate) sign: Signing,
    /// Encryption: off, desired (if the client wants it; default), required
    #[arg(long, value_name = "HOW", default_value = "desired", value_parser = values::encrypt, hide_default_value = true)]
    pub(crate) encrypt: Encryption,
    /// Oldest dialect to accept (default 2.0.2)
    #[arg(long, value_name = "DIALECT", value_parser = values::dialect)]
    pub(crate) min_dialect: Option<Dialect>,
    /// Newest dialect to accept (default 3.1.1)
    #[arg(long, value_name = "DIALECT", value_parser = values::dialect)]
    pub(crate) max_dialect: Option<Dialect>,
    /// Maximum number of connections (default 4096)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) max_connections: Option<u32>,
    /// TCP congestion control of what is sent: auto (default), system, or a name such as bbr
    ///
    /// `auto` asks for BBR for clients on a line of 10 ms or more, where the kernel allows it, and otherwise
    /// leaves the system's own. Under loss BBR keeps its rate, cubic and reno do not.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::socket_congestion, hide_default_value = true)]
    pub(crate) congestion: Congestion,
    /// Allow one connection per session only
    #[arg(long)]
    pub(crate) no_multichannel: bool,
    /// Keep byte-range locks of clients apart from locks of local programs
    ///
    /// By default each side sees the other's locks. A range that a client has locked is refused to
    /// programs that lock with fcntl or lockf (and to NFS and smbd). A range that they have locked,
    /// clients can neither lock nor read or write. See docs/serve.md.
    #[arg(long)]
    pub(crate) no_posix_locks: bool,
    /// Folder for the records of persistent handles, for shares with `:ca` (default:
    /// $XDG_STATE_HOME/ropeway/handles)
    ///
    /// Each shared folder has one of its own there. Only this user may have access to it.
    #[arg(long, value_name = "DIR")]
    pub(crate) handles: Option<PathBuf>,
}

/// Monitoring and discovery.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Monitoring")]
pub(crate) struct ServeWatchArgs {
    /// The web page.
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Append a JSON line for each login and file operation to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Record every operation on the shared folders in this file (see `ropeway trace`)
    ///
    /// Each record names the connection of the client that it was done for. The file grows as long as
    /// the server runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Announce the server by multicast DNS and WS-Discovery
    ///
    /// On by default where the server listens beyond the loopback. With the flag, warnings say where it
    /// does not work.
    #[arg(long)]
    pub(crate) announce: bool,
    /// Do not announce the server
    #[arg(long, conflicts_with = "announce")]
    pub(crate) no_announce: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands of `serve`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Manage the users who may log in
    ///
    /// The file holds NT hashes. An NT hash is as good as the password to anyone who reads it, so
    /// the file must be 0600; otherwise it is refused. A running server reads changes on SIGHUP.
    User(UserArgs),
}

/// `ropeway serve user`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UserArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

/// Actions of `ropeway serve user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or change a user's password
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
    /// Name of the user; case is ignored
    #[arg(value_name = "NAME", value_parser = values::user_name)]
    pub(crate) name: String,
    /// 0600 file whose first line is the password (default: ROPEWAY_PASSWORD, else it asks)
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `ropeway serve user rm`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct UserRmArgs {
    /// Names of the users
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
