//! Traces of block devices as text.

use std::collections::HashMap;
use std::io::BufRead;

use crate::predict::Block;
use crate::recording::{Reader, Record, RecordingError};

/// Bytes of a sector in all formats.
const SECTOR: u64 = 512;
/// Requests for blocks in one trace: 12 bytes each in memory.
pub const REQUESTS_MAX: usize = 1 << 26;
/// Bytes of one request of a trace. Larger ones are taken for damage.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of a line. Longer ones are taken for damage.
const LINE_BYTES_MAX: u64 = 4096;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One request a line: first sector, count of sectors, two more numbers that are not used.
    Lis,
    /// A line of names, then one request a line: version, time, operation, bytes, first sector.
    Csv,
    /// A recording of a mount (docs/recording.md): its reads.
    Recording,
}

/// Reasons why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not as its format says.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The trace has no request.
    #[error("the trace has no requests")]
    Empty,
    /// The trace has more requests than fit.
    #[error("the trace has more than {REQUESTS_MAX} requests for blocks")]
    TooLong,
    /// The recording is damaged, or none.
    #[error("{0}")]
    Recording(RecordingError),
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
}

impl From<RecordingError> for TraceError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::Io(error) => Self::Read(error),
            error => Self::Recording(error),
        }
    }
}

/// The blocks that a trace requests, in order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Numbers on the device, so that neighbours are neighbours.
    pub numbers: Vec<u64>,
    /// The same blocks, numbered by their first request.
    pub blocks: Vec<u32>,
    /// Number of different blocks.
    pub footprint: usize,
}

impl Trace {
    /// Makes a trace of numbers.
    pub fn new(numbers: Vec<u64>) -> Self {
        let mut known = HashMap::new();
        let mut trace = Self {
            blocks: Vec::with_capacity(numbers.len()),
            ..Self::default()
        };
        for number in &numbers {
            let next = u32::try_from(known.len()).expect("bounded by the number of requests");
            trace.blocks.push(*known.entry(*number).or_insert(next));
        }
        trace.footprint = known.len();
        trace.numbers = numbers;
        trace
    }

    /// Reads a trace. A request touches each of its blocks once, in order.
    ///
    /// # Panics
    /// If `block_bytes` is not a multiple of 512.
    pub fn read(mut text: impl BufRead, format: Format, block_bytes: u64) -> Result<Self, TraceError> {
        assert!(
            block_bytes > 0 && block_bytes.is_multiple_of(SECTOR),
            "blocks of {block_bytes} bytes"
        );
        if format == Format::Recording {
            return recorded(text, block_bytes);
        }
        let sectors = block_bytes / SECTOR;
        let mut numbers = Vec::new();
        let mut line = Vec::new();
        for at in 1.. {
            line.clear();
            let mut limited = std::io::Read::take(&mut text, LINE_BYTES_MAX);
            if limited.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let problem = |what| TraceError::Line { line: at, what };
            let fields = std::str::from_utf8(&line).map_err(|_| problem("not text"))?;
            let fields = fields.trim_end();
            if fields.is_empty() || (at == 1 && format == Format::Csv) {
                continue;
            }
            let (first, count) = parse(fields, format).map_err(problem)?;
            if count > BYTES_MAX / SECTOR {
                return Err(problem("a request of more than 1 GiB"));
            }
            let last = first.checked_add(count.max(1) - 1);
            let last = last.ok_or_else(|| problem("a sector beyond any device"))? / sectors;
            if last != Block::from_number(last).number() {
                return Err(problem("a sector beyond any device"));
            }
            for block in first / sectors..=last {
                if numbers.len() == REQUESTS_MAX {
                    return Err(TraceError::TooLong);
                }
                numbers.push(block);
            }
        }
        if numbers.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(Self::new(numbers))
    }
}

/// Reads the reads of a recording. Each file is a device of its own.
fn recorded(text: impl BufRead, block_bytes: u64) -> Result<Trace, TraceError> {
    let (mut session, mut files, mut numbers) = (None, HashMap::new(), Vec::new());
    for (at, record) in (1_u64..).zip(Reader::new(text)) {
        let read = match record? {
            Record::Session(new) => {
                session = Some((new.share, new.volume));
                continue;
            }
            Record::Read(read) => read,
            Record::Open(_) | Record::Lost(_) => continue,
        };
        let next = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let file = *files.entry((session, read.file)).or_insert(next);
        let end = read.offset.saturating_add(read.length).min(read.size);
        for index in read.offset / block_bytes..end.div_ceil(block_bytes) {
            let block = Block::new(file, index).ok_or(TraceError::Line {
                line: at,
                what: "too many files, or a file that is too large",
            })?;
            if numbers.len() == REQUESTS_MAX {
                return Err(TraceError::TooLong);
            }
            numbers.push(block.number());
        }
    }
    if numbers.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(Trace::new(numbers))
}

/// Returns first sector and count of sectors.
fn parse(line: &str, format: Format) -> Result<(u64, u64), &'static str> {
    let number = |field: Option<&str>| -> Result<u64, &'static str> {
        let field = field.ok_or("too few fields")?;
        field
            .trim()
            .parse()
            .map_err(|_| "not a number where one is needed")
    };
    match format {
        Format::Lis => {
            let mut fields = line.split_ascii_whitespace();
            Ok((number(fields.next())?, number(fields.next())?))
        }
        Format::Csv => {
            let mut fields = line.split(',').skip(3);
            let bytes = number(fields.next())?;
            Ok((number(fields.next())?, bytes.div_ceil(SECTOR)))
        }
        Format::Recording => Err("a recording"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: Format) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes(), format, 65_536)
    }

    #[test]
    fn a_request_touches_each_of_its_blocks_once_in_order() {
        let trace = read("127 2 0 0\n0 1 0 1\n256 0 0 2\n", Format::Lis).expect("a trace");
        assert_eq!(trace.numbers, [0, 1, 0, 2]);
        assert_eq!((trace.blocks, trace.footprint), (vec![0, 1, 0, 2], 3));
        let csv = "version,time,op,size,lbn\n1,5,2a,1024,127\n1,6,28,512,0\n";
        assert_eq!(read(csv, Format::Csv).expect("a trace").numbers, [0, 1, 0]);
    }

    #[test]
    fn the_reads_of_a_recording_are_a_trace() {
        let session = |share: u8| format!("ropeway-recording\t1\t{share:032x}\t{:016x}\t0\t0\tx\n", 5);
        let read = |file: u64, offset: u64| format!("read\t1\t1\t1\tcc\t{file}\t200000\t{offset}\t70000\n");
        let open = "open\t1\t1\tcc\t1\t200000\ta\nlost\t3\n";
        let text = format!(
            "{}{open}{}{}{}{}{}",
            session(1),
            read(1, 0),
            read(2, 131_072),
            read(1, 199_999),
            session(2),
            read(1, 0)
        );
        let trace = read_as_recording(&text).expect("a trace");
        assert_eq!(trace.blocks, [0, 1, 2, 3, 4, 5, 6]);
        let file = |number: u64| (number >> 24, number & 0xff_ffff);
        let numbers: Vec<(u64, u64)> = trace.numbers.iter().map(|number| file(*number)).collect();
        assert_eq!(numbers, [(0, 0), (0, 1), (1, 2), (1, 3), (0, 3), (2, 0), (2, 1)]);
        let empty = read_as_recording(&session(1)).expect_err("no reads");
        assert_eq!(empty.to_string(), "the trace has no requests");
        let damaged = read_as_recording(&format!("{}x\n", session(1))).expect_err("damaged");
        assert_eq!(
            damaged.to_string(),
            "line 2: neither session, open, read nor lost"
        );
    }

    fn read_as_recording(text: &str) -> Result<Trace, TraceError> {
        read(text, Format::Recording)
    }

    #[test]
    fn damaged_traces_are_refused_with_the_line() {
        let message = |text: &str, format| read(text, format).expect_err("damaged").to_string();
        assert_eq!(message("", Format::Lis), "the trace has no requests");
        assert_eq!(message("names only\n", Format::Csv), "the trace has no requests");
        assert_eq!(
            message("1 1\nx 1\n", Format::Lis),
            "line 2: not a number where one is needed"
        );
        assert_eq!(message("1\n", Format::Lis), "line 1: too few fields");
        let huge = format!("1 {}\n", u64::MAX);
        assert_eq!(
            message(&huge, Format::Lis),
            "line 1: a request of more than 1 GiB"
        );
        let far = format!("{} 1\n", u64::MAX);
        assert_eq!(message(&far, Format::Lis), "line 1: a sector beyond any device");
        let long = "1".repeat(100_000);
        assert!(message(&long, Format::Lis).starts_with("line 1: "));
        let binary = Trace::read(&b"\xff\xfe\n"[..], Format::Lis, 512).expect_err("damaged");
        assert_eq!(binary.to_string(), "line 1: not text");
    }
}
