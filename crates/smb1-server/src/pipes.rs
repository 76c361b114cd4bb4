//! TRANSACTION: messages to named pipes ([MS-CIFS] 3.3.5.57), and RAP on `\PIPE\LANMAN` ([MS-RAP]).

use ropeway_smb_wire::{NtStatus, Reader, Text, Writer};
use ropeway_smb1::dos_error::status::INVALID_SMB;
use ropeway_smb1::server::{Answer, Transaction};
use ropeway_smb1::wire::rap::{self, ShareEntry, ShareList};

use crate::conversation::Conversation;
use crate::line::Fault;
use crate::transact::with_parameters;

/// Functions of named pipes ([MS-CIFS] 2.2.5).
const SET_STATE: u16 = 0x0001;
const QUERY_STATE: u16 = 0x0021;
const TRANSCEIVE: u16 = 0x0026;
const WAIT: u16 = 0x0053;

/// State of a pipe: messages, one instance at most.
const PIPE_STATE: u16 = 0x05FF;

/// Kind of a share with pipes, and of one with files.
const KIND_IPC: u16 = 3;
const KIND_DISK: u16 = 0;

/// SV_TYPE_WORKSTATION, SERVER and NT, as the server says by RPC.
const SERVER_TYPE: u32 = 0x1003;

/// The server's version: that of Windows NT 4, as Samba says to RAP.
const VERSION: [u8; 2] = [4, 9];

impl Conversation {
    pub(crate) fn named(&mut self, request: &Transaction) -> Result<(Answer, NtStatus), Fault> {
        if !self.tree(&request.header())?.is_ipc {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        let name = self.state.text(&request.name).to_string_lossy();
        if name.eq_ignore_ascii_case(rap::PIPE) {
            return Ok((self.remote_call(request)?, NtStatus::SUCCESS));
        }
        let [function, fid, ..] = request.setup[..] else {
            return Err(INVALID_SMB.into());
        };
        match function {
            TRANSCEIVE => {
                let file = self.file(&request.header(), fid)?;
                let max = usize::try_from(request.limits.data).unwrap_or(usize::MAX);
                let (data, status) = self.line.transceive(file.place, file.id, &request.data, max)?;
                let answer = Answer {
                    data,
                    ..Answer::default()
                };
                Ok((answer, status))
            }
            SET_STATE => {
                self.file(&request.header(), fid)?;
                Ok((Answer::default(), NtStatus::SUCCESS))
            }
            QUERY_STATE => {
                self.file(&request.header(), fid)?;
                let state = with_parameters(PIPE_STATE.to_le_bytes().to_vec());
                Ok((state, NtStatus::SUCCESS))
            }
            // Pipes are always ready.
            WAIT => Ok((Answer::default(), NtStatus::SUCCESS)),
            _ => Err(NtStatus::NOT_SUPPORTED.into()),
        }
    }

    /// Answers a remote call of LAN Manager.
    fn remote_call(&self, request: &Transaction) -> Result<Answer, Fault> {
        let call = rap::Call::decode(&request.parameters)?;
        let mut rest = Reader::new(call.rest, "RAP request");
        let mut level = || rest.u16();
        match call.number {
            rap::NET_SHARE_ENUM => {
                if level()? != 1 {
                    return Ok(error(rap::INVALID_LEVEL));
                }
                let room = usize::from(rest.u16()?);
                let (parameters, data) = ShareList::encode(&self.share_entries(), room);
                Ok(Answer {
                    setup: Vec::new(),
                    parameters,
                    data,
                })
            }
            rap::NET_SERVER_GET_INFO => Ok(self.server_info(level()?)),
            rap::NET_WKSTA_GET_INFO => Ok(self.workstation_info(level()?)),
            _ => Ok(error(rap::INVALID_API)),
        }
    }

    fn share_entries(&self) -> Vec<ShareEntry> {
        let bytes = |text: &str| {
            let string = self.state.string(&Text::from(text), false);
            string.as_bytes().to_vec()
        };
        let disks = self
            .foreign
            .shares()
            .into_iter()
            .map(|(name, comment)| ShareEntry {
                name: bytes(&name),
                kind: KIND_DISK,
                remark: bytes(&comment),
            });
        let ipc = ShareEntry {
            name: bytes("IPC$"),
            kind: KIND_IPC,
            remark: bytes("Remote IPC"),
        };
        disks.chain([ipc]).collect()
    }

    fn netbios_name(&self) -> Vec<u8> {
        let name = &self.state.config().names.netbios_computer;
        let mut name = self.state.string(name, false).as_bytes().to_vec();
        name.truncate(15);
        name
    }

    /// NetServerGetInfo ([MS-RAP] 2.5.7).
    fn server_info(&self, level: u16) -> Answer {
        let name = self.netbios_name();
        let mut data = Vec::new();
        let mut w = Writer::new(&mut data);
        w.bytes(&name);
        w.zeros(16 - name.len());
        match level {
            0 => {}
            1 => {
                w.bytes(&VERSION);
                w.u32(SERVER_TYPE);
                // Offset of the comment, which follows.
                w.u16(26);
                w.u16(0);
                w.bytes(b"Ropeway\0");
            }
            _ => return error(rap::INVALID_LEVEL),
        }
        with_data(data)
    }

    /// NetWkstaGetInfo ([MS-RAP] 2.5.9): names of the server, its user, its domain.
    fn workstation_info(&self, level: u16) -> Answer {
        if level != 10 {
            return error(rap::INVALID_LEVEL);
        }
        /// Bytes before the strings.
        const FIXED: usize = 22;
        let name = self.netbios_name();
        let texts: [&[u8]; 5] = [&name, b"", &name, &name, b""];
        let (mut strings, mut places) = (Vec::new(), Vec::new());
        for text in texts {
            places.push((FIXED + strings.len()) as u16);
            strings.extend_from_slice(text);
            strings.push(0);
        }
        let mut data = Vec::new();
        let mut w = Writer::new(&mut data);
        for (at, place) in places.iter().enumerate() {
            if at == 3 {
                w.bytes(&VERSION);
            }
            w.u16(*place);
            w.u16(0);
        }
        w.bytes(&strings);
        with_data(data)
    }
}

/// Returns a structure: success, no converter, and the bytes that are there.
fn with_data(data: Vec<u8>) -> Answer {
    let mut parameters = Vec::new();
    let mut w = Writer::new(&mut parameters);
    w.u16(rap::SUCCESS);
    w.u16(0);
    w.u16(data.len() as u16);
    Answer {
        setup: Vec::new(),
        parameters,
        data,
    }
}

fn error(code: u16) -> Answer {
    let mut parameters = Vec::new();
    let mut w = Writer::new(&mut parameters);
    w.u16(code);
    w.zeros(6);
    with_parameters(parameters)
}
