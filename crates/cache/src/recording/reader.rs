//! Reads a recording line by line.

use std::io::{BufRead, Read as _};

use super::line::{MAGIC, Record};

/// Bytes of a line with its end, at most. Longer ones are taken for damage.
pub const LINE_BYTES_MAX: usize = 65_536;

/// Reasons why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It does not begin as one.
    #[error("not a recording")]
    Foreign,
    /// A line is not as the format says.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Reads a recording; the memory that this takes does not grow with its size. Ends after an error.
/// A last line without its end was not written whole, and is left out.
#[derive(Debug)]
pub struct Reader<R> {
    text: R,
    line: Vec<u8>,
    number: u64,
    has_ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Begins at the first line.
    pub fn new(text: R) -> Self {
        Self {
            text,
            line: Vec::new(),
            number: 0,
            has_ended: false,
        }
    }

    fn read(&mut self) -> Result<Option<Record>, RecordingError> {
        self.line.clear();
        let mut limited = self.text.by_ref().take(LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut self.line)?;
        self.number += 1;
        let is_first = self.number == 1;
        if is_first && !self.line.starts_with(MAGIC.as_bytes()) {
            return Err(RecordingError::Foreign);
        }
        let problem = |what| RecordingError::Line {
            line: self.number,
            what,
        };
        let Some(line) = self.line.strip_suffix(b"\n") else {
            return match self.line.len() {
                // With its first line cut short there is nothing in it.
                LINE_BYTES_MAX => Err(problem("a line that is too long")),
                _ if is_first => Err(problem("cut short")),
                _ => Ok(None),
            };
        };
        let line = std::str::from_utf8(line).map_err(|_| problem("not text"))?;
        let record = Record::parse(line).map_err(problem)?;
        match (&record, is_first) {
            (Record::Session(_), _) | (_, false) => Ok(Some(record)),
            _ => Err(RecordingError::Foreign),
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let record = self.read().transpose();
        self.has_ended = !matches!(record, Some(Ok(_)));
        record
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Session;
    use super::*;
    use proptest::prelude::*;

    fn recording(lines: usize) -> String {
        let mut text = String::new();
        let session = Session {
            share: [7; 16],
            volume: 9,
            start_us: 1_700_000_000_000_000,
            utc_offset_s: 3600,
            source: b"smb://ann@nas/photos".to_vec(),
        };
        Record::Session(session).write(&mut text);
        (0..lines).for_each(|line| Record::Lost(line as u64).write(&mut text));
        text
    }

    fn error(text: &[u8]) -> String {
        let last = Reader::new(text).last().expect("an error");
        last.expect_err("damaged").to_string()
    }

    #[test]
    fn a_recording_that_was_cut_can_be_read_up_to_its_last_whole_line() {
        let text = recording(10);
        let first = text.find('\n').expect("a line") + 1;
        for cut in first..text.len() {
            let whole = text[..cut].matches('\n').count();
            let read: Result<Vec<Record>, _> = Reader::new(&text.as_bytes()[..cut]).collect();
            assert_eq!(read.expect("a prefix").len(), whole, "cut at {cut}");
        }
        assert_eq!(error(&text.as_bytes()[..first - 1]), "line 1: cut short");
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        assert_eq!(error(b""), "not a recording");
        assert_eq!(error(b"127 2 0 0\n"), "not a recording");
        assert_eq!(error(b"ropeway-recording\n"), "line 1: too few fields");
        let mut text = recording(1).into_bytes();
        text.extend_from_slice(b"lost\t\xff\nlost\t1\n");
        assert_eq!(error(&text), "line 3: not text");
        let long = format!("{}{}", recording(0), "x".repeat(LINE_BYTES_MAX + 1));
        assert_eq!(error(long.as_bytes()), "line 2: a line that is too long");
        let other = recording(0).replacen("\t1\t", "\t2\t", 1);
        assert_eq!(
            error(other.as_bytes()),
            "line 1: a version that this program does not know"
        );
    }

    proptest! {
        /// Whatever a file holds, reading it ends.
        #[test]
        fn any_file_can_be_read(place in any::<prop::sample::Index>(), byte in any::<u8>(), tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut text = recording(5).into_bytes();
            let place = place.index(text.len());
            text[place] = byte;
            text.extend_from_slice(&tail);
            prop_assert!(Reader::new(&text[..]).count() <= text.len());
        }
    }
}
