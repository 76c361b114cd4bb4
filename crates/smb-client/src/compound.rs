//! One round trip for what would take several: CREATE, steps on what it opened, CLOSE.
//!
//! ```text
//! Unknown ── answered ──> Taken
//!    └── refused, answered in part, or lost twice before any was answered ──> Refused: requests go one by one
//! ```
//! The decision is kept for a server and a login. It is made only by what no other fault looks like: the same steps, sent one
//! by one, went well; or the server never yet answered a compound and the connection ended with each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ropeway_block::Block;
use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::close::{CloseFlags, CloseResponse};
use ropeway_smb_wire::create::CreateResponse;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};

use crate::opened::Opened;
use crate::share::check_path;
use crate::tree::{Build, Ran, Replay, Tree, check, first};
use crate::{Created, Error, OpenFile, Operation, Result, Share, ops};

/// Compounds lost with their connection, before one was answered, that make a server one which takes none. Two: one may
/// be chance.
const LOSSES_MAX: u8 = 2;
/// Markers in [`Compounds`], behind the numbers of losses.
const TAKEN: u8 = 0xFE;
const REFUSED: u8 = 0xFF;

/// Whether a server takes compounds. Begins unknown; holds the number of losses until it is known.
#[derive(Debug, Default)]
pub(crate) struct Compounds(AtomicU8);

impl Compounds {
    /// Whether to send compounds.
    pub(crate) fn may_be_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed) != REFUSED
    }

    /// One was answered as such.
    pub(crate) fn answered(&self) {
        if self.0.load(Ordering::Relaxed) < TAKEN {
            self.0.store(TAKEN, Ordering::Relaxed);
        }
    }

    /// One was lost with its connection.
    pub(crate) fn lost(&self) {
        let counted = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| match state {
                TAKEN | REFUSED => None,
                losses if losses + 1 >= LOSSES_MAX => Some(REFUSED),
                losses => Some(losses + 1),
            });
        if counted.is_ok_and(|losses| losses + 1 >= LOSSES_MAX) {
            tracing::info!("the server answers no compounds; requests go one by one");
        }
    }

    /// What was refused as a compound went well one by one, or a compound was answered in part.
    pub(crate) fn refuse(&self) {
        if self.0.swap(REFUSED, Ordering::Relaxed) != REFUSED {
            tracing::info!("the server refuses compounds; requests go one by one");
        }
    }
}

impl Share {
    /// CREATE, steps on what it opened, and CLOSE, in one round trip; the answers to the steps. A server that refuses the
    /// compound gets the plain sequence, and from then on nothing else. The steps' own failures are for the caller.
    pub(crate) async fn compound(
        &self,
        path: &Text,
        open: &OpenFile,
        replay: Replay,
        mut steps: impl Steps,
    ) -> Result<Done> {
        check_path(path)?;
        let compounds = &self.client().link().compounds;
        if compounds.may_be_sent() {
            let steps = &mut steps;
            let build = Whole {
                share: self,
                path,
                open,
                steps,
            };
            match self.inner().run(replay, 0, build).await {
                Ok(ran) => match refusal(&ran.replies) {
                    Refusal::Request => return done(ran),
                    Refusal::Compound => self.close_left_open(&ran),
                },
                // It takes no compounds, as is known since.
                Err(Error::Lost(_)) if replay == Replay::Safe && !compounds.may_be_sent() => {}
                Err(error) => return Err(error),
            }
        }
        let handle = self.open_here(path, open).await?;
        let mut replies = Vec::new();
        let mut is_refused = true;
        for index in 0.. {
            // One step at a time, each made anew for the file's own name.
            let mut command = None;
            let build = |tree, file| {
                let one = steps.one(index, tree, file)?;
                command = one.as_ref().map(|operation| operation.command);
                if command == Some(Command::Write) {
                    handle.inner.writes();
                }
                Ok(one)
            };
            let written = handle.inner.written();
            let Some(mut reply) = handle.inner.step(replay, build).await? else {
                break;
            };
            if command == Some(Command::Flush) && reply.status().is_success() {
                // The server may be back without what it had taken before.
                handle.inner.flushed(written)?;
            }
            if let Some(payload) = reply.returned.take() {
                steps.take_back(payload);
            }
            let is_success = reply.status().is_success();
            // What follows would make less than a whole file look like one.
            let is_last = !is_success && matches!(reply.header.command, Command::Write | Command::Flush);
            is_refused &= is_success;
            replies.push(reply);
            if is_last {
                break;
            }
        }
        let created = handle.created().clone();
        let size = handle.inner.close(steps.asks_size()).await?;
        if is_refused {
            compounds.refuse();
        }
        Ok(Done {
            created,
            replies,
            size,
        })
    }

    /// Closes what a compound opened and, refused in its middle, did not close.
    pub(crate) fn close_left_open(&self, ran: &Ran) {
        if let Some(file_id) = crate::driver::left_open(&ran.replies) {
            let left = Opened {
                session: Arc::clone(&ran.session),
                tree: ran.tree,
                file_id,
            };
            left.close_aside(None);
        }
    }
}

/// The steps between CREATE and CLOSE.
pub(crate) trait Steps {
    /// All of them, made anew for each attempt.
    ///
    /// # Errors
    /// What one of them carried is gone.
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>>;

    /// One of them, where they go one by one; `None` behind the last.
    ///
    /// # Errors
    /// What it carried is gone.
    fn one(&mut self, index: usize, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        Ok(self.all(tree, file)?.into_iter().nth(index))
    }

    /// Whether the CLOSE is to tell the size that the server keeps ([MS-SMB2] 2.2.15).
    fn asks_size(&self) -> bool {
        false
    }

    /// An attempt failed, and this is the payload that it carried.
    fn take_back(&mut self, _payload: Block) {}
}

impl<F: FnMut(TreeId, FileId) -> Vec<Operation>> Steps for F {
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>> {
        Ok(self(tree, file))
    }
}

/// CREATE, steps, CLOSE.
struct Whole<'a, S> {
    share: &'a Share,
    path: &'a Text,
    open: &'a OpenFile,
    steps: &'a mut S,
}

impl<S: Steps> Build for Whole<'_, S> {
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>> {
        let inner = self.share.inner();
        let create = inner.create(tree, self.path, self.open, Default::default(), Vec::new());
        let mut operations = vec![create];
        operations.extend(self.steps.all(tree.id, FileId::RELATED)?);
        operations.push(ops::close(tree.id, FileId::RELATED, self.steps.asks_size()));
        Ok(operations)
    }

    fn take_back(&mut self, payload: Block) {
        self.steps.take_back(payload);
    }
}

/// What a compound came to: the CREATE succeeded.
pub(crate) struct Done {
    pub(crate) created: Created,
    /// The answers to the steps; behind a WRITE or FLUSH that failed there may be none.
    pub(crate) replies: Vec<Reply>,
    /// The size that the server keeps, if the CLOSE was to tell it and did.
    pub(crate) size: Option<u64>,
}

fn done(ran: Ran) -> Result<Done> {
    let mut replies = ran.replies;
    let created = {
        let reply = first(&replies)?;
        check("open", reply)?;
        Created::from_wire(&CreateResponse::decode(&mut reply.body())?)
    };
    replies.remove(0);
    // A server may find out only at the end that it cannot delete, or write what it took.
    let closed = replies.pop();
    let size = closed.as_ref().and_then(size_told);
    if let Some(closed) = closed
        && replies.iter().all(|reply| !reply.status().is_error())
    {
        check("close", &closed)?;
    }
    Ok(Done {
        created,
        replies,
        size,
    })
}

/// The size in the answer to a CLOSE ([MS-SMB2] 2.2.16: without the flag the fields mean nothing).
pub(crate) fn size_told(closed: &Reply) -> Option<u64> {
    if !closed.status().is_success() {
        return None;
    }
    let closed = CloseResponse::decode(&mut closed.body()).ok()?;
    let is_told = closed.flags.contains(CloseFlags::POSTQUERY_ATTRIB);
    is_told.then_some(closed.end_of_file)
}

/// What a server means by refusing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// One of the requests, or none.
    Request,
    /// That they came together.
    Compound,
}

/// Whether the compound itself may have been refused.
pub(crate) fn refusal(replies: &[Reply]) -> Refusal {
    let statuses: Vec<NtStatus> = replies.iter().map(Reply::status).collect();
    refusal_of(&statuses)
}

/// The first request went well and no related one found what it opened, or all were refused in the same breath. A server
/// that refuses the first for itself says why, and the others are no news ([MS-SMB2] 3.3.5.2.7.2).
fn refusal_of(statuses: &[NtStatus]) -> Refusal {
    let is_refused = |status: &NtStatus| {
        matches!(
            *status,
            NtStatus::INVALID_PARAMETER
                | NtStatus::FILE_CLOSED
                | NtStatus::NOT_IMPLEMENTED
                | NtStatus::NOT_SUPPORTED
        )
    };
    match statuses {
        [first, related @ ..]
            if !related.is_empty()
                && (first.is_success() || is_refused(first))
                && related.iter().all(is_refused) =>
        {
            Refusal::Compound
        }
        _ => Refusal::Request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_compound_is_told_from_a_refused_request() {
        use NtStatus as S;
        for statuses in [
            &[S::SUCCESS, S::INVALID_PARAMETER, S::INVALID_PARAMETER][..],
            &[S::SUCCESS, S::FILE_CLOSED, S::FILE_CLOSED],
            &[S::INVALID_PARAMETER, S::INVALID_PARAMETER],
            &[S::NOT_SUPPORTED, S::NOT_SUPPORTED, S::NOT_SUPPORTED],
        ] {
            assert_eq!(refusal_of(statuses), Refusal::Compound, "{statuses:?}");
        }
        for statuses in [
            &[S::SUCCESS, S::SUCCESS, S::SUCCESS][..],
            &[S::SUCCESS, S::INVALID_PARAMETER, S::SUCCESS],
            // How servers say that there is no such file, some of them.
            &[S::OBJECT_NAME_NOT_FOUND, S::FILE_CLOSED, S::FILE_CLOSED],
            &[S::ACCESS_DENIED, S::INVALID_PARAMETER],
            &[S::INVALID_PARAMETER],
        ] {
            assert_eq!(refusal_of(statuses), Refusal::Request, "{statuses:?}");
        }
    }

    #[test]
    fn a_server_that_never_answered_a_compound_gets_no_third() {
        let compounds = Compounds::default();
        compounds.lost();
        assert!(compounds.may_be_sent());
        compounds.lost();
        assert!(!compounds.may_be_sent());
        let compounds = Compounds::default();
        compounds.answered();
        (0..1000).for_each(|_| compounds.lost());
        assert!(compounds.may_be_sent(), "lines are lost, too");
        compounds.refuse();
        compounds.answered();
        assert!(!compounds.may_be_sent());
    }
}
