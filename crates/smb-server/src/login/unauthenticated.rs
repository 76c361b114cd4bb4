//! Connections without a login. Each address has a limited number of them, and the oldest is
//! evicted when there are too many.
//!
//! A login takes milliseconds, so clients that only connect cannot keep others out.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ropeway_smb_proto::server::ConnectionId;

use crate::login::throttle::client_of;

/// Limit for one address. A guess: a host with many users logs them in one after the other, within
/// milliseconds each.
pub(crate) const PER_ADDRESS_MAX: usize = 256;

/// Table of all connections without a login. The server's limit of connections bounds it.
#[derive(Clone, Default)]
pub(crate) struct UnauthenticatedConnections(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Addresses by connection, oldest first.
    all: BTreeMap<ConnectionId, IpAddr>,
    by_address: HashMap<IpAddr, BTreeSet<ConnectionId>>,
}

/// One connection in the table while it lives.
pub(crate) struct UnauthenticatedSlot {
    all: UnauthenticatedConnections,
    id: ConnectionId,
}

impl Table {
    fn remove(&mut self, id: ConnectionId) {
        let Some(address) = self.all.remove(&id) else {
            return;
        };
        if let Some(by_address) = self.by_address.get_mut(&address) {
            by_address.remove(&id);
            if by_address.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

impl UnauthenticatedConnections {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Adds a connection, and returns the one to evict for it. `is_full`: the server has no more
    /// room. Returns `None` if there is no room and no connection can be evicted.
    pub(crate) fn enter(
        &self,
        address: IpAddr,
        id: ConnectionId,
        is_full: bool,
    ) -> Option<(UnauthenticatedSlot, Option<ConnectionId>)> {
        let address = client_of(address);
        let mut table = self.lock();
        let own = table
            .by_address
            .get(&address)
            .filter(|own| own.len() >= PER_ADDRESS_MAX);
        let mut oldest = own.and_then(|own| own.first().copied());
        if is_full {
            // The same address first, if it has too many as well.
            oldest = oldest.or_else(|| table.all.keys().next().copied());
            oldest?;
        }
        if let Some(oldest) = oldest {
            table.remove(oldest);
        }
        table.all.insert(id, address);
        table.by_address.entry(address).or_default().insert(id);
        drop(table);
        let all = self.clone();
        Some((UnauthenticatedSlot { all, id }, oldest))
    }
}

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        self.all.lock().remove(self.id);
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
            let connections = UnauthenticatedConnections::default();
            let mut last = 0;
            let mut enter = |address: &str| {
                last += 1;
                let id = ConnectionId(last);
                connections.enter(address.parse().unwrap(), id, false).unwrap()
            };
            let mut all: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| enter(one)).collect();
            assert!(all.iter().all(|(_, gone)| gone.is_none()));
            // The oldest of this address is evicted, and no other.
            assert_eq!(enter(same).1, Some(ConnectionId(1)));
            assert_eq!(enter(other).1, None);
            all.pop();
            assert_eq!(connections.lock().all.len(), PER_ADDRESS_MAX - 2);
            drop(all);
            assert!(connections.lock().by_address.is_empty() && connections.lock().all.is_empty());
        }
    }

    #[test]
    fn the_oldest_is_evicted_when_the_server_is_full() {
        let connections = UnauthenticatedConnections::default();
        let enter = |number: u64, is_full| {
            let address = std::net::Ipv4Addr::from(number as u32).into();
            connections.enter(address, ConnectionId(number), is_full)
        };
        assert!(enter(1, true).is_none(), "everybody is known");
        let all: Vec<_> = (2..9).map(|number| enter(number, false).unwrap()).collect();
        for number in 10..13 {
            let (slot, gone) = enter(number, true).unwrap();
            assert_eq!(gone, Some(ConnectionId(number - 8)));
            drop(slot);
        }
        // Connections with a login are not evicted.
        drop(all);
        assert!(enter(20, true).is_none());
    }
}
