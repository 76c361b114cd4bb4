//! Lengths and ranges of a file: what the server does by itself.

use std::sync::Arc;

use ropeway_smb_wire::info::FileAllocationInformation;
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{ErrorKind, File as _, Op, Result};

use super::reading::OFFSET_MAX;
use super::shared_file::SharedFile;
use crate::server_copy::is_unsupported;

impl SharedFile {
    /// Sets the length.
    pub(super) async fn set_length(self: &Arc<Self>, length: u64) -> Result<()> {
        if length > OFFSET_MAX {
            return Err(self.error(Op::SetLength, ErrorKind::FileTooLarge));
        }
        let _guard = self.exclusive.write().await;
        self.write_out().await?;
        let file = self.handle(true).await?;
        file.set_len(length).await?;
        self.changed_on_server(|content| {
            content.write.truncate(length);
            content.answered_end = None;
            let (least, _) = content.lengths_set.unwrap_or((length, length));
            content.lengths_set = Some((least.min(length), length));
        });
        Ok(())
    }

    /// Reserves space.
    pub(super) async fn allocate(self: &Arc<Self>, length: u64) -> Result<()> {
        let _guard = self.exclusive.write().await;
        self.write_out().await?;
        let file = self.handle(true).await?;
        // A smaller allocation would cut the file ([MS-FSA] 2.1.5.15.1).
        if length <= file.size(Op::SetLength).await? {
            return Ok(());
        }
        let allocation = FileAllocationInformation {
            allocation_size: length,
        };
        let set = file.handle().set(&allocation).await;
        set.map_err(|error| file.error(Op::SetLength, error))?;
        self.changed_on_server(|_| ());
        Ok(())
    }

    /// Writes zeroes over a range.
    pub(super) async fn zero(self: &Arc<Self>, offset: u64, length: u64, hole: bool) -> Result<()> {
        let _guard = self.exclusive.write().await;
        // Nothing that lies in the range may be written again later.
        self.sync().await?;
        let file = self.handle(true).await?;
        file.zero(offset, length, hole).await?;
        self.changed_on_server(|content| content.is_changed_there = true);
        Ok(())
    }

    /// Returns the runs of data in a range.
    pub(super) async fn extents(
        self: &Arc<Self>,
        offset: u64,
        length: u64,
        max: usize,
    ) -> Result<Vec<Extent>> {
        self.write_out().await?;
        let file = self.handle(false).await?;
        let end = offset.saturating_add(length);
        let (mut at, mut runs) = (offset, Vec::new());
        while at < end && runs.len() < max {
            let Some(run) = file.extent(at).await? else { break };
            let upto = (run.offset + run.length).min(end);
            if run.offset >= end || upto <= at {
                break;
            }
            runs.push(Extent {
                offset: run.offset,
                length: upto - run.offset,
            });
            at = upto;
        }
        Ok(runs)
    }

    /// Lets the server copy a range from another file. Returns the bytes copied, fewer at the
    /// source's end; `None` if the server cannot, or if the ranges overlap.
    pub(super) async fn copy_range(
        self: &Arc<Self>,
        source: &Arc<Self>,
        source_offset: u64,
        offset: u64,
        length: u64,
    ) -> Result<Option<u64>> {
        let is_same = Arc::ptr_eq(self, source);
        if is_same && source_offset.abs_diff(offset) < length {
            return Ok(None);
        }
        let _guard = self.exclusive.write().await;
        source.write_out().await?;
        // Nothing that lies in the range may be written again later.
        self.sync().await?;
        let (from, into) = (source.handle(false).await?, self.handle(true).await?);
        let size = from.size(Op::CopyRange).await?;
        let end = source_offset.saturating_add(length).min(size);
        if source_offset >= end {
            return Ok(Some(0));
        }
        let key = from
            .resume_key
            .get_or_try_init(|| from.handle().resume_key())
            .await;
        let key = match key {
            Ok(key) => *key,
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(error) => return Err(from.error(Op::CopyRange, error)),
        };
        let mut at = source_offset;
        while at < end {
            into.note_write();
            let target = offset + (at - source_offset);
            match into.handle().copy_chunks(key, at..end, target).await {
                Ok(0) => break,
                Ok(copied) => at += copied,
                Err(error) if is_unsupported(&error) => break,
                Err(error) => return Err(into.error(Op::CopyRange, error)),
            }
        }
        let copied = at - source_offset;
        if copied > 0 {
            self.changed_on_server(|content| content.is_changed_there = true);
        }
        // The rest goes through this machine, from the beginning.
        Ok((at == end).then_some(copied))
    }
}
