//! `cargo xtask bench server`: `ropeway serve` beside smbd and the crate smb-server.
//!
//! All servers serve the same folder in memory and run at the same time, idle while it is not their turn; each round
//! gives every client with every server one turn at every task. What a client copied is counted, and with ours compared.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::course::{PREFIX, SETTLED, bounded, empty, machine_time, own_time, reason, remove_leftovers};
use super::far::{Far, Installed, SHARE, Server, USER};
use super::record::{Program, Visit, now};
use super::remote_client::{Client, Direction, PASSWORD};
use super::report::{self, Machine, rotated};
use super::server_record::{Sample, Store};
use super::server_report;
use super::smb::Protection;
use crate::compare::same_content;
use crate::process::{capture, check_interrupt, measure};
use crate::tools;
use crate::worksets::{Cargo, Content, count};
use crate::workspace::Workspace;

/// Entries of the folder that is listed.
const ENTRIES: u64 = 100_000;
/// Connections of ropeway's client in the published table.
const CHANNELS: u16 = 2;
/// A run that takes longer is ended.
const LIMIT: Duration = Duration::from_secs(300);
/// `--quick` divides the work by this.
const QUICK: f64 = 20.0;

/// Options of `bench server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to do
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Work::ALL)]
    work: Vec<Work>,
    /// How it is protected
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Protection::ALL)]
    protection: Vec<Protection>,
    /// Servers to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Server::ALL)]
    servers: Vec<Server>,
    /// Counted rounds (a first one goes before)
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// Measure again what is kept
    #[arg(long)]
    fresh: bool,
    /// Most connections of ropeway's client
    #[arg(long, default_value_t = CHANNELS)]
    channels: u16,
    /// This build for both ends [default: a release build]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Work {
    /// One file of 1 GiB, read and written
    Bulk,
    /// 3,000 files of 1 to 64 KB, read and written
    Small,
    /// A folder of 100,000 entries, listed
    List,
}

impl Work {
    /// All, in the order of the tables.
    pub(super) const ALL: [Self; 3] = [Self::Bulk, Self::Small, Self::List];

    /// Its name on the command line, and its folder's.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Small => "small",
            Self::List => "list",
        }
    }

    /// The ways it is done.
    pub(super) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Bulk | Self::Small => &Direction::ALL,
            Self::List => &[Direction::Read],
        }
    }

    fn make(self, folder: &Path, scale: f64) -> Result<Content> {
        match self {
            Self::Bulk => Cargo::Bulk.generate(folder, scale),
            Self::Small => Cargo::Small.generate(folder, scale),
            Self::List => {
                fs::create_dir(folder)?;
                let files = (ENTRIES as f64 * scale) as u64;
                for number in 0..files {
                    fs::write(folder.join(format!("entry number {number:06}.txt")), b"")?;
                }
                Ok(Content { files, bytes: 0 })
            }
        }
    }
}

/// A row's name in the file of results.
pub(super) fn key(work: Work, direction: Direction, protection: Protection) -> String {
    format!("{}-{}-{}", work.name(), direction.name(), protection.name())
}

/// Clients, and where each is.
type Clients = Vec<(Client, PathBuf, Program)>;

/// Measures everything asked for.
///
/// # Errors
/// If ropeway does not build, start or copy rightly, nothing else is there, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    // Before a build keeps the processors busy.
    let machine = Machine::look();
    let ropeway = match &arguments.binary {
        Some(binary) => binary
            .canonicalize()
            .with_context(|| format!("there is no {}", binary.display()))?,
        None => {
            crate::ci::build(workspace)?;
            workspace.ropeway()
        }
    };
    let mut notes = Vec::new();
    let servers = servers(workspace, &ropeway, &arguments.servers, &mut notes)?;
    let clients = clients(&ropeway, &mut notes)?;
    let scale = if arguments.quick { 1.0 / QUICK } else { 1.0 };
    let name = if arguments.quick { "server-quick" } else { "server" };
    let mut store = Store::open(folder, name)?;
    for &work in &arguments.work {
        let ground = Ground::new(folder, work, scale)?;
        for &protection in &arguments.protection {
            let bench = Bench {
                arguments,
                ground: &ground,
                servers: &servers,
                clients: &clients,
                machine: &machine,
                protection,
            };
            bench.run(&mut store)?;
        }
    }
    let text = server_report::section(&store, &notes, !arguments.quick).context("nothing was measured")?;
    println!("\n{text}");
    // Another build, or other flags than the plain command's, are not what the table says.
    if !arguments.no_write && arguments.binary.is_none() && arguments.channels == CHANNELS {
        report::write(workspace, "bench server", &text, scale)?;
    }
    failures(&store)
}

/// An error if our server failed in what was measured.
fn failures(store: &Store) -> Result<()> {
    let mut faults = Vec::new();
    for work in Work::ALL {
        for (&direction, protection) in work
            .directions()
            .iter()
            .flat_map(|direction| Protection::ALL.map(|protection| (direction, protection)))
        {
            let key = key(work, direction, protection);
            let cells = store.get(&key).map(|row| row.cells.iter()).into_iter().flatten();
            for cell in cells.filter(|cell| cell.server == Server::Ropeway) {
                if let Some(reason) = &cell.failed {
                    faults.push(format!("{key}, {}: {reason}", cell.client.name()));
                }
            }
        }
    }
    ensure!(
        faults.is_empty(),
        "ropeway serve did not do everything: {}",
        faults.join("; ")
    );
    Ok(())
}

fn servers(
    workspace: &Workspace,
    ropeway: &Path,
    wanted: &[Server],
    notes: &mut Vec<String>,
) -> Result<Vec<Installed>> {
    let mut there = Vec::new();
    for server in wanted {
        match server.install(workspace, ropeway) {
            Ok(installed) => there.push(installed),
            Err(error) if *server == Server::Ropeway => return Err(error.context("ropeway is not to be had")),
            Err(error) => notes.push(format!("{} was left out: {error:#}", server.name())),
        }
    }
    ensure!(!there.is_empty(), "none of the servers is there");
    Ok(there)
}

fn clients(ropeway: &Path, notes: &mut Vec<String>) -> Result<Clients> {
    let version = |path: &Path| capture(Command::new(path).arg("--version"));
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let own = Program::of(ropeway, first(version(ropeway)?))?;
    let mut there = vec![(Client::Ropeway, ropeway.to_owned(), own)];
    match tools::require("smbclient") {
        Ok(path) => {
            let program = Program::of(&path, format!("smbclient {}", first(version(&path)?)))?;
            there.push((Client::Smbclient, path, program));
        }
        Err(error) => notes.push(format!("smbclient was left out: {error:#}")),
    }
    Ok(there)
}

/// The folder that is served, with the work in it, and those on this side; in memory, removed when dropped.
#[derive(Debug)]
struct Ground {
    folder: tempfile::TempDir,
    work: Work,
    content: Content,
}

impl Ground {
    fn new(fallback: &Path, work: Work, scale: f64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory } else { fallback };
        remove_leftovers(parent);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(parent)?;
        for name in ["served", "served/target", "near", "scratch", "servers"] {
            fs::create_dir(folder.path().join(name))?;
        }
        println!("making {} in {}", work.name(), parent.display());
        let content = work.make(&folder.path().join("served").join(work.name()), scale)?;
        let secret = folder.path().join("servers/credentials");
        fs::write(&secret, format!("username={USER}\npassword={PASSWORD}\n"))?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            folder,
            work,
            content,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// All rows of one work with one protection.
struct Bench<'a> {
    arguments: &'a Arguments,
    ground: &'a Ground,
    servers: &'a [Installed],
    clients: &'a Clients,
    machine: &'a Machine,
    protection: Protection,
}

/// One run to make: indices into clients and servers, and the way.
type Turn = (usize, usize, Direction);

impl Bench<'_> {
    fn run(&self, store: &mut Store) -> Result<()> {
        let started = self.start(store)?;
        let mut turns: Vec<Turn> = Vec::new();
        for (server, far) in started.iter().enumerate() {
            for client in 0..self.clients.len() {
                if far.is_some() {
                    turns.extend(
                        self.ground
                            .work
                            .directions()
                            .iter()
                            .map(|&way| (client, server, way)),
                    );
                }
            }
        }
        let rounds = if self.arguments.quick {
            1
        } else {
            self.arguments.runs + 1
        };
        for round in 0..rounds {
            for turn in rotated(&turns, round * self.ground.work.directions().len()) {
                self.turn(turn, &started, store)?;
            }
        }
        Ok(())
    }

    /// Starts all servers and makes room for their results.
    fn start(&self, store: &mut Store) -> Result<Vec<Option<Far>>> {
        let conditions = format!("{}, {} channels", self.machine.kind(), self.arguments.channels);
        for &direction in self.ground.work.directions() {
            let row = store.row(&key(self.ground.work, direction, self.protection));
            row.prepare(&conditions, self.ground.content);
            row.visits.push(Visit {
                at: now(),
                machine: self.machine.describe(),
                busy: self.machine.busy(),
            });
            for server in self.servers {
                for (client, _, program) in self.clients {
                    row.cell(
                        *client,
                        server.server,
                        [program, &server.program],
                        self.arguments.fresh,
                    );
                }
            }
        }
        let mut started = Vec::new();
        for server in self.servers {
            let name = server.server.name();
            let scratch = self
                .ground
                .at("servers")
                .join(format!("{name} {}", self.protection.name()));
            match server.start(&self.ground.at("served"), &scratch, self.protection) {
                Ok(far) => started.push(Some(far)),
                Err(error) if server.server == Server::Ropeway => return Err(error),
                Err(error) => {
                    println!("  left out: {name}: {error:#}");
                    for &direction in self.ground.work.directions() {
                        let row = store.row(&key(self.ground.work, direction, self.protection));
                        let cells = row.cells.iter_mut().filter(|cell| cell.server == server.server);
                        cells.for_each(|cell| cell.failed = Some(reason(&error)));
                    }
                    started.push(None);
                }
            }
        }
        store.save()?;
        Ok(started)
    }

    fn turn(&self, turn: Turn, started: &[Option<Far>], store: &mut Store) -> Result<()> {
        let (client, server, direction) = turn;
        let (name, far) = (self.servers[server].server, started[server].as_ref());
        let far = far.context("the server is not there")?;
        let (kind, _, program) = &self.clients[client];
        let row = store.row(&key(self.ground.work, direction, self.protection));
        let cell = row.cell(*kind, name, [program, &self.servers[server].program], false);
        if cell.samples.len() >= self.arguments.runs {
            return Ok(());
        }
        let result = self.one(turn, far);
        check_interrupt()?;
        print!(
            "  {:5} {:6} {:5} {:10} {:15}",
            self.ground.work.name(),
            self.protection.name(),
            direction.name(),
            kind.name(),
            name.name()
        );
        match result {
            Ok(sample) => {
                println!(
                    "{:8.2} s  server {:6.2} s, {:7.1} MiB",
                    sample.seconds, sample.server_cpu, sample.server_mib
                );
                cell.failed = None;
                if cell.warmed || self.arguments.quick {
                    cell.samples.push(sample);
                } else {
                    cell.warmed = true;
                }
            }
            Err(error) => {
                println!(" failed: {}", reason(&error));
                cell.failed = Some(reason(&error));
            }
        }
        store.save()
    }

    fn one(&self, (client, server, direction): Turn, far: &Far) -> Result<Sample> {
        let (target, near, scratch) = (
            self.ground.at("served/target"),
            self.ground.at("near"),
            self.ground.at("scratch"),
        );
        for folder in [&target, &near, &scratch] {
            empty(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let (kind, path, _) = &self.clients[client];
        let mut command = match kind {
            Client::Ropeway => self.ropeway(path, direction, far),
            _ => self.smbclient(path, direction, far)?,
        };
        for (variable, name) in [
            ("HOME", "home"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CONFIG_HOME", "config"),
        ] {
            command.env(variable, scratch.join(name));
        }
        let log = scratch.join("log");
        let (machine, own, cpu, at) = (machine_time(), own_time(), far.cpu(), Instant::now());
        let (usage, memory_kib) = far.watched(|| measure(&bounded(&command, LIMIT), &log));
        let usage = usage?;
        thread::sleep(SETTLED);
        let server_cpu = far.cpu().saturating_sub(cpu);
        let known = usage.cpu + server_cpu + own_time().saturating_sub(own);
        let others = machine_time().saturating_sub(machine).saturating_sub(known);
        self.check(self.servers[server].server, direction, &log)?;
        Ok(Sample {
            seconds: usage.wall.as_secs_f64(),
            client_cpu: usage.cpu.as_secs_f64(),
            server_cpu: server_cpu.as_secs_f64(),
            server_mib: memory_kib as f64 / 1024.0,
            others: others.as_secs_f64() / at.elapsed().as_secs_f64().max(f64::MIN_POSITIVE),
        })
    }

    /// Whether everything came over.
    fn check(&self, server: Server, direction: Direction, log: &Path) -> Result<()> {
        let content = self.ground.content;
        if self.ground.work == Work::List {
            let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
            let listed = text.lines().filter(|line| line.contains("entry number ")).count() as u64;
            ensure!(
                listed == content.files,
                "listed {listed} of {} entries",
                content.files
            );
            return Ok(());
        }
        let copy = match direction {
            Direction::Read => self.ground.at("near/copy"),
            Direction::Write => self.ground.at("served/target/copy"),
        };
        let found = count(&copy)?;
        ensure!(found == content, "copied {found:?} of {content:?}");
        if server == Server::Ropeway {
            let source = self.ground.at("served").join(self.ground.work.name());
            same_content(&source, &copy).context("copied wrongly")?;
        }
        Ok(())
    }

    fn ropeway(&self, path: &Path, direction: Direction, far: &Far) -> Command {
        let work = self.ground.work;
        let url = |place: &str| format!("smb://{USER}@{}/{SHARE}/{place}", far.address());
        let mut command = Command::new(path);
        command.env("ROPEWAY_PASSWORD", PASSWORD);
        let channels = self.arguments.channels.to_string();
        match (work, direction) {
            (Work::List, _) => command.arg("ls").arg(url(work.name())),
            (_, Direction::Read) => command
                .args(["copy", "--channels", &channels, "-T"])
                .arg(url(work.name()))
                .arg(self.ground.at("near/copy")),
            (_, Direction::Write) => command
                .args(["copy", "--channels", &channels, "-T"])
                .arg(self.ground.at("served").join(work.name()))
                .arg(url("target/copy")),
        };
        command
    }

    fn smbclient(&self, path: &Path, direction: Direction, far: &Far) -> Result<Command> {
        let work = self.ground.work;
        let commands = match (work, direction) {
            (Work::List, _) => format!("cd {}; ls", work.name()),
            (_, Direction::Read) => {
                let copy = self.ground.at("near/copy");
                fs::create_dir(&copy)?;
                format!(
                    "cd {}; lcd \"{}\"; prompt OFF; recurse ON; mget *",
                    work.name(),
                    copy.display()
                )
            }
            (_, Direction::Write) => format!(
                "cd target; mkdir copy; cd copy; lcd \"{}\"; prompt OFF; recurse ON; mput *",
                self.ground.at("served").join(work.name()).display()
            ),
        };
        let address = far.address();
        let mut command = Command::new(path);
        command
            .args(["--configfile", "/dev/null", "--port", &address.port().to_string()])
            .arg("--authentication-file")
            .arg(self.ground.at("servers/credentials"))
            .arg(match self.protection {
                Protection::Signed => "--client-protection=sign",
                Protection::Sealed => "--client-protection=encrypt",
            })
            .arg(format!("//{}/{SHARE}", address.ip()))
            .args(["-c", &commands]);
        Ok(command)
    }
}
