//! A server in memory whose volume has reparse points, as Windows' has and Samba's has not: SMB 2.1, unsigned, one thread.
//!
//! It keeps to what matters here: CREATE does not follow a link that it was told not to follow, refuses a path through one
//! with the link's data ([MS-SMB2] 3.3.5.9), and sets and gives reparse data as they are.

#[path = "server/quirks.rs"]
mod quirks;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::auth::ntlm::{NtlmServer, ServerNames, nt_hash};
use ropeway_smb_proto::auth::spnego::SpnegoServer;
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::close::{CloseRequest, CloseResponse};
use ropeway_smb_wire::create::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags,
    OplockLevel,
};
use ropeway_smb_wire::error::{ErrorResponse, SymlinkError};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink};
use ropeway_smb_wire::header::{Chain, Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::info::{
    FileAllInformation, FileBasicInformation, FileDispositionInformation, FileFsAttributeInformation,
    FileFsFullSizeInformation, FileFsVolumeInformation, FileInfoClass, FileRenameInformation, FsAttributes,
    FsInfoClass, Information as _,
};
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, DialectRevision, NegotiateResponse, SecurityMode};
use ropeway_smb_wire::query_directory::{QueryDirectoryRequest, QueryDirectoryResponse};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoRequest, QueryInfoResponse};
use ropeway_smb_wire::read::{ReadRequest, ReadResponse};
use ropeway_smb_wire::session_setup::{SessionFlags, SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::tree_connect::{ShareType, TreeConnectResponse};
use ropeway_smb_wire::write::{WriteRequest, WriteResponse};
use ropeway_smb_wire::{
    FileAttributes, FileId, FileTime, Guid, NtStatus, Reader, SessionId, TreeId, Writer, bare,
};

pub(crate) use quirks::Quirks;

type Answer = Result<Vec<u8>, Refused>;

/// A status, and what the ERROR response carries.
struct Refused(NtStatus, Vec<u8>);

impl From<NtStatus> for Refused {
    fn from(status: NtStatus) -> Self {
        Self(status, Vec::new())
    }
}

#[derive(Clone)]
struct Node {
    index: u64,
    basic: FileBasicInformation,
    content: Vec<u8>,
    reparse: Option<Vec<u8>>,
}

struct Open {
    path: String,
    delete: bool,
    listed: bool,
}

struct Server {
    spnego: SpnegoServer,
    nodes: BTreeMap<String, Node>,
    opens: HashMap<u64, Open>,
    made: u64,
    quirks: Quirks,
}

/// Starts one for a single client, until that goes.
pub(crate) fn start() -> SocketAddr {
    start_odd(Quirks::default())
}

/// The same with quirks.
pub(crate) fn start_odd(quirks: Quirks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        Server::new(quirks).serve(client);
    });
    address
}

fn body(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut message, 0));
    message.split_off(HEADER_LEN)
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

impl Server {
    fn new(quirks: Quirks) -> Self {
        let names = ServerNames {
            netbios_computer: "PEER".into(),
            netbios_domain: "PEER".into(),
            dns_computer: "peer".into(),
            dns_domain: "".into(),
        };
        let lookup =
            Box::new(|user: &_, _: &_| (*user == "anna".into()).then(|| nt_hash(&Password::from("secret"))));
        let ntlm = NtlmServer::new(names, FileTime(7), [3; 8], true, lookup);
        let mut server = Self {
            spnego: SpnegoServer::new(vec![Box::new(ntlm)]),
            nodes: BTreeMap::new(),
            opens: HashMap::new(),
            made: 0,
            quirks,
        };
        server.make("", FileAttributes::DIRECTORY);
        server.seed();
        server
    }

    fn serve(&mut self, mut client: TcpStream) {
        let mut head = [0; 4];
        while client.read_exact(&mut head).is_ok() {
            let mut frame = vec![0; u32::from_be_bytes(head) as usize];
            client.read_exact(&mut frame).unwrap();
            let mut file = FileId::default();
            let mut failed = None;
            for message in Chain::new(&frame) {
                let message = message.unwrap();
                let reply = self.reply(message, &mut file, &mut failed);
                let length = u32::try_from(reply.len()).unwrap().to_be_bytes();
                if client.write_all(&[&length[..], &reply].concat()).is_err() {
                    return;
                }
            }
        }
    }

    fn reply(&mut self, message: &[u8], file: &mut FileId, failed: &mut Option<NtStatus>) -> Vec<u8> {
        let request = Header::decode(&mut Reader::new(message, "test")).unwrap();
        if !request.flags.contains(HeaderFlags::RELATED_OPERATIONS) {
            (*file, *failed) = (FileId::default(), None);
        }
        let answer = match *failed {
            // [MS-SMB2] 3.3.5.2.7.2: what relates to a CREATE that failed fails with it.
            Some(status) => Err(status.into()),
            None => self.answer(&request, message, file),
        };
        let (status, bytes) = match answer {
            Ok(bytes) if request.command == Command::SessionSetup && bytes.last() == Some(&1) => (
                NtStatus::MORE_PROCESSING_REQUIRED,
                bytes[..bytes.len() - 1].to_vec(),
            ),
            Ok(bytes) if request.command == Command::SessionSetup => {
                (NtStatus::SUCCESS, bytes[..bytes.len() - 1].to_vec())
            }
            Ok(bytes) => (NtStatus::SUCCESS, bytes),
            Err(Refused(status, data)) => (status, body(|w| ErrorResponse::Plain(&data).encode(w))),
        };
        if request.command == Command::Create && !status.is_success() {
            *failed = Some(status);
        }
        let mut reply = request.reply(status);
        reply.credits = request.credits.max(1);
        reply.session_id = SessionId(0x77);
        reply.target = Target::Sync(TreeId(7));
        let mut bytes = [encoded(|w| reply.encode(w)), bytes].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn answer(&mut self, header: &Header, message: &[u8], file: &mut FileId) -> Answer {
        let mut reader = Reader::at(message, HEADER_LEN, "test");
        let reader = &mut reader;
        let which = |given: FileId, file: &FileId| if given == FileId::RELATED { *file } else { given };
        Ok(match header.command {
            Command::Negotiate => self.negotiate(),
            Command::SessionSetup => {
                return self.session_setup(&SessionSetupRequest::decode(reader).unwrap());
            }
            Command::TreeConnect => {
                let response = TreeConnectResponse {
                    share_type: ShareType::Disk,
                    share_flags: Default::default(),
                    capabilities: Default::default(),
                    maximal_access: Default::default(),
                };
                body(|w| response.encode(w))
            }
            Command::Create => {
                let response = self.create(&CreateRequest::decode(reader).unwrap())?;
                *file = response.file_id;
                body(|w| response.encode(w))
            }
            Command::Close => {
                let request = CloseRequest::decode(reader).unwrap();
                let id = which(request.file_id, file);
                let mut response = CloseResponse::default();
                if let Some(open) = self.opens.remove(&id.volatile) {
                    if let Some(node) = self.nodes.get(&open.path) {
                        response.flags = request.flags;
                        response.file_attributes = node.basic.attributes;
                        response.last_write_time = node.basic.last_write_time;
                        response.end_of_file = node.content.len() as u64;
                    }
                    if open.delete {
                        self.nodes.remove(&open.path);
                    }
                }
                body(|w| response.encode(w))
            }
            Command::Echo => body(|w| bare::EchoResponse.encode(w)),
            Command::Flush => {
                let bytes = &message[HEADER_LEN + 8..HEADER_LEN + 24];
                *file = which(FileId::decode(&mut Reader::new(bytes, "test")).unwrap(), file);
                empty()
            }
            Command::TreeDisconnect | Command::Logoff => empty(),
            _ => return self.answer_on_file(header, reader, file),
        })
    }

    /// What is asked of an open file.
    fn answer_on_file(&mut self, header: &Header, reader: &mut Reader<'_>, opened: &mut FileId) -> Answer {
        let mut of = |given: FileId| {
            if given != FileId::RELATED {
                *opened = given;
            }
            *opened
        };
        Ok(match header.command {
            Command::Ioctl => {
                let request = IoctlRequest::decode(reader).unwrap();
                let output = self.control(of(request.file_id), &request)?;
                let response = IoctlResponse {
                    ctl_code: request.ctl_code,
                    file_id: request.file_id,
                    input: &[],
                    output: &output,
                };
                body(|w| response.encode(w))
            }
            Command::QueryInfo => {
                let request = QueryInfoRequest::decode(reader).unwrap();
                let output = self.query(of(request.file_id), &request)?;
                body(|w| QueryInfoResponse { output: &output }.encode(w))
            }
            Command::SetInfo => {
                let request = SetInfoRequest::decode(reader).unwrap();
                self.set(of(request.file_id), &request)?;
                body(|w| w.u16(2))
            }
            Command::QueryDirectory => {
                let request = QueryDirectoryRequest::decode(reader).unwrap();
                let output = self.list(of(request.file_id), &request)?;
                body(|w| QueryDirectoryResponse { output: &output }.encode(w))
            }
            Command::Read => {
                let request = ReadRequest::decode(reader).unwrap();
                let content = &self.node(of(request.file_id)).content;
                let data = content.get(request.offset as usize..).unwrap_or_default();
                if data.is_empty() {
                    return Err(NtStatus::END_OF_FILE.into());
                }
                let data = self
                    .quirks
                    .cut(&data[..data.len().min(request.length as usize)], request.offset);
                body(|w| ReadResponse::default().encode(w, data))
            }
            Command::Write => {
                let (request, data) = WriteRequest::decode(reader).unwrap();
                let stored = match self.quirks.forgets(&self.path_of(of(request.file_id))) {
                    true => &data[..data.len() / 2],
                    false => data,
                };
                let (begin, end) = (request.offset as usize, request.offset as usize + stored.len());
                let content = &mut self.node_mut(of(request.file_id)).content;
                content.resize(content.len().max(end), 0);
                content[begin..end].copy_from_slice(stored);
                let count = u32::try_from(data.len()).unwrap();
                body(|w| WriteResponse { count }.encode(w))
            }
            _ => return Err(NtStatus::NOT_SUPPORTED.into()),
        })
    }

    fn negotiate(&self) -> Vec<u8> {
        let hint = self.spnego.hint();
        let response = NegotiateResponse {
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect: DialectRevision::Dialect(Dialect::Smb210),
            server_guid: Guid([0x5A; 16]),
            capabilities: Capabilities::LARGE_MTU,
            max_transact_size: 1 << 20,
            max_read_size: 1 << 20,
            max_write_size: 1 << 20,
            system_time: FileTime(1),
            server_start_time: FileTime(0),
            security_buffer: &hint,
            contexts: Vec::new(),
        };
        body(|w| response.encode(w))
    }

    /// The response, and a byte behind that is 1 where there is more to come.
    fn session_setup(&mut self, request: &SessionSetupRequest<'_>) -> Answer {
        let step = self.spnego.step(request.security_buffer);
        let (more, token) = match step.map_err(|_| NtStatus::LOGON_FAILURE)? {
            Step::Continue(token) => (1, token),
            Step::Done(established) => (0, established.token.unwrap_or_default()),
        };
        let response = SessionSetupResponse {
            session_flags: SessionFlags::default(),
            security_buffer: &token,
        };
        let mut bytes = body(|w| response.encode(w));
        bytes.push(more);
        Ok(bytes)
    }

    fn make(&mut self, path: &str, attributes: FileAttributes) {
        self.made += 1;
        let time = FileTime(132_000_000_000_000_000 + self.made);
        let node = Node {
            index: self.made,
            basic: FileBasicInformation {
                creation_time: time,
                last_access_time: time,
                last_write_time: time,
                change_time: time,
                attributes,
            },
            content: Vec::new(),
            reparse: None,
        };
        self.nodes.insert(path.to_owned(), node);
    }

    fn path_of(&self, file: FileId) -> String {
        self.opens[&file.volatile].path.clone()
    }

    fn node(&self, file: FileId) -> &Node {
        &self.nodes[&self.opens[&file.volatile].path]
    }

    fn node_mut(&mut self, file: FileId) -> &mut Node {
        let path = self.path_of(file);
        self.nodes.get_mut(&path).unwrap()
    }

    /// The link that stands at a place or above it, as the error that a client gets ([MS-SMB2] 2.2.2.2.1).
    fn stopped(&self, path: &str, follows: bool) -> Option<Refused> {
        let ends = path.match_indices('\\').map(|(at, _)| at);
        for end in ends.chain(follows.then_some(path.len())) {
            let Some(data) = self
                .nodes
                .get(&path[..end])
                .and_then(|node| node.reparse.as_ref())
            else {
                continue;
            };
            let Ok(ReparseData::Symlink(Symlink {
                substitute_name,
                print_name,
                flags,
            })) = ReparseData::decode(data)
            else {
                continue;
            };
            let error = SymlinkError {
                unparsed_path_len: u16::try_from((path.len() - end) * 2).unwrap(),
                substitute_name,
                print_name,
                flags: ropeway_smb_wire::error::SymlinkFlags::from_bits_retain(flags.bits()),
            };
            return Some(Refused(
                NtStatus::STOPPED_ON_SYMLINK,
                encoded(|w| error.encode(w)),
            ));
        }
        None
    }

    fn create(&mut self, request: &CreateRequest<'_>) -> Result<CreateResponse<'static>, Refused> {
        let path = request.name.to_string();
        let follows = !request.options.contains(CreateOptions::OPEN_REPARSE_POINT);
        if let Some(stopped) = self.stopped(&path, follows) {
            return Err(stopped);
        }
        let above = path.rsplit_once('\\').map_or("", |(above, _)| above);
        if !self.nodes.contains_key(above) {
            return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
        }
        let wants_folder = request.options.contains(CreateOptions::DIRECTORY_FILE);
        let is_folder = |node: &Node| node.basic.attributes.contains(FileAttributes::DIRECTORY);
        let action = match (self.nodes.get_mut(&path), request.disposition) {
            (Some(_), CreateDisposition::Create) => return Err(NtStatus::OBJECT_NAME_COLLISION.into()),
            (Some(node), _) if wants_folder && !is_folder(node) => {
                return Err(NtStatus::NOT_A_DIRECTORY.into());
            }
            (Some(node), CreateDisposition::Overwrite | CreateDisposition::OverwriteIf) => {
                node.content.clear();
                CreateAction::OVERWRITTEN
            }
            (Some(_), _) => CreateAction::OPENED,
            (None, CreateDisposition::Open | CreateDisposition::Overwrite) => {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into());
            }
            (None, _) => {
                let kind = if wants_folder {
                    FileAttributes::DIRECTORY
                } else {
                    FileAttributes::ARCHIVE
                };
                self.make(&path, kind);
                CreateAction::CREATED
            }
        };
        self.made += 1;
        let open = Open {
            path: path.clone(),
            delete: false,
            listed: false,
        };
        self.opens.insert(self.made, open);
        let node = &self.nodes[&path];
        Ok(CreateResponse {
            oplock_level: OplockLevel::None,
            flags: CreateResponseFlags::default(),
            create_action: action,
            creation_time: node.basic.creation_time,
            last_access_time: node.basic.last_access_time,
            last_write_time: node.basic.last_write_time,
            change_time: node.basic.change_time,
            allocation_size: node.content.len() as u64,
            end_of_file: node.content.len() as u64,
            file_attributes: node.basic.attributes,
            file_id: FileId {
                persistent: self.made,
                volatile: self.made,
            },
            contexts: Vec::new(),
        })
    }

    fn control(&mut self, file: FileId, request: &IoctlRequest<'_>) -> Answer {
        let node = self.node_mut(file);
        match request.ctl_code {
            CtlCode::SET_REPARSE_POINT => {
                assert!(ReparseData::decode(request.input).is_ok());
                node.reparse = Some(request.input.to_vec());
                node.basic.attributes |= FileAttributes::REPARSE_POINT;
                Ok(Vec::new())
            }
            CtlCode::GET_REPARSE_POINT => match &node.reparse {
                Some(data) => Ok(data.clone()),
                None => Err(NtStatus::NOT_A_REPARSE_POINT.into()),
            },
            _ => Err(NtStatus::INVALID_DEVICE_REQUEST.into()),
        }
    }

    fn query(&self, file: FileId, request: &QueryInfoRequest<'_>) -> Answer {
        if let Some(odd) = self.quirks.query(&self.path_of(file), request) {
            return odd;
        }
        let node = self.node(file);
        let is_folder = node.basic.attributes.contains(FileAttributes::DIRECTORY);
        let volume = |class| FsInfoClass::from_u8(request.info_class) == Some(class);
        match request.info_type {
            InfoType::File
                if [FileInfoClass::All as u8, FileInfoClass::Standard as u8]
                    .contains(&request.info_class) =>
            {
                let mut all = FileAllInformation {
                    basic: node.basic,
                    ..Default::default()
                };
                all.standard.end_of_file = node.content.len() as u64;
                all.standard.number_of_links = 1;
                all.standard.directory = is_folder;
                all.internal.index_number = node.index;
                match request.info_class == FileInfoClass::All as u8 {
                    true => Ok(all.to_bytes()),
                    false => Ok(all.standard.to_bytes()),
                }
            }
            InfoType::FileSystem if volume(FsInfoClass::Volume) => {
                Ok(FileFsVolumeInformation::default().to_bytes())
            }
            InfoType::FileSystem if volume(FsInfoClass::FullSize) => {
                Ok(FileFsFullSizeInformation::default().to_bytes())
            }
            InfoType::FileSystem if volume(FsInfoClass::Attribute) => {
                let information = FileFsAttributeInformation {
                    attributes: FsAttributes::SUPPORTS_REPARSE_POINTS | self.quirks.attributes(),
                    maximum_component_name_length: 255,
                    file_system_name: "REFS".into(),
                };
                Ok(information.to_bytes())
            }
            _ => Err(NtStatus::NOT_SUPPORTED.into()),
        }
    }

    fn set(&mut self, file: FileId, request: &SetInfoRequest<'_>) -> Result<(), Refused> {
        match FileInfoClass::from_u8(request.info_class) {
            Some(FileInfoClass::Basic) => {
                let set = FileBasicInformation::decode(request.buffer).unwrap();
                let basic = &mut self.node_mut(file).basic;
                for (own, new) in [
                    (&mut basic.creation_time, set.creation_time),
                    (&mut basic.last_access_time, set.last_access_time),
                    (&mut basic.last_write_time, set.last_write_time),
                ] {
                    if new != FileTime::KEEP {
                        *own = new;
                    }
                }
            }
            Some(FileInfoClass::Disposition) => {
                let set = FileDispositionInformation::decode(request.buffer).unwrap();
                let below = format!("{}\\", self.path_of(file));
                if self.nodes.keys().any(|path| path.starts_with(&below)) {
                    return Err(NtStatus::DIRECTORY_NOT_EMPTY.into());
                }
                self.opens.get_mut(&file.volatile).unwrap().delete = set.delete_pending;
            }
            Some(FileInfoClass::Rename) => {
                let set = FileRenameInformation::decode(request.buffer).unwrap();
                let (from, to) = (self.path_of(file), set.name.to_string());
                if self.nodes.contains_key(&to) && !set.replace_if_exists {
                    return Err(NtStatus::OBJECT_NAME_COLLISION.into());
                }
                let moved: Vec<String> = self
                    .nodes
                    .keys()
                    .filter(|path| is_in(path, &from))
                    .cloned()
                    .collect();
                for path in moved {
                    let node = self.nodes.remove(&path).unwrap();
                    self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
                }
                self.opens.get_mut(&file.volatile).unwrap().path = to;
            }
            _ => return Err(NtStatus::NOT_SUPPORTED.into()),
        }
        Ok(())
    }
}

/// Whether a path is this node's or below it.
fn is_in(path: &str, node: &str) -> bool {
    path.strip_prefix(node)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
}

fn empty() -> Vec<u8> {
    body(|w| {
        w.u16(4);
        w.u16(0);
    })
}
