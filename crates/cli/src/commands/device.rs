//! `ropeway copy --write-device`: writes an image onto a block device, from its first byte.
//!
//! A device has no temporary names, and such a run cannot be resumed. So everything that can be
//! refused is refused before the first write: a device in use, an image that does not fit, flags
//! that do not apply.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_copy::{Durability, Outcome, RuntimeClock, Status};
use ropeway_live::Part;
use ropeway_local::device::{BlockDevice, users};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Counters, Event, Phase, Summary};

use crate::args::CopyArgs;
use crate::ends::cause;
use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::live::{self, JobPart, Watched};
use crate::page;
use crate::place::Place;
use crate::ui::places::{Places, RootPlace};
use crate::ui::{Begin, Reporter, RunInfo};
use crate::unplug::verdict_on_path;

/// Size of one read and write in bytes: a few times what a flash device takes at once.
const CHUNK: usize = 4 << 20;
/// Bytes for which write-back is started at once. It is awaited one window later, so dirty data
/// stays below twice this size (64 MiB, as for files on slow flash).
const WINDOW: u64 = 32 << 20;
/// Time between two looks whether a pause is over.
const PAUSED_LOOK: Duration = Duration::from_millis(50);
/// Time between two progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Runs the command and returns its exit code.
///
/// # Errors
/// Nothing was written: the ends or the flags are wrong, or the device is in use.
pub(super) fn run(args: &CopyArgs, sources: &[PathBuf], target: &Path) -> Result<u8, Failure> {
    args.check_device()?;
    let [source] = sources else {
        return Err(
            Failure::usage("--write-device writes one image, but there are several sources")
                .hint("give one file"),
        );
    };
    let (image, size) = open_source(&local(source)?)?;
    let path = local(target)?;
    let device = open_device(&path, &image, size)?;
    let live = live::start("copy");
    let page = page::start(&args.transfer.output.http, &live)?;
    let ends = [path_text(source), path_text(target)];
    let part = JobPart::new("device", &ends[..1], &ends[1], None);
    let _registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let reporter = reporter(args, &part, &ends)?;
    reporter.listening(page.as_ref());
    let mut info = info(args);
    let Some(device) = device.filter(|_| !args.transfer.dry_run) else {
        reporter.event(&Event::Item {
            path: path.display().to_string(),
            action: "update",
            bytes: size,
            reasons: Vec::new(),
        });
        reporter.finish(&dry_run_outcome(size), &info);
        return Ok(code::DONE);
    };
    reporter.say(&format!(
        "note: writing onto the device {}; an interrupted run cannot be resumed and leaves the device partly written",
        path.display()
    ));
    let runtime = job::runtime()?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let work = Arc::new(Work {
            image,
            device,
            size,
            verify: args.transfer.verify,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            limit: RateLimit::unlimited(Arc::new(RuntimeClock::new())),
        });
        let watched = Arc::clone(&work);
        reporter.attach(Watched {
            counters: Box::new(move || watched.counters()),
            limit: Arc::clone(&work.limit),
            takes_rates: false,
        });
        Ok(drive(work, &reporter, &mut signals).await)
    });
    drop(page);
    runtime.shutdown_background();
    let outcome: Outcome = outcome?;
    if outcome.status == Status::Done {
        info.verdict = verdict_on_path(&path);
    }
    reporter.finish(&outcome, &info);
    Ok(outcome.status.exit_code())
}

/// Makes the reporter and says what begins. `ends`: the image and the device.
fn reporter(args: &CopyArgs, part: &Arc<JobPart>, ends: &[String; 2]) -> Result<Arc<Reporter>, Failure> {
    let reporter = Reporter::new(&args.transfer.output, args.transfer.dry_run)?.with_live(part);
    let reporter = reporter.with_lines(args.transfer.progress);
    reporter.begin(Begin {
        command: "device",
        job: None,
        places: Places(vec![RootPlace {
            source: ends[0].clone(),
            source_path: String::new(),
            target: Some(ends[1].clone()),
            target_path: String::new(),
        }]),
    });
    Ok(Arc::new(reporter))
}

fn info(args: &CopyArgs) -> RunInfo {
    RunInfo {
        durability: Durability::End,
        dry_run: args.transfer.dry_run,
        engine: "device",
        io: "psync",
        verdict: None,
        kept: None,
        line: None,
        ejected: None,
        told: Default::default(),
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn local(end: &Path) -> Result<PathBuf, Failure> {
    match Place::parse_end(end)? {
        Place::Local(path) => Ok(path),
        Place::Remote(url) => Err(Failure::usage(format!(
            "--write-device works on this machine only, but {url} is on a share"
        ))
        .hint("copy the image to this machine first")),
    }
}

/// Opens the image; returns its size too.
fn open_source(path: &Path) -> Result<(File, u64), Failure> {
    let fault = |error: &io::Error| {
        let message = format!("cannot read the source {}: {}", path.display(), cause(error));
        Failure::of_end(message, error, code::SOURCE).hint("check the spelling and the permissions")
    };
    let kind = fs::metadata(path).map_err(|error| fault(&error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(
            Failure::usage(format!("{} is neither a file nor a block device", path.display()))
                .hint("--write-device needs a file or block device as its source"),
        );
    }
    let mut file = File::open(path).map_err(|error| fault(&error))?;
    let size = file.seek(SeekFrom::End(0)).map_err(|error| fault(&error))?;
    file.rewind().map_err(|error| fault(&error))?;
    Ok((file, size))
}

/// Opens the device if the image may be written onto it.
fn open_device(path: &Path, image: &File, size: u64) -> Result<Option<BlockDevice>, Failure> {
    let shown = path.display();
    let fault = |error: &io::Error| {
        let message = format!("cannot write to the device {shown}: {}", cause(error));
        Failure::of_end(message, error, code::TARGET)
            .hint("check that it has a medium, and check the permissions")
    };
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => metadata,
        Err(error) if !is_missing(&error) => return Err(fault(&error)),
        _ => {
            return Err(Failure::usage(format!("{shown} is not a block device"))
                .hint("leave out --write-device to copy to a file or folder; `lsblk` lists devices"));
        }
    };
    let from = image.metadata().map_err(|error| fault(&error))?;
    if from.file_type().is_block_device() && from.rdev() == metadata.rdev() {
        return Err(
            Failure::usage(format!("the source and {shown} are the same device"))
                .hint("there is nothing to copy"),
        );
    }
    if let Some(user) = users(path).map_err(|error| fault(&error))? {
        return Err(
            Failure::new(code::REFUSED, format!("the device {shown} is in use: {user}"))
                .hint("unmount it first (umount, swapoff), and make sure that it is the right device"),
        );
    }
    let device = BlockDevice::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Failure::new(code::REFUSED, format!("the device {shown} is in use"))
            .hint("stop the program that uses it, and make sure that it is the right device"),
        _ => fault(&error),
    })?;
    if size > device.size() {
        return Err(Failure::new(
            code::TARGET,
            format!(
                "the device {shown} has {} bytes, but the image has {size}",
                device.size()
            ),
        )
        .hint("use a larger device; nothing was written"));
    }
    Ok(Some(device))
}

fn dry_run_outcome(size: u64) -> Outcome {
    Outcome {
        summary: Summary {
            counters: counters(size, 0, true),
            ..Summary::default()
        },
        status: Status::Done,
        fatal: None,
        hint: None,
    }
}

/// State that the writing thread and the reports share.
struct Work {
    image: File,
    device: BlockDevice,
    size: u64,
    verify: bool,
    done: AtomicU64,
    stop: AtomicBool,
    /// Pauses it.
    limit: Arc<RateLimit>,
}

/// Reasons for an early end.
enum EarlyEnd {
    Stopped,
    Source(io::Error),
    Device(io::Error),
    Differs,
}

/// Durations of the phases.
struct Times {
    perceived: Duration,
    durable: Duration,
    verified: Option<Duration>,
}

async fn drive(work: Arc<Work>, reporter: &Arc<Reporter>, signals: &mut Signals) -> Outcome {
    let start = Instant::now();
    let phase = |phase| reporter.event(&Event::Phase { phase });
    phase(Phase::Copying);
    let mut running = {
        let (work, reporter) = (Arc::clone(&work), Arc::clone(reporter));
        tokio::task::spawn_blocking(move || work.run(start, &reporter))
    };
    let mut ticks = tokio::time::interval(REPORT_EVERY);
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended,
            () = signals.stop() => {
                if work.stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(code::INTERRUPTED));
                }
                reporter.stopping();
                reporter.say("stopping (interrupt again to stop at once)");
            }
            _ = ticks.tick() => reporter.progress(&work.progress(start), true),
        }
    };
    let (result, perceived) = match ended {
        Ok(result) => (result, start.elapsed()),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    phase(Phase::Done);
    work.outcome(result, perceived)
}

impl Work {
    fn run(&self, start: Instant, reporter: &Reporter) -> Result<Times, EarlyEnd> {
        let hash = self.write()?;
        let perceived = start.elapsed();
        reporter.event(&Event::Phase {
            phase: Phase::Flushing,
        });
        self.device.flush().map_err(EarlyEnd::Device)?;
        let durable = start.elapsed();
        let mut verified = None;
        if let Some(hash) = hash {
            reporter.event(&Event::Phase {
                phase: Phase::Verifying,
            });
            if self.read_back()? != hash {
                return Err(EarlyEnd::Differs);
            }
            verified = Some(start.elapsed() - durable);
        }
        Ok(Times {
            perceived,
            durable,
            verified,
        })
    }

    /// Writes the image; returns its hash if it is to be verified.
    fn write(&self) -> Result<Option<blake3::Hash>, EarlyEnd> {
        let mut hasher = self.verify.then(blake3::Hasher::new);
        let mut buffer = vec![0; CHUNK];
        let (mut at, mut started) = (0, 0);
        while at < self.size {
            let length = self.chunk(at)?;
            (&self.image)
                .read_exact(&mut buffer[..length])
                .map_err(EarlyEnd::Source)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&buffer[..length]);
            }
            self.device
                .write_all_at(&buffer[..length], at)
                .map_err(EarlyEnd::Device)?;
            at += length as u64;
            self.done.store(at, Ordering::Relaxed);
            if at - started >= WINDOW {
                if started >= WINDOW {
                    self.device
                        .write_back(started - WINDOW, WINDOW, true)
                        .map_err(EarlyEnd::Device)?;
                }
                self.device
                    .write_back(started, at - started, false)
                    .map_err(EarlyEnd::Device)?;
                started = at;
            }
        }
        Ok(hasher.map(|hasher| hasher.finalize()))
    }

    fn read_back(&self) -> Result<blake3::Hash, EarlyEnd> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < self.size {
            let length = self.chunk(at)?;
            self.device
                .read_exact_at(&mut buffer[..length], at)
                .map_err(EarlyEnd::Device)?;
            hasher.update(&buffer[..length]);
            at += length as u64;
        }
        Ok(hasher.finalize())
    }

    /// Returns the length of the next chunk, or `Stopped` after a signal.
    fn chunk(&self, at: u64) -> Result<usize, EarlyEnd> {
        while self.limit.is_paused() && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSED_LOOK);
        }
        match self.stop.load(Ordering::Relaxed) {
            true => Err(EarlyEnd::Stopped),
            false => Ok(usize::try_from(self.size - at).map_or(CHUNK, |left| left.min(CHUNK))),
        }
    }

    fn counters(&self) -> Counters {
        counters(self.size, self.done.load(Ordering::Relaxed), false)
    }

    fn progress(&self, start: Instant) -> Event {
        let (seconds, done) = (start.elapsed().as_secs_f64(), self.done.load(Ordering::Relaxed));
        Event::Progress {
            seconds,
            counters: counters(self.size, done, false),
            rate: done as f64 / seconds.max(0.001),
            files_rate: 0.0,
            percent: (self.size > 0).then(|| done as f64 / self.size as f64 * 100.0),
            eta: None,
            limit: None,
            paused: self.limit.is_paused(),
            connection_lost: None,
        }
    }

    fn outcome(&self, result: Result<Times, EarlyEnd>, ended: Duration) -> Outcome {
        let done = self.done.load(Ordering::Relaxed);
        let mut summary = Summary {
            counters: counters(self.size, done, result.is_ok()),
            perceived: ended,
            ..Summary::default()
        };
        let (status, message) = match result {
            Ok(times) => {
                summary.counters.bytes_durable = self.size;
                summary.perceived = times.perceived;
                summary.durable = Some(times.durable);
                summary.verified = times.verified;
                (Status::Done, None)
            }
            Err(EarlyEnd::Stopped) => (
                Status::Interrupted,
                Some("the device is partly written".to_owned()),
            ),
            Err(EarlyEnd::Source(error)) => (
                Status::SourceUnreadable,
                Some(format!(
                    "cannot read the source: {}; the device is partly written",
                    cause(&error)
                )),
            ),
            Err(EarlyEnd::Device(error)) => (
                Status::TargetUnwritable,
                Some(format!("cannot write to the device: {}", cause(&error))),
            ),
            Err(EarlyEnd::Differs) => {
                summary.differences = 1;
                (
                    Status::Differs,
                    Some("the data read from the device differs from the data written".to_owned()),
                )
            }
        };
        Outcome {
            summary,
            status,
            hint: message
                .as_ref()
                .map(|_| "run it again; it starts from the beginning".to_owned()),
            fatal: message,
        }
    }
}

fn counters(size: u64, done: u64, is_whole: bool) -> Counters {
    Counters {
        files_total: 1,
        bytes_total: size,
        totals_final: true,
        files_done: u64::from(is_whole),
        bytes_done: if is_whole { size } else { 0 },
        bytes_read: done,
        bytes_sent: done,
        ..Counters::default()
    }
}
