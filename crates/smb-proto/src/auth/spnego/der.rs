//! The little of DER (X.690) that SPNEGO needs.

use ropeway_smb_wire::{Fault, Malformed, Reader, Result};

/// Identifier octets: class, whether constructed, number.
pub(super) mod tag {
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const ENUMERATED: u8 = 0x0A;
    pub(crate) const GENERAL_STRING: u8 = 0x1B;
    pub(crate) const SEQUENCE: u8 = 0x30;
    /// GSS-API's frame of a first token (RFC 2743 3.1).
    pub(crate) const APPLICATION_0: u8 = 0x60;
    /// `[n]`, explicit; `n` below 31.
    pub(crate) const fn context(n: u8) -> u8 {
        0xA0 | n
    }
}

/// Elements one after the other.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(Reader<'a>);

impl<'a> Der<'a> {
    pub(super) fn new(bytes: &'a [u8], structure: &'static str) -> Self {
        Self(Reader::new(bytes, structure))
    }

    pub(super) fn fault(&self, fault: Fault) -> Malformed {
        self.0.fault(fault)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.remaining() == 0
    }

    /// The next element's tag, not consumed.
    pub(super) fn peek(&self) -> Option<u8> {
        let mut ahead = self.0;
        ahead.u8().ok()
    }

    /// The next element, tag and contents.
    pub(super) fn any(&mut self) -> Result<(u8, &'a [u8])> {
        let tag = self.0.u8()?;
        // Numbers above 30 take more octets; SPNEGO has none.
        if tag & 0x1F == 0x1F {
            return Err(self.0.fault(Fault::Value));
        }
        let length = match self.0.u8()? {
            short @ 0..=0x7F => usize::from(short),
            // Lengths that could be shorter are taken as they are: peers exist that are no stricter than BER.
            long @ 0x81..=0x84 => {
                let mut length = 0;
                for _ in 0..long - 0x80 {
                    length = length << 8 | usize::from(self.0.u8()?);
                }
                length
            }
            _ => return Err(self.0.fault(Fault::Value)),
        };
        Ok((tag, self.0.bytes(length)?))
    }

    /// The contents of the next element, which must have that tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<&'a [u8]> {
        let fault = self.0.fault(Fault::Signature);
        match self.any()? {
            (found, contents) if found == tag => Ok(contents),
            _ => Err(fault),
        }
    }

    /// The elements within the next one, which must have that tag.
    pub(super) fn within(&mut self, tag: u8, structure: &'static str) -> Result<Self> {
        Ok(Self::new(self.expect(tag)?, structure))
    }

    /// What `[n]` holds, if that is next.
    pub(super) fn optional(&mut self, n: u8, structure: &'static str) -> Result<Option<Self>> {
        if self.peek() == Some(tag::context(n)) {
            self.within(tag::context(n), structure).map(Some)
        } else {
            Ok(None)
        }
    }
}

/// An element of that tag around the contents.
pub(super) fn element(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let length: usize = contents.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + 6);
    out.push(tag);
    let octets = length.to_be_bytes();
    let octets = &octets[octets.iter().take_while(|octet| **octet == 0).count()..];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        out.push(0x80 | octets.len() as u8);
        out.extend(octets);
    }
    for part in contents {
        out.extend_from_slice(part);
    }
    out
}

/// `[n]` around an element, or nothing.
pub(super) fn optional(n: u8, inner: u8, contents: Option<&[u8]>) -> Vec<u8> {
    contents.map_or_else(Vec::new, |contents| {
        element(tag::context(n), &[&element(inner, &[contents])])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_take_the_fewest_octets() {
        for (length, head) in [
            (0, &[0x04, 0][..]),
            (127, &[0x04, 127]),
            (128, &[0x04, 0x81, 128]),
            (256, &[0x04, 0x82, 1, 0]),
            (70_000, &[0x04, 0x83, 1, 0x11, 0x70]),
        ] {
            let contents = vec![7; length];
            let bytes = element(tag::OCTET_STRING, &[&contents]);
            assert_eq!(bytes[..head.len()], *head);
            let mut der = Der::new(&bytes, "test");
            assert_eq!(der.expect(tag::OCTET_STRING), Ok(&contents[..]));
            assert!(der.is_empty());
        }
    }

    #[test]
    fn indefinite_and_endless_lengths_are_refused() {
        for bytes in [
            &[0x30, 0x80, 0, 0][..],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
            &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0x1F, 0x01, 0],
            &[0x30],
        ] {
            assert!(Der::new(bytes, "test").any().is_err());
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut der = Der::new(&bytes, "test");
            while let Ok((_, contents)) = der.any() {
                let _ = Der::new(contents, "test").any();
            }
        }
    }
}
