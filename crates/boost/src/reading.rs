//! Reads: from the cache, or from the source and into the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_cache::{Hint, Key, Version};
use ropeway_vfs::{Error, ErrorKind, Op, Result, patience};

use crate::ahead::Asked;
use crate::fetches::{Bytes, Claim, Fetch, Turn};
use crate::files::FileState;
use crate::node::BoostNode;
use crate::ranges::{self, BLOCK};

/// A read that may use the cache.
struct Plan<'a> {
    file: &'a Arc<FileState>,
    version: Version,
    blocks: Range<u64>,
    is_stream: bool,
    /// Why it is read: a program asked for it, or will.
    hint: Hint,
}

impl Plan<'_> {
    fn key(&self, block: u64) -> Key {
        Key {
            file: self.file.key,
            version: self.version,
            block,
        }
    }

    fn keys(&self) -> Vec<Key> {
        self.blocks.clone().map(|block| self.key(block)).collect()
    }

    fn expected(&self, block: u64) -> u64 {
        let bytes = ranges::bytes_of(block, self.version.size);
        bytes.end - bytes.start
    }
}

/// The source was lost while it was asked.
struct Lost;

/// Puts the blocks of a plan together; `None` if one is missing.
fn put_together(plan: &Plan<'_>, blocks: &[Option<Bytes>], buffer: &mut [u8], offset: u64) -> Option<usize> {
    let wanted = offset..offset + buffer.len() as u64;
    let mut count = 0;
    for (block, bytes) in plan.blocks.clone().zip(blocks) {
        let (from, part) = ranges::part(bytes.as_ref()?, block * BLOCK, &wanted);
        let at = usize::try_from(from - offset).ok()?;
        buffer[at..at + part.len()].copy_from_slice(part);
        count = at + part.len();
    }
    Some(count)
}

impl BoostNode {
    /// Reads into `buffer`; returns fewer bytes only at the end. `is_demand`: a program waits.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, is_demand: bool) -> Result<usize> {
        let Some(file) = &self.file else {
            return self.inner()?.read_at(buffer, offset);
        };
        if is_demand {
            self.boost().demanded();
        }
        let count = match self.read_lost(file, buffer, offset) {
            Some(count) => count,
            None => self.read_present(file, buffer, offset, is_demand),
        };
        if is_demand {
            self.boost().demanded();
        }
        count
    }

    /// Reads from the cache while the source is lost. `None` if it is not lost, if not all blocks are
    /// there, or if nobody knows that they are of one version.
    fn read_lost(&self, file: &Arc<FileState>, buffer: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let offline = self.store.offline.as_ref()?;
        let boost = self.boost();
        if !self.store.is_lost() || !boost.is_on() || self.store.share_use.is_shared() {
            return None;
        }
        let source = self.store.versioning()?;
        let now = boost.now();
        self.store.last_stat(offline, now, file)?;
        let version = file.coherence.lock().usable_lost(now, offline.memory, &source)?;
        let plan = Plan {
            file,
            version,
            blocks: ranges::blocks(offset, buffer.len(), version.size),
            is_stream: false,
            hint: Hint::Random,
        };
        let blocks = self.look_up(&plan);
        let count = put_together(&plan, &blocks, buffer, offset)?;
        if !self.source.give_out(version) {
            return Some(Err(self.stale()));
        }
        boost.offline.reads.fetch_add(1, Ordering::Relaxed);
        Some(Ok(count))
    }

    /// Reads while the source can be asked, or waits for it.
    fn read_present(
        &self,
        file: &Arc<FileState>,
        buffer: &mut [u8],
        offset: u64,
        is_demand: bool,
    ) -> Result<usize> {
        self.compare(file)?;
        let from_cache = match self.plan(file, buffer.len(), offset) {
            Ok(plan) => plan.and_then(|plan| self.read_blocks(&plan, buffer, offset, is_demand)),
            // Lost meanwhile.
            Err(Lost) => {
                if let Some(count) = self.read_lost(file, buffer, offset) {
                    return count;
                }
                // Waits for the source: then the cache may be of use again.
                self.ask(file)?;
                self.compare(file)?;
                None
            }
        };
        let count = match from_cache {
            Some(count) => count,
            None => self.read_source(file, buffer, offset)?,
        };
        self.compare(file)?;
        Ok(count)
    }

    /// Compares the version of a file that was opened while the source was lost with what was read
    /// from the cache then.
    fn compare(&self, file: &FileState) -> Result<()> {
        match self.source.is_pinned() {
            true => self.ask(file).map(drop),
            false => Ok(()),
        }
    }

    fn stale(&self) -> Error {
        Error::new(Op::Read, &self.path(), ErrorKind::Gone)
    }

    /// Reads from the source what the caller asks for, no more.
    pub(crate) fn read_source(&self, file: &FileState, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let source = self.store.versioning();
        file.coherence.lock().begin_read(source.as_ref());
        let read = self.inner().and_then(|inner| inner.read_at(buffer, offset));
        let now = self.boost().now();
        file.coherence.lock().end_read(now, source.as_ref());
        read
    }

    /// Decides whether a read uses the cache, and under which version.
    fn plan<'a>(
        &self,
        file: &'a Arc<FileState>,
        length: usize,
        offset: u64,
    ) -> std::result::Result<Option<Plan<'a>>, Lost> {
        let boost = self.boost();
        if !boost.is_on() || self.store.files.is_full() {
            return Ok(None);
        }
        let usable = || {
            let source = self.store.versioning()?;
            file.coherence.lock().usable(boost.now(), &source)
        };
        let Some(version) = usable() else { return Ok(None) };
        // What is brought back has its own order.
        let is_stream = !self.is_reader && file.streams.lock().on_read(offset, length as u64);
        let mut plan = Plan {
            file,
            version,
            blocks: ranges::blocks(offset, length, version.size),
            is_stream,
            hint: Hint::Random,
        };
        let is_known = |key: &Key| boost.cache.contains(key) || boost.fetches.recent(key).is_some();
        if plan.keys().iter().any(is_known) {
            // What is in the cache counts only if the source says that the file is unchanged.
            let asked = match self.store.offline {
                Some(_) => patience::impatiently(|| self.ask(file)),
                None => self.ask(file),
            };
            match asked {
                Err(error) if error.kind == ErrorKind::Unreachable && self.store.is_lost() => {
                    return Err(Lost);
                }
                Err(_) => return Ok(None),
                Ok(_) => {}
            }
            let Some(version) = usable() else { return Ok(None) };
            plan.version = version;
            plan.blocks = ranges::blocks(offset, length, plan.version.size);
        } else if is_stream && boost.passes_by(file) {
            boost.bailed();
            return Ok(None);
        }
        Ok((!plan.blocks.is_empty()).then_some(plan))
    }

    /// Carries a plan out; `None` if the source must be read instead.
    fn read_blocks(&self, plan: &Plan<'_>, buffer: &mut [u8], offset: u64, is_demand: bool) -> Option<usize> {
        let fetches = &self.boost().fetches;
        let mut blocks = self.look_up(plan);
        if is_demand {
            self.predict(plan, &blocks);
        }
        let mut own = Vec::new();
        let mut others: Vec<(usize, Arc<Fetch>)> = Vec::new();
        for (place, block) in plan.blocks.clone().enumerate() {
            if blocks[place].is_some() {
                continue;
            }
            match fetches.turn(plan.key(block)) {
                Turn::Own(claim) => own.push(claim),
                Turn::Other(fetch) => others.push((place, fetch)),
            }
        }
        let wanted = offset..offset + buffer.len() as u64;
        if !own.is_empty() {
            let first = plan.blocks.start;
            for (block, bytes) in self.fetch(plan, own, &wanted)? {
                blocks[usize::try_from(block - first).ok()?] = Some(bytes);
            }
        }
        for (place, fetch) in others {
            blocks[place] = Some(fetch.wait()?);
        }
        put_together(plan, &blocks, buffer, offset)
    }

    /// Looks the blocks of a plan up.
    fn look_up(&self, plan: &Plan<'_>) -> Vec<Option<Bytes>> {
        let boost = self.boost();
        let mut found = vec![None; plan.keys().len()];
        let (mut places, mut keys) = (Vec::new(), Vec::new());
        for (place, key) in plan.keys().into_iter().enumerate() {
            found[place] = boost.fetches.recent(&key);
            if found[place].is_some() {
                continue;
            }
            if boost.cache.contains(&key) {
                places.push(place);
                keys.push(key);
            } else {
                // Needs no device. It counts the miss and tells the policy.
                found[place] = boost.cache.lookup(&key);
            }
        }
        if !keys.is_empty() {
            for (place, bytes) in places.into_iter().zip(boost.find(&keys)) {
                found[place] = bytes;
            }
        }
        for (block, bytes) in plan.blocks.clone().zip(&mut found) {
            if bytes
                .as_ref()
                .is_some_and(|bytes| bytes.len() as u64 != plan.expected(block))
            {
                *bytes = None;
            }
        }
        found
    }

    /// Tells the predictor of a read, and which of its blocks the cache had.
    fn predict(&self, plan: &Plan<'_>, blocks: &[Option<Bytes>]) {
        let boost = self.boost();
        let (Some(ahead), Some(place)) = (&boost.ahead, &self.place) else {
            return;
        };
        let found: Vec<bool> = blocks.iter().map(Option::is_some).collect();
        let asked = Asked {
            file: plan.file.key,
            path: &place.path,
            version: plan.version,
            first: plan.blocks.start,
            found: &found,
        };
        ahead.asked(&asked, boost.now());
    }

    /// Brings blocks into the cache that will probably be read. Returns how many were fetched, and
    /// their bytes; `None` if they could not be.
    pub(crate) fn prefetch(&self, blocks: Range<u64>) -> Option<(u64, u64)> {
        let boost = self.boost();
        let (file, version) = self.usable().or_else(|| {
            self.ask(self.file.as_ref()?).ok()?;
            self.usable()
        })?;
        let end = version.size.div_ceil(ranges::BLOCK).min(blocks.end);
        let mut plan = Plan {
            file,
            version,
            blocks: blocks.start..end,
            is_stream: false,
            hint: Hint::Predicted,
        };
        let (mut count, mut bytes) = (0, 0);
        while plan.blocks.start < end {
            // The next blocks in a row that are not there and that nobody fetches.
            let mut own = Vec::new();
            while plan.blocks.start < end {
                let key = plan.key(plan.blocks.start);
                let is_there = boost.fetches.recent(&key).is_some() || boost.cache.contains(&key);
                let turn = (!is_there).then(|| boost.fetches.turn(key));
                plan.blocks.start += 1;
                match turn {
                    Some(Turn::Own(claim)) => own.push(claim),
                    _ if own.is_empty() => {}
                    _ => break,
                }
            }
            let first = own.first().map(|claim| claim.key().block);
            let Some(first) = first else { break };
            let fetched = self.fetch(&plan, own, &(first * ranges::BLOCK..first * ranges::BLOCK))?;
            count += fetched.len() as u64;
            bytes += fetched.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        }
        Some((count, bytes))
    }

    /// Reads blocks from the source with one request, and keeps them. `None` if the source's
    /// content is not what the version says, or cannot be read in whole blocks.
    fn fetch(&self, plan: &Plan<'_>, own: Vec<Claim<'_>>, wanted: &Range<u64>) -> Option<Vec<(u64, Bytes)>> {
        let boost = self.boost();
        let size = plan.version.size;
        let start = own.first()?.key().block * BLOCK;
        let end = ranges::bytes_of(own.last()?.key().block, size).end;
        // A reader that asks for more than there should be learns of a file that has grown.
        let upto = if end == size { end.max(wanted.end) } else { end };
        let mut span = vec![0; usize::try_from(upto - start).ok()?];
        if plan.is_stream {
            boost.meter.lock().begin(boost.now());
        }
        let since = boost.now();
        let read = self.read_source(plan.file, &mut span, start);
        if let (Ok(count), Hint::Random) = (&read, plan.hint) {
            boost.delivered(*count as u64, since);
        }
        if plan.is_stream {
            let bytes = read.as_ref().map_or(0, |count| *count as u64);
            boost.meter.lock().end(boost.now(), bytes);
        }
        if read.ok()? as u64 != end - start {
            return None;
        }
        // Noted before: a lost source is answered for at any moment.
        self.was_kept(plan.file);
        let mut blocks = Vec::with_capacity(own.len());
        for claim in own {
            let block = claim.key().block;
            let bytes = ranges::bytes_of(block, size);
            let inside = |at: u64| usize::try_from(at - start).expect("within the span");
            let content: Bytes = Arc::from(&span[inside(bytes.start)..inside(bytes.end)]);
            let is_whole = wanted.start <= bytes.start && bytes.end <= wanted.end;
            let is_kept = self.keep(plan, claim.key(), &content);
            if !is_kept || !is_whole {
                boost.fetches.keep(*claim.key(), Arc::clone(&content));
            }
            claim.fulfil(&content);
            blocks.push((block, content));
        }
        Some(blocks)
    }

    /// Keeps a block, unless the file has changed through this store since it was asked for.
    fn keep(&self, plan: &Plan<'_>, key: &Key, content: &Bytes) -> bool {
        let Some(source) = self.store.versioning() else {
            return false;
        };
        let boost = self.boost();
        // Held until the block is in: forgetting the file comes before or after.
        let coherence = plan.file.coherence.lock();
        let is_usable = coherence.usable(boost.now(), &source) == Some(plan.version);
        is_usable && boost.keep(key, content, plan.hint)
    }

    /// Notes that blocks of a file may have been kept, in the cache or for a moment, and has that
    /// confirmed.
    fn was_kept(&self, file: &Arc<FileState>) {
        if self.store.offline.is_none() {
            return;
        }
        file.coherence.lock().was_kept(self.boost().now());
        if let Some(place) = &self.place {
            self.store.confirmer.add(file, &place.path, place.link_itself);
        }
    }

    /// Asks the source for the attributes, and learns from them.
    pub(crate) fn ask(&self, file: &FileState) -> Result<ropeway_vfs::store::NodeStat> {
        let question = self.store.question();
        let stat = self.inner()?.stat()?;
        self.store.learn(file, (question.number, question.at), &stat);
        if let Some(offline) = &self.store.offline {
            self.source.compare(&stat, question.at, offline.memory)?;
        }
        Ok(stat)
    }

    /// Whether the cache may be used for the file now.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable().is_some()
    }

    pub(crate) fn usable(&self) -> Option<(&Arc<FileState>, Version)> {
        let (file, source) = (self.file.as_ref()?, self.store.versioning()?);
        let version = file.coherence.lock().usable(self.boost().now(), &source)?;
        Some((file, version))
    }

    /// Whether all blocks of a range are in the cache.
    pub(crate) fn is_kept(&self, offset: u64, length: usize) -> bool {
        let Some((file, version)) = self.usable() else {
            return false;
        };
        ranges::blocks(offset, length, version.size).all(|block| {
            let file = file.key;
            self.boost().cache.contains(&Key { file, version, block })
        })
    }

    /// Marks the file as one to keep whole.
    pub(crate) fn pin(&self) {
        if let Some(file) = &self.file {
            file.is_pinned.store(true, Ordering::Release);
            self.boost().cache.pin(&file.key, true);
        }
    }
}
