//! Every decoder of SMB 1, and the connections of client and server, on any input: nothing panics, and what is
//! read, written and read again is the same.
//!
//! The lower bits of the first byte choose the decoder (see the list), its highest bit says whether
//! strings are UTF-16. The rest is the input; blocks get a header of zeroes in front, since their
//! offsets count from there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_smb_proto::auth::ntlm::{ServerNames, nt_hash};
use ropeway_smb_proto::client::Signing;
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::{FileTime, Guid, NtStatus, Text, Writer};
use ropeway_smb1::auth::WeakAuth;
use ropeway_smb1::client::{Config, Connection, Entropy, Event, Identity, MESSAGE_LEN_MAX, Request};
use ropeway_smb1::code_page::CodePage;
use ropeway_smb1::dos_time::Zone;
use ropeway_smb1::server::{self, Offer, Transactions};
use ropeway_smb1::wire::assembly::Assembly;
use ropeway_smb1::wire::close::CloseRequest;
use ropeway_smb1::wire::core_files::{OldCreateRequest, OldIoWords, OldOpenRequest, WriteAndCloseWords};
use ropeway_smb1::wire::create::{CreateRequest, CreateResponse};
use ropeway_smb1::wire::echo::Echo;
use ropeway_smb1::wire::file_info::AllInfo;
use ropeway_smb1::wire::find::{FindFirst, FindNext, Layout, level};
use ropeway_smb1::wire::fs_info::InfoVolume;
use ropeway_smb1::wire::locking::{ByteRangeRequest, LockingRequest};
use ropeway_smb1::wire::negotiate::NegotiateResponse;
use ropeway_smb1::wire::nt_transact::{NtCreateRequest, NtTransactRename};
use ropeway_smb1::wire::old_info::SetInformationRequest;
use ropeway_smb1::wire::open::{OpenRequest, OpenResponse};
use ropeway_smb1::wire::path::{DeleteRequest, NtRenameRequest, PathRequest, RenameRequest};
use ropeway_smb1::wire::rap::{Call, ShareList};
use ropeway_smb1::wire::read::{ReadRequest, ReadResponse, data_place};
use ropeway_smb1::wire::search::{SearchRequest, SearchResponse};
use ropeway_smb1::wire::session_setup::{SessionSetupRequest, SessionSetupResponse};
use ropeway_smb1::wire::trans2::{CreateDirectory, PathLevel};
use ropeway_smb1::wire::transaction::{self, Kind, Limits, Piece, Totals};
use ropeway_smb1::wire::tree_connect::{OldTreeConnectRequest, TreeConnectRequest, TreeConnectResponse};
use ropeway_smb1::wire::write::{WriteRequest, WriteResponse};
use ropeway_smb1::{Block, ChainLinks, Command, Flags, Flags2, HEADER_LEN, Header};

/// Length of a transaction's parts here, at most.
const TOTAL_MAX: usize = 4096;

const KINDS: [Kind; 3] = [Kind::Named, Kind::Two, Kind::Nt];

fn with_header(bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message.extend_from_slice(bytes);
    message
}

/// A block that comes back after it was written.
macro_rules! block {
    ($type:ident) => {
        block!($type, |block, _| $type::decode(block))
    };
    ($type:ident with strings) => {
        block!($type, |block, is_unicode| $type::decode(block, is_unicode))
    };
    ($type:ident, |$block:ident, $is_unicode:pat_param| $decode:expr) => {
        |bytes: &[u8], is_unicode: bool| {
            let decode = |$block: &Block<'_>, $is_unicode: bool| $decode.ok();
            let message = with_header(bytes);
            let Some(value) = Block::first(&message)
                .ok()
                .and_then(|block| decode(&block, is_unicode))
            else {
                return;
            };
            let mut again = vec![0; HEADER_LEN];
            value.encode(&mut Writer::within(&mut again, 0));
            let block = Block::first(&again).expect("what was written is a block");
            assert_eq!(decode(&block, is_unicode).as_ref(), Some(&value));
        }
    };
}

/// Parameters or data of a transaction.
macro_rules! bytes {
    ($type:ident) => {
        |bytes: &[u8], is_unicode: bool| {
            if let Ok(value) = $type::decode(bytes, is_unicode) {
                assert!(value.to_bytes().len() <= bytes.len() + 64);
            }
        }
    };
}

/// The decoders that the first byte chooses from. Seeds depend on the order, so only append.
const DECODERS: &[fn(&[u8], bool)] = &[
    connection,
    chain,
    transactions,
    data,
    entries,
    rap,
    block!(NegotiateResponse with strings),
    block!(SessionSetupRequest with strings),
    block!(SessionSetupResponse with strings),
    block!(TreeConnectRequest with strings),
    block!(TreeConnectResponse with strings),
    block!(OldTreeConnectRequest),
    block!(CreateRequest with strings),
    block!(CreateResponse),
    block!(OpenRequest with strings),
    block!(OpenResponse),
    block!(CloseRequest),
    block!(ReadRequest),
    block!(WriteResponse),
    block!(LockingRequest),
    block!(ByteRangeRequest),
    block!(PathRequest with strings),
    block!(DeleteRequest with strings),
    block!(RenameRequest with strings),
    block!(NtRenameRequest with strings),
    block!(SetInformationRequest with strings),
    block!(OldOpenRequest with strings),
    block!(OldCreateRequest with strings),
    block!(SearchRequest with strings),
    block!(SearchResponse),
    bytes!(FindFirst),
    bytes!(FindNext),
    bytes!(PathLevel),
    bytes!(NtTransactRename),
    bytes!(AllInfo),
    bytes!(InfoVolume),
    |bytes, is_unicode| _ = CreateDirectory::decode(bytes, is_unicode),
    |bytes, is_unicode| _ = NtCreateRequest::decode(bytes, is_unicode),
    server,
];

fn chain(bytes: &[u8], _: bool) {
    let [command, rest @ ..] = bytes else { return };
    let message = with_header(rest);
    let links = ChainLinks::new(&message, Command(*command));
    assert!(links.count() <= 17, "chains end");
}

/// Data outside of a structure.
fn data(bytes: &[u8], _: bool) {
    let message = with_header(bytes);
    _ = data_place(&message);
    let Ok(block) = Block::first(&message) else {
        return;
    };
    let lengths = [
        ReadResponse::data(&block).map(<[u8]>::len),
        WriteRequest::decode(&block).map(|(_, data)| data.len()),
        OldIoWords::decode_write(&block).map(|(_, data)| data.len()),
        WriteAndCloseWords::decode(&block).map(|(_, data)| data.len()),
        Echo::decode(&block).map(|echo| echo.data.len()),
    ];
    assert!(lengths.into_iter().flatten().all(|length| length <= bytes.len()));
}

fn transactions(bytes: &[u8], is_unicode: bool) {
    let [kind, rest @ ..] = bytes else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let message = with_header(rest);
    let Ok(block) = Block::first(&message) else {
        return;
    };
    if let Ok(request) = transaction::Request::decode(kind, &block, is_unicode) {
        assert!(request.parameters.len() + request.data.len() <= 2 * message.len());
    }
    let mut assembly = Assembly::new(Totals {
        parameters: TOTAL_MAX,
        data: TOTAL_MAX,
    });
    let pieces = [
        Piece::decode_response(kind, &block).ok().flatten(),
        Piece::decode_secondary(kind, &block).ok(),
    ];
    for piece in pieces.into_iter().flatten() {
        _ = assembly.add(&piece);
    }
    assert!(assembly.len() <= 2 * TOTAL_MAX);
}

fn entries(bytes: &[u8], is_unicode: bool) {
    let [choice, rest @ ..] = bytes else { return };
    let levels = [
        level::STANDARD,
        level::EA_SIZE,
        level::DIRECTORY,
        level::FULL_DIRECTORY,
        level::NAMES,
        level::BOTH_DIRECTORY,
        level::ID_FULL_DIRECTORY,
        level::ID_BOTH_DIRECTORY,
    ];
    let layout = Layout {
        level: levels[usize::from(choice & 7)],
        is_unicode,
        has_keys: choice & 8 != 0,
        zone: Zone(i16::from(*choice)),
    };
    if let Ok(entries) = layout.decode(rest, usize::MAX) {
        assert!(entries.len() <= 1 + rest.len() / 12);
    }
}

fn rap(bytes: &[u8], _: bool) {
    _ = Call::decode(bytes);
    let Some((parameters, data)) = bytes.split_at_checked(8) else {
        return;
    };
    if let Ok(list) = ShareList::decode(parameters, data) {
        let length: usize = list.shares.iter().map(|share| share.remark.len()).sum();
        assert!(list.shares.len() * 20 <= data.len() && length <= data.len() * 13);
    }
}

/// A connection that gets messages: each has its length in two bytes, then the command, the status,
/// the number of a request counted from 1, and the rest.
fn connection(bytes: &[u8], is_unicode: bool) {
    let password = Password::from("secret");
    let config = Config {
        signing: Signing::Offered,
        weak_auth: WeakAuth {
            ntlm: true,
            lm: true,
            clear_text: true,
        },
        extended_security: !is_unicode,
        unicode: is_unicode,
        code_page: CodePage::default(),
        ..Config::new(Identity::User {
            domain: String::new(),
            user: "ann".to_owned(),
            hash: nt_hash(&password),
            password: Some(password),
        })
    };
    let entropy = Entropy {
        wall_time: FileTime(7),
        client_challenge: [1; 8],
        session_key: zeroize::Zeroizing::new([2; 16]),
    };
    let mut connection = Connection::new(config, entropy);
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let [low, high, command, status, mid] = *head;
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (body, after) = after.split_at(length);
        rest = after;
        while let Some(parts) = connection.poll_transmit() {
            let length: usize = parts.iter().map(|part| part.as_slice().len()).sum();
            assert!(length <= MESSAGE_LEN_MAX);
        }
        let header = Header {
            command: Command(command),
            status: match status {
                0 => NtStatus::SUCCESS,
                1 => NtStatus::MORE_PROCESSING_REQUIRED,
                2 => NtStatus::BUFFER_OVERFLOW,
                other => NtStatus(0xC000_0000 | u32::from(other)),
            },
            flags: Flags::REPLY,
            mid: u16::from(mid),
            ..Header::default()
        };
        let mut message = Vec::new();
        header.encode(&mut Writer::new(&mut message));
        message.extend_from_slice(body);
        connection.receive(message);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Ready => submit(&mut connection),
                Event::Replied { reply, .. } => {
                    if let Some(reply) = reply.transaction {
                        assert!(reply.parameters.len() + reply.data.len() <= 2 * TOTAL_MAX);
                    }
                }
                Event::Break { .. } => {}
                Event::Ended(_) => return,
            }
        }
    }
}

/// Submits a transaction and a request of each further kind that has an answer of its own.
fn submit(connection: &mut Connection) {
    let request = transaction::Request {
        kind: Kind::Two,
        name: ropeway_smb1::Str::empty(false),
        flags: 0,
        timeout: 0,
        function: 0,
        setup: vec![1],
        limits: Limits {
            parameters: TOTAL_MAX as u32,
            data: TOTAL_MAX as u32,
            setup: 4,
        },
        totals: Totals {
            parameters: 0,
            data: 0,
        },
        parameters: &[],
        data: &[],
    };
    _ = connection.submit(Request::transaction(1, &request));
    let echo = Echo {
        number: 1,
        data: b"fuzz",
    };
    _ = connection.submit(Request::new(Command::ECHO, Header::NONE, |w| echo.encode(w)));
}

/// A server's connection that gets messages: each has its length in two bytes, then the command, the
/// number of the request, and the rest.
fn server(bytes: &[u8], is_unicode: bool) {
    _ = Offer::of(bytes);
    let text = |text: &str| Text::from(text);
    let config = server::Config {
        server_guid: Guid::default(),
        names: ServerNames {
            netbios_computer: text("SERVER"),
            netbios_domain: text("SERVER"),
            dns_computer: text("server"),
            dns_domain: text(""),
        },
        hint: Vec::new(),
        signing: server::Signing::Offered,
        code_page: CodePage::default(),
        zone: Zone(0),
        sessions_max: 4,
    };
    let offer = Offer {
        index: 0,
        extended_security: !is_unicode,
    };
    let mut connection = server::Connection::new(config, offer, [7; 8]);
    connection.negotiate(&Header::default(), FileTime(0), &mut Writer::new(&mut Vec::new()));
    let mut transactions = Transactions::default();
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let [low, high, command, mid] = *head;
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (body, after) = after.split_at(length);
        rest = after;
        let header = Header {
            command: Command(command),
            flags2: if is_unicode {
                Flags2::UNICODE
            } else {
                Flags2::empty()
            },
            mid: u16::from(mid),
            ..Header::default()
        };
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        header.encode(&mut w);
        w.bytes(body);
        let Ok(admitted) = connection.receive(&message) else {
            return;
        };
        for (command, block) in ChainLinks::new(&message, header.command).flatten() {
            if command == Command::SESSION_SETUP_ANDX {
                _ = connection.decode_setup(&block, &header);
            }
        }
        let Ok(block) = Block::first(&message) else {
            continue;
        };
        if let Some(kind) = Kind::of(header.command) {
            _ = transactions.begin(kind, &admitted, &block);
        } else if let Some(kind) = Kind::of_secondary(header.command) {
            _ = transactions.add(kind, &header, &block);
        }
        assert!(transactions.len() <= 16);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    if let Some(decode) = DECODERS.get(usize::from(choice & 0x7F)) {
        decode(rest, choice & 0x80 != 0);
    }
});
