//! What a worker does before anything else with a task: it ends the earlier claims.

use std::collections::HashSet;

use ropeway_vfs::{ErrorKind, Name, RelPath};

use super::ledger::Ledger;
use super::{Crew, is_of_node};
use crate::catalog::{Block, Record, State};
use crate::claim::{ClaimError, ClaimId};
use crate::error::{Error, Result};
use crate::files::name;
use crate::mutations::{self, Mutation};
use crate::task::Task;

/// Returns the name of a file in a stage.
pub(super) fn staged(number: u32) -> Name {
    name(&number.to_string())
}

/// A file that is open at a server of SMB cannot be removed, nor the folder above it.
fn held(error: Error) -> Error {
    match error.kind() {
        Some((ErrorKind::Busy | ErrorKind::NotEmpty, _)) => ClaimError::Held.into(),
        _ => error,
    }
}

impl Crew {
    /// Ends the earlier claims of a task, gives the files that they published their names, and
    /// makes the stage of this claim. Returns what they gave away.
    pub(super) async fn take_over(&self, claim: ClaimId) -> Result<Vec<Task>> {
        self.take_over_of(claim, false).await
    }

    /// The same for a task that may delete: what lies in its stages is to be removed.
    pub(super) async fn take_over_of(&self, claim: ClaimId, task_deletes: bool) -> Result<Vec<Task>> {
        for earlier in self.store.fence(claim).await.map_err(held)? {
            if mutations::is(Mutation::StageNotFenced) {
                continue;
            }
            match task_deletes {
                true => self.bury_all(&[earlier]).await?,
                false => self.adopt(earlier).await?,
            }
            self.store.close_stage(earlier).await.map_err(held)?;
        }
        let (mut given, mut ledger): (Vec<Task>, _) = (Vec::new(), Ledger::default());
        for segment in self.store.segments(Some(claim.task)).await? {
            for block in self.store.segment(segment).await? {
                ledger.inherit(&block);
                if let Block::Given(tasks) = block {
                    given.extend(tasks);
                }
            }
        }
        self.open_ledger(ledger);
        self.store.open_stage(claim).await?;
        Ok(given)
    }

    /// Gives the files that an earlier claim published, and that are still in its stage, their
    /// names. Their data is durable. The earlier holder may do the same at this moment: it is the
    /// same file.
    async fn adopt(&self, earlier: ClaimId) -> Result<()> {
        let staged_names: HashSet<Name> = self.store.staged(earlier).await?.into_iter().collect();
        if staged_names.is_empty() || mutations::is(Mutation::PublishedNotAdopted) {
            return Ok(());
        }
        for segment in self.store.segments(Some(earlier.task)).await? {
            if segment.claim != earlier {
                continue;
            }
            for block in self.store.segment(segment).await? {
                let Block::Records(records) = block else { continue };
                for record in records {
                    let State::Copied { staged: number } = record.state else {
                        continue;
                    };
                    if staged_names.contains(&staged(number)) {
                        self.name_file(earlier, number, &record.path).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives one staged file its name. Returns the reason if that failed for this file only.
    pub(super) async fn name_file(
        &self,
        claim: ClaimId,
        number: u32,
        path: &RelPath,
    ) -> Result<Option<String>> {
        let from = self.store.stage(claim).join(&staged(number));
        self.give_name(&from, path).await
    }

    /// Renames a complete file to its name on the target. Returns the reason if that failed for this file only.
    pub(super) async fn give_name(&self, from: &RelPath, path: &RelPath) -> Result<Option<String>> {
        let to = match self.ends.target_path(path) {
            Ok(to) => to,
            Err(error) => return Ok(Some(error.to_string())),
        };
        for is_last in [false, true] {
            match self.ends.target.rename(from, &to, true).await {
                Ok(()) => return Ok(None),
                // Another program has the file open: perhaps not for long.
                Err(error) if error.kind == ErrorKind::Busy && !is_last => {
                    self.sleep(self.options.poll).await;
                }
                Err(error) if is_of_node(error.kind) => return Ok(Some(error.to_string())),
                Err(error) => return Err(Error::target(error)),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Gives the files of a segment their names. Returns those for which that failed.
    pub(super) async fn name_files(
        &self,
        claim: ClaimId,
        records: &[Record],
    ) -> Result<Vec<(RelPath, String)>> {
        let mut failed = Vec::new();
        let stage = &self.store.stage(claim);
        for chunk in records.chunks(super::slice::AT_ONCE) {
            let renames = chunk.iter().map(|record| async move {
                let State::Copied { staged: number } = record.state else {
                    return Ok(None);
                };
                self.give_name(&stage.join(&staged(number)), &record.path).await
            });
            let results = futures_util::future::join_all(renames).await;
            for (record, result) in chunk.iter().zip(results) {
                if let Some(reason) = result? {
                    failed.push((record.path.clone(), reason));
                }
            }
        }
        if !failed.is_empty() {
            // Files that are gone from the stage were taken over with the claim.
            self.store.check(claim).await?;
        }
        Ok(failed)
    }
}

#[cfg(test)]
#[path = "takeover_tests.rs"]
mod tests;
