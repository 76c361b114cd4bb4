//! Answers that are compressed: signed or sealed, alone or in compounds.

use std::sync::Arc;

use ropeway_block::{Block, Pool};
use ropeway_smb_proto::client::{self, Chain, Encryption, Operation};
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::{Config, Sessions};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::{FileId, NtStatus, TreeId};

use crate::world::{World, client_config, echo, server_config, tree};

/// Every second page is noise, of the offset.
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

fn world(compression: bool, encryption: Encryption, config: Config) -> (World, Sessions, TreeId) {
    let client = client::Config {
        compression,
        encryption,
        ..client_config()
    };
    let mut sessions = Sessions::default();
    let mut world = World::ready(client, &Arc::new(config), &mut sessions);
    assert!(world.is_logged_in());
    let ticket = world.client.submit(Chain::one(tree())).unwrap();
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

/// What is read, and in how many bytes it came.
fn fetch(world: &mut World, sessions: &mut Sessions, chain: Chain) -> (Vec<Block>, usize) {
    let before = world.received;
    let ticket = world.client.submit(chain).unwrap();
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
fn what_is_read_comes_compressed_where_both_want_it() {
    const LENGTH: usize = 1 << 18;
    let without = Config {
        compression: Algorithms::default(),
        ..server_config()
    };
    for encryption in [Encryption::Off, Encryption::Required] {
        for (wants, config, is_shorter) in [
            (true, server_config(), true),
            (false, server_config(), false),
            (true, without.clone(), false),
        ] {
            let (mut world, mut sessions, tree) = world(wants, encryption, config);
            for offset in [0, 77] {
                let chain = Chain::one(read(tree, offset, LENGTH as u32));
                let (blocks, received) = fetch(&mut world, &mut sessions, chain);
                assert_eq!(blocks[0][..], expected(half, offset, LENGTH));
                let bound = LENGTH * 5 / 8;
                assert_eq!(received < bound, is_shorter, "{received} {encryption:?} {wants}");
            }
        }
    }
}

/// As whole small files come: the READ in the middle, other answers around it.
#[test]
fn compounds_are_compressed_too() {
    for encryption in [Encryption::Off, Encryption::Required] {
        let (mut world, mut sessions, tree) = world(true, encryption, server_config());
        let operations = vec![echo(), read(tree, 3, 50_000), read(tree, 9, 70_001), echo()];
        let chain = Chain {
            operations,
            ..Chain::one(echo())
        };
        let (blocks, received) = fetch(&mut world, &mut sessions, chain);
        assert_eq!(blocks[0][..], expected(half, 3, 50_000));
        assert_eq!(blocks[1][..], expected(half, 9, 70_001));
        assert!(received < 75_000, "{received}");
    }
}

#[test]
fn noise_and_what_is_short_come_as_they_are() {
    let (mut world, mut sessions, tree) = world(true, Encryption::Off, server_config());
    world.served.content = noise;
    for (offset, length) in [(0, 1 << 18), (1, 100), (5, 5000)] {
        let chain = Chain::one(read(tree, offset, length));
        let (blocks, received) = fetch(&mut world, &mut sessions, chain);
        assert_eq!(blocks[0][..], expected(noise, offset, length as usize));
        assert_eq!(received, length as usize + 4 + 80);
    }
}

/// A byte changed on the way: the signature is of what was compressed, so nothing of it is believed.
#[test]
fn what_was_changed_on_the_way_ends_the_connection() {
    for at in [9, 40, 100, 1000, 30_000] {
        let (mut world, mut sessions, tree) = world(true, Encryption::Off, server_config());
        world.client.submit(Chain::one(read(tree, 0, 1 << 16))).unwrap();
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
