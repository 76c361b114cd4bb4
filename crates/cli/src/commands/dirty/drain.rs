//! `ropeway dirty drain`: waits until a device has everything, and until it may be unplugged.
//!
//! ```text
//!   flush ── failed ──> exit 4
//!     │ done
//!   look  ── good ────> exit 0
//!     │ files are open for writing, or something is dirty again
//!   wait until that changes, then flush again       (--no-wait: exit 2)
//! ```

use std::time::{Duration, Instant};

use ropeway_dirty::flush::{CacheFlush, mounts_of};
use ropeway_dirty::judge::{Condition, Verdict, Writer};
use ropeway_dirty::reading::{DeviceReading, Medium, Reading};
use ropeway_dirty::{Options, Reader, Target};
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use super::show::SAMPLE_EVERY;
use super::view::drain_text;
use super::worker::{Report, Worker};
use crate::args::DirtyDrainArgs;
use crate::commands::ls::printable;
use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::ui::bar::Bar;
use crate::ui::format;
use crate::ui::messages::{Color, paint, print_line};

/// Interval of readings for the bar.
const READ_EVERY: Duration = Duration::from_millis(250);
/// Interval of JSON lines.
const LINE_EVERY: Duration = Duration::from_millis(500);
/// The bar appears after this time.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// Interval at which writers are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Flushes in a row after which something is still dirty although nobody writes: other file systems
/// of the disk are then.
const FLUSHES_MAX: u32 = 3;
/// Writers that are named for a disk that stays.
const WRITERS_SHOWN: usize = 3;
/// Columns of the bar.
const BAR_COLUMNS: u64 = 40;

/// Why it ended.
enum End {
    Flushed(CacheFlush, Condition),
    Failed { message: String, errno: Option<i32> },
    TimedOut(Option<Condition>),
    Interrupted,
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// The path cannot be looked at, or something did not reach the device.
pub(super) fn run(args: &DirtyDrainArgs) -> Result<u8, Failure> {
    let target = super::target(&args.path)?;
    if target.medium == Medium::Memory {
        return Ok(in_memory(args, &target));
    }
    let runtime = job::runtime()?;
    let end = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut drain = Drain::new(args, &target);
        let end = tokio::select! {
            end = drain.run() => end,
            () = signals.stop() => Ok(End::Interrupted),
        };
        drain.bar.clear();
        end.and_then(|end| drain.conclude(end))
    });
    runtime.shutdown_background();
    end
}

/// A running drain.
struct Drain<'a> {
    args: &'a DirtyDrainArgs,
    target: &'a Target,
    reader: Reader,
    bar: Bar,
    begun: Instant,
    line_at: Option<Instant>,
    /// Bytes that are left, and the most that ever were.
    left: Option<u64>,
    most: u64,
    whole_disk: bool,
}

impl<'a> Drain<'a> {
    fn new(args: &'a DirtyDrainArgs, target: &'a Target) -> Self {
        let options = Options {
            target: Some(target.clone()),
            ..Options::default()
        };
        Self {
            args,
            target,
            reader: Reader::new(options),
            bar: Bar::new(!args.no_progress && !args.json),
            begun: Instant::now(),
            line_at: None,
            left: None,
            most: 0,
            whole_disk: args.whole || target.mount.is_none(),
        }
    }

    async fn run(&mut self) -> Result<End, Failure> {
        let mut flushes = 0;
        loop {
            let how = match self.flush().await? {
                Some(Report::Flushed(how)) => how,
                Some(Report::Failed { message, errno }) => return Ok(End::Failed { message, errno }),
                None => return Ok(End::TimedOut(None)),
            };
            flushes += 1;
            let mut condition = self.condition().await?;
            let mut verdict = condition.verdict();
            let is_stuck = verdict == Verdict::Dirty && flushes >= FLUSHES_MAX;
            if verdict.is_good() || self.args.no_wait || is_stuck {
                return Ok(End::Flushed(how, condition));
            }
            while verdict == Verdict::InUse {
                self.show(&condition.writers);
                sleep(LOOK_EVERY).await;
                if self.is_late() {
                    return Ok(End::TimedOut(Some(condition)));
                }
                condition = self.condition().await?;
                verdict = condition.verdict();
                if verdict != Verdict::InUse {
                    flushes = 0;
                }
            }
        }
    }

    /// Looks at the device. That may take as long as some process starts a program, so it must not keep
    /// Ctrl-C waiting.
    async fn condition(&self) -> Result<Condition, Failure> {
        let target = self.target.clone();
        let looked = tokio::task::spawn_blocking(move || Condition::of(&target)).await;
        looked.map_err(|error| Failure::new(code::TARGET, format!("cannot look at the device: {error}")))
    }

    fn is_late(&self) -> bool {
        self.args
            .timeout
            .is_some_and(|timeout| self.begun.elapsed() >= timeout)
    }

    /// Flushes once; `None` if the time is over.
    async fn flush(&mut self) -> Result<Option<Report>, Failure> {
        let reading = self.reader.read(self.begun.elapsed());
        self.note(&reading);
        let mut worker = Worker::start(&self.target.path, self.whole_disk).map_err(|error| {
            Failure::new(code::TARGET, format!("cannot start the flush: {error}"))
                .hint("raise the limit of processes (ulimit -u)")
        })?;
        let mut read_at = Instant::now();
        loop {
            if let Some(report) = worker.report() {
                return Ok(Some(report));
            }
            if self.is_late() {
                return Ok(None);
            }
            sleep(SAMPLE_EVERY).await;
            self.reader.sample(self.begun.elapsed());
            if read_at.elapsed() >= READ_EVERY {
                read_at = Instant::now();
                self.show(&[]);
            }
        }
    }

    /// Shows the progress, and who still writes.
    fn show(&mut self, writers: &[Writer]) {
        let reading = self.reader.read(self.begun.elapsed());
        self.note(&reading);
        let device = reading.devices.first();
        if self.args.json {
            if self.line_at.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
                self.line_at = Some(Instant::now());
                self.print_progress(&reading, device, writers);
            }
        } else if self.begun.elapsed() >= BAR_AFTER {
            self.bar
                .show(|_| bar_lines(device, self.left, self.most, writers));
        }
    }

    /// Remembers how much is left.
    fn note(&mut self, reading: &Reading) {
        let device = reading.devices.first();
        self.left = device.and_then(|device| device.backlog_bytes().or(device.backlog_bytes_max));
        self.most = self.most.max(self.left.unwrap_or(0));
    }

    fn print_progress(&self, reading: &Reading, device: Option<&DeviceReading>, writers: &[Writer]) {
        let line = json!({
            "type": "progress",
            "time": reading.time,
            "seconds": self.begun.elapsed().as_secs_f64(),
            "bytes_left": self.left,
            "exact": device.is_some_and(|device| device.dirty_bytes.is_some()),
            "rate": device.and_then(|device| device.rate),
            "eta": device.and_then(|device| device.drain),
            "writers": writers,
        });
        print_line(&line.to_string());
    }

    fn conclude(&self, end: End) -> Result<u8, Failure> {
        let seconds = self.begun.elapsed();
        match end {
            End::Flushed(how, condition) => Ok(self.flushed(how, &condition, seconds)),
            End::Failed { message, errno } => {
                let denied = matches!(errno, Some(libc_errno::EACCES | libc_errno::EPERM));
                let code = if denied { code::PERMISSION } else { code::TARGET };
                let hint = match denied {
                    true => "give a path that this user may open, or run it as root",
                    false => {
                        "the kernel log (dmesg) may tell why; data written before this may be missing on the device"
                    }
                };
                Err(Failure::new(code, format!("write-back failed: {message}")).hint(hint))
            }
            End::TimedOut(condition) => Ok(self.unfinished(condition.as_ref(), seconds, code::SOME_FAILED)),
            End::Interrupted => Ok(self.unfinished(None, seconds, code::INTERRUPTED)),
        }
    }

    fn flushed(&self, how: CacheFlush, condition: &Condition, seconds: Duration) -> u8 {
        let verdict = condition.verdict();
        let exit_code = if verdict.is_good() {
            code::DONE
        } else {
            code::SOME_FAILED
        };
        if self.args.json {
            self.print_summary(Some(how), Some(condition), seconds, exit_code, None);
            return exit_code;
        }
        let (color, mark) = match verdict.is_good() {
            true => (Color::Green, "✓"),
            false => (Color::Yellow, "✗"),
        };
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let mut parts = vec![format!(
            " {} drained {}",
            paint(color, mark, terminal),
            format::duration(seconds)
        )];
        if self.most > 0 {
            let about = if self.left.is_some() { "" } else { "about " };
            parts.push(format!("{about}{} written back", format::bytes(self.most)));
        }
        parts.push(
            match how {
                CacheFlush::Device => "durable, the device's cache is flushed",
                CacheFlush::FileSystem => "durable, as the file system says",
                CacheFlush::Remote => "durable, as its server or program says",
            }
            .to_owned(),
        );
        if !verdict.words().is_empty() {
            parts.push(verdict.words().to_owned());
        }
        print_line(&parts.join(" · "));
        self.print_reasons(condition);
        exit_code
    }

    /// Prints who keeps the device from being unplugged.
    fn print_reasons(&self, condition: &Condition) {
        // A disk that stays always has writers; they matter if they went on meanwhile.
        let again = condition.backlog_bytes.filter(|bytes| *bytes > 0);
        let shown = match (condition.medium, again) {
            (Medium::Removable, _) => condition.writers.len(),
            (_, Some(bytes)) => {
                print_line(&format!(
                    "   {} were written meanwhile, perhaps by",
                    format::bytes(bytes)
                ));
                WRITERS_SHOWN
            }
            (_, None) => 0,
        };
        for writer in condition.writers.iter().take(shown) {
            print_line(&format!("   {}", writer_text(writer)));
        }
        if condition.verdict() == Verdict::Dirty && !self.whole_disk {
            let others = mounts_of(self.target)
                .into_iter()
                .filter(|mount| !mount.read_only);
            let own = self.target.mount.as_ref().map(|mount| &mount.path);
            for mount in others.filter(|mount| Some(&mount.path) != own) {
                let path = printable(&mount.path.to_string_lossy());
                print_line(&format!("   {path} is on the same disk; --whole drains it too"));
            }
        }
    }

    fn unfinished(&self, condition: Option<&Condition>, seconds: Duration, exit_code: u8) -> u8 {
        let what = match exit_code {
            code::INTERRUPTED => "interrupted",
            _ => "not drained in time",
        };
        if self.args.json {
            self.print_summary(None, condition, seconds, exit_code, Some(what));
            return exit_code;
        }
        let left = self
            .left
            .map(|left| format!(" · {} left", format::bytes(left)))
            .unwrap_or_default();
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let mark = paint(Color::Yellow, "✗", terminal);
        print_line(&format!(
            " {mark} {what} {}{left} · write-back goes on",
            format::duration(seconds)
        ));
        if let Some(condition) = condition {
            self.print_reasons(condition);
        }
        exit_code
    }

    fn print_summary(
        &self,
        how: Option<CacheFlush>,
        condition: Option<&Condition>,
        seconds: Duration,
        exit_code: u8,
        message: Option<&str>,
    ) {
        let verdict = how.and(condition).map(Condition::verdict);
        let line = json!({
            "type": "summary",
            "path": self.target.path.to_string_lossy(),
            "device": self.target.disk_name,
            "bdi": self.target.bdi,
            "seconds": seconds.as_secs_f64(),
            "bytes_written_back": self.most,
            "bytes_left": match how { Some(_) => condition.and_then(|condition| condition.backlog_bytes), None => self.left },
            "cache_flush": how,
            "verdict": verdict,
            "safe_to_unplug": verdict.is_some_and(|verdict| verdict == Verdict::SafeToUnplug),
            "condition": condition,
            "message": message,
            "exit_code": exit_code,
        });
        print_line(&line.to_string());
    }
}

/// Error numbers of missing rights (errno(3)).
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const EACCES: i32 = 13;
}

fn in_memory(args: &DirtyDrainArgs, target: &Target) -> u8 {
    #[derive(Serialize)]
    struct Summary<'a> {
        r#type: &'static str,
        path: &'a str,
        verdict: Verdict,
        safe_to_unplug: bool,
        exit_code: u8,
    }
    let path = target.path.to_string_lossy();
    if args.json {
        let summary = json!(Summary {
            r#type: "summary",
            path: &path,
            verdict: Verdict::InMemory,
            safe_to_unplug: false,
            exit_code: code::DONE,
        });
        print_line(&summary.to_string());
    } else {
        print_line(&format!(
            "{}: in memory only; nothing is ever written back",
            printable(&path)
        ));
    }
    code::DONE
}

fn writer_text(writer: &Writer) -> String {
    let path = printable(&writer.path.to_string_lossy());
    match writer.pid {
        0 => format!("{} uses {path}", printable(&writer.name)),
        pid => format!("{} ({pid}) has {path} open for writing", printable(&writer.name)),
    }
}

/// Returns the two lines of the bar.
fn bar_lines(
    device: Option<&DeviceReading>,
    left: Option<u64>,
    most: u64,
    writers: &[Writer],
) -> [String; 2] {
    if let Some(writer) = writers.first() {
        let more = match writers.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        return [
            " waiting until nothing is open for writing".to_owned(),
            format!(" {}{more}", writer_text(writer)),
        ];
    }
    let Some(left) = left else {
        return [
            " writing back; how much is left is not known to this user".to_owned(),
            String::new(),
        ];
    };
    let exact = device.is_some_and(|device| device.dirty_bytes.is_some());
    let about = if exact { "" } else { "at most " };
    let mut first = format!(" {about}{} left of {}", format::bytes(left), format::bytes(most));
    if let Some(device) = device {
        if let Some(rate) = device.rate {
            first.push_str(&format!(" · {}", format::rate(rate)));
        }
        if let Some(drain) = &device.drain {
            first.push_str(&format!(" · ETA {}", drain_text(drain)));
        }
    }
    let done = most.saturating_sub(left);
    let filled = (u128::from(done) * u128::from(BAR_COLUMNS) / u128::from(most.max(1))) as usize;
    let percent = u128::from(done) * 100 / u128::from(most.max(1));
    let bar = "#".repeat(filled) + &"-".repeat(BAR_COLUMNS as usize - filled);
    [first, format!(" [{bar}] {percent} %")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_far_it_is_and_then_what_it_waits_for() {
        let device = DeviceReading {
            dirty_bytes: Some(0),
            writeback_bytes: Some(128 << 20),
            rate: Some(20e6),
            ..DeviceReading::default()
        };
        let [first, second] = bar_lines(Some(&device), Some(128 << 20), 512 << 20, &[]);
        assert_eq!(first, " 128.0 MiB left of 512.0 MiB · 19.1 MiB/s");
        assert_eq!(second, " [##############################----------] 75 %");
        let writer = Writer {
            pid: 7,
            name: "cp\x1b".into(),
            path: "/mnt/a\nb".into(),
        };
        let [_, second] = bar_lines(None, None, 0, &[writer.clone(), writer]);
        assert_eq!(second, " cp? (7) has /mnt/a?b open for writing, and 1 more");
        let [first, _] = bar_lines(None, None, 0, &[]);
        assert!(first.contains("not known"));
        let [_, second] = bar_lines(None, Some(0), 0, &[]);
        assert!(second.ends_with("] 0 %"));
    }
}
