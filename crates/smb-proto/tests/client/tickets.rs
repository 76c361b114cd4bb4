//! Logins by ticket: a mechanism as Kerberos is one, whose first token is made before there is a connection.

use crate::peer::{Peer, Setup};
use crate::sim::ways;
use crate::ticket::Ticket;
use crate::world::{Kind, World, anything, echo};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::auth::{AuthError, Oid};
use ropeway_smb_proto::client::{Chain, Event, LoginError};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::Dialect;

fn login() -> SpnegoClient {
    SpnegoClient::new(vec![Ticket::boxed()])
}

fn ticketed(setup: Setup) -> Setup {
    Setup {
        tickets: true,
        ..setup
    }
}

#[test]
fn every_dialect_and_protection_in_one_round_less() {
    for (config, setup) in ways() {
        let mut world = World::new(config, ticketed(setup.clone()));
        world.client.log_in(login()).unwrap();
        world.enter();
        world.settle();
        assert!(world.open.is_empty(), "{:?}", world.events);
        // NEGOTIATE, one SESSION_SETUP, TREE_CONNECT, and the validation below 3.1.1.
        let validated = setup.dialect < Dialect::Smb311;
        assert_eq!(world.peer.frames, 3 + u32::from(validated));
        for _ in 0..10 {
            anything(&mut world);
        }
        let open: Vec<_> = world.open.keys().copied().collect();
        open.into_iter().for_each(|ticket| world.client.cancel(ticket));
        world.settle();
        assert!(world.open.is_empty());
    }
}

#[test]
fn channels_are_bound_and_sessions_renewed() {
    for (config, setup) in ways() {
        let setup = ticketed(setup);
        let mut first = World::new(config.clone(), setup.clone());
        first.client.log_in(login()).unwrap();
        first.settle();
        first.peer.expire();
        first.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        first.settle();
        assert!(matches!(first.events.last(), Some(Event::SessionExpired)));
        first.client.log_in(login()).unwrap();
        first.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        first.settle();
        assert!(matches!(first.events.last(), Some(Event::Authenticated { .. })));
        if setup.dialect < Dialect::Smb300 {
            continue;
        }
        let mut second = World::new(config, setup.clone());
        second.peer = Peer::new(setup);
        second.peer.master = first.peer.master.clone();
        let session = first.client.session().unwrap();
        second.client.bind(&session, login()).unwrap();
        second.submit(Chain::one(echo()), vec![Kind::Other(Command::Echo)]);
        second.settle();
        assert!(matches!(second.events.last(), Some(Event::Authenticated { .. })));
        assert!(second.open.is_empty());
    }
}

/// The session may be signed rightly and the server still be somebody else: its own proof counts too.
#[test]
fn a_server_that_proves_nothing_is_refused() {
    let (config, setup) = ways().pop().unwrap();
    let mut world = World::new(config, ticketed(setup));
    world.peer.prove_by(Ticket::with(vec![Oid::KERBEROS], b"nothing"));
    world.client.log_in(login()).unwrap();
    world.settle();
    let last = world.events.last();
    assert!(
        matches!(
            last,
            Some(Event::LoginFailed(LoginError::Auth(AuthError::Mechanism(_))))
        ),
        "{last:?}"
    );
    assert!(world.client.session().is_none());
}

#[test]
fn both_names_of_kerberos_are_taken() {
    for oid in [Oid::KERBEROS, Oid::MS_KERBEROS] {
        let (config, setup) = ways().pop().unwrap();
        let mut world = World::new(config, ticketed(setup));
        world.peer.prove_by(Ticket::with(vec![oid], b"AP-REP"));
        world.client.log_in(login()).unwrap();
        world.settle();
        assert!(matches!(world.events.last(), Some(Event::Authenticated { .. })));
    }
}

/// Somebody took Kerberos out of what the server offers: there is nothing to fall back to.
#[test]
fn a_server_without_kerberos_gets_no_ticket() {
    let mut world = World::new(crate::world::config(), Setup::default());
    world.client.log_in(login()).unwrap();
    world.settle();
    let last = world.events.last();
    assert!(
        matches!(
            last,
            Some(Event::LoginFailed(LoginError::Auth(AuthError::NoCommonMechanism)))
        ),
        "{last:?}"
    );
    assert_eq!(world.peer.frames, 1, "nothing was sent to it");
}
