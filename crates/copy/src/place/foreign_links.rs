//! Finds hard links of a target file that belong to other files of the source.

use ropeway_vfs::Kind;

use crate::job::config::JobConfig;
use crate::place::task::FileTask;

/// Whether the target file of this task has hard links that belong to other files of the source.
/// New attributes would apply to those as well, and the next run would set them back.
pub(crate) async fn has_foreign_links(config: &JobConfig, task: &FileTask) -> bool {
    let Some(existing) = task.existing.as_ref().filter(|existing| existing.links > 1) else {
        return false;
    };
    let expected = match config.options.hard_links {
        true => task.metadata.links,
        false => 1,
    };
    let path = task.folder.path().join(&task.name);
    // Read again: this run may have linked names to it since.
    let links = match config.target.metadata(&path).await {
        Ok(now) => now.links,
        Err(_) => existing.links,
    };
    links > expected
}

/// Asks a server how many names the target file of this task has: listings do not tell.
pub(crate) async fn learn_links(config: &JobConfig, task: &mut FileTask) {
    let path = task.folder.path().join(&task.name);
    if let Some(existing) = task.existing.as_mut()
        && existing.kind == Kind::File
        && config.target.capabilities().remote
        && let Ok(now) = config.target.metadata(&path).await
    {
        existing.links = now.links;
    }
}
