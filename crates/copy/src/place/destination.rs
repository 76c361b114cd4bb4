//! Where a node is written: the rule of [`ropeway_plan::placement`] with the names of this job.

use ropeway_plan::Spot;
use ropeway_vfs::{Name, RelPath};

use crate::job::config::JobConfig;
use crate::place::task::FileTask;

/// The path on the target to which a node is written until it is complete.
pub(crate) struct Destination {
    pub(crate) path: RelPath,
    pub(crate) name: Name,
    pub(crate) spot: Spot,
}

impl Destination {
    /// Returns the destination of a file.
    pub(crate) fn of_file(config: &JobConfig, task: &FileTask) -> Self {
        let visibility = task.folder.visibility();
        let spot = Spot::of_file(visibility, task.existing.as_ref(), config.options.inplace);
        Self::at(config, task, spot)
    }

    /// Returns the destination of a node without data. `is_taken` is whether anything stands under
    /// its name.
    pub(crate) fn of_node(config: &JobConfig, task: &FileTask, is_taken: bool) -> Self {
        Self::at(config, task, Spot::of_node(task.folder.visibility(), is_taken))
    }

    fn at(config: &JobConfig, task: &FileTask, spot: Spot) -> Self {
        let name = match spot.has_final_name() {
            true => task.name.clone(),
            false => config.temporary_of(task.token()),
        };
        Self {
            path: task.folder.path().join(&name),
            name,
            spot,
        }
    }

    /// Whether the node has its final name from the start.
    pub(crate) fn has_final_name(&self) -> bool {
        self.spot.has_final_name()
    }

    /// Whether the node overwrites the content of an existing file.
    pub(crate) fn is_in_place(&self) -> bool {
        self.spot == Spot::InPlace
    }
}
