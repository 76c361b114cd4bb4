//! A client of SMB 1 without extended security.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::frame::frame_header;
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{FileTime, NtStatus, Text, Writer};
use ropeway_smb1::auth::Responses;
use ropeway_smb1::code_page::CodePage;
use ropeway_smb1::dos_time::Zone;
use ropeway_smb1::wire::create::{CreateRequest, CreateResponse, CreateWords};
use ropeway_smb1::wire::negotiate::{Capabilities, Greeting, NegotiateResponse};
use ropeway_smb1::wire::path::RenameRequest;
use ropeway_smb1::wire::session_setup::{Proof, SessionSetupRequest, SetupWords};
use ropeway_smb1::wire::tree_connect::{SERVICE_ANY, TreeConnectRequest, TreeFlags};
use ropeway_smb1::wire::write::{WriteMode, WriteRequest};
use ropeway_smb1::{AndX, Block, Command, Flags2, Header, Str};
use ropeway_smb1_server::Smb1Server;

use crate::serve::Serve;

/// Time after which the server counts as hung: longer than any operation.
const HANG: Duration = Duration::from_secs(20);

/// A server that speaks SMB 1, too, to clients that do not sign.
pub(crate) fn server(folder: &Path) -> Serve {
    Serve::with(folder, |options| {
        options.config.signing_required = false;
        options.foreign = Some(Arc::new(Smb1Server {
            code_page: CodePage::default(),
            zone: Zone::default(),
            on_client: Arc::new(|_| {}),
        }));
    })
}

/// A connection.
pub(crate) struct Old {
    socket: TcpStream,
    pub(crate) header: Header,
}

impl Old {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        let flags2 = Flags2::NT_STATUS | Flags2::UNICODE | Flags2::LONG_NAMES;
        let header = Header {
            flags2,
            pid: 7,
            ..Header::default()
        };
        Self { socket, header }
    }

    /// Logs in and connects to the share `data`.
    pub(crate) fn ready(address: SocketAddr) -> Self {
        let mut old = Self::connect(address);
        let challenge = old.negotiate(&["NT LM 0.12"]).unwrap();
        assert_eq!(old.log_in("secret", challenge), NtStatus::SUCCESS);
        assert_eq!(old.tree("data"), NtStatus::SUCCESS);
        old
    }

    /// Sends a message; it need not be one.
    pub(crate) fn send(&mut self, message: &[u8]) {
        // A server that has ended the connection may say so here.
        _ = self.socket.write_all(&frame_header(message.len()));
        _ = self.socket.write_all(message);
    }

    /// Returns the next message; `None` at the end of the connection.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        match self.socket.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server hangs"),
            Err(_) => return None,
        }
        let mut message = vec![0; u32::from_be_bytes(head) as usize];
        self.socket.read_exact(&mut message).ok()?;
        Some(message)
    }

    pub(crate) fn message(&mut self, command: Command, encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        self.header.command = command;
        self.header.mid = self.header.mid.wrapping_add(1);
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        self.header.encode(&mut w);
        encode(&mut w);
        message
    }

    pub(crate) fn call(
        &mut self,
        command: Command,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Option<(Header, Vec<u8>)> {
        let message = self.message(command, encode);
        self.send(&message);
        let reply = self.receive()?;
        Some((Header::decode(&reply).unwrap(), reply))
    }

    /// Returns the challenge; `None` if the server ends the connection.
    pub(crate) fn negotiate(&mut self, dialects: &[&str]) -> Option<[u8; 8]> {
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        self.header.command = Command::NEGOTIATE;
        self.header.encode(&mut w);
        let names: Vec<u8> = dialects
            .iter()
            .flat_map(|name| [b"\x02", name.as_bytes(), b"\0"].concat())
            .collect();
        w.u8(0);
        w.u16(names.len() as u16);
        w.bytes(&names);
        assert!(Smb1NegotiateRequest::decode(&message).is_ok());
        self.send(&message);
        let reply = self.receive()?;
        match NegotiateResponse::decode(&Block::first(&reply).ok()?, true).ok()? {
            NegotiateResponse::NtLm(_, Greeting::Challenge { challenge, .. }) => challenge.try_into().ok(),
            _ => None,
        }
    }

    pub(crate) fn log_in(&mut self, password: &str, challenge: [u8; 8]) -> NtStatus {
        let names = (&Text::from("alice"), &Text::from("WORK"));
        let hash = nt_hash(&Password::from(password));
        let responses = Responses::ntlm_v2(&hash, names, challenge, [1; 8], FileTime(7));
        self.prove(responses.lm, responses.nt)
    }

    pub(crate) fn prove(&mut self, lm: Vec<u8>, nt: Vec<u8>) -> NtStatus {
        let request = SessionSetupRequest {
            words: SetupWords {
                max_buffer_size: 16_644,
                max_mpx_count: 50,
                ..SetupWords::default()
            },
            capabilities: Capabilities::UNICODE | Capabilities::STATUS32,
            proof: Proof::Responses {
                lm,
                nt,
                user: Str::unicode(&Text::from("alice")),
                domain: Str::unicode(&Text::from("WORK")),
            },
            native_os: Str::default(),
            native_lan_man: Str::default(),
        };
        let reply = self.call(Command::SESSION_SETUP_ANDX, |w| request.encode(w));
        let (header, _) = reply.unwrap();
        self.header.uid = header.uid;
        header.status
    }

    pub(crate) fn tree(&mut self, share: &str) -> NtStatus {
        let request = TreeConnectRequest {
            andx: AndX::NONE,
            flags: TreeFlags::default(),
            password: vec![0],
            path: Str::unicode(&Text::from(format!("\\\\127.0.0.1\\{share}").as_str())),
            service: SERVICE_ANY.to_vec(),
        };
        let (header, _) = self
            .call(Command::TREE_CONNECT_ANDX, |w| request.encode(w))
            .unwrap();
        self.header.tid = header.tid;
        header.status
    }

    pub(crate) fn open_request(name: &str, access: u32, sharing: u32, disposition: u32) -> CreateRequest {
        CreateRequest {
            words: CreateWords {
                desired_access: access,
                share_access: sharing,
                create_disposition: disposition,
                impersonation_level: 2,
                ..CreateWords::default()
            },
            name: Str::unicode(&Text::from(name)),
        }
    }

    /// Opens a file, or makes it.
    pub(crate) fn open(&mut self, name: &str, access: u32, sharing: u32) -> Result<u16, NtStatus> {
        let request = Self::open_request(name, access, sharing, 3);
        let (header, reply) = self.call(Command::NT_CREATE_ANDX, |w| request.encode(w)).unwrap();
        match header.status {
            NtStatus::SUCCESS => Ok(CreateResponse::decode(&Block::first(&reply).unwrap())
                .unwrap()
                .fid),
            status => Err(status),
        }
    }

    pub(crate) fn write_message(&mut self, fid: u16, offset: u64, data: &[u8]) -> Vec<u8> {
        let request = WriteRequest {
            andx: AndX::NONE,
            fid,
            offset,
            mode: WriteMode::default(),
            length: data.len(),
            is_large: true,
        };
        self.message(Command::WRITE_ANDX, |w| {
            request.encode_head(w);
            w.bytes(data);
        })
    }

    pub(crate) fn rename_message(&mut self, from: &str, to: &str) -> Vec<u8> {
        let request = RenameRequest {
            search_attributes: 0x16,
            from: Str::unicode(&Text::from(from)),
            to: Str::unicode(&Text::from(to)),
        };
        self.message(Command::RENAME, |w| request.encode(w))
    }

    /// Receives a response and returns its status.
    pub(crate) fn status(&mut self) -> NtStatus {
        Header::decode(&self.receive().unwrap()).unwrap().status
    }
}
