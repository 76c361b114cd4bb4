//! A private `ropeway serve` on this machine: a port of its own on loopback, ended by its id.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::tail;

/// How long a server may take to say where it listens, and to stop. A guess; both take milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked. A guess.
const LOOK: Duration = Duration::from_millis(5);

/// What to serve, and how.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    /// The program: `ropeway`, or one that takes the same arguments behind its name.
    pub(crate) program: &'a Path,
    /// Where its password file and its log go.
    pub(crate) scratch: &'a Path,
    /// Names and folders.
    pub(crate) shares: &'a [(&'a str, &'a Path)],
    /// The only user.
    pub(crate) user: &'a str,
    /// Its password.
    pub(crate) password: &'a str,
    /// Further flags of `serve`.
    pub(crate) flags: &'a [&'a str],
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Served {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// If it does not start; the end of its log is in the message.
    pub(crate) fn start(wish: &Wish<'_>) -> Result<Self> {
        let secret = wish.scratch.join("password");
        // Never another's: made with its mode, in a private folder.
        if !secret.exists() {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&secret)?;
            writeln!(file, "{}", wish.password)?;
        }
        let (said, log) = (wish.scratch.join("server.out"), wish.scratch.join("server.log"));
        let mut command = Command::new(wish.program);
        command.arg("serve").args(wish.flags);
        command.arg("--listen").arg(format!("{}:0", Ipv4Addr::LOCALHOST));
        command
            .args(["--user", wish.user, "--password-file"])
            .arg(&secret);
        for (name, folder) in wish.shares {
            let mut word = std::ffi::OsString::from(format!("{name}="));
            word.push(folder);
            command.arg(word);
        }
        for (variable, name) in [
            ("HOME", "home"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CONFIG_HOME", "config"),
        ] {
            command.env(variable, wish.scratch.join(name));
        }
        command
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(File::create(&said)?)
            .stderr(File::options().create(true).append(true).open(&log)?);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", wish.program.display()))?;
        let mut served = Self {
            child,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            log,
        };
        served.address = served.listening(&said)?;
        Ok(served)
    }

    fn listening(&mut self, said: &Path) -> Result<SocketAddr> {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(said).unwrap_or_default();
            if let Some(address) = said_address(&text) {
                return Ok(address);
            }
            if let Some(how) = self.ended() {
                bail!(
                    "the server ended ({how}) before it listened:\n{}",
                    tail(&self.log, 10)
                );
            }
            if Instant::now() >= end {
                bail!(
                    "the server does not say where it listens:\n{text}{}",
                    tail(&self.log, 10)
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok()?.map(|status| status.to_string())
    }

    /// User and system time so far, of all its threads (proc_pid_stat(5): words 14 and 15).
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
        let words = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = words.filter_map(|word| word.parse::<u64>().ok()).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
    }

    /// What it wrote to its standard error so far (this one and those before it with the same scratch folder).
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Peak resident memory in KiB; 0 if it cannot be told.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
            .unwrap_or(0)
    }

    /// Asks it to stop and waits.
    ///
    /// # Errors
    /// If it does not stop, or not well.
    pub(crate) fn stop(mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the server stopped with {status}:\n{}", tail(&self.log, 10)),
                None => thread::sleep(LOOK),
            }
        }
        bail!("the server did not stop within {} s", PATIENCE.as_secs())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in a line such as `smb://ann@127.0.0.1:4450/share`.
fn said_address(text: &str) -> Option<SocketAddr> {
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .find_map(|line| {
            let rest = line.trim().strip_prefix("smb://")?;
            let place = rest.split('/').next()?;
            let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
            host.parse().ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_where_it_is() {
        assert_eq!(
            said_address("hello\nsmb://a@b@127.0.0.1:99/x\n"),
            Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 99)))
        );
        assert_eq!(said_address("smb://ann@127.0.0.1:9"), None, "the line may go on");
        assert_eq!(said_address("smb://[::1]:7/x\n").map(|at| at.port()), Some(7));
    }

    #[test]
    fn a_server_that_ends_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let wish = Wish {
            program: Path::new("false"),
            scratch: folder.path(),
            shares: &[("share", folder.path())],
            user: "ann",
            password: "x",
            flags: &[],
        };
        let error = Served::start(&wish).unwrap_err().to_string();
        assert!(error.contains("ended (exit status: 1)"), "{error}");
    }
}
