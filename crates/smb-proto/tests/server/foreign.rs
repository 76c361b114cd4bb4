//! Sessions of clients that log in by another protocol.

use std::sync::Arc;

use ropeway_smb_proto::auth::Identity;
use ropeway_smb_proto::server::{Config, Connection, ConnectionId, Sessions};
use ropeway_smb_wire::{NtStatus, Text};

use crate::world::server_config;

#[test]
fn sessions_are_in_the_table_and_bounded() {
    let config = Arc::new(Config {
        sessions_per_connection_max: 2,
        ..server_config()
    });
    let mut sessions = Sessions::new();
    let mut connection = Connection::foreign(config, ConnectionId(7));
    let user = Identity::User {
        domain: Text::default(),
        user: Text::from("alice"),
        workstation: Text::default(),
    };
    let one = connection.add_session(&mut sessions, user.clone()).unwrap();
    let two = connection
        .add_session(&mut sessions, Identity::Anonymous)
        .unwrap();
    assert_eq!(
        connection.add_session(&mut sessions, user),
        Err(NtStatus::INSUFFICIENT_RESOURCES)
    );
    assert_eq!(connection.sessions().count(), 2);
    let of = |id| sessions.get(id).unwrap();
    assert_eq!(of(one).channels(), [ConnectionId(7)]);
    assert!(!of(one).is_anonymous && of(two).is_anonymous);
    assert!(!connection.can_seal(one), "shares that encrypt stay closed");
}
