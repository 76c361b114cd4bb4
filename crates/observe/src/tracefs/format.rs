//! The `format` files of tracefs: where the fields of an event are.
//!
//! ```text
//! name: sys_enter_openat
//! ID: 782
//! format:
//!         field:const char * filename;    offset:24;      size:8; signed:0;
//! ```

/// Most fields of an event that are read; the kernel's largest have some forty.
const FIELDS_MAX: usize = 128;
/// Largest offset or size that is believed: a page.
const BYTES_MAX: usize = 4096;

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the begin of the event.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Whether it is the place of a text elsewhere in the event (`__data_loc`).
    pub is_elsewhere: bool,
}

/// The layout of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Number in the field `common_type`.
    pub id: u16,
    /// Fields of all events and of this one, in the order of the file.
    pub fields: Vec<Field>,
}

impl Format {
    /// Parses a `format` file; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        Some(Self {
            id: id.trim().parse().ok()?,
            fields: fields(text),
        })
    }

    /// Returns a field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Returns all fields of a file; lines that are none are left out.
pub(crate) fn fields(text: &str) -> Vec<Field> {
    text.lines().filter_map(field).take(FIELDS_MAX).collect()
}

fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |name: &str| -> Option<usize> {
        let number = parts
            .next()?
            .strip_prefix(name)?
            .strip_prefix(':')?
            .parse()
            .ok()?;
        (number <= BYTES_MAX).then_some(number)
    };
    let (offset, size) = (number("offset")?, number("size")?);
    // `char comm[16]`, `__data_loc char[] filename`, `const char * path`.
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    (!name.is_empty()).then(|| Field {
        name: name.to_owned(),
        offset,
        size,
        is_elsewhere: declaration.starts_with("__data_loc"),
    })
}

impl Field {
    /// Returns the field's bytes in an event.
    pub fn bytes<'e>(&self, event: &'e [u8]) -> Option<&'e [u8]> {
        event.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Returns an unsigned number of 1, 2, 4 or 8 bytes.
    pub fn number(&self, event: &[u8]) -> Option<u64> {
        let bytes = self.bytes(event)?;
        Some(match bytes.len() {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Returns a text, without the NUL at its end.
    pub fn text<'e>(&self, event: &'e [u8]) -> Option<&'e [u8]> {
        let bytes = if self.is_elsewhere {
            // Offset in the lower half, length in the upper one.
            let place = u32::try_from(self.number(event)?).ok()?;
            let (offset, length) = ((place & 0xffff) as usize, (place >> 16) as usize);
            event.get(offset..offset.checked_add(length)?)?
        } else {
            self.bytes(event)?
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(&bytes[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXEC: &str = "name: sched_process_exec\nID: 365\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
        \tfield:const char * path;\toffset:28;\tsize:8;\tsigned:0;\n\nprint fmt: \"x\", REC->pid\n";

    #[test]
    fn fields_are_found_and_read() {
        let format = Format::parse(EXEC).unwrap();
        assert_eq!((format.id, format.fields.len()), (365, 5));
        let mut event = vec![0_u8; 44];
        event[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        event[8..12].copy_from_slice(&(8_u32 << 16 | 36).to_ne_bytes());
        event[12..14].copy_from_slice(b"cp");
        event[36..41].copy_from_slice(b"/bin\0");
        let field = |name| format.field(name).unwrap();
        assert_eq!(field("common_pid").number(&event), Some(7));
        assert_eq!(field("filename").text(&event), Some(&b"/bin"[..]));
        assert_eq!(field("comm").text(&event), Some(&b"cp"[..]));
        assert_eq!((field("path").offset, field("path").size), (28, 8));
        assert_eq!(field("path").number(&event[..30]), None);
    }

    proptest! {
        #[test]
        fn hostile_formats_and_events_are_read_or_refused(
            cut in 0..EXEC.len(), insert in "[a-z:;*\\[0-9 \t\n]{0,12}", event in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let text = format!("{}{insert}{}", &EXEC[..cut], &EXEC[cut..]);
            if let Some(format) = Format::parse(&text) {
                for field in &format.fields {
                    let _ = (field.number(&event), field.text(&event));
                }
            }
        }
    }
}
