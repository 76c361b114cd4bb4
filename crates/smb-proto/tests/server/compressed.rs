//! Compressed replies: signed or sealed, alone or in compounds.

use std::sync::Arc;

use ropeway_block::{Block, Pool};
use ropeway_smb_proto::client::{self, Compound, CompressionOffer, Encryption, Operation};
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::{Config, Sessions};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::{FileId, NtStatus, TreeId};

use crate::world::{World, client_config, echo, server_config, tree};

/// Fills every second page with noise that depends on the offset.
fn half(offset: u64, buffer: &mut [u8]) {
    let mut state = offset | 1;
    for (page, bytes) in buffer.chunks_mut(4096).enumerate() {
        for byte in bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = if page % 2 == 0 { b'a' } else { state as u8 };
        }
    }
}

fn noise(offset: u64, buffer: &mut [u8]) {
    let mut state = offset | 1;
    for byte in buffer {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
}

fn world(compression: CompressionOffer, encryption: Encryption, config: Config) -> (World, Sessions, TreeId) {
    let client = client::Config {
        compression,
        encryption,
        ..client_config()
    };
    let mut sessions = Sessions::default();
    let mut world = World::ready(client, &Arc::new(config), &mut sessions);
    assert!(world.is_logged_in());
    let ticket = world.client.submit(Compound::one(tree())).unwrap();
    assert!(world.settle(&mut sessions));
    let tree = world.replies.remove(&ticket).unwrap()[0]
        .header
        .tree_id()
        .unwrap();
    world.served.content = half;
    (world, sessions, tree)
}

fn read(tree: TreeId, offset: u64, length: u32) -> Operation {
    let request = ReadRequest {
        file_id: FileId::default(),
        offset,
        length,
        minimum_count: 0,
        flags: ReadFlags::default(),
        channel: Channel::NONE,
    };
    let mut operation = Operation::encoded(Command::Read, tree, |w| request.encode(w));
    operation.receive = Some(Pool::new(length as usize, 1).try_get().unwrap());
    operation.response_max = length;
    operation
}

/// Returns the data read, and the number of bytes received for it.
fn fetch(world: &mut World, sessions: &mut Sessions, compound: Compound) -> (Vec<Block>, usize) {
    let before = world.received;
    let ticket = world.client.submit(compound).unwrap();
    assert!(world.settle(sessions), "{:?}", world.events);
    let replies = world.replies.remove(&ticket).unwrap();
    let of_read = |reply: &client::Reply| reply.header.command == Command::Read;
    let good = |reply: &client::Reply| reply.status() == NtStatus::SUCCESS;
    assert!(replies.iter().all(good));
    let reads = replies.into_iter().filter(of_read);
    let blocks = reads.map(|reply| reply.payload.unwrap().freeze()).collect();
    (blocks, world.received - before)
}

fn expected(content: fn(u64, &mut [u8]), offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    content(offset, &mut bytes);
    bytes
}

#[test]
fn reads_are_compressed_if_both_ends_support_it() {
    const LENGTH: usize = 1 << 18;
    let without = Config {
        compression: Algorithms::default(),
        ..server_config()
    };
    let of_others = Config {
        compression: Algorithms {
            zstd: false,
            ..server_config().compression
        },
        ..server_config()
    };
    use CompressionOffer::{Off, On, OwnEnds};
    for encryption in [Encryption::Off, Encryption::Required] {
        for (wants, config, is_shorter) in [
            (On, server_config(), true),
            (OwnEnds, server_config(), true),
            (Off, server_config(), false),
            (On, without.clone(), false),
            (OwnEnds, without.clone(), false),
            (On, of_others.clone(), true),
            (OwnEnds, of_others.clone(), false),
        ] {
            let (mut world, mut sessions, tree) = world(wants, encryption, config);
            for offset in [0, 77] {
                let compound = Compound::one(read(tree, offset, LENGTH as u32));
                let (blocks, received) = fetch(&mut world, &mut sessions, compound);
                assert_eq!(blocks[0][..], expected(half, offset, LENGTH));
                let bound = LENGTH * 5 / 8;
                assert_eq!(world.client.saved().bytes > 0, is_shorter, "{wants:?}");
                assert_eq!(
                    received < bound,
                    is_shorter,
                    "{received} {encryption:?} {wants:?}"
                );
            }
        }
    }
}

/// Compounds that read whole small files: the READ in the middle, other replies around it.
#[test]
fn compounds_are_compressed_too() {
    for encryption in [Encryption::Off, Encryption::Required] {
        let (mut world, mut sessions, tree) = world(CompressionOffer::On, encryption, server_config());
        let operations = vec![echo(), read(tree, 3, 50_000), read(tree, 9, 70_001), echo()];
        let compound = Compound {
            operations,
            ..Compound::one(echo())
        };
        let (blocks, received) = fetch(&mut world, &mut sessions, compound);
        assert_eq!(blocks[0][..], expected(half, 3, 50_000));
        assert_eq!(blocks[1][..], expected(half, 9, 70_001));
        assert!(received < 75_000, "{received}");
    }
}

#[test]
fn noise_and_short_reads_are_not_compressed() {
    let (mut world, mut sessions, tree) = world(CompressionOffer::On, Encryption::Off, server_config());
    world.served.content = noise;
    for (offset, length) in [(0, 1 << 18), (1, 100), (5, 5000)] {
        let compound = Compound::one(read(tree, offset, length));
        let (blocks, received) = fetch(&mut world, &mut sessions, compound);
        assert_eq!(blocks[0][..], expected(noise, offset, length as usize));
        assert_eq!(received, length as usize + 4 + 80);
    }
}

/// A byte is changed in transit: the signature covers the uncompressed message, so nothing of it is
/// accepted.
#[test]
fn a_changed_compressed_reply_ends_the_connection() {
    for at in [9, 40, 100, 1000, 30_000] {
        let (mut world, mut sessions, tree) = world(CompressionOffer::On, Encryption::Off, server_config());
        world
            .client
            .submit(Compound::one(read(tree, 0, 1 << 16)))
            .unwrap();
        world.tampers = match at {
            9 => |to_server, _, frame| frame[9] ^= u8::from(!to_server) * 0x55,
            40 => |to_server, _, frame| frame[40] ^= u8::from(!to_server) * 0x55,
            100 => |to_server, _, frame| frame[100] ^= u8::from(!to_server) * 0x55,
            1000 => |to_server, _, frame| {
                let at = 1000.min(frame.len() - 1);
                frame[at] ^= u8::from(!to_server) * 0x55;
            },
            _ => |to_server, _, frame| {
                let at = frame.len() - 1;
                frame[at] ^= u8::from(!to_server) * 0x55;
            },
        };
        assert!(!world.settle(&mut sessions), "byte {at}");
        assert!(world.replies.is_empty(), "byte {at}");
    }
}
