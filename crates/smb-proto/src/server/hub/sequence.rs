//! Channel sequences, which detect requests of a failed channel ([MS-SMB2] 3.3.5.2.10, 3.3.4.1).

use ropeway_smb_wire::NtStatus;

/// The `ChannelSequence` of an open and its outstanding requests ([MS-SMB2] 3.3.1.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    number: u16,
    /// `OutstandingRequestCount`.
    current: u32,
    /// `OutstandingPreRequestCount`.
    earlier: u32,
}

impl Sequence {
    pub(super) fn new(number: u16) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    pub(super) fn number(self) -> u16 {
        self.number
    }

    pub(super) fn begin(
        &mut self,
        number: u16,
        modifies: bool,
        replay: bool,
    ) -> Result<Option<u16>, NtStatus> {
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

    /// Sets the number. The outstanding requests belong to the previous one.
    pub(super) fn advance(&mut self, number: u16) {
        self.earlier += self.current;
        self.current = 0;
        self.number = number;
    }

    pub(super) fn end(&mut self, number: u16) {
        // After 65,536 numbers a request may be counted on the other side (smb2.replay.replay7).
        let count = if number == self.number && self.current > 0 {
            &mut self.current
        } else {
            &mut self.earlier
        };
        *count = count.saturating_sub(1);
    }
}
