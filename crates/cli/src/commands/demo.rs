//! `ropeway demo`: the main job at once, and a proof that it was done.
//!
//! Makes a tree, copies it with a child of this program, kills that half way, resumes, verifies, compares, and says
//! what was sent twice; then copies both ways over an emulated WAN, beside other clients. What is claimed at the end is computed from what the children said and from the trees.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_lab::run::LabError;
use serde_json::Value;

use crate::args::DemoArgs;
use crate::demo::child::{Children, Ended};
use crate::demo::tree::{self, Made};
use crate::demo::wan;
use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::ui::format;
use crate::ui::messages::{Color, paint, print_line};

/// Rate of the first run, so that its half can be hit: without it the copy is over before a signal arrives.
const FIRST_RATE: &str = "32M";
/// Rate of the second run: no real limit, but it keeps the data on the same path (through this program, not within the
/// kernel), so that bytes sent are counted alike.
const SECOND_RATE: &str = "8G";

/// Most bytes that may be sent twice: what goes out at [`FIRST_RATE`] in two seconds, from one checkpoint to the next, and
/// in two more for its flush; and what the pool of a copy holds. Only what is durable is not sent again.
const TWICE_MAX: u64 = 4 * (32 << 20) + (32 << 20);

/// Runs the command; gives its exit code.
///
/// # Errors
/// Something that was to be shown did not hold, or the demo could not be set up.
pub(crate) fn run(args: &DemoArgs) -> Result<u8, Failure> {
    let start = Instant::now();
    // Before any thread is started.
    let relay = super::lab::falls_back();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder::make(&parent, args.keep)?;
    let children =
        Arc::new(Children::new(&folder.path.join("private")).map_err(|error| broken("start", &error))?);
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
    }
    .play(start);
    runtime.shutdown_background();
    if children.is_stopped() {
        return Err(Failure::new(
            code::INTERRUPTED,
            "interrupted; everything was removed",
        ));
    }
    result.map(|()| code::DONE)
}

/// Two trees and the way from one to the other.
struct Demo<'a> {
    folder: &'a Folder,
    children: &'a Children,
    seed: u64,
    relay: bool,
    stop: &'a AtomicBool,
}

impl Demo<'_> {
    fn play(&self, start: Instant) -> Result<(), Failure> {
        let (source, target) = (self.folder.path.join("source"), self.folder.path.join("target"));
        say(
            1,
            &format!("making a mixed tree in {}", self.folder.path.display()),
        );
        let made = tree::make(&source, self.seed).map_err(|error| broken("make the tree", &error))?;
        say_more(&format!(
            "{} and {}, {} of data in {} (links, holes, a FIFO, odd names{})",
            format::counted(made.files, "file", "files"),
            format::counted(made.folders, "folder", "folders"),
            format::bytes(made.data),
            format::bytes(made.bytes),
            if made.xattrs {
                ", extended attributes"
            } else {
                "; no extended attributes on this volume"
            },
        ));
        say(
            2,
            &format!("copying it, held to {FIRST_RATE}iB/s so that its middle can be hit; kill -9 half way"),
        );
        let first = self.first(&source, &target, &made)?;
        say_more(&format!(
            "killed: {} sent; {} durable, counted by size, holes included",
            format::bytes(first.number("bytes_sent")),
            format::bytes(first.number("bytes_durable"))
        ));
        say(
            3,
            "the same command again: it goes on, and verifies from the device",
        );
        let second = self.second(&source, &target)?;
        say(4, "comparing both trees independently, every byte");
        self.compare(&source, &target)?;
        print_line("");
        conclude(&made, &first, &second)?;
        self.wan()?;
        let took = format::duration(start.elapsed());
        let mark = mark(Color::Green, "✓");
        print_line(&format!(
            " {mark} resumed, verified and compared, here and over the line, in {took}; {}",
            if self.folder.keep {
                format!("left in {}", self.folder.path.display())
            } else {
                "everything is removed again".to_owned()
            }
        ));
        Ok(())
    }

    fn wan(&self) -> Result<(), Failure> {
        let how = if self.relay {
            "TCP relays, for namespaces or TUN are not to be had here"
        } else {
            "real packets between two network namespaces"
        };
        say(
            5,
            &format!("both ways over a WAN of 155 Mbit/s and 75 ms ({how})"),
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
                say_more("what arrived was compared, every byte");
                print_line("");
                Ok(())
            }
            Some(fault) => Err(untrue(fault, &Ended::default())),
        }
    }

    fn copy(
        &self,
        source: &Path,
        target: &Path,
        rate: &str,
        kill: impl FnMut(&Value) -> bool,
    ) -> Result<Ended, Failure> {
        let flags = ["copy", "--verify", "--bwlimit", rate].map(std::ffi::OsString::from);
        let arguments = flags.into_iter().chain([source.into(), target.into()]);
        self.children
            .run(arguments, kill)
            .map_err(|error| broken("run the copy", &error))
    }

    fn first(&self, source: &Path, target: &Path, made: &Made) -> Result<Ended, Failure> {
        let half = made.data / 2;
        let ended = self.copy(source, target, FIRST_RATE, |line| {
            line.get("bytes_sent")
                .and_then(Value::as_u64)
                .is_some_and(|sent| sent >= half)
        })?;
        match ended.code {
            None => Ok(ended),
            Some(code) => Err(untrue(
                format!("the first run ended by itself with exit code {code}"),
                &ended,
            )),
        }
    }

    fn second(&self, source: &Path, target: &Path) -> Result<Ended, Failure> {
        let ended = self.copy(source, target, SECOND_RATE, |_| false)?;
        match ended.code {
            Some(0) => Ok(ended),
            Some(code) => Err(untrue(
                format!("the second run ended with exit code {code}"),
                &ended,
            )),
            None => Err(untrue("the second run was killed by a signal".to_owned(), &ended)),
        }
    }

    fn compare(&self, source: &Path, target: &Path) -> Result<(), Failure> {
        let arguments = [Path::new("check"), Path::new("--checksum"), source, target];
        let ended = self
            .children
            .run(arguments, |_| false)
            .map_err(|error| broken("run the check", &error))?;
        if ended.code != Some(0) {
            return Err(untrue(
                format!("the trees differ in {} places", ended.number("differences")),
                &ended,
            ));
        }
        say_more(&format!(
            "{} compared, no difference",
            format::counted(ended.number("files"), "file", "files")
        ));
        let left =
            tree::leftovers(&self.folder.path).map_err(|error| broken("look for leftovers", &error))?;
        match left.first() {
            None => Ok(()),
            Some(path) => Err(untrue(
                format!("a temporary file was left: {}", path.display()),
                &Ended::default(),
            )),
        }
    }
}

/// Prints the table and checks what it says.
fn conclude(made: &Made, first: &Ended, second: &Ended) -> Result<(), Failure> {
    let sent = [first.number("bytes_sent"), second.number("bytes_sent")];
    let durable = [first.number("bytes_durable"), second.number("bytes_durable")];
    let twice = (sent[0] + sent[1]).saturating_sub(made.data);
    // Logical bytes, as those that are durable; the data of files is never more.
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
        "taken over in files",
        "-",
        &format::bytes(second.number("bytes_resumed")),
    );
    row("seemed done after", "-", &time("seconds_perceived"));
    row("durable after", "-", &time("seconds_durable"));
    row("verified after more", "-", &time("seconds_verified"));
    print_line(&format!(
        "   sent twice: {} of {} (not yet durable when it was killed); durable before and sent again: nothing",
        format::bytes(twice),
        format::bytes(made.data),
    ));
    print_line("");
    let claims = [
        (
            second.last["type"] == "summary",
            "the second run ended with a summary",
        ),
        (second.number("errors") == 0, "the second run had no error"),
        (second.number("files") >= made.files, "every file is there"),
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
            "no more was sent twice than goes out between two checkpoints",
        ),
    ];
    match claims.into_iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, claim)) => Err(untrue(format!("this does not hold: {claim}"), second)),
    }
}

/// The folder of the demo; removed at the end.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn make(parent: &Path, keep: bool) -> Result<Self, Failure> {
        let fault = |error: &io::Error| {
            Failure::of_end(
                format!("cannot make a folder in {}: {error}", parent.display()),
                error,
                code::TARGET,
            )
            .hint("give another place with --dir")
        };
        let parent = fs::canonicalize(parent).map_err(|error| fault(&error))?;
        let space = rustix::fs::statvfs(&parent).map_err(|error| fault(&error.into()))?;
        let room = space.f_bavail.saturating_mul(space.f_frsize);
        if room < tree::ROOM_BYTES {
            return Err(Failure::new(
                code::TARGET,
                format!(
                    "{} has room for {}, and the demo needs {}",
                    parent.display(),
                    format::bytes(room),
                    format::bytes(tree::ROOM_BYTES)
                ),
            )
            .hint("give another place with --dir"));
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
            crate::ui::messages::complain(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// The demo could not be set up.
fn broken(what: &str, error: &io::Error) -> Failure {
    Failure::of_end(format!("cannot {what}: {error}"), error, code::TARGET)
        .hint("give another place with --dir")
}

/// Something that the demo is to show did not hold.
fn untrue(what: String, ended: &Ended) -> Failure {
    let said = ended
        .said
        .lines()
        .next()
        .unwrap_or("--keep leaves both trees for a look");
    Failure::new(code::SOME_FAILED, what).hint(said)
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
