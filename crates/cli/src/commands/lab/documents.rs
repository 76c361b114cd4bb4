//! `ropeway lab documents`: the same documents in the usual order, day after day, over a long line.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::args::LabDocumentsArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::print_line;

/// Port of the far server, in its own namespace.
const PORT: u16 = 4450;
const USER: &str = "lab";
const PASSWORD: &str = "documents";
/// Folders of the share, and sizes of its documents in bytes.
const FOLDERS: u64 = 8;
const SIZES: std::ops::Range<usize> = 4 << 10..256 << 10;
/// What a program reads first.
const FIRST_READ: usize = 4096;
/// How long a server or a mount may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A process that is ended when it is dropped.
struct Running(Child);

impl Running {
    /// Ends it, and waits for that.
    fn end(&mut self) {
        if let Ok(None) = self.0.try_wait()
            && let Some(pid) = Pid::from_raw(self.0.id().cast_signed())
        {
            _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The place of the experiment. Its processes end before their files go.
struct Lab<'a> {
    args: &'a LabDocumentsArgs,
    program: PathBuf,
    far: String,
    order: Vec<PathBuf>,
    bytes: u64,
    /// Half of the line's round trip: a read that takes longer has waited for the line.
    half: Duration,
    _server: Running,
    scratch: tempfile::TempDir,
}

/// Runs the days, without and with predictions, and returns the exit code.
///
/// # Errors
/// There is no line, or the server or a mount fails.
pub(super) fn run(args: &LabDocumentsArgs) -> Result<u8, Failure> {
    let (Ok(far), Ok(netns)) = (std::env::var("ROPEWAY_FAR"), std::env::var("ROPEWAY_FAR_NETNS")) else {
        return Err(Failure::usage("lab documents needs a line to a far end")
            .hint("run it over one: ropeway lab link --rtt 75ms --rate 622mbit -- ropeway lab documents"));
    };
    let failed = |error: io::Error| Failure::of_end(format!("the lab failed: {error}"), &error, code::TARGET);
    let lab = Lab::new(args, far, &netns).map_err(failed)?;
    if !args.json {
        let round_trip = lab.half.as_secs_f64() * 2e3;
        print_line(&format!(
            "{} documents, {:.1} MB, round trip {round_trip:.1} ms; seconds until the first 4 KiB are there",
            args.files,
            lab.bytes as f64 / 1e6
        ));
        print_line("prefetch  day  without waiting  median ms  p90 ms");
    }
    for prefetch in ["off", "auto"] {
        let cache = lab.scratch.path().join(format!("cache-{prefetch}"));
        lab.create_cache(&cache).map_err(failed)?;
        for number in 1..=args.days {
            let times = lab.day(&cache, prefetch).map_err(failed)?;
            lab.report(prefetch, number, times);
        }
    }
    Ok(code::DONE)
}

impl<'a> Lab<'a> {
    fn new(args: &'a LabDocumentsArgs, far: String, netns: &str) -> io::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("ropeway-documents-").tempdir()?;
        let program = std::env::current_exe()?;
        let (mut order, bytes) = make_documents(&scratch.path().join("share"), args)?;
        fastrand::Rng::with_seed(args.seed).shuffle(&mut order);
        fs::create_dir(scratch.path().join("mounted"))?;
        let mut serve = Command::new("nsenter");
        serve.arg(format!("--net={netns}")).arg(&program);
        serve.args(["serve", "data=share", "--user", USER, "--listen"]);
        serve.arg(format!("{far}:{PORT}"));
        let (server, out) = start(private(&mut serve, scratch.path()))?;
        until_served(out)?;
        let half = round_trip(&far)? / 2;
        Ok(Self {
            args,
            program,
            far,
            order,
            bytes,
            half,
            _server: server,
            scratch,
        })
    }

    fn ropeway(&self) -> Command {
        let mut command = Command::new(&self.program);
        private(&mut command, self.scratch.path());
        command
    }

    /// Makes an empty cache with room for all documents.
    fn create_cache(&self, cache: &Path) -> io::Result<()> {
        let size = (self.bytes * 2 + (128 << 20)).to_string();
        let mut create = self.ropeway();
        create
            .args(["boost", "create"])
            .arg(cache)
            .args(["--size", &size]);
        match create.stdout(Stdio::null()).status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("no cache could be made")),
        }
    }

    /// Mounts the share, opens and reads all documents, and unmounts it. Nothing in memory outlives
    /// a day. Returns how long the open and the first read of each took.
    fn day(&self, cache: &Path, prefetch: &str) -> io::Result<Vec<Duration>> {
        let at = self.scratch.path().join("mounted");
        let before = fs::metadata(&at)?.dev();
        let mut mount = self.ropeway();
        mount
            .arg("mount")
            .arg(format!("smb://{USER}@{}:{PORT}/data", self.far));
        mount.arg(&at).arg("--foreground").arg("--boost").arg(cache);
        mount.args(["--prefetch", prefetch]);
        let (mut mounted, _out) = start(&mut mount)?;
        let start = Instant::now();
        while fs::metadata(&at)?.dev() == before {
            if mounted.0.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                return Err(io::Error::other("the share was not mounted"));
            }
            std::thread::sleep(POLL);
        }
        let mut first_reads = Vec::new();
        for document in &self.order {
            first_reads.push(read(&at.join(document))?);
            std::thread::sleep(self.args.pause);
        }
        mounted.end();
        Ok(first_reads)
    }

    fn report(&self, prefetch: &str, number: u32, mut times: Vec<Duration>) {
        times.sort_unstable();
        let ready = times.iter().filter(|time| **time < self.half).count();
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64();
        if self.args.json {
            let line = json!({
                "type": "lab_documents",
                "version": 1,
                "prefetch": prefetch,
                "day": number,
                "documents": times.len(),
                "without_waiting": ready,
                "median_s": at(0.5),
                "p90_s": at(0.9),
                "round_trip_s": self.half.as_secs_f64() * 2.0,
            });
            print_line(&line.to_string());
            return;
        }
        print_line(&format!(
            "{prefetch:8}  {number:3}  {:>15}  {:9.1}  {:6.1}",
            format!("{ready} of {}", times.len()),
            at(0.5) * 1e3,
            at(0.9) * 1e3
        ));
    }
}

/// Gives a command its own configuration and state, and the password.
fn private<'c>(command: &'c mut Command, scratch: &Path) -> &'c mut Command {
    for (name, folder) in [("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")] {
        command.env(name, scratch.join(folder));
    }
    command.env("ROPEWAY_PASSWORD", PASSWORD).current_dir(scratch)
}

fn start(command: &mut Command) -> io::Result<(Running, ChildStdout)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Running(command.spawn()?);
    let out = child.0.stdout.take();
    let out = out.ok_or_else(|| io::Error::other("a process has no output"))?;
    Ok((child, out))
}

/// Waits until the server says that it listens, and lets it say the rest.
fn until_served(out: ChildStdout) -> io::Result<()> {
    let mut lines = BufReader::new(out).lines();
    let listens = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("smb://"));
    std::thread::Builder::new().spawn(move || lines.for_each(drop))?;
    match listens {
        true => Ok(()),
        false => Err(io::Error::other("the server did not start")),
    }
}

/// The least of some TCP connects.
fn round_trip(far: &str) -> io::Result<Duration> {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        TcpStream::connect((far, PORT))?;
        least = least.min(start.elapsed());
    }
    Ok(least)
}

/// Writes the documents, and returns their paths below the folder and their bytes.
fn make_documents(share: &Path, args: &LabDocumentsArgs) -> io::Result<(Vec<PathBuf>, u64)> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut bytes = 0;
    let mut documents = Vec::new();
    for number in 0..args.files {
        let folder = format!("folder {}", number % FOLDERS);
        fs::create_dir_all(share.join(&folder))?;
        let mut content = vec![0; random.usize(SIZES)];
        random.fill(&mut content);
        let document = Path::new(&folder).join(format!("document {number:04}"));
        fs::write(share.join(&document), &content)?;
        bytes += content.len() as u64;
        documents.push(document);
    }
    Ok((documents, bytes))
}

/// Opens a document and reads it; returns how long the open and the first read took.
fn read(path: &Path) -> io::Result<Duration> {
    let start = Instant::now();
    let mut file = File::open(path)?;
    let mut first = [0; FIRST_READ];
    file.read_exact(&mut first)?;
    let took = start.elapsed();
    io::copy(&mut file, &mut io::sink())?;
    Ok(took)
}
