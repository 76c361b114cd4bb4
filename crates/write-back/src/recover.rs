//! Takes a journal into use again after a restart.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::files::{File, Pending};
use crate::log::{self, Replayed};
use crate::shared::Shared;

impl Shared {
    /// Replays all logs and queues their files. Returns bytes at ends of logs that were torn.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn recover(self: &Arc<Self>) -> io::Result<u64> {
        let mut files: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
        for (name, length) in self.space.disk.list()? {
            if let Some((file, part)) = log::parse_name(&name) {
                files.entry(file).or_default().push((part, length));
            }
        }
        let mut torn = 0;
        for (number, mut parts) in files {
            parts.sort_unstable();
            self.next_log.fetch_max(number + 1, Ordering::AcqRel);
            let Some(replayed) = log::replay(&self.space, number, &parts)? else {
                continue;
            };
            torn += replayed.torn;
            self.take(replayed)?;
        }
        self.space.disk.reserve();
        self.space.disk.sync_names()?;
        Ok(torn)
    }

    fn take(self: &Arc<Self>, replayed: Replayed) -> io::Result<()> {
        let Replayed {
            mut log,
            backlog,
            snapshot,
            ..
        } = replayed;
        // An end that was noted counts also where other parts are damaged, or removed already.
        let has_nothing = backlog.is_empty() && replayed.conflict.is_none() && !replayed.is_damaged;
        if replayed.is_removed || has_nothing {
            log.finish();
            return Ok(());
        }
        // What the process before this one had handed to the kernel is durable from now on.
        if let Err(error) = log.sync(backlog.next) {
            // Another start might be told that all is well. The far server gets it now, and only that
            // counts.
            self.fails(&error);
        }
        let file = Arc::new(File::new(snapshot.base.id, &snapshot.path));
        let mut conflict = replayed.conflict;
        if replayed.is_damaged {
            self.is_damaged(&snapshot.path);
            conflict.get_or_insert(None);
        }
        let is_lost = conflict.is_some();
        {
            let mut state = file.state.lock();
            state.is_lost = is_lost;
            state.pending = Some(Pending {
                log,
                backlog,
                base: snapshot.base,
                draining: snapshot.draining,
                stat: None,
                since: crate::shared::now(),
                is_removing: replayed.is_removing,
                conflict,
            });
            self.backlogs.fetch_add(1, Ordering::AcqRel);
            self.queue_soon(&file, &mut state);
        }
        if !is_lost {
            self.files.insert(&file);
        }
        Ok(())
    }
}
