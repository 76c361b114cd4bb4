use super::*;
use proptest::prelude::*;

const PROTOCOL_ID: [u8; 4] = *b"\xFCSMB";
const BOTH: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: true,
    zstd: false,
};
const LZ4_ONLY: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: false,
    zstd: false,
};
const PATTERN_ONLY: Algorithms = Algorithms {
    lz4: false,
    lznt1: false,
    pattern_v1: true,
    zstd: false,
};
const LZNT1_ONLY: Algorithms = Algorithms {
    lz4: false,
    lznt1: true,
    pattern_v1: false,
    zstd: false,
};
/// What own ends support.
const OWN: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: true,
    zstd: true,
};
const ZSTD_ONLY: Algorithms = Algorithms {
    lz4: false,
    lznt1: false,
    pattern_v1: false,
    zstd: true,
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
fn a_chained_message_of_all_kinds_decompresses() {
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

/// Returns an unchained message with one part of Zstandard, which claims `size`.
fn zstd_message(size: u32, frame: &[u8]) -> Vec<u8> {
    let mut bytes = header(size);
    bytes.extend(CompressionAlgorithm::OWN_ZSTD.0.to_le_bytes());
    bytes.extend([0, 0, 0, 0, 0, 0]);
    bytes.extend(frame);
    bytes
}

/// Frames that say or hold another size than the message claims, several frames, an unknown
/// dictionary, and frames that end too soon.
#[test]
fn frames_of_zstandard_have_the_claimed_size() {
    let text = b"again and again and again, ".repeat(1000);
    let frame = zstd::compress(&text).unwrap();
    let size = text.len() as u32;
    let limit = 1 << 20;
    let opened = |size, frame: &[u8]| decompress(&zstd_message(size, frame), OWN, false, limit);
    assert_eq!(opened(size, &frame), Ok(text.clone()));
    assert!(opened(size - 1, &frame).is_err() && opened(size + 1, &frame).is_err());
    assert!(opened(2 * size, &frame).is_err());
    assert!(opened(size, &frame[..frame.len() - 1]).is_err(), "a cut frame");
    assert!(opened(size, &[]).is_err() && opened(size, &frame[..4]).is_err());
    let message = zstd_message(size, &frame);
    assert!(
        decompress(&message, BOTH, false, limit).is_err(),
        "not negotiated"
    );
    assert!(
        decompress(&message, OWN, false, text.len() - 1).is_err(),
        "the limit holds"
    );
    // A frame with the dictionary 7, and one that claims a window of 3.75 TiB.
    for strange in [
        [0x28, 0xB5, 0x2F, 0xFD, 0x01, 0x50, 7, 1],
        [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xFF, 1, 0],
    ] {
        assert!(opened(100, &strange).is_err());
    }
}

/// 16 MiB of zeros in some hundred bytes, in a message that claims less: the output stays within the
/// claim, and a claim beyond the limit is refused before anything is allocated.
#[test]
fn a_bomb_of_zstandard_is_refused() {
    let bomb = zstd::compress(&vec![0; 16 << 20]).unwrap();
    assert!(bomb.len() < 2000, "{}", bomb.len());
    for claimed in [0, 100, 1 << 20] {
        assert!(decompress(&zstd_message(claimed, &bomb), OWN, false, 8 << 20).is_err());
    }
    for claimed in [16 << 20, u32::MAX] {
        assert!(decompress(&zstd_message(claimed, &bomb), OWN, false, 8 << 20).is_err());
    }
}

#[test]
fn the_mark_of_own_ends_is_no_algorithm_of_a_message() {
    let mut bytes = zstd_message(3, b"abc");
    bytes[8..10].copy_from_slice(&CompressionAlgorithm::OWN_BY_LINE.0.to_le_bytes());
    assert!(decompress(&bytes, OWN, false, 100).is_err());
    assert!(decompress(&bytes, OWN, true, 100).is_err());
    let mut bytes = header(3);
    bytes.extend(CompressionAlgorithm::OWN_BY_LINE.0.to_le_bytes());
    bytes.extend([1, 0, 7, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3]);
    assert!(decompress(&bytes, OWN, true, 100).is_err());
}

#[test]
fn a_sender_at_the_line_uses_what_the_level_says() {
    use CompressionLevel::{Fast, None, Strong};
    let chained = CompressionFlags::CHAINED;
    let own = [CompressionAlgorithm::OWN_ZSTD, CompressionAlgorithm::OWN_BY_LINE];
    let by_line = Compression::from_wire(chained, &own);
    assert_eq!((by_line.algorithms, by_line.by_line), (OWN, true));
    assert!(!by_line.at(None).is_some());
    assert_eq!(by_line.at(Fast).algorithms, BOTH);
    assert_eq!(by_line.at(Strong).algorithms, OWN);
    let asked = Compression::from_wire(chained, &[CompressionAlgorithm::LZ4]);
    for level in [None, Fast, Strong] {
        assert_eq!(
            asked.at(level).algorithms,
            LZ4_ONLY,
            "asked for whatever the line"
        );
    }
}

#[test]
fn the_algorithms_of_a_message_are_found() {
    let text = b"again and again and again, ".repeat(1000);
    for algorithms in [OWN, BOTH, LZ4_ONLY, ZSTD_ONLY] {
        for chained in [false, true] {
            let bytes = compress(algorithms, chained, 64, &text).unwrap();
            assert_eq!(Algorithms::of(&bytes).zstd, algorithms.zstd);
        }
    }
    assert!(Algorithms::of(b"no message").is_empty());
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
    fn compressed_messages_decompress_to_the_original(message in message(), plain_len in 0..120_usize, chained: bool) {
        for algorithms in [BOTH, LZ4_ONLY, PATTERN_ONLY, LZNT1_ONLY, OLDER, OWN, ZSTD_ONLY] {
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
        let any = Algorithms { lznt1: true, ..OWN };
        for mut bytes in [
            compress(BOTH, chained, 64, &message).unwrap_or_default(),
            compress(OLDER, chained, 64, &message).unwrap_or_default(),
            compress(OWN, chained, 64, &message).unwrap_or_default(),
            compress(ZSTD_ONLY, chained, 0, &message).unwrap_or_default(),
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
