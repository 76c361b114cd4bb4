//! The open files of a share, so that a rename can wait for those below its folder.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_smb_wire::{Text, upcase};
use tokio::sync::Notify;

const SEPARATOR: u16 = b'\\' as u16;

/// The paths of open files in a share. Shared by all trees of the share.
#[derive(Default)]
pub(crate) struct OpenFiles {
    /// Number of open handles by path, folded to upper case.
    paths: Mutex<HashMap<Text, usize>>,
    closed: Notify,
}

impl OpenFiles {
    /// Records an open file. Returns the key for [`remove`](Self::remove).
    pub(crate) fn add(&self, path: &Text) -> Text {
        let key = upcase::fold(path);
        *self.paths.lock().entry(key.clone()).or_default() += 1;
        key
    }

    /// Removes a file that is about to be closed.
    pub(crate) fn remove(&self, key: &Text) {
        let mut paths = self.paths.lock();
        if let Some(count) = paths.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                paths.remove(key);
            }
        }
        drop(paths);
        self.closed.notify_waiters();
    }

    /// Waits until no file is open at or below these paths, at most `max`. Returns whether one was
    /// open at first and none is now.
    pub(crate) async fn wait_for_close(&self, paths: &[&Text], max: Duration) -> bool {
        let folded: Vec<Text> = paths.iter().map(|path| upcase::fold(path)).collect();
        if !self.is_any_at(&folded) {
            return false;
        }
        let none_left = async {
            loop {
                let closed = self.closed.notified();
                tokio::pin!(closed);
                // Registered before the check, so that no close is missed.
                closed.as_mut().enable();
                if !self.is_any_at(&folded) {
                    break;
                }
                closed.await;
            }
        };
        tokio::time::timeout(max, none_left).await.is_ok()
    }

    fn is_any_at(&self, folded: &[Text]) -> bool {
        let paths = self.paths.lock();
        paths
            .keys()
            .any(|open| folded.iter().any(|path| is_at(open.units(), path.units())))
    }
}

/// Returns whether a path is `folder` or lies below it.
fn is_at(path: &[u16], folder: &[u16]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| folder.is_empty() || rest.first().is_none_or(|unit| *unit == SEPARATOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_wakes_when_the_last_file_below_closes() {
        let (files, max) = (OpenFiles::default(), Duration::from_secs(60));
        let folder = Text::from("Dir");
        assert!(!files.wait_for_close(&[&folder], max).await, "nothing is open");
        let first = files.add(&Text::from("dir\\file"));
        let second = files.add(&Text::from("DIR\\file"));
        let other = files.add(&Text::from("dirt"));
        assert!(
            !files.wait_for_close(&[&folder], Duration::ZERO).await,
            "it stays open"
        );
        let folders = [&folder];
        let (woken, ()) = tokio::join!(files.wait_for_close(&folders, max), async {
            files.remove(&first);
            tokio::task::yield_now().await;
            files.remove(&second);
        });
        assert!(woken);
        files.remove(&other);
        assert!(files.paths.lock().is_empty());
    }
}
