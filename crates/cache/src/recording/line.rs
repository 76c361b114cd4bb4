//! The lines of a recording, written and parsed.

use std::fmt::Write as _;

/// The first field of a session's line.
pub const MAGIC: &str = "ropeway-recording";
/// Version of the format. Readers refuse all others.
pub const VERSION: u32 = 1;
/// Bytes of one read, at most. Larger ones are taken for damage.
const READ_MAX: u64 = 1 << 30;
/// Bytes of a program's name, a source and a path, at most.
const PROGRAM_MAX: usize = 255;
const TEXT_MAX: usize = 16_384;
/// Largest difference of a local time to UTC, in seconds.
const OFFSET_MAX: i32 = 26 * 3600;

/// What was mounted, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The source's identity in caches.
    pub share: [u8; 16],
    /// The volume of all files.
    pub volume: u64,
    /// When it began, in microseconds since 1970.
    pub start_us: u64,
    /// Seconds by which the local time was ahead of UTC.
    pub utc_offset_s: i32,
    /// The source's name.
    pub source: Vec<u8>,
}

/// A program opened a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// When, in microseconds since the session's start.
    pub at_us: u64,
    /// The process.
    pub pid: u32,
    /// The program's name.
    pub program: Vec<u8>,
    /// The file's number on its volume.
    pub file: u64,
    /// The file's size.
    pub size: u64,
    /// Where it was opened, relative to the source's root.
    pub path: Vec<u8>,
}

/// A program read from an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// When it began, in microseconds since the session's start.
    pub at_us: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// The process that opened the file.
    pub pid: u32,
    /// The program's name.
    pub program: Vec<u8>,
    /// The file's number on its volume.
    pub file: u64,
    /// The file's size when it was opened.
    pub size: u64,
    /// The first byte.
    pub offset: u64,
    /// Bytes asked for.
    pub length: u64,
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// What was mounted. The first line is always one.
    Session(Session),
    /// A program opened a file.
    Open(Open),
    /// A program read from a file.
    Read(Read),
    /// So many opens and reads could not be recorded in time.
    Lost(u64),
}

/// Adds bytes as text: UTF-8 as it is, control characters and what is not UTF-8 as `\xNN`, a
/// backslash doubled.
fn escape(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\0'..='\x1f' | '\x7f' => {
                    let _ = write!(text, "\\x{:02x}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// Returns the bytes of an escaped text.
fn unescape(text: &str, bytes_max: usize) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escaped = &rest[at + 1..];
        if let Some(after) = escaped.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
            continue;
        }
        let digits = escaped.strip_prefix('x').and_then(|digits| digits.get(..2));
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a backslash that begins nothing")?);
        rest = &escaped[3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    match bytes.len() <= bytes_max {
        true => Ok(bytes),
        false => Err("a name that is too long"),
    }
}

/// The fields of a line.
struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn text(&mut self) -> Result<&'a str, &'static str> {
        self.0.next().ok_or("too few fields")
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, &'static str> {
        let field = self.text()?;
        // `parse` takes a plus sign too.
        let is_plain = !field.starts_with('+');
        let number = field.parse().ok().filter(|_| is_plain);
        number.ok_or("not a number where one is needed")
    }

    fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, &'static str> {
        unescape(self.text()?, bytes_max)
    }

    fn hex<T>(&mut self, parse: impl Fn(&str) -> Option<T>, digits: usize) -> Result<T, &'static str> {
        let field = self.text()?;
        let is_hex = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = Some(field).filter(|_| is_hex).and_then(parse);
        number.ok_or("not a number of the right length")
    }

    fn end(mut self) -> Result<(), &'static str> {
        match self.0.next() {
            None => Ok(()),
            Some(_) => Err("too many fields"),
        }
    }
}

impl Record {
    /// Adds the line, with its end.
    pub fn write(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Self::Session(session) => {
                let share = u128::from_be_bytes(session.share);
                let (volume, start, offset) = (session.volume, session.start_us, session.utc_offset_s);
                let _ = write!(
                    text,
                    "{MAGIC}\t{VERSION}\t{share:032x}\t{volume:016x}\t{start}\t{offset}\t"
                );
                escape(&session.source, text);
                Ok(())
            }
            Self::Open(open) => {
                let _ = write!(text, "open\t{}\t{}\t", open.at_us, open.pid);
                escape(&open.program, text);
                let _ = write!(text, "\t{}\t{}\t", open.file, open.size);
                escape(&open.path, text);
                Ok(())
            }
            Self::Read(read) => {
                let _ = write!(text, "read\t{}\t{}\t{}\t", read.at_us, read.took_us, read.pid);
                escape(&read.program, text);
                let (file, size, offset, length) = (read.file, read.size, read.offset, read.length);
                write!(text, "\t{file}\t{size}\t{offset}\t{length}")
            }
            Self::Lost(count) => write!(text, "lost\t{count}"),
        };
        text.push('\n');
    }

    /// Parses a line without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Self, &'static str> {
        let mut fields = Fields(line.split('\t'));
        let record = match fields.text()? {
            MAGIC => Self::Session(session(&mut fields)?),
            "open" => Self::Open(Open {
                at_us: fields.number()?,
                pid: fields.number()?,
                program: fields.bytes(PROGRAM_MAX)?,
                file: fields.number()?,
                size: fields.number()?,
                path: fields.bytes(TEXT_MAX)?,
            }),
            "read" => Self::Read(read(&mut fields)?),
            "lost" => Self::Lost(fields.number()?),
            _ => return Err("neither session, open, read nor lost"),
        };
        fields.end()?;
        Ok(record)
    }
}

fn session(fields: &mut Fields<'_>) -> Result<Session, &'static str> {
    if fields.number::<u32>()? != VERSION {
        return Err("a version that this program does not know");
    }
    let session = Session {
        share: fields
            .hex(|digits| u128::from_str_radix(digits, 16).ok(), 32)?
            .to_be_bytes(),
        volume: fields.hex(|digits| u64::from_str_radix(digits, 16).ok(), 16)?,
        start_us: fields.number()?,
        utc_offset_s: fields.number()?,
        source: fields.bytes(TEXT_MAX)?,
    };
    match (-OFFSET_MAX..=OFFSET_MAX).contains(&session.utc_offset_s) {
        true => Ok(session),
        false => Err("a local time that no place has"),
    }
}

fn read(fields: &mut Fields<'_>) -> Result<Read, &'static str> {
    let read = Read {
        at_us: fields.number()?,
        took_us: fields.number()?,
        pid: fields.number()?,
        program: fields.bytes(PROGRAM_MAX)?,
        file: fields.number()?,
        size: fields.number()?,
        offset: fields.number()?,
        length: fields.number()?,
    };
    let end = read.offset.checked_add(read.length);
    match end.is_some() && read.length <= READ_MAX {
        true => Ok(read),
        false => Err("a read of more than 1 GiB, or behind the end of any file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            "[a-z/\\\\ \t\n\u{e4}]{0,40}".prop_map(String::into_bytes),
        ]
    }

    fn records() -> impl Strategy<Value = Record> {
        let session = (any::<[u8; 16]>(), any::<(u64, u64)>(), -9000..9000_i32, names());
        let session = session.prop_map(|(share, (volume, start_us), utc_offset_s, source)| {
            Record::Session(Session {
                share,
                volume,
                start_us,
                utc_offset_s,
                source,
            })
        });
        let open = (any::<(u64, u32, u64, u64)>(), names(), names());
        let open = open.prop_map(|((at_us, pid, file, size), program, path)| {
            Record::Open(Open {
                at_us,
                pid,
                program,
                file,
                size,
                path,
            })
        });
        let read = (
            any::<(u64, u64, u32, u64, u64)>(),
            names(),
            0..u64::MAX / 2,
            0..=READ_MAX,
        );
        let read = read.prop_map(|((at_us, took_us, pid, file, size), program, offset, length)| {
            Record::Read(Read {
                at_us,
                took_us,
                pid,
                program,
                file,
                size,
                offset,
                length,
            })
        });
        prop_oneof![session, open, read, any::<u64>().prop_map(Record::Lost)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_one_line_and_comes_back(record in records()) {
            let mut text = String::new();
            record.write(&mut text);
            let line = text.strip_suffix('\n').expect("an end");
            prop_assert!(!line.contains(['\n', '\r', '\0']));
            prop_assert_eq!(Record::parse(line), Ok(record));
        }

        /// Whatever a line holds, parsing it ends, and what is parsed can be written again.
        #[test]
        fn any_line_is_parsed_or_refused(line in "(open|read|lost|ropeway-recording)?[\t0-9a-fx\\\\+-]{0,60}") {
            if let Ok(record) = Record::parse(&line) {
                let mut text = String::new();
                record.write(&mut text);
                prop_assert_eq!(Record::parse(text.trim_end_matches('\n')), Ok(record));
            }
        }
    }

    #[test]
    fn damaged_lines_are_refused_with_the_reason() {
        let reason = |line: &str| Record::parse(line).expect_err("damaged");
        let few = "too few fields";
        assert_eq!(reason(""), "neither session, open, read nor lost");
        assert_eq!(reason("lost"), few);
        assert_eq!(reason("lost\t1\t2"), "too many fields");
        assert_eq!(reason("lost\t+1"), "not a number where one is needed");
        assert_eq!(reason("open\t1\t2\tcc\t3\t4"), few);
        assert_eq!(
            reason("open\t1\t2\tcc\t3\t4\ta\\"),
            "a backslash that begins nothing"
        );
        assert_eq!(
            reason("open\t1\t2\tcc\t3\t4\ta\\xä"),
            "a backslash that begins nothing"
        );
        assert_eq!(
            reason(&format!("open\t1\t2\t{}\t3\t4\ta", "c".repeat(256))),
            "a name that is too long"
        );
        assert_eq!(
            reason(&format!("read\t1\t2\t3\tcc\t4\t5\t{}\t1", u64::MAX)),
            "a read of more than 1 GiB, or behind the end of any file"
        );
        assert_eq!(
            reason("ropeway-recording\t2\t0"),
            "a version that this program does not know"
        );
    }
}
