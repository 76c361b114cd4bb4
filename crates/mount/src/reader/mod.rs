//! Reading the files of a mount as a program does, to bring them back into the kernel's memory.
//!
//! ```text
//! PageReader ── pipe ──> a process: opens, cachestat(2), read(2) ──> kernel ──> this process ──> store
//! ```
//!
//! The reads are done by a process of its own (`ropeway-mount-reader`). A thread that waited for its
//! own process's answers would keep /dev/fuse open after a kill, so that the connection would never
//! end and the thread neither. Another process is like any program: it gets ENOTCONN.
//!
//! Data is not pushed into the kernel's memory (FUSE_NOTIFY_STORE): the kernel would put it over what
//! a program has just written through a memory map, and would know it only while it knows the node.
//! Reads obey the kernel's own locks.
//!
//! A file is open only while it is asked about or read, so that `umount` finds the mount busy for a
//! moment only. The process does not hold the mount otherwise.

mod protocol;
mod serve;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_vfs::RelPath;
use ropeway_vfs::pages::KernelPages;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::protocol::{ANSWER_BYTES, Answer, Question, What};

/// Name under which the program is a reader.
const NAME: &str = "ropeway-mount-reader";
/// Longest time of an answer. A guess: a store that is lost answers later than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the files of a mount by a process of its own, which is started when it is needed.
pub struct PageReader {
    program: PathBuf,
    mountpoint: PathBuf,
    device: String,
    process: Arc<AtomicU32>,
    child: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    questions: ChildStdin,
    answers: ChildStdout,
}

/// Acts as a reader if the program was started as one; returns whether it was.
pub fn reader(arguments: &[OsString]) -> bool {
    let [name, mountpoint, device] = arguments else {
        return false;
    };
    if name != NAME {
        return false;
    }
    // Signals to the session of the process that serves must not reach the reader.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let (mut questions, mut answers) = (io::stdin().lock(), io::stdout().lock());
    let device = device.to_string_lossy();
    // The end of the process that serves is the end.
    let _ = serve::serve(Path::new(mountpoint), &device, &mut questions, &mut answers);
    true
}

impl PageReader {
    /// Makes a reader for the mount of a device on a path. `program` calls [`reader`] first; `process`
    /// gets the number of the process that reads.
    pub(crate) fn new(program: &Path, mountpoint: &Path, device: &str, process: Arc<AtomicU32>) -> Self {
        Self {
            program: program.to_owned(),
            mountpoint: mountpoint.to_owned(),
            device: device.to_owned(),
            process,
            child: Mutex::default(),
        }
    }

    fn start(&self) -> io::Result<Running> {
        let mut child = Command::new(&self.program)
            .arg0(NAME)
            .arg(&self.mountpoint)
            .arg(OsStr::new(&self.device))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        self.process.store(child.id(), Ordering::Release);
        match (child.stdin.take(), child.stdout.take()) {
            (Some(questions), Some(answers)) => Ok(Running {
                child,
                questions,
                answers,
            }),
            _ => Err(io::Error::other("no pipe to the reading process")),
        }
    }

    fn ask(&self, question: &Question) -> io::Result<Answer> {
        let bytes = question.encode();
        let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut running = self.child.lock();
        if running.is_none() {
            *running = Some(self.start()?);
        }
        let Some(child) = running.as_mut() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let answer = child.ask(&bytes);
        if answer.is_err()
            && let Some(child) = running.take()
        {
            // Another process may get its number once it is waited for.
            self.process.store(0, Ordering::Release);
            child.end();
        }
        let answer = answer?;
        match answer.errno {
            0 => Ok(answer),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Running {
    fn ask(&mut self, question: &[u8]) -> io::Result<Answer> {
        self.questions.write_all(question)?;
        let mut answer = [0; ANSWER_BYTES];
        let (mut at, deadline) = (0, Instant::now() + PATIENCE);
        while at < ANSWER_BYTES {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut ready = [PollFd::new(&self.answers, PollFlags::IN)];
            if poll(&mut ready, Some(&left))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.answers.read(&mut answer[at..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => at += count,
            }
        }
        Ok(Answer::decode(&answer))
    }

    /// Ends the process. It may wait for the store, so nobody waits for it here.
    fn end(mut self) {
        let _ = self.child.kill();
        let waiting = std::thread::Builder::new().name("reader-end".into());
        let _ = waiting.spawn(move || self.child.wait());
    }
}

impl Drop for PageReader {
    fn drop(&mut self) {
        if let Some(child) = self.child.get_mut().take() {
            self.process.store(0, Ordering::Release);
            child.end();
        }
    }
}

impl KernelPages for PageReader {
    fn kept(&self, path: &RelPath, offset: u64, length: u64, step: u64) -> io::Result<Option<Vec<bool>>> {
        let answer = self.ask(&Question {
            what: What::Kept,
            offset,
            length,
            step,
            path: path.clone(),
        })?;
        let steps = length.div_ceil(step);
        let kept = (0..steps).map(|number| answer.kept >> number & 1 == 1);
        Ok(answer.is_known.then(|| kept.collect()))
    }

    fn read(&self, path: &RelPath, offset: u64, length: u64) -> io::Result<()> {
        let question = Question {
            what: What::Read,
            offset,
            length,
            step: length.max(1),
            path: path.clone(),
        };
        self.ask(&question).map(drop)
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.load(Ordering::Acquire)).filter(|process| *process != 0)
    }
}
