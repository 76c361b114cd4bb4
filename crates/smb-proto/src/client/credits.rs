//! The account of credits, and message ids, which are bought with them.
//!
//! Invariants: no request is sent for which there is no credit; ids are consecutive by charge and never used twice
//! ([MS-SMB2] 3.2.4.1.2, 3.2.4.1.3).

use super::CreditState;
use ropeway_smb_wire::MessageId;

/// Bytes that one credit pays for ([MS-SMB2] 3.2.4.1.5).
const CREDIT_BYTES: usize = 65_536;

#[derive(Debug)]
pub(super) struct Credits {
    available: u32,
    in_use: u32,
    asked: u32,
    /// What waiting chains will cost.
    wanted: u32,
    next: u64,
    target: u16,
}

/// What was bought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bought {
    pub(super) id: MessageId,
    pub(super) charge: u16,
    /// For the header's `CreditRequest`.
    pub(super) ask: u16,
}

impl Credits {
    /// A new connection has one credit, for message 0 ([MS-SMB2] 3.2.1.2).
    pub(super) fn new(target: u16) -> Self {
        Self {
            available: 1,
            in_use: 0,
            asked: 0,
            wanted: 0,
            next: 0,
            target: target.max(1),
        }
    }

    /// The charge for a request that sends `sent` bytes and expects `expected`.
    pub(super) fn charge(multi_credit: bool, sent: usize, expected: usize) -> u16 {
        if !multi_credit {
            return 1;
        }
        // Frames have 24-bit lengths, so this is far below the maximum; an absurd expectation is never affordable.
        u16::try_from(sent.max(expected).div_ceil(CREDIT_BYTES).max(1)).unwrap_or(u16::MAX)
    }

    pub(super) fn affords(&self, charge: u32) -> bool {
        charge <= self.available
    }

    pub(super) fn want(&mut self, charge: u32) {
        self.wanted = self.wanted.saturating_add(charge);
    }

    pub(super) fn unwant(&mut self, charge: u32) {
        self.wanted = self.wanted.saturating_sub(charge);
    }

    pub(super) fn forget_wanted(&mut self) {
        self.wanted = 0;
    }

    /// Pays for a request; asks for what requests in flight and waiting need, up to the target, or for the whole target.
    pub(super) fn buy(&mut self, charge: u16, eager: bool) -> Bought {
        let cost = u32::from(charge);
        assert!(self.affords(cost), "credits are not overdrawn");
        self.available -= cost;
        self.in_use += cost;
        let id = MessageId(self.next);
        self.next += u64::from(charge);
        let target = u32::from(self.target);
        let need = if eager {
            target
        } else {
            self.in_use.saturating_add(self.wanted).min(target)
        };
        let outlook = self.available.saturating_add(self.asked).saturating_add(cost);
        let ask = cost + need.saturating_sub(outlook);
        let ask = u16::try_from(ask).unwrap_or(u16::MAX);
        self.asked += u32::from(ask);
        Bought { id, charge, ask }
    }

    /// The server answered for the first time: what was asked for has been granted or not.
    pub(super) fn heard(&mut self, ask: u16) {
        self.asked = self.asked.saturating_sub(u32::from(ask));
    }

    /// A final answer.
    pub(super) fn done(&mut self, charge: u16) {
        self.in_use = self.in_use.saturating_sub(u32::from(charge));
    }

    pub(super) fn grant(&mut self, credits: u16) {
        self.available = self.available.saturating_add(u32::from(credits));
    }

    pub(super) fn state(&self) -> CreditState {
        CreditState {
            available: self.available,
            in_use: self.in_use,
            asked: self.asked,
            wanted: self.wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_pays_for_64_kib() {
        for (bytes, charge) in [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (8 << 20, 128)] {
            assert_eq!(Credits::charge(true, bytes, 0), charge);
            assert_eq!(Credits::charge(true, 3, bytes), charge);
            assert_eq!(Credits::charge(false, bytes, bytes), 1);
        }
    }

    #[test]
    fn credits_are_asked_for_by_need() {
        let mut credits = Credits::new(100);
        let first = credits.buy(1, false);
        assert_eq!(
            (first.id, first.ask),
            (MessageId(0), 1),
            "need is met by its own return"
        );
        credits.heard(1);
        credits.done(1);
        credits.grant(20);
        credits.want(500);
        let second = credits.buy(16, false);
        assert_eq!((second.id, second.ask), (MessageId(1), 100 - 4));
        credits.unwant(4);
        let third = credits.buy(4, false);
        assert_eq!(
            (third.id, third.ask),
            (MessageId(17), 4),
            "the target was asked for already"
        );
        assert!(!credits.affords(1));
    }

    #[test]
    #[should_panic(expected = "overdrawn")]
    fn nothing_is_sent_on_tick() {
        Credits::new(9).buy(2, false);
    }
}
