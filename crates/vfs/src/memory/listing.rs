//! A listing of one folder in the order of names. It continues after the last name given, so
//! changes made meanwhile neither hide nor repeat another entry.

use std::ops::Bound;
use std::sync::Arc;

use super::Shared;
use super::nodes::Body;
use crate::{DirEntry, Listing, Pending, Result};

pub(super) struct MemoryListing {
    pub(super) shared: Arc<Shared>,
    pub(super) dir: u64,
    pub(super) last: Option<Vec<u8>>,
}

impl Listing for MemoryListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        let state = self.shared.lock();
        let mut found = Vec::new();
        // A folder that was removed meanwhile has no further entries.
        if let Some(Body::Directory(entries)) = state.nodes.get(&self.dir).map(|node| &node.body) {
            let start = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            for (key, (name, index)) in entries.range::<Vec<u8>, _>((start, Bound::Unbounded)).take(max) {
                let metadata = state.node(*index).metadata(&self.shared, *index);
                found.push((
                    key.clone(),
                    DirEntry {
                        name: name.clone(),
                        metadata: Ok(metadata),
                    },
                ));
            }
        }
        drop(state);
        if let Some((key, _)) = found.last() {
            self.last = Some(key.clone());
        }
        let entries = found.into_iter().map(|(_, entry)| entry).collect();
        Box::pin(std::future::ready(Ok(entries)))
    }
}
