//! A private place for one test, and runs of the binary in it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The ordinary user for tests without privileges.
pub(crate) const NOBODY: u32 = 65_534;

/// A run that takes longer hangs. Generous: two cores may be shared with a whole build.
const HANG: Duration = Duration::from_secs(240);

/// Returns the program under test: the one built with the tests, or the one in `ROPEWAY_PROGRAM`
/// (an older version, to show that a test fails on it).
pub(crate) fn binary() -> String {
    std::env::var("ROPEWAY_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_ropeway").to_owned())
}

/// A folder with private state and configuration, removed on drop.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    runs: AtomicU32,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Makes a place in memory if possible: for very many files.
    pub(crate) fn in_memory() -> Self {
        let shared = Path::new("/dev/shm");
        if fs::metadata(shared).is_ok_and(|metadata| metadata.is_dir()) {
            Self::below(shared)
        } else {
            Self::new()
        }
    }

    pub(crate) fn below(parent: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ropeway-e2e-")
            .tempdir_in(parent)
            .unwrap();
        // Other users must have access.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in [".state", ".config", ".out", ".tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::create_dir(folder.path().join(".run")).unwrap();
        fs::set_permissions(folder.path().join(".run"), fs::Permissions::from_mode(0o700)).unwrap();
        Self {
            folder,
            runs: AtomicU32::new(0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a folder in it.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Creates a folder in it that `NOBODY` owns, if this process can change owners.
    pub(crate) fn folder_of_nobody(&self, name: &str) -> PathBuf {
        let path = self.folder(name);
        if super::is_root() {
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }

    /// Returns the path of `config.toml`.
    pub(crate) fn config_file(&self) -> PathBuf {
        let folder = self.join(".config/ropeway");
        fs::create_dir_all(&folder).unwrap();
        folder.join("config.toml")
    }

    /// Returns the folder of the job journals.
    pub(crate) fn jobs(&self) -> PathBuf {
        self.join(".state/ropeway/jobs")
    }

    /// Prepares the binary with a command (`copy`), without the caller's environment except the
    /// choice of I/O.
    pub(crate) fn ropeway(&self, command: &str) -> Run {
        let mut process = Command::new(binary());
        process.arg(command);
        self.prepare(process)
    }

    /// Prepares `copy --json SOURCE TARGET`, the most frequent command.
    pub(crate) fn copy(&self, source: impl AsRef<OsStr>, target: impl AsRef<OsStr>) -> Run {
        self.ropeway("copy").arg("--json").arg(source).arg(target)
    }

    /// Like [`ropeway`](Self::ropeway), as an ordinary user without any privilege.
    ///
    /// # Errors
    /// The reason why that is not possible here.
    pub(crate) fn ropeway_as_nobody(&self, command: &str) -> Result<Run, String> {
        super::needs(true, &["setpriv"])?;
        let binary = binary();
        let id = NOBODY.to_string();
        let as_nobody = |rest: &[&str]| {
            let mut process = Command::new("setpriv");
            process.args([
                "--reuid",
                &id,
                "--regid",
                &id,
                "--clear-groups",
                "--inh-caps=-all",
            ]);
            process.args(rest);
            process
        };
        let may = as_nobody(&["test", "-x", &binary])
            .status()
            .is_ok_and(|status| status.success());
        if !may {
            return Err("the binary is in a folder that other users cannot access".to_owned());
        }
        // Its own runtime folder is none of its business here: it gets one among temporary files.
        Ok(self
            .prepare(as_nobody(&[&binary, command]))
            .env("TMPDIR", self.join(".tmp")))
    }

    /// Like [`ropeway`](Self::ropeway), run by another program: `before` and its arguments.
    pub(crate) fn ropeway_by(&self, before: &[&str], command: &str) -> Run {
        let mut process = Command::new(before[0]);
        process.args(&before[1..]);
        process.args([binary(), command.into()]);
        self.prepare(process)
    }

    fn prepare(&self, mut process: Command) -> Run {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        process.env_clear().current_dir(self.path());
        for name in ["PATH", "TMPDIR", "TZ", "ROPEWAY_IO", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                process.env(name, value);
            }
        }
        process
            .env("HOME", self.path())
            // Tests of what is not finished yet.
            .env("ROPEWAY_FLEET", "unfinished")
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_STATE_HOME", self.join(".state"))
            .env("XDG_CONFIG_HOME", self.join(".config"))
            .env("XDG_RUNTIME_DIR", self.join(".run"))
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null());
        let out = self.join(format!(".out/{number}.out"));
        let err = self.join(format!(".out/{number}.err"));
        Run {
            process,
            out,
            err,
            hang: HANG,
        }
    }
}

/// A run to be started.
pub(crate) struct Run {
    process: Command,
    out: PathBuf,
    err: PathBuf,
    hang: Duration,
}

impl Run {
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.process.arg(argument);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.process.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.process.env(name, value);
        self
    }

    pub(crate) fn current_dir(mut self, folder: &Path) -> Self {
        self.process.current_dir(folder);
        self
    }

    /// Sets another time after which the run counts as hanging.
    pub(crate) fn hang_after(mut self, bound: Duration) -> Self {
        self.hang = bound;
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let shown = format!("{:?}", self.process);
        self.process
            .stdout(File::create(&self.out).unwrap())
            .stderr(File::create(&self.err).unwrap());
        let child = self
            .process
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        Running {
            child,
            shown,
            out: self.out,
            err: self.err,
            hang: self.hang,
            peak_kib: 0,
        }
    }

    pub(crate) fn run(self) -> Finished {
        self.start().wait()
    }

    /// Runs, and asserts exit code 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Finished {
        self.exits(0)
    }

    /// Runs, and asserts this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Finished {
        let finished = self.run();
        finished.assert_code(&[code]);
        finished
    }
}

/// A running process; killed on drop.
pub(crate) struct Running {
    child: Child,
    shown: String,
    out: PathBuf,
    err: PathBuf,
    hang: Duration,
    peak_kib: u64,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it catches a signal, which ends a process that does not.
    #[track_caller]
    pub(crate) fn catches(&mut self, signal: Signal) {
        let bit = 1_u64 << (signal.as_raw() - 1);
        let caught = self.until(|running| {
            let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
            set.is_some_and(|set| set & bit != 0)
        });
        assert!(caught, "{signal:?} is never caught: {}", self.shown);
    }

    /// Returns whether it is still running.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns its standard output so far.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    /// Returns its standard error so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    /// Returns a counter of the last complete line that has it; 0 before the first.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        last_counter(&self.stdout(), name)
    }

    /// Waits until a counter has reached a value.
    #[track_caller]
    pub(crate) fn reach(&mut self, name: &str, value: u64) {
        let reached = self.until(|running| running.counter(name) >= value);
        assert!(
            reached,
            "{name} never reached {value}: {}\n{}",
            self.stdout(),
            self.stderr()
        );
    }

    /// Polls until `done` is true or the run ends; returns whether it was true.
    pub(crate) fn until(&mut self, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = Instant::now() + self.hang;
        loop {
            if done(self) {
                return true;
            }
            if !self.runs() || Instant::now() >= end {
                return done(self);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Waits for its end, which must come in time.
    pub(crate) fn wait(mut self) -> Finished {
        let end = Instant::now() + self.hang;
        let status = loop {
            self.sample_memory();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= end {
                let seconds = self.hang.as_secs();
                let (out, err) = (self.stdout(), self.stderr());
                panic!(
                    "still running after {seconds} s: {}\n{}\n{err}",
                    self.shown,
                    tail(&out)
                );
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let finished = Finished {
            status,
            out: self.stdout(),
            err: self.stderr(),
            shown: self.shown.clone(),
            peak_kib: self.peak_kib,
        };
        assert!(
            !finished.err.contains("panicked at"),
            "it panicked: {}\n{}",
            finished.shown,
            finished.err
        );
        finished
    }

    /// Sends SIGKILL, then waits.
    pub(crate) fn kill(mut self) -> Finished {
        // The process may have ended already.
        let _ = self.child.kill();
        self.wait()
    }

    /// The high-water mark (proc_pid_status(5)) vanishes with the process, so it is read while the
    /// process runs.
    fn sample_memory(&mut self) {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.child.id())) else {
            return;
        };
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
        self.peak_kib = self.peak_kib.max(peak.unwrap_or(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A run that has ended.
pub(crate) struct Finished {
    status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
    shown: String,
    peak_kib: u64,
}

impl Finished {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Returns the peak resident memory in KiB, as last seen while it ran.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.peak_kib
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, codes: &[i32]) {
        let fits = self.code().is_some_and(|code| codes.contains(&code));
        assert!(fits, "{} instead of {codes:?}: {self}", self.status);
    }

    /// Returns every line of `--json` output.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let parse = |line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line:?}\n{self}"))
        };
        self.out.lines().map(parse).collect()
    }

    /// Returns the JSON lines of one type.
    #[track_caller]
    pub(crate) fn of_type(&self, kind: &str) -> Vec<Value> {
        self.json()
            .into_iter()
            .filter(|line| line["type"] == kind)
            .collect()
    }

    /// Returns the last line, which must be the summary.
    #[track_caller]
    pub(crate) fn summary(&self) -> Value {
        let last = self.json().pop().unwrap_or_else(|| panic!("no output: {self}"));
        assert_eq!(last["type"], "summary", "{self}");
        last
    }

    /// Returns a whole number of the summary.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let summary = self.summary();
        summary[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {name:?} in {summary}"))
    }

    /// Returns a counter of the last line that has it, summary or not; 0 if none has.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        last_counter(&self.out, name)
    }

    /// Returns whether anything printed contains this text, ignoring case.
    pub(crate) fn mentions(&self, what: &str) -> bool {
        let what = what.to_lowercase();
        [&self.out, &self.err]
            .iter()
            .any(|text| text.to_lowercase().contains(&what))
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            status,
            out,
            err,
            shown,
            ..
        } = self;
        write!(
            f,
            "{shown}\n{status}\n--- stdout\n{}\n--- stderr\n{}",
            tail(out),
            tail(err)
        )
    }
}

/// The output of a killed run may end in the middle of a line.
fn last_counter(out: &str, name: &str) -> u64 {
    let whole = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| line[name].as_u64())
        .unwrap_or(0)
}

/// Returns the end of a long text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
