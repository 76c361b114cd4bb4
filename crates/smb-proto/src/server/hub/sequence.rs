//! Channel sequence: requests that were under way on a channel that failed ([MS-SMB2] 3.3.5.2.10, 3.3.4.1).

use super::Hub;
use super::ids::OpenId;
use ropeway_smb_wire::NtStatus;

/// `ChannelSequence` of an open and the requests counted by it ([MS-SMB2] 3.3.1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    number: u16,
    /// `OutstandingRequestCount`.
    current: u32,
    /// `OutstandingPreRequestCount`.
    earlier: u32,
}

/// A request that was counted; to be given back with its response.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request is counted until its ticket comes back"]
pub struct Ticket {
    open: OpenId,
    /// The sequence it was counted under; `None` if it was not.
    number: Option<u16>,
}

impl Sequence {
    pub(super) fn new(number: u16) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    fn begin(&mut self, number: u16, modifies: bool, replay: bool) -> Result<Option<u16>, NtStatus> {
        if number == self.number {
            if modifies && replay && self.earlier > 0 {
                return Err(NtStatus::FILE_NOT_AVAILABLE);
            }
            self.current += 1;
        } else if number.wrapping_sub(self.number) <= 0x7FFF {
            if modifies && replay && self.earlier + self.current > 0 {
                self.advance(number);
                return Err(NtStatus::FILE_NOT_AVAILABLE);
            }
            self.advance(number);
            self.current = 1;
        } else if modifies {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        } else {
            return Ok(None);
        }
        Ok(Some(number))
    }

    /// From now on this is the number; what is under way came before it.
    pub(super) fn advance(&mut self, number: u16) {
        self.earlier += self.current;
        self.current = 0;
        self.number = number;
    }

    fn end(&mut self, number: u16) {
        // After a whole turn of the numbers a request may be counted on the other side (smb2.replay.replay7).
        let count = if number == self.number && self.current > 0 {
            &mut self.current
        } else {
            &mut self.earlier
        };
        *count = count.saturating_sub(1);
    }
}

impl Hub {
    /// Checks and counts a request of dialect 3.x on an open ([MS-SMB2] 3.3.5.2.10). `modifies`: WRITE, SET_INFO, IOCTL.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open, `STATUS_FILE_NOT_AVAILABLE` for one that modifies and comes too late,
    /// or is a repetition while the first may still be under way.
    pub fn check_sequence(
        &mut self,
        id: OpenId,
        sequence: u16,
        modifies: bool,
        replay: bool,
    ) -> Result<Ticket, NtStatus> {
        let open = self.tables.opens.get_mut(&id).ok_or(NtStatus::FILE_CLOSED)?;
        let number = open.sequence.begin(sequence, modifies, replay)?;
        self.used(id);
        Ok(Ticket { open: id, number })
    }

    /// The request is answered ([MS-SMB2] 3.3.4.1).
    pub fn end_request(&mut self, ticket: Ticket) {
        if let (Some(open), Some(number)) = (self.tables.opens.get_mut(&ticket.open), ticket.number) {
            open.sequence.end(number);
        }
    }
}
