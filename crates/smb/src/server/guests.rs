//! Connections that nobody has logged in on: one address has a bounded number of them, so that it cannot take the place
//! of all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::failures::client_of;

/// Of one address. A guess: a host with many users logs them in one after the other, each within milliseconds.
pub(super) const GUESTS_MAX: usize = 256;

/// Counts them. As large as there are connections at most.
#[derive(Clone, Default)]
pub(super) struct Guests(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them, as long as it lives.
pub(super) struct Guest {
    all: Guests,
    address: IpAddr,
}

impl Guests {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; none if the address has too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Guest> {
        let address = client_of(address);
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        if *count >= GUESTS_MAX {
            return None;
        }
        *count += 1;
        let all = self.clone();
        Some(Guest { all, address })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        for (one, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"),
        ] {
            let guests = Guests::default();
            let enter = |address: &str| guests.enter(address.parse().unwrap());
            let mut all: Vec<_> = (0..GUESTS_MAX).map(|_| enter(one).unwrap()).collect();
            assert!(enter(one).is_none() && enter(same).is_none());
            assert!(enter(other).is_some());
            all.pop();
            assert!(enter(same).is_some());
            drop(all);
            assert!(guests.lock().is_empty());
        }
    }
}
