//! Logins, good and bad; further channels; sessions that come back.

use std::sync::Arc;

use crate::world::{World, client_config, login, server_config, tree};
use ropeway_smb_proto::client::{self, Chain, Encryption, Event, LoginError};
use ropeway_smb_proto::server::{Config, Sessions};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, NtStatus};

fn failed(world: &World, status: NtStatus) -> bool {
    matches!(
        world.events.last(),
        Some(Event::LoginFailed(LoginError::Refused(told))) if *told == status
    )
}

#[test]
fn nobody_is_told_what_was_wrong() {
    let server = Arc::new(server_config());
    for (user, password) in [("anna", "wrong"), ("carl", "secret"), ("anna", ""), ("", "")] {
        let mut sessions = Sessions::new();
        let config = client::Config {
            unprotected_allowed: true,
            signing: client::Signing::Offered,
            ..client_config()
        };
        let mut world = World::new(config, &server, 1);
        world.client.log_in(login(user, password)).unwrap();
        world.settle(&mut sessions);
        assert!(
            failed(&world, NtStatus::LOGON_FAILURE),
            "{user}: {:?}",
            world.events
        );
        assert!(sessions.is_empty() && world.served.hung_up.is_none());
        // And may try again.
        world.client.log_in(login("anna", "secret")).unwrap();
        world.settle(&mut sessions);
        assert!(world.is_logged_in());
    }
}

#[test]
fn anonymous_where_it_is_allowed() {
    let server = Arc::new(Config {
        anonymous: true,
        ..server_config()
    });
    let config = client::Config {
        unprotected_allowed: true,
        signing: client::Signing::Offered,
        ..client_config()
    };
    let mut sessions = Sessions::new();
    let mut world = World::new(config, &server, 1);
    world.client.log_in(login("", "")).unwrap();
    world.settle(&mut sessions);
    assert!(
        world.is_logged_in(),
        "{:?} {:?}",
        world.events,
        world.served.hung_up
    );
    let session = sessions.iter().next().unwrap();
    assert!(session.is_anonymous && !session.signing_required);
    assert_eq!(world.echo(&mut sessions), [NtStatus::SUCCESS]);
}

/// A guest is let in only where that is asked for, and never with a password or instead of somebody else.
#[test]
fn guests_where_they_are_allowed() {
    for (guest, user, password, is_in) in [
        (false, "guest", "", false),
        (true, "guest", "", true),
        (true, "Guest", "", true),
        (true, "guest", "secret", false),
        (true, "nobody known", "", false),
        (true, "", "", false),
        (true, "anna", "secret", true),
    ] {
        let server = Arc::new(Config {
            guest,
            ..server_config()
        });
        let config = client::Config {
            unprotected_allowed: true,
            signing: client::Signing::Offered,
            ..client_config()
        };
        let mut sessions = Sessions::new();
        let mut world = World::new(config, &server, 1);
        world.client.log_in(login(user, password)).unwrap();
        world.settle(&mut sessions);
        assert_eq!(world.is_logged_in(), is_in, "{user} {password}");
        let Some(session) = sessions.iter().next() else {
            continue;
        };
        assert_eq!(
            (session.is_guest, session.is_anonymous),
            (user != "anna", user != "anna")
        );
        assert_eq!(world.echo(&mut sessions), [NtStatus::SUCCESS]);
    }
}

/// Further channels: in the same dialect, proved with the session's key and the user's password.
#[test]
fn channels() {
    for encryption in [Encryption::Off, Encryption::Desired] {
        for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
            let server = Arc::new(server_config());
            let mut sessions = Sessions::new();
            let config = client::Config {
                dialects: dialect..=dialect,
                encryption,
                ..client_config()
            };
            let mut first = World::ready(config.clone(), &server, &mut sessions);
            let mut second = World::new(config.clone(), &server, 2);
            let secret = first.client.session().unwrap();
            second.client.bind(&secret, login("anna", "secret")).unwrap();
            second.settle(&mut sessions);
            assert!(second.is_logged_in(), "{dialect:?}: {:?}", second.events);
            assert_eq!(sessions.len(), 1);
            assert_eq!(sessions.iter().next().unwrap().channels().len(), 2);
            for world in [&mut first, &mut second] {
                assert_eq!(world.echo(&mut sessions), [NtStatus::SUCCESS]);
                assert_eq!(world.ask(Chain::one(tree()), &mut sessions), [NtStatus::SUCCESS]);
            }
            // Another user's password does not do.
            let mut third = World::new(config.clone(), &server, 3);
            third.client.bind(&secret, login("bert", "secret")).unwrap();
            third.settle(&mut sessions);
            assert!(!third.is_logged_in(), "{:?}", third.events);
            let mut third = World::new(config.clone(), &server, 4);
            third.client.bind(&secret, login("anna", "wrong")).unwrap();
            third.settle(&mut sessions);
            assert!(failed(&third, NtStatus::LOGON_FAILURE), "{:?}", third.events);
            assert_eq!(sessions.iter().next().unwrap().channels().len(), 2);
            // The session lives as long as one of them.
            let id = first.session_id(&sessions);
            assert!(sessions.unbind(id, first.served.protocol.id()).is_none());
            assert_eq!(second.echo(&mut sessions), [NtStatus::SUCCESS]);
            assert!(sessions.unbind(id, second.served.protocol.id()).is_some());
            assert!(sessions.is_empty());
        }
    }
}

/// The key and the password prove who it is; another `ClientGuid` is no reason to refuse ([MS-SMB2] 3.3.5.5: the server
/// may; smb2.session.bind_negative_smb3signCtoHd).
#[test]
fn a_channel_with_another_client_guid() {
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let server = Arc::new(server_config());
        let mut sessions = Sessions::new();
        let config = client::Config {
            dialects: dialect..=dialect,
            ..client_config()
        };
        let other = client::Config {
            client_guid: Guid([8; 16]),
            ..config.clone()
        };
        let mut first = World::ready(config, &server, &mut sessions);
        let secret = first.client.session().unwrap();
        // Not with another user's password.
        let mut second = World::new(other.clone(), &server, 2);
        second.client.bind(&secret, login("bert", "secret")).unwrap();
        second.settle(&mut sessions);
        assert!(!second.is_logged_in(), "{:?}", second.events);
        let mut second = World::new(other, &server, 3);
        second.client.bind(&secret, login("anna", "secret")).unwrap();
        second.settle(&mut sessions);
        assert!(second.is_logged_in(), "{dialect:?}: {:?}", second.events);
        assert_eq!(sessions.iter().next().unwrap().channels().len(), 2);
        for world in [&mut first, &mut second] {
            assert_eq!(world.echo(&mut sessions), [NtStatus::SUCCESS]);
        }
    }
}

/// A channel whose key is not the session's.
#[test]
fn a_channel_needs_the_sessions_key() {
    let server = Arc::new(server_config());
    let mut sessions = Sessions::new();
    let first = World::ready(client_config(), &server, &mut sessions);
    let secret = first.client.session().unwrap();
    let mut second = World::new(client_config(), &server, 2);
    // The signature of the first SESSION_SETUP, and of the second.
    for number in [2, 3] {
        second.tampers = match number {
            2 => |up, frame, bytes| {
                if up && frame == 2 {
                    bytes[48] ^= 1;
                }
            },
            _ => |up, frame, bytes| {
                if up && frame == 3 {
                    bytes[48] ^= 1;
                }
            },
        };
        second.client.bind(&secret, login("anna", "secret")).unwrap();
        second.settle(&mut sessions);
        assert!(!second.is_logged_in(), "{number}: {:?}", second.events);
        assert_eq!(sessions.iter().next().unwrap().channels().len(), 1);
        second = World::new(client_config(), &server, 3);
    }
    // Unsigned, later.
    let mut second = World::new(client_config(), &server, 4);
    second.tampers = |up, frame, bytes| {
        if up && frame == 3 {
            bytes[16] &= !8;
            bytes[48..64].fill(0);
        }
    };
    second.client.bind(&secret, login("anna", "secret")).unwrap();
    second.settle(&mut sessions);
    assert!(!second.is_logged_in(), "{:?}", second.events);
    assert_eq!(sessions.iter().next().unwrap().channels().len(), 1);
}

#[test]
fn a_session_that_was_lost_is_replaced() {
    let server = Arc::new(server_config());
    let mut sessions = Sessions::new();
    let first = World::ready(client_config(), &server, &mut sessions);
    let previous = first.session_id(&sessions);
    // Not by another user.
    let config = client::Config {
        previous_session: previous,
        ..client_config()
    };
    let mut other = World::new(config.clone(), &server, 2);
    other.client.log_in(login("bert", "secret")).unwrap();
    other.settle(&mut sessions);
    assert!(other.is_logged_in() && sessions.get(previous).is_some());
    let mut second = World::new(config, &server, 3);
    second.client.log_in(login("anna", "secret")).unwrap();
    second.settle(&mut sessions);
    assert!(second.is_logged_in() && sessions.get(previous).is_none());
}

/// Whoever is in the middle changes what is agreed on: nobody logs in.
#[test]
fn tampered_negotiations() {
    let server = Arc::new(server_config());
    let changes: [fn(bool, u32, &mut Vec<u8>); 4] = [
        // The request's security mode, capabilities, guid; the response's salt or guid.
        |up, frame, bytes| {
            if up && frame == 1 {
                bytes[68] ^= 2
            }
        },
        |up, frame, bytes| {
            if up && frame == 1 {
                bytes[72] ^= 4
            }
        },
        |up, frame, bytes| {
            if up && frame == 1 {
                bytes[80] ^= 1
            }
        },
        |up, frame, bytes| {
            if !up && frame == 1 {
                let last = bytes.len() - 1;
                bytes[last] ^= 0;
                bytes[4 + 72] ^= 1;
            }
        },
    ];
    for (number, tampers) in changes.into_iter().enumerate() {
        let mut sessions = Sessions::new();
        let mut world = World::new(client_config(), &server, 1);
        world.tampers = tampers;
        world.client.log_in(login("anna", "secret")).unwrap();
        world.settle(&mut sessions);
        assert!(!world.is_logged_in(), "{number}: {:?}", world.events);
    }
}

/// Traffic that is changed on its way is not executed.
#[test]
fn tampered_requests() {
    for encryption in [Encryption::Off, Encryption::Desired] {
        for at in [14_usize, 30, 60, 70, 80] {
            let server = Arc::new(server_config());
            let mut sessions = Sessions::new();
            let config = client::Config {
                encryption,
                ..client_config()
            };
            let mut world = World::ready(config, &server, &mut sessions);
            assert!(world.is_logged_in());
            world.tampers = match at {
                14 => |up, _, bytes| {
                    if up {
                        bytes[14] ^= 1
                    }
                },
                30 => |up, _, bytes| {
                    if up {
                        bytes[30] ^= 1
                    }
                },
                60 => |up, _, bytes| {
                    if up {
                        bytes[60] ^= 1
                    }
                },
                70 => |up, _, bytes| {
                    if up {
                        bytes[70] ^= 1
                    }
                },
                _ => |up, _, bytes| {
                    if up {
                        bytes[80] ^= 1
                    }
                },
            };
            let statuses = world.ask(Chain::one(tree()), &mut sessions);
            assert_ne!(statuses, [NtStatus::SUCCESS]);
            assert!(world.served.executed.is_empty(), "{encryption:?} {at}");
        }
    }
}
