//! Random numbers, names and bytes that are likely to find faults.

use ropeway_smb_wire::Text;

use crate::chance::Random;

/// Numbers that code is likely to compare with, and their neighbours.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    16,
    63,
    64,
    65,
    0x7F,
    0xFF,
    0x100,
    0xFFF,
    0x1000,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x1_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Returns an edge, a neighbour of one, or any number.
pub(crate) fn edge(random: &mut Random) -> u64 {
    let edge = EDGES[random.below(EDGES.len())];
    match random.below(6) {
        0 => edge.wrapping_sub(1),
        1 => edge.wrapping_add(1),
        2 => random.next() << 16 | random.next() & 0xFFFF,
        3 => 1 << random.below(64),
        _ => edge,
    }
}

/// Returns a number that is mostly below `usual`.
pub(crate) fn number(random: &mut Random, usual: usize) -> u64 {
    if random.percent(8) {
        edge(random)
    } else {
        random.below(usual.max(1)) as u64
    }
}

pub(crate) fn number32(random: &mut Random, usual: usize) -> u32 {
    number(random, usual) as u32
}

pub(crate) fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}

pub(crate) fn array<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| random.next() as u8)
}

/// Returns one of a few values, so that the same one occurs again.
pub(crate) fn few<const N: usize>(random: &mut Random) -> [u8; N] {
    [random.below(4) as u8; N]
}

pub(crate) fn one_of<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

const NAMES: [&str; 38] = [
    "file",
    "file",
    "File",
    "folder",
    "folder",
    "folder\\inner",
    "folder\\new",
    "folder\\sub",
    "folder\\sub\\deep",
    "new1",
    "new2",
    "new3",
    "new4",
    "new5",
    "dir1",
    "dir2",
    "",
    "missing\\file",
    "file:stream",
    "file:stream:$DATA",
    "file::$DATA",
    "folder::$INDEX_ALLOCATION",
    "folder:stream",
    "file:a:b:c",
    "..",
    ".",
    "..\\outside\\canary",
    "folder\\..\\..\\outside\\canary",
    "folder/../../outside/canary",
    "escape",
    "escape\\canary",
    "escape\\new",
    "link",
    "\\file",
    "C:\\file",
    "CON",
    "a*b?<>|\"",
    "@GMT-2024.01.01-00.00.00\\file",
];

/// Returns a path.
pub(crate) fn name(random: &mut Random) -> Text {
    match random.below(40) {
        0 => Text::from("x".repeat(200 + random.below(120)).as_str()),
        1 => Text::from("d\\".repeat(random.below(2000)).as_str()),
        2 => {
            let length = random.below(20);
            Text::from_units((0..length).map(|_| random.next() as u16).collect())
        }
        3 => Text::from(format!("new{}", random.below(200)).as_str()),
        4 => Text::from(format!("folder\\new{}", random.below(200)).as_str()),
        _ => Text::from(one_of(random, &NAMES)),
    }
}
