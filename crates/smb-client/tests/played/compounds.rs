//! Tests servers without compounds: they get single requests.

use std::time::Duration;

use super::{Played, content, options, text};
use crate::peer::{Compounds, Setup};
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

/// Runs one operation of each kind that uses compounds.
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
async fn a_server_with_compounds_gets_only_compounds() {
    let server = Played::start(Setup::default()).await;
    let share = share_of(&server, options()).await;
    everything(&share).await;
    assert_eq!(server.hub(|hub| hub.compounds), 8);
}

/// The status of a file that exists and of one that does not, a listing, and a folder that is made.
#[tokio::test]
async fn reads_writes_and_changes_go_alone_where_only_queries_are_compounded() {
    for (compounds, count) in [
        (ropeway_smb_client::Compounds::Queries, 4),
        (ropeway_smb_client::Compounds::None, 0),
    ] {
        let server = Played::start(Setup::default()).await;
        let options = ClientOptions {
            compounds,
            ..options()
        };
        everything(&share_of(&server, options).await).await;
        assert_eq!(server.hub(|hub| hub.compounds), count, "{compounds:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_compounds_gets_one() {
    for (status, cipher) in [
        (NtStatus::INVALID_PARAMETER, None),
        (NtStatus::NOT_SUPPORTED, None),
        (NtStatus::NOT_IMPLEMENTED, None),
        (NtStatus::FILE_CLOSED, None),
        // A payload that was sealed in place is opened and sent again.
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
        // The file that the refused compound had opened was closed.
        share.client().clone().close().await;
        let (opened, closed) = server.hub(|hub| (hub.count(Command::Create), hub.count(Command::Close)));
        assert_eq!(opened - closed, 1, "{status}: only what was not found");
    }
}

#[tokio::test]
async fn a_listing_detects_a_server_without_compounds() {
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
async fn a_server_that_closes_the_connection_gets_two_compounds() {
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

/// A request that must not run twice is not repeated automatically, and succeeds at the third call.
#[tokio::test]
async fn a_request_that_must_not_run_twice_is_left_to_the_caller() {
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
async fn a_server_that_answers_only_the_first_request_is_detected() {
    let server = Played::start(Setup {
        compounds: Compounds::FirstOnly,
        ..Setup::default()
    })
    .await;
    let options = ClientOptions {
        timeout: Duration::from_secs(3),
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
async fn an_existing_file_is_replaced_only_by_a_complete_one() {
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
    assert_eq!(
        server.hub(|hub| hub.renamings.clone()),
        [true],
        "in a second compound"
    );
    let (server, done) = put_over(taken, false).await;
    assert_eq!(done.unwrap_err().status(), Some(NtStatus::OBJECT_NAME_COLLISION));
    assert_eq!(server.hub(|hub| hub.renamings.len()), 0);
    // A server that continues a compound after a failed WRITE.
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
        "an incomplete file does not keep its name"
    );
}

/// Size and time mark a file as complete, so they may appear only after its data is durable.
#[tokio::test]
async fn a_file_under_its_final_name_is_flushed_before_it_looks_complete() {
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
