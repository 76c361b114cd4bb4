//! What a mirror would delete, counted before the copy.

use futures_util::future::join_all;
use parking_lot::Mutex;
use ropeway_vfs::{Held, Metadata, RelPath};

use super::{Fate, Found, NAMED_MAX, Pass};
use crate::delete::above::Above;
use crate::delete::nodes::{CHUNK, is_mount_point, volume_of};
use crate::job::options::is_temporary;

/// A folder whose content is to be counted, with its volume and the place where it was found.
type CountedFolder = (RelPath, Option<u64>, Above, Held);

impl Pass<'_> {
    /// Counts a node that would be deleted or replaced, with everything below it.
    pub(super) async fn count(
        &self,
        path: &RelPath,
        metadata: &Metadata,
        (above, fate): (Above, Fate),
        found: &mut Found,
    ) {
        if found.first.len() < NAMED_MAX {
            found.first.push(path.clone());
        }
        found.add(Some(metadata));
        self.remember(path, Some(metadata), fate);
        let mut folders = Vec::new();
        if metadata.is_dir() {
            folders.push((path.clone(), volume_of(metadata), above, Held::default()));
        }
        let found = Mutex::new(found);
        while !folders.is_empty() {
            let first = folders.len().saturating_sub(self.removal.folders_at_once());
            let batch = folders.split_off(first);
            let inner = join_all(batch.iter().map(|folder| self.count_in(folder, fate, &found))).await;
            folders.extend(inner.into_iter().flatten());
        }
    }

    /// Counts what is in a folder that would be deleted. Returns its folders.
    async fn count_in(
        &self,
        (dir, volume, above, _): &CountedFolder,
        fate: Fate,
        found: &Mutex<&mut Found>,
    ) -> Vec<CountedFolder> {
        let (target, mut folders) = (&*self.context.config.target, Vec::new());
        // The deletion reports what cannot be listed.
        let Ok(mut listing) = target.list(dir).await else {
            return folders;
        };
        while let Ok(entries) = listing.next(CHUNK).await {
            if entries.is_empty() || above.prove(target, dir, &*listing).is_err() {
                break;
            }
            for entry in entries {
                if is_temporary(&entry.name) {
                    continue;
                }
                let child = dir.join(&entry.name);
                let metadata = entry.metadata.as_ref().ok();
                let stays = metadata.is_some_and(|metadata| {
                    self.removal.protection.keeps(&child, metadata) || is_mount_point(metadata, *volume)
                });
                let mut found = found.lock();
                found.target_nodes += 1;
                if stays {
                    continue;
                }
                found.add(metadata);
                drop(found);
                self.remember(&child, metadata, fate);
                if let Some(metadata) = metadata.filter(|metadata| metadata.is_dir())
                    && let Ok(held) = self.removal.backlog.hold(&child)
                {
                    folders.push((child, volume_of(metadata), Above::of(&*listing), held));
                }
            }
        }
        folders
    }

    /// Remembers what is deleted after the copy: new files may be built from it. What is replaced goes
    /// during the copy, so it is none of that.
    fn remember(&self, path: &RelPath, metadata: Option<&Metadata>, fate: Fate) {
        if fate == Fate::Extra {
            self.context.extra_files.add(path, metadata);
        }
    }
}
