//! Flags of `serve` for the far servers whose shares it serves.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropeway_plan::Engine;
use ropeway_smb_client::{CompressionOffer, Congestion, DfsHosts, Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;

use super::{BoostArgs, ShareArgs, values};
use crate::secrets::{Auth, Keyring};

/// Logins and connections to far servers. The names are those of `copy` and `mount`, with `far-` in
/// front where `serve` has a flag of that name for its own clients.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Far servers (shares given as smb://[domain;]user@host[:port]/share/path)")]
pub(crate) struct FarArgs {
    /// Read user and password for far servers from this 0600 file
    ///
    /// The lines are those of mount.cifs(8): username=, password=, domain=. The flag is repeatable:
    /// each file applies to URLs of its user. Without a matching file the password comes from
    /// ROPEWAY_PASSWORD, else from the keyring (`ropeway login`). All clients of this server work
    /// at the far server as that one user. --user, --password-file and --users say who may log in
    /// here.
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Vec<PathBuf>,
    /// Login method at far servers: auto (default), ntlm, kerberos
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = values::auth, hide_default_value = true)]
    pub(crate) auth: Auth,
    /// Keyring for passwords of `ropeway login`: persistent (default), user, session, off
    #[arg(long, value_name = "RING", default_value = "persistent", value_parser = values::keyring, hide_default_value = true)]
    pub(crate) keyring: Keyring,
    /// Log in to far servers anonymously if a URL names no user
    #[arg(long)]
    pub(crate) far_anonymous: bool,
    /// Signing with far servers: required (default), offered
    #[arg(long, value_name = "HOW", default_value = "required", value_parser = values::sign, hide_default_value = true)]
    pub(crate) far_sign: Signing,
    /// Encryption with far servers: off, desired (default), required
    #[arg(long, value_name = "HOW", default_value = "desired", value_parser = values::encrypt, hide_default_value = true)]
    pub(crate) far_encrypt: Encryption,
    /// Dialects to offer to far servers, e.g. 3.0..3.1.1 (default: all)
    #[arg(long, value_name = "MIN..MAX", value_parser = values::dialects)]
    pub(crate) far_dialect: Option<RangeInclusive<Dialect>>,
    /// Maximum number of connections to a far server (default 4)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) channels: Option<u16>,
    /// Compress data on the line to far servers: auto (default), on (without a value), off
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "on",
        value_parser = values::compress,
        hide_default_value = true
    )]
    pub(crate) compress: CompressionOffer,
    /// Fail requests of clients if the far server is away for this time (default 30s)
    ///
    /// Until then they wait, and the server connects again. Clients give up by themselves after
    /// about a minute.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Acknowledge writes once they are in a journal in --boost, and write them back later
    ///
    /// Clients write at the speed of the near disk. What others change at the far server meanwhile
    /// stays; what was written here is then saved beside it under another name. See docs/serve.md,
    /// "Write-back".
    #[arg(long)]
    pub(crate) write_back: bool,
    /// Most space for the journal of each far share (default 4G); when it is full, writers wait
    #[arg(long, value_name = "SIZE", value_parser = values::journal_size)]
    pub(crate) write_back_size: Option<u64>,
    /// The cache of all far shares.
    #[command(flatten)]
    pub(crate) boost: BoostArgs,
}

/// Time to wait for a far server: half of what clients such as Windows wait for a reply
/// (`SessTimeout`, 60 s), so that they get an error and keep the connection.
const TIMEOUT: Duration = Duration::from_secs(30);

impl FarArgs {
    /// Returns the values that apply if no flag is given.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self {
            credentials: Vec::new(),
            auth: Auth::Auto,
            keyring: Keyring::Off,
            far_anonymous: false,
            far_sign: Signing::Required,
            far_encrypt: Encryption::Desired,
            far_dialect: None,
            channels: None,
            compress: CompressionOffer::OwnEnds,
            timeout: None,
            write_back: false,
            write_back_size: None,
            boost: BoostArgs::default(),
        }
    }

    /// Returns the flags as those of other commands that use shares.
    pub(crate) fn share_args(&self) -> ShareArgs {
        ShareArgs {
            credentials: self.credentials.clone(),
            auth: self.auth,
            keyring: self.keyring,
            anonymous: self.far_anonymous,
            acls: false,
            sign: self.far_sign,
            encrypt: self.far_encrypt,
            dialect: self.far_dialect.clone(),
            max_dialect: None,
            channels: self.channels,
            tcp_window: None,
            congestion: Congestion::default(),
            ecn: false,
            dfs: DfsHosts::Domain,
            compress: self.compress,
            gentle: false,
            engine: Engine::Auto,
            timeout: Some(self.timeout.unwrap_or(TIMEOUT)),
            #[cfg(feature = "smb1")]
            smb1: super::smb1::Smb1Args::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        far: FarArgs,
    }

    #[test]
    fn flags_reach_the_client_of_far_servers() {
        let options = |flags: &[&str]| {
            let line = Line::try_parse_from(["x"].iter().chain(flags)).unwrap();
            line.far.share_args().options().unwrap()
        };
        let (options, given) = (
            options(&[]),
            options(&[
                "--far-sign=offered",
                "--far-encrypt=off",
                "--timeout=5s",
                "--channels=2",
            ]),
        );
        assert_eq!((options.signing, options.timeout), (Signing::Required, TIMEOUT));
        assert_eq!(
            (given.signing, given.encryption),
            (Signing::Offered, Encryption::Off)
        );
        assert_eq!((given.timeout, given.channels_max), (Duration::from_secs(5), 2));
    }
}
