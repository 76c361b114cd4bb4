//! Listings of directories.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::info::{BadRecord, DirectoryClass, DirectoryRecord, DirectoryRecords, ListError};
use ropeway_smb_wire::query_directory::QueryDirectoryResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::compound::{RefusalCause, refusal_cause};
use crate::durable::Durability;
use crate::error::{Error, LostReason, Result};
use crate::handle::Handle;
use crate::open::OpenFile;
use crate::ops;
use crate::reopen::HandleInner;
use crate::replies::check;
use crate::session::Outcome;
use crate::share::{Share, check_path};
use crate::tree::{ATTEMPTS, Completed, Replay, Tree};

/// Maximum bytes of each of the two replies that come with the open: some 400 names each, so that
/// the second ends a small directory.
pub(crate) const FIRST_MAX: u32 = 64 << 10;
/// Maximum bytes of the second of these replies on a long line: some 1,600 names more.
const SECOND_MAX_FAR: u32 = 256 << 10;
/// Maximum bytes of later replies.
const NEXT_MAX: u32 = 1 << 20;

/// Maximum length of a pattern in UTF-16 units: its length field has 16 bits ([MS-SMB2] 2.2.33),
/// and no name is this long.
const PATTERN_UNITS_MAX: usize = 1024;
/// Maximum number of batches in a row without a new name in a restarted listing, which passes over
/// the names that it gave before: at 1 MiB each a hundred million names. With more, the listing
/// counts as endless.
const IDLE_MAX: usize = 10_000;
/// Maximum number of batches in a row without a new name in a listing that was not restarted; with
/// more, the server repeats itself. One can occur where names change meanwhile; more are a guess.
const REPEATED_MAX: usize = 16;

/// A listing of a directory. It requests the next batch before the caller has taken the last one.
pub struct Directory {
    handle: Handle,
    pattern: Text,
    /// Batches that came with the open.
    ready: VecDeque<Records>,
    /// Malformed records that the caller has not taken yet.
    bad: Vec<BadRecord>,
    pending: Option<JoinHandle<Result<Batch>>>,
    is_at_end: bool,
    /// The session in which the server keeps the position of the listing.
    session: u64,
    /// Hashes of the names given so far: a restarted listing passes over them.
    seen: HashSet<u64>,
    names_max: usize,
    hasher: RandomState,
    is_again: bool,
    dots: DotEntries,
}

/// The file numbers in the entries `.` and `..` of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DotEntries {
    /// File number of the directory itself.
    pub(crate) own: Option<u64>,
    /// File number of the parent directory.
    pub(crate) parent: Option<u64>,
}

impl DotEntries {
    /// Takes a record that is `.` or `..`. Returns whether it was one of them.
    pub(crate) fn take(&mut self, record: &DirectoryRecord) -> bool {
        const DOT: u16 = b'.' as u16;
        let file_id = u64::try_from(record.file_id).ok();
        match record.name.units() {
            [DOT] => self.own = self.own.or(file_id),
            [DOT, DOT] => self.parent = self.parent.or(file_id),
            _ => return false,
        }
        true
    }
}

/// One reply. `records` is `None` at the end.
struct Batch {
    session: u64,
    is_again: bool,
    records: Option<Records>,
}

/// The records of one reply.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) good: Vec<DirectoryRecord>,
    pub(crate) bad: Vec<BadRecord>,
}

impl Directory {
    /// Opens a directory for listing. `follow` lists the target of a reparse point.
    pub(crate) async fn open(share: &Share, path: &Text, pattern: &Text, follow: bool) -> Result<Self> {
        Self::open_leased(share, path, pattern, follow, false).await
    }

    /// Opens a directory for listing, with a lease if `lease` is set and the server grants one.
    pub(crate) async fn open_leased(
        share: &Share,
        path: &Text,
        pattern: &Text,
        follow: bool,
        lease: bool,
    ) -> Result<Self> {
        check_path(path)?;
        if pattern.units().len() > PATTERN_UNITS_MAX {
            return Err(Error::refused("list", NtStatus::OBJECT_NAME_INVALID));
        }
        let mut open = OpenFile::directory();
        if !follow {
            open.options |= CreateOptions::OPEN_REPARSE_POINT;
        }
        open.directory_lease = lease;
        let compounds = &share.client().link().compounds;
        let far_first = share.client().is_far().then_some(SECOND_MAX_FAR);
        for second_max in far_first.into_iter().chain([FIRST_MAX]) {
            if !compounds.is_usable_for_queries() {
                break;
            }
            let limit = share.limits().transact_max;
            let durability = Durability::for_directory(share, &open)?;
            let build = |tree: &Tree| {
                let list = |max: u32| ops::list(tree.id, FileId::RELATED, pattern, false, max.min(limit));
                vec![
                    durability.create(share, tree, path, &open),
                    list(FIRST_MAX),
                    list(second_max),
                ]
            };
            match share.inner().run(Replay::Safe, 0, build).await {
                Ok(completed) => match refusal_cause(&completed.replies) {
                    RefusalCause::Request => {
                        let mut opened = Self::new(share, path, pattern, &open, durability, &completed)?;
                        opened.take_first(&completed.replies)?;
                        opened.request_next();
                        return Ok(opened);
                    }
                    RefusalCause::Compound => {
                        share.close_left_open(&completed);
                        break;
                    }
                },
                // The server may grant too few credits for the larger reply.
                Err(Error::PeerMisbehaved(_)) if second_max > FIRST_MAX => {}
                Err(Error::Lost(_)) if !compounds.is_usable_for_queries() => {}
                Err(error) => return Err(error),
            }
        }
        let handle = share.open_here(path, &open).await?;
        let session = handle.inner.opened().await?.session.number;
        let mut directory = Self::of(handle, pattern, session);
        // The first batch shows whether the server refused the compound or the listing.
        if let Some(records) = directory.await_batch().await? {
            directory.ready.push_back(records);
        }
        compounds.refuse();
        Ok(directory)
    }

    fn new(
        share: &Share,
        path: &Text,
        pattern: &Text,
        open: &OpenFile,
        durability: Durability,
        completed: &Completed,
    ) -> Result<Self> {
        let inner = Arc::new(HandleInner::new(share, path, open, durability, completed)?);
        share
            .inner()
            .private
            .learn(&completed.tree, inner.created.private);
        Ok(Self::of(Handle { inner }, pattern, completed.session.number))
    }

    fn of(handle: Handle, pattern: &Text, session: u64) -> Self {
        let names_max = handle.inner.share.client().link().options.names_max;
        Self {
            names_max,
            handle,
            pattern: pattern.clone(),
            ready: VecDeque::new(),
            bad: Vec::new(),
            pending: None,
            is_at_end: false,
            session,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            is_again: false,
            dots: DotEntries::default(),
        }
    }

    /// Takes the replies that came with the open.
    fn take_first(&mut self, replies: &[Reply]) -> Result<()> {
        for (index, reply) in replies.iter().skip(1).enumerate() {
            match records(reply) {
                Ok(Some(records)) => self.ready.push_back(records),
                Ok(None) => {
                    self.is_at_end = true;
                    break;
                }
                // The server runs only one listing of a compound; the next request continues.
                Err(_) if index > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next names, in the server's order, without `.` and `..`; `None` at the end.
    /// Malformed records are left out: see [`Directory::take_bad`]. A batch of only such records is
    /// empty.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn next(&mut self) -> Result<Option<Vec<DirectoryRecord>>> {
        let mut idle = 0;
        while idle < if self.is_again { IDLE_MAX } else { REPEATED_MAX } {
            idle += 1;
            let Records { mut good, mut bad } = match self.ready.pop_front() {
                Some(records) => records,
                None => match self.await_batch().await? {
                    Some(records) => records,
                    None => return Ok(None),
                },
            };
            good.retain(|record| !self.dots.take(record) && self.is_new((&record.name, false)));
            // A malformed record may show the name of a good one, which must not be skipped for
            // that.
            bad.retain(|record| self.is_new((&record.shown, true)));
            if self.seen.len() > self.names_max {
                let sentence = format!("a folder lists more than {} names", self.names_max);
                return Err(Error::PeerMisbehaved(sentence));
            }
            if !good.is_empty() || !bad.is_empty() {
                self.bad.append(&mut bad);
                return Ok(Some(good));
            }
        }
        let sentence = "a listing continues without a new name";
        Err(Error::PeerMisbehaved(sentence.to_owned()))
    }

    /// Takes the malformed records met so far. If there is one, the listing is not complete.
    pub fn take_bad(&mut self) -> Vec<BadRecord> {
        std::mem::take(&mut self.bad)
    }

    async fn await_batch(&mut self) -> Result<Option<Records>> {
        if self.is_at_end && self.pending.is_none() {
            return Ok(None);
        }
        self.request_next();
        let Some(pending) = self.pending.as_mut() else {
            return Ok(None);
        };
        // Awaited in place: if this future is dropped, the next call finds the task.
        let batch = pending.await;
        self.pending = None;
        let batch = batch.map_err(|_| Error::Lost(LostReason::ClientClosed))??;
        self.session = batch.session;
        self.is_again |= batch.is_again;
        self.is_at_end = batch.records.is_none();
        self.request_next();
        Ok(batch.records)
    }

    /// Requests the next batch.
    fn request_next(&mut self) {
        if self.is_at_end || self.pending.is_some() {
            return;
        }
        let inner = Arc::clone(&self.handle.inner);
        let (pattern, session) = (self.pattern.clone(), self.session);
        self.pending = Some(tokio::spawn(ask(inner, pattern, session).in_current_span()));
    }

    /// Returns whether a name is new. A server may return one twice if the directory changes
    /// meanwhile.
    fn is_new(&mut self, (name, is_bad): (&Text, bool)) -> bool {
        self.seen.insert(self.hasher.hash_one((name.units(), is_bad)))
    }

    /// Returns the file numbers of `.` and `..`, as far as they have been listed.
    pub(crate) fn dots(&self) -> DotEntries {
        self.dots
    }

    /// Returns the handle of the directory.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            pending.abort();
        }
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Directory({})", self.handle.inner.path)
    }
}

/// Requests a batch. Restarts the listing if the server that knew its position is lost.
async fn ask(handle: Arc<HandleInner>, pattern: Text, known_to: u64) -> Result<Batch> {
    let output_max = NEXT_MAX.min(handle.share.limits().transact_max);
    // The server may have advanced the listing while the reply was lost with one of several
    // connections.
    let mut is_unknown = false;
    for _ in 0..ATTEMPTS {
        let at = handle.opened().await?;
        let is_again = is_unknown || at.session.number != known_to;
        let operation = ops::list(at.tree.id, at.file_id, &pattern, is_again, output_max);
        match at.session.exchange(at.tree.compound(vec![operation]), 0).await {
            Outcome::Replied(replies) => {
                let reply = crate::replies::first(&replies)?;
                if reply.status() == NtStatus::NETWORK_SESSION_EXPIRED {
                    continue;
                }
                return Ok(Batch {
                    session: at.session.number,
                    is_again,
                    records: records(reply)?,
                });
            }
            Outcome::Lost { sent, .. } => is_unknown |= sent,
            Outcome::Failed { error, .. } => return Err(error),
        }
    }
    Err(Error::Lost(LostReason::Closed))
}

/// Decodes the records of a reply; `None` at the end.
pub(crate) fn records(reply: &Reply) -> Result<Option<Records>> {
    match reply.status() {
        // NO_SUCH_FILE: no name matches.
        NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE => return Ok(None),
        // A record is larger than the rest of the buffer; those that fit are there.
        NtStatus::BUFFER_OVERFLOW => {}
        _ => check("list", reply)?,
    }
    let output = QueryDirectoryResponse::decode(&mut reply.body())?.output;
    let mut records = Records::default();
    for record in DirectoryRecords::new(output, DirectoryClass::IdBothDirectory) {
        match record {
            Ok(record) => records.good.push(record),
            Err(ListError::Record(record)) => records.bad.push(record),
            Err(ListError::List(malformed)) => return Err(malformed.into()),
        }
    }
    Ok(Some(records))
}
