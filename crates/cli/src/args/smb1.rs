//! Flags for servers that speak SMB 1 only (`smb1://…`).

use clap::Args;
use ropeway_plan::Protocol;
use ropeway_smb_client::{Congestion, Encryption, Signing};
use ropeway_smb1_client::{CodePage, Smb1Options, WeakAuth};

use super::ShareArgs;
use crate::failure::Failure;
use crate::secrets::Auth;

/// SMB 1 for old clients of `serve`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "SMB 1")]
pub(crate) struct ServeSmb1Args {
    /// Serve clients that speak nothing newer than SMB 1 (NT LM 0.12), too
    ///
    /// For scanners and other old devices, and Windows XP. SMB 1 is neither encrypted nor safe: others
    /// on the network can read what such clients send. Use a network of its own, and a user of its own.
    /// Clients that can speak SMB 2 never get SMB 1. Signatures are required unless --sign offered.
    /// See docs/smb1.md.
    #[arg(long)]
    pub(crate) smb1: bool,
    /// Code page of SMB 1 clients without Unicode (default 850)
    #[arg(long = "smb1-client-code-page", value_name = "N", requires = "smb1")]
    pub(crate) client_code_page: Option<CodePage>,
}

/// Flags for `smb1://` URLs. Nothing here makes other URLs speak SMB 1.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "SMB 1 (smb1://[domain;]user@host[:port]/share/path)")]
pub(crate) struct Smb1Args {
    /// Weaker proofs of the password that smb1:// may send: ntlm, lm, clear
    ///
    /// Without the flag only NTLMv2 is sent. Whoever hears `ntlm` computes the password's hash from
    /// it, whoever hears `lm` the password, and `clear` is the password. Very old machines know
    /// nothing else. The flag is repeatable; each use prints a warning.
    #[arg(long, value_name = "PROOF", value_parser = proof, value_delimiter = ',')]
    pub(crate) smb1_auth: Vec<Proof>,
    /// Code page of smb1:// servers without Unicode (default 850)
    ///
    /// For example 437 (United States), 850 (Western Europe), 852, 866, 932 or 1252.
    #[arg(long, value_name = "N")]
    pub(crate) smb1_code_page: Option<CodePage>,
}

/// A proof of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// NTLM, also called NTLMv1.
    Ntlm,
    /// LM.
    Lm,
    /// The password itself.
    Clear,
}

fn proof(text: &str) -> Result<Proof, String> {
    match text {
        "ntlm" => Ok(Proof::Ntlm),
        "lm" => Ok(Proof::Lm),
        "clear" => Ok(Proof::Clear),
        _ => Err("expected ntlm, lm or clear".to_owned()),
    }
}

impl Proof {
    /// Returns the warning about its use.
    pub(crate) fn warning(self) -> &'static str {
        match self {
            Self::Ntlm => {
                "--smb1-auth ntlm: whoever hears the login can compute the password's hash from it and log in \
                 with that"
            }
            Self::Lm => "--smb1-auth lm: whoever hears the login can compute the password from it",
            Self::Clear => "--smb1-auth clear: the password may go over the line as it is",
        }
    }
}

impl Smb1Args {
    /// Returns which proofs are allowed.
    pub(crate) fn weak_auth(&self) -> WeakAuth {
        let has = |proof| self.smb1_auth.contains(&proof);
        WeakAuth {
            ntlm: has(Proof::Ntlm),
            lm: has(Proof::Lm),
            clear_text: has(Proof::Clear),
        }
    }

    /// Whether a login needs the password itself, not just its hash.
    pub(crate) fn needs_password(&self) -> bool {
        let weak = self.weak_auth();
        weak.lm || weak.clear_text
    }
}

impl ShareArgs {
    /// Returns the options of the SMB 1 client.
    ///
    /// # Errors
    /// The flags require what SMB 1 does not have.
    pub(crate) fn smb1_options(&self) -> Result<Smb1Options, Failure> {
        if self.encrypt == Encryption::Required {
            return Err(
                Failure::usage("SMB 1 has no encryption, and --encrypt required is given")
                    .hint("leave it out for smb1:// URLs, or use a line that encrypts"),
            );
        }
        if self.auth == Auth::Kerberos {
            return Err(
                Failure::usage("smb1:// logs in with a password, not with Kerberos")
                    .hint("leave --auth kerberos out"),
            );
        }
        let mut options = Smb1Options {
            signing: self.sign,
            weak_auth: self.smb1.weak_auth(),
            code_page: self.smb1.smb1_code_page.unwrap_or_default(),
            ..Smb1Options::default()
        };
        options.tcp.window = self.tcp_window;
        options.tcp.congestion.clone_from(&self.congestion);
        if let Some(era) = self.engine.era(Protocol::Smb1) {
            options.read_size = era.read_size;
            options.write_size = era.write_size;
            options.in_flight_max = era.reads.max(era.writes);
            options.pipelined_reads = era.reads > 1;
            options.pipelined_writes = era.writes > 1;
            options.tcp.window = options.tcp.window.or(era.window);
            if options.tcp.congestion == Congestion::ByLine {
                options.tcp.congestion = Congestion::System;
            }
        }
        if self.gentle {
            options = options.gentle();
        }
        if let Some(timeout) = self.timeout {
            options.timeout = timeout;
        }
        options
            .validate()
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(options)
    }

    /// Returns warnings about these flags, one line each.
    pub(crate) fn smb1_warnings(&self) -> Vec<&'static str> {
        let mut warnings: Vec<_> = self.smb1.smb1_auth.iter().map(|proof| proof.warning()).collect();
        if self.sign == Signing::Offered {
            warnings.push("--sign offered: anyone between the machines can change what is copied");
        }
        warnings
    }
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

    fn share(flags: &[&str]) -> ShareArgs {
        Line::try_parse_from(["x"].iter().chain(flags)).unwrap().share
    }

    #[test]
    fn the_defaults_are_as_safe_as_smb1_can_be() {
        let args = share(&[]);
        let options = args.smb1_options().unwrap();
        assert_eq!(options.signing, Signing::Required);
        assert_eq!(options.weak_auth, WeakAuth::default());
        assert!(args.smb1_warnings().is_empty() && !args.smb1.needs_password());
    }

    #[test]
    fn flags_reach_the_client() {
        let args = share(&[
            "--smb1-auth=ntlm,lm",
            "--smb1-auth=clear",
            "--smb1-code-page=cp437",
            "--gentle",
            "--sign=offered",
            "--timeout=5m",
        ]);
        let options = args.smb1_options().unwrap();
        assert!(options.weak_auth.ntlm && options.weak_auth.lm && options.weak_auth.clear_text);
        assert_eq!(options.code_page.number(), 437);
        assert_eq!((options.in_flight_max, options.timeout.as_secs()), (1, 300));
        assert_eq!(args.smb1_warnings().len(), 4);
        for impossible in ["--encrypt=required", "--auth=kerberos"] {
            assert!(share(&[impossible]).smb1_options().is_err(), "{impossible}");
        }
        let wrong = Line::try_parse_from(["x", "--smb1-auth=md5"]).err().unwrap();
        assert!(wrong.to_string().contains("ntlm, lm or clear"), "{wrong}");
    }
}
