//! [`Far`]: passes over files of any tree, such as a share, through its file API.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ropeway_vfs::{CacheMode, Create, Error, File, Name, OpenOptions, RelPath, Tree};
use tokio::runtime::Handle;

use super::data::{Buffers, Marks};
use super::names::{self, failed};
use super::pump::{Requests, pump_on};
use super::tally::Tally;
use super::{Fill, Ground, NamePass, Pass, PassError, PassResult, check_stop, file_name, new_name};
use crate::bench::cell::{Mode, Pattern};
use crate::bench::order::Order;
use crate::bench::result::{NodeOperation, Sample};
use crate::random::SplitMix64;

/// Record size of filling.
const FILL_RECORD: u64 = 1 << 20;
/// Requests in flight of filling: enough for any line.
const FILL_DEPTH: u32 = 32;
/// Entries asked for at once when the folder is removed.
const ENTRIES_AT_ONCE: usize = 1024;

/// A folder of a tree.
pub struct Far {
    tree: Arc<dyn Tree>,
    dir: RelPath,
    runtime: Handle,
    seed: u64,
    buffers: Option<Buffers>,
    has_folder: bool,
}

impl Far {
    /// Makes the new folder `name` below the tree's root.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(
        tree: Arc<dyn Tree>,
        base: &RelPath,
        name: &Name,
        runtime: Handle,
        seed: u64,
    ) -> Result<Self, Error> {
        let dir = base.join(name);
        runtime.block_on(tree.make_dir(&dir, 0o700))?;
        Ok(Self {
            tree,
            dir,
            runtime,
            seed,
            buffers: None,
            has_folder: true,
        })
    }

    fn path(&self, name: &str) -> RelPath {
        self.dir.join(&Name::new(name.as_bytes()).expect("a plain name"))
    }

    fn marks(&self, size: u64, number: u64, pass: u64) -> Marks {
        let file = SplitMix64::new(self.seed ^ size.rotate_left(20) ^ number).next();
        Marks { file, pass }
    }

    /// Makes the requests of a pass over one file, with a flush at the end in mode `fsync`.
    fn one(&mut self, pass: &Pass<'_>, number: u64, so_far: &Tally) -> PassResult<(Tally, Option<Duration>)> {
        let key = &pass.key;
        let is_new = key.pattern == Pattern::Write;
        let path = match is_new {
            true => self.path(&new_name(number)),
            false => self.path(&file_name(key.size, number)),
        };
        let options = match key.pattern {
            Pattern::Write => OpenOptions::write(Create::New, CacheMode::Keep),
            pattern if pattern.writes() => OpenOptions::write(Create::No, CacheMode::Keep),
            _ => OpenOptions::read(CacheMode::Keep),
        };
        let file = self.runtime.block_on(self.tree.open(&path, options));
        let file = file.map_err(|error| failed("open a file", &error))?;
        let requests = Requests {
            order: Order::of(key.pattern, key.records(), pass.seed.wrapping_add(number)),
            record: key.record as usize,
            writes: key.pattern.writes(),
            marks: self.marks(key.size, number, pass.number),
            depth: key.depth,
            limit: pass.limit.saturating_sub(so_far.end),
            bytes_max: pass
                .bytes_max
                .map_or(u64::MAX, |most| most.saturating_sub(so_far.bytes)),
        };
        let tally = self.requests(&file, requests, pass.stop)?;
        let begun = Instant::now();
        if key.pattern.writes() && !is_new || key.mode == Mode::Fsync {
            // Without a flush that counts, the next pass still must not pay for this one.
            let flushed = self.runtime.block_on(file.sync(false));
            flushed.map_err(|error| failed("flush a file", &error))?;
        }
        let flush = (key.mode == Mode::Fsync).then(|| begun.elapsed());
        drop(file);
        if is_new {
            let removed = self.runtime.block_on(self.tree.remove_file(&path));
            removed.map_err(|error| failed("remove a file", &error))?;
        }
        Ok((tally, flush))
    }

    fn requests(&mut self, file: &Arc<dyn File>, requests: Requests, stop: &AtomicBool) -> PassResult<Tally> {
        let depth = u64::from(requests.depth).min(requests.order.len()).max(1) as usize;
        let buffers = Buffers::of(&mut self.buffers, requests.record, depth, self.seed);
        pump_on(&self.runtime, Arc::clone(file), requests, buffers, stop)
    }

    fn remove_folder(&self, dir: &RelPath) -> Result<(), Error> {
        self.runtime.block_on(async {
            let mut folders = vec![dir.clone()];
            let mut emptied = Vec::new();
            while let Some(folder) = folders.pop() {
                let mut listing = self.tree.list(&folder).await?;
                let mut names = Vec::new();
                loop {
                    let batch = listing.next(ENTRIES_AT_ONCE).await?;
                    if batch.is_empty() {
                        break;
                    }
                    names.extend(batch);
                }
                drop(listing);
                for entry in names {
                    let path = folder.join(&entry.name);
                    match entry.metadata.is_ok_and(|metadata| metadata.is_dir()) {
                        true => folders.push(path),
                        false => self.tree.remove_file(&path).await?,
                    }
                }
                emptied.push(folder);
            }
            for folder in emptied.iter().rev() {
                self.tree.remove_dir(folder).await?;
            }
            Ok(())
        })
    }
}

impl Ground for Far {
    fn engine(&self) -> &'static str {
        "SMB"
    }

    fn free(&mut self) -> PassResult<u64> {
        let space = self.runtime.block_on(self.tree.space());
        Ok(space
            .map_err(|error| failed("ask for free space", &error))?
            .available)
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
            let path = self.path(&file_name(size, number));
            let options = OpenOptions::write(Create::New, CacheMode::Keep);
            let file = match self.runtime.block_on(self.tree.open(&path, options)) {
                Ok(file) => file,
                Err(error) if error.kind == ropeway_vfs::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed("make a file", &error)),
            };
            let record = size.min(FILL_RECORD);
            let requests = Requests {
                order: Order::of(Pattern::Write, size / record.max(1), 0),
                record: record as usize,
                writes: true,
                marks: self.marks(size, number, 0),
                depth: FILL_DEPTH,
                limit: limit.saturating_sub(Duration::from_secs_f64(fill.seconds)),
                bytes_max: u64::MAX,
            };
            let tally = self.requests(&file, requests, stop)?;
            check_stop(stop)?;
            let begun = Instant::now();
            let flushed = self.runtime.block_on(file.sync(false));
            flushed.map_err(|error| failed("flush a file", &error))?;
            fill.bytes += tally.bytes;
            fill.seconds += (tally.end + begun.elapsed()).as_secs_f64();
        }
        Ok(fill)
    }

    fn pass(&mut self, pass: &Pass<'_>) -> PassResult<Sample> {
        if matches!(pass.key.mode, Mode::Direct | Mode::Uncached) {
            return Err(PassError::no_mode(
                "this machine keeps nothing of a share: every request goes to the server already",
            ));
        }
        let (mut all, mut flushes) = (Tally::default(), None);
        for number in 0..pass.files {
            let (tally, flush) = self.one(pass, number, &all)?;
            check_stop(pass.stop)?;
            if number == 0 {
                all = tally;
            } else {
                all.follow(&tally);
            }
            if let Some(flush) = flush {
                flushes = Some(flushes.unwrap_or(Duration::ZERO) + flush);
            }
            if all.cut || all.end >= pass.limit {
                all.cut |= number + 1 < pass.files;
                break;
            }
        }
        Ok(all.sample(flushes))
    }

    fn names(&mut self, pass: &NamePass<'_>) -> PassResult<Vec<(NodeOperation, Sample)>> {
        let dir = self.path("names");
        // What an error leaves is removed with the whole folder.
        let found = names::of_tree(&self.tree, &dir, &self.runtime, pass)?;
        let removed = self.runtime.block_on(self.tree.remove_dir(&dir));
        removed.map_err(|error| failed("remove a folder", &error))?;
        Ok(found)
    }

    fn empty(&mut self, size: u64) {
        for number in 0.. {
            let path = self.path(&file_name(size, number));
            if self.runtime.block_on(self.tree.remove_file(&path)).is_err() {
                return;
            }
        }
    }

    fn finish(&mut self) {
        if std::mem::take(&mut self.has_folder)
            && let Err(error) = self.remove_folder(&self.dir)
        {
            tracing::warn!(%error, path = %self.dir, "a folder is left behind");
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.finish();
    }
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Far({})", self.dir)
    }
}
