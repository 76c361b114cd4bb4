//! Persistent handles: their records in the journals of shares ([MS-SMB2] 3.3.5.9.10).
//!
//! Two rules keep what clients were promised:
//! * A record is written before the reply that promises a persistent handle ([`promise`]).
//! * What has changed is written before the hub's next event is delivered, and before the reply to the
//!   request that changed it is sent ([`settle`], which `deliver` calls). So no other client is told of a
//!   change that a restart would undo.
//!
//! A record that cannot be written is removed, and the handle is an ordinary one from then on: its client
//! loses it at a restart, rather than a part of what it holds. Where even that fails, both are tried again
//! every second or so.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{DurableGrant, Granted, OpenId, PersistentChange, PersistentOpen};
use ropeway_smb_wire::create_context::DurableHandleV2Flags;
use ropeway_vfs::Timestamp;

use crate::handle_journal::{HandleJournal, Record};
use crate::state::SharedState;
use crate::state::kept_handles::FailedRecords;
use crate::state::open::{Handle, Open};

/// Numbers of handles that are reserved at once. A guess: no server makes as many in the second between
/// two looks.
const NUMBERS: u64 = 1 << 24;

/// Keeps a new handle, if it is to be persistent. If it cannot be kept, takes that back before the client
/// learns of it. A handle whose CREATE is replayed may be kept already.
pub(super) fn promise(shared: &SharedState, open: &Open, mut granted: Granted) -> Granted {
    let is_persistent = matches!(
        granted.durable,
        Some(DurableGrant::V2(response)) if response.flags.contains(DurableHandleV2Flags::PERSISTENT)
    );
    if !is_persistent {
        return granted;
    }
    let mut failed = shared.kept_handles.lock();
    let state = shared.hub().persistent_open(open.hub_id());
    let kept = match (state, &open.share.journal) {
        (Some(state), Some(journal)) => keep(&mut failed, journal, open, state),
        _ => false,
    };
    if !kept {
        granted.durable = shared.hub().demote(open.hub_id());
    }
    granted
}

/// Makes persistent handles ordinary ones, which end with the server: what they have open cannot be found
/// again by its path.
pub(super) fn give_up(shared: &SharedState, handles: &[OpenId]) {
    let mut failed = shared.kept_handles.lock();
    for id in handles {
        {
            let mut hub = shared.hub();
            if hub.persistent_open(*id).is_none() {
                continue;
            }
            hub.demote(*id);
        }
        if let Some(Handle::File(open)) = shared.handle(id.get())
            && let Some(journal) = &open.share.journal
        {
            drop_record(&mut failed, journal, id.get());
        }
    }
}

/// Writes what has changed of persistent handles to the journals.
pub(crate) fn settle(shared: &SharedState) {
    let mut failed = shared.kept_handles.lock();
    let (changes, count) = {
        let mut hub = shared.hub();
        (hub.take_changes(), hub.change_count())
    };
    for change in changes {
        apply(shared, &mut failed, change);
    }
    shared.kept_handles.set_written(count);
}

fn apply(shared: &SharedState, failed: &mut FailedRecords, change: PersistentChange) {
    let share = shared.share(change.share_id);
    let Some(journal) = share.as_ref().and_then(|share| share.journal.as_ref()) else {
        return;
    };
    match change.state {
        None => drop_record(failed, journal, change.open.get()),
        Some(state) => {
            // A handle that is not there yet is written by `promise`; one that is gone is closed next.
            let Some(Handle::File(open)) = shared.handle(change.open.get()) else {
                return;
            };
            if !keep(failed, journal, &open, *state) {
                demote(shared, change.open);
            }
        }
    }
}

/// Makes a handle whose record could not be written an ordinary one. If its client is away, it stays: the
/// client may still find it while this server runs, and its record is tried again.
fn demote(shared: &SharedState, id: OpenId) {
    let mut hub = shared.hub();
    if hub.info(id).is_some_and(|info| info.connection.is_some()) {
        hub.demote(id);
    }
}

/// Writes the record of a handle. Returns whether it is kept.
fn keep(
    failed: &mut FailedRecords,
    journal: &Arc<HandleJournal>,
    open: &Open,
    state: PersistentOpen,
) -> bool {
    let written = birth_of(open).and_then(|birth| {
        journal.put(&Record {
            boot: journal.boot(),
            share: open.share.name.clone(),
            birth,
            options: open.options,
            action: open.action,
            may_overwrite: open.may_overwrite,
            open: state,
        })
    });
    let Err(error) = written else {
        failed.remove(&open.id);
        return true;
    };
    let is_known = failed.contains_key(&open.id);
    drop_record(failed, journal, open.id);
    // Also where its old record is gone: it is tried again.
    failed.insert(open.id, Arc::clone(journal));
    if !is_known {
        tracing::warn!(
            share = open.share.name,
            path = %open.path(),
            %error,
            "a handle cannot be kept with what its client has locked or changed: it is an ordinary one now, and does not survive a restart of the server"
        );
    }
    false
}

/// Returns when the file of a handle was made. It is asked once: an error later on must not end the handle.
fn birth_of(open: &Open) -> std::io::Result<Option<Timestamp>> {
    if let Some(birth) = open.state.birth.get() {
        return Ok(*birth);
    }
    let node = open.base.as_deref().unwrap_or(&*open.node);
    let birth = node.birth().map_err(std::io::Error::other)?;
    _ = open.state.birth.set(birth);
    Ok(birth)
}

/// Removes the record of a handle. If that fails, it is tried again: the record may be older than what
/// the client was told.
pub(super) fn drop_record(failed: &mut FailedRecords, journal: &Arc<HandleJournal>, id: u64) {
    match journal.remove(OpenId::new(id)) {
        Ok(()) => _ = failed.remove(&id),
        Err(error) => {
            if failed.insert(id, Arc::clone(journal)).is_none() {
                tracing::error!(
                    handle = id,
                    %error,
                    "cannot remove the record of a handle: it is tried again; until then, what it says may come back at the next start"
                );
            }
        }
    }
}

/// Tries again to write or remove the records where that failed.
fn try_again(shared: &SharedState) {
    let mut failed = shared.kept_handles.lock();
    for (id, journal) in failed.clone() {
        let state = shared.hub().persistent_open(OpenId::new(id));
        match (state, shared.handle(id)) {
            (Some(state), Some(Handle::File(open))) => {
                keep(&mut failed, &journal, &open, state);
            }
            _ => drop_record(&mut failed, &journal, id),
        }
    }
}

/// Notes in the journals that the server is alive, and reserves numbers for handles. Called every second
/// or so.
pub(crate) fn look_after(shared: &SharedState) {
    let journals = journals(shared);
    if journals.is_empty() {
        return;
    }
    try_again(shared);
    let (last, count) = {
        let hub = shared.hub();
        (hub.last_number(), hub.persistent_count())
    };
    if count > 0 {
        journals.iter().for_each(|journal| journal.note_alive());
    }
    if last.saturating_add(NUMBERS / 2) > shared.kept_handles.reserved() {
        reserve(shared, &journals, last);
    }
}

/// Reserves numbers above the last one in all journals.
pub(super) fn reserve(shared: &SharedState, journals: &[Arc<HandleJournal>], last: u64) {
    let reserved = last.saturating_add(NUMBERS);
    for journal in journals {
        if let Err(error) = journal.reserve(reserved) {
            tracing::warn!(%error, "cannot reserve numbers for handles");
            return;
        }
    }
    shared.kept_handles.set_reserved(reserved);
}

/// Returns the journals of all shares, each once.
pub(super) fn journals(shared: &SharedState) -> Vec<Arc<HandleJournal>> {
    let mut journals: Vec<Arc<HandleJournal>> = Vec::new();
    for share in shared.all_shares() {
        if let Some(journal) = &share.journal
            && !journals.iter().any(|known| Arc::ptr_eq(known, journal))
        {
            journals.push(Arc::clone(journal));
        }
    }
    journals
}
