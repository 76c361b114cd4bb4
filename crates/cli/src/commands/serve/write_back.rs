//! The write-back journals of far shares: `--write-back`, and backlogs that an earlier run left.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_smb_client::SessionRecord;
use ropeway_vfs::store::Store;
use ropeway_write_back::{
    Journal, JournalError, Left, SessionFile, Status, WriteBackOptions, WriteBackStore,
};

use super::printer::Printer;
use crate::args::FarArgs;
use crate::failure::{Failure, code};
use crate::ui::format;

/// Longest time that the end of the server waits for all backlogs. The service manager kills it
/// after 90 s (systemd's default).
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// Returns the figures of all journals.
pub(super) type BacklogStatus = Arc<dyn Fn() -> Vec<Status> + Send + Sync>;

/// The journals in use, by the URLs of their shares. They stay in use when a share is removed by a
/// reload, since their backlogs must still be brought there.
#[derive(Default)]
pub(super) struct Journals(Arc<Mutex<Vec<Journaled>>>);

/// The URL of a share, and its store.
type Journaled = (String, Arc<WriteBackStore>);

impl Journals {
    /// Puts the journal in front of a far share if the flags ask for it, or if an earlier run has
    /// left a backlog.
    ///
    /// # Errors
    /// The journal cannot be used.
    pub(super) fn wrap(
        &self,
        args: &FarArgs,
        url: &str,
        far: Arc<dyn Store>,
        printer: &Printer,
    ) -> Result<Arc<dyn Store>, Failure> {
        let Some(cache) = &args.boost.boost else {
            return Ok(far);
        };
        let mut journals = self.0.lock();
        if let Some((_, there)) = journals.iter().find(|(there, _)| there == url) {
            return Ok(Arc::clone(there) as Arc<dyn Store>);
        }
        let left = left(cache)?.into_iter().find(|left| left.share == url);
        if !args.write_back && left.is_none() {
            return Ok(far);
        }
        if let Some(left) = &left {
            printer.warn(&format!(
                "{url}: what was written before is still on its way ({} in {})",
                format::counted(left.files, "file", "files"),
                left.path.display()
            ));
        }
        let journal = Journal::open(cache, url, far.features().volume).map_err(|error| failure(&error))?;
        let defaults = WriteBackOptions::default();
        let options = WriteBackOptions {
            accepts: args.write_back,
            bytes_max: args.write_back_size.unwrap_or(defaults.bytes_max),
            far: url.to_owned(),
            ..defaults
        };
        let store = WriteBackStore::open(far, journal, options).map_err(|error| failure(&error))?;
        journals.push((url.to_owned(), Arc::clone(&store)));
        Ok(store)
    }

    /// Returns the figures, to be asked at any time.
    pub(super) fn status(&self) -> BacklogStatus {
        let journals = Arc::clone(&self.0);
        Arc::new(move || journals.lock().iter().map(|(_, store)| store.status()).collect())
    }

    /// Brings backlogs to the far servers for a limited time, and says what is left.
    pub(super) fn close(&self, printer: &Printer) {
        let stores: Vec<_> = self.0.lock().drain(..).collect();
        let deadline = std::time::Instant::now() + DRAIN_MAX;
        for (url, store) in stores {
            let left = store.close(deadline.saturating_duration_since(std::time::Instant::now()));
            if left.files > 0 {
                printer.warn(&format!(
                    "{url}: {} with {} not written back yet; they are in the journal, and go on at the next start",
                    format::counted(left.files, "file", "files"),
                    format::bytes(left.bytes)
                ));
            }
        }
    }
}

/// The sessions at far servers, in the folder of the journals.
#[derive(Debug)]
struct Sessions(SessionFile);

impl SessionRecord for Sessions {
    fn last(&self, login: &str) -> Option<u64> {
        self.0.last(login)
    }

    fn begins(&self, login: &str, session: u64) -> std::io::Result<()> {
        self.0.begins(login, session)
    }
}

/// Returns where the sessions at far servers are kept, if there is a journal.
///
/// # Errors
/// The folder of the journals cannot be used.
pub(super) fn session_record(args: &FarArgs) -> Result<Option<Arc<dyn SessionRecord>>, Failure> {
    let Some(cache) = &args.boost.boost else {
        return Ok(None);
    };
    if !args.write_back && left(cache)?.is_empty() {
        return Ok(None);
    }
    let file = SessionFile::open(cache).map_err(|error| failure(&error))?;
    Ok(Some(Arc::new(Sessions(file))))
}

/// Checks that the flags for journals fit together.
///
/// # Errors
/// One is missing.
pub(super) fn check_flags(args: &FarArgs) -> Result<(), Failure> {
    if args.write_back && args.boost.boost.is_none() {
        return Err(Failure::usage("--write-back needs a folder for its journal")
            .hint("add --boost DIR, on a disk of this machine that you trust"));
    }
    if args.write_back_size.is_some() && !args.write_back {
        return Err(
            Failure::usage("--write-back-size is of no use without --write-back")
                .hint("add --write-back, or leave it out"),
        );
    }
    Ok(())
}

/// Refuses backlogs of shares that are not served: nobody would bring them to their server.
///
/// # Errors
/// There is one.
pub(super) fn check(args: &FarArgs, urls: &[String]) -> Result<(), Failure> {
    let Some(cache) = &args.boost.boost else {
        return Ok(());
    };
    for left in left(cache)? {
        if !urls.contains(&left.share) {
            let (files, bytes) = (
                format::counted(left.files, "file", "files"),
                format::bytes(left.bytes),
            );
            return Err(Failure::new(
                code::REFUSED,
                format!(
                    "{} has a backlog of {}: {files}, {bytes} written there before are not at its server yet",
                    cache.display(),
                    left.share
                ),
            )
            .hint(format!(
                "serve {} as well, until `ropeway boost status` shows no backlog; or choose another folder for --boost",
                left.share
            )));
        }
    }
    Ok(())
}

fn left(cache: &Path) -> Result<Vec<Left>, Failure> {
    Journal::left(cache).map_err(|error| failure(&error))
}

/// Turns an error about a journal into one line with a hint.
pub(crate) fn failure(error: &JournalError) -> Failure {
    let message = error.to_string();
    match error {
        JournalError::Busy(_) => {
            Failure::new(code::REFUSED, message).hint("each process needs a folder of its own for --boost")
        }
        JournalError::Other { .. } => Failure::new(code::REFUSED, message)
            .hint("serve the share that it belongs to, or choose another folder for --boost"),
        JournalError::OpenKey(path) => Failure::new(code::PERMISSION, message).hint(format!(
            "make it private: chmod 600 {}; it must belong to the user who runs ropeway, or to root",
            path.display()
        )),
        JournalError::OpenFolder(path) => Failure::new(code::PERMISSION, message).hint(format!(
            "make it yours alone: chmod go-w {}; it must belong to the user who runs ropeway, or to root",
            path.display()
        )),
        JournalError::NoKey(_) => Failure::new(code::REFUSED, message)
            .hint("bring the key back from a backup; without it the backlog cannot be read"),
        JournalError::Io { error, .. } => Failure::of_end(message, error, code::TARGET),
        _ => Failure::new(code::TARGET, message),
    }
}
