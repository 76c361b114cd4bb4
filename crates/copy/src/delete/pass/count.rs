//! What a mirror would delete, counted before the copy.

use ropeway_vfs::{Held, Metadata, RelPath};

use super::{Fate, Found, NAMED_MAX, Pass};
use crate::delete::above::Above;
use crate::delete::nodes::{CHUNK, is_mount_point, volume_of};
use crate::job::options::is_temporary;

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
        let target = &*self.context.config.target;
        while let Some((dir, volume, above, _held)) = folders.pop() {
            // The deletion reports what cannot be listed.
            let Ok(mut listing) = target.list(&dir).await else {
                continue;
            };
            while let Ok(entries) = listing.next(CHUNK).await {
                if entries.is_empty() || above.prove(target, &dir, &*listing).is_err() {
                    break;
                }
                for entry in entries {
                    if is_temporary(&entry.name) {
                        continue;
                    }
                    let child = dir.join(&entry.name);
                    let metadata = entry.metadata.as_ref().ok();
                    let stays = metadata.is_some_and(|metadata| {
                        self.removal.protection.keeps(&child, metadata) || is_mount_point(metadata, volume)
                    });
                    found.target_nodes += 1;
                    if stays {
                        continue;
                    }
                    found.add(metadata);
                    self.remember(&child, metadata, fate);
                    if let Some(metadata) = metadata.filter(|metadata| metadata.is_dir())
                        && let Ok(held) = self.removal.backlog.hold(&child)
                    {
                        folders.push((child, volume_of(metadata), Above::of(&*listing), held));
                    }
                }
            }
        }
    }

    /// Remembers what is deleted after the copy: new files may be built from it. What is replaced goes
    /// during the copy, so it is none of that.
    fn remember(&self, path: &RelPath, metadata: Option<&Metadata>, fate: Fate) {
        if fate == Fate::Extra {
            self.context.extra_files.add(path, metadata);
        }
    }
}
