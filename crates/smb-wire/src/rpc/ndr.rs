//! Network Data Representation 2.0 (C706 14), the subset that this crate's calls need.
//!
//! Each value is aligned to its size, counted from the stub's start. A pointer is a number, 0 for
//! null. The data it points to follows after the structure or array that holds it, in the same
//! order.

use super::account::ContextHandle;
use crate::security::Sid;
use crate::{Fault, Reader, Result, Text, Writer};

/// Longest string accepted, in units. A guess: share names end at 80, remarks at 256.
const STRING_UNITS_MAX: usize = 4096;

/// Reads values from a stub.
#[derive(Debug)]
pub(super) struct NdrReader<'a> {
    reader: Reader<'a>,
}

impl<'a> NdrReader<'a> {
    pub(super) fn new(stub: &'a [u8], call: &'static str) -> Self {
        Self {
            reader: Reader::new(stub, call),
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> crate::Malformed {
        self.reader.fault(fault)
    }

    fn align(&mut self, alignment: usize) -> Result<()> {
        let at = self.reader.position();
        self.reader.skip(at.next_multiple_of(alignment) - at)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.align(2)?;
        self.reader.u16()
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.align(4)?;
        self.reader.u32()
    }

    pub(super) fn handle(&mut self) -> Result<ContextHandle> {
        self.align(4)?;
        self.reader.array().map(ContextHandle)
    }

    /// Reads the number of an array's elements, each of at least `element_len` bytes. Fails if the
    /// stub has too few bytes left for them, so that callers never allocate for a false number.
    pub(super) fn count(&mut self, element_len: usize) -> Result<usize> {
        let fault = self.fault(Fault::Value);
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        match count.checked_mul(element_len) {
            Some(length) if length <= self.reader.remaining() => Ok(count),
            _ => Err(fault),
        }
    }

    /// Reads an RPC_SID ([MS-DTYP] 2.4.2.3). The number of sub-authorities precedes it a second
    /// time.
    pub(super) fn sid(&mut self) -> Result<Sid> {
        let fault = self.fault(Fault::Value);
        let count = self.count(4)?;
        let sid = Sid::read(&mut self.reader)?;
        (sid.sub_authorities().len() == count).then_some(sid).ok_or(fault)
    }

    /// Reads the fixed part of an RPC_UNICODE_STRING ([MS-DTYP] 2.3.10). Returns whether its text
    /// follows, for [`Self::deferred`].
    pub(super) fn unicode_head(&mut self) -> Result<bool> {
        self.align(4)?;
        // Skips Length and MaximumLength: the text repeats both.
        self.reader.skip(4)?;
        self.pointer()
    }

    /// Reads an RPC_UNICODE_STRING parameter. Its text follows at once.
    pub(super) fn unicode(&mut self) -> Result<Text> {
        let points = self.unicode_head()?;
        self.deferred(points)
    }

    /// Reads a pointer. Returns whether it is not null.
    pub(super) fn pointer(&mut self) -> Result<bool> {
        Ok(self.u32()? != 0)
    }

    /// Reads a number. Fails if it is not `expected`.
    pub(super) fn expect(&mut self, expected: u32) -> Result<()> {
        let fault = self.fault(Fault::Value);
        if self.u32()? == expected {
            Ok(())
        } else {
            Err(fault)
        }
    }

    /// Reads a conformant and varying string of 16-bit units. The result ends before its NUL.
    pub(super) fn string(&mut self) -> Result<Text> {
        let fault = self.fault(Fault::Value);
        let max = self.u32()?;
        self.expect(0)?;
        let count = self.u32()?;
        let count_usize = usize::try_from(count).unwrap_or(usize::MAX);
        if count > max || count_usize > STRING_UNITS_MAX {
            return Err(fault);
        }
        let text = Text::from_le_bytes(self.reader.bytes(count_usize * 2)?).ok_or(fault)?;
        let end = text.units().iter().position(|unit| *unit == 0);
        Ok(match end {
            Some(end) => Text::from_units(text.units()[..end].to_vec()),
            None => text,
        })
    }

    /// Reads the text of a structure's pointer; empty if the pointer was null.
    pub(super) fn deferred(&mut self, points: bool) -> Result<Text> {
        if points {
            self.string()
        } else {
            Ok(Text::default())
        }
    }

    /// Reads a pointer parameter to a string. The string follows at once.
    pub(super) fn unique_string(&mut self) -> Result<Option<Text>> {
        match self.pointer()? {
            true => self.string().map(Some),
            false => Ok(None),
        }
    }

    /// Reads a pointer parameter to a number.
    pub(super) fn unique_u32(&mut self) -> Result<Option<u32>> {
        match self.pointer()? {
            true => self.u32().map(Some),
            false => Ok(None),
        }
    }
}

/// Writes values to a stub.
#[derive(Debug, Default)]
pub(super) struct NdrWriter {
    stub: Vec<u8>,
    pointers: u32,
}

impl NdrWriter {
    pub(super) fn into_stub(self) -> Vec<u8> {
        self.stub
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.stub.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        let mut writer = Writer::within(&mut self.stub, 0);
        writer.align(2);
        writer.u16(value);
    }

    pub(super) fn u32(&mut self, value: u32) {
        let mut writer = Writer::within(&mut self.stub, 0);
        writer.align(4);
        writer.u32(value);
    }

    /// Writes a pointer. Each pointer that is not null gets its own number.
    pub(super) fn pointer(&mut self, points: bool) {
        if !points {
            return self.u32(0);
        }
        self.pointers += 1;
        // Numbered as Windows does.
        self.u32(0x0002_0000 + 4 * (self.pointers - 1));
    }

    /// Writes a conformant and varying string with a NUL at its end.
    pub(super) fn string(&mut self, text: &Text) {
        let units = text.units().len().min(STRING_UNITS_MAX - 1);
        let count = u32::try_from(units + 1).unwrap_or(0);
        self.u32(count);
        self.u32(0);
        self.u32(count);
        let mut writer = Writer::within(&mut self.stub, 0);
        for unit in &text.units()[..units] {
            writer.u16(*unit);
        }
        writer.u16(0);
    }

    pub(super) fn unique_string(&mut self, text: Option<&Text>) {
        self.pointer(text.is_some());
        if let Some(text) = text {
            self.string(text);
        }
    }

    pub(super) fn unique_u32(&mut self, value: Option<u32>) {
        self.pointer(value.is_some());
        if let Some(value) = value {
            self.u32(value);
        }
    }

    /// Aligns to the start of a structure whose widest member has 4 bytes.
    pub(super) fn align4(&mut self) {
        Writer::within(&mut self.stub, 0).align(4);
    }

    /// Writes the number of an array's elements.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("fewer elements than fit memory"));
    }

    pub(super) fn handle(&mut self, handle: ContextHandle) {
        let mut writer = Writer::within(&mut self.stub, 0);
        writer.align(4);
        writer.bytes(&handle.0);
    }

    pub(super) fn sid(&mut self, sid: &Sid) {
        self.count(sid.sub_authorities().len());
        sid.encode(&mut Writer::within(&mut self.stub, 0));
    }

    /// Writes the fixed part of an RPC_UNICODE_STRING. [`Self::unicode_body`] must follow where its
    /// text belongs.
    pub(super) fn unicode_head(&mut self, text: &Text) {
        let length = u16::try_from(2 * units(text).len()).expect("texts are cut");
        let mut writer = Writer::within(&mut self.stub, 0);
        writer.align(4);
        writer.u16(length);
        writer.u16(length);
        self.pointer(!text.is_empty());
    }

    /// Writes the text of an RPC_UNICODE_STRING without a NUL; nothing for an empty text.
    pub(super) fn unicode_body(&mut self, text: &Text) {
        if text.is_empty() {
            return;
        }
        let units = units(text);
        self.count(units.len());
        self.u32(0);
        self.count(units.len());
        Writer::within(&mut self.stub, 0).units(units);
    }

    /// Writes an RPC_UNICODE_STRING as a parameter.
    pub(super) fn unicode(&mut self, text: &Text) {
        self.unicode_head(text);
        self.unicode_body(text);
    }
}

/// Returns the part of the text that is written.
fn units(text: &Text) -> &[u16] {
    &text.units()[..text.units().len().min(STRING_UNITS_MAX - 1)]
}
