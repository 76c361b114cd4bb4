//! The caching granted to an open ([MS-SMB2] 3.3.5.9, 3.3.5.9.8; [MS-FSA] 2.1.5.18).

use ropeway_smb_wire::create_context::LeaseState;

use super::Hub;
use super::caching::{H, NONE, R, W, state_of, valid};
use super::ids::{FileKey, Holder, LeaseName};
use super::open::OpenRequest;

impl Hub {
    /// Returns the caching that the request asks for, as far as it exists: folders have no oplocks.
    pub(super) fn requested_caching(&self, request: &OpenRequest) -> LeaseState {
        match &request.lease {
            Some(lease) => lease.supported_state(request.directory).unwrap_or(NONE),
            None if request.directory => NONE,
            None => state_of(request.oplock),
        }
    }

    /// Returns the part of `wanted` that can be granted. Conflicting holders have been asked to
    /// break already.
    ///
    /// * Write caching requires that no other open reads or writes. Opens of the same lease count
    ///   as one.
    /// * Nothing is granted while another holder keeps write caching, which happens if this open
    ///   did not break it.
    /// * Handle caching excludes oplocks of others, and an oplock excludes handle leases of others
    ///   (smb2.lease.oplock).
    /// * Nothing is granted over locked bytes: those of a file of this size; `None` if the file is
    ///   emptied.
    pub(super) fn grantable(
        &self,
        file: &FileKey,
        size: Option<u64>,
        own: Option<LeaseName>,
        wanted: LeaseState,
    ) -> LeaseState {
        if wanted.is_empty() || self.has_locks_within(file, size) {
            return NONE;
        }
        let own_lease = own.and_then(|name| self.leases.get(name));
        let own = own.map(Holder::Lease);
        let mut can = wanted;
        if let Some(summary) = self.tables.stream(file).map(|stream| &stream.summary) {
            if summary.is_written_by_others(own) {
                return NONE;
            }
            let non_stat = summary.non_stat() - own_lease.map_or(0, |held| held.non_stat);
            if non_stat > 0 || summary.is_cached_by_others(own) {
                can = can.difference(W);
            }
            match own {
                Some(_) if summary.has_oplock() => can = can.difference(H),
                None if summary.has_handle_lease() => return NONE,
                _ => {}
            }
        }
        // Without W, a batch oplock falls to level II, not to RH.
        if own.is_none() && !can.contains(W) {
            can &= R;
        }
        valid(can)
    }

    fn has_locks_within(&self, file: &FileKey, size: Option<u64>) -> bool {
        let (Some(size), Some(stream)) = (size, self.tables.stream(file)) else {
            return false;
        };
        stream.locks.iter().any(|lock| lock.range.offset < size)
    }
}
