//! The requests of one client, one after the other.

use std::time::SystemTime;

use ropeway_smb_server::ForeignClient;
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::names::without_extra_separators;
use ropeway_smb_wire::{FileTime, Guid, NtStatus, Text, Writer};
use ropeway_smb1::dos_error::status::{BAD_COMMAND, BAD_TID, BAD_UID, INVALID_SMB};
use ropeway_smb1::server::{Admitted, Connection, Transactions};
use ropeway_smb1::wire::close::encode_empty;
use ropeway_smb1::wire::echo::Echo;
use ropeway_smb1::wire::transaction::Kind;
use ropeway_smb1::{Block, Chain, ChainLinks, Command, Header, Str};

use crate::client::Client;
use crate::line::{Fault, Line};
use crate::tables::{File, Tables, Tree};

/// Most responses to one ECHO. A guess: clients ask for one.
const ECHOES_MAX: u16 = 4;

/// Writes the block of a response.
pub(crate) type Body = Box<dyn FnOnce(&mut Writer<'_>)>;

/// The response to one command.
pub(crate) struct Done {
    pub(crate) status: NtStatus,
    pub(crate) body: Body,
}

/// What a command comes to.
pub(crate) type Outcome = Result<Done, Fault>;

/// Returns a successful response.
pub(crate) fn done(body: impl FnOnce(&mut Writer<'_>) + 'static) -> Outcome {
    Ok(Done {
        status: NtStatus::SUCCESS,
        body: Box::new(body),
    })
}

/// One command of a message.
pub(crate) struct Call<'a> {
    /// The message's header, with the session and tree that commands before this one have made.
    pub(crate) header: Header,
    pub(crate) admitted: Admitted,
    pub(crate) block: &'a Block<'a>,
    /// The file that a command before this one has opened.
    pub(crate) opened: Option<u16>,
}

impl Call<'_> {
    pub(crate) fn is_unicode(&self) -> bool {
        self.header.is_unicode()
    }

    /// Returns the FID to use: in a chain, that of the file which the chain has opened ([MS-CIFS]
    /// 2.2.3.4).
    pub(crate) fn fid(&self, fid: u16) -> u16 {
        self.opened.unwrap_or(fid)
    }
}

/// The state of a client.
pub(crate) struct Conversation {
    pub(crate) foreign: ForeignInfo,
    pub(crate) state: Connection,
    pub(crate) line: Line,
    pub(crate) tables: Tables,
    pub(crate) transactions: Transactions,
    pub(crate) client: Client,
}

/// What is known of the server and its sessions.
pub(crate) type ForeignInfo = ropeway_smb_server::ForeignInfo;

impl Conversation {
    /// Serves a client until it leaves.
    ///
    /// # Errors
    /// Why the server ends the connection.
    pub(crate) fn serve(foreign: ForeignClient, state: Connection) -> Result<(), &'static str> {
        let reason = |fault| match fault {
            Fault::End(reason) => reason,
            Fault::Status(_) => "the line could not be opened",
        };
        let ForeignClient {
            socket,
            first,
            received,
            line,
            send_timeout,
            info,
            ..
        } = foreign;
        let client = Client::new(socket, received, send_timeout).map_err(|_| "its socket failed")?;
        let mut conversation = Self {
            foreign: info,
            state,
            line: Line::open(line, Guid::default()).map_err(reason)?,
            tables: Tables::new(),
            transactions: Transactions::default(),
            client,
        };
        let mut next = Some(first);
        while let Some(message) = next {
            conversation.execute(&message).map_err(reason)?;
            let length_max = conversation.state.message_len_max();
            let received = conversation
                .client
                .receive(conversation.line.stream(), length_max);
            next = received.map_err(reason)?;
        }
        Ok(())
    }

    /// Returns the time.
    pub(crate) fn wall_time() -> FileTime {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        FileTime::from_unix(i64::try_from(now.as_secs()).unwrap_or(0), now.subsec_nanos())
    }

    /// Executes a message and sends its responses.
    fn execute(&mut self, message: &[u8]) -> Result<(), Fault> {
        let admitted = self.state.receive(message).map_err(|fault| Fault::End(fault.0))?;
        let header = admitted.header;
        match header.command {
            Command::NT_CANCEL => return Ok(()),
            Command::ECHO => return self.echo(&admitted, message),
            _ => {}
        }
        if let Some(kind) = Kind::of_secondary(header.command) {
            return self.secondary(kind, &header, message);
        }
        if let Some(kind) = Kind::of(header.command) {
            return self.primary(kind, &admitted, message);
        }
        self.chain(admitted, message)
    }

    /// Executes the commands of a chain. The first that fails is the last ([MS-CIFS] 2.2.3.4).
    fn chain(&mut self, admitted: Admitted, message: &[u8]) -> Result<(), Fault> {
        let mut header = admitted.header;
        let mut admitted = admitted;
        let (mut opened, mut bodies, mut status) = (None, Vec::new(), NtStatus::SUCCESS);
        for link in ChainLinks::new(message, header.command) {
            let outcome = match link {
                Err(fault) => (header.command, Err(fault.into())),
                Ok((command, block)) => {
                    let mut call = Call {
                        header,
                        admitted,
                        block: &block,
                        opened,
                    };
                    let outcome = self.command(command, &mut call);
                    (header, admitted, opened) = (call.header, call.admitted, call.opened);
                    (command, outcome)
                }
            };
            match outcome {
                (command, Ok(done)) => {
                    bodies.push((command, done.body));
                    status = done.status;
                }
                (command, Err(Fault::Status(fault))) => {
                    bodies.push((command, Box::new(encode_empty) as Body));
                    status = fault;
                }
                (_, Err(end)) => return Err(end),
            }
            if status != NtStatus::SUCCESS {
                break;
            }
        }
        self.respond(&header, admitted.sequence, status, |w| {
            let mut chain = Chain::default();
            for (command, body) in bodies {
                chain.push(w, command, body);
            }
        })
    }

    /// Sends a response.
    pub(crate) fn respond(
        &mut self,
        header: &Header,
        sequence: u32,
        status: NtStatus,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Fault> {
        let mut frame = vec![0; FRAME_HEADER_LEN];
        let mut w = Writer::within(&mut frame, FRAME_HEADER_LEN);
        self.state.reply(header, status).encode(&mut w);
        encode(&mut w);
        self.state.finish(&mut frame[FRAME_HEADER_LEN..], sequence);
        self.client.send(frame)
    }

    fn command(&mut self, command: Command, call: &mut Call<'_>) -> Outcome {
        match command {
            Command::NEGOTIATE => {
                let mut block = Vec::new();
                let header = call.header;
                // The block's offsets do not count from the header.
                self.state
                    .negotiate(&header, Self::wall_time(), &mut Writer::new(&mut block));
                done(move |w| w.bytes(&block))
            }
            Command::SESSION_SETUP_ANDX => self.session_setup(call),
            Command::LOGOFF_ANDX => self.log_off(call),
            Command::TREE_CONNECT_ANDX => self.tree_connect(call),
            Command::TREE_CONNECT => self.old_tree_connect(call),
            Command::TREE_DISCONNECT => self.tree_disconnect(call),
            Command::NT_CREATE_ANDX => self.nt_create(call),
            Command::OPEN_ANDX => self.open_andx(call),
            Command::OPEN => self.old_open(call),
            Command::CREATE => self.old_create(call, false),
            Command::CREATE_NEW => self.old_create(call, true),
            Command::CLOSE => self.close(call),
            Command::FLUSH => self.flush(call),
            Command::READ_ANDX => self.read_andx(call),
            Command::WRITE_ANDX => self.write_andx(call),
            Command::READ => self.old_read(call),
            Command::WRITE => self.old_write(call),
            Command::LOCKING_ANDX => self.locking(call),
            Command::DELETE => self.delete(call),
            Command::RENAME => self.rename(call),
            Command::NT_RENAME => self.nt_rename(call),
            Command::CREATE_DIRECTORY => self.create_directory(call),
            Command::DELETE_DIRECTORY => self.delete_directory(call),
            Command::CHECK_DIRECTORY => self.check_directory(call),
            Command::QUERY_INFORMATION => self.query_information(call),
            Command::SET_INFORMATION => self.set_information(call),
            Command::QUERY_INFORMATION2 => self.query_information2(call),
            Command::SET_INFORMATION2 => self.set_information2(call),
            Command::QUERY_INFORMATION_DISK => self.query_information_disk(call),
            Command::FIND_CLOSE2 => self.find_close(call),
            _ => Err(BAD_COMMAND.into()),
        }
    }

    /// Answers ECHO, which needs no session.
    fn echo(&mut self, admitted: &Admitted, message: &[u8]) -> Result<(), Fault> {
        let block = Block::first(message).map_err(|_| Fault::End("a malformed message"))?;
        let Ok(request) = Echo::decode(&block) else {
            return self.respond(&admitted.header, admitted.sequence, INVALID_SMB, encode_empty);
        };
        for number in 1..=request.number.min(ECHOES_MAX) {
            let echo = Echo { number, ..request };
            self.respond(&admitted.header, admitted.sequence, NtStatus::SUCCESS, |w| {
                echo.encode(w);
            })?;
        }
        Ok(())
    }

    /// Returns the tree of a request.
    pub(crate) fn tree(&self, header: &Header) -> Result<Tree, Fault> {
        let session = self.state.session(header.uid).ok_or(BAD_UID)?;
        let tree = self.tables.trees.get(header.tid).copied();
        let tree = tree.filter(|tree| tree.place.session == session);
        Ok(tree.ok_or(BAD_TID)?)
    }

    /// Returns the tree of a request for files.
    pub(crate) fn disk(&self, header: &Header) -> Result<Tree, Fault> {
        let tree = self.tree(header)?;
        match tree.is_ipc {
            true => Err(NtStatus::BAD_DEVICE_TYPE.into()),
            false => Ok(tree),
        }
    }

    /// Returns an open file of a request's session and tree.
    pub(crate) fn file(&self, header: &Header, fid: u16) -> Result<File, Fault> {
        let tree = self.tree(header)?;
        let file = self.tables.files.get(fid).filter(|file| file.place == tree.place);
        Ok(file.cloned().ok_or(NtStatus::INVALID_HANDLE)?)
    }

    /// Returns the path of a string: without separators at its beginning and end, and with single ones
    /// between names.
    pub(crate) fn path(&self, string: &Str) -> Text {
        without_extra_separators(&self.state.text(string))
    }
}
