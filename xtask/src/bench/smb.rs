//! `cargo xtask bench smb`: a server on this machine, files in memory, signed and sealed: what the client itself costs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use ropeway_peers::{Encryption, Signing, SmbdBuilder};

use super::course::{Course, Ground, Limit};
use super::remote::{Client, Installed, installed};
use super::remote_report::{self, SmbSection};
use super::report::{self, Machine};
use crate::worksets::Cargo;
use crate::workspace::Workspace;

/// Options of `bench smb`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to copy
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Cargo::Bulk, Cargo::Small])]
    work: Vec<Cargo>,
    /// How it is protected
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Protection::Signed, Protection::Sealed])]
    protection: Vec<Protection>,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Client::Ropeway, Client::Smbclient])]
    clients: Vec<Client>,
    /// Counted rounds (one more goes first and is not counted)
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Multiplies the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Most connections of ropeway
    #[arg(long, default_value_t = 2)]
    channels: u16,
    /// Seconds after which a run is ended
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Further flags for ropeway, separated by spaces
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    ropeway_flags: Vec<String>,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// What the server demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Protection {
    /// Signatures
    Signed,
    /// Encryption
    Sealed,
}

impl Protection {
    fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }

    fn demand(self, builder: SmbdBuilder) -> SmbdBuilder {
        match self {
            Self::Signed => builder.signing(Signing::Mandatory).encryption(Encryption::Off),
            Self::Sealed => builder.encryption(Encryption::Required),
        }
    }
}

/// Measures everything asked for.
///
/// # Errors
/// If the server does not start, ropeway copies wrongly, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    ensure!(
        !arguments.clients.contains(&Client::Rsync),
        "an rsync daemon does not sign; `bench wan` has it"
    );
    let mut flags = vec!["--channels".to_owned(), arguments.channels.to_string()];
    flags.extend(arguments.ropeway_flags.iter().cloned());
    let (clients, notes) = installed(workspace, &arguments.clients, &flags);
    ensure!(!clients.is_empty(), "none of the tools is there");
    let machine = Machine::look();
    for &cargo in &arguments.work {
        let (name, text) = one_work(folder, arguments, cargo, &clients, (&machine, &notes))?;
        println!("\n{text}");
        let scale = if arguments.no_write { 0.0 } else { scale(arguments) };
        report::write(workspace, &name, &text, scale)?;
    }
    Ok(())
}

fn scale(arguments: &Arguments) -> f64 {
    match arguments.quick {
        true => arguments.scale / 20.0,
        false => arguments.scale,
    }
}

fn one_work(
    folder: &Path,
    arguments: &Arguments,
    cargo: Cargo,
    clients: &[Installed],
    (machine, notes): (&Machine, &[String]),
) -> Result<(String, String)> {
    let ground = Ground::new(folder, cargo, scale(arguments))?;
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let mut tables = Vec::new();
    for &protection in &arguments.protection {
        let smbd = protection.demand(ground.smbd()).start()?;
        println!("{}, {}", cargo.title(), protection.name());
        let course = Course {
            ground: &ground,
            smbd: &smbd,
            rsyncd: None,
            link: None,
            limit: Limit(Duration::from_secs(arguments.limit)),
            warm_up: !arguments.quick,
            runs,
        };
        tables.push((protection.name(), course.run(clients, &mut |_| Ok(()))?));
    }
    let section = SmbSection {
        title: cargo.title(),
        content: ground.content,
        runs,
        tables: &tables,
    };
    let text = remote_report::smb_section(&section, machine, clients, notes);
    Ok((format!("bench smb {}", cargo.name()), text))
}
