//! Every SMB decoder on any input: nothing panics, and what is read, written and read again is the
//! same.
//!
//! The first byte chooses the decoder (see the list), the rest is its input. Message bodies get a
//! header of zeroes in front, since their offsets count from there.

#![no_main]

#[path = "smb_messages/compressed.rs"]
mod compressed;
#[path = "smb_messages/login.rs"]
mod login;

use libfuzzer_sys::fuzz_target;
use login::{ntlm_client, ntlm_server, spnego_client, spnego_server, tokens};
use ropeway_smb_proto::auth::ntlm::{Authenticate, AvPairs, Challenge, Negotiate};
use ropeway_smb_wire::bare::{CancelRequest, EchoRequest, LogoffRequest, TreeDisconnectRequest};
use ropeway_smb_wire::change_notify::{
    ChangeNotifyRequest, ChangeNotifyResponse, decode_changes, encode_changes,
};
use ropeway_smb_wire::close::{CloseRequest, CloseResponse};
use ropeway_smb_wire::compression::PatternV1;
use ropeway_smb_wire::create::{CreateRequest, CreateResponse};
use ropeway_smb_wire::create_context::{self, RequestContext, ResponseContext, decode_list, encode_list};
use ropeway_smb_wire::error::{ErrorResponse, SymlinkError};
use ropeway_smb_wire::flush::{FlushRequest, FlushResponse};
use ropeway_smb_wire::frame::{Protocol, frame_header, frame_len};
use ropeway_smb_wire::fsctl::copy_chunk::{CopyChunkRequest, CopyChunkResponse, ResumeKeyResponse};
use ropeway_smb_wire::fsctl::dfs::{DfsReferralRequest, DfsReferralResponse};
use ropeway_smb_wire::fsctl::interfaces::{decode_interfaces, encode_interfaces};
use ropeway_smb_wire::fsctl::pipe::PipeWait;
use ropeway_smb_wire::fsctl::private::{
    ChunkEntry, ChunksRequest, PrivateMessage, RangeHashReply, RangeHashRequest,
};
use ropeway_smb_wire::fsctl::private_get::GetFile;
use ropeway_smb_wire::fsctl::private_put::PutFile;
use ropeway_smb_wire::fsctl::private_same::{CopyFile, SameFile};
use ropeway_smb_wire::fsctl::ranges::{AllocatedRange, DuplicateExtents, SetSparse, SetZeroData};
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink};
use ropeway_smb_wire::fsctl::snapshots::{self, SnapshotArray};
use ropeway_smb_wire::fsctl::validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use ropeway_smb_wire::header::{CompoundMessages, HEADER_LEN, Header};
use ropeway_smb_wire::info::*;
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::lock::{LockRequest, LockResponse};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::negotiate::{NegotiateRequest, NegotiateResponse};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification};
use ropeway_smb_wire::query_directory::{QueryDirectoryRequest, QueryDirectoryResponse};
use ropeway_smb_wire::query_info::{QueryInfoRequest, QueryInfoResponse};
use ropeway_smb_wire::read::{Channel, ReadRequest, ReadResponse};
use ropeway_smb_wire::rpc::client::{ShareEnum, Step};
use ropeway_smb_wire::rpc::srvsvc::{
    ServerGetInfoRequest, ServerGetInfoResponse, ShareEnumRequest, ShareEnumResponse, ShareGetInfoRequest,
    ShareGetInfoResponse,
};
use ropeway_smb_wire::rpc::wkssvc::{WkstaGetInfoRequest, WkstaGetInfoResponse};
use ropeway_smb_wire::rpc::{Fragments, Pdu, lsa, samr, server, srvsvc, wkssvc};
use ropeway_smb_wire::security::{SecurityDescriptor, Sid};
use ropeway_smb_wire::session_setup::{SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::set_info::{SetInfoRequest, SetInfoResponse};
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::tree_connect::{TreeConnectFlags, TreeConnectRequest, TreeConnectResponse};
use ropeway_smb_wire::unc::{self, SharePath};
use ropeway_smb_wire::write::{WriteRequest, WriteResponse};
use ropeway_smb_wire::{Reader, Text, Writer};
use ropeway_smb_wire::{upcase, wildcard};

fn with_header(bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message.extend_from_slice(bytes);
    message
}

fn written(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

fn written_message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut out, 0));
    out
}

fn at_body(message: &[u8]) -> Reader<'_> {
    Reader::at(message, HEADER_LEN, "fuzz")
}

/// A message body; where `if` does not hold it cannot be written.
macro_rules! body {
    ($type:ident) => { body!($type if |_| true) };
    ($type:ident if $writable:expr) => {
        |bytes: &[u8]| {
            let message = with_header(bytes);
            let Ok(value) = $type::decode(&mut at_body(&message)) else {
                return;
            };
            let writable: fn(&$type) -> bool = $writable;
            if writable(&value) {
                let again = written_message(|w| value.encode(w));
                assert_eq!($type::decode(&mut at_body(&again)).as_ref(), Ok(&value));
            }
        }
    };
}

/// A message with data that is not part of the structure.
macro_rules! payload {
    ($type:ident if $writable:expr) => {
        |bytes: &[u8]| {
            let message = with_header(bytes);
            let _ = $type::decode_head(&mut at_body(&message));
            let Ok((value, data)) = $type::decode(&mut at_body(&message)) else {
                return;
            };
            let writable: fn(&$type) -> bool = $writable;
            if writable(&value) {
                let again = written_message(|w| value.encode(w, data));
                assert_eq!($type::decode(&mut at_body(&again)), Ok((value, data)));
            }
        }
    };
}

/// A structure in its own buffer.
macro_rules! structure {
    ($type:ident) => {
        structure!($type, decode, encode)
    };
    ($type:ident, $decode:ident, $encode:ident) => {
        |bytes: &[u8]| {
            if let Ok(value) = $type::$decode(bytes) {
                let again = written(|w| value.$encode(w));
                assert_eq!($type::$decode(&again).as_ref(), Ok(&value));
            }
        }
    };
}

/// A list in its own buffer.
macro_rules! list {
    ($decode:expr, $encode:expr) => {
        |bytes: &[u8]| {
            if let Ok(value) = $decode(bytes) {
                let again = written(|w| $encode(&value, w));
                assert_eq!($decode(&again).as_ref(), Ok(&value));
            }
        }
    };
}

/// A type that returns its bytes itself.
macro_rules! bytes {
    ($type:ident, $encode:ident) => {
        |bytes: &[u8]| {
            if let Ok(value) = $type::decode(bytes) {
                let again = value.$encode();
                assert_eq!($type::decode(&again).as_ref(), Ok(&value));
            }
        }
    };
}

macro_rules! contexts {
    ($type:ident) => {
        |bytes: &[u8]| {
            let read = |bytes| decode_list(Reader::new(bytes, "fuzz"), $type::parse);
            let Ok(contexts) = read(bytes) else { return };
            let again = written(|w| {
                let named = contexts.iter().map(|context| (context.name(), context));
                encode_list(w, named, |context: &$type<'_>, w| context.encode_data(w));
            });
            assert_eq!(
                decode_list(Reader::new(&again, "fuzz"), $type::parse),
                Ok(contexts)
            );
        }
    };
}

/// The decoders that the first byte chooses from. Seeds depend on the order, so only append.
const DECODERS: &[fn(&[u8])] = &[
    header,
    chain,
    frame,
    body!(NegotiateRequest if |request| !request.dialects.is_empty()),
    body!(NegotiateResponse),
    body!(SessionSetupRequest),
    body!(SessionSetupResponse),
    body!(TreeConnectRequest if |request| !request.flags.contains(TreeConnectFlags::EXTENSION_PRESENT)),
    body!(TreeConnectResponse),
    body!(CreateRequest),
    body!(CreateResponse),
    body!(CloseRequest),
    body!(CloseResponse),
    body!(FlushRequest),
    body!(FlushResponse),
    payload!(ReadResponse if |_| true),
    body!(ReadRequest if |request| request.channel == Channel::NONE),
    payload!(WriteRequest if |request| request.channel == Channel::NONE),
    body!(WriteResponse),
    body!(LockRequest),
    body!(LockResponse),
    body!(IoctlRequest),
    body!(IoctlResponse),
    body!(QueryDirectoryRequest),
    body!(QueryDirectoryResponse),
    body!(ChangeNotifyRequest),
    body!(ChangeNotifyResponse),
    body!(QueryInfoRequest),
    body!(QueryInfoResponse),
    body!(SetInfoRequest),
    body!(SetInfoResponse),
    body!(BreakNotification),
    body!(BreakAcknowledgment),
    error,
    body!(LogoffRequest),
    body!(TreeDisconnectRequest),
    body!(EchoRequest),
    body!(CancelRequest),
    |bytes| {
        let read = |bytes: &[u8]| TransformHeader::decode(&mut Reader::new(bytes, "fuzz"));
        if let Ok(header) = read(bytes) {
            assert_eq!(read(&written(|w| header.encode(w))), Ok(header));
        }
    },
    |bytes| {
        if let Ok(request) = Smb1NegotiateRequest::decode(bytes) {
            request.dialects().for_each(drop);
        }
    },
    contexts!(RequestContext),
    contexts!(ResponseContext),
    single_contexts,
    list!(decode_changes, |changes: &Vec<_>, w: &mut Writer<'_>| {
        encode_changes(changes, w)
    }),
    structure!(SymlinkError),
    structure!(SnapshotArray),
    |bytes| {
        let sparse = SetSparse::decode(bytes);
        assert_eq!(SetSparse::decode(&written(|w| sparse.encode(w))), sparse);
    },
    structure!(SetZeroData),
    structure!(AllocatedRange),
    list!(
        AllocatedRange::decode_list,
        |ranges: &Vec<AllocatedRange>, w: &mut Writer<'_>| {
            ranges.iter().for_each(|range| range.encode(w));
        }
    ),
    structure!(DuplicateExtents),
    structure!(ResumeKeyResponse),
    structure!(CopyChunkRequest),
    structure!(CopyChunkResponse),
    structure!(PipeWait),
    structure!(Symlink, decode_data, encode_data),
    structure!(ReparseData),
    structure!(ValidateNegotiateRequest),
    structure!(ValidateNegotiateResponse),
    structure!(DfsReferralRequest),
    structure!(DfsReferralResponse),
    list!(decode_interfaces, |list: &Vec<_>, w: &mut Writer<'_>| {
        encode_interfaces(list, w)
    }),
    structure!(FileBasicInformation),
    structure!(FileStandardInformation),
    structure!(FileInternalInformation),
    structure!(FileEaInformation),
    structure!(FileAccessInformation),
    structure!(FilePositionInformation),
    structure!(FileModeInformation),
    structure!(FileAlignmentInformation),
    structure!(FileNetworkOpenInformation),
    structure!(FileAttributeTagInformation),
    structure!(FileEndOfFileInformation),
    structure!(FileAllocationInformation),
    structure!(FileDispositionInformation),
    structure!(FileDispositionInformationEx),
    structure!(FileCompressionInformation),
    structure!(FileIdInformation),
    structure!(FilePipeInformation),
    structure!(FileStreamInformation),
    structure!(FileFullEaInformation),
    structure!(FileNameInformation),
    structure!(FileNormalizedNameInformation),
    structure!(FileAllInformation),
    structure!(FileRenameInformation),
    structure!(FileRenameInformationEx),
    structure!(FileLinkInformation),
    structure!(FileFsVolumeInformation),
    structure!(FileFsSizeInformation),
    structure!(FileFsFullSizeInformation),
    structure!(FileFsDeviceInformation),
    structure!(FileFsAttributeInformation),
    structure!(FileFsObjectIdInformation),
    structure!(FileFsSectorSizeInformation),
    directory,
    security,
    sddl,
    compressed::compressed,
    compressed::compressible,
    structure!(PatternV1),
    bytes!(Negotiate, encode),
    bytes!(Challenge, encode),
    bytes!(Authenticate, encode),
    bytes!(AvPairs, encode),
    ntlm_client,
    ntlm_server,
    spnego_client,
    spnego_server,
    bytes!(Pdu, to_bytes),
    fragments,
    share_enum,
    bytes!(ShareEnumRequest, to_stub),
    bytes!(ShareEnumResponse, to_stub),
    bytes!(ShareGetInfoRequest, to_stub),
    bytes!(ShareGetInfoResponse, to_stub),
    bytes!(ServerGetInfoRequest, to_stub),
    bytes!(ServerGetInfoResponse, to_stub),
    bytes!(WkstaGetInfoRequest, to_stub),
    bytes!(WkstaGetInfoResponse, to_stub),
    linux_name,
    wire_name,
    path,
    pattern,
    rpc_calls,
    private_message,
    structure!(ChunksRequest),
    list!(
        ChunkEntry::decode_list,
        |entries: &Vec<ChunkEntry>, w: &mut Writer<'_>| {
            entries.iter().for_each(|entry| entry.encode(w));
        }
    ),
    structure!(RangeHashRequest),
    structure!(RangeHashReply),
    list!(PutFile::decode_list, |files: &Vec<PutFile<'_>>, w: &mut Writer<'_>| {
        files.iter().for_each(|file| file.encode(w));
    }),
    list!(GetFile::decode_list, |files: &Vec<GetFile>, w: &mut Writer<'_>| {
        files.iter().for_each(|file| file.encode(w));
    }),
    list!(CopyFile::decode_list, |files: &Vec<CopyFile>, w: &mut Writer<'_>| {
        files.iter().for_each(|file| file.encode(w));
    }),
    list!(SameFile::decode_list, |files: &Vec<SameFile>, w: &mut Writer<'_>| {
        files.iter().for_each(|file| file.encode(w));
    }),
];

fn private_message(bytes: &[u8]) {
    if let Ok(message) = PrivateMessage::decode(bytes) {
        let again = written(|w| message.encode(w));
        assert_eq!(PrivateMessage::decode(&again), Ok(message));
    }
}

fn header(bytes: &[u8]) {
    let read = |bytes: &[u8]| Header::decode(&mut Reader::new(bytes, "fuzz"));
    if let Ok(header) = read(bytes)
        && header.next_command.is_multiple_of(8)
    {
        assert_eq!(read(&written(|w| header.encode(w))), Ok(header));
    }
}

fn chain(bytes: &[u8]) {
    let mut length = 0;
    for message in CompoundMessages::new(bytes) {
        let Ok(message) = message else { return };
        length += message.len();
        let _ = Header::decode(&mut Reader::new(message, "fuzz"));
    }
    assert_eq!(length, bytes.len(), "a chain fills its frame");
}

fn frame(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(length) = frame_len(*head)
    {
        assert_eq!(frame_header(length), *head);
    }
    if let Ok(protocol) = Protocol::of(bytes) {
        assert!(bytes.starts_with(&protocol.id()));
    }
}

fn error(bytes: &[u8]) {
    let message = with_header(bytes);
    let Ok(error) = ErrorResponse::decode(&mut at_body(&message)) else {
        return;
    };
    let _ = (
        error.data(),
        error.required_len(),
        error.symlink(),
        error.share_redirect(),
    );
    let again = written_message(|w| error.encode(w));
    assert_eq!(ErrorResponse::decode(&mut at_body(&again)).as_ref(), Ok(&error));
}

/// A single context; the first byte chooses its name.
fn single_contexts(bytes: &[u8]) {
    let Some((name_length, rest)) = bytes.split_first() else {
        return;
    };
    let (name, data) = rest.split_at(usize::from(*name_length).min(rest.len()));
    if let Ok(context) = RequestContext::parse(name, data) {
        let again = written(|w| context.encode_data(w));
        assert_eq!(
            RequestContext::parse(context.name(), &again).as_ref(),
            Ok(&context)
        );
    }
    if let Ok(context) = ResponseContext::parse(name, data) {
        let again = written(|w| context.encode_data(w));
        assert_eq!(
            ResponseContext::parse(context.name(), &again).as_ref(),
            Ok(&context)
        );
    }
    let _ = create_context::CONTEXTS_MAX;
}

fn directory(bytes: &[u8]) {
    let Some((class, buffer)) = bytes.split_first() else {
        return;
    };
    let Some(class) = DirectoryClass::from_u8(*class) else {
        return;
    };
    let records: Vec<_> = DirectoryRecords::new(buffer, class).flatten().collect();
    let again = written(|w| {
        let mut writer = DirectoryWriter::new(w, class, usize::MAX);
        for record in &records {
            let _ = record.reparse_tag();
            assert!(writer.push(w, record), "there is no limit");
        }
    });
    let read: Result<Vec<_>, _> = DirectoryRecords::new(&again, class).collect();
    assert_eq!(read, Ok(records));
}

fn security(bytes: &[u8]) {
    if let Ok(sid) = Sid::read(&mut Reader::new(bytes, "fuzz")) {
        assert_eq!(sid.to_string().parse(), Ok(sid.clone()));
        let again = written(|w| sid.encode(w));
        assert_eq!(Sid::read(&mut Reader::new(&again, "fuzz")), Ok(sid));
    }
    let Ok(descriptor) = SecurityDescriptor::decode(bytes) else {
        return;
    };
    let again = SecurityDescriptor::decode(&descriptor.to_bytes());
    assert_eq!(again.as_ref(), Ok(&descriptor));
    if let Ok(text) = descriptor.to_sddl() {
        let again = SecurityDescriptor::from_sddl(&text).expect("what is written can be read");
        assert_eq!(again.to_sddl().as_ref(), Ok(&text));
    }
}

fn sddl(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(sid) = text.parse::<Sid>() {
        assert_eq!(sid.to_string().parse(), Ok(sid));
    }
    let Ok(descriptor) = SecurityDescriptor::from_sddl(&text) else {
        return;
    };
    let again = SecurityDescriptor::decode(&descriptor.to_bytes());
    assert_eq!(again.as_ref(), Ok(&descriptor));
    let text = descriptor.to_sddl().expect("what was read has words");
    assert_eq!(SecurityDescriptor::from_sddl(&text).as_ref(), Ok(&descriptor));
}

fn fragments(bytes: &[u8]) {
    let _ = Pdu::length(bytes);
    let mut fragments = Fragments::default();
    for part in bytes.chunks(37) {
        fragments.push(part);
    }
}

fn share_enum(bytes: &[u8]) {
    let mut call = ShareEnum::new("peer");
    let _ = call.start();
    for part in tokens(bytes) {
        match call.handle_input(part) {
            Ok(Step::Done(_)) | Err(_) => return,
            Ok(Step::Send(_) | Step::Receive) => {}
        }
    }
}

/// A server's calls; the first byte is the procedure number.
fn rpc_calls(bytes: &[u8]) {
    let Some((opnum, stub)) = bytes.split_first() else {
        return;
    };
    let opnum = u16::from(*opnum);
    for interface in [srvsvc::INTERFACE, wkssvc::INTERFACE] {
        let _ = server::Call::decode(interface, opnum, stub);
    }
    let _ = samr::Call::decode(opnum, stub);
    // Whatever is asked for, there is an outcome.
    match lsa::Call::decode(opnum, stub) {
        Ok(Some(lsa::Call::LookupSids { sids, form, .. })) => {
            let _ = lsa::lookup_sids(form, &sids, &vec![None; sids.len()]);
        }
        Ok(Some(lsa::Call::LookupNames { names, form, .. })) => {
            let _ = lsa::lookup_names(form, &vec![None; names.len()]);
        }
        _ => {}
    }
    let _ = Pdu::authenticated_bind(stub);
}

const MAPPINGS: [NameMapping; 2] = [NameMapping::None, NameMapping::Sfm];

fn linux_name(bytes: &[u8]) {
    for mapping in MAPPINGS {
        let name = names::to_wire(bytes, mapping);
        assert_eq!(
            names::from_wire(&name, mapping),
            bytes,
            "names come back as they were"
        );
        let _ = (names::check(&name), names::is_device(&name));
    }
}

fn text(bytes: &[u8]) -> Text {
    let units = bytes
        .chunks_exact(2)
        .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    Text::from_units(units.collect())
}

fn wire_name(bytes: &[u8]) {
    let name = text(bytes);
    for mapping in MAPPINGS {
        let _ = names::from_wire(&name, mapping);
    }
    let _ = (names::check(&name), names::is_device(&name));
    assert!(upcase::equal(&name, &upcase::fold(&name)));
    if let Some(time) = snapshots::token_time(&name)
        && let Some(token) = snapshots::token(time)
    {
        assert_eq!(snapshots::token_time(&token), Some(time));
    }
}

fn path(bytes: &[u8]) {
    let path = text(bytes);
    if let Ok(share) = SharePath::parse(&path) {
        assert_eq!(share.to_text(), path);
    }
    if let Ok(parts) = unc::split(&path) {
        assert_eq!(unc::split(&unc::join(&parts)).as_ref(), Ok(&parts));
    }
}

/// The first byte is the length of the expression in units.
fn pattern(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else {
        return;
    };
    let (expression, name) = rest.split_at((usize::from(*length) * 2).min(rest.len()));
    let (expression, name) = (text(expression), text(name));
    let fold = upcase::upcase;
    let matches = wildcard::matches(&expression, &name, fold);
    if !wildcard::has_wildcard(&expression) {
        assert_eq!(matches, upcase::equal(&expression, &name));
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some((choice, rest)) = data.split_first()
        && let Some(decode) = DECODERS.get(usize::from(*choice))
    {
        decode(rest);
    }
});
