use super::*;
use proptest::prelude::*;

const PROTOCOL_ID: [u8; 4] = *b"\xFCSMB";
const BOTH: Algorithms = Algorithms {
    lz4: true,
    pattern_v1: true,
};
const LZ4_ONLY: Algorithms = Algorithms {
    lz4: true,
    pattern_v1: false,
};
const PATTERN_ONLY: Algorithms = Algorithms {
    lz4: false,
    pattern_v1: true,
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

/// Messages as they are: runs, text that repeats, noise.
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
        for algorithms in [BOTH, LZ4_ONLY, PATTERN_ONLY] {
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
        for mut bytes in [compress(BOTH, chained, 64, &message).unwrap_or_default(), [&PROTOCOL_ID[..], &noise].concat()] {
            for (at, value) in &changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *value;
                }
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len() + 1)]] {
                if let Ok(message) = decompress(bytes, BOTH, chained, LIMIT) {
                    prop_assert!(message.len() <= LIMIT);
                }
            }
        }
    }
}
