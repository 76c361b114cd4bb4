//! Somebody between the ends who weakens what they agree on is found out: by the hash over the negotiation in 3.1.1, by
//! VALIDATE_NEGOTIATE_INFO below, and by signatures that must be there.

use crate::peer::{Setup, Validation};
use crate::world::{World, config, login};
use ropeway_smb_proto::client::{Config, Event, PeerMisbehaved, Signing};
use ropeway_smb_proto::crypto::SigningAlgorithm;
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, SecurityMode};
use ropeway_smb_wire::{Guid, NtStatus};

/// A server that speaks this dialect at most.
fn speaking(dialect: Dialect) -> Setup {
    Setup {
        dialect,
        signing: match dialect {
            Dialect::Smb202 | Dialect::Smb210 => SigningAlgorithm::HmacSha256,
            Dialect::Smb300 | Dialect::Smb302 => SigningAlgorithm::AesCmac,
            Dialect::Smb311 => SigningAlgorithm::AesGmac,
        },
        ..Setup::default()
    }
}

/// How a login and the way into a share end.
fn outcome(world: &mut World) -> Option<PeerMisbehaved> {
    world.client.log_in(login("anna", "secret")).unwrap();
    world.enter();
    (0..20).find_map(|_| world.step().err())
}

fn is_logged_in(world: &World) -> bool {
    let stands = |event: &Event| matches!(event, Event::Authenticated { .. });
    world.events.iter().any(stands)
}

/// The next message of the client goes to the server as it is; the server's answer waits in `to_client`.
fn exchange(world: &mut World) -> bool {
    let mut sent = false;
    while let Some(transmit) = world.client.poll_transmit() {
        for part in &transmit.parts {
            world.peer.feed(part.as_slice());
        }
        sent = true;
    }
    world.to_client.append(&mut world.peer.output);
    sent
}

/// In 3.1.1 whatever byte of the server's NEGOTIATE or SESSION_SETUP is changed, there is no session.
#[test]
fn any_changed_byte_of_the_set_up_is_found_out() {
    for message in 0..3 {
        let mut at = 0;
        loop {
            let mut world = World::new(config(), speaking(Dialect::Smb311));
            world.client.log_in(login("anna", "secret")).unwrap();
            for _ in 0..message {
                assert!(exchange(&mut world));
                let length = world.to_client.len();
                world.deliver(length).unwrap();
                world.take_events();
            }
            assert!(exchange(&mut world));
            // The frame's length would only make the client wait for more.
            let Some(byte) = world.to_client.get_mut(4 + at) else {
                break;
            };
            *byte ^= 1 << (at % 8);
            let length = world.to_client.len();
            let mut caught = world.deliver(length).err();
            world.take_events();
            for _ in 0..4 {
                caught = caught.or_else(|| world.step().err());
            }
            assert!(
                !is_logged_in(&world) && world.client.session().is_none(),
                "byte {at} of message {message}: {caught:?}"
            );
            at += 1;
        }
        // A header, a structure and a security buffer at least.
        assert!(at > 72, "message {message} has {at} bytes");
    }
}

/// What the client offered was changed on its way to the server, which hashed something else.
#[test]
fn a_changed_offer_is_found_by_the_hash() {
    // The GUID in the body of NEGOTIATE, which nothing compares.
    for at in 4 + 64 + 12..4 + 64 + 28 {
        let mut world = World::new(config(), speaking(Dialect::Smb311));
        world.client.log_in(login("anna", "secret")).unwrap();
        let transmit = world.client.poll_transmit().unwrap();
        let mut bytes: Vec<u8> = transmit
            .parts
            .iter()
            .flat_map(|part| part.as_slice().to_vec())
            .collect();
        bytes[at] ^= 1;
        world.peer.feed(&bytes);
        drop(transmit);
        let caught = (0..20).find_map(|_| world.step().err());
        assert_eq!(caught, Some(PeerMisbehaved::BadSignature));
        assert!(!is_logged_in(&world));
    }
}

/// Somebody takes the newer dialects, or anything else, out of the offer: below 3.1.1 the validation finds out.
#[test]
fn a_downgrade_below_311_is_found_by_validation() {
    let lies: [(fn(&mut _), &str); 4] = [
        (
            |told: &mut ropeway_smb_wire::fsctl::validate_negotiate::ValidateNegotiateResponse| {
                told.dialect = 0x0311;
            },
            "the dialect",
        ),
        (|told| told.guid = Guid([9; 16]), "the server"),
        (
            |told| told.capabilities |= Capabilities::ENCRYPTION,
            "the capabilities",
        ),
        (
            |told| told.security_mode |= SecurityMode::SIGNING_REQUIRED,
            "the security mode",
        ),
    ];
    for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb302] {
        for (lie, what) in lies {
            let setup = Setup {
                validation: Validation::Told(lie),
                ..speaking(dialect)
            };
            let mut world = World::new(config(), setup);
            assert_eq!(outcome(&mut world), Some(PeerMisbehaved::Downgrade(what)));
            assert_eq!(world.replied, 0, "the share was not entered");
        }
    }
}

/// Servers that do not know the question say so, signed; any other refusal is no answer.
#[test]
fn a_refused_validation_counts_as_found_out() {
    let refused = |status, forgets_to_sign| {
        let setup = Setup {
            validation: Validation::Refused(status),
            forgets_to_sign,
            ..speaking(Dialect::Smb300)
        };
        // Signing is not required, so that nothing but the validation minds its absence.
        let lax = Config {
            signing: Signing::Offered,
            ..config()
        };
        let mut world = World::new(lax, setup);
        let outcome = outcome(&mut world);
        (outcome, world.replied)
    };
    for status in [
        NtStatus::NOT_SUPPORTED,
        NtStatus::INVALID_DEVICE_REQUEST,
        NtStatus::FILE_CLOSED,
    ] {
        assert_eq!(refused(status, false), (None, 1), "{status}");
        assert_eq!(
            refused(status, true),
            (Some(PeerMisbehaved::Unsigned), 0),
            "{status}"
        );
    }
    let (outcome, replied) = refused(NtStatus::ACCESS_DENIED, false);
    assert!(
        matches!(outcome, Some(PeerMisbehaved::Downgrade(_))),
        "{outcome:?}"
    );
    assert_eq!(replied, 0);
}

/// A server that does not sign, or whose signatures somebody takes away.
#[test]
fn missing_signatures_are_found_out() {
    for dialect in Dialect::ALL {
        let setup = Setup {
            forgets_to_sign: true,
            ..speaking(dialect)
        };
        // Required: there is no session.
        let mut world = World::new(config(), setup.clone());
        assert_eq!(outcome(&mut world), Some(PeerMisbehaved::Unsigned), "{dialect:?}");
        assert!(!is_logged_in(&world) && world.replied == 0, "{dialect:?}");
        // Offered: 3.1.1 wants the last answer of the login signed in any case ([MS-SMB2] 3.2.5.3.1); below, the validation
        // is signed.
        let lax = Config {
            signing: Signing::Offered,
            ..config()
        };
        let mut world = World::new(lax, setup);
        assert_eq!(outcome(&mut world), Some(PeerMisbehaved::Unsigned), "{dialect:?}");
        assert_eq!(world.replied, 0, "{dialect:?}");
    }
}
