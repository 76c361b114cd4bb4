//! Small files that were renamed or moved in the source: the target still has them elsewhere, where a
//! mirror will delete them (docs/adr/0040).

use ropeway_block::BlockMut;
use ropeway_vfs::{GetSmall, RelPath};

use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::DeltaMode;
use crate::place::task::FileTask;

/// A file of the target that may have the content of a new one.
pub(crate) struct Moved {
    /// Where it is.
    pub(crate) path: RelPath,
    /// Whether the target is far: it compares and copies the file. Otherwise the file is read here, and the
    /// source compares it.
    pub(crate) is_far: bool,
}

impl Moved {
    /// Looks for such a file, if a line is to be spared. `task` is a small file, which goes the short way.
    pub(crate) fn of(context: &Context, task: &FileTask) -> Option<Self> {
        let (config, root) = (&context.config, task.folder.root());
        let is_wanted = task.existing.is_none() && config.options.delta != DeltaMode::Off;
        let (source, target) = (root.root.source.capabilities(), config.target.capabilities());
        // Who makes or reads many at once is an end of this project, which compares.
        let is_far = target.far && target.small_puts_in_flight > 1;
        let is_near = !target.on_network && source.far && source.small_gets_in_flight > 1;
        if !is_wanted || !is_far && !is_near {
            return None;
        }
        let granularity = &root.rules.granularity;
        let path = context.extra_files.find(&task.name, &task.metadata, granularity);
        path.map(|path| Self { path, is_far })
    }

    /// Reads the file. Returns whether the block has all of it, and nothing else.
    pub(crate) async fn read(
        &self,
        config: &JobConfig,
        task: &FileTask,
        block: BlockMut,
    ) -> (BlockMut, bool) {
        let get = GetSmall {
            path: self.path.clone(),
            size: task.metadata.size,
            xattrs: false,
            cache: config.cache_of(task.locality(), task.metadata.size).target,
            is_known: false,
        };
        let (mut block, got) = config.target.get_small(get, block).await;
        let is_whole = got.is_ok_and(|got| got.whole) && block.len() as u64 == task.metadata.size;
        if !is_whole {
            block.set_len(0);
        }
        (block, is_whole)
    }
}
