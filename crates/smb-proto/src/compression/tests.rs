use super::*;
use proptest::prelude::*;

const PROTOCOL_ID: [u8; 4] = *b"\xFCSMB";
const BOTH: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: true,
};
const LZ4_ONLY: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: false,
};
const PATTERN_ONLY: Algorithms = Algorithms {
    lz4: false,
    lznt1: false,
    pattern_v1: true,
};
const LZNT1_ONLY: Algorithms = Algorithms {
    lz4: false,
    lznt1: true,
    pattern_v1: false,
};
/// What a server without LZ4 supports.
const OLDER: Algorithms = Algorithms {
    pattern_v1: true,
    ..LZNT1_ONLY
};

fn header(size: u32) -> Vec<u8> {
    [&PROTOCOL_ID[..], &size.to_le_bytes()].concat()
}

#[test]
fn a_chain_of_each_kind_decompresses() {
    let mut bytes = header(4 + 40 + 3);
    bytes.extend([0, 0, 1, 0, 4, 0, 0, 0, 1, 2, 3, 4]);
    bytes.extend([4, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 40, 0, 0, 0]);
    let lz4 = lz4_flex::block::compress(&[9, 9, 9]);
    bytes.extend([5, 0, 0, 0, 4 + lz4.len() as u8, 0, 0, 0, 3, 0, 0, 0]);
    bytes.extend(&lz4);
    let expected = [&[1, 2, 3, 4][..], &[7; 40], &[9; 3]].concat();
    assert_eq!(decompress(&bytes, BOTH, true, 47), Ok(expected));
    assert!(decompress(&bytes, BOTH, true, 46).is_err(), "the limit holds");
    assert!(
        decompress(&bytes, BOTH, false, 47).is_err(),
        "chaining was not negotiated"
    );
    assert!(
        decompress(&bytes, LZ4_ONLY, true, 47).is_err(),
        "patterns were not negotiated"
    );
    assert!(
        decompress(&bytes, PATTERN_ONLY, true, 47).is_err(),
        "LZ4 was not negotiated"
    );
    bytes.extend([0, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert!(decompress(&bytes, BOTH, true, 99).is_err(), "longer than claimed");
    bytes.truncate(20);
    assert!(
        decompress(&bytes, BOTH, true, 99).is_err(),
        "shorter than claimed"
    );
}

#[test]
fn unchained_sizes_add_up() {
    let lz4 = lz4_flex::block::compress(&[5; 100]);
    let mut bytes = header(100);
    bytes.extend([5, 0, 0, 0, 2, 0, 0, 0, 1, 2]);
    bytes.extend(&lz4);
    let expected = [&[1, 2][..], &[5; 100]].concat();
    assert_eq!(decompress(&bytes, BOTH, true, 102), Ok(expected));
    assert!(
        decompress(&bytes, BOTH, true, 101).is_err(),
        "the limit holds for both parts"
    );
    bytes[4] = 99;
    assert!(decompress(&bytes, BOTH, true, 200).is_err());
    bytes[4] = 101;
    assert!(decompress(&bytes, BOTH, true, 200).is_err());
}

#[test]
fn bombs_are_refused_before_they_are_allocated() {
    let mut bytes = header(u32::MAX);
    bytes.extend([4, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert!(decompress(&bytes, BOTH, true, 8 << 20).is_err());
}

#[test]
fn runs_become_patterns() {
    let message = [&[0xFE; 64][..], &[0; 1 << 20]].concat();
    let compressed = compress(PATTERN_ONLY, true, 64, &message).unwrap();
    assert!(compressed.len() < 100);
    assert_eq!(
        decompress(&compressed, PATTERN_ONLY, true, message.len()),
        Ok(message)
    );
}

/// The example of [MS-XCA] 3.3.
#[test]
fn the_known_example_of_lznt1() {
    const NOTES: &[u8] =
        b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E \
        F# G F# E D E A F# F# G A A G F# E D D E F# E D D";
    let compressed = crate::testing::hex(
        "38B08846232000204720410010A24701A045204400084501507900C045200524138805B4024A44EF0358028C0916014845
         00BE009E000401189000",
    );
    let mut bytes = header(NOTES.len() as u32 + 1);
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(&compressed);
    let expected = [NOTES, &[0]].concat();
    assert_eq!(decompress(&bytes, LZNT1_ONLY, false, 1000), Ok(expected));
    assert!(
        decompress(&bytes, BOTH, false, 1000).is_err(),
        "it was not negotiated"
    );
    bytes[4] -= 1;
    assert!(
        decompress(&bytes, LZNT1_ONLY, false, 1000).is_err(),
        "more than claimed"
    );
    bytes[4] += 2;
    assert!(
        decompress(&bytes, LZNT1_ONLY, false, 1000).is_err(),
        "less than claimed"
    );
}

/// A thousand chunks that each decompress to far more than their size: the output stays within the
/// claimed size.
#[test]
fn a_bomb_of_lznt1_is_refused() {
    let chunk = [0x04, 0xB0, 0b10, 0x41, 0xFF, 0x0F, 0x00];
    let mut bytes = header(5000);
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(chunk.repeat(1000));
    assert!(decompress(&bytes, LZNT1_ONLY, false, 1 << 20).is_err());
}

/// Generates realistic messages from runs, repeating text and noise.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 0..200_usize).prop_map(|(byte, length)| vec![byte; length]),
        proptest::collection::vec(any::<u8>(), 0..100),
        (0..30_usize).prop_map(|times| b"ropeway ".repeat(times)),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(message in message(), plain_len in 0..120_usize, chained: bool) {
        for algorithms in [BOTH, LZ4_ONLY, PATTERN_ONLY, LZNT1_ONLY, OLDER] {
            if let Some(compressed) = compress(algorithms, chained, plain_len, &message) {
                prop_assert!(compressed.len() < message.len());
                prop_assert_eq!(decompress(&compressed, algorithms, chained, message.len()), Ok(message.clone()));
            }
        }
    }

    #[test]
    fn hostile_bytes_never_panic(
        message in message(),
        chained: bool,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut: proptest::sample::Index,
        noise in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        const LIMIT: usize = 4096;
        let any = Algorithms { lznt1: true, ..BOTH };
        for mut bytes in [
            compress(BOTH, chained, 64, &message).unwrap_or_default(),
            compress(OLDER, chained, 64, &message).unwrap_or_default(),
            compress(LZNT1_ONLY, chained, 0, &message).unwrap_or_default(),
            [&PROTOCOL_ID[..], &noise].concat(),
        ] {
            for (at, value) in &changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *value;
                }
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len() + 1)]] {
                if let Ok(message) = decompress(bytes, any, chained, LIMIT) {
                    prop_assert!(message.len() <= LIMIT);
                }
            }
        }
    }
}
