//! [`Folder`]: passes over files of a local folder, by plain system calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ropeway_local::{DONTCACHE, IoQueue, kept_in_memory, unflushed};
use ropeway_vfs::RelPath;
use ropeway_vfs::trace::SharedObserver;
use rustix::fs::{Advice, AtFlags, OFlags, StatxFlags, fadvise, statx};
use rustix::io::ReadWriteFlags;
use tempfile::TempDir;

use super::data::{Buffers, Marks};
use super::tally::Tally;
use super::workers::{Requests, Traces, single, threads};
use super::{
    Cold, Fill, Ground, NamePass, Pass, PassError, PassResult, check_stop, file_name, names, new_name, queue,
};
use crate::bench::cell::{Key, Mode, Pattern};
use crate::bench::order::Order;
use crate::bench::result::{NodeOperation, Sample};
use crate::local::volume::drop_caches;
use crate::random::SplitMix64;
use crate::run::cleanup::private_folder;

/// Record size of filling.
const FILL_RECORD: u64 = 1 << 20;
/// Requests in flight of filling.
const FILL_DEPTH: u32 = 4;
/// Alignment for direct I/O if the kernel does not tell it (before Linux 6.1).
const ALIGN_DEFAULT: u64 = 4096;

/// Options of a folder.
#[derive(Clone, Default)]
pub struct FolderOptions {
    /// Seed of the data.
    pub seed: u64,
    /// Uses threads instead of io_uring.
    pub threads: bool,
    /// Receives a record of every operation.
    pub observer: Option<SharedObserver>,
}

/// A local folder.
pub struct Folder {
    own: Option<TempDir>,
    path: PathBuf,
    options: FolderOptions,
    uring: bool,
    buffers: Option<Buffers>,
}

impl Folder {
    /// Makes a private folder below `dir`. It is removed on drop.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: &Path, options: FolderOptions) -> io::Result<Self> {
        let own = private_folder(dir, super::super::PREFIX)?;
        let uring = !options.threads && IoQueue::open(1).is_ok_and(|queue| queue.is_some());
        Ok(Self {
            path: own.path().to_owned(),
            own: Some(own),
            options,
            uring,
            buffers: None,
        })
    }

    /// Returns the path of the private folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn traces(&self, name: &str) -> Option<Traces> {
        let observer = self.options.observer.clone()?;
        let own = self.path.file_name()?.as_bytes();
        let path = RelPath::parse(&[own, b"/", name.as_bytes()].concat())?;
        Some(Traces { observer, path })
    }

    fn marks(&self, size: u64, number: u64, pass: u64) -> Marks {
        let file = SplitMix64::new(self.options.seed ^ size.rotate_left(20) ^ number).next();
        Marks { file, pass }
    }

    /// Runs the requests of a pass over an open file.
    fn run(&mut self, key: &Key, requests: &Requests<'_>) -> PassResult<Tally> {
        let depth = u64::from(key.depth).min(requests.order.len()).max(1) as u32;
        let buffers = Buffers::of(
            &mut self.buffers,
            requests.record,
            depth as usize,
            self.options.seed,
        );
        if depth == 1 {
            return single(requests, buffers);
        }
        if !self.uring {
            return threads(requests, buffers, depth);
        }
        let queue = IoQueue::open(depth).map_err(PassError::at("use io_uring"))?;
        let queue = queue.ok_or_else(|| PassError::at("use io_uring")(io::ErrorKind::Unsupported.into()))?;
        let queue = match requests.flags.is_empty() {
            true => queue,
            false => queue.leaving_the_cache(),
        };
        self::queue::run(requests, buffers, queue, depth)
    }

    /// Makes a pass over one file.
    fn one(&mut self, pass: &Pass<'_>, number: u64, so_far: &Tally) -> PassResult<(Tally, Sample)> {
        let key = &pass.key;
        let is_new = key.pattern == Pattern::Write;
        let name = if is_new {
            new_name(number)
        } else {
            file_name(key.size, number)
        };
        let path = self.path.join(&name);
        let traces = self.traces(&name);
        if !is_new && !key.pattern.is_warm() {
            make_cold(&path, pass.cold)?;
        }
        let file = open(&path, key, traces.as_ref())?;
        let range = pass.bytes_max.map_or(key.size, |most| most.min(key.size));
        let before = (!key.pattern.writes()).then(|| in_memory(&file, range)).flatten();
        let fd: Arc<OwnedFd> = Arc::new(file.into());
        let order = Order::of(key.pattern, key.records(), pass.seed.wrapping_add(number));
        let requests = Requests {
            fd: &fd,
            order: &order,
            record: key.record as usize,
            writes: key.pattern.writes(),
            flags: match key.mode {
                Mode::Uncached => DONTCACHE,
                _ => ReadWriteFlags::empty(),
            },
            marks: self.marks(key.size, number, pass.number),
            limit: pass.limit.saturating_sub(so_far.end),
            bytes_max: pass
                .bytes_max
                .map_or(u64::MAX, |most| most.saturating_sub(so_far.bytes)),
            stop: pass.stop,
            trace: traces.as_ref(),
        };
        let tally = self.run(key, &requests).map_err(|error| of_direct(error, key))?;
        let flush = match key.mode {
            Mode::Fsync => Some(flush(&fd, traces.as_ref())?),
            _ => None,
        };
        let unwritten = (key.pattern.writes() && key.mode != Mode::Direct)
            .then(|| {
                unflushed(fd.as_fd())
                    .ok()
                    .map(|[dirty, writeback]| dirty + writeback)
            })
            .flatten();
        let sample = Sample {
            in_memory_before: before,
            not_written: unwritten.map(|bytes| (bytes as f64 / tally.bytes.max(1) as f64).min(1.0)),
            ..tally.sample(flush)
        };
        if is_new {
            drop(fd);
            remove(&path, traces.as_ref()).map_err(PassError::at("remove a file"))?;
        } else if key.pattern.writes() {
            // The next pass must not pay for this one.
            rustix::fs::fsync(&fd).map_err(|error| PassError::at("flush a file")(error.into()))?;
        }
        Ok((tally, sample))
    }

    fn fill_one(
        &mut self,
        size: u64,
        number: u64,
        limit: Duration,
        stop: &AtomicBool,
    ) -> PassResult<(Tally, Option<f64>)> {
        let path = self.path.join(file_name(size, number));
        let key = Key {
            size,
            record: size.min(FILL_RECORD),
            mode: Mode::Fsync,
            depth: FILL_DEPTH,
            pattern: Pattern::Write,
        };
        let file = open(&path, &key, None)?;
        let fd: Arc<OwnedFd> = Arc::new(file.into());
        let order = Order::of(key.pattern, key.records(), 0);
        let marks = self.marks(size, number, 0);
        let mut tally = self.run(
            &key,
            &Requests {
                fd: &fd,
                order: &order,
                record: key.record as usize,
                writes: true,
                flags: ReadWriteFlags::empty(),
                marks,
                limit,
                bytes_max: u64::MAX,
                stop,
                trace: None,
            },
        )?;
        check_stop(stop)?;
        // Sizes that are no multiple of the record have a tail of zeroes, which no pass touches.
        if !tally.cut {
            rustix::fs::ftruncate(&fd, size).map_err(|error| PassError::at("set a length")(error.into()))?;
        }
        tally.end += flush(&fd, None)?;
        let blocks = rustix::fs::fstat(&fd).map(|state| state.st_blocks).ok();
        // stat(2): blocks of 512 bytes, whatever the file system has.
        let allocated = blocks.map(|blocks| (blocks as f64 * 512.0) / tally.bytes.max(1) as f64);
        Ok((tally, allocated))
    }
}

impl Ground for Folder {
    fn engine(&self) -> &'static str {
        if self.uring { "io_uring" } else { "threads" }
    }

    fn free(&mut self) -> PassResult<u64> {
        let state = rustix::fs::statvfs(&self.path)
            .map_err(|error| PassError::at("ask for free space")(error.into()))?;
        Ok(state.f_bavail.saturating_mul(state.f_frsize))
    }

    fn fill(
        &mut self,
        size: u64,
        files: u64,
        limit: Option<Duration>,
        stop: &AtomicBool,
    ) -> PassResult<Fill> {
        let mut fill = Fill::default();
        let limit = limit.unwrap_or(Duration::MAX);
        for number in 0..files {
            if self.path.join(file_name(size, number)).exists() {
                continue;
            }
            let rest = limit.saturating_sub(Duration::from_secs_f64(fill.seconds));
            let (tally, allocated) = self.fill_one(size, number, rest, stop)?;
            fill.bytes += tally.bytes;
            fill.seconds += tally.end.as_secs_f64();
            fill.allocated = allocated;
        }
        Ok(fill)
    }

    fn pass(&mut self, pass: &Pass<'_>) -> PassResult<Sample> {
        check_mode(&self.path, &pass.key)?;
        let mut all = Tally::default();
        let mut parts = Vec::new();
        for number in 0..pass.files {
            let (tally, sample) = self.one(pass, number, &all)?;
            check_stop(pass.stop)?;
            parts.push(sample);
            if number == 0 {
                all = tally;
            } else {
                all.follow(&tally);
            }
            // Also an early end at the limit of the last file.
            if all.cut || all.end >= pass.limit {
                all.cut |= number + 1 < pass.files;
                break;
            }
        }
        Ok(joined(&all, &parts))
    }

    fn names(&mut self, pass: &NamePass<'_>) -> PassResult<Vec<(NodeOperation, Sample)>> {
        let dir = self.path.join("names");
        let observer = self.options.observer.as_ref();
        let own = self.path.file_name().unwrap_or_default().as_bytes();
        let result = names::of_folder(&dir, &[own, b"/names"].concat(), pass, observer);
        _ = fs::remove_dir_all(&dir);
        result
    }

    fn empty(&mut self, size: u64) {
        for number in 0.. {
            if fs::remove_file(self.path.join(file_name(size, number))).is_err() {
                return;
            }
        }
    }

    fn finish(&mut self) {
        if let Some(own) = self.own.take() {
            let path = own.path().to_owned();
            if let Err(error) = own.close() {
                tracing::warn!(%error, path = %path.display(), "a folder is left behind");
            }
        }
    }
}

/// Joins the results of several files.
fn joined(all: &Tally, parts: &[Sample]) -> Sample {
    let sum = |of: &dyn Fn(&Sample) -> Option<f64>| {
        let known: Vec<f64> = parts.iter().filter_map(of).collect();
        (!known.is_empty()).then_some(known)
    };
    let mean = |of: &dyn Fn(&Sample) -> Option<f64>| {
        sum(of).map(|known| known.iter().sum::<f64>() / known.len() as f64)
    };
    let flush = sum(&|part| part.flush_seconds).map(|known| known.iter().sum::<f64>());
    Sample {
        in_memory_before: mean(&|part| part.in_memory_before),
        not_written: mean(&|part| part.not_written),
        ..all.sample(flush.map(Duration::from_secs_f64))
    }
}

fn open(path: &Path, key: &Key, traces: Option<&Traces>) -> PassResult<File> {
    let mut options = OpenOptions::new();
    match key.pattern {
        Pattern::Write => options.write(true).create_new(true).mode(0o600),
        pattern if pattern.writes() => options.write(true),
        _ => options.read(true),
    };
    if key.mode == Mode::Direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    let begun = Instant::now();
    let opened = options.open(path);
    if let Some(traces) = traces {
        let kind = if key.pattern == Pattern::Write {
            "create"
        } else {
            "open"
        };
        let result = opened
            .as_ref()
            .map_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(5)), |_| 0);
        traces.record(kind, 0, 0, begun.elapsed(), result);
    }
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) if key.mode == Mode::Direct => no_direct(),
        _ => PassError::at(format!("open {}", path.display()))(error),
    })
}

fn no_direct() -> PassError {
    PassError::no_mode("this file system has no direct I/O (O_DIRECT)")
}

/// Returns the error of a pass; a first request that is refused means that there is no direct I/O.
fn of_direct(error: PassError, key: &Key) -> PassError {
    match error {
        PassError::Failed { source, .. }
            if key.mode == Mode::Direct && source.raw_os_error() == Some(libc::EINVAL) =>
        {
            no_direct()
        }
        other => other,
    }
}

/// Refuses records that direct I/O cannot have.
fn check_mode(dir: &Path, key: &Key) -> PassResult<()> {
    if key.mode != Mode::Direct {
        return Ok(());
    }
    let align = alignment(dir);
    match key.record.is_multiple_of(align) {
        true => Ok(()),
        false => Err(PassError::Unsupported {
            why: format!("direct I/O needs records that are a multiple of {align} bytes here"),
            whole_mode: false,
        }),
    }
}

/// Returns the alignment of direct I/O for files of a folder, found by a file of it.
fn alignment(dir: &Path) -> u64 {
    let asked = || -> io::Result<u64> {
        let file = tempfile::tempfile_in(dir)?;
        let state = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
        let told = state.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        Ok(match told && state.stx_dio_offset_align > 0 {
            true => u64::from(state.stx_dio_offset_align),
            false => ALIGN_DEFAULT,
        })
    };
    asked().unwrap_or(ALIGN_DEFAULT)
}

/// Writes back and drops the pages of a file.
fn make_cold(path: &Path, cold: Cold) -> PassResult<()> {
    let dropped = || -> io::Result<()> {
        let file = File::open(path)?;
        // Dirty pages would stay.
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    match cold {
        Cold::Keep => Ok(()),
        Cold::DropFile => dropped().map_err(PassError::at("drop the page cache of a file")),
        Cold::DropAll => dropped()
            .and_then(|()| drop_caches())
            .map_err(PassError::at("drop all caches (/proc/sys/vm/drop_caches)")),
    }
}

/// Returns the share of the first bytes of a file that is in the page cache.
fn in_memory(file: &File, range: u64) -> Option<f64> {
    let bytes = kept_in_memory(file.as_fd(), 0, range).ok().flatten()?;
    // Whole pages are counted.
    Some((bytes as f64 / range.max(1) as f64).min(1.0))
}

fn flush(fd: &OwnedFd, traces: Option<&Traces>) -> PassResult<Duration> {
    let begun = Instant::now();
    rustix::fs::fsync(fd).map_err(|error| PassError::at("flush a file")(error.into()))?;
    let took = begun.elapsed();
    if let Some(traces) = traces {
        traces.record("sync", 0, 0, took, 0);
    }
    Ok(took)
}

fn remove(path: &Path, traces: Option<&Traces>) -> io::Result<()> {
    let begun = Instant::now();
    fs::remove_file(path)?;
    if let Some(traces) = traces {
        traces.record("remove", 0, 0, begun.elapsed(), 0);
    }
    Ok(())
}
