//! Rules about watches and leases, for stores that have them.

use std::sync::Mutex;

use super::*;
use crate::FileId;
use crate::external::{ContentLease, ExternalChange, LeaseLeft, Observer};

/// Remembers what it hears.
#[derive(Default)]
struct Heard {
    changes: Mutex<Vec<ExternalChange>>,
    breaks: Mutex<Vec<FileId>>,
}

impl Observer for Heard {
    fn changed(&self, changes: &[ExternalChange]) {
        self.changes.lock().unwrap().extend_from_slice(changes);
    }

    fn breaking(&self, id: FileId, _: LeaseLeft) {
        self.breaks.lock().unwrap().push(id);
    }
}

/// Changes through the store are not reported, and take no lease from it.
pub(super) fn own_changes_are_not_reported(store: &dyn Store, _: Abilities) {
    let heard = Arc::new(Heard::default());
    store.observe(Arc::clone(&heard) as Arc<dyn Observer>);
    let node = put(store, "f", b"before");
    node.sync().unwrap();
    let folder = open(store, "d", &MAKE_DIR);
    let watches = [node.watch(false), folder.watch(true)];
    for refused in watches.iter().filter_map(|watch| watch.as_ref().err()) {
        let kinds = [ErrorKind::Unsupported, ErrorKind::Exhausted];
        assert!(kinds.contains(&refused.kind), "{refused}");
    }
    let lease = node.lease();
    node.write_at(b"after", 0).unwrap();
    node.write_out().unwrap();
    assert_eq!(content(&*node), b"aftere");
    if watches[0].is_ok() {
        assert_eq!(node.lease(), lease, "an own write takes no lease");
    }
    put(store, "d/x", b"new").write_out().unwrap();
    store.rename(&path("d/x"), &path("d/y"), false).unwrap();
    store.remove(&path("d/y"), false).unwrap();
    node.sync().unwrap();
    drop(watches);
    assert_eq!(*heard.changes.lock().unwrap(), []);
    assert_eq!(*heard.breaks.lock().unwrap(), []);
    if let ContentLease::Suspended { .. } = node.lease() {
        panic!("the connection was not lost");
    }
}
