//! Changes by others than this server's clients, by local programs or at a far server: breaks the
//! caches of clients and notifies those that watch.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropeway_smb_wire::change_notify::{Action, CompletionFilter};
use ropeway_vfs::FileId;
use ropeway_vfs::external::{BREAK_MAX, EntryChange, ExternalChange, LeaseLeft, Observer};
use ropeway_vfs::store::Store;

use super::deliver::deliver;
use crate::ops::name::to_wire;
use crate::state::SharedState;

/// Time between looks whether clients have acknowledged a break. A guess: short against the round
/// trip to the far server that waits for it.
const ACKNOWLEDGMENT_POLL: Duration = Duration::from_millis(2);

/// Observer of one store.
struct Listener {
    shared: Weak<SharedState>,
    /// Address of the store, which only distinguishes it from others.
    store: usize,
}

fn address_of(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

/// Starts to observe changes by local programs in all shares.
pub(crate) fn listen(shared: &Arc<SharedState>) {
    for share in shared.all_shares() {
        share.store.observe(Arc::new(Listener {
            shared: Arc::downgrade(shared),
            store: address_of(&share.store),
        }));
    }
}

impl Observer for Listener {
    fn changed(&self, changes: &[ExternalChange]) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let shares = shared.share_indices(|share| address_of(&share.store) == self.store);
        for change in changes {
            if let ExternalChange::Node(id) = change {
                let now = shared.uptime();
                shared.hub().changed_locally(now, id.volume, id.index);
            }
            for share in &shares {
                notify_watchers(&shared, *share, change);
            }
            deliver(&shared);
        }
    }

    /// Breaks all caches, also if others only want the file closed: a client that has nothing of it
    /// in its cache closes it soon.
    fn breaking(&self, id: FileId, _left: LeaseLeft) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let now = shared.uptime();
        shared.hub().changed_locally(now, id.volume, id.index);
        deliver(&shared);
        let start = Instant::now();
        // The hub ends breaks that are not acknowledged in time.
        while shared.hub().awaits_acknowledgment(id.volume, id.index) && start.elapsed() < BREAK_MAX {
            std::thread::sleep(ACKNOWLEDGMENT_POLL);
        }
    }
}

/// Notifies the clients that watch in a share.
fn notify_watchers(shared: &SharedState, share: u32, change: &ExternalChange) {
    let name_of = |directory| match directory {
        true => CompletionFilter::DIR_NAME,
        false => CompletionFilter::FILE_NAME,
    };
    let mut hub = shared.hub();
    match change {
        ExternalChange::Node(_) => {}
        ExternalChange::Entry {
            path,
            what,
            directory,
        } => {
            let (action, filter) = match what {
                EntryChange::Added => (Action::ADDED, name_of(*directory)),
                EntryChange::Removed => (Action::REMOVED, name_of(*directory)),
                EntryChange::Content => (
                    Action::MODIFIED,
                    CompletionFilter::SIZE | CompletionFilter::LAST_WRITE,
                ),
                // The system does not say which attributes.
                EntryChange::Attributes => (
                    Action::MODIFIED,
                    CompletionFilter::ATTRIBUTES
                        | CompletionFilter::LAST_WRITE
                        | CompletionFilter::LAST_ACCESS
                        | CompletionFilter::CREATION
                        | CompletionFilter::EA
                        | CompletionFilter::SECURITY,
                ),
            };
            hub.changed(share, &to_wire(path), action, filter);
        }
        ExternalChange::Renamed { from, to, directory } => {
            hub.changed_name(share, &to_wire(from), &to_wire(to), name_of(*directory))
        }
        ExternalChange::Lost => hub.changes_lost(share),
    }
}
