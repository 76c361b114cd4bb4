//! An open file, which is opened again by its path after a lost connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_block::Block;
use ropeway_smb_client::{Error, LostReason, NtStatus, Result, Text};
use ropeway_smb_wire::create::{CreateDisposition, CreateOptions};
use ropeway_smb_wire::info::{FileBasicInformation, FileEndOfFileInformation, Information as _};
use ropeway_smb1::Command;
use ropeway_smb1::client::{Reply, Request};
use ropeway_smb1::wire::create::CreateResponse;
use ropeway_smb1::wire::read::{ReadRequest, ReadResponse};
use ropeway_smb1::wire::trans2::Level;
use ropeway_smb1::wire::write::{WriteMode, WriteRequest, WriteResponse};

use crate::calls::{OpenHow, close_request, flush_request};
use crate::channel::Answer;
use crate::share::{Connected, Share, checked};

/// Attempts of one operation while the connection is lost again and again. A guess, as in `share`.
const ATTEMPTS: usize = 8;

/// Whether a path that was opened again still leads to the same file.
///
/// Samba takes the oldest time of a file without a stored time of creation for it. If that was the time
/// of access, reading the file changes it to the next older one.
fn is_same(before: &CreateResponse, now: &CreateResponse) -> bool {
    let is_next_older = || {
        let times = [before.last_write_time, before.change_time];
        times.contains(&now.creation_time)
            && (now.last_write_time, now.end_of_file) == (before.last_write_time, before.end_of_file)
    };
    now.is_directory == before.is_directory && (now.creation_time == before.creation_time || is_next_older())
}

/// An open file.
pub(crate) struct OpenFile {
    share: Share,
    path: Text,
    how: OpenHow,
    /// The first response.
    pub(crate) created: CreateResponse,
    state: tokio::sync::Mutex<State>,
    /// Whether something was written since the last flush.
    unflushed: AtomicBool,
    /// Whether unflushed writes may have been lost with a connection.
    in_doubt: AtomicBool,
}

#[derive(Clone, Copy)]
struct State {
    /// Number of the connection that the FID belongs to.
    generation: u64,
    fid: u16,
}

/// Data of a READ, inside the reply that brought it.
pub(crate) struct ReadData(Box<Reply>);

impl ReadData {
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        Ok(ReadResponse::data(&self.0.block()?)?)
    }
}

impl OpenFile {
    /// Opens or makes a file. A file that must be new is not made twice: if the connection was lost
    /// meanwhile, the outcome is unknown.
    pub(crate) async fn open(share: &Share, path: &Text, how: OpenHow) -> Result<Self> {
        let mut last = Error::Lost(LostReason::NotBack);
        for _ in 0..ATTEMPTS {
            let connected = share.connected().await?;
            match share.open_once("open", &connected, path, &how).await {
                Ok(created) => {
                    return Ok(Self {
                        share: share.clone(),
                        path: path.clone(),
                        how: OpenHow {
                            disposition: CreateDisposition::Open,
                            options: how.options.difference(CreateOptions::DELETE_ON_CLOSE),
                            ..how
                        },
                        created,
                        state: tokio::sync::Mutex::new(State {
                            generation: connected.channel.generation,
                            fid: created.fid,
                        }),
                        unflushed: AtomicBool::new(false),
                        in_doubt: AtomicBool::new(false),
                    });
                }
                Err(error @ Error::Lost(LostReason::OutcomeUnknown)) => {
                    if how.disposition == CreateDisposition::Create {
                        return Err(error);
                    }
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    /// Returns the FID on the present connection; opens the file again where necessary.
    async fn fid(&self) -> Result<(Connected, u16)> {
        let connected = self.share.connected().await?;
        let mut state = self.state.lock().await;
        if state.generation != connected.channel.generation {
            *state = self.reopen(&connected).await?;
        }
        let fid = state.fid;
        Ok((connected, fid))
    }

    async fn reopen(&self, connected: &Connected) -> Result<State> {
        if self.unflushed.load(Ordering::Acquire) {
            self.in_doubt.store(true, Ordering::Release);
        }
        let opened = match self
            .share
            .open_once("open again", connected, &self.path, &self.how)
            .await
        {
            Ok(opened) => opened,
            Err(Error::PeerRefused { .. }) => return Err(Error::Lost(LostReason::HandleGone)),
            Err(error) => return Err(error),
        };
        if !is_same(&self.created, &opened) {
            connected.channel.post(close_request(connected.tid, opened.fid));
            return Err(Error::Lost(LostReason::HandleGone));
        }
        tracing::debug!("a file was opened again after a lost connection");
        Ok(State {
            generation: connected.channel.generation,
            fid: opened.fid,
        })
    }

    /// Sends a request about the file, again after a lost connection. Requests that may not run
    /// twice are not sent through here.
    async fn call(&self, make: impl Fn(&Connected, u16) -> Request) -> Result<Box<Reply>> {
        let mut last = Error::Lost(LostReason::NotBack);
        for _ in 0..ATTEMPTS {
            let (connected, fid) = match self.fid().await {
                Ok(opened) => opened,
                // The connection was lost again while the file was opened.
                Err(error @ Error::Lost(LostReason::OutcomeUnknown)) => {
                    last = error;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match connected.channel.exchange(make(&connected, fid)).await {
                Answer::Replied(reply) => return Ok(reply),
                Answer::Lost { .. } => {}
                Answer::TooLong => return Err(Error::Misuse("a request is longer than the server receives")),
            }
        }
        Err(last)
    }

    /// Reads at most `count` bytes, in one request. Empty at the end of the file.
    pub(crate) async fn read(&self, offset: u64, count: u32) -> Result<Option<ReadData>> {
        let reply = self
            .call(|connected, fid| {
                let is_large = connected.negotiated().has_large_files();
                let request = ReadRequest {
                    fid,
                    offset,
                    count,
                    // Servers before NT wait in vain for more than they can send.
                    min_count: 0,
                    is_large,
                    ..ReadRequest::default()
                };
                Request::new(Command::READ_ANDX, connected.tid, |w| request.encode(w))
            })
            .await?;
        if reply.header.status == NtStatus::END_OF_FILE {
            return Ok(None);
        }
        let reply = checked("read", reply)?;
        let data = ReadData(reply);
        let length = data.bytes()?.len();
        if length > count as usize {
            return Err(Error::InvalidReply(
                "a READ returned more than was asked for".to_owned(),
            ));
        }
        Ok(Some(data))
    }

    /// Writes a block, in one request. Returns the number of bytes that were written.
    pub(crate) async fn write(&self, offset: u64, block: &Block) -> Result<usize> {
        self.unflushed.store(true, Ordering::Release);
        let reply = self
            .call(|connected, fid| {
                let request = WriteRequest {
                    fid,
                    offset,
                    mode: WriteMode::empty(),
                    length: block.len(),
                    is_large: connected.negotiated().has_large_files(),
                    ..WriteRequest::default()
                };
                Request::new(Command::WRITE_ANDX, connected.tid, |w| request.encode_head(w))
                    .with_payload(block.clone())
            })
            .await?;
        let reply = checked("write", reply)?;
        let count = WriteResponse::decode(&reply.block()?)?.count as usize;
        if count > block.len() {
            return Err(Error::InvalidReply("a WRITE wrote more than was sent".to_owned()));
        }
        Ok(count)
    }

    /// Flushes to the server's disk.
    ///
    /// # Errors
    /// Those of the request; [`LostReason::WritesInDoubt`] once if unflushed writes may be lost.
    pub(crate) async fn flush(&self) -> Result<()> {
        let reply = self
            .call(|connected, fid| flush_request(connected.tid, fid))
            .await?;
        checked("flush", reply)?;
        self.unflushed.store(false, Ordering::Release);
        match self.in_doubt.swap(false, Ordering::AcqRel) {
            true => Err(Error::Lost(LostReason::WritesInDoubt)),
            false => Ok(()),
        }
    }

    /// Queries a level.
    pub(crate) async fn query(&self, level: Level) -> Result<Vec<u8>> {
        let reply = self
            .call(|connected, fid| Share::query_file_request(connected.tid, fid, level))
            .await?;
        crate::share::checked_transaction("query", *reply).map(|reply| reply.data)
    }

    async fn set(&self, op: &'static str, level: Level, data: &[u8]) -> Result<()> {
        let reply = self
            .call(|connected, fid| Share::set_file_request(connected.tid, fid, level, data))
            .await?;
        checked(op, reply).map(drop)
    }

    /// Sets times and attributes.
    pub(crate) async fn set_basic(&self, basic: &FileBasicInformation) -> Result<()> {
        self.set("set attributes", Level::BASIC, &basic.to_bytes()).await
    }

    /// Sets the length.
    pub(crate) async fn set_length(&self, length: u64) -> Result<()> {
        self.unflushed.store(true, Ordering::Release);
        let end = FileEndOfFileInformation { end_of_file: length };
        self.set("set the length", Level::SET_END_OF_FILE, &end.to_bytes())
            .await
    }

    /// Sets or clears the mark that deletes the file when it is closed.
    pub(crate) async fn set_delete(&self, deletes: bool) -> Result<()> {
        self.set("remove", Level::SET_DISPOSITION, &[u8::from(deletes)])
            .await
    }

    /// Closes the file; waits for the reply.
    pub(crate) async fn close(&self) {
        let state = *self.state.lock().await;
        let Ok(connected) = self.share.connected().await else {
            return;
        };
        // Another connection has never opened it.
        if connected.channel.generation == state.generation {
            let close = close_request(connected.tid, state.fid);
            connected.channel.exchange(close).await;
        }
    }
}

/// Closes a file in the background; `guard` is held until it is closed.
pub(crate) fn close_detached<G: Send + 'static>(file: Arc<OpenFile>, guard: G) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            file.close().await;
            drop(guard);
        });
    }
}
