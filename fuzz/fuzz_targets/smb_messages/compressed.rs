//! Compressed messages of a hostile peer, and messages that are compressed and read again.

use ropeway_smb_proto::compression::{Algorithms, compress, decompress};
use ropeway_smb_wire::Reader;
use ropeway_smb_wire::compression::CompressedMessage;

/// Largest size of a decompressed message here.
const DECOMPRESSED_MAX: usize = 1 << 16;

const COMPRESSION: Algorithms = Algorithms {
    lz4: true,
    lznt1: true,
    pattern_v1: true,
    zstd: true,
};
/// The same without the strongest one, which hides the others from the encoder.
const COMPRESSION_OF_OTHERS: Algorithms = Algorithms {
    zstd: false,
    ..COMPRESSION
};

pub(crate) fn compressed(bytes: &[u8]) {
    let _ = CompressedMessage::decode(&mut Reader::new(bytes, "fuzz"));
    for chained in [false, true] {
        if let Ok(plain) = decompress(bytes, COMPRESSION, chained, DECOMPRESSED_MAX) {
            assert!(plain.len() <= DECOMPRESSED_MAX);
        }
    }
}

pub(crate) fn compressible(bytes: &[u8]) {
    let Some((plain_length, message)) = bytes.split_first() else {
        return;
    };
    let plain_length = usize::from(*plain_length).min(message.len());
    for chained in [false, true] {
        for algorithms in [COMPRESSION, COMPRESSION_OF_OTHERS] {
            if let Some(compressed) = compress(algorithms, chained, plain_length, message) {
                let again = decompress(&compressed, algorithms, chained, message.len());
                assert_eq!(again.as_deref(), Ok(message));
            }
        }
    }
}
