//! A long line is kept filled.

use std::time::{Duration, Instant};

use super::bench::{Bench, CREATE, READ, bytes, open};

/// One way of a line of 75 ms.
const DELAY: Duration = Duration::from_micros(37_500);
const SIZE: usize = 64 << 20;
const PIECE: usize = 128 << 10;

/// Piece by piece the file would take 512 round trips, 38 s. On this machine the limit is far above
/// the time measured (2 s), which follows from how the client's window grows.
#[test]
fn sequential_reads_and_writes_fill_a_long_line() {
    let bench = Bench::with_delay(DELAY);
    let data = bytes(SIZE, 7);
    std::fs::write(bench.path().join("f"), &data).unwrap();
    let store = bench.store();
    let node = open(&store, "f", &READ);
    let begun = Instant::now();
    let mut piece = vec![0; PIECE];
    for at in (0..SIZE).step_by(PIECE) {
        assert_eq!(node.read_at(&mut piece, at as u64).unwrap(), PIECE);
        assert!(piece == data[at..at + PIECE], "{at}");
    }
    let read = begun.elapsed();
    let node = open(&store, "g", &CREATE);
    let begun = Instant::now();
    for (index, piece) in data.chunks(PIECE).enumerate() {
        node.write_at(piece, (index * PIECE) as u64).unwrap();
    }
    node.sync().unwrap();
    let written = begun.elapsed();
    println!("read in {read:?}, written in {written:?}");
    assert!(std::fs::read(bench.path().join("g")).unwrap() == data);
    // Piece by piece they take 38 s.
    assert!(read < Duration::from_secs(25), "{read:?}");
    assert!(written < Duration::from_secs(25), "{written:?}");
}
