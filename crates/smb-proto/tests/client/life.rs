//! Keepalive, logoff, and the effect of a lost channel on the others.

use std::time::Duration;

use crate::content;
use crate::peer::{Compounds, Peer, Setup};
use crate::sim::ways;
use crate::world::{Kind, World, anything, close, config, create, echo, login, watch};
use ropeway_smb_proto::client::{Compound, Config, DropReason, Encryption, EndReason, Event, Misuse};
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{FileId, NtStatus, Text};

const SECOND: Duration = Duration::from_secs(1);

fn echos(world: &World) -> usize {
    world.peer.hub.lock().unwrap().count(Command::Echo)
}

/// Advances the clock to the next deadline.
fn next_deadline(world: &mut World) -> Duration {
    loop {
        let at = world.client.deadline().unwrap();
        world.client.handle_deadline(at.max(world.now));
        // Otherwise the connection only needed the time.
        if at > world.now {
            world.now = at;
            return at;
        }
    }
}

#[test]
fn a_silent_connection_with_a_watch_is_probed() {
    for (config, setup) in ways() {
        let mut world = World::ready(config, setup);
        world.submit(Compound::one(watch()), vec![Kind::Watch]);
        world.settle();
        for asked in 1..5 {
            let before = world.now;
            let at = next_deadline(&mut world);
            assert!(at <= before + 21 * SECOND);
            world.settle();
            assert_eq!(echos(&world), asked);
            assert_eq!(world.client.ended(), None);
        }
        // A dead connection is detected, even if only the watch is in flight.
        world.peer.setup.deaf = true;
        next_deadline(&mut world);
        world.settle();
        let at = next_deadline(&mut world);
        world.take_events();
        assert_eq!(world.client.ended(), Some(EndReason::Silent), "{at:?}");
        assert!(world.open.is_empty());
    }
}

#[test]
fn a_long_request_is_no_silence_while_echos_are_answered() {
    let setup = Setup {
        compounds: Compounds::FirstOnly,
        ..Setup::default()
    };
    let mut world = World::ready(config(), setup);
    world.peer.swallow = true;
    world.submit(Compound::one(create("file")), vec![Kind::Create(true)]);
    world.settle();
    for _ in 0..10 {
        next_deadline(&mut world);
        world.settle();
        assert_eq!(world.client.ended(), None);
    }
    assert!(echos(&world) >= 9);
    assert!(world.now > 2 * config().silence_max);
}

#[test]
fn no_echo_is_sent_while_nothing_is_in_flight() {
    let mut world = World::ready(config(), Setup::default());
    world.client.handle_deadline(100 * SECOND);
    world.settle();
    assert_eq!(world.client.deadline(), None);
    assert_eq!(echos(&world), 0);
}

/// A server that answers the first request of a compound and forgets the rest is detected, even if
/// it answers everything else.
#[test]
fn a_compound_answered_in_part_ends_the_connection() {
    let setup = Setup {
        compounds: Compounds::FirstOnly,
        ..Setup::default()
    };
    let mut world = World::ready(config(), setup);
    let operations = vec![create("file"), close(FileId::RELATED)];
    let kinds = vec![Kind::Create(true), Kind::Other(Command::Close)];
    world.submit(Compound::related(operations), kinds);
    world.settle();
    for _ in 0..10 {
        world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
        world.settle();
        if world.client.ended().is_some() {
            break;
        }
        next_deadline(&mut world);
        world.take_events();
    }
    assert_eq!(world.client.ended(), Some(EndReason::AnsweredInPart));
    assert!(world.open.is_empty());
    assert!(world.now <= config().silence_max + 5 * SECOND, "{:?}", world.now);
}

#[test]
fn logoff_takes_one_round_trip() {
    for (config, setup) in ways() {
        let mut world = World::ready(config, setup);
        for _ in 0..10 {
            anything(&mut world);
        }
        let under_way = world.open.len();
        let before = world.replied + world.dropped;
        world.client.log_off(true);
        let refused = world.client.submit(Compound::one(echo())).unwrap_err().0;
        assert_eq!(refused, Misuse::Ended);
        world.settle();
        let after = world.replied + world.dropped;
        assert_eq!((after - before) as usize, under_way);
        assert!(matches!(
            world.events.last(),
            Some(Event::Ended(EndReason::LoggedOff))
        ));
        assert!(world.open.is_empty());
        assert_eq!(world.pool.available(), world.pool.slots());
        let hub = world.peer.hub.lock().unwrap();
        let last: Vec<_> = hub.seen.iter().rev().take(2).map(|seen| seen.command).collect();
        assert_eq!(last, [Command::Logoff, Command::TreeDisconnect]);
    }
}

/// A payload that was sealed in its block is restored when the connection ends before it was sent.
/// The owner drops the transmit before it polls events.
#[test]
fn a_sealed_payload_that_was_not_sent_is_restored() {
    let (config, setup) = ways()
        .into_iter()
        .find(|(config, setup)| setup.cipher.is_some() && config.encryption == Encryption::Desired)
        .unwrap();
    let mut world = World::ready(config, setup);
    let write = world.write(FileId::default(), 5, 5000).unwrap();
    world.submit(Compound::one(write), vec![Kind::Write(5, 5000)]);
    let unsent = world.client.poll_transmit().unwrap();
    while world.client.ended().is_none() {
        next_deadline(&mut world);
    }
    assert_eq!(world.client.ended(), Some(EndReason::Silent));
    drop(unsent);
    // The world checks the returned payloads.
    world.take_events();
    assert!(world.open.is_empty() && world.dropped == 1);
    assert_eq!(world.pool.available(), world.pool.slots());
}

#[test]
fn logoff_is_one_transmit() {
    let mut world = World::ready(config(), Setup::default());
    world.client.log_off(true);
    let transmit = world.client.poll_transmit().unwrap();
    assert_eq!(transmit.len(), 2 * (4 + 64 + 4));
    assert!(world.client.poll_transmit().is_none());
    // The client does not wait forever for a silent server: the owner closes the connection.
    world.client.closed();
    world.take_events();
    assert_eq!(world.client.ended(), Some(EndReason::Closed));
}

#[test]
fn a_hurried_logoff_does_not_wait_for_owed_replies() {
    for waits in [true, false] {
        let mut world = World::ready(config(), Setup::default());
        world.client.submit(Compound::one(echo())).unwrap();
        assert!(world.client.poll_transmit().is_some());
        world.client.log_off(waits);
        assert_eq!(world.client.poll_transmit().is_some(), !waits);
    }
}

#[test]
fn without_a_session_logoff_ends_the_connection() {
    let mut world = World::new(config(), Setup::default());
    world.settle();
    world.client.log_off(true);
    world.settle();
    assert_eq!(world.client.ended(), Some(EndReason::LoggedOff));
}

/// Two connections of one session.
fn two_channels(config: &Config, setup: &Setup) -> (World, World) {
    let first = World::ready(config.clone(), setup.clone());
    let mut second = World::new(config.clone(), setup.clone());
    second.peer = Peer::new(setup.clone());
    second.peer.master = first.peer.master.clone();
    second.peer.hub = first.peer.hub.clone();
    let bound = second
        .client
        .bind(&first.client.session().unwrap(), login("anna", "secret"));
    bound.unwrap();
    second.settle();
    (first, second)
}

const FILE: FileId = FileId {
    persistent: 1,
    volatile: 1,
};

/// A channel is lost with writes in flight. They are replayed on the other channel under a new
/// number. A request from before the loss is refused unexecuted, returned whole, and replayed in
/// turn.
#[test]
fn a_lost_channel_makes_earlier_requests_outdated() {
    for (seed, (config, setup)) in ways().into_iter().enumerate() {
        if setup.dialect < Dialect::Smb300 {
            continue;
        }
        let setup = Setup {
            seed: seed as u64,
            ..setup
        };
        let config = Config {
            sequence: Default::default(),
            ..config
        };
        let (mut first, mut second) = two_channels(&config, &setup);
        // Sent, but seen by the server after later requests.
        let late = first.write(FILE, 0, 5000).unwrap();
        second.submit(Compound::one(late), vec![Kind::Write(0, 5000)]);
        let late = second.client.poll_transmit().unwrap();
        let write = first.write(FILE, 5000, 3000).unwrap();
        first.submit(Compound::one(write), vec![Kind::Write(5000, 3000)]);
        drop(first.client.poll_transmit());
        assert_eq!(config.sequence.current(), 0);
        let mut third = third_channel(&first, &config, &setup);
        first.client.closed();
        assert_eq!(config.sequence.current(), 1, "lost with a request in flight");
        let Some(Event::Dropped { mut operations, .. }) = first.client.poll_event() else {
            panic!("the write is given back");
        };
        let mut replay = operations.remove(0);
        replay.flags |= HeaderFlags::REPLAY_OPERATION;
        third.submit(Compound::one(replay), vec![Kind::Write(5000, 3000)]);
        third.settle();
        assert_eq!(third.peer.written, 3000);
        // The delayed request arrives.
        late.parts
            .iter()
            .for_each(|part| second.peer.feed(part.as_slice()));
        drop(late);
        second.to_client = std::mem::take(&mut second.peer.output);
        while !second.peer.is_idle() {
            second.peer.work();
            second.to_client.append(&mut second.peer.output);
        }
        second.deliver(second.to_client.len()).unwrap();
        let Some(Event::Dropped {
            ticket,
            mut operations,
            sent: true,
            reason: DropReason::Outdated,
        }) = second.client.poll_event()
        else {
            panic!("{:?}", second.client);
        };
        second.open.remove(&ticket);
        assert_eq!(second.peer.written, 0);
        let mut replay = operations.remove(0);
        assert_eq!(replay.payload.as_ref().unwrap()[..], *content(0, 5000));
        replay.flags |= HeaderFlags::REPLAY_OPERATION;
        second.submit(Compound::one(replay), vec![Kind::Write(0, 5000)]);
        second.settle();
        assert_eq!(second.peer.written, 5000);
        let hub = first.peer.hub.lock().unwrap();
        assert_eq!((hub.sequence, hub.outdated), (1, 1));
        let replays = hub
            .seen
            .iter()
            .filter(|seen| seen.flags.contains(HeaderFlags::REPLAY_OPERATION));
        assert!(replays.clone().all(|seen| seen.sequence == 1));
        assert_eq!(replays.count(), 2);
    }
}

/// A caller that keeps what a body consists of gets it back only if it was not sent.
#[test]
fn a_body_may_be_forgotten_once_it_is_sent() {
    let mut ways = ways().into_iter();
    let (config, setup) = ways.find(|(_, setup)| setup.dialect >= Dialect::Smb300).unwrap();
    for is_sent in [true, false] {
        let (mut world, _) = two_channels(&config, &setup);
        let mut write = world.write(FILE, 0, 3000).unwrap();
        write.forget_body = true;
        world.submit(Compound::one(write), vec![Kind::Write(0, 3000)]);
        if is_sent {
            drop(world.client.poll_transmit());
        }
        world.client.closed();
        let Some(Event::Dropped { operations, sent, .. }) = world.client.poll_event() else {
            panic!("the write is given back");
        };
        assert_eq!((sent, operations[0].body.is_empty()), (is_sent, is_sent));
    }
}

fn third_channel(first: &World, config: &Config, setup: &Setup) -> World {
    let mut third = World::new(config.clone(), setup.clone());
    third.peer.master = first.peer.master.clone();
    third.peer.hub = first.peer.hub.clone();
    let bound = third
        .client
        .bind(&first.client.session().unwrap(), login("anna", "secret"));
    bound.unwrap();
    third.settle();
    third
}

#[test]
fn below_3_0_there_are_no_sequences_and_no_replays() {
    let setup = Setup {
        dialect: Dialect::Smb210,
        signing: ropeway_smb_proto::crypto::SigningAlgorithm::HmacSha256,
        ..Setup::default()
    };
    let config = config();
    let mut world = World::ready(config.clone(), setup);
    let mut write = world.write(FILE, 0, 100).unwrap();
    write.flags |= HeaderFlags::REPLAY_OPERATION;
    world.submit(Compound::one(write), vec![Kind::Write(0, 100)]);
    drop(world.client.poll_transmit());
    world.client.closed();
    world.take_events();
    assert_eq!(config.sequence.current(), 0);
    let hub = world.peer.hub.lock().unwrap();
    assert!(
        !hub.seen
            .iter()
            .any(|seen| seen.flags.contains(HeaderFlags::REPLAY_OPERATION))
    );
}

/// The sequence wraps, and outdated requests stay outdated.
#[test]
fn sequences_wrap() {
    let config = config();
    let setup = Setup::default();
    for round in 0..70_000_u32 {
        if round % 7_000 != 0 {
            continue;
        }
        let mut world = World::ready(config.clone(), setup.clone());
        let before = config.sequence.current();
        world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
        drop(world.client.poll_transmit());
        world.client.closed();
        assert_eq!(config.sequence.current(), before.wrapping_add(1));
    }
    // An idle connection that is lost does not count.
    let before = config.sequence.current();
    World::ready(config.clone(), setup).client.closed();
    assert_eq!(config.sequence.current(), before);
}

/// The user chooses the host name; a context holds 65,535 bytes.
#[test]
fn a_host_name_too_long_for_a_context_is_left_out() {
    let long = Config {
        host: Text::from("h".repeat(40_000).as_str()),
        ..config()
    };
    let world = World::ready(long, Setup::default());
    assert!(world.client.negotiated().is_some());
}

#[test]
fn a_server_may_refuse_compounds_request_by_request() {
    let setup = Setup {
        compounds: Compounds::Refused(NtStatus::INVALID_PARAMETER),
        ..Setup::default()
    };
    let mut world = World::ready(config(), setup);
    let operations = vec![create("file"), close(FileId::RELATED)];
    let kinds = vec![Kind::Create(true), Kind::Other(Command::Close)];
    world.submit(Compound::related(operations), kinds);
    world.settle();
    assert!(world.open.is_empty());
}
