//! What a played server knows beyond one connection, and requests that its clients can be told by.

use super::{Master, Peer, body, encode};
use ropeway_smb_wire::create::{
    CreateAction, CreateRequest, CreateResponse, CreateResponseFlags, OplockLevel,
};
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::error::ErrorResponse;
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::info::{
    DirectoryClass, DirectoryRecord, DirectoryWriter, FileAllInformation, FileInfoClass,
    FileStandardInformation, Information,
};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::oplock_break::BreakAcknowledgment;
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
use ropeway_smb_wire::query_info::{InfoType, QueryInfoRequest, QueryInfoResponse};
use ropeway_smb_wire::set_info::{SetInfoRequest, SetInfoResponse};
use ropeway_smb_wire::{AsyncId, FileId, FileTime, Guid, NtStatus, Reader, Text, Writer};

/// What a server makes of compounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compounds {
    /// It does them.
    #[default]
    Taken,
    /// What is related, or not the first, is refused with this status.
    Refused(NtStatus),
    /// It closes the connection.
    Closed,
    /// It does the first request, and says nothing of the others.
    FirstOnly,
}

/// A request that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) command: Command,
    pub(crate) flags: HeaderFlags,
    pub(crate) sequence: u16,
    /// Of a CREATE.
    pub(crate) name: Option<Text>,
    /// The guid of a CREATE that asks for a durable open.
    pub(crate) guid: Option<Guid>,
    /// Of an acknowledgment.
    pub(crate) acknowledged: Option<BreakAcknowledgment>,
}

/// What all connections of a server share.
#[derive(Default)]
pub(crate) struct Hub {
    /// The last session that was made, for further channels.
    pub(super) master: Option<Master>,
    /// Frames with several requests.
    pub(crate) compounds: u32,
    /// Nothing but ECHO is answered.
    pub(crate) mute: bool,
    /// What is not answered is announced, again with each request, and never signed.
    pub(crate) announces: bool,
    /// Nothing is signed any more.
    pub(crate) forged: bool,
    /// The next request of this kind closes its connection, unanswered.
    pub(crate) fatal: Option<Command>,
    /// The request of this kind with this number, from 1 on, is done, and its connection closed without an answer.
    pub(crate) fatal_at: Option<(Command, usize)>,
    /// Names in each folder, and how far the one listing is that there may be.
    pub(crate) names: u32,
    listed: u32,
    /// A listing gives its last name again and again.
    pub(crate) repeats: bool,
    /// The next request of this kind is refused.
    pub(crate) refused: Option<(Command, NtStatus)>,
    pub(crate) seen: Vec<Seen>,
    /// The newest `Open.ChannelSequence`; the played files have one in common.
    pub(crate) sequence: u16,
    /// Requests refused since their sequence was old.
    pub(crate) outdated: u32,
    /// Renamings done, and whether each might replace.
    pub(crate) renamings: Vec<bool>,
    /// Files marked for deletion.
    pub(crate) deletions: u32,
}

impl Hub {
    pub(crate) fn count(&self, command: Command) -> usize {
        self.seen.iter().filter(|seen| seen.command == command).count()
    }
}

impl Peer {
    pub(super) fn set_info(&mut self, reader: &mut Reader<'_>) -> (NtStatus, Vec<u8>) {
        let request = SetInfoRequest::decode(reader).unwrap();
        let is = |class: FileInfoClass| request.info_class == class.to_u8();
        // `ReplaceIfExists`, `DeletePending`.
        let flag = request.buffer.first() == Some(&1);
        let mut hub = self.hub.lock().unwrap();
        if is(FileInfoClass::Rename) {
            if self.setup.taken && !flag {
                return (NtStatus::OBJECT_NAME_COLLISION, Vec::new());
            }
            hub.renamings.push(flag);
        } else if is(FileInfoClass::Disposition) {
            hub.deletions += u32::from(flag);
        }
        (NtStatus::SUCCESS, body(|w| SetInfoResponse.encode(w)))
    }

    /// Whether a frame of so many requests is taken at all.
    pub(super) fn takes(&mut self, count: usize) -> bool {
        self.hub.lock().unwrap().compounds += u32::from(count > 1);
        self.closed |= count > 1 && self.setup.compounds == Compounds::Closed;
        !self.closed
    }

    /// Whether a request is done and its answer forgotten.
    pub(super) fn is_swallowed(&self, header: &Header, place: usize) -> bool {
        match header.command {
            Command::Echo if self.setup.deaf => true,
            Command::Echo => false,
            _ if self.hub.lock().unwrap().mute => true,
            _ => self.swallow || (place > 0 && self.setup.compounds == Compounds::FirstOnly),
        }
    }

    /// Says, unsigned, that all that is asked and not answered will be.
    pub(super) fn announce_for_ever(&mut self, header: &Header, sealed: bool) {
        let announces = self.hub.lock().unwrap().announces;
        let Some(session_id) = self
            .channel
            .as_ref()
            .map(|channel| channel.id)
            .filter(|_| announces)
        else {
            return;
        };
        let mut interim = header.reply(NtStatus::PENDING);
        interim.flags |= HeaderFlags::ASYNC_COMMAND;
        interim.target = Target::Async(AsyncId(header.message_id.0 + 1000));
        interim.session_id = session_id;
        let mut message = encode(&interim, |w| ErrorResponse::EMPTY.encode(w));
        self.grant_in(&mut message, header.credits);
        self.send(vec![message.clone()], sealed, false);
        self.announced.push((message, sealed));
    }

    /// Says it again, without credits.
    pub(super) fn announce_again(&mut self) {
        for (mut message, sealed) in self.announced.clone() {
            message[14..16].fill(0);
            self.send(vec![message], sealed, false);
        }
    }

    /// Notes a request; a status if it is to be refused, also since its channel's sequence is outdated ([MS-SMB2]
    /// 3.3.5.2.10).
    pub(super) fn note(&mut self, header: &Header, message: &[u8]) -> Option<NtStatus> {
        let mut reader = Reader::at(message, HEADER_LEN, "test");
        let hub = std::sync::Arc::clone(&self.hub);
        let mut hub = hub.lock().unwrap();
        let sequence = header.channel_sequence();
        let create = (header.command == Command::Create).then(|| CreateRequest::decode(&mut reader).unwrap());
        let guid = create.iter().flat_map(|create| &create.contexts);
        let mut guid = guid.filter_map(|context| match context {
            RequestContext::DurableRequestV2(request) => Some(request.create_guid),
            _ => None,
        });
        hub.seen.push(Seen {
            command: header.command,
            flags: header.flags,
            sequence,
            guid: guid.next_back(),
            name: create.map(|create| create.name),
            acknowledged: (header.command == Command::OplockBreak)
                .then(|| BreakAcknowledgment::decode(&mut reader).unwrap()),
        });
        let number = hub.count(header.command);
        if hub
            .fatal_at
            .take_if(|at| *at == (header.command, number))
            .is_some()
        {
            self.closed = true;
        }
        if hub.fatal == Some(header.command) {
            hub.fatal = None;
            self.closed = true;
        }
        if let Some((_, status)) = hub.refused.take_if(|(command, _)| *command == header.command) {
            return Some(status);
        }
        if self.setup.dialect < Dialect::Smb300 {
            assert_eq!(header.status.0, 0, "reserved below 3.0");
            return None;
        }
        assert_eq!(header.status.0 >> 16, 0, "reserved");
        let is_judged = matches!(header.command, Command::Write | Command::SetInfo);
        if !is_judged {
            return None;
        }
        if sequence.wrapping_sub(hub.sequence) > 0x7FFF {
            hub.outdated += 1;
            return Some(NtStatus::FILE_NOT_AVAILABLE);
        }
        hub.sequence = sequence;
        None
    }

    /// Every folder has as many names as the hub says, each a batch of its own.
    pub(super) fn list(&mut self, reader: &mut Reader<'_>) -> (NtStatus, Vec<u8>) {
        let request = QueryDirectoryRequest::decode(reader).unwrap();
        let mut hub = self.hub.lock().unwrap();
        if request.flags.contains(QueryDirectoryFlags::RESTART_SCANS) {
            hub.listed = 0;
        }
        if hub.repeats && hub.listed == hub.names {
            hub.listed -= 1;
        }
        if hub.listed == hub.names {
            return (NtStatus::NO_MORE_FILES, Vec::new());
        }
        let record = DirectoryRecord {
            name: Text::from(format!("n{}", hub.listed).as_str()),
            ..DirectoryRecord::default()
        };
        hub.listed += 1;
        let mut output = Vec::new();
        let mut writer = Writer::new(&mut output);
        let mut list = DirectoryWriter::new(&writer, DirectoryClass::IdBothDirectory, 4096);
        assert!(list.push(&mut writer, &record));
        let response = QueryDirectoryResponse { output: &output };
        (NtStatus::SUCCESS, body(|w| response.encode(w)))
    }
}

/// Of files, everything is 0; of volumes, what fits any of them.
pub(super) fn query_info(reader: &mut Reader<'_>, keeps: Option<u64>) -> (NtStatus, Vec<u8>) {
    let request = QueryInfoRequest::decode(reader).unwrap();
    let output = match request.info_type {
        InfoType::File if request.info_class == FileInfoClass::Standard.to_u8() => FileStandardInformation {
            end_of_file: keeps.unwrap_or(0),
            ..FileStandardInformation::default()
        }
        .to_bytes(),
        InfoType::File => FileAllInformation::default().to_bytes(),
        _ => vec![0; 64],
    };
    let response = QueryInfoResponse { output: &output };
    (NtStatus::SUCCESS, body(|w| response.encode(w)))
}

/// What every open tells of its file.
pub(super) fn created(file_id: FileId) -> CreateResponse<'static> {
    CreateResponse {
        oplock_level: OplockLevel::None,
        flags: CreateResponseFlags::default(),
        create_action: CreateAction::default(),
        creation_time: FileTime(1),
        last_access_time: FileTime(2),
        last_write_time: FileTime(3),
        change_time: FileTime(4),
        allocation_size: 0,
        end_of_file: 0,
        file_attributes: Default::default(),
        file_id,
        contexts: Vec::new(),
    }
}
