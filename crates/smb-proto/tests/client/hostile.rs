//! Servers and third parties that violate the protocol: each violation is an error, never a panic
//! or wrong data.

use crate::peer::{self, Setup};
use crate::sim::ways;
use crate::world::{Kind, World, anything, config, echo, jobs, login};
use crate::{Random, content};
use ropeway_smb_proto::client::{Compound, Config, EndReason, Event, PeerMisbehaved, Signing};
use ropeway_smb_wire::header::{Command, Header, HeaderFlags};
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::{FileId, MessageId, NtStatus, SessionId};

/// Any byte of a protected session is changed: the connection ends, and no wrong data is accepted
/// before.
#[test]
fn changed_bytes() {
    for seed in 0..30 {
        for (index, (config, setup)) in ways().into_iter().enumerate() {
            if config.signing == Signing::Offered {
                continue;
            }
            let mut random = Random::new(seed * 100 + index as u64);
            let config = Config {
                jobs: jobs(1).filter(|_| seed % 2 == 1),
                ..config
            };
            let mut world = World::ready(config, Setup { seed, ..setup });
            for _ in 0..5 {
                anything(&mut world);
            }
            for _ in 0..30 {
                if !world.to_client.is_empty() {
                    break;
                }
                world.work().unwrap();
                while let Some(transmit) = world.client.poll_transmit() {
                    transmit
                        .parts
                        .iter()
                        .for_each(|part| world.peer.feed(part.as_slice()));
                }
                world.peer.work();
                world.to_client.append(&mut world.peer.output);
            }
            if world.to_client.is_empty() {
                continue;
            }
            let at = random.below(world.to_client.len());
            world.to_client[at] ^= 1 << random.below(8);
            let _ = world.deliver(world.to_client.len());
            world.take_events();
            world.client.closed();
            world.take_events();
            assert!(world.open.is_empty());
            assert_eq!(world.pool.available(), world.pool.slots());
        }
    }
}

/// Random bytes, alone and in place of a reply.
#[test]
fn any_bytes() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut world = if seed % 4 == 0 {
            World::new(config(), Setup::default())
        } else {
            let offered = Config {
                signing: Signing::Offered,
                ..config()
            };
            World::ready(offered, Setup::default())
        };
        for _ in 0..4 {
            anything(&mut world);
        }
        while let Some(transmit) = world.client.poll_transmit() {
            transmit
                .parts
                .iter()
                .for_each(|part| world.peer.feed(part.as_slice()));
        }
        let mut bytes = std::mem::take(&mut world.peer.output);
        for _ in 0..1 + random.below(6) {
            if bytes.is_empty() {
                bytes = vec![0; 300];
            }
            let at = random.below(bytes.len().min(400));
            bytes[at] = random.next() as u8;
        }
        if random.percent(20) {
            bytes.truncate(random.below(bytes.len()));
        }
        world.to_client = bytes;
        while !world.to_client.is_empty() {
            let count = (1 + random.below(500)).min(world.to_client.len());
            if world.deliver(count).is_err() {
                break;
            }
        }
        // Unsigned data may be wrong; only the accounts are checked.
        while let Some(event) = world.client.poll_event() {
            if let Event::Replied { ticket, .. } | Event::Dropped { ticket, .. } = event {
                assert!(world.open.remove(&ticket).is_some());
            }
        }
        world.client.closed();
        while let Some(event) = world.client.poll_event() {
            if let Event::Replied { ticket, .. } | Event::Dropped { ticket, .. } = event {
                assert!(world.open.remove(&ticket).is_some());
            }
        }
        assert!(world.open.is_empty());
        assert_eq!(world.pool.available(), world.pool.slots());
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = (message.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(message);
    frame
}

/// Returns an unprotected session with one READ of 100 bytes in flight, and the READ's header.
fn reading() -> (World, Header) {
    let offered = Config {
        signing: Signing::Offered,
        ..config()
    };
    let mut world = World::ready(offered, Setup::default());
    let read = world.read(FileId::default(), 0, 100).unwrap();
    world.submit(Compound::one(read), vec![Kind::Read(0, 100)]);
    let transmit = world.client.poll_transmit().unwrap();
    let bytes = transmit.parts[0].as_slice();
    let header = Header::decode(&mut ropeway_smb_wire::Reader::new(&bytes[4..], "test")).unwrap();
    (world, header.reply(NtStatus::SUCCESS))
}

fn outcome(world: &mut World, message: &[u8]) -> Option<PeerMisbehaved> {
    world.to_client = framed(message);
    let outcome = world.deliver(world.to_client.len()).err();
    world.take_events();
    if let Some(misbehaved) = outcome {
        assert_eq!(world.client.ended(), Some(EndReason::Misbehaved(misbehaved)));
        assert!(world.open.is_empty());
        assert_eq!(world.pool.available(), world.pool.slots());
    }
    outcome
}

#[test]
fn more_data_than_asked_for() {
    for (length, padding) in [(101, 0), (200_000, 0), (101, 8)] {
        let (mut world, header) = reading();
        let message = peer::encode(&header, |w| {
            let mut body = peer::body(|w| ReadResponse::default().encode(w, content(0, length)));
            body[2] += padding;
            body.splice(16..16, vec![0; usize::from(padding)]);
            w.bytes(&body);
        });
        assert_eq!(outcome(&mut world, &message), Some(PeerMisbehaved::ReadTooLong));
    }
}

#[test]
fn lengths_that_lie() {
    let (mut world, header) = reading();
    let message = peer::encode(&header, |w| {
        ReadResponse::default().encode_head(w, 100);
        w.zeros(20);
    });
    assert!(matches!(
        outcome(&mut world, &message),
        Some(PeerMisbehaved::Malformed(_))
    ));
    let (mut world, _) = reading();
    world.to_client = vec![0, 0xFF, 0xFF, 0xFF, 0xFE];
    let outcome = world.deliver(5);
    assert_eq!(outcome, Err(PeerMisbehaved::FrameTooLong(0xFF_FFFF)));
}

#[test]
fn unsolicited_replies() {
    let (mut world, mut header) = reading();
    header.message_id = MessageId(header.message_id.0 + 1);
    let message = peer::encode(&header, |w| ReadResponse::default().encode(w, b"x"));
    assert_eq!(
        outcome(&mut world, &message),
        Some(PeerMisbehaved::Unasked(header.message_id))
    );

    let (mut world, header) = reading();
    let message = peer::encode(&header, |w| ReadResponse::default().encode(w, content(0, 100)));
    assert_eq!(outcome(&mut world, &message), None);
    assert_eq!(world.replied, 2);
    // The same reply again.
    assert_eq!(
        outcome(&mut world, &message),
        Some(PeerMisbehaved::Unasked(header.message_id))
    );

    let (mut world, mut header) = reading();
    header.command = Command::Write;
    let message = peer::encode(&header, |w| w.zeros(20));
    assert_eq!(
        outcome(&mut world, &message),
        Some(PeerMisbehaved::WrongCommand(Command::Write))
    );

    let (mut world, mut header) = reading();
    header.flags = HeaderFlags::default();
    let message = peer::encode(&header, |w| w.zeros(20));
    assert_eq!(outcome(&mut world, &message), Some(PeerMisbehaved::NotAReply));
}

#[test]
fn unsigned_and_unsealed_answers() {
    for (sealing, expected) in [
        (false, PeerMisbehaved::Unsigned),
        (true, PeerMisbehaved::Unencrypted),
    ] {
        for status in [NtStatus::SUCCESS, NtStatus::ACCESS_DENIED] {
            let (config, setup) = ways()
                .into_iter()
                .find(|(config, setup)| {
                    config.signing == Signing::Required
                        && (config.encryption == ropeway_smb_proto::client::Encryption::Desired) == sealing
                        && setup.signing_required
                })
                .unwrap();
            let mut world = World::ready(config, setup);
            world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
            let id = MessageId(world.next_id());
            drop(world.client.poll_transmit());
            let mut header = Header::request(Command::Echo, id).reply(status);
            header.session_id = SessionId(0x77);
            let message = peer::encode(&header, |w| w.bytes(&[4, 0, 0, 0]));
            assert_eq!(outcome(&mut world, &message), Some(expected));
        }
    }
}

/// The server no longer knows the session, as after a restart behind a load balancer. This is no
/// attack, but it ends the connection.
#[test]
fn a_deleted_session() {
    let mut world = World::ready(config(), Setup::default());
    world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
    let id = MessageId(world.next_id());
    drop(world.client.poll_transmit());
    let header = Header::request(Command::Echo, id).reply(NtStatus::USER_SESSION_DELETED);
    let message = peer::encode(&header, |w| w.bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(outcome(&mut world, &message), None);
    assert_eq!(world.client.ended(), Some(EndReason::SessionDeleted));
    assert!(world.open.is_empty());
}

#[test]
fn no_credits_forever() {
    let mut world = World::new(config(), Setup::default());
    world.client.log_in(login("anna", "secret")).unwrap();
    let transmit = world.client.poll_transmit().unwrap();
    transmit
        .parts
        .iter()
        .for_each(|part| world.peer.feed(part.as_slice()));
    drop(transmit);
    world.to_client = std::mem::take(&mut world.peer.output);
    world.to_client[4 + 14..4 + 16].fill(0);
    world.deliver(world.to_client.len()).unwrap();
    assert!(world.client.poll_transmit().is_none());
    assert_eq!(
        world.client.ended(),
        Some(EndReason::Misbehaved(PeerMisbehaved::NoCredits))
    );
}

#[test]
fn a_server_that_owes_a_reply_is_probed_sooner() {
    use std::time::Duration;
    let config = ropeway_smb_proto::client::Config {
        echo_after_owed: Duration::from_secs(1),
        ..config()
    };
    let mut world = World::ready(config.clone(), Setup::default());
    assert!(!world.client.owes_reply());
    world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
    drop(world.client.poll_transmit());
    assert!(world.client.owes_reply());
    let start = world.client.deadline().unwrap();
    world.client.handle_deadline(start);
    assert_eq!(world.client.deadline().unwrap(), start + config.echo_after_owed);
    world.client.handle_deadline(start + config.echo_after_owed);
    assert!(world.client.poll_transmit().is_some(), "an ECHO");
    assert_eq!(
        world.client.deadline().unwrap(),
        start + config.silence_max,
        "one at a time"
    );
}

#[test]
fn silence_ends_the_connection() {
    use std::time::Duration;
    let mut world = World::ready(config(), Setup::default());
    assert_eq!(world.client.deadline(), None, "nothing is owed");
    world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
    drop(world.client.poll_transmit());
    let start = world.client.deadline().unwrap() + Duration::from_secs(5);
    world.client.handle_deadline(start);
    let asks = world.client.deadline().unwrap();
    assert_eq!(asks, start + config().echo_after);
    world.client.handle_deadline(asks);
    assert!(world.client.poll_transmit().is_some(), "an ECHO");
    let end = world.client.deadline().unwrap();
    assert_eq!(end, start + config().silence_max);
    world.client.handle_deadline(end - Duration::from_millis(1));
    assert_eq!(world.client.ended(), None);
    world.client.handle_deadline(end);
    assert_eq!(world.client.ended(), Some(EndReason::Silent));
}
