//! Compression: compressed requests ([MS-SMB2] 3.3.5.2.1.2). Our own client compresses none.

use ropeway_smb_proto::compression::{Algorithms, compress};
use ropeway_smb_wire::header::{Command, HEADER_LEN};
use ropeway_smb_wire::negotiate_context::{Cipher, CompressionAlgorithm, CompressionFlags, Context};
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::write::WRITE_REQUEST_FIXED_LEN;
use ropeway_smb_wire::{FileId, NtStatus};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// What stays plain of a WRITE.
const PLAIN: usize = HEADER_LEN + WRITE_REQUEST_FIXED_LEN;

const ALL: Algorithms = Algorithms {
    lz4: true,
    lznt1: true,
    pattern_v1: true,
    zstd: false,
};

/// Logs in with compression, chained or not.
fn ready(serve: &Serve, chained: bool) -> Raw {
    let mut raw = Raw::connect(serve.address);
    let compression = Context::Compression {
        flags: if chained {
            CompressionFlags::CHAINED
        } else {
            CompressionFlags::default()
        },
        algorithms: vec![
            CompressionAlgorithm::PATTERN_V1,
            CompressionAlgorithm::LZNT1,
            CompressionAlgorithm::LZ4,
        ],
    };
    let ciphers = Context::Encryption(vec![Cipher::AES_128_CCM]);
    let reply = raw.negotiate_with(vec![raw.dialect], vec![compression, ciphers]);
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
    // For the large requests.
    raw.asks = 512;
    assert_eq!(raw.echo(), NtStatus::SUCCESS);
    raw
}

fn serve() -> (tempfile::TempDir, Serve) {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| options.config.compression = ALL);
    (folder, serve)
}

/// Returns a WRITE at the start of a file.
fn write(raw: &mut Raw, file: FileId, data: &[u8]) -> Vec<u8> {
    let body = samples::write(file, 0, data);
    raw.charge = u16::try_from(data.len().div_ceil(65_536)).unwrap();
    let message = raw.message(Command::Write, |w| w.bytes(&body));
    raw.charge = 1;
    message
}

/// Returns text that compresses, between runs.
fn text(front: usize, middle: usize, back: usize) -> Vec<u8> {
    let words = b"as it was in the beginning, ".iter().cycle().take(middle);
    let mut data = vec![b'A'; front];
    data.extend(words);
    data.extend(std::iter::repeat_n(b'Z', back));
    data
}

/// SMB2Compression_CompressedWriteRequest, _Chained_PatternV1_CompressedWriteRequest_PatternV1AtFront, _AtEnd,
/// _AtFrontAndEnd, of short and of large files, also sealed: what is read is what was written.
#[test]
fn compressed_writes_arrive_as_they_were() {
    let (_folder, serve) = serve();
    let only = |algorithm| Algorithms::from_wire(&[algorithm]);
    let (lz4, lznt1) = (only(CompressionAlgorithm::LZ4), only(CompressionAlgorithm::LZNT1));
    let pattern = only(CompressionAlgorithm::PATTERN_V1);
    for (chained, algorithms, (front, middle, back)) in [
        (false, lz4, (0, 3000, 0)),
        (false, lznt1, (0, 3000, 0)),
        (false, lz4, (0, 700_000, 0)),
        (true, lz4, (0, 3000, 0)),
        (true, pattern, (3000, 100, 0)),
        (true, pattern, (0, 100, 3000)),
        (true, pattern, (3000, 100, 3000)),
        (true, ALL, (3000, 5000, 3000)),
        (true, ALL, (300_000, 300_000, 300_000)),
    ] {
        for seals in [false, true] {
            let what = format!("{chained} {algorithms:?} {front} {middle} {back} {seals}");
            let mut raw = ready(&serve, chained);
            let file = raw.create(&Create::of("file")).unwrap();
            let data = text(front, middle, back);
            let mut message = write(&mut raw, file, &data);
            if seals {
                super::logins::unsign(&mut message);
            }
            let mut frame = compress(algorithms, chained, PLAIN, &message).expect(&what);
            assert!(frame.len() < message.len() * 3 / 4, "{what}");
            let reply = match seals {
                false => {
                    raw.send(&frame);
                    raw.reply().unwrap()
                }
                true => {
                    raw.send_sealed(&mut frame);
                    raw.sealed_reply()
                }
            };
            assert_eq!(reply.status(), NtStatus::SUCCESS, "{what}");
            let length = u32::try_from(data.len()).unwrap();
            let read = samples::read(file, length);
            raw.charge = u16::try_from(length.div_ceil(65_536)).unwrap();
            let reply = raw.call(Command::Read, |w| w.bytes(&read));
            let found = ReadResponse::decode(&mut reply.body()).unwrap().1;
            assert!(found == data, "{what}");
        }
    }
}

/// SMB2Compression_InvalidCompressedPacketLength, _InvalidDecompressedProtocolId, _InvalidCompressionAlgorithm,
/// _Chained_Invalid*: the connection ends.
#[test]
fn frames_that_do_not_decompress_end_the_connection() {
    type Change = fn(&mut Vec<u8>);
    /// Puts a number into a frame.
    fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
        frame[at..at + N].copy_from_slice(&bytes);
    }
    let (_folder, serve) = serve();
    /// Repetitions of the run, which follows the part that stays plain.
    const REPETITIONS: usize = 8 + 8 + PLAIN + 8 + 4;
    let changes: [(&str, bool, Change); 10] = [
        ("8 bytes", false, |frame| frame.truncate(8)),
        ("8 bytes, chained", true, |frame| frame.truncate(8)),
        ("another algorithm", false, |frame| put(frame, 8, [3, 0])),
        ("no algorithm", false, |frame| put(frame, 8, [0, 0])),
        ("another offset", false, |frame| put(frame, 12, [0xFF; 4])),
        ("another size", false, |frame| put(frame, 4, [0xFF; 4])),
        ("another algorithm, chained", true, |frame| put(frame, 8, [2, 0])),
        ("another length, chained", true, |frame| put(frame, 12, [0xFF; 4])),
        ("another run, chained", true, |frame| {
            put(frame, REPETITIONS, [0xFF; 4])
        }),
        ("another size, chained", true, |frame| put(frame, 4, [1, 0, 0, 0])),
    ];
    for (what, chained, change) in changes {
        let mut raw = ready(&serve, chained);
        let file = raw.create(&Create::of("file")).unwrap();
        let message = write(&mut raw, file, &text(1000, 3000, 1000));
        let mut frame = compress(ALL, chained, PLAIN, &message).unwrap();
        change(&mut frame);
        raw.send(&frame);
        assert!(raw.reply().is_none(), "{what}");
    }
    for chained in [false, true] {
        let mut raw = ready(&serve, chained);
        let file = raw.create(&Create::of("file")).unwrap();
        let mut message = write(&mut raw, file, &text(1000, 3000, 1000));
        message[1] = b'X';
        let frame = compress(ALL, chained, PLAIN, &message).unwrap();
        raw.send(&frame);
        assert!(raw.reply().is_none(), "protocol id, {chained}");
    }
}
