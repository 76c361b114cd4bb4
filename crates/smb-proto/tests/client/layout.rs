//! The layout of bytes: what is sent in one piece, received in place, or copied.

use crate::peer::{Grant, Setup};
use crate::world::{BLOCK, Kind, World, close, config, create, echo};
use ropeway_block::Pool;
use ropeway_smb_proto::client::{
    Compound, Config, DropReason, Encryption, Event, Misuse, Operation, Part, Signing,
};
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{FileId, TreeId};

fn sealed() -> (Config, Setup) {
    let config = Config {
        encryption: Encryption::Desired,
        ..config()
    };
    let setup = Setup {
        cipher: Some(Cipher::Aes128Gcm),
        ..Setup::default()
    };
    (config, setup)
}

fn both() -> [(Config, Setup); 2] {
    [(config(), Setup::default()), sealed()]
}

/// Submits CREATE, a READ or WRITE of that file, and CLOSE as one compound.
fn submit_file(world: &mut World, name: &str, operation: Operation, kind: Kind) {
    let operations = vec![create(name), operation, close(FileId::RELATED)];
    let kinds = vec![Kind::Create(true), kind, Kind::Other(Command::Close)];
    world.submit(Compound::related(operations), kinds);
}

#[test]
fn a_write_is_one_piece_in_its_block() {
    for (config, setup) in both() {
        let mut world = World::ready(config, setup);
        let write = world.write(FileId::default(), 5, BLOCK).unwrap();
        world.submit(Compound::one(write), vec![Kind::Write(5, BLOCK)]);
        let transmit = world.client.poll_transmit().unwrap();
        let [Part::Framed(block, head)] = &transmit.parts[..] else {
            panic!("{} parts", transmit.parts.len())
        };
        let transform = if world.client.is_encrypted() { 52 } else { 0 };
        assert_eq!((block.len(), *head), (BLOCK, 4 + transform + 64 + 48));
        world.peer.feed(transmit.parts[0].as_slice());
        drop(transmit);
        world.settle();
        assert_eq!(
            (world.peer.written, world.client.bytes_copied()),
            (BLOCK as u64, 0)
        );
        assert_eq!(world.pool.available(), 64);
    }
}

#[test]
fn a_small_file_is_one_piece_and_one_frame() {
    for (config, setup) in both() {
        let mut world = World::ready(config, setup);
        let write = world.write(FileId::RELATED, 5, 1001).unwrap();
        submit_file(&mut world, "file", write, Kind::Write(5, 1001));
        let transmit = world.client.poll_transmit().unwrap();
        assert!(matches!(transmit.parts[..], [Part::Framed(..)]));
        world.peer.feed(transmit.parts[0].as_slice());
        drop(transmit);
        world.settle();
        assert_eq!((world.peer.written, world.client.bytes_copied()), (1001, 0));
    }
}

#[test]
fn a_shared_block_is_sent_beside_its_head_or_copied_to_be_sealed() {
    for (config, setup) in both() {
        let mut world = World::ready(config, setup);
        let write = world.write(FileId::default(), 5, 5000).unwrap();
        let held = write.payload.clone();
        world.submit(Compound::one(write), vec![Kind::Write(5, 5000)]);
        let transmit = world.client.poll_transmit().unwrap();
        let copied = if world.client.is_encrypted() { 5000 } else { 0 };
        assert_eq!(transmit.parts.len(), if copied > 0 { 1 } else { 2 });
        transmit
            .parts
            .iter()
            .for_each(|part| world.peer.feed(part.as_slice()));
        drop((transmit, held));
        world.settle();
        assert_eq!((world.peer.written, world.client.bytes_copied()), (5000, copied));
    }
}

/// The first bytes arrive with the header; the rest is received into the block.
#[test]
fn reads_are_received_into_their_blocks() {
    for (config, setup) in both() {
        let mut world = World::ready(config, setup);
        for offset in 0..8_u64 {
            let read = world.read(FileId::default(), offset, 200_000).unwrap();
            world.submit(Compound::one(read), vec![Kind::Read(offset, 200_000)]);
        }
        world.settle();
        assert_eq!(world.replied, 9);
        // Some replies have their data where it cannot be received directly; see the played server.
        let copied = world.client.bytes_copied();
        assert!(copied < 2 * 200_000, "{copied}");
    }
}

/// The same for small files, each read in one compound.
#[test]
fn reads_in_compounds_are_received_into_their_blocks() {
    for (config, setup) in both() {
        let mut world = World::ready(config, setup);
        for offset in 0..8_u64 {
            // All lengths modulo the padding.
            let length = 100_000 + offset as usize;
            let read = world.read(FileId::RELATED, offset, length).unwrap();
            submit_file(&mut world, "file", read, Kind::Read(offset, length));
        }
        world.settle();
        assert_eq!(world.replied, 9);
        let copied = world.client.bytes_copied();
        assert!(copied < 2 * 100_000, "{copied}");
        assert_eq!(world.pool.available(), 64);
    }
}

/// Blocks whose headroom has no room for the messages before the data: these are copied.
#[test]
fn small_files_in_blocks_with_little_headroom() {
    for (config, setup) in both() {
        for headroom in [0, 512] {
            let mut world = World::ready(config.clone(), setup.clone());
            world.pool = Pool::packed(1024, headroom, 64);
            let long = format!("{}file", "folder\\".repeat(40));
            for offset in 0..16_u64 {
                let length = 1 + 30 * offset as usize;
                let name = if offset % 2 == 0 { "file" } else { &*long };
                let write = world.write(FileId::RELATED, offset, length).unwrap();
                submit_file(&mut world, name, write, Kind::Write(offset, length));
                let read = world.read(FileId::RELATED, offset, length).unwrap();
                submit_file(&mut world, name, read, Kind::Read(offset, length));
                let alone = world.read(FileId::default(), offset, length).unwrap();
                world.submit(Compound::one(alone), vec![Kind::Read(offset, length)]);
            }
            world.settle();
            // With the TREE_CONNECT.
            assert_eq!((world.replied, world.dropped), (1 + 3 * 16, 0));
            assert_eq!(world.pool.available(), 64);
        }
    }
}

/// Sealed replies in another order are received into each other's blocks, which are then swapped.
#[test]
fn sealed_reads_in_any_order() {
    let (config, mut setup) = sealed();
    setup.late = 100;
    for seed in 0..20 {
        setup.seed = seed;
        let mut world = World::ready(config.clone(), setup.clone());
        for offset in 0..20_u64 {
            let length = 20_000 + world.random.below(30_000);
            let read = world.read(FileId::default(), offset, length).unwrap();
            world.submit(Compound::one(read), vec![Kind::Read(offset, length)]);
        }
        world.settle();
        assert_eq!(world.replied, 21);
    }
}

/// A payload that was sealed in place and lost is restored; the world checks it.
#[test]
fn a_lost_sealed_write_can_be_sent_again() {
    let (config, setup) = sealed();
    let mut world = World::ready(config, setup);
    let write = world.write(FileId::default(), 5, 50_000).unwrap();
    world.submit(Compound::one(write), vec![Kind::Write(5, 50_000)]);
    let small = world.write(FileId::RELATED, 6, 999).unwrap();
    submit_file(&mut world, "file", small, Kind::Write(6, 999));
    drop(world.client.poll_transmit());
    world.client.closed();
    world.take_events();
    assert_eq!(world.dropped, 2);
}

#[test]
fn many_small_requests_are_one_part() {
    let mut world = World::ready(config(), Setup::default());
    for _ in 0..50 {
        world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
    }
    let transmit = world.client.poll_transmit().unwrap();
    assert_eq!(transmit.parts.len(), 1);
    assert_eq!(transmit.len(), 50 * (4 + 64 + 4));
}

#[test]
fn misuse_is_refused() {
    let mut world = World::ready(config(), Setup::default());
    let refused = |world: &mut World, compound: Compound| world.client.submit(compound).unwrap_err().0;
    assert_eq!(refused(&mut world, Compound::default()), Misuse::CompoundLength);
    let own = Operation::new(Command::Negotiate, TreeId(0), vec![0; 36]);
    assert_eq!(
        refused(&mut world, Compound::one(own)),
        Misuse::Command(Command::Negotiate)
    );
    let read = world.read(FileId::default(), 0, BLOCK + 1).unwrap();
    assert_eq!(refused(&mut world, Compound::one(read)), Misuse::Block);
    let mut sealed = Compound::one(echo());
    sealed.encrypt = true;
    assert_eq!(refused(&mut world, sealed), Misuse::NoEncryption);
    world.client.closed();
    assert_eq!(refused(&mut world, Compound::one(echo())), Misuse::Ended);
}

#[test]
fn a_compound_that_costs_too_much_is_dropped_and_others_pass() {
    let offered = Config {
        signing: Signing::Offered,
        ..config()
    };
    let setup = Setup {
        grant: Grant::One,
        dialect: ropeway_smb_wire::negotiate::Dialect::Smb210,
        signing: SigningAlgorithm::HmacSha256,
        ..Setup::default()
    };
    let mut world = World::ready(offered, setup);
    let read = world.read(FileId::default(), 0, 200_000).unwrap();
    let dear = world.client.submit(Compound::one(read)).unwrap();
    world.submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)]);
    world.open.insert(dear, vec![Kind::Read(0, 200_000)]);
    world.settle();
    assert_eq!((world.dropped, world.replied), (1, 2));
}

#[test]
fn cancelling_before_and_after_sending() {
    let mut world = World::ready(config(), Setup::default());
    let ticket = world
        .submit(Compound::one(echo()), vec![Kind::Other(Command::Echo)])
        .unwrap();
    world.client.cancel(ticket);
    match world.client.poll_event() {
        Some(Event::Dropped { sent, reason, .. }) => {
            assert!(!sent);
            assert_eq!(reason, DropReason::Cancelled);
            world.open.remove(&ticket);
        }
        other => panic!("{other:?}"),
    }
    let ticket = world
        .submit(Compound::one(crate::world::watch()), vec![Kind::Watch])
        .unwrap();
    world.settle();
    let year = std::time::Duration::from_secs(365 * 86_400);
    world.client.handle_deadline(year);
    assert_eq!(
        world.client.ended(),
        None,
        "the server said that it takes its time"
    );
    world.client.cancel(ticket);
    world.settle();
    assert!(world.open.is_empty());
    assert_eq!(world.peer.cancels, 1);
}
