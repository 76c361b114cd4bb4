//! Flags for connections to servers.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropeway_plan::{Compounds as EraCompounds, Engine, Era, Protocol};
use ropeway_smb_client::{
    ClientOptions, Compounds, CompressionOffer, Congestion, DfsHosts, Encryption, Signing,
};
use ropeway_smb_wire::negotiate::Dialect;

use super::values;
use crate::failure::Failure;
use crate::secrets::{Auth, Keyring};

/// Flags for connections to servers, shared by every command that takes a URL.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Shares (smb://[domain;]user@host[:port]/share/path)")]
pub(crate) struct ShareArgs {
    /// Read user and password from this 0600 file
    ///
    /// The lines are those of mount.cifs(8): username=, password=, domain=. The flag is repeatable:
    /// each file applies to URLs of its user. Without a matching file the password comes from
    /// ROPEWAY_PASSWORD, else from the keyring (`ropeway login`), else ropeway asks on the
    /// terminal.
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Vec<PathBuf>,
    /// Login method: auto (default), ntlm, kerberos
    ///
    /// `kerberos` (also krb5) needs a ticket (kinit, KRB5CCNAME) and the server's name as its realm
    /// knows it. `ntlm` needs a password. `auto` takes the password of a file or of
    /// ROPEWAY_PASSWORD, else a ticket for the server, else a password from the keyring or the
    /// terminal.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = values::auth, hide_default_value = true)]
    pub(crate) auth: Auth,
    /// Keyring for passwords of `ropeway login`: persistent (default), user, session, off
    ///
    /// These are keyrings of the kernel, see keyrings(7). `persistent` lasts until a restart or
    /// until three days pass without use, `user` while the user has a process, `session` while the
    /// login session lasts. `off` uses none.
    #[arg(long, value_name = "RING", default_value = "persistent", value_parser = values::keyring, hide_default_value = true)]
    pub(crate) keyring: Keyring,
    /// Log in anonymously if a URL names no user
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Also keep owners and access lists of shares
    ///
    /// Owner, group and DACL go from share to share; on this machine they are kept as the extended attribute
    /// security.NTACL, or user.NTACL without root.
    #[arg(long)]
    pub(crate) acls: bool,
    /// Signing: required (default), offered
    ///
    /// `offered` leaves the choice to the server. A server that does not sign can be impersonated.
    #[arg(long, value_name = "HOW", default_value = "required", value_parser = values::sign, hide_default_value = true)]
    pub(crate) sign: Signing,
    /// Encryption: off, desired (default), required
    #[arg(long, value_name = "HOW", default_value = "desired", value_parser = values::encrypt, hide_default_value = true)]
    pub(crate) encrypt: Encryption,
    /// Dialects to offer, e.g. 3.0..3.1.1 (default: all)
    ///
    /// The dialects are 2.0.2, 2.1, 3.0, 3.0.2 and 3.1.1. Give one, or MIN..MAX; either end may be
    /// left out.
    #[arg(long, value_name = "MIN..MAX", value_parser = values::dialects)]
    pub(crate) dialect: Option<RangeInclusive<Dialect>>,
    /// Newest dialect to offer
    #[arg(long, value_name = "DIALECT", value_parser = values::dialect)]
    pub(crate) max_dialect: Option<Dialect>,
    /// Maximum number of connections to a server (default 4)
    ///
    /// More connections than one are opened only if one cannot fill the line and the server allows
    /// it (multichannel). On a line of 10 ms or more a copy starts with N connections, by default
    /// with 2, under BBR with 4. Where such a line loses segments and this end has no BBR, up to 16 are
    /// opened while each adds to the rate.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) channels: Option<u16>,
    /// Size of the socket buffers; best left to the kernel
    #[arg(long, value_name = "SIZE", value_parser = values::window)]
    pub(crate) tcp_window: Option<u32>,
    /// TCP congestion control of what is sent: auto (default), system, or a name such as bbr
    ///
    /// `auto` asks for BBR on a line of 10 ms or more, where the kernel allows it, and otherwise leaves the
    /// system's own. Under loss BBR keeps its rate, cubic and reno do not. A server chooses for what it sends.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::socket_congestion, hide_default_value = true)]
    pub(crate) congestion: Congestion,
    /// Require explicit congestion notification
    #[arg(long)]
    pub(crate) ecn: bool,
    /// Servers that may get the login by DFS referral: domain (default), any
    ///
    /// `domain` allows the server itself and servers in its DNS domain. A server can name any host
    /// in a referral, and that host gets the login. A password from the keyring is used for its own
    /// host only.
    #[arg(long, value_name = "HOSTS", default_value = "domain", value_parser = values::dfs, hide_default_value = true)]
    pub(crate) dfs: DfsHosts,
    /// Compress data both ways: auto (default), on (without a value), off
    ///
    /// `auto` compresses to and from a server of Ropeway while the line is slower than that, each end for
    /// what it sends. `on` compresses with every server that can. Data that does not compress is
    /// recognised by a sample and sent as it is.
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
    /// Spare a failing machine, or disks that others use: one request at a time, with pauses
    ///
    /// At a server, requests are small, one that restarts is not hammered, and the time-out is ten
    /// minutes unless --timeout says otherwise: for machines that must be copied off before they die.
    /// Between folders of this machine, each request is followed by a rest as long as it took, and of
    /// a large file little waits to be written, so that others hardly notice the copy. It then takes
    /// some times as long, and copies data that a file system could share (reflinks).
    #[arg(long)]
    pub(crate) gentle: bool,
    /// Give up after this time without progress, e.g. 5m
    ///
    /// Applies to each item, and to the attempts to restore a lost connection (by default one
    /// minute).
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// The engine of the copy, whose system may have spoken to servers in its own way.
    #[arg(skip)]
    pub(crate) engine: Engine,
    /// Servers that speak SMB 1 only.
    #[cfg(feature = "smb1")]
    #[command(flatten)]
    pub(crate) smb1: super::smb1::Smb1Args,
}

/// With --gentle: size of the largest request and bytes in flight, and the time-out.
const GENTLE_IO: (u32, u64) = (64 << 10, 64 << 10);
const GENTLE_TIMEOUT: Duration = Duration::from_secs(600);

impl ShareArgs {
    /// Returns the options of the SMB client.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn options(&self) -> Result<ClientOptions, Failure> {
        let mut options = ClientOptions::default();
        let (min, max) = match &self.dialect {
            Some(range) => (*range.start(), *range.end()),
            None => (Dialect::Smb202, Dialect::Smb311),
        };
        let max = match self.max_dialect {
            None => max,
            // A range with the same upper end, or without one, agrees with --max-dialect.
            Some(newest) if self.dialect.is_none() || max == Dialect::Smb311 || max == newest => newest,
            Some(_) => return Err(contradiction("--dialect", "--max-dialect")),
        };
        if min > max {
            return Err(contradiction("--dialect", "--max-dialect"));
        }
        if self.encrypt == Encryption::Required && max < Dialect::Smb300 {
            return Err(Failure::usage("there is no encryption below SMB 3.0")
                .hint("leave --encrypt required or the limit of the dialect out"));
        }
        options.dialects = min..=max;
        options.signing = self.sign;
        options.encryption = self.encrypt;
        options.compression = self.compress;
        options.dfs = self.dfs;
        if let Some(channels) = self.channels {
            options.channels_max = channels;
            options.channels_lossy_max = channels;
        }
        options.tcp.window = self.tcp_window;
        options.tcp.congestion.clone_from(&self.congestion);
        options.tcp.ecn = self.ecn.then_some(true);
        if let Some(era) = self.engine.era(Protocol::Smb2) {
            self.speak_as(era, &mut options)?;
        }
        if self.gentle {
            (options.io_max, options.bytes_in_flight_max) = GENTLE_IO;
            (options.channels_max, options.channels_lossy_max) = (1, 1);
            options.timeout = GENTLE_TIMEOUT;
        }
        if let Some(timeout) = self.timeout {
            options.timeout = timeout;
        }
        options
            .validate()
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(options)
    }
}

impl ShareArgs {
    /// Makes the client behave as one of Windows Vista or 7. Flags go before.
    fn speak_as(&self, era: Era, options: &mut ClientOptions) -> Result<(), Failure> {
        if self.dialect.is_none() && self.max_dialect.is_none() {
            if self.encrypt == Encryption::Required {
                let engine = self.engine;
                let refused = format!("--engine {engine} speaks SMB 2.0.2, which has no encryption");
                return Err(Failure::usage(refused).hint("leave --encrypt required or --engine out"));
            }
            options.dialects = Dialect::Smb202..=Dialect::Smb202;
        }
        let largest = era.read_size.max(era.write_size);
        options.io_max = largest;
        options.bytes_in_flight_max = u64::from(largest) * u64::from(era.reads.max(era.writes));
        options.gives_way = false;
        (options.channels_max, options.channels_lossy_max) = (1, 1);
        options.compounds = match era.compounds {
            EraCompounds::None => Compounds::None,
            EraCompounds::Queries => Compounds::Queries,
        };
        options.tcp.window = options.tcp.window.or(era.window);
        if options.tcp.congestion == Congestion::ByLine {
            options.tcp.congestion = Congestion::System;
        }
        Ok(())
    }
}

fn contradiction(one: &str, two: &str) -> Failure {
    Failure::usage(format!("{one} and {two} contradict each other")).hint("leave one of them out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        share: ShareArgs,
    }

    fn options(flags: &[&str]) -> Result<ClientOptions, Failure> {
        let line = ["x"].iter().chain(flags);
        Line::try_parse_from(line).unwrap().share.options()
    }

    #[test]
    fn the_defaults_are_safe() {
        let options = options(&[]).unwrap();
        assert_eq!(options.signing, Signing::Required);
        assert_eq!(options.encryption, Encryption::Desired);
        assert_eq!(options.dialects, Dialect::Smb202..=Dialect::Smb311);
        assert_eq!(options.compression, CompressionOffer::OwnEnds);
        assert!(options.tcp.ecn.is_none() && options.tcp.window.is_none());
    }

    #[test]
    fn compression_has_three_words_and_those_of_a_switch() {
        for (flag, offer) in [
            ("--compress=auto", CompressionOffer::OwnEnds),
            ("--compress=on", CompressionOffer::On),
            ("--compress=true", CompressionOffer::On),
            ("--compress=off", CompressionOffer::Off),
            ("--compress=false", CompressionOffer::Off),
        ] {
            assert_eq!(options(&[flag]).unwrap().compression, offer, "{flag}");
        }
        assert!(Line::try_parse_from(["x", "--compress=much"]).is_err());
    }

    #[test]
    fn flags_reach_the_client() {
        let flags = [
            "--sign=offered",
            "--encrypt=off",
            "--dialect=2.1..3.0.2",
            "--channels=2",
            "--tcp-window=4M",
            "--congestion=bbr",
            "--ecn",
            "--compress",
            "--timeout=5m",
        ];
        let options = options(&flags).unwrap();
        assert_eq!(
            (options.signing, options.encryption),
            (Signing::Offered, Encryption::Off)
        );
        assert_eq!(options.dialects, Dialect::Smb210..=Dialect::Smb302);
        assert_eq!((options.channels_max, options.tcp.window), (2, Some(4 << 20)));
        assert_eq!(
            (options.tcp.congestion, options.tcp.ecn),
            (Congestion::Named("bbr".to_owned()), Some(true))
        );
        assert_eq!(options.compression, CompressionOffer::On);
        assert_eq!(options.timeout, Duration::from_secs(300));
    }

    #[test]
    fn dialects_agree_or_are_refused() {
        let range = |flags: &[&str]| options(flags).unwrap().dialects;
        assert_eq!(range(&["--max-dialect=3.0"]), Dialect::Smb202..=Dialect::Smb300);
        assert_eq!(
            range(&["--dialect=3.0..", "--max-dialect=3.0.2"]),
            Dialect::Smb300..=Dialect::Smb302
        );
        assert_eq!(range(&["--dialect=3.1.1"]), Dialect::Smb311..=Dialect::Smb311);
        for bad in [
            &["--dialect=3.0.2..", "--max-dialect=2.1"][..],
            &["--dialect=..2.1", "--max-dialect=3.0"],
            &["--encrypt=required", "--max-dialect=2.1"],
        ] {
            assert_eq!(options(bad).unwrap_err().code, 1, "{bad:?}");
        }
    }
}
