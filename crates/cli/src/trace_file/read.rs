//! Reading a trace, line by line: memory use does not grow with its size.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};

use super::{Header, LINE_BYTES_MAX, Line, Operation, Summary, VERSION};

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Errors while reading a trace.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// Line number, and what is wrong with the line.
    Line(u64, String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a trace.
pub(crate) struct TraceReader<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    header: Header,
    operations: u64,
    /// The last line.
    summary: Option<Summary>,
    /// Whether there is nothing more to read.
    ended: bool,
}

/// What came of reading a line.
enum Read {
    Whole,
    /// The file ends here, perhaps within a line.
    End,
    TooLong,
}

impl TraceReader<BufReader<File>> {
    /// Reads a trace from an open file.
    ///
    /// # Errors
    /// The file cannot be read or is not a trace.
    pub(crate) fn of_file(file: File) -> Result<Self, ReadError> {
        Self::new(BufReader::with_capacity(BUFFER_BYTES, file))
    }
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// The text is not a trace, or has another version.
    pub(crate) fn new(reader: R) -> Result<Self, ReadError> {
        let mut trace = Self {
            reader,
            line: Vec::new(),
            number: 0,
            header: Header::default(),
            operations: 0,
            summary: None,
            ended: false,
        };
        let no_trace = || ReadError::Line(1, "this is not a trace of ropeway".to_owned());
        if !matches!(trace.read_line()?, Read::Whole) {
            return Err(no_trace());
        }
        match serde_json::from_slice(&trace.line) {
            Ok(Line::Trace(header)) if (1..=VERSION).contains(&header.version) => {
                trace.header = header;
                Ok(trace)
            }
            Ok(Line::Trace(header)) => Err(ReadError::Line(
                1,
                format!(
                    "the format version is {}, but only 1 to {VERSION} are supported",
                    header.version
                ),
            )),
            _ => Err(no_trace()),
        }
    }

    /// Returns the first line.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether the trace was read completely and is not truncated.
    pub(crate) fn is_whole(&self) -> bool {
        let counted = |summary: &Summary| summary.operations == self.operations;
        self.summary.as_ref().is_some_and(counted)
    }

    /// Returns the last line, once it was read.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    fn read_line(&mut self) -> io::Result<Read> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX as u64);
        let length = limited.read_until(b'\n', &mut self.line)?;
        Ok(match self.line.last() {
            Some(b'\n') => {
                self.line.pop();
                Read::Whole
            }
            _ if length == LINE_BYTES_MAX => Read::TooLong,
            _ => Read::End,
        })
    }

    fn fault(&self, what: impl ToString) -> ReadError {
        ReadError::Line(self.number, what.to_string())
    }

    fn read(&mut self) -> Result<Option<Operation>, ReadError> {
        let is_cut = match self.read_line()? {
            Read::Whole => false,
            Read::TooLong => return Err(self.fault("the line is too long")),
            Read::End if self.line.is_empty() => return Ok(None),
            Read::End => true,
        };
        match serde_json::from_slice(&self.line) {
            Ok(Line::Op(operation)) => {
                self.operations += 1;
                Ok(Some(operation))
            }
            Ok(Line::End(summary)) => {
                self.summary = Some(summary);
                Ok(None)
            }
            Ok(Line::Trace(_)) => Err(self.fault("a second header line")),
            // A line that the end of the file truncated.
            Err(_) if is_cut => Ok(None),
            Err(error) => Err(self.fault(error)),
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Operation, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}
