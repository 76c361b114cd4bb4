//! Negotiations and logins, good and bad.

use crate::peer::{Peer, Setup};
use crate::sim::ways;
use crate::world::{Kind, World, anything, config, echo, login};
use ropeway_smb_proto::client::{Chain, Config, Encryption, Event, LoginError, PeerMisbehaved, Signing};
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::session_setup::SessionFlags;

#[test]
fn every_dialect_and_protection() {
    for (config, setup) in ways() {
        let sealed = config.encryption == Encryption::Desired || setup.encrypt_data;
        let world = World::ready(config.clone(), setup.clone());
        let negotiated = world.client.negotiated().unwrap();
        assert_eq!(negotiated.dialect, setup.dialect);
        assert_eq!(negotiated.signing, setup.signing);
        assert_eq!(negotiated.cipher, setup.cipher);
        assert_eq!(world.client.is_encrypted(), sealed);
        assert_eq!(world.peer.sealed_frames > 0, sealed);
        assert!(matches!(
            world.events[..],
            [Event::Negotiated, Event::Authenticated { .. }]
        ));
    }
}

#[test]
fn set_up_takes_three_round_trips() {
    let world = World::ready(config(), Setup::default());
    // NEGOTIATE, two SESSION_SETUPs, and the TREE_CONNECT that was submitted before there was a connection.
    assert_eq!(world.peer.frames, 4);
    let world = World::ready(
        config(),
        Setup {
            dialect: Dialect::Smb302,
            signing: SigningAlgorithm::AesCmac,
            ..Setup::default()
        },
    );
    assert_eq!(world.peer.frames, 5, "and the validation below 3.1.1");
}

#[test]
fn a_wrong_password() {
    let mut world = World::new(config(), Setup::default());
    world.client.log_in(login("anna", "wrong")).unwrap();
    world.settle();
    assert!(matches!(
        world.events.last(),
        Some(Event::LoginFailed(LoginError::Refused(NtStatus::LOGON_FAILURE)))
    ));
    assert!(world.client.session().is_none() && world.client.ended().is_none());
}

#[test]
fn unprotected_sessions_only_by_name() {
    for flags in [SessionFlags::IS_GUEST, SessionFlags::IS_NULL] {
        let setup = Setup {
            session_flags: flags,
            ..Setup::default()
        };
        let user = if flags == SessionFlags::IS_NULL {
            ""
        } else {
            "anna"
        };
        let mut world = World::new(config(), setup.clone());
        world.client.log_in(login(user, "secret")).unwrap();
        world.settle();
        assert!(matches!(
            world.events.last(),
            Some(Event::LoginFailed(LoginError::Unprotected))
        ));
        let allowing = Config {
            unprotected_allowed: true,
            ..config()
        };
        let mut world = World::new(allowing, setup);
        world.client.log_in(login(user, "secret")).unwrap();
        world.enter();
        world.settle();
        assert!(world.open.is_empty());
        assert!(world.client.session().is_none() && !world.client.is_signed());
        assert_eq!(world.client.session_flags(), Some(flags));
    }
}

#[test]
fn encryption_required_and_none_there() {
    let config = Config {
        encryption: Encryption::Required,
        ..config()
    };
    let mut world = World::new(config, Setup::default());
    world.client.log_in(login("anna", "secret")).unwrap();
    world.settle();
    assert!(matches!(
        world.events.last(),
        Some(Event::LoginFailed(LoginError::NoEncryption))
    ));
}

#[test]
fn a_session_is_renewed_and_keeps_its_keys() {
    for (config, setup) in ways() {
        let mut world = World::ready(config, setup);
        world.peer.expire();
        world.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        world.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        world.settle();
        let expired = world
            .events
            .iter()
            .filter(|event| matches!(event, Event::SessionExpired))
            .count();
        assert_eq!(expired, 1, "said once");
        world.client.log_in(login("anna", "secret")).unwrap();
        world.settle();
        assert!(matches!(world.events.last(), Some(Event::Authenticated { .. })));
        for _ in 0..10 {
            anything(&mut world);
        }
        world.settle();
    }
}

/// The login of an expired session takes its time, such as that of a KDC: what is submitted meanwhile waits for it.
#[test]
fn an_expired_session_sends_nothing_until_it_is_renewed() {
    for (config, setup) in ways() {
        let mut world = World::ready(config, setup);
        world.peer.expire();
        world.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        world.settle();
        assert!(matches!(world.events.last(), Some(Event::SessionExpired)));
        let frames = world.peer.frames;
        for _ in 0..3 {
            world.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        }
        world.settle();
        assert_eq!((world.peer.frames, world.open.len()), (frames, 3));
        world.client.log_in(login("anna", "secret")).unwrap();
        world.settle();
        assert!(world.open.is_empty());
        assert!(world.peer.frames > frames);
    }
}

#[test]
fn further_channels() {
    for (config, setup) in ways() {
        if setup.dialect < Dialect::Smb300 {
            continue;
        }
        let first = World::ready(config.clone(), setup.clone());
        let mut second = World::new(config, setup.clone());
        second.peer = Peer::new(setup);
        second.peer.master = first.peer.master.clone();
        second
            .client
            .bind(&first.client.session().unwrap(), login("anna", "secret"))
            .unwrap();
        second.settle();
        assert!(
            matches!(second.events.last(), Some(Event::Authenticated { .. })),
            "{:?}",
            second.events
        );
        for _ in 0..20 {
            anything(&mut second);
        }
        second.settle();
        assert!(second.replied > 0);
        let open: Vec<_> = second.open.keys().copied().collect();
        open.into_iter().for_each(|ticket| second.client.cancel(ticket));
        second.settle();
        assert!(second.open.is_empty());
    }
}

#[test]
fn a_channel_speaks_as_its_session() {
    let setup = Setup {
        cipher: Some(Cipher::Aes128Gcm),
        ..Setup::default()
    };
    let first = World::ready(config(), setup);
    let mut second = World::new(config(), Setup::default());
    second
        .client
        .bind(&first.client.session().unwrap(), login("anna", "secret"))
        .unwrap();
    second.settle();
    assert!(matches!(
        second.events.last(),
        Some(Event::LoginFailed(LoginError::Misuse(_)))
    ));
}

#[test]
fn what_was_not_offered_is_refused() {
    let narrow = Config {
        signing: Signing::Required,
        signing_algorithms: vec![SigningAlgorithm::AesCmac],
        ciphers: vec![Cipher::Aes256Gcm],
        ..config()
    };
    let other_signing = Setup::default();
    let other_cipher = Setup {
        signing: SigningAlgorithm::AesCmac,
        cipher: Some(Cipher::Aes128Gcm),
        ..Setup::default()
    };
    for setup in [other_signing, other_cipher] {
        let mut world = World::new(narrow.clone(), setup);
        let outcome = (0..5).find_map(|_| world.step().err());
        assert!(
            matches!(outcome, Some(PeerMisbehaved::NotOffered(_))),
            "{outcome:?}"
        );
    }
}
