//! Looks at the page cache while somebody watches.
//!
//! ```text
//!   snapshot ──> wanted until … ──> thread: a look each second ──> the last look ──> next snapshot
//! ```
//!
//! The looks are made by a thread, since a question about the folder of a job can hang with its file
//! system: snapshots wait for nothing. They show the last look, and none if that is older than [`KEPT`].
//! The thread begins with the first snapshot, and ends when nobody has asked for that long.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ropeway_dirty::parse::process::is_held;
use ropeway_dirty::{Options, Reader, Target};

use crate::model::{Device, PageCache};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Time for which looks are taken after the last snapshot, and a look is shown. A guess: views ask
/// each second, or every few seconds.
const KEPT: Duration = Duration::from_secs(10);
/// Longest wait of the first snapshot for the first look, which takes some milliseconds.
const FIRST_MAX: Duration = Duration::from_millis(250);
/// Most threads of this process that are looked at. A guess: more than it has.
const THREADS_MAX: usize = 1024;

/// A job's number and the local path that it writes to.
pub(crate) type JobTarget = (u32, PathBuf);

/// The looks of a process.
#[derive(Default)]
pub(crate) struct Looks(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    /// Whether the thread runs.
    runs: bool,
    /// When somebody last asked.
    asked: Option<Instant>,
    targets: Vec<JobTarget>,
    /// The last look.
    last: Option<(Instant, PageCache)>,
}

impl Looks {
    /// Returns the last look, for these jobs; `None` if there is none of the last seconds.
    pub(crate) fn last(&self, targets: Vec<JobTarget>) -> Option<PageCache> {
        let (state, looked) = &*self.0;
        let mut locked = state.lock();
        locked.asked = Some(Instant::now());
        locked.targets = targets;
        if !locked.runs {
            let shared = Arc::clone(&self.0);
            let thread = Builder::new().name("page-cache".to_owned());
            locked.runs = thread.spawn(move || look_on(&shared)).is_ok();
            if locked.runs {
                looked.wait_for(&mut locked, FIRST_MAX);
            }
        }
        let (at, look) = locked.last.as_ref()?;
        (at.elapsed() < KEPT).then(|| look.clone())
    }
}

/// The thread.
fn look_on((state, looked): &(Mutex<State>, Condvar)) {
    let begun = Instant::now();
    let mut reader = Reader::new(Options::default());
    // The device of a job is looked up once: it stays.
    let mut known: Vec<(JobTarget, Option<String>)> = Vec::new();
    loop {
        let targets = {
            let mut locked = state.lock();
            if locked.asked.is_none_or(|asked| asked.elapsed() >= KEPT) {
                locked.runs = false;
                locked.last = None;
                return;
            }
            locked.targets.clone()
        };
        let reading = reader.read(begun.elapsed());
        let mut look = PageCache::of_machine(&reading.machine, threads_held());
        known.retain(|(target, _)| targets.contains(target));
        let show = |look: &PageCache| {
            state.lock().last = Some((Instant::now(), look.clone()));
            looked.notify_all();
        };
        if known.len() < targets.len() {
            // The next question may take long, or for ever.
            show(&look);
        }
        for target in targets {
            if !known.iter().any(|(one, _)| *one == target) {
                let bdi = device_of(&target.1);
                known.push((target, bdi));
            }
        }
        for device in &reading.devices {
            let writes = |(target, bdi): &(JobTarget, Option<String>)| {
                (bdi.as_deref() == Some(&device.bdi)).then_some(target.0)
            };
            let jobs: Vec<u32> = known.iter().filter_map(writes).collect();
            if !jobs.is_empty() {
                look.devices.push(Device::of_reading(device, jobs));
            }
        }
        show(&look);
        std::thread::sleep(EVERY);
    }
}

/// Returns the device below a path, or below the nearest folder that exists already.
fn device_of(path: &std::path::Path) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    let found = absolute.ancestors().find_map(|path| Target::of(path).ok());
    found?.bdi
}

/// Counts the threads of this process that wait until a device has taken more.
fn threads_held() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let waits = |thread: &std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("wchan")).is_ok_and(|wchan| is_held(wchan.trim()))
    };
    threads.take(THREADS_MAX).filter(waits).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_a_target_that_is_not_there_yet_is_that_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let looks = Looks::default();
        let targets = vec![(7, folder.path().join("not/there/yet"))];
        assert_eq!(
            device_of(&targets[0].1),
            Target::of(folder.path()).unwrap().bdi,
            "nearest folder"
        );
        // The first look may come a little later than its wait.
        let first = looks.last(targets.clone());
        let look = first.or_else(|| {
            std::thread::sleep(Duration::from_secs(2));
            looks.last(targets)
        });
        assert!(look.unwrap().limit_bytes > 0);
    }
}
