//! How much caching an open gets ([MS-SMB2] 3.3.5.9, 3.3.5.9.8; [MS-FSA] 2.1.5.18).

use super::Hub;
use super::caching::{H, NONE, R, W, state_of, valid};
use super::ids::{Holder, LeaseName};
use super::open::OpenRequest;
use ropeway_smb_wire::create_context::LeaseState;

impl Hub {
    /// What it asks for, as far as there is such a thing: no oplocks on folders.
    pub(super) fn wanted(&self, request: &OpenRequest) -> LeaseState {
        match &request.lease {
            Some(lease) => lease.sane(request.directory).unwrap_or(NONE),
            None if request.directory => NONE,
            None => state_of(request.oplock),
        }
    }

    /// What of it can be had beside what others have, who have been asked to give way already.
    ///
    /// * Write caching is for the only one who reads or writes; opens of the same lease are one.
    /// * Beside write caching that nobody had to give up (this open takes no notice of it) there is nothing.
    /// * Handle caching does not go with oplocks, nor oplocks with the handle caching of a lease (smb2.lease.oplock).
    /// * Beside locked bytes nothing is cached.
    pub(super) fn grantable(
        &self,
        request: &OpenRequest,
        own: Option<LeaseName>,
        wanted: LeaseState,
    ) -> LeaseState {
        if wanted.is_empty() || self.has_locks_within(request) {
            return NONE;
        }
        let own_lease = own.and_then(|name| self.leases.get(name));
        let own = own.map(Holder::Lease);
        let mut can = wanted;
        if let Some(crowd) = self.tables.stream(&request.file).map(|stream| &stream.crowd) {
            if crowd.is_written_by_others(own) {
                return NONE;
            }
            let solid = crowd.solid() - own_lease.map_or(0, |held| held.solid);
            if solid > 0 || crowd.is_cached_by_others(own) {
                can = can.difference(W);
            }
            match own {
                Some(_) if crowd.has_oplock() => can = can.difference(H),
                None if crowd.has_handle_lease() => return NONE,
                _ => {}
            }
        }
        // Without W, a batch oplock is level II, not RH.
        if own.is_none() && !can.contains(W) {
            can = can & R;
        }
        valid(can)
    }

    fn has_locks_within(&self, request: &OpenRequest) -> bool {
        let emptied = request.overwrites || !request.existed;
        let stream = self.tables.stream(&request.file);
        !emptied
            && stream.is_some_and(|stream| stream.locks.iter().any(|lock| lock.range.offset < request.size))
    }
}
