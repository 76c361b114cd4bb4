//! The state of one oplock or lease, and its breaks ([MS-FSA] 2.1.4.12).
//!
//! An oplock is represented by the equivalent lease state: level II is R, exclusive is RW, batch is
//! RWH.
//!
//! ```text
//! RWH -break to RH-> breaking -ack RH-> RH -chained break to R-> breaking -ack R-> R -> none
//!                       \-timeout-> none
//! ```
//! During a break the state is the one before it. Caching that must also go meanwhile is recorded,
//! and breaks after the acknowledgment.

use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::LeaseState;

/// Read caching.
pub(super) const R: LeaseState = LeaseState::READ_CACHING;
/// Handle caching.
pub(super) const H: LeaseState = LeaseState::HANDLE_CACHING;
/// Write caching.
pub(super) const W: LeaseState = LeaseState::WRITE_CACHING;
/// No caching.
pub(super) const NONE: LeaseState = LeaseState::from_bits_retain(0);

/// The caching a client holds, and the break in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Caching {
    /// What the client may cache now.
    pub(super) state: LeaseState,
    /// A break without its acknowledgment.
    pub(super) breaking: Option<Breaking>,
}

/// A break that awaits its acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaking {
    /// The state that the notification asked for.
    pub(super) requested: LeaseState,
    /// The state that all breaks requested so far lead to.
    pub(super) required: LeaseState,
    /// Whether nobody was there to be told: the holder's opens are persistent and have no client.
    pub(super) unsent: bool,
}

/// A break notification for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BreakNotice {
    pub(super) from: LeaseState,
    pub(super) to: LeaseState,
    /// Whether an acknowledgment is required: the client held more than read caching ([MS-SMB2]
    /// 3.3.4.7).
    pub(super) ack: bool,
}

/// Why an acknowledgment is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckError {
    NotBreaking,
    KeepsTooMuch,
}

impl Caching {
    /// Breaks to at most `keep`. Returns `None` if there is nothing to send now.
    pub(super) fn break_to(&mut self, keep: LeaseState) -> Option<BreakNotice> {
        if let Some(breaking) = &mut self.breaking {
            breaking.required = valid(breaking.required & keep);
            return None;
        }
        let to = valid(self.state & keep);
        self.start(to, to)
    }

    /// Accepts that the client keeps `kept`. Returns the next break if more caching must go.
    pub(super) fn acknowledge(&mut self, kept: LeaseState) -> Result<Option<BreakNotice>, AckError> {
        let breaking = self.breaking.ok_or(AckError::NotBreaking)?;
        if !breaking.requested.contains(kept) {
            return Err(AckError::KeepsTooMuch);
        }
        self.breaking = None;
        self.state = valid(kept);
        let required = valid(self.state & breaking.required);
        // Windows breaks handle caching before read caching, in two breaks (smb2.lease.breaking3).
        let next = if self.state.contains(H) && !required.contains(R) {
            R
        } else {
            required
        };
        Ok(self.start(next, required))
    }

    /// Resumes a break after a restart of the server: nobody knows whether the client was told of it.
    /// `kept` has what it asks for and what it leads to. Records of one lease may name several breaks:
    /// the lowest states count. A state that is low enough already counts as acknowledged.
    pub(super) fn resume(&mut self, kept: Option<(LeaseState, LeaseState)>) {
        let known = self.breaking.take();
        let known = known.map(|breaking| (breaking.requested, breaking.required));
        let all = known.into_iter().chain(kept);
        let Some((requested, required)) = all.reduce(|one, two| (one.0 & two.0, one.1 & two.1)) else {
            return;
        };
        let requested = valid(self.state & requested);
        let required = valid(requested & required);
        let to = if requested == self.state {
            required
        } else {
            requested
        };
        _ = self.start(to, required);
        if let Some(breaking) = &mut self.breaking {
            breaking.unsent = true;
        }
    }

    fn start(&mut self, to: LeaseState, required: LeaseState) -> Option<BreakNotice> {
        if to == self.state {
            return None;
        }
        let notice = BreakNotice {
            from: self.state,
            to,
            ack: self.state.intersects(H | W),
        };
        if notice.ack {
            self.breaking = Some(Breaking {
                requested: to,
                required,
                unsent: false,
            });
        } else {
            self.state = to;
        }
        Some(notice)
    }

    /// Drops all caching: no acknowledgment came ([MS-SMB2] 3.3.6.1, 3.3.6.3), or none can come.
    pub(super) fn revoke(&mut self) {
        *self = Self::default();
    }
}

/// Returns the valid lease state within `state` ([MS-SMB2] 3.3.1.12): without R there is no
/// caching.
pub(super) fn valid(state: LeaseState) -> LeaseState {
    if state.contains(R) {
        state & (R | W | H)
    } else {
        NONE
    }
}

/// Returns the lease state equivalent to an oplock.
pub(super) fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::None | OplockLevel::Lease => NONE,
        OplockLevel::LevelII => R,
        OplockLevel::Exclusive => R | W,
        OplockLevel::Batch => R | W | H,
    }
}

/// Returns the highest oplock within `state`. None corresponds to RH.
pub(super) fn level_of(state: LeaseState) -> OplockLevel {
    if state.contains(R | W | H) {
        OplockLevel::Batch
    } else if state.contains(R | W) {
        OplockLevel::Exclusive
    } else if state.contains(R) {
        OplockLevel::LevelII
    } else {
        OplockLevel::None
    }
}
