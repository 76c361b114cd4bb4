//! AV pairs: what server and client tell each other under the proof ([MS-NLMP] 2.2.2.1).

use ropeway_smb_wire::{Fault, Reader, Result, Text};

/// What a pair is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvId(pub u16);

impl AvId {
    /// The end of the list.
    pub const EOL: Self = Self(0);
    /// The server's NetBIOS name.
    pub const NB_COMPUTER_NAME: Self = Self(1);
    /// Its domain's NetBIOS name.
    pub const NB_DOMAIN_NAME: Self = Self(2);
    /// Its DNS name.
    pub const DNS_COMPUTER_NAME: Self = Self(3);
    /// Its domain's DNS name.
    pub const DNS_DOMAIN_NAME: Self = Self(4);
    /// Its forest's DNS name.
    pub const DNS_TREE_NAME: Self = Self(5);
    /// 32 bits; [`AvPairs::FLAG_MIC`].
    pub const FLAGS: Self = Self(6);
    /// The server's time, 100 ns since 1601-01-01 UTC.
    pub const TIMESTAMP: Self = Self(7);
    /// What the client's machine is.
    pub const SINGLE_HOST: Self = Self(8);
    /// The name of the service that the client wants, such as `cifs/server`.
    pub const TARGET_NAME: Self = Self(9);
    /// MD5 of the channel's binding, zeros if there is none.
    pub const CHANNEL_BINDINGS: Self = Self(10);
}

/// A list of pairs, in order, without its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvPairs<'a>(Vec<(AvId, std::borrow::Cow<'a, [u8]>)>);

impl<'a> AvPairs<'a> {
    /// In [`AvId::FLAGS`]: AUTHENTICATE carries a MIC.
    pub const FLAG_MIC: u32 = 2;

    /// Reads until the end's mark, which must be there; what follows it is left.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "AV_PAIR");
        let mut pairs = Vec::new();
        // Every pair takes at least 4 bytes, so the list is bound by the message.
        loop {
            let id = AvId(reader.u16()?);
            let length = usize::from(reader.u16()?);
            let value = reader.bytes(length)?;
            if id == AvId::EOL {
                return Ok(Self(pairs));
            }
            pairs.push((id, value.into()));
        }
    }

    /// The bytes, with the end's mark.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, value) in &self.0 {
            let length = u16::try_from(value.len()).expect("a pair of ours is short");
            bytes.extend(id.0.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend_from_slice(value);
        }
        bytes.extend([0; 4]);
        bytes
    }

    /// The first value of that id.
    pub fn get(&self, id: AvId) -> Option<&[u8]> {
        self.0.iter().find(|pair| pair.0 == id).map(|pair| &*pair.1)
    }

    /// Replaces the pairs of that id, or adds one at the end.
    pub fn set(&mut self, id: AvId, value: Vec<u8>) {
        match self.0.iter().position(|pair| pair.0 == id) {
            Some(at) => self.0[at].1 = value.into(),
            None => self.0.push((id, value.into())),
        }
    }

    /// [`set`](Self::set) to text.
    pub fn set_text(&mut self, id: AvId, text: &Text) {
        self.set(
            id,
            text.units().iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        );
    }

    /// [`AvId::TIMESTAMP`], 100 ns since 1601-01-01 UTC.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Value`] if it is there and has not 8 bytes.
    pub fn timestamp(&self) -> Result<Option<u64>> {
        self.number(AvId::TIMESTAMP)
            .map(|time| time.map(u64::from_le_bytes))
    }

    /// [`AvId::FLAGS`]; 0 if there is none.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Value`] if it is there and has not 4 bytes.
    pub fn flags(&self) -> Result<u32> {
        self.number(AvId::FLAGS)
            .map(|flags| flags.map_or(0, u32::from_le_bytes))
    }

    fn number<const N: usize>(&self, id: AvId) -> Result<Option<[u8; N]>> {
        let Some(value) = self.get(id) else {
            return Ok(None);
        };
        let mut reader = Reader::new(value, "AV_PAIR");
        let number = reader.array()?;
        if reader.remaining() > 0 {
            return Err(reader.fault(Fault::Value));
        }
        Ok(Some(number))
    }
}
