//! Persistent handles after a restart: their files are opened again, and clients may reconnect to them
//! ([MS-SMB2] 3.3.5.9.12).
//!
//! ```text
//! record ─▶ open the path ─▶ same file? ─▶ POSIX locks ─▶ watch it ─▶ hub: share mode, lease, locks, timer
//!             └──────────────────┴──────────────┴────────────────────────┴─▶ dropped; the log says why
//! ```
//! Caches are given back only of files that have not changed since the last server was seen alive. Until
//! then it watched them, and what local programs changed broke the caches; nobody watched afterwards. If
//! the clock was set meanwhile, nobody knows.
//! Folders get none back: what is in them may have changed without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_smb_proto::server::hub::{KeptCaching, PersistentOpen, RestoreError, posix_locks_of};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_vfs::store::{Access, Node, NodeOpen, NodeStat, StreamOpen};
use ropeway_vfs::{Kind, Name, RelPath, Timestamp};

use super::create::{stored_name, wants_content};
use super::name::{self, key_of};
use super::{persistent, range_locks};
use crate::handle_journal::{HandleJournal, Record};
use crate::share::Share;
use crate::state::SharedState;
use crate::state::cache_watch::CacheWatch;
use crate::state::open::{Handle, Open};

/// How long before its last sign the server may have died without having seen a change: the signs are a
/// second apart.
const UNSEEN_NANOSECONDS: i128 = 1_000_000_000;

/// Why a handle is dropped.
#[derive(Debug, thiserror::Error)]
enum DropReason {
    #[error("no continuously available share of that name has this folder")]
    Share,
    #[error("its path is invalid")]
    Path,
    #[error("its file cannot be opened: {0}")]
    Open(#[from] ropeway_vfs::Error),
    #[error("its path belongs to another file now")]
    OtherFile,
    #[error("the share is read-only now")]
    ReadOnly,
    #[error("a local program has locked the file")]
    Locked,
    #[error("{0}")]
    Refused(#[from] RestoreError),
}

/// Restores the persistent handles of all shares, before any client is served.
pub(crate) fn restore(shared: &Arc<SharedState>) {
    let journals = persistent::journals(shared);
    let mut records = Vec::new();
    for journal in &journals {
        match journal.load() {
            Ok(loaded) => records.extend(loaded.into_iter().map(|record| (journal, record))),
            Err(error) => tracing::error!(%error, "cannot read a journal of persistent handles"),
        }
    }
    // Numbers never return, also not those whose records are gone.
    let reserved = journals.iter().filter_map(|journal| journal.reserved()).max();
    let highest = records.iter().map(|(_, record)| record.open.id.get()).max();
    let last = {
        let mut hub = shared.hub();
        hub.continue_after(reserved.max(highest).unwrap_or(0));
        hub.last_number()
    };
    persistent::reserve(shared, &journals, last);
    let mut restored = 0_usize;
    for (journal, record) in records {
        let (id, share, path) = (record.open.id, record.share.clone(), record.open.path.clone());
        match restore_one(shared, journal, record) {
            Ok(()) => restored += 1,
            Err(why) => {
                tracing::warn!(share, %path, %why, "a persistent handle is lost");
                persistent::drop_record(&mut shared.kept_handles.lock(), journal, id.get());
            }
        }
    }
    if restored > 0 {
        tracing::info!(handles = restored, "persistent handles wait for their clients");
    }
    // What does not fit as it was kept is kept as it is now.
    persistent::settle(shared);
}

fn restore_one(
    shared: &Arc<SharedState>,
    journal: &Arc<HandleJournal>,
    mut record: Record,
) -> Result<(), DropReason> {
    let (index, share) = share_of(shared, journal, &record).ok_or(DropReason::Share)?;
    let target = name::parse(&record.open.path).map_err(|_| DropReason::Path)?;
    if !is_allowed(share.access(), &record.open) {
        return Err(DropReason::ReadOnly);
    }
    let found = find(&share, journal, &record, &target.path)?;
    if record.open.directory != (found.stat.kind == Kind::Directory && found.stream.is_none()) {
        return Err(DropReason::OtherFile);
    }
    record.open.share_id = index;
    // Another handle may have got one of its locks since the record was written.
    shared.hub().drop_taken_locks(&mut record.open);
    let caching = give_back_caching(shared, journal, &mut record.open, &found);
    let open = Open {
        id: record.open.id.get(),
        // It has none until its client is back, and no session or tree has the number 0.
        session: AtomicU64::new(0),
        tree: AtomicU32::new(0),
        share,
        file: record.open.file.clone(),
        node: found.node,
        base: found.base,
        stream: found.stream,
        short_name: None,
        directory: record.open.directory,
        access: record.open.access,
        may_overwrite: record.may_overwrite,
        options: record.options,
        action: record.action,
        path: Mutex::new(target.path),
        position: AtomicU64::new(0),
        scan: Mutex::new(None),
        state: Default::default(),
    };
    if let Some(caching) = caching {
        // The open is new, so the cell is empty.
        _ = open.state.caching.set(caching);
    }
    _ = open.state.birth.set(record.birth);
    lock_again(shared, &open, &record.open)?;
    let now = shared.uptime();
    // An open that is refused is dropped, and its POSIX locks with it.
    shared.hub().restore(now, &record.open, found.stat.size)?;
    shared.add_handle(open.id, Handle::File(Arc::new(open)));
    Ok(())
}

/// Whether the share still allows what the handle may do. A deletion needs a share that can be written.
fn is_allowed(share: AccessMask, kept: &PersistentOpen) -> bool {
    // No share restricts these.
    let free = AccessMask::SYNCHRONIZE | AccessMask::ACCESS_SYSTEM_SECURITY;
    let deletes = kept.delete_on_close || kept.deletion.is_some();
    share.contains(kept.access.difference(free)) && (!deletes || share.contains(AccessMask::DELETE))
}

/// Returns the share of a record and its index. It must be one of the folder whose journal this is.
fn share_of(
    shared: &SharedState,
    journal: &Arc<HandleJournal>,
    record: &Record,
) -> Option<(u32, Arc<Share>)> {
    let (index, share) = shared.find_share(&record.share)?;
    let own = share.journal.as_ref()?;
    Arc::ptr_eq(own, journal).then_some((index, share))
}

/// The file of a record.
struct Found {
    node: Arc<dyn Node>,
    base: Option<Arc<dyn Node>>,
    stream: Option<Name>,
    stat: NodeStat,
}

/// Opens the file of a record, and checks that it is the same one.
fn find(
    share: &Share,
    journal: &HandleJournal,
    record: &Record,
    path: &RelPath,
) -> Result<Found, DropReason> {
    let kept = &record.open;
    let wanted = kept.file.stream.as_ref();
    let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    let access = match (wanted, kept.directory) {
        (Some(_), _) => Access::Attributes,
        (None, false) if kept.access.intersects(writes) => Access::Write,
        // A folder has no content but its listing.
        (None, true) if kept.access.contains(AccessMask::READ_DATA) => Access::Read,
        (None, false) if wants_content(kept.access) => Access::Read,
        (None, _) => Access::Attributes,
    };
    let how = NodeOpen {
        access,
        // The open had no more than the user of the server has now.
        allow_less_access: true,
        // As in the CREATE. What a link leads to must be the same file, as everywhere.
        link_itself: record.options.contains(CreateOptions::OPEN_REPARSE_POINT),
        ..NodeOpen::default()
    };
    let opened = share.store.open(path, &how)?;
    let file = key_of(&opened.stat, None);
    let is_same = (file.share_volume, file.index) == (kept.file.share_volume, kept.file.index);
    let birth = opened.node.birth()?;
    if !is_same || birth != record.birth || birth.is_none() && !may_be_as_old(opened.stat.changed, journal) {
        return Err(DropReason::OtherFile);
    }
    let Some(folded) = wanted else {
        return Ok(Found {
            node: opened.node,
            base: None,
            stream: None,
            stat: opened.stat,
        });
    };
    let asked = Name::new(folded.to_string_lossy().as_bytes()).ok_or(DropReason::Path)?;
    let name = stored_name(&*opened.node, &asked);
    let (node, _) = opened.node.open_stream(&name, &StreamOpen::default())?;
    let stat = NodeStat {
        kind: Kind::File,
        ..node.stat()?
    };
    if key_of(&stat, Some(&name)) != kept.file {
        return Err(DropReason::OtherFile);
    }
    Ok(Found {
        node,
        base: Some(opened.node),
        stream: Some(name),
        stat,
    })
}

/// Whether a file may be older than the death of the last server. Where the volume does not say when files
/// were made, a later one may have got the number of one that was deleted.
fn may_be_as_old(changed: Timestamp, journal: &HandleJournal) -> bool {
    let seen = journal.last_alive().0.saturating_add(2 * UNSEEN_NANOSECONDS);
    journal.is_clock_kept() && changed.0 <= seen
}

/// Watches the file if its client may go on caching it. If not, takes the caching from the record.
fn give_back_caching(
    shared: &SharedState,
    journal: &HandleJournal,
    kept: &mut PersistentOpen,
    found: &Found,
) -> Option<CacheWatch> {
    let state = match &mut kept.caching {
        KeptCaching::Oplock(state) | KeptCaching::Lease { state, .. } => state,
    };
    if state.is_empty() {
        return None;
    }
    let watch = || shared.cache_watches.watch(&kept.file, &*found.node);
    let watch = (!kept.directory).then(watch).flatten();
    // After the watch: from here on, the watch reports changes.
    let node = found.base.as_deref().unwrap_or(&*found.node);
    let changed = node.stat_now().map(|stat| stat.changed);
    let is_unchanged = changed.is_ok_and(|changed| is_before(changed, journal.last_alive()));
    if watch.is_some() && is_unchanged && journal.is_clock_kept() {
        return watch;
    }
    *state = LeaseState::default();
    kept.breaking = None;
    if let KeptCaching::Lease {
        epoch: Some(epoch), ..
    } = &mut kept.caching
    {
        // The client learns that its lease has changed.
        *epoch = epoch.wrapping_add(1);
    }
    None
}

/// Whether a change was seen by the last server.
fn is_before(changed: Timestamp, last_alive: Timestamp) -> bool {
    changed.0 < last_alive.0.saturating_sub(UNSEEN_NANOSECONDS)
}

/// Takes the POSIX locks of a handle again.
fn lock_again(shared: &SharedState, open: &Open, kept: &PersistentOpen) -> Result<(), DropReason> {
    let locks = kept.locks.iter();
    let steps = posix_locks_of(locks.map(|lock| (lock.offset, lock.length, lock.exclusive)));
    if steps.is_empty() || !shared.posix_locks.enabled || open.stream.is_some() {
        return Ok(());
    }
    match range_locks::take_again(shared, open, &steps) {
        true => Ok(()),
        false => {
            open.state.posix_locks.store(false, Ordering::Relaxed);
            Err(DropReason::Locked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the time of birth, a later file may have the number of one that was deleted.
    #[test]
    fn a_later_file_is_another_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("journal");
        let first = HandleJournal::open_in_boot(&folder, [1; 16]).unwrap();
        let seconds_later = |journal: &HandleJournal, seconds: i128| {
            Timestamp(journal.last_alive().0 + seconds * 1_000_000_000)
        };
        assert!(
            !may_be_as_old(seconds_later(&first, -10), &first),
            "nobody knows the clock"
        );
        first.note_alive();
        drop(first);
        let second = HandleJournal::open_in_boot(&folder, [1; 16]).unwrap();
        assert!(may_be_as_old(seconds_later(&second, 1), &second));
        assert!(!may_be_as_old(seconds_later(&second, 3), &second));
    }
}
