//! Compounds: CREATE, steps on the opened file, and CLOSE in one round trip. If the server refuses
//! compounds, the requests go one by one (see `compound_support`).

use std::sync::Arc;

use ropeway_block::Block;
use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::CreateResponse;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};

use crate::error::{Error, Result};
use crate::open::{Created, OpenFile};
use crate::ops;
use crate::reopen::Opened;
use crate::replies::{check, first, reported_size};
use crate::share::{Share, check_path};
use crate::tree::{BuildRequest, Completed, Replay, Tree};

impl Share {
    /// Sends CREATE, steps on the opened file, and CLOSE in one round trip, and returns the replies
    /// to the steps. A server that refuses the compound gets single requests, now and from then on.
    /// The caller checks the results of the steps.
    pub(crate) async fn compound(
        &self,
        path: &Text,
        open: &OpenFile,
        replay: Replay,
        mut steps: impl CompoundSteps,
    ) -> Result<CompoundOutcome> {
        check_path(path)?;
        let compounds = &self.client().link().compounds;
        let is_usable = compounds.is_usable() || compounds.is_usable_for_queries() && steps.are_queries();
        if is_usable {
            let (bytes, steps) = (steps.payload(), &mut steps);
            let build = WholeCompound {
                share: self,
                path,
                open,
                steps,
            };
            match self.inner().run(replay, bytes, build).await {
                Ok(completed) => match refusal_cause(&completed.replies) {
                    RefusalCause::Request => return done(self, completed),
                    RefusalCause::Compound => self.close_left_open(&completed),
                },
                // The server takes no compounds, as is known by now.
                Err(Error::Lost(_)) if replay == Replay::Safe && !compounds.is_usable_for_queries() => {}
                Err(error) => return Err(error),
            }
        }
        let outcome = Box::pin(self.one_by_one(path, open, replay, &mut steps)).await?;
        let is_taken = outcome.replies.iter().all(|reply| reply.status().is_success());
        if is_taken && is_usable {
            compounds.refuse();
        }
        Ok(outcome)
    }

    /// Sends the requests of a compound one by one.
    async fn one_by_one(
        &self,
        path: &Text,
        open: &OpenFile,
        replay: Replay,
        steps: &mut impl CompoundSteps,
    ) -> Result<CompoundOutcome> {
        let handle = self.open_here(path, open).await?;
        let mut replies = Vec::new();
        for index in 0.. {
            // One step at a time, each built anew with the file's own id.
            let mut command = None;
            let build = |tree, file| {
                let one = steps.single(index, tree, file)?;
                command = one.as_ref().map(|operation| operation.command);
                if command == Some(Command::Write) {
                    handle.inner.count_write();
                }
                Ok(one)
            };
            let written = handle.inner.written();
            let Some(mut reply) = handle.inner.step(replay, build).await? else {
                break;
            };
            if command == Some(Command::Flush) && reply.status().is_success() {
                // The server may have restarted and lost earlier writes.
                handle.inner.flushed(written)?;
            }
            if let Some(payload) = reply.returned.take() {
                steps.put_back(payload);
            }
            let is_success = reply.status().is_success();
            // The following steps would make an incomplete file look complete.
            let is_last = !is_success && matches!(reply.header.command, Command::Write | Command::Flush);
            replies.push(reply);
            if is_last {
                break;
            }
        }
        let created = handle.created().clone();
        let size = handle.inner.close(steps.wants_size()).await?;
        Ok(CompoundOutcome {
            created,
            replies,
            size,
        })
    }

    /// Closes a file that a compound opened but, refused halfway, did not close.
    pub(crate) fn close_left_open(&self, completed: &Completed) {
        if let Some(file_id) = crate::replies::left_open(&completed.replies) {
            let left = Opened {
                session: Arc::clone(&completed.session),
                tree: completed.tree,
                file_id,
            };
            left.close_detached(None);
        }
    }
}

/// The steps between CREATE and CLOSE.
pub(crate) trait CompoundSteps {
    /// Returns all steps, built anew for each attempt.
    ///
    /// # Errors
    /// The payload of a step is no longer available.
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>>;

    /// Returns one step, where they go one by one; `None` behind the last.
    ///
    /// # Errors
    /// The payload is no longer available.
    fn single(&mut self, index: usize, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        Ok(self.all(tree, file)?.into_iter().nth(index))
    }

    /// Returns the number of bytes that a WRITE among the steps carries.
    fn payload(&self) -> u64 {
        0
    }

    /// Returns whether each step is a QUERY_INFO.
    fn are_queries(&mut self) -> bool;

    /// Returns whether the CLOSE asks for the size of the file on the server ([MS-SMB2] 2.2.15).
    fn wants_size(&self) -> bool {
        false
    }

    /// Takes the payload back after a failed attempt.
    fn put_back(&mut self, _payload: Block) {}
}

impl<F: FnMut(TreeId, FileId) -> Vec<Operation>> CompoundSteps for F {
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>> {
        Ok(self(tree, file))
    }

    fn are_queries(&mut self) -> bool {
        let steps = self(TreeId::default(), FileId::RELATED);
        steps.iter().all(|step| step.command == Command::QueryInfo)
    }
}

/// The whole compound: CREATE, steps, CLOSE.
struct WholeCompound<'a, S> {
    share: &'a Share,
    path: &'a Text,
    open: &'a OpenFile,
    steps: &'a mut S,
}

impl<S: CompoundSteps> BuildRequest for WholeCompound<'_, S> {
    fn operations(&mut self, tree: &Tree) -> Result<Vec<Operation>> {
        let inner = self.share.inner();
        let contexts = inner.private.query(tree).into_iter().collect();
        let create = inner.create(tree, self.path, self.open, Default::default(), contexts);
        let mut operations = vec![create];
        operations.extend(self.steps.all(tree.id, FileId::RELATED)?);
        operations.push(ops::close(tree.id, FileId::RELATED, self.steps.wants_size()));
        Ok(operations)
    }

    fn put_back(&mut self, payload: Block) {
        self.steps.put_back(payload);
    }
}

/// The outcome of a compound whose CREATE succeeded.
pub(crate) struct CompoundOutcome {
    pub(crate) created: Created,
    /// The replies to the steps. After a failed WRITE or FLUSH the rest may be missing.
    pub(crate) replies: Vec<Reply>,
    /// The size of the file on the server, if the CLOSE asked for it and the server reported it.
    pub(crate) size: Option<u64>,
}

fn done(share: &Share, completed: Completed) -> Result<CompoundOutcome> {
    let mut replies = completed.replies;
    let created = {
        let reply = first(&replies)?;
        check("open", reply)?;
        Created::from_wire(&CreateResponse::decode(&mut reply.body())?)
    };
    share.inner().private.learn(&completed.tree, created.private);
    replies.remove(0);
    // A server may find only at CLOSE that it cannot delete the file, or cannot write what it
    // accepted.
    let closed = replies.pop();
    let size = closed.as_ref().and_then(reported_size);
    if let Some(closed) = closed
        && replies.iter().all(|reply| !reply.status().is_error())
    {
        check("close", &closed)?;
    }
    Ok(CompoundOutcome {
        created,
        replies,
        size,
    })
}

/// What a server refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    /// One of the requests, or nothing.
    Request,
    /// The compound as such.
    Compound,
}

/// Returns whether the server may have refused the compound as such.
pub(crate) fn refusal_cause(replies: &[Reply]) -> RefusalCause {
    let statuses: Vec<NtStatus> = replies.iter().map(Reply::status).collect();
    refusal_cause_of(&statuses)
}

/// The compound as such was refused if the first request succeeded and no related one found its
/// file, or if all were refused with such a status. A server that refuses the first request for
/// itself gives a reason, and the other refusals only follow from it ([MS-SMB2] 3.3.5.2.7.2).
fn refusal_cause_of(statuses: &[NtStatus]) -> RefusalCause {
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
            RefusalCause::Compound
        }
        _ => RefusalCause::Request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_compound_is_distinguished_from_a_refused_request() {
        use NtStatus as S;
        for statuses in [
            &[S::SUCCESS, S::INVALID_PARAMETER, S::INVALID_PARAMETER][..],
            &[S::SUCCESS, S::FILE_CLOSED, S::FILE_CLOSED],
            &[S::INVALID_PARAMETER, S::INVALID_PARAMETER],
            &[S::NOT_SUPPORTED, S::NOT_SUPPORTED, S::NOT_SUPPORTED],
        ] {
            assert_eq!(refusal_cause_of(statuses), RefusalCause::Compound, "{statuses:?}");
        }
        for statuses in [
            &[S::SUCCESS, S::SUCCESS, S::SUCCESS][..],
            &[S::SUCCESS, S::INVALID_PARAMETER, S::SUCCESS],
            // Some servers report a missing file this way.
            &[S::OBJECT_NAME_NOT_FOUND, S::FILE_CLOSED, S::FILE_CLOSED],
            &[S::ACCESS_DENIED, S::INVALID_PARAMETER],
            &[S::INVALID_PARAMETER],
        ] {
            assert_eq!(refusal_cause_of(statuses), RefusalCause::Request, "{statuses:?}");
        }
    }
}
