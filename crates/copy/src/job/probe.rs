//! Tests whether the target still accepts anything, with a folder that is made and removed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_vfs::{Error, ErrorKind, Name, RelPath, Tree};

/// The test of the target of a job. Its folder lies in the root of the target, and no claim names
/// it.
pub(crate) struct TargetProbe {
    target: Arc<dyn Tree>,
    path: RelPath,
    was_made: AtomicBool,
}

impl TargetProbe {
    /// Prepares the test. `name` is the temporary name of the folder.
    pub(crate) fn new(target: &Arc<dyn Tree>, name: &Name) -> Self {
        Self {
            target: Arc::clone(target),
            path: RelPath::root().join(name),
            was_made: AtomicBool::new(false),
        }
    }

    /// Whether the target still accepts anything, after this error.
    pub(crate) async fn still_answers(&self, error: &Error) -> bool {
        use ErrorKind as K;
        if !matches!(error.kind, K::DeviceError | K::Other | K::NotFound) {
            return true;
        }
        self.was_made.store(true, Ordering::Release);
        let made = match self.target.make_dir(&self.path, 0o700).await {
            Ok(()) => true,
            Err(refused) => refused.kind == K::AlreadyExists || refused.kind == K::PermissionDenied,
        };
        if made {
            // If this fails, the end of this run or the next run removes it.
            let _ = self.remove().await;
        }
        made
    }

    /// Removes the folder with which this run or an earlier one tested the target. Returns whether
    /// it was there.
    ///
    /// # Errors
    /// It could not be removed.
    pub(crate) async fn remove(&self) -> Result<bool, Error> {
        match self.target.remove_dir(&self.path).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether this run has tested the target.
    pub(crate) fn was_made(&self) -> bool {
        self.was_made.load(Ordering::Acquire)
    }
}
