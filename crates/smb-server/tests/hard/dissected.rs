//! Every command in every dialect, as Wireshark's tshark reads it: an independent reader finds nothing
//! malformed in what server and client send.

use std::collections::BTreeSet;
use std::path::Path;

use ropeway_block::Pool;
use ropeway_peers::{Dissection, Recorder, or_skip};
use ropeway_smb_client::{
    Client, ClientOptions, CompressionOffer, Encryption, Endpoint, FileAttributes, Login, PutSmall, Share,
    Signing, Text,
};
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_wire::bare::CancelRequest;
use ropeway_smb_wire::change_notify::CompletionFilter;
use ropeway_smb_wire::create::{CreateDisposition, CreateOptions, OplockLevel};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, OplockBreak};
use ropeway_smb_wire::{NtStatus, Reader, Writer};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

/// Connects to the recorder.
fn raw(recorder: &Recorder, dialect: Dialect) -> Raw {
    let mut raw = Raw::connect(recorder.address());
    raw.dialect = dialect;
    raw.enter();
    raw
}

/// Sends every command that needs a login, a CANCEL, and the acknowledgment of a broken oplock.
fn every_command(recorder: &Recorder, dialect: Dialect) {
    let mut first = raw(recorder, dialect);
    let cached = Create {
        oplock: OplockLevel::Batch,
        ..Create::of("cached")
    };
    let cached = first.create(&cached).unwrap();
    let mut second = raw(recorder, dialect);
    let wish = Create::of("cached");
    let open = second.message(Command::Create, |w| wish.request().encode(w));
    second.send(&open);
    first.receive().unwrap();
    let acknowledgment = BreakAcknowledgment::Oplock(OplockBreak {
        oplock_level: OplockLevel::LevelII,
        file_id: cached,
    });
    let reply = first.call(Command::OplockBreak, |w| acknowledgment.encode(w));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    while second.reply().unwrap().status() == NtStatus::PENDING {}
    let file = first.create(&Create::of("file")).unwrap();
    let folder = Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..Create::of("folder")
    };
    let folder = first.create(&folder).unwrap();
    for (command, body) in samples::all(file, folder) {
        match command {
            Command::ChangeNotify => begin_and_cancel(&mut first, command, &body),
            _ => _ = first.call(command, |w| w.bytes(&body)),
        }
    }
}

/// Sends a request that waits, and cancels it.
fn begin_and_cancel(raw: &mut Raw, command: Command, body: &[u8]) {
    let message = raw.message(command, |w| w.bytes(body));
    raw.send(&message);
    let interim = raw.receive().unwrap();
    let interim = Header::decode(&mut Reader::new(&interim, "interim")).unwrap();
    assert_eq!(interim.status, NtStatus::PENDING);
    let mut header = raw.header(Command::Cancel);
    header.message_id = interim.message_id;
    header.target = interim.target;
    header.flags |= HeaderFlags::ASYNC_COMMAND;
    let mut cancel = vec![0; HEADER_LEN];
    CancelRequest.encode(&mut Writer::within(&mut cancel, 0));
    raw.seal_header(&header, &mut cancel);
    raw.send(&cancel);
    assert_eq!(raw.reply().unwrap().status(), NtStatus::CANCELLED);
}

/// Uses the client: one operation of each kind.
async fn own_client(recorder: &Recorder, options: ClientOptions) {
    let endpoint = Endpoint::new("127.0.0.1", recorder.address().port());
    let login = Login::password("", "alice", "secret");
    let client = Client::connect(&endpoint, login, options).await.unwrap();
    let share = client.share("data").await.unwrap();
    work(&share).await;
    drop(share);
    client.close().await;
}

async fn work(share: &Share) {
    let text = |name: &str| Text::from(name);
    let pool = Pool::new(1 << 16, 4);
    share.make_directory(&text("made")).await.unwrap();
    let mut block = pool.get().await;
    block.capacity_mut()[..5000].fill(b'x');
    block.set_len(5000);
    let put = PutSmall {
        path: text("made\\small"),
        temporary: None,
        disposition: CreateDisposition::OverwriteIf,
        content: Some(block.freeze()),
        attributes: FileAttributes::NORMAL,
        basic: Some(FileBasicInformation::default()),
        flush: true,
        replace: true,
    };
    share.put_small(put).await.unwrap();
    let small = text("made\\small");
    share.get_small(&small, 5000, pool.get().await).await.1.unwrap();
    share.stat(&small).await.unwrap();
    let mut listing = share.list(&text("made"), "*").await.unwrap();
    while listing.next().await.unwrap().is_some() {}
    share.volume().await.unwrap();
    let watched = share
        .open(&text("made"), &ropeway_smb_client::OpenFile::directory())
        .await
        .unwrap();
    let watch = watched.watch(CompletionFilter::FILE_NAME, false);
    let rename = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        share.rename(&small, &text("made\\other"), true).await.unwrap();
    };
    assert!(!tokio::join!(watch, rename).0.unwrap().is_empty());
    watched.close().await.unwrap();
    share.remove(&text("made\\other")).await.unwrap();
    share.remove(&text("made")).await.unwrap();
    assert!(share.stat(&text("missing")).await.is_err());
}

/// Records what `talk` says through a recorder, and returns how tshark reads it.
fn dissected(folder: &Path, talk: impl FnOnce(&Recorder)) -> Result<Dissection, ropeway_peers::PeerError> {
    let share = folder.join("share");
    std::fs::create_dir_all(&share).unwrap();
    // Wireshark knows LZ4 only since 4.4.
    let serve = Serve::with(&share, |options| {
        options.config.compression = Algorithms {
            lz4: false,
            lznt1: true,
            pattern_v1: true,
            zstd: false,
        };
    });
    let recorder = Recorder::start(serve.address).unwrap();
    talk(&recorder);
    let file = folder.join("recorded.pcap");
    recorder.finish(&file).unwrap();
    Dissection::of(&file)
}

#[test]
fn every_command_in_every_dialect() {
    for dialect in Dialect::ALL {
        let folder = tempfile::tempdir().unwrap();
        let found = or_skip!(dissected(folder.path(), |recorder| every_command(
            recorder, dialect
        )));
        assert!(found.complaints.is_empty(), "{dialect}: {:#?}", found.complaints);
        // NEGOTIATE is 0 and OPLOCK_BREAK 18 ([MS-SMB2] 2.2.1); a CANCEL, 12, has no response.
        let all: BTreeSet<u16> = (0..=18).collect();
        assert_eq!(found.asked, all, "{dialect}");
        let answered: BTreeSet<u16> = all.into_iter().filter(|command| *command != 12).collect();
        assert_eq!(found.answered, answered, "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_own_client_in_every_dialect() {
    let plain = Dialect::ALL.map(|dialect| (dialect, Encryption::Off, false));
    let sealed = [
        (Dialect::Smb300, Encryption::Required, false),
        (Dialect::Smb311, Encryption::Required, true),
        (Dialect::Smb311, Encryption::Off, true),
    ];
    for (dialect, encryption, compression) in plain.into_iter().chain(sealed) {
        let options = ClientOptions {
            dialects: dialect..=dialect,
            signing: Signing::Required,
            encryption,
            compression: match compression {
                true => CompressionOffer::On,
                false => CompressionOffer::Off,
            },
            ..ClientOptions::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let handle = tokio::runtime::Handle::current();
        let found = tokio::task::block_in_place(|| {
            dissected(folder.path(), |recorder| {
                handle.block_on(own_client(recorder, options));
            })
        });
        let found = or_skip!(found);
        let what = format!("{dialect}, {encryption:?}, compressed: {compression}");
        assert!(found.complaints.is_empty(), "{what}: {:#?}", found.complaints);
        // NEGOTIATE and SESSION_SETUP at least are read where the rest is sealed.
        let least = if encryption == Encryption::Off { 12 } else { 2 };
        assert!(found.asked.len() >= least, "{what}: {:?}", found.asked);
    }
}
