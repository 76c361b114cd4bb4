//! Credits and message ids, as the played server counts them.

use super::{Grant, Peer};
use ropeway_smb_wire::header::Header;

impl Peer {
    pub(super) fn check_account(&mut self, header: &Header) {
        let charge = if self.multi_credit() {
            header.credit_charge.max(1)
        } else {
            1
        };
        self.take_id(header.message_id.0, u64::from(charge));
        self.balance = self
            .balance
            .checked_sub(u32::from(charge))
            .expect("credits are not overdrawn");
        self.in_use += u32::from(charge);
        assert!(header.credits >= charge, "at least its own charge is asked for");
    }

    /// [MS-SMB2] 3.3.5.2.3: every id comes once.
    fn take_id(&mut self, id: u64, charge: u64) {
        if !self.setup.reorders {
            assert_eq!(id, self.next_id, "ids are consecutive");
        }
        if id >= self.next_id {
            if id > self.next_id {
                self.gaps.insert(self.next_id, id);
            }
            self.next_id = id + charge;
            return;
        }
        let (start, end) = self
            .gaps
            .range(..=id)
            .next_back()
            .map(|(start, end)| (*start, *end))
            .unwrap();
        assert!(id + charge <= end, "an id comes once");
        self.gaps.remove(&start);
        for (start, end) in [(start, id), (id + charge, end)] {
            if start < end {
                self.gaps.insert(start, end);
            }
        }
    }

    /// Whether all ids before the next have come.
    pub(crate) fn has_all_ids(&self) -> bool {
        self.gaps.is_empty()
    }

    pub(super) fn grant_in(&mut self, reply: &mut [u8], asked: u16) {
        self.in_use = self.in_use.saturating_sub(1);
        let grant = match self.setup.grant {
            Grant::AsAsked => asked.min(600),
            Grant::One => 1,
            Grant::Starving if self.balance == 0 => 1 + self.random.below(2) as u16,
            Grant::Starving => self.random.below(2) as u16,
        };
        self.balance += u32::from(grant);
        reply[14..16].copy_from_slice(&grant.to_le_bytes());
    }
}
