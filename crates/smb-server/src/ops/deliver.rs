//! Delivery of the hub's events to connections, after what they depend on is in the journals.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::Event;

use super::close::remove_deleted;
use super::{persistent, range_locks};
use crate::state::SharedState;
use crate::state::mailbox::Message;
use crate::state::open::Handle;

/// Sends all events of the hub to the connections that they concern.
pub(crate) fn deliver(shared: &Arc<SharedState>) {
    loop {
        let next = {
            let mut hub = shared.hub();
            let is_settled = shared.kept_handles.have(hub.change_count());
            is_settled.then(|| hub.poll_event())
        };
        let event = match next {
            Some(Some(event)) => event,
            Some(None) => return,
            None => {
                persistent::settle(shared);
                continue;
            }
        };
        match event {
            Event::Wake(waiter) => {
                shared.post(waiter.connection, Message::Retry(waiter.request));
            }
            Event::NotifyReady {
                waiter,
                status,
                changes,
            } => {
                shared.post(
                    waiter.connection,
                    Message::ChangeNotify(waiter.request, status, changes),
                );
            }
            Event::Break(order) => {
                // The first connection that still exists ([MS-SMB2] 3.3.4.6).
                let first = order
                    .client
                    .and_then(|client| shared.sessions().break_connection(client, order.session));
                for connection in first.into_iter().chain(order.connections) {
                    if shared.post(connection, Message::Break(order.session, order.notification)) {
                        break;
                    }
                }
            }
            Event::Expired(closed) => {
                let handle = shared.take_handle(closed.open.get());
                if let Some(open) = handle.as_ref().and_then(Handle::file) {
                    range_locks::release(shared, open);
                }
                // The error is logged; no client waits for it.
                _ = remove_deleted(shared, &closed, handle.as_ref().and_then(Handle::file));
            }
        }
    }
}
