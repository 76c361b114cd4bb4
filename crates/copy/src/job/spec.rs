//! The input of a job.

use std::sync::Arc;

use ropeway_vfs::{RelPath, Tree};

use crate::job::environment::Environment;
use crate::job::options::{Options, Root};
use crate::journal::open::JournalSpec;

/// Everything a job needs.
pub struct JobSpec {
    /// What to copy.
    pub roots: Vec<Root>,
    /// The tree to copy into.
    pub target: Arc<dyn Tree>,
    /// Options.
    pub options: Options,
    /// What the job takes from the machine.
    pub environment: Environment,
    /// Where to keep the journal. Without one, an interrupted copy starts over, but still skips
    /// equal files.
    pub journal: Option<JournalSpec>,
}

impl JobSpec {
    /// Copies one whole tree to a path of another, without a journal.
    pub fn whole(source: Arc<dyn Tree>, target: Arc<dyn Tree>, to: RelPath, options: Options) -> Self {
        let root = Root {
            source,
            source_name: RelPath::root(),
            source_path: RelPath::root(),
            target_path: to,
        };
        Self {
            roots: vec![root],
            target,
            options,
            environment: Environment::default(),
            journal: None,
        }
    }
}
