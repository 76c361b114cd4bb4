//! Ranges of open files: allocated extents, zeroing, copies on the server.

use std::sync::atomic::Ordering;

use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::ranges::{AllocatedRange, SetSparse, SetZeroData};
use ropeway_smb_wire::info::FileStandardInformation;
use ropeway_smb_wire::{NtStatus, Writer};
use ropeway_vfs::{Extent, File, Op, Result};

use super::file::SmbFile;
use crate::server_copy::is_unsupported;

/// Maximum bytes of a reply about allocated ranges: 4,096 of them.
const RANGES_MAX: u32 = 64 << 10;

/// The allocated ranges of a file, as last reported by the server.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Whether the file may have holes. If not, the server is not asked.
    holes: bool,
    known: Option<KnownExtents>,
}

#[derive(Debug)]
struct KnownExtents {
    /// The range of offsets for which the reply holds.
    from: u64,
    upto: u64,
    runs: Vec<Extent>,
}

impl Ranges {
    pub(crate) fn new(holes: bool) -> Self {
        Self { holes, known: None }
    }

    /// Discards the ranges, since a write may change them.
    pub(crate) fn forget(&mut self) {
        self.known = None;
    }

    /// Returns the first run at or after an offset. `None`: ask the server. `Some(None)`: there is
    /// no run.
    fn find(&self, offset: u64) -> Option<Option<Extent>> {
        let known = self.known.as_ref()?;
        if !(known.from..known.upto).contains(&offset) {
            return None;
        }
        let run = known.runs.iter().find(|run| run.offset + run.length > offset);
        match run {
            Some(run) => {
                let start = run.offset.max(offset);
                Some(Some(Extent {
                    offset: start,
                    length: run.offset + run.length - start,
                }))
            }
            // There may be more runs behind the last one, unless the reply was complete.
            None if known.upto == u64::MAX => Some(None),
            None => None,
        }
    }

    /// Records a reply. Cuts ranges that overlap, run backwards or reach beyond the file's length.
    fn record(&mut self, from: u64, size: u64, ranges: &[AllocatedRange], complete: bool) {
        let mut runs: Vec<Extent> = Vec::with_capacity(ranges.len());
        let mut at = from;
        for range in ranges {
            let start = range.file_offset.max(at);
            let end = range.file_offset.saturating_add(range.length).min(size);
            if start >= end {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.offset + last.length == start => last.length += end - start,
                _ => runs.push(Extent {
                    offset: start,
                    length: end - start,
                }),
            }
            at = end;
        }
        let upto = if complete { u64::MAX } else { at };
        self.known = Some(KnownExtents { from, upto, runs });
    }
}

pub(crate) fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

impl super::inner::Inner {
    /// Returns whether two shares belong to the same server and login.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let (one, two) = (self.share.client().info(), other.share.client().info());
        one.address == two.address && one.server_guid == two.server_guid
    }
}

impl SmbFile {
    pub(crate) async fn size(&self, op: Op) -> Result<u64> {
        let standard = self.handle().query::<FileStandardInformation>().await;
        Ok(standard.map_err(|error| self.error(op, error))?.end_of_file)
    }

    pub(crate) async fn extent(&self, offset: u64) -> Result<Option<Extent>> {
        let holes = {
            let ranges = self.ranges.lock();
            if let Some(known) = ranges.find(offset) {
                return Ok(known);
            }
            ranges.holes
        };
        let known = self.known_length();
        if !holes && offset < known {
            return Ok(Some(Extent {
                offset,
                length: known - offset,
            }));
        }
        let size = self.size(Op::Extents).await?;
        if offset >= size {
            return Ok(None);
        }
        let whole = Extent {
            offset,
            length: size - offset,
        };
        if !holes {
            return Ok(Some(whole));
        }
        let asked = AllocatedRange {
            file_offset: offset,
            length: whole.length,
        };
        let input = encoded(|w| asked.encode(w));
        let code = CtlCode::QUERY_ALLOCATED_RANGES;
        let (status, answer) = match self.handle().ioctl_with_status(code, &input, RANGES_MAX).await {
            Ok(answer) => answer,
            Err(error) if is_unsupported(&error) => return Ok(Some(whole)),
            Err(error) => return Err(self.error(Op::Extents, error)),
        };
        let list = AllocatedRange::decode_list(&answer)
            .map_err(|malformed| self.error(Op::Extents, malformed.into()))?;
        // [MS-FSCC] 2.3.52: there are more ranges after STATUS_BUFFER_OVERFLOW, or if the reply has
        // its maximum length.
        let complete = status != NtStatus::BUFFER_OVERFLOW && answer.len() < RANGES_MAX as usize;
        let mut ranges = self.ranges.lock();
        ranges.record(offset, size, &list, complete);
        match ranges.find(offset) {
            Some(found) => Ok(found),
            None if list.is_empty() => Ok(None),
            None => Ok(Some(whole)),
        }
    }

    /// Makes the file sparse. Best effort: without it, the file is only larger.
    pub(crate) async fn make_sparse(&self) {
        if !self.tree.capabilities.sparse || self.sparse.swap(true, Ordering::AcqRel) {
            return;
        }
        self.ranges.lock().holes = true;
        self.set_sparse().await;
    }

    pub(crate) async fn set_sparse(&self) {
        let input = encoded(|w| SetSparse { set_sparse: true }.encode(w));
        // File systems without sparse files refuse it.
        let _ = self.handle().ioctl(CtlCode::SET_SPARSE, &input, 0).await;
    }

    /// Writes zeroes over a range, as far as the file reaches. `hole` makes the file sparse first,
    /// so that the range takes no space.
    pub(crate) async fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        if hole {
            self.make_sparse().await;
        }
        let end = offset.saturating_add(length).min(self.size(Op::SetLength).await?);
        if offset >= end {
            return Ok(());
        }
        self.note_write();
        let zero = SetZeroData {
            file_offset: offset,
            beyond_final_zero: end,
        };
        let input = encoded(|w| zero.encode(w));
        match self.handle().ioctl(CtlCode::SET_ZERO_DATA, &input, 0).await {
            Ok(_) => Ok(()),
            Err(error) if is_unsupported(&error) => self.write_zeroes(offset, end).await,
            Err(error) => Err(self.error(Op::SetLength, error)),
        }
    }

    async fn write_zeroes(&self, offset: u64, end: u64) -> Result<()> {
        let mut at = offset;
        while at < end {
            let mut block = self.tree.scratch.get().await;
            let most = block.capacity().min(self.tree.share.limits().write_max as usize);
            let length = most.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            block.capacity_mut()[..length].fill(0);
            block.set_len(length);
            let written = self.handle().write_at(at, block.freeze()).await;
            written.map_err(|error| self.error(Op::SetLength, error))?;
            at += length as u64;
        }
        Ok(())
    }

    /// Returns the source if both files belong to the same server and login, so that the server can
    /// copy by itself.
    pub(crate) fn same_server<'a>(&self, source: &'a dyn File) -> Option<&'a SmbFile> {
        let source = source.as_any().downcast_ref::<SmbFile>()?;
        self.tree.is_same_server(&source.tree).then_some(source)
    }

    /// Copies on the server by FSCTL_SRV_COPYCHUNK ([MS-SMB2] 3.3.5.15.6): at most the largest
    /// request that every server accepts.
    pub(crate) async fn copy_inside(
        &self,
        source: &dyn File,
        offset: u64,
        length: u64,
    ) -> Result<Option<u64>> {
        let Some(source) = self.same_server(source) else {
            return Ok(None);
        };
        let key = source.resume_key.get_or_try_init(|| source.handle().resume_key());
        let key = match key.await {
            Ok(key) => *key,
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(error) => return Err(self.error(Op::CopyRange, error)),
        };
        let size = source.size(Op::CopyRange).await?;
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return Ok(Some(0));
        }
        self.note_write();
        match self.handle().copy_chunks(key, offset..end, offset).await {
            Ok(copied) => Ok(Some(copied)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(self.error(Op::CopyRange, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(file_offset: u64, length: u64) -> AllocatedRange {
        AllocatedRange { file_offset, length }
    }

    #[test]
    fn runs_and_the_end_are_found() {
        let mut ranges = Ranges::new(true);
        assert_eq!(ranges.find(0), None, "the server was not asked");
        ranges.record(0, 1000, &[range(0, 100), range(100, 50), range(500, 600)], true);
        let run = |offset, length| Some(Some(Extent { offset, length }));
        assert_eq!(ranges.find(0), run(0, 150));
        assert_eq!(ranges.find(120), run(120, 30));
        assert_eq!(ranges.find(150), run(500, 500), "cut at the file's length");
        assert_eq!(ranges.find(1000), Some(None));
        ranges.record(0, 1000, &[range(0, 100)], false);
        assert_eq!(ranges.find(100), None, "there may be more");
        ranges.forget();
        assert_eq!(ranges.find(0), None);
    }

    proptest! {
        #[test]
        fn hostile_ranges_ascend_within_the_file(
            list in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            from in 0_u64..1000,
            complete: bool,
        ) {
            let mut ranges = Ranges::new(true);
            let list: Vec<_> = list.into_iter().map(|(offset, length)| range(offset, length)).collect();
            ranges.record(from, 1 << 40, &list, complete);
            let mut at = from;
            while let Some(Some(run)) = ranges.find(at) {
                prop_assert!(run.offset >= at && run.length > 0 && run.offset + run.length <= 1 << 40);
                at = run.offset + run.length;
            }
        }
    }
}
