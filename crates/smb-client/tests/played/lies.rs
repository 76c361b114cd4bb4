//! Tests lying servers, and tampering in transit.

use std::sync::Arc;
use std::time::Duration;

use super::{Played, content, options, text};
use crate::peer::Setup;
use ropeway_block::Pool;
use ropeway_smb_client::{
    ClientOptions, Error, FileAttributes, LostReason, PutSmall, Signing, SmbTree, SmbTreeOptions,
};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::header::Command;
use ropeway_vfs::{CacheMode, Create, ErrorKind, MetadataChange, OpenOptions, RelPath, Tree};

/// An unsigned reply ends the client: the error names the violation, and there is no further login.
#[tokio::test]
async fn there_is_no_login_after_a_bad_signature() {
    let server = Played::start(Setup {
        signing_required: true,
        ..Setup::default()
    })
    .await;
    let options = ClientOptions {
        signing: Signing::Required,
        ..options()
    };
    let client = server.client(options).await;
    let share = client.share("data").await.unwrap();
    let logins = server.hub(|hub| {
        hub.forged = true;
        hub.count(Command::SessionSetup)
    });
    for _ in 0..3 {
        let error = share.stat(&text("file")).await.unwrap_err();
        assert!(matches!(error, Error::Tampered(_)), "{error}");
        assert!(error.to_string().contains("not signed"), "{error}");
    }
    assert!(client.share("data").await.is_err());
    assert_eq!(server.hub(|hub| hub.count(Command::SessionSetup)), logins);
}

/// Data that the server does not store counts as not written, whatever it reports.
#[tokio::test]
async fn data_that_the_server_does_not_store_is_not_written() {
    for keeps in [0, 4999, 5001, 5000] {
        let server = Played::start(Setup {
            keeps: Some(keeps),
            ..Setup::default()
        })
        .await;
        let client = server.client(options()).await;
        let share = client.share("data").await.unwrap();
        let pool = Pool::new(8192, 1);
        let mut block = pool.get().await;
        block.capacity_mut()[..5000].copy_from_slice(content(0, 5000));
        block.set_len(5000);
        let put = PutSmall {
            path: text("file"),
            temporary: None,
            disposition: CreateDisposition::OverwriteIf,
            content: Some(block.freeze()),
            attributes: FileAttributes::NORMAL,
            basic: None,
            flush: true,
            replace: false,
        };
        let done = share.put_small(put).await;
        match keeps {
            5000 => drop(done.unwrap()),
            _ => assert!(matches!(done.unwrap_err(), Error::InvalidReply(_))),
        }
    }
}

/// The same for a file written in pieces, over several connections, with and without a final flush.
#[tokio::test]
async fn data_of_a_big_file_that_the_server_does_not_store_is_not_written() {
    const PIECE: usize = 64 << 10;
    const SIZE: u64 = 8 * PIECE as u64;
    for (keeps, sync) in [
        (0, true),
        (SIZE - 1, true),
        (SIZE, true),
        (0, false),
        (SIZE, false),
    ] {
        let server = Played::start(Setup {
            keeps: Some(keeps),
            ..Setup::default()
        })
        .await;
        let client = server.client(options()).await;
        client.open_channel().await.unwrap();
        let share = client.share("data").await.unwrap();
        let tree = SmbTree::open(share, "", SmbTreeOptions::default()).await.unwrap();
        let path = RelPath::parse(b"file").unwrap();
        let open = OpenOptions::write(Create::Truncate, CacheMode::Keep);
        let file = Arc::new(tree).open(&path, open).await.unwrap();
        let pool = Pool::new(PIECE, 4);
        for piece in 0..8 {
            let offset = piece * PIECE as u64;
            let mut block = pool.get().await;
            block.capacity_mut()[..PIECE].copy_from_slice(content(offset, PIECE));
            block.set_len(PIECE);
            file.write_at(block.freeze(), offset).await.unwrap();
        }
        let done = file.finish(&MetadataChange::default(), sync).await;
        match keeps {
            SIZE => drop(done.unwrap()),
            _ => assert_eq!(done.unwrap_err().kind, ErrorKind::InvalidReply, "{keeps} {sync}"),
        }
    }
}

/// A server that answers only ECHO does not block a request for ever.
#[tokio::test]
async fn a_request_times_out_despite_echo_replies() {
    let server = Played::start(Setup::default()).await;
    let options = ClientOptions {
        timeout: Duration::from_millis(1500),
        ..options()
    };
    let client = server.client(options).await;
    let share = client.share("data").await.unwrap();
    server.hub(|hub| hub.mute = true);
    let asked = tokio::time::timeout(Duration::from_secs(15), share.stat(&text("file"))).await;
    let error = asked.expect("it ends").unwrap_err();
    assert!(matches!(error, Error::Lost(LostReason::TimedOut)), "{error}");
    assert!(
        server.hub(|hub| hub.count(Command::Echo)) > 0,
        "it kept sending other messages"
    );
    server.hub(|hub| hub.mute = false);
    share.stat(&text("file")).await.unwrap();
}
