//! `ropeway demo`: shows a copy that is killed and resumed, and proves its result.
//!
//! It creates a tree, copies it with a child process, kills the child halfway, resumes, verifies,
//! compares, and reports what was sent twice. Then it copies both ways over an emulated WAN, next
//! to other clients. All results come from the children's output and from the trees.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_lab::run::LabError;
use ropeway_live::Part;
use serde_json::Value;

use crate::args::DemoArgs;
use crate::demo::child::{ChildResult, Children};
use crate::demo::tree::{self, TreeStats};
use crate::demo::wan;
use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::live::{self, RunPart};
use crate::ui::format;
use crate::ui::messages::{Color, paint, print_line};

/// Rate of the first run. Without a limit, the copy would end before a signal arrives at its half.
const FIRST_RATE: &str = "32M";
/// Rate of the second run. It is no real limit, but it keeps the data on the same path (through
/// this program, not inside the kernel), so that sent bytes are counted in the same way.
const SECOND_RATE: &str = "8G";

/// Maximum number of bytes that may be sent twice: four seconds at [`FIRST_RATE`], two from one
/// checkpoint to the next and two more for its flush, and the contents of a copy's buffer pool.
/// Bytes that are not durable are sent again.
const TWICE_MAX: u64 = 4 * (32 << 20) + (32 << 20);

/// Steps of the demo.
const STEPS: u64 = 5;

/// Runs the command and returns its exit code.
///
/// # Errors
/// A result of the demo is wrong, or the demo could not be set up.
pub(crate) fn run(args: &DemoArgs) -> Result<u8, Failure> {
    let start = Instant::now();
    // Must run before any thread is started.
    let relay = super::lab::needs_relay();
    let live = live::start("demo");
    let part = RunPart::new("demo", "copy, kill, resume, verify");
    let _registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder::make(&parent, args.keep)?;
    let children = Arc::new(
        Children::new(&folder.path.join("private")).map_err(|error| setup_failure("start", &error))?,
    );
    let runtime = job::runtime()?;
    let mut signals = runtime.block_on(async { Signals::catch() })?;
    let on_signal = Arc::clone(&children);
    let stop = Arc::new(AtomicBool::new(false));
    let stop_wan = Arc::clone(&stop);
    runtime.spawn(async move {
        signals.stop().await;
        stop_wan.store(true, Ordering::Release);
        on_signal.stop();
    });
    let result = Demo {
        folder: &folder,
        children: &children,
        seed: args.seed,
        relay,
        stop: &stop,
        part: &part,
    }
    .play(start);
    runtime.shutdown_background();
    if children.is_stopped() {
        return Err(Failure::new(
            code::INTERRUPTED,
            "interrupted; everything is removed",
        ));
    }
    result.map(|()| code::DONE)
}

/// The demo's folder, and its child processes.
struct Demo<'a> {
    folder: &'a Folder,
    children: &'a Children,
    seed: u64,
    relay: bool,
    stop: &'a AtomicBool,
    /// What other processes see.
    part: &'a RunPart,
}

impl Demo<'_> {
    /// Begins a step.
    fn say(&self, number: u32, text: &str) {
        self.part.planned(STEPS, u64::from(number - 1));
        self.part.step(text);
        say(number, text);
    }

    fn play(&self, start: Instant) -> Result<(), Failure> {
        let (source, target) = (self.folder.path.join("source"), self.folder.path.join("target"));
        self.say(
            1,
            &format!("creating a mixed tree in {}", self.folder.path.display()),
        );
        let stats = tree::make(&source, self.seed).map_err(|error| setup_failure("make the tree", &error))?;
        say_more(&format!(
            "{} and {}, {} of data in {} (links, holes, a FIFO, odd names{})",
            format::counted(stats.files, "file", "files"),
            format::counted(stats.folders, "folder", "folders"),
            format::bytes(stats.data),
            format::bytes(stats.bytes),
            if stats.xattrs {
                ", extended attributes"
            } else {
                "; no extended attributes on this volume"
            },
        ));
        self.say(
            2,
            &format!("copying it at {FIRST_RATE}iB/s, so that there is time for a kill -9 halfway"),
        );
        let first = self.first(&source, &target, &stats)?;
        say_more(&format!(
            "killed: {} sent, {} durable (logical sizes, holes included)",
            format::bytes(first.number("bytes_sent")),
            format::bytes(first.number("bytes_durable"))
        ));
        self.say(
            3,
            "running the same command again: it resumes and verifies from the device",
        );
        let second = self.second(&source, &target)?;
        self.say(4, "comparing every byte of both trees independently");
        self.compare(&source, &target)?;
        print_line("");
        conclude(&stats, &first, &second)?;
        self.wan()?;
        let took = format::duration(start.elapsed());
        let mark = mark(Color::Green, "✓");
        print_line(&format!(
            " {mark} resumed, verified and compared, locally and over the WAN, in {took}; {}",
            if self.folder.keep {
                format!("kept in {}", self.folder.path.display())
            } else {
                "everything is removed".to_owned()
            }
        ));
        Ok(())
    }

    fn wan(&self) -> Result<(), Failure> {
        let how = if self.relay {
            "TCP relays, because namespaces or TUN are not available"
        } else {
            "real packets between two network namespaces"
        };
        self.say(
            5,
            &format!("copying both ways over a WAN of 155 Mbit/s and 75 ms ({how})"),
        );
        let document = match wan::measure(&self.folder.path.join("wan"), self.relay, self.stop) {
            Ok(document) => document,
            Err(LabError::Interrupted) => return Ok(()),
            Err(error) => {
                return Err(Failure::new(code::SOME_FAILED, error.to_string()).hint(error.hint()));
            }
        };
        wan::print_table(&document);
        match wan::fault(&document) {
            None => {
                say_more("every byte that arrived was compared");
                print_line("");
                Ok(())
            }
            Some(fault) => Err(claim_failure(fault, &ChildResult::default())),
        }
    }

    fn copy(
        &self,
        source: &Path,
        target: &Path,
        rate: &str,
        kill: impl FnMut(&Value) -> bool,
    ) -> Result<ChildResult, Failure> {
        let flags = ["copy", "--verify", "--bwlimit", rate].map(std::ffi::OsString::from);
        let arguments = flags.into_iter().chain([source.into(), target.into()]);
        self.children
            .run(arguments, kill)
            .map_err(|error| setup_failure("run the copy", &error))
    }

    fn first(&self, source: &Path, target: &Path, stats: &TreeStats) -> Result<ChildResult, Failure> {
        let half = stats.data / 2;
        let ended = self.copy(source, target, FIRST_RATE, |line| {
            line.get("bytes_sent")
                .and_then(Value::as_u64)
                .is_some_and(|sent| sent >= half)
        })?;
        match ended.code {
            None => Ok(ended),
            Some(code) => Err(claim_failure(
                format!("the first run ended by itself with exit code {code}"),
                &ended,
            )),
        }
    }

    fn second(&self, source: &Path, target: &Path) -> Result<ChildResult, Failure> {
        let ended = self.copy(source, target, SECOND_RATE, |_| false)?;
        match ended.code {
            Some(0) => Ok(ended),
            Some(code) => Err(claim_failure(
                format!("the second run ended with exit code {code}"),
                &ended,
            )),
            None => Err(claim_failure(
                "the second run was killed by a signal".to_owned(),
                &ended,
            )),
        }
    }

    fn compare(&self, source: &Path, target: &Path) -> Result<(), Failure> {
        let arguments = [Path::new("check"), Path::new("--checksum"), source, target];
        let ended = self
            .children
            .run(arguments, |_| false)
            .map_err(|error| setup_failure("run the check", &error))?;
        if ended.code != Some(0) {
            return Err(claim_failure(
                format!("the trees differ in {} places", ended.number("differences")),
                &ended,
            ));
        }
        say_more(&format!(
            "{} compared, no difference",
            format::counted(ended.number("files"), "file", "files")
        ));
        let left = tree::leftovers(&self.folder.path)
            .map_err(|error| setup_failure("look for leftovers", &error))?;
        match left.first() {
            None => Ok(()),
            Some(path) => Err(claim_failure(
                format!("a temporary file was left: {}", path.display()),
                &ChildResult::default(),
            )),
        }
    }
}

/// Prints the table and checks its claims.
fn conclude(stats: &TreeStats, first: &ChildResult, second: &ChildResult) -> Result<(), Failure> {
    let sent = [first.number("bytes_sent"), second.number("bytes_sent")];
    let durable = [first.number("bytes_durable"), second.number("bytes_durable")];
    let twice = (sent[0] + sent[1]).saturating_sub(stats.data);
    // Both numbers are logical bytes; the data of the files is never more.
    let not_durable = second.number("bytes").saturating_sub(durable[0]);
    let time = |name| {
        second
            .seconds(name)
            .map_or("-".to_owned(), |s| format::duration(Duration::from_secs_f64(s)))
    };
    let row = |name: &str, one: &str, two: &str| print_line(&format!("   {name:<22}{one:>14}{two:>14}"));
    row("", "first run", "second run");
    row("ended", "killed", "done");
    row("sent", &format::bytes(sent[0]), &format::bytes(sent[1]));
    row(
        "durable (with holes)",
        &format::bytes(durable[0]),
        &format::bytes(durable[1]),
    );
    row(
        "resumed in files",
        "-",
        &format::bytes(second.number("bytes_resumed")),
    );
    row("seemed done after", "-", &time("seconds_perceived"));
    row("durable after", "-", &time("seconds_durable"));
    row("verified after more", "-", &time("seconds_verified"));
    print_line(&format!(
        "   sent twice: {} of {} (not durable when it was killed); sent twice although durable: nothing",
        format::bytes(twice),
        format::bytes(stats.data),
    ));
    print_line("");
    let claims = [
        (
            second.last["type"] == "summary",
            "the second run ended with a summary",
        ),
        (second.number("errors") == 0, "the second run had no error"),
        (second.number("files") >= stats.files, "every file is there"),
        (
            second.last["verified"] == true,
            "the files were read back from the device",
        ),
        (
            second.seconds("seconds_durable").is_some(),
            "the copy was durable at its end",
        ),
        (sent[1] > 0, "there was something left for the second run"),
        (sent[1] <= not_durable, "nothing that was durable was sent again"),
        (
            twice <= TWICE_MAX,
            "no more was sent twice than is sent between two checkpoints",
        ),
    ];
    match claims.into_iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, claim)) => Err(claim_failure(format!("this claim is false: {claim}"), second)),
    }
}

/// The demo's folder; it is removed at the end unless --keep is given.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn make(parent: &Path, keep: bool) -> Result<Self, Failure> {
        let fault = |error: &io::Error| {
            Failure::of_end(
                format!("cannot create a folder in {}: {error}", parent.display()),
                error,
                code::TARGET,
            )
            .hint("choose another folder with --dir")
        };
        let parent = fs::canonicalize(parent).map_err(|error| fault(&error))?;
        let space = rustix::fs::statvfs(&parent).map_err(|error| fault(&error.into()))?;
        let room = space.f_bavail.saturating_mul(space.f_frsize);
        if room < tree::ROOM_BYTES {
            return Err(Failure::new(
                code::TARGET,
                format!(
                    "{} has {} of free space, but the demo needs {}",
                    parent.display(),
                    format::bytes(room),
                    format::bytes(tree::ROOM_BYTES)
                ),
            )
            .hint("choose another folder with --dir"));
        }
        let moment = jiff::Timestamp::now().as_nanosecond() % 1_000_000_000;
        let path = parent.join(format!("ropeway-demo-{}-{moment}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| fault(&error))?;
        Ok(Self { path, keep })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            crate::ui::messages::print_stderr(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// Makes a failure for a step that could not be carried out.
fn setup_failure(what: &str, error: &io::Error) -> Failure {
    Failure::of_end(format!("cannot {what}: {error}"), error, code::TARGET)
        .hint("choose another folder with --dir")
}

/// Makes a failure for a wrong result.
fn claim_failure(what: String, ended: &ChildResult) -> Failure {
    let messages = ended
        .messages
        .lines()
        .next()
        .unwrap_or("--keep leaves both trees for inspection");
    Failure::new(code::SOME_FAILED, what).hint(messages)
}

fn say(step: u32, text: &str) {
    print_line(&format!("{step}. {text}"));
}

fn say_more(text: &str) {
    print_line(&format!("   {text}"));
}

fn mark(color: Color, text: &str) -> String {
    use std::io::IsTerminal;
    paint(color, text, io::stdout().is_terminal())
}
