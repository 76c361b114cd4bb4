//! Listings of a folder: TRANS2_FIND_FIRST2 and TRANS2_FIND_NEXT2.
//!
//! The connection may be lost in the middle. The search then begins anew, and names that were
//! returned before are left out: their hashes are kept.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use ropeway_smb_client::{Error, LostReason, NtStatus, Result, Text};
use ropeway_smb_wire::Reader;
use ropeway_smb1::client::Request;
use ropeway_smb1::wire::close::encode_id;
use ropeway_smb1::wire::find::{Entry, FindFirst, FindFlags, FindNext, FindResponse, Layout, level};
use ropeway_smb1::wire::negotiate::Capabilities;
use ropeway_smb1::wire::trans2::{Level, Subcommand};
use ropeway_smb1::{Command, Str};

use crate::calls::{ALL_FILES, DATA_MAX, Trans2, is_unsupported};
use crate::channel::Answer;
use crate::share::{Connected, Share, checked_transaction};

/// Entries wanted at once; the data that a response may have limits them first.
const ENTRIES_AT_ONCE: u16 = 2000;

/// Attempts of one listing while the connection is lost again and again.
const ATTEMPTS: usize = 8;

/// A search in progress.
struct Search {
    generation: u64,
    sid: u16,
    layout: Layout,
    last_name: Str,
    resume_key: u32,
}

/// A listing of a folder.
pub(crate) struct Listing {
    share: Share,
    /// Folder and pattern.
    pattern: Text,
    level: Option<Level>,
    search: Option<Search>,
    seen: HashSet<u64>,
    /// How many names may come again: as many as there were when the search began anew.
    repeats_max: usize,
    hasher: RandomState,
    is_ended: bool,
}

/// A batch of entries with their names as text.
pub(crate) type Batch = Vec<(Text, Entry)>;

impl Listing {
    /// Prepares the listing of a folder (with a backslash at its end unless it is the top) and a
    /// pattern.
    pub(crate) fn new(share: &Share, folder: &Text, pattern: &Text) -> Self {
        let mut units = folder.units().to_vec();
        if !units.is_empty() {
            units.push(u16::from(b'\\'));
        }
        units.extend_from_slice(pattern.units());
        Self {
            share: share.clone(),
            pattern: Text::from_units(units),
            level: None,
            search: None,
            seen: HashSet::new(),
            repeats_max: 0,
            hasher: RandomState::new(),
            is_ended: false,
        }
    }

    /// Returns further entries; `None` at the end.
    ///
    /// # Errors
    /// There is no such folder; the errors of a lost connection; more names than are allowed.
    pub(crate) async fn next(&mut self) -> Result<Option<Batch>> {
        let mut attempts = 0;
        while !self.is_ended {
            let connected = self.share.connected().await?;
            let is_current = self
                .search
                .as_ref()
                .is_some_and(|search| search.generation == connected.channel.generation);
            let found = match is_current {
                true => self.continue_search(&connected).await,
                false => self.begin(&connected).await,
            };
            let batch = match found {
                Ok(batch) => batch,
                Err(Error::Lost(LostReason::OutcomeUnknown)) if attempts < ATTEMPTS => {
                    attempts += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let fresh = self.fresh(batch)?;
            if !fresh.is_empty() {
                return Ok(Some(fresh));
            }
        }
        Ok(None)
    }

    /// Leaves out names that were returned before.
    fn fresh(&mut self, batch: Batch) -> Result<Batch> {
        let names_max = self.share.inner.link.options.names_max;
        let mut fresh = Vec::with_capacity(batch.len());
        for (name, entry) in batch {
            if self.seen.insert(self.hasher.hash_one(name.units())) {
                fresh.push((name, entry));
                continue;
            }
            let fault = || Error::InvalidReply("a folder lists the same names again".to_owned());
            self.repeats_max = self.repeats_max.checked_sub(1).ok_or_else(fault)?;
        }
        if self.seen.len() > names_max {
            return Err(Error::InvalidReply(format!(
                "a folder lists more than {names_max} names"
            )));
        }
        Ok(fresh)
    }

    async fn begin(&mut self, connected: &Connected) -> Result<Batch> {
        let negotiated = connected.negotiated();
        let mut levels = match self.level {
            Some(level) => vec![level],
            None if negotiated.capabilities.contains(Capabilities::NT_FIND) => {
                vec![level::ID_BOTH_DIRECTORY, level::BOTH_DIRECTORY, level::EA_SIZE]
            }
            None => vec![level::STANDARD],
        };
        let last = levels.pop().unwrap_or(level::STANDARD);
        for level in levels {
            match self.find_first(connected, level).await {
                // The server is older than the level.
                Err(error) if is_unsupported(&error) => {}
                found => {
                    self.level = Some(level);
                    return found;
                }
            }
        }
        self.find_first(connected, last).await
    }

    async fn find_first(&mut self, connected: &Connected, level: Level) -> Result<Batch> {
        let layout = Layout {
            level,
            is_unicode: connected.negotiated().unicode,
            has_keys: level.0 < 0x0100,
            zone: connected.negotiated().zone,
        };
        let request = FindFirst {
            search_attributes: ALL_FILES,
            count: ENTRIES_AT_ONCE,
            flags: flags(&layout),
            level,
            pattern: connected.path(&self.pattern)?,
        };
        let trans2 = Trans2 {
            subcommand: Subcommand::FIND_FIRST2,
            parameters: request.to_bytes(),
            data: &[],
            limits: (10, DATA_MAX),
        };
        let Some((parameters, data)) = self.find(connected, &trans2).await? else {
            return Ok(Vec::new());
        };
        let mut reader = Reader::new(&parameters, "TRANS2_FIND_FIRST2 response");
        let sid = reader.u16()?;
        let response = FindResponse::read(&mut reader)?;
        self.repeats_max = self.seen.len();
        self.search = Some(Search {
            generation: connected.channel.generation,
            sid,
            layout,
            last_name: Str::empty(layout.is_unicode),
            resume_key: 0,
        });
        self.take(connected, response, &data)
    }

    async fn continue_search(&mut self, connected: &Connected) -> Result<Batch> {
        let Some(search) = &self.search else {
            return Ok(Vec::new());
        };
        let request = FindNext {
            sid: search.sid,
            count: ENTRIES_AT_ONCE,
            level: search.layout.level,
            resume_key: search.resume_key,
            flags: flags(&search.layout) | FindFlags::CONTINUE_FROM_LAST,
            name: search.last_name.clone(),
        };
        let trans2 = Trans2 {
            subcommand: Subcommand::FIND_NEXT2,
            parameters: request.to_bytes(),
            data: &[],
            limits: (8, DATA_MAX),
        };
        let Some((parameters, data)) = self.find(connected, &trans2).await? else {
            return Ok(Vec::new());
        };
        let response = FindResponse::read(&mut Reader::new(&parameters, "TRANS2_FIND_NEXT2 response"))?;
        self.take(connected, response, &data)
    }

    /// Sends a request; `None` after the last entry.
    async fn find(
        &mut self,
        connected: &Connected,
        trans2: &Trans2<'_>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let reply = match connected.channel.exchange(trans2.request(connected.tid)).await {
            Answer::Replied(reply) => reply,
            Answer::Lost { .. } => return Err(Error::Lost(LostReason::OutcomeUnknown)),
            Answer::TooLong => return Err(Error::Misuse("a path is longer than the server receives")),
        };
        if matches!(reply.header.status, NtStatus::NO_MORE_FILES) {
            self.is_ended = true;
            self.search = None;
            return Ok(None);
        }
        let reply = checked_transaction("list", *reply)?;
        Ok(Some((reply.parameters, reply.data)))
    }

    /// Takes the entries of a response.
    fn take(&mut self, connected: &Connected, response: FindResponse, data: &[u8]) -> Result<Batch> {
        let Some(search) = &mut self.search else {
            return Ok(Vec::new());
        };
        let entries = search.layout.decode(data, usize::from(response.count));
        let entries = entries?;
        if let Some(last) = entries.last() {
            search.last_name = last.name.clone();
            search.resume_key = last.index;
        }
        if response.end_of_search != 0 {
            self.is_ended = true;
            self.search = None;
        } else if entries.is_empty() {
            return Err(Error::InvalidReply("a listing goes on without names".to_owned()));
        }
        let named = |entry: Entry| (connected.text(&entry.name), entry);
        Ok(entries.into_iter().map(named).collect())
    }

    /// Returns whether entries have the numbers of their files.
    pub(crate) fn has_numbers(&self) -> bool {
        self.level == Some(level::ID_BOTH_DIRECTORY)
    }
}

fn flags(layout: &Layout) -> FindFlags {
    let flags = FindFlags::CLOSE_AT_EOS;
    match layout.has_keys {
        true => flags | FindFlags::RETURN_RESUME_KEYS,
        false => flags,
    }
}

impl Drop for Listing {
    /// Ends the search on the server.
    fn drop(&mut self) {
        let Some(search) = self.search.take().filter(|_| !self.is_ended) else {
            return;
        };
        let share = self.share.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(connected) = share.connected().await
                    && connected.channel.generation == search.generation
                {
                    let close =
                        Request::new(Command::FIND_CLOSE2, connected.tid, |w| encode_id(search.sid, w));
                    connected.channel.exchange(close).await;
                }
            });
        }
    }
}
