//! Reads of a file: from memory, ahead of the reader, or directly.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_vfs::{Op, Result};

use super::read_buffers::Found;
use super::shared_file::{Content, SharedFile};
use super::write_back::Overlay;
use crate::smb_tree::SmbFile;

/// Largest offset of a file: SMB's offsets are signed ([MS-FSA] 2.1.5.3).
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;
/// Age at which data read ahead counts as abandoned and may give way to that of other readers. A
/// guess.
const ABANDONED: Duration = Duration::from_secs(10);

/// The data of this side that lie over what the server returns.
struct Unsent {
    overlay: Overlay,
    /// End of what the server has not answered.
    end: u64,
}

/// What to do next in a read.
enum Step {
    /// This many bytes were copied; the file ends behind them if set.
    Copied(usize, bool),
    /// The bytes are being read.
    Wait,
    /// Ask the server for this range.
    Ask(Range<u64>),
}

impl SharedFile {
    /// Reads into `buffer`; returns fewer bytes only at the end.
    pub(super) async fn read(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let count = self.read_somewhere(buffer, offset).await?;
        self.note_taken(count);
        Ok(count)
    }

    async fn read_somewhere(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some(buffer) = clip(buffer, offset) else {
            return Ok(0);
        };
        let file = self.handle(false).await?;
        // Taken before the server is asked: a write that it executes after the read may be answered
        // before it.
        let unsent = self.unsent(buffer.len(), offset);
        if unsent.overlay.covers(offset, buffer.len()) {
            return Ok(unsent.overlay.apply(buffer, offset, 0));
        }
        self.read_ahead(&file, offset, buffer.len());
        let count = self.read_from_server(&file, buffer, offset).await?;
        Ok(unsent.apply(buffer, offset, count))
    }

    /// Reads like [`read`](Self::read), but only from memory; `None` where the server would have to
    /// be asked.
    pub(super) fn read_from_memory(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let count = self.find_in_memory(buffer, offset)?;
        self.note_taken(count);
        Some(count)
    }

    /// Notes that a program has read `count` bytes. One that reads a file whole will probably do so
    /// with the next.
    fn note_taken(self: &Arc<Self>, count: usize) {
        let Some(file) = self.held(false) else { return };
        let (size, count) = (file.known_length(), count as u64);
        let before = self.taken.fetch_add(count, Ordering::AcqRel);
        if before < size && before + count >= size {
            self.note_habit(true);
            if let Some(path) = self.path() {
                self.store.read_files_ahead(&path);
            }
        }
    }

    /// Notes whether a program has read the file whole.
    pub(super) fn note_habit(&self, is_whole: bool) {
        if let Some(dir) = self.path().and_then(|path| path.parent()) {
            self.store.folder_ahead.lock().on_read(&dir, is_whole);
        }
    }

    fn find_in_memory(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let Some(buffer) = clip(buffer, offset) else {
            return Some(0);
        };
        let unsent = self.unsent(buffer.len(), offset);
        if unsent.overlay.covers(offset, buffer.len()) {
            return Some(unsent.overlay.apply(buffer, offset, 0));
        }
        let file = self.held(false)?;
        let mut count = 0;
        let mut content = self.content.lock();
        self.look_at_lease(&mut content, &file);
        while count < buffer.len() {
            let at = offset + count as u64;
            match self.step(&mut content, &file, &mut buffer[count..], at) {
                Step::Copied(copied, is_end) => {
                    count += copied;
                    if is_end {
                        break;
                    }
                }
                Step::Wait | Step::Ask(_) => return None,
            }
        }
        Some(unsent.apply(buffer, offset, count))
    }

    fn unsent(&self, length: usize, offset: u64) -> Unsent {
        let content = self.content.lock();
        Unsent {
            overlay: content.write.overlay(offset, length),
            end: content.write.unanswered_end(),
        }
    }

    /// Requests what a sequence of reads will need next.
    fn read_ahead(self: &Arc<Self>, file: &Arc<SmbFile>, offset: u64, length: usize) {
        let size = file.known_length();
        let mut content = self.content.lock();
        self.look_at_lease(&mut content, file);
        let window_max = self.store.window_max();
        let advance = content.ahead.on_read(offset, length as u64, size, window_max);
        if let Some(advance) = advance {
            let upto = self.fetch(&mut content, file, advance.range.clone());
            content.ahead.requested(&advance, upto);
        }
        let beyond = content.ahead.beyond_end(size);
        drop(content);
        if beyond > 0
            && let Some(path) = self.path()
        {
            self.store.read_on(&path, beyond);
        }
    }

    /// Discards what was read under another lease, or before there was one: a file that was opened
    /// again may have changed meanwhile, whatever lease it has now.
    pub(super) fn look_at_lease(&self, content: &mut Content, file: &SmbFile) {
        let epoch = file.epoch();
        if content.epoch != epoch {
            content.buffers.clear();
            content.ahead.discarded();
        }
        content.epoch = epoch;
    }

    /// Returns where a file that was only read ends, as long as a lease says that nobody changes it.
    fn end(&self, content: &Content, file: &SmbFile) -> u64 {
        let is_doubtful = self.is_end_doubtful.load(Ordering::Acquire);
        match content.epoch.is_some() && content.changes == 0 && !is_doubtful {
            true => file.known_length(),
            false => u64::MAX,
        }
    }

    /// Requests the parts of a range that are not in memory, as far as there is memory for them.
    /// Returns the end of what has been requested.
    fn fetch(self: &Arc<Self>, content: &mut Content, file: &Arc<SmbFile>, range: Range<u64>) -> u64 {
        let store = &self.store;
        let now = store.now();
        let mut upto = range.start;
        for gap in content.buffers.gaps(range, store.block as u64) {
            if content.write.is_unanswered(&gap) {
                // The reply could hold the bytes before that write, and outlast it.
                upto = gap.end;
                continue;
            }
            let old = now.saturating_sub(ABANDONED);
            let mut block = store.ahead.try_get();
            while block.is_none() && content.buffers.evict(old) {
                block = store.ahead.try_get();
            }
            let Some(block) = block else { break };
            let id = content.buffers.begin(&gap, now);
            upto = gap.end;
            let (this, file) = (Arc::clone(self), Arc::clone(file));
            store.spawn(async move {
                // At most a block.
                let length = (gap.end - gap.start) as usize;
                let (block, read) = file.read(block, gap.start, length).await;
                let data = read.ok().map(|()| block.freeze());
                this.content.lock().buffers.loaded(gap.start, id, data);
                this.notify();
            });
        }
        upto
    }

    /// Takes what is in memory at an offset, or says what is missing.
    fn step(&self, content: &mut Content, file: &SmbFile, buffer: &mut [u8], at: u64) -> Step {
        let end = self.end(content, file);
        if at >= end {
            return Step::Copied(0, true);
        }
        let oldest = match content.epoch {
            Some(_) => Duration::ZERO,
            None => self.store.now().saturating_sub(self.store.options.data_timeout),
        };
        match content.buffers.find(at, buffer.len() as u64, oldest) {
            Found::Ready { data, is_end } => {
                buffer[..data.len()].copy_from_slice(&data);
                let count = data.len();
                drop(data);
                content.buffers.took(at, count as u64);
                Step::Copied(count, is_end)
            }
            Found::Loading => Step::Wait,
            Found::Nothing { upto } => Step::Ask(at..upto.min(at + buffer.len() as u64).min(end)),
        }
    }

    async fn read_from_server(
        self: &Arc<Self>,
        file: &Arc<SmbFile>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let block = self.store.block as u64;
        let mut progress = self.progress.subscribe();
        let mut count = 0;
        while count < buffer.len() {
            progress.mark_unchanged();
            let at = offset + count as u64;
            let step = {
                let mut content = self.content.lock();
                match self.step(&mut content, file, &mut buffer[count..], at) {
                    // The pieces of a large read are requested at the same time.
                    Step::Ask(range) if range.end - range.start > block => {
                        match self.fetch(&mut content, file, range.clone()) > range.start {
                            true => Step::Wait,
                            false => Step::Ask(range),
                        }
                    }
                    step => step,
                }
            };
            match step {
                Step::Copied(copied, is_end) => {
                    count += copied;
                    if is_end {
                        break;
                    }
                }
                Step::Wait => {
                    // The sender lives as long as this file.
                    let _ = progress.changed().await;
                }
                Step::Ask(range) => {
                    let wanted = (range.end - range.start).min(block) as usize;
                    let into = &mut buffer[count..count + wanted];
                    let read = self.read_directly(file, into, at).await?;
                    count += read;
                    if read < wanted {
                        break;
                    }
                }
            }
        }
        Ok(count)
    }

    async fn read_directly(&self, file: &SmbFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let block = self.store.direct.get().await;
        let (block, read) = file.read(block, offset, buffer.len()).await;
        read.map_err(|error| ropeway_vfs::Error {
            op: Op::Read,
            ..error
        })?;
        buffer[..block.len()].copy_from_slice(&block);
        Ok(block.len())
    }
}

impl Unsent {
    /// Puts the unsent data over the first `count` bytes, which the server returned. Returns the
    /// number of bytes of the file in the buffer.
    fn apply(&self, buffer: &mut [u8], offset: u64, count: usize) -> usize {
        let count = self.overlay.apply(buffer, offset, count);
        // The file reaches further than the server knows: what is missing is a hole.
        let upto = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let upto = upto.min(buffer.len());
        if upto > count {
            buffer[count..upto].fill(0);
        }
        count.max(upto)
    }
}

/// Returns the part of a buffer that lies within the largest file; `None` if that is nothing.
fn clip(buffer: &mut [u8], offset: u64) -> Option<&mut [u8]> {
    let room = usize::try_from(OFFSET_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
    let length = buffer.len().min(room);
    (length > 0).then(|| &mut buffer[..length])
}
