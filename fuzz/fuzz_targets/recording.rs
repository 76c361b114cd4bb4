//! Recordings with any content: reading one ends, what was read can be written and read again, and
//! its reads are a trace or a reason why not.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_cache::recording::{MAGIC, Reader, Record};
use ropeway_cache::replay::{Format, Trace};

/// Blocks of one read bound the time of a run.
const LENGTH_MAX: u64 = 1 << 26;

fuzz_target!(|data: &[u8]| {
    // Half of the inputs get past the first line.
    let session = format!("{MAGIC}\t1\t{:032x}\t{:016x}\t1\t0\tx\n", 1, 2);
    let text = match data.split_first() {
        Some((1, rest)) => [session.as_bytes(), rest].concat(),
        _ => data.to_vec(),
    };
    let mut again = String::new();
    let mut records = Vec::new();
    for record in Reader::new(&text[..]) {
        let Ok(record) = record else { break };
        if matches!(&record, Record::Read(read) if read.length > LENGTH_MAX) {
            return;
        }
        record.write(&mut again);
        records.push(record);
    }
    let read: Vec<Record> = Reader::new(again.as_bytes()).map_while(Result::ok).collect();
    assert_eq!(read, records, "what was written differs");
    if let Ok(trace) = Trace::read(&text[..], Format::Recording, 65_536) {
        assert_eq!(trace.blocks.len(), trace.numbers.len());
        assert!(trace.footprint > 0 && trace.footprint <= trace.blocks.len());
    }
});
