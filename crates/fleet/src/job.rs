//! What a job is asked to do, as its catalog keeps it.

use ropeway_vfs::Capabilities;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::outlook::Size;
use crate::source_mark::SourceMark;

/// Version of the catalog. Programs of another version refuse it.
const VERSION: u32 = 6;

/// The file `job` of a catalog. It holds no secrets: each worker has its own credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    version: u32,
    /// Where to copy from, as `submit` was told. Workers may know it under another name.
    pub source: String,
    /// Where to copy to.
    pub target: String,
    /// What the source is.
    #[serde(default)]
    pub mark: SourceMark,
    /// What the ends can do.
    #[serde(default)]
    pub rules: Option<EndRules>,
    /// Whether to remove what only the target has.
    #[serde(default)]
    pub delete: bool,
    /// Rate or timetable in the syntax of `--bwlimit` for all workers together.
    #[serde(default)]
    pub bwlimit: Option<String>,
    /// What the job before this one found in the same source.
    #[serde(default)]
    pub expected: Option<Size>,
    /// What all workers together may ask of the source.
    #[serde(default)]
    pub source_budget: Budget,
    /// What they may ask of the target, besides the catalog.
    #[serde(default)]
    pub target_budget: Budget,
    /// The server that hands out tasks; without one the catalog does.
    #[serde(default)]
    pub queue: Option<QueueServer>,
}

/// A server that hands out tasks. It names no credentials: each worker has its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueServer {
    /// `nats://host:port`, several with commas.
    pub servers: String,
    /// Copies of each message in a cluster.
    pub replicas: usize,
}

/// What decides under which names nodes are copied, and which are one. All workers of a job must
/// see the ends alike: else one would not find what another has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRules {
    source_windows_names: bool,
    source_raw_names: bool,
    source_ids: bool,
    target_windows_names: bool,
    target_raw_names: bool,
    target_case_sensitive: bool,
    target_hard_links: bool,
}

impl EndRules {
    /// Returns the rules of two trees.
    pub fn between(source: &Capabilities, target: &Capabilities) -> Self {
        Self {
            source_windows_names: source.windows_names,
            source_raw_names: source.raw_names,
            source_ids: source.stable_ids,
            target_windows_names: target.windows_names,
            target_raw_names: target.raw_names,
            target_case_sensitive: target.case_sensitive,
            target_hard_links: target.hard_links,
        }
    }
}

impl JobFile {
    /// Makes the file of a new job.
    pub fn new(source: String, target: String) -> Self {
        Self {
            version: VERSION,
            source,
            target,
            mark: SourceMark::default(),
            rules: None,
            delete: false,
            bwlimit: None,
            expected: None,
            source_budget: Budget::default(),
            target_budget: Budget::default(),
            queue: None,
        }
    }

    /// Notes what an earlier job found in the same source.
    #[must_use]
    pub fn with_expected(self, expected: Option<Size>) -> Self {
        Self { expected, ..self }
    }

    /// Lets a server hand out the tasks.
    #[must_use]
    pub fn with_queue(self, queue: Option<QueueServer>) -> Self {
        Self { queue, ..self }
    }

    /// Limits the rate of all workers together.
    #[must_use]
    pub fn with_bwlimit(self, bwlimit: Option<String>) -> Self {
        Self { bwlimit, ..self }
    }

    /// Limits what all workers together ask of source and target.
    #[must_use]
    pub fn with_budgets(self, source_budget: Budget, target_budget: Budget) -> Self {
        Self {
            source_budget,
            target_budget,
            ..self
        }
    }

    /// Removes what only the target has.
    #[must_use]
    pub fn with_deletions(self, delete: bool) -> Self {
        Self { delete, ..self }
    }

    /// Adds what workers compare with their own ends.
    #[must_use]
    pub fn of_ends(self, mark: SourceMark, rules: EndRules) -> Self {
        Self {
            mark,
            rules: Some(rules),
            ..self
        }
    }

    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers are JSON")
    }

    /// Parses the bytes.
    ///
    /// # Errors
    /// They are of another version, or no job.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let damaged = |_| Error::Damaged("job".to_owned());
        let Head { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        match version {
            VERSION => serde_json::from_slice(bytes).map_err(damaged),
            found => Err(Error::OtherVersion { found, own: VERSION }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_written_and_other_versions_are_refused() {
        let budget = Budget {
            ops: Some(500),
            latency_ms: Some(20),
        };
        let job =
            JobFile::new("/a".to_owned(), "smb://nas/b".to_owned()).with_budgets(budget, Budget::default());
        assert_eq!(JobFile::decode(&job.encode()).unwrap(), job);
        let other = String::from_utf8(job.encode())
            .unwrap()
            .replace("\"version\": 6", "\"version\": 5");
        let other = JobFile::decode(other.as_bytes());
        assert!(
            matches!(other, Err(Error::OtherVersion { found: 5, own: 6 })),
            "{other:?}"
        );
        assert!(matches!(JobFile::decode(b"{}"), Err(Error::Damaged(_))));
    }
}
