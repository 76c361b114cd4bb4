//! Looks at the machine once, or again and again.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ropeway_dirty::{Options, Reader, Reading, Target};
use serde::Serialize;
use tokio::time::sleep;

use super::screen::Screen;
use super::{target, view};
use crate::args::{DirtyBy, DirtyShowArgs};
use crate::failure::{Failure, code};
use crate::job::{self, Signals, until_stopped};
use crate::ui::messages::print_line;

/// Interval of samples: a throttled device completes a step every 400 ms.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Time of one look: rates are differences.
const LOOK: Duration = Duration::from_secs(1);
/// The same where a device is at work and has completed too few steps for an estimate.
const LOOK_MAX: Duration = Duration::from_secs(4);
/// Rows of each list without --by.
const TOP: usize = 3;
/// Rows with --by.
const TOP_BY: usize = 10;

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    reading: &'a Reading,
    /// Only in the last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// The path cannot be looked at.
pub(super) fn run(args: &DirtyShowArgs) -> Result<u8, Failure> {
    let path = args.path()?;
    let target = path.map(|path| target(path)).transpose()?;
    let top = args
        .top
        .map_or(if args.by.is_some() { TOP_BY } else { TOP }, usize::from);
    let below = path.filter(|_| args.by == Some(DirtyBy::File)).cloned();
    let options = Options {
        target: target.clone(),
        offenders: true,
        below,
        held: args.held,
        top,
    };
    let runtime = job::runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut looks = Looks {
            reader: Reader::new(options),
            zero: Instant::now(),
        };
        let printer = Printer::new(args, target.as_ref());
        Ok(looks.run(args, printer, &mut signals).await)
    });
    runtime.shutdown_background();
    done
}

/// Takes readings at intervals.
struct Looks {
    reader: Reader,
    zero: Instant,
}

impl Looks {
    async fn run(&mut self, args: &DirtyShowArgs, mut printer: Printer<'_>, signals: &mut Signals) -> u8 {
        let mut last = self.reader.read(self.zero.elapsed());
        let looks = match args.interval() {
            Some(_) => args.count.unwrap_or(u64::MAX),
            None => 1,
        };
        let mut ended = code::DONE;
        for look in 0..looks {
            let interval = args.interval();
            if until_stopped(signals, self.wait(interval)).await.is_none() {
                ended = code::INTERRUPTED;
                break;
            }
            last = self.reader.read(self.zero.elapsed());
            let is_last = look + 1 == looks;
            if !(is_last && args.json) {
                printer.reading(&last);
            }
        }
        printer.finish(&last, ended);
        ended
    }

    /// Waits until the next reading is due. Without an interval that is as soon as the estimates are
    /// steady.
    async fn wait(&mut self, interval: Option<Duration>) {
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            let due = match interval {
                Some(interval) => waited >= interval,
                None => waited >= LOOK && (waited >= LOOK_MAX || !self.reader.is_unsteady()),
            };
            if due {
                return;
            }
            let rest = interval.unwrap_or(LOOK_MAX).saturating_sub(waited);
            sleep(SAMPLE_EVERY.min(rest)).await;
            self.reader.sample(self.zero.elapsed());
        }
    }
}

/// Prints readings in the chosen form.
struct Printer<'a> {
    args: &'a DirtyShowArgs,
    target: Option<&'a Target>,
    screen: Option<Screen>,
    /// Notes are printed once, since they do not change in general.
    noted: bool,
}

impl<'a> Printer<'a> {
    fn new(args: &'a DirtyShowArgs, target: Option<&'a Target>) -> Self {
        let in_place = args.interval().is_some() && !args.json && std::io::stdout().is_terminal();
        Self {
            args,
            target,
            screen: in_place.then(Screen::default),
            noted: false,
        }
    }

    fn reading(&mut self, reading: &Reading) {
        if self.args.json {
            print_json("dirty", reading, None);
            return;
        }
        let style = view::Style {
            by: self.args.by,
            target: self.target,
            width: super::screen::width(),
        };
        match (&mut self.screen, self.args.interval()) {
            (Some(screen), _) => screen.draw(&view::lines(reading, &style)),
            (None, None) => view::lines(reading, &style)
                .iter()
                .for_each(|line| print_line(line)),
            (None, Some(_)) => {
                if !std::mem::replace(&mut self.noted, true) {
                    view::note_lines(reading).for_each(|line| print_line(&line));
                }
                view::log_lines(reading).iter().for_each(|line| print_line(line));
            }
        }
    }

    fn finish(&mut self, last: &Reading, exit_code: u8) {
        if self.args.json {
            print_json("summary", last, Some(exit_code));
        }
    }
}

fn print_json(kind: &'static str, reading: &Reading, exit_code: Option<u8>) {
    let line = Line {
        r#type: kind,
        reading,
        exit_code,
    };
    match serde_json::to_string(&line) {
        Ok(text) => print_line(&text),
        // Paths are written as text whatever they hold, so nothing else can fail.
        Err(error) => tracing::error!(%error, "a reading cannot be written"),
    }
}
