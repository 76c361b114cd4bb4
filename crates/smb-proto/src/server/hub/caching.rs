//! One right to cache and its way down: what oplocks and leases have in common ([MS-FSA] 2.1.4.12).
//!
//! An oplock is seen as the lease state it amounts to: level II is R, exclusive is RW, batch is RWH.
//!
//! ```text
//! RWH ──break to RH──▶ breaking ──ack RH──▶ RH ──chained break to R──▶ breaking ──ack R──▶ R ──▶ none (no ack)
//!                         └── time is up ──▶ none
//! ```
//! While a break is under way the state is what it was before. Whatever else must go meanwhile is remembered and follows
//! the acknowledgment.

use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::LeaseState;

/// Read caching.
pub(super) const R: LeaseState = LeaseState::READ_CACHING;
/// Handle caching.
pub(super) const H: LeaseState = LeaseState::HANDLE_CACHING;
/// Write caching.
pub(super) const W: LeaseState = LeaseState::WRITE_CACHING;
/// Nothing.
pub(super) const NONE: LeaseState = LeaseState::from_bits_retain(0);

/// What is held, and what is asked back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Caching {
    /// What the client may do now.
    pub(super) state: LeaseState,
    /// A break without an acknowledgment yet.
    pub(super) breaking: Option<Breaking>,
}

/// A break that awaits its acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaking {
    /// What the client was told to keep at most.
    pub(super) requested: LeaseState,
    /// What it may keep in the end.
    pub(super) required: LeaseState,
}

/// What to tell the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) from: LeaseState,
    pub(super) to: LeaseState,
    /// It has to answer: it held more than read caching ([MS-SMB2] 3.3.4.7).
    pub(super) ack: bool,
}

/// Why an acknowledgment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckFault {
    NotBreaking,
    KeepsTooMuch,
}

impl Caching {
    /// Takes back all but `keep`; `None` if there is nothing to say (now).
    pub(super) fn break_to(&mut self, keep: LeaseState) -> Option<Notice> {
        if let Some(breaking) = &mut self.breaking {
            breaking.required = valid(breaking.required & keep);
            return None;
        }
        let to = valid(self.state & keep);
        self.start(to, to)
    }

    /// The client keeps `kept`; the answer is the next break, if more must go.
    pub(super) fn acknowledge(&mut self, kept: LeaseState) -> Result<Option<Notice>, AckFault> {
        let breaking = self.breaking.ok_or(AckFault::NotBreaking)?;
        if !breaking.requested.contains(kept) {
            return Err(AckFault::KeepsTooMuch);
        }
        self.breaking = None;
        self.state = valid(kept);
        let required = valid(self.state & breaking.required);
        // Windows gives handle caching up before read caching, one break for each (smb2.lease.breaking3).
        let next = if self.state.contains(H) && !required.contains(R) {
            R
        } else {
            required
        };
        Ok(self.start(next, required))
    }

    fn start(&mut self, to: LeaseState, required: LeaseState) -> Option<Notice> {
        if to == self.state {
            return None;
        }
        let notice = Notice {
            from: self.state,
            to,
            ack: self.state.intersects(H | W),
        };
        if notice.ack {
            self.breaking = Some(Breaking {
                requested: to,
                required,
            });
        } else {
            self.state = to;
        }
        Some(notice)
    }

    /// Nobody answered ([MS-SMB2] 3.3.6.1, 3.3.6.3), or nobody can.
    pub(super) fn revoke(&mut self) {
        *self = Self::default();
    }
}

/// The combinations there are ([MS-SMB2] 3.3.1.12): without R nothing is cached.
pub(super) fn valid(state: LeaseState) -> LeaseState {
    if state.contains(R) {
        state & (R | W | H)
    } else {
        NONE
    }
}

/// What an oplock amounts to.
pub(super) fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::None | OplockLevel::Lease => NONE,
        OplockLevel::LevelII => R,
        OplockLevel::Exclusive => R | W,
        OplockLevel::Batch => R | W | H,
    }
}

/// The oplock that amounts to at most `state`; there is none for RH.
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
