//! Servers that do not do compounds get the plain sequence.

use std::time::Duration;

use crate::peer::{Compounds, Setup};
use crate::{Played, content, options, text};
use ropeway_block::Pool;
use ropeway_smb_client::{ClientOptions, Encryption, Error, FileAttributes, NtStatus, PutSmall, Share};
use ropeway_smb_proto::crypto::Cipher;
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::FileBasicInformation;

fn put(path: &str, content: Option<ropeway_block::Block>, disposition: CreateDisposition) -> PutSmall {
    PutSmall {
        path: text(path),
        temporary: None,
        disposition,
        content,
        attributes: FileAttributes::NORMAL,
        basic: Some(FileBasicInformation::default()),
        flush: true,
        replace: false,
    }
}

/// One of each that is a compound where compounds are done.
async fn everything(share: &Share) {
    let pool = Pool::new(8192, 4);
    share.stat(&text("file")).await.unwrap();
    let mut block = pool.get().await;
    block.capacity_mut()[..5000].copy_from_slice(content(0, 5000));
    block.set_len(5000);
    let done = share
        .put_small(put("file", Some(block.freeze()), CreateDisposition::OverwriteIf))
        .await
        .unwrap();
    done.basic.unwrap();
    let (got, outcome) = share.get_small(&text("file"), usize::MAX, pool.get().await).await;
    outcome.unwrap();
    assert!(!got.is_empty() && got[..] == *content(0, got.len()));
    let mut listing = share.list(&text("folder"), "*").await.unwrap();
    assert!(listing.next().await.unwrap().is_none());
    share.make_directory(&text("new")).await.unwrap();
    share.rename(&text("one"), &text("other"), true).await.unwrap();
    share.remove(&text("file")).await.unwrap();
    let missing = share.stat(&text(crate::peer::MISSING)).await.unwrap_err();
    assert_eq!(missing.status(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    drop(got);
    assert_eq!(pool.available(), 4);
}

async fn share_of(server: &Played, options: ClientOptions) -> Share {
    server.client(options).await.share("data").await.unwrap()
}

#[tokio::test]
async fn a_server_that_does_them_gets_nothing_else() {
    let server = Played::start(Setup::default()).await;
    let share = share_of(&server, options()).await;
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 8);
}

#[tokio::test]
async fn a_server_that_refuses_them_is_asked_once() {
    for (status, cipher) in [
        (NtStatus::INVALID_PARAMETER, None),
        (NtStatus::NOT_SUPPORTED, None),
        (NtStatus::NOT_IMPLEMENTED, None),
        (NtStatus::FILE_CLOSED, None),
        // What was sealed in its place is sent again as it was before.
        (NtStatus::INVALID_PARAMETER, Some(Cipher::Aes128Gcm)),
    ] {
        let server = Played::start(Setup {
            compounds: Compounds::Refused(status),
            cipher,
            ..Setup::default()
        })
        .await;
        let options = ClientOptions {
            encryption: Encryption::Desired,
            ..options()
        };
        let share = share_of(&server, options).await;
        assert_eq!(share.client().info().cipher, cipher);
        everything(&share).await;
        assert_eq!(server.hub(|hub| hub.compounds), 1, "{status}");
        // What the refused one had opened was closed.
        share.client().clone().close().await;
        let (opened, closed) = server.hub(|hub| (hub.count(Command::Create), hub.count(Command::Close)));
        assert_eq!(opened - closed, 1, "{status}: only what was not found");
    }
}

#[tokio::test]
async fn a_listing_finds_it_out_as_well() {
    let server = Played::start(Setup {
        compounds: Compounds::Refused(NtStatus::INVALID_PARAMETER),
        ..Setup::default()
    })
    .await;
    let share = share_of(&server, options()).await;
    let mut listing = share.list(&text("folder"), "*").await.unwrap();
    assert!(listing.next().await.unwrap().is_none());
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 1);
}

#[tokio::test]
async fn a_server_that_closes_the_connection_is_asked_twice() {
    let server = Played::start(Setup {
        compounds: Compounds::Closed,
        ..Setup::default()
    })
    .await;
    let share = share_of(&server, options()).await;
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 2);
    assert_eq!(share.client().info().reconnects, 2);
}

/// What must not be done twice is not sent again by itself, and goes the third time.
#[tokio::test]
async fn what_must_not_be_done_twice_is_left_to_the_caller() {
    let server = Played::start(Setup {
        compounds: Compounds::Closed,
        ..Setup::default()
    })
    .await;
    let share = share_of(&server, options()).await;
    for _ in 0..2 {
        let unknown = share.make_directory(&text("new")).await.unwrap_err();
        assert!(matches!(unknown, Error::Lost(_)), "{unknown}");
    }
    share.make_directory(&text("new")).await.unwrap();
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 2);
}

#[tokio::test]
async fn a_server_that_does_only_the_first_is_found_out() {
    let server = Played::start(Setup {
        compounds: Compounds::FirstOnly,
        ..Setup::default()
    })
    .await;
    let options = ClientOptions {
        timeout: Duration::from_secs(1),
        ..options()
    };
    let share = share_of(&server, options).await;
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 1);
    assert_eq!(share.client().info().reconnects, 1);
}

async fn put_over(setup: Setup, replace: bool) -> (Played, Result<(), Error>) {
    let server = Played::start(setup).await;
    let share = share_of(&server, options()).await;
    let pool = Pool::new(8192, 2);
    let mut block = pool.get().await;
    block.capacity_mut()[..100].copy_from_slice(content(0, 100));
    block.set_len(100);
    let put = PutSmall {
        temporary: Some(text("file.part")),
        replace,
        ..put("file", Some(block.freeze()), CreateDisposition::Create)
    };
    let done = share.put_small(put).await.map(drop);
    (server, done)
}

#[tokio::test]
async fn what_has_the_name_makes_way_for_a_whole_file_only() {
    let free = Setup::default();
    let taken = Setup {
        taken: true,
        ..Setup::default()
    };
    let full = |taken| Setup {
        taken,
        full: true,
        ..Setup::default()
    };
    let (server, done) = put_over(free, true).await;
    done.unwrap();
    assert_eq!(
        server.hub(|hub| hub.renamings.clone()),
        [false],
        "in the same compound"
    );
    let (server, done) = put_over(taken.clone(), true).await;
    done.unwrap();
    assert_eq!(server.hub(|hub| hub.renamings.clone()), [true], "in a second one");
    let (server, done) = put_over(taken, false).await;
    assert_eq!(done.unwrap_err().status(), Some(NtStatus::OBJECT_NAME_COLLISION));
    assert_eq!(server.hub(|hub| hub.renamings.len()), 0);
    // A server that goes on after a WRITE that failed.
    let (server, done) = put_over(full(true), true).await;
    assert_eq!(done.unwrap_err().status(), Some(NtStatus::DISK_FULL));
    assert_eq!(
        server.hub(|hub| (hub.renamings.len(), hub.deletions)),
        (0, 0),
        "the older file stays"
    );
    let (server, done) = put_over(full(false), true).await;
    assert_eq!(done.unwrap_err().status(), Some(NtStatus::DISK_FULL));
    assert_eq!(
        server.hub(|hub| (hub.renamings.clone(), hub.deletions)),
        (vec![false], 1),
        "a part of a file does not keep its name"
    );
}

/// Size and time tell that a file is complete: whoever finds them must find what was flushed.
#[tokio::test]
async fn what_has_its_name_is_flushed_before_it_looks_complete() {
    for compounds in [Compounds::Taken, Compounds::Refused(NtStatus::NOT_SUPPORTED)] {
        let server = Played::start(Setup {
            compounds,
            ..Setup::default()
        })
        .await;
        let share = share_of(&server, options()).await;
        let pool = Pool::new(8192, 4);
        let mut block = pool.get().await;
        block.capacity_mut()[..5000].copy_from_slice(content(0, 5000));
        block.set_len(5000);
        let put = put("file", Some(block.freeze()), CreateDisposition::Create);
        share.put_small(put).await.unwrap();
        let order = server.hub(|hub| {
            let kinds = hub.seen.iter().map(|seen| seen.command);
            let kinds =
                kinds.filter(|kind| matches!(kind, Command::Write | Command::Flush | Command::SetInfo));
            kinds.collect::<Vec<_>>()
        });
        assert!(
            order.ends_with(&[Command::Write, Command::Flush, Command::SetInfo]),
            "{order:?}"
        );
    }
}
