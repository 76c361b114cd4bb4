//! RAP, the remote calls of LAN Manager, over TRANSACTION on `\PIPE\LANMAN` ([MS-RAP]).
//!
//! Only what lists shares and names a server is here. Calls and structures are described by strings
//! of letters, which servers and clients compare, not parse: [MS-RAP] 2.5.1 fixes them for each
//! call.

use ropeway_smb_wire::{DecodeErrorKind, Reader, Result, Writer};

/// Name of the transaction.
pub const PIPE: &str = "\\PIPE\\LANMAN";

/// NetShareEnum ([MS-RAP] 2.5.5).
pub const NET_SHARE_ENUM: u16 = 0;
/// NetShareGetInfo (2.5.6).
pub const NET_SHARE_GET_INFO: u16 = 1;
/// NetServerGetInfo (2.5.7).
pub const NET_SERVER_GET_INFO: u16 = 13;
/// NetWkstaGetInfo (2.5.9).
pub const NET_WKSTA_GET_INFO: u16 = 63;
/// NetServerEnum2 (2.5.7).
pub const NET_SERVER_ENUM2: u16 = 104;

/// `Win32ErrorCode` of success.
pub const SUCCESS: u16 = 0;
/// More than fits (ERROR_MORE_DATA).
pub const MORE_DATA: u16 = 234;
/// The level is unknown (ERROR_INVALID_LEVEL).
pub const INVALID_LEVEL: u16 = 124;
/// The call is unknown (NERR_InvalidAPI).
pub const INVALID_API: u16 = 2142;
/// There is no such share (NERR_NetNameNotFound).
pub const NET_NAME_NOT_FOUND: u16 = 2310;

/// Bytes of a share's name with its zero.
const NAME_LEN: usize = 13;
/// Bytes of a share's remark that are read. LAN Manager's have 48 at most; a guess above that.
const REMARK_LEN_MAX: usize = 256;
/// Bytes of an entry of level 1.
const SHARE_ENTRY_LEN: usize = 20;

/// The start of a call: its number, and the descriptions of its parameters and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The call.
    pub number: u16,
    /// `ParamDesc`.
    pub parameters: &'a [u8],
    /// `DataDesc`.
    pub data: &'a [u8],
    /// The parameters themselves.
    pub rest: &'a [u8],
}

impl<'a> Call<'a> {
    /// Decodes the parameters of a transaction.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(parameters, "RAP request");
        let number = reader.u16()?;
        let mut description = || -> Result<&'a [u8]> {
            let rest = reader.message().get(reader.position()..).unwrap_or_default();
            let end = rest.iter().position(|byte| *byte == 0);
            let end = end.ok_or(reader.error(DecodeErrorKind::Truncated))?;
            let text = reader.bytes(end)?;
            reader.skip(1)?;
            Ok(text)
        };
        let (parameters, data) = (description()?, description()?);
        Ok(Self {
            number,
            parameters,
            data,
            rest: reader.rest(),
        })
    }

    /// Returns the parameters of a transaction.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u16(self.number);
        for text in [self.parameters, self.data] {
            w.bytes(text);
            w.u8(0);
        }
        w.bytes(self.rest);
        out
    }
}

/// Returns the parameters of a call that lists shares, with room for `max` bytes.
pub fn share_enum(max: u16) -> Vec<u8> {
    let mut rest = Vec::new();
    let mut w = Writer::new(&mut rest);
    w.u16(1);
    w.u16(max);
    Call {
        number: NET_SHARE_ENUM,
        parameters: b"WrLeh",
        data: b"B13BWz",
        rest: &rest,
    }
    .to_bytes()
}

/// A share as RAP describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareEntry {
    /// Name: at most 12 bytes of the server's code page.
    pub name: Vec<u8>,
    /// Kind: disk 0, printer 1, device 2, IPC 3.
    pub kind: u16,
    /// Description.
    pub remark: Vec<u8>,
}

/// Response to a call that lists shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareList {
    /// Error of Windows; 0 for success.
    pub error: u16,
    /// The shares.
    pub shares: Vec<ShareEntry>,
    /// Number of shares of the server.
    pub available: u16,
}

impl ShareList {
    /// Decodes parameters and data of a response.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(parameters, "RAP response");
        let error = reader.u16()?;
        if error != SUCCESS && error != MORE_DATA {
            return Ok(Self {
                error,
                shares: Vec::new(),
                available: 0,
            });
        }
        let converter = reader.u16()?;
        let count = reader.u16()?;
        let available = reader.u16()?;
        let mut reader = Reader::new(data, "NetShareInfo1");
        let mut shares = Vec::new();
        for _ in 0..count {
            let name = until_zero(reader.bytes(NAME_LEN)?).to_vec();
            reader.skip(1)?;
            let kind = reader.u16()?;
            let remark_at = usize::from(reader.u16()?.wrapping_sub(converter));
            reader.skip(2)?;
            let remark = data.get(remark_at..).unwrap_or_default();
            // Remarks may overlap, so that all together could be far longer than the message.
            let remark = &remark[..remark.len().min(REMARK_LEN_MAX)];
            shares.push(ShareEntry {
                name,
                kind,
                remark: until_zero(remark).to_vec(),
            });
        }
        Ok(Self {
            error,
            shares,
            available,
        })
    }

    /// Returns parameters and data of a response with as many shares as `max` bytes hold. Shares
    /// with names that RAP cannot hold are left out.
    pub fn encode(shares: &[ShareEntry], max: usize) -> (Vec<u8>, Vec<u8>) {
        let fits = |share: &&ShareEntry| share.name.len() < NAME_LEN;
        let shown: Vec<&ShareEntry> = shares.iter().filter(fits).collect();
        let mut length = 0;
        let count = shown
            .iter()
            .take_while(|share| {
                length += SHARE_ENTRY_LEN + share.remark.len() + 1;
                length <= max.min(usize::from(u16::MAX))
            })
            .count();
        let (mut data, mut remarks) = (Vec::new(), Vec::new());
        let mut w = Writer::new(&mut data);
        for share in &shown[..count] {
            w.bytes(&share.name);
            w.zeros(NAME_LEN + 1 - share.name.len());
            w.u16(share.kind);
            w.u16((count * SHARE_ENTRY_LEN + remarks.len()) as u16);
            w.u16(0);
            remarks.extend_from_slice(&share.remark);
            remarks.push(0);
        }
        w.bytes(&remarks);
        let mut parameters = Vec::new();
        let mut w = Writer::new(&mut parameters);
        w.u16(if count < shown.len() { MORE_DATA } else { SUCCESS });
        w.u16(0);
        w.u16(count as u16);
        w.u16(shown.len().min(usize::from(u16::MAX)) as u16);
        (parameters, data)
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile;

    fn share(name: &str, remark: &str) -> ShareEntry {
        ShareEntry {
            name: name.as_bytes().to_vec(),
            kind: 0,
            remark: remark.as_bytes().to_vec(),
        }
    }

    #[test]
    fn lists_of_shares_round_trip() {
        let shares = [share("DATA", "all of it"), share("x", ""), share("IPC$", "pipes")];
        let (parameters, data) = ShareList::encode(&shares, 1000);
        let list = ShareList::decode(&parameters, &data).unwrap();
        assert_eq!(
            (list.error, list.shares.as_slice(), list.available),
            (0, &shares[..], 3)
        );
        let (parameters, data) = ShareList::encode(&shares, 40);
        let list = ShareList::decode(&parameters, &data).unwrap();
        assert_eq!((list.error, list.shares.len(), list.available), (MORE_DATA, 1, 3));
        let long = [share("a name that is too long", ""), share("ok", "")];
        let (parameters, data) = ShareList::encode(&long, 1000);
        assert_eq!(ShareList::decode(&parameters, &data).unwrap().shares, long[1..]);
        hostile::attack(&data, 0, |data| ShareList::decode(&parameters, data).is_ok());
        hostile::attack(&parameters, 0, |parameters| {
            ShareList::decode(parameters, &data).is_ok()
        });
    }

    /// All remarks of a response may be the same bytes; 64 KiB would become 200 MiB.
    #[test]
    fn remarks_that_overlap_stay_short() {
        let count = 1000_u16;
        let parameters: Vec<u8> = [0, 0, count, count]
            .iter()
            .flat_map(|n: &u16| n.to_le_bytes())
            .collect();
        let data = vec![b'x'; 60_000];
        let list = ShareList::decode(&parameters, &data).unwrap();
        assert_eq!(list.shares.len(), usize::from(count));
        assert!(
            list.shares
                .iter()
                .all(|share| share.remark.len() <= REMARK_LEN_MAX)
        );
    }

    #[test]
    fn calls_round_trip() {
        let bytes = share_enum(4096);
        let call = Call::decode(&bytes).unwrap();
        assert_eq!(
            (call.number, call.parameters, call.data),
            (0, &b"WrLeh"[..], &b"B13BWz"[..])
        );
        assert_eq!(call.rest, [1, 0, 0, 16]);
        assert_eq!(call.to_bytes(), bytes);
        hostile::attack(&bytes, 0, |bytes| Call::decode(bytes).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_none(parameters: Vec<u8>, data: Vec<u8>) {
            _ = ShareList::decode(&parameters, &data);
        }
    }
}
