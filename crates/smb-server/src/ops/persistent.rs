//! Persistent handles: their records in the journals of shares ([MS-SMB2] 3.3.5.9.10).
//!
//! Two rules keep what clients were promised:
//! * A record is written before the reply that promises a persistent handle ([`promise`]).
//! * What has changed is written before the hub's next event is delivered, and before the reply to the
//!   request that changed it is sent ([`settle`], which `deliver` calls). So no other client is told of a
//!   change that a restart would undo.
//!
//! A record that cannot be written is removed: its client loses the handle at a restart, rather than a part
//! of what it holds.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{DurableGrant, Granted, PersistentChange, PersistentOpen};
use ropeway_smb_wire::create_context::DurableHandleV2Flags;

use crate::handle_journal::{HandleJournal, Record};
use crate::state::SharedState;
use crate::state::open::{Handle, Open};

/// Numbers of handles that are reserved at once. A guess: no server makes as many in the second between
/// two looks.
const NUMBERS: u64 = 1 << 24;

/// Keeps a new handle, if it is to be persistent. If it cannot be kept, takes that back before the client
/// learns of it.
pub(super) fn promise(shared: &SharedState, open: &Open, mut granted: Granted) -> Granted {
    let is_persistent = matches!(
        granted.durable,
        Some(DurableGrant::V2(response)) if response.flags.contains(DurableHandleV2Flags::PERSISTENT)
    );
    if !is_persistent {
        return granted;
    }
    let _order = shared.kept_handles.lock();
    let state = shared.hub().persistent_open(open.hub_id());
    let kept = match (state, &open.share.journal) {
        (Some(state), Some(journal)) => keep(journal, open, state),
        _ => false,
    };
    if !kept {
        granted.durable = shared.hub().demote(open.hub_id());
    }
    granted
}

/// Writes what has changed of persistent handles to the journals.
pub(crate) fn settle(shared: &SharedState) {
    let _order = shared.kept_handles.lock();
    let (changes, count) = {
        let mut hub = shared.hub();
        (hub.take_changes(), hub.change_count())
    };
    for change in changes {
        apply(shared, change);
    }
    shared.kept_handles.set_written(count);
}

fn apply(shared: &SharedState, change: PersistentChange) {
    let share = shared.share(change.share_id);
    let Some(journal) = share.as_ref().and_then(|share| share.journal.as_ref()) else {
        return;
    };
    match change.state {
        None => drop_record(journal, change.open.get()),
        Some(state) => {
            // A handle that is not there yet is written by `promise`; one that is gone is closed next.
            if let Some(Handle::File(open)) = shared.handle(change.open.get()) {
                keep(journal, &open, *state);
            }
        }
    }
}

/// Writes the record of a handle. Returns whether it is kept.
fn keep(journal: &HandleJournal, open: &Open, state: PersistentOpen) -> bool {
    let node = open.base.as_deref().unwrap_or(&*open.node);
    let written = node.birth().map_err(std::io::Error::other).and_then(|birth| {
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
    if let Err(error) = &written {
        tracing::warn!(
            share = open.share.name,
            path = %open.path(),
            %error,
            "a handle cannot be kept: it does not survive a restart of the server"
        );
        drop_record(journal, open.id);
    }
    written.is_ok()
}

fn drop_record(journal: &HandleJournal, id: u64) {
    let id = ropeway_smb_proto::server::hub::OpenId::new(id);
    if let Err(error) = journal.remove(id) {
        tracing::error!(
            handle = id.get(),
            %error,
            "cannot remove the record of a handle: it may come back at the next start"
        );
    }
}

/// Notes in the journals that the server is alive, and reserves numbers for handles. Called every second
/// or so.
pub(crate) fn look_after(shared: &SharedState) {
    let journals = journals(shared);
    if journals.is_empty() {
        return;
    }
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
