//! Listings.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::info::{BadRecord, DirectoryClass, DirectoryRecord, DirectoryRecords, ListFault};
use ropeway_smb_wire::query_directory::QueryDirectoryResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text};
use tokio::task::JoinHandle;

use crate::compound::{Refusal, refusal};
use crate::durable::Durability;
use crate::link::Outcome;
use crate::opened::HandleInner;
use crate::share::check_path;
use crate::tree::{ATTEMPTS, Ran, Replay, Tree, check};
use crate::{Error, Handle, LostReason, OpenFile, Result, Share, ops};

/// Bytes of the two answers that come with the open: some 400 names each, so that small directories end with the second.
pub(crate) const FIRST_MAX: u32 = 64 << 10;
/// Bytes of the later ones.
const NEXT_MAX: u32 = 1 << 20;

/// The longest pattern: its length has 16 bits ([MS-SMB2] 2.2.33), and no name is as long as this.
const PATTERN_UNITS_MAX: usize = 1024;
/// Batches in a row that hold no new name before the server is taken for one that never ends. A listing that had to begin
/// again passes over what it gave before: at 1 MiB each a hundred million names.
const IDLE_MAX: usize = 10_000;
/// Batches in a row without a new name in a listing that did not begin again: the server repeats itself. One may come where
/// names change meanwhile; more are a guess.
const REPEATED_MAX: usize = 16;

/// A directory being listed. The next batch is asked for before the last one is taken.
pub struct Directory {
    handle: Handle,
    pattern: Text,
    /// Batches that came with the open.
    ready: VecDeque<Records>,
    /// Records that make no sense, not taken yet.
    bad: Vec<BadRecord>,
    ahead: Option<JoinHandle<Result<Batch>>>,
    is_at_end: bool,
    /// The session whose server knows how far the listing is.
    session: u64,
    /// Names given so far, as hashes: a listing that had to begin again passes over them.
    seen: HashSet<u64>,
    names_max: usize,
    hasher: RandomState,
    is_again: bool,
    dots: Dots,
}

/// What the entries `.` and `..` of a listing tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dots {
    /// File number of the directory itself.
    pub(crate) own: Option<u64>,
    /// File number of the directory that holds it.
    pub(crate) parent: Option<u64>,
}

impl Dots {
    /// Takes note of a record; whether it was one of the two.
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

/// One answer: `None` at the end.
struct Batch {
    session: u64,
    is_again: bool,
    records: Option<Records>,
}

/// The records of one answer.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) good: Vec<DirectoryRecord>,
    pub(crate) bad: Vec<BadRecord>,
}

impl Directory {
    /// `follow`: a reparse point is listed as what it leads to.
    pub(crate) async fn open(share: &Share, path: &Text, pattern: &str, follow: bool) -> Result<Self> {
        check_path(path)?;
        let pattern = Text::from(pattern);
        if pattern.units().len() > PATTERN_UNITS_MAX {
            return Err(Error::refused("list", NtStatus::OBJECT_NAME_INVALID));
        }
        let mut open = OpenFile::directory();
        if !follow {
            open.options |= CreateOptions::OPEN_REPARSE_POINT;
        }
        let compounds = &share.client().link().compounds;
        if compounds.may_be_sent() {
            let first_max = FIRST_MAX.min(share.limits().transact_max);
            let build = |tree: &Tree| {
                let related = FileId::RELATED;
                vec![
                    share
                        .inner()
                        .create(tree, path, &open, Default::default(), Vec::new()),
                    ops::list(tree.id, related, &pattern, false, first_max),
                    ops::list(tree.id, related, &pattern, false, first_max),
                ]
            };
            match share.inner().run(Replay::Safe, 0, build).await {
                Ok(ran) => match refusal(&ran.replies) {
                    Refusal::Request => {
                        let mut opened = Self::new(share, path, &pattern, &open, &ran)?;
                        opened.take_first(&ran.replies)?;
                        opened.look_ahead();
                        return Ok(opened);
                    }
                    Refusal::Compound => share.close_left_open(&ran),
                },
                Err(Error::Lost(_)) if !compounds.may_be_sent() => {}
                Err(error) => return Err(error),
            }
        }
        let handle = share.open_here(path, &open).await?;
        let session = handle.inner.opened().await?.session.number;
        let mut directory = Self::of(handle, &pattern, session);
        // The first batch tells whether it was the compound that was refused, or the listing.
        if let Some(records) = directory.await_batch().await? {
            directory.ready.push_back(records);
        }
        compounds.refuse();
        Ok(directory)
    }

    fn new(share: &Share, path: &Text, pattern: &Text, open: &OpenFile, ran: &Ran) -> Result<Self> {
        let inner = Arc::new(HandleInner::new(share, path, open, Durability::none(), ran)?);
        Ok(Self::of(Handle { inner }, pattern, ran.session.number))
    }

    fn of(handle: Handle, pattern: &Text, session: u64) -> Self {
        let names_max = handle.inner.share.client().link().options.names_max;
        Self {
            names_max,
            handle,
            pattern: pattern.clone(),
            ready: VecDeque::new(),
            bad: Vec::new(),
            ahead: None,
            is_at_end: false,
            session,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            is_again: false,
            dots: Dots::default(),
        }
    }

    /// The answers that came with the open.
    fn take_first(&mut self, replies: &[Reply]) -> Result<()> {
        for (index, reply) in replies.iter().skip(1).enumerate() {
            match records(reply) {
                Ok(Some(records)) => self.ready.push_back(records),
                Ok(None) => {
                    self.is_at_end = true;
                    break;
                }
                // A server that runs only one listing of a compound: the next request tells.
                Err(_) if index > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next names, in the server's order, without `.` and `..`; `None` at the end. Records that make no sense are not
    /// among them: see [`Directory::take_bad`]. A batch of such records alone is empty.
    ///
    /// # Errors
    /// What any request may meet.
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
            // A bad record may show the name of a good one, which must not be passed over for that.
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
        let sentence = "a listing goes on and on without a new name";
        Err(Error::PeerMisbehaved(sentence.to_owned()))
    }

    /// Takes the records met so far whose names cannot be read. The directory was not listed whole where there is one.
    pub fn take_bad(&mut self) -> Vec<BadRecord> {
        std::mem::take(&mut self.bad)
    }

    async fn await_batch(&mut self) -> Result<Option<Records>> {
        if self.is_at_end && self.ahead.is_none() {
            return Ok(None);
        }
        self.look_ahead();
        let Some(ahead) = self.ahead.as_mut() else {
            return Ok(None);
        };
        // Awaited in place: a dropped future leaves the task to the next call.
        let batch = ahead.await;
        self.ahead = None;
        let batch = batch.map_err(|_| Error::Lost(LostReason::ClientClosed))??;
        self.session = batch.session;
        self.is_again |= batch.is_again;
        self.is_at_end = batch.records.is_none();
        self.look_ahead();
        Ok(batch.records)
    }

    /// Asks for the next batch.
    fn look_ahead(&mut self) {
        if self.is_at_end || self.ahead.is_some() {
            return;
        }
        let inner = Arc::clone(&self.handle.inner);
        let (pattern, session) = (self.pattern.clone(), self.session);
        self.ahead = Some(tokio::spawn(ask(inner, pattern, session)));
    }

    /// Whether a name was not given before. A server may give one twice where the directory changes meanwhile.
    fn is_new(&mut self, (name, is_bad): (&Text, bool)) -> bool {
        self.seen.insert(self.hasher.hash_one((name.units(), is_bad)))
    }

    /// What `.` and `..` told, as far as they have come.
    pub(crate) fn dots(&self) -> Dots {
        self.dots
    }

    /// The open directory.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            ahead.abort();
        }
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Directory({})", self.handle.inner.path)
    }
}

/// Asks for a batch; from the start again if the server that knew how far the listing was is gone.
async fn ask(handle: Arc<HandleInner>, pattern: Text, known_to: u64) -> Result<Batch> {
    let output_max = NEXT_MAX.min(handle.share.limits().transact_max);
    // The server may have gone on in the listing, and the answer was lost with one of several connections.
    let mut is_unknown = false;
    for _ in 0..ATTEMPTS {
        let at = handle.opened().await?;
        let is_again = is_unknown || at.session.number != known_to;
        let operation = ops::list(at.tree.id, at.file_id, &pattern, is_again, output_max);
        match at.session.exchange(at.tree.chain(vec![operation]), 0).await {
            Outcome::Replied(replies) => {
                let reply = crate::tree::first(&replies)?;
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

/// The records of an answer; `None` at the end.
pub(crate) fn records(reply: &Reply) -> Result<Option<Records>> {
    match reply.status() {
        // NO_SUCH_FILE: no name matches.
        NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE => return Ok(None),
        // A record larger than the rest of the buffer; what fits is there.
        NtStatus::BUFFER_OVERFLOW => {}
        _ => check("list", reply)?,
    }
    let output = QueryDirectoryResponse::decode(&mut reply.body())?.output;
    let mut records = Records::default();
    for record in DirectoryRecords::new(output, DirectoryClass::IdBothDirectory) {
        match record {
            Ok(record) => records.good.push(record),
            Err(ListFault::Record(record)) => records.bad.push(record),
            Err(ListFault::List(malformed)) => return Err(malformed.into()),
        }
    }
    Ok(Some(records))
}
