//! `cargo xtask bench smb`: a server on this machine, files in memory, signed and sealed: what the client itself costs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use ropeway_peers::{Encryption, Signing, SmbdBuilder};
use serde_json::json;

use super::course::{Ground, Stage};
use super::estimate::Way;
use super::remote::{Job, Options, Session, Wish};
use super::remote_client::{Client, Installed};
use super::smb_report;
use crate::worksets::Cargo;
use crate::workspace::Workspace;

/// Connections of ropeway in the published tables.
const CHANNELS: u16 = 2;
/// For the estimate: what smbclient moves in a second here, and the round trip that explains its small files.
const BYTES_PER_S: f64 = 0.9e9;
/// See [`BYTES_PER_S`].
const ROUND_TRIP: Duration = Duration::from_micros(80);

/// Options of `bench smb`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to copy
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Cargo::Bulk, Cargo::Small])]
    work: Vec<Cargo>,
    /// How it is protected
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Protection::ALL)]
    protection: Vec<Protection>,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Client::Ropeway, Client::Smbclient])]
    clients: Vec<Client>,
    /// Most connections of ropeway
    #[arg(long, default_value_t = CHANNELS)]
    channels: u16,
    #[command(flatten)]
    options: Options,
}

/// What the server demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protection {
    /// Signatures
    Signed,
    /// Encryption
    Sealed,
}

impl Protection {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Signed, Self::Sealed];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }

    /// An smbd that demands it.
    pub(super) fn demand(self, builder: SmbdBuilder) -> SmbdBuilder {
        match self {
            Self::Signed => builder.signing(Signing::Mandatory).encryption(Encryption::Off),
            Self::Sealed => builder.encryption(Encryption::Required),
        }
    }
}

/// A row's name in the file of results.
pub(super) fn key(cargo: Cargo, protection: Protection) -> String {
    format!("{}-{}", cargo.name(), protection.name())
}

/// What is to be reached of smbclient's time and of its processor time.
pub(super) fn goals(cargo: Cargo, protection: Protection) -> [Option<f64>; 2] {
    match (cargo, protection) {
        (Cargo::Bulk, Protection::Signed) => [Some(0.75), Some(0.75)],
        (Cargo::Bulk, Protection::Sealed) => [Some(0.65), Some(0.65)],
        (Cargo::Small, _) => [Some(0.6), None],
        (Cargo::One | Cargo::Office, _) => [None, None],
    }
}

/// Measures everything asked for.
///
/// # Errors
/// If the server does not start, ropeway fails or copies wrongly, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        !arguments.clients.contains(&Client::Rsync),
        "an rsync daemon does not sign; `bench wan` has it"
    );
    let flags = ["--channels".to_owned(), arguments.channels.to_string()];
    let other = arguments.channels != CHANNELS;
    let wish = Wish {
        name: "smb",
        options: &arguments.options,
        runs: 5,
        clients: &arguments.clients,
        flags: &flags,
        variant: if other { &flags } else { &[] },
    };
    let mut session = Session::open(workspace, folder, &wish)?;
    let scale = arguments.options.scale();
    let (mut jobs, mut protections) = (Vec::new(), Vec::new());
    for &cargo in &arguments.work {
        for &protection in &arguments.protection {
            jobs.push(job(cargo, protection, scale));
            protections.push(protection);
        }
    }
    let stage = |index: usize, ground: &Ground, _: &[Installed]| {
        Ok(Stage {
            smbd: protections[index].demand(ground.smbd()).start()?,
            rsyncd: None,
            link: None,
        })
    };
    let publish = |session: &Session<'_>| {
        let whole = (scale - 1.0).abs() < f64::EPSILON;
        for &cargo in Cargo::value_variants() {
            if let Some(text) = smb_report::section(&session.store, cargo, whole, &session.notes) {
                session.publish(&format!("bench smb {}", cargo.name()), &text)?;
            }
        }
        Ok(())
    };
    session.run(&jobs, &stage, &publish)
}

fn job(cargo: Cargo, protection: Protection, scale: f64) -> Job {
    Job {
        key: key(cargo, protection),
        cargo,
        way: Way {
            rtt: ROUND_TRIP,
            line: Duration::from_secs_f64(cargo.expected(scale).bytes as f64 / BYTES_PER_S),
        },
        has_floor: false,
        conditions: json!({ "protection": protection.name() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_those_of_the_issue() {
        assert_eq!(goals(Cargo::Bulk, Protection::Signed), [Some(0.75); 2]);
        assert_eq!(goals(Cargo::Bulk, Protection::Sealed), [Some(0.65); 2]);
        assert_eq!(goals(Cargo::Small, Protection::Sealed), [Some(0.6), None]);
    }
}
