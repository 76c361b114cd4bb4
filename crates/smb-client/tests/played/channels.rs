//! Tests requests whose channel is lost, and paths in DFS.

use std::time::Duration;

use super::{Played, content, options, text};
use crate::peer::Setup;
use ropeway_block::{Block, Pool};
use ropeway_smb_client::{ClientOptions, Encryption, NtStatus, OpenFile};
use ropeway_smb_proto::crypto::Cipher;
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::header::{Command, HeaderFlags};

async fn block(pool: &Pool, offset: u64, length: usize) -> Block {
    let mut block = pool.get().await;
    block.capacity_mut()[..length].copy_from_slice(content(offset, length));
    block.set_len(length);
    block.freeze()
}

#[tokio::test]
async fn a_write_whose_channel_is_lost_is_replayed_on_another() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    client.open_channel().await.unwrap();
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(4096, 4);
    let open = OpenFile::write(CreateDisposition::OpenIf);
    let file = share.open(&text("file"), &open).await.unwrap();
    file.write_at(0, block(&pool, 0, 4096).await).await.unwrap();
    server.hub(|hub| hub.fatal = Some(Command::Write));
    file.write_at(4096, block(&pool, 4096, 4096).await).await.unwrap();
    let written: Vec<_> = server.hub(|hub| {
        let writes = hub.seen.iter().filter(|seen| seen.command == Command::Write);
        writes
            .map(|seen| (seen.sequence, seen.flags.contains(HeaderFlags::REPLAY_OPERATION)))
            .collect()
    });
    assert_eq!(written, [(0, false), (0, false), (1, true)]);
    assert_eq!(client.info().reconnects, 0, "the session is still valid");
    // The handle is the same.
    assert_eq!(server.hub(|hub| hub.count(Command::Create)), 1);
    file.close().await.unwrap();
}

/// A connection that is one too many ends when its requests are answered, however long that takes: it used to
/// end after two seconds, and what it had under way was sent again by others.
#[tokio::test]
async fn a_connection_that_is_not_needed_waits_for_its_replies() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    client.open_channel().await.unwrap();
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(4096, 4);
    let open = OpenFile::write(CreateDisposition::OpenIf);
    let file = share.open(&text("file"), &open).await.unwrap();
    *server.delay.lock().unwrap() = Duration::from_millis(3500);
    let (one, two) = (block(&pool, 0, 4096).await, block(&pool, 4096, 4096).await);
    let (one, two, _) = tokio::join!(file.write_at(0, one), file.write_at(4096, two), async {
        while server.hub(|hub| hub.count(Command::Write)) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.close_channel().await.unwrap();
        // Nothing to close any more.
        client.close_channel().await.unwrap();
    });
    one.unwrap();
    two.unwrap();
    assert_eq!(server.hub(|hub| hub.count(Command::Write)), 2, "sent again");
    *server.delay.lock().unwrap() = Duration::ZERO;
    file.write_at(8192, block(&pool, 8192, 4096).await).await.unwrap();
    assert_eq!(client.info().reconnects, 0);
    file.close().await.unwrap();
}

/// No task waits for the reply to the CLOSE of a dropped file. If it was lost with one of two
/// connections, the file used to stay open on the server for the life of the session.
#[tokio::test]
async fn a_detached_close_is_sent_again_if_its_channel_is_lost() {
    for (command, closes) in [(Command::Close, 2), (Command::Echo, 1)] {
        let server = Played::start(Setup::default()).await;
        let client = server.client(options()).await;
        client.open_channel().await.unwrap();
        let share = client.share("data").await.unwrap();
        let file = share.open(&text("file"), &OpenFile::read()).await.unwrap();
        server.hub(|hub| hub.fatal = Some(command));
        drop(file);
        let seen = || server.hub(|hub| hub.count(Command::Close));
        let all = async {
            while seen() < closes {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), all)
            .await
            .unwrap();
        assert_eq!((seen(), client.info().reconnects), (closes, 0), "{command:?}");
    }
}

/// The server advanced a listing, and the reply was lost with one of two connections: no name is
/// missing.
#[tokio::test]
async fn a_listing_whose_channel_is_lost_is_complete() {
    for lost in 3..7 {
        let server = Played::start(Setup::default()).await;
        let client = server.client(options()).await;
        client.open_channel().await.unwrap();
        let share = client.share("data").await.unwrap();
        server.hub(|hub| {
            hub.names = 6;
            hub.fatal_at = Some((Command::QueryDirectory, lost));
        });
        let mut listing = share.list(&text("folder"), "*").await.unwrap();
        let mut names = Vec::new();
        while let Some(records) = listing.next().await.unwrap() {
            names.extend(records.into_iter().map(|record| record.name.to_string_lossy()));
        }
        assert_eq!(names, ["n0", "n1", "n2", "n3", "n4", "n5"], "{lost}");
        assert_eq!(client.info().reconnects, 0, "the session is still valid");
    }
}

/// The server closed the file, or the session expired: the data to write is still available, even
/// if it was sealed.
#[tokio::test]
async fn a_write_refused_for_a_lost_handle_is_sent_again() {
    for status in [NtStatus::FILE_CLOSED, NtStatus::NETWORK_SESSION_EXPIRED] {
        let server = Played::start(Setup {
            cipher: Some(Cipher::Aes128Gcm),
            ..Setup::default()
        })
        .await;
        let options = ClientOptions {
            encryption: Encryption::Desired,
            ..options()
        };
        let client = server.client(options).await;
        let share = client.share("data").await.unwrap();
        let pool = Pool::new(4096, 4);
        let open = OpenFile::write(CreateDisposition::OpenIf);
        let file = share.open(&text("file"), &open).await.unwrap();
        server.hub(|hub| hub.refused = Some((Command::Write, status)));
        file.write_at(0, block(&pool, 0, 4096).await).await.unwrap();
        let (writes, opened) = server.hub(|hub| (hub.count(Command::Write), hub.count(Command::Create)));
        let reopened = usize::from(status == NtStatus::FILE_CLOSED);
        assert_eq!((writes, opened), (2, 1 + reopened), "{status}");
        // The request was answered, so the repetition is not a replay.
        assert!(server.hub(|hub| {
            let mut flags = hub.seen.iter().map(|seen| seen.flags);
            flags.all(|flags| !flags.contains(HeaderFlags::REPLAY_OPERATION))
        }));
        assert_eq!(pool.available(), 4);
    }
}

/// Exclusive creation may be repeated if the server can recognize it by its GUID.
#[tokio::test]
async fn exclusive_creation_is_replayed_by_its_guid() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    client.open_channel().await.unwrap();
    let share = client.share("data").await.unwrap();
    server.hub(|hub| hub.fatal = Some(Command::Create));
    let open = OpenFile::write(CreateDisposition::Create);
    let file = share.open(&text("file"), &open).await.unwrap();
    let (guids, replays): (Vec<_>, Vec<_>) = server.hub(|hub| {
        let creates = hub.seen.iter().filter(|seen| seen.command == Command::Create);
        creates
            .map(|seen| (seen.guid, seen.flags.contains(HeaderFlags::REPLAY_OPERATION)))
            .unzip()
    });
    assert_eq!(replays, [false, true]);
    assert!(guids[0].is_some() && guids[0] == guids[1]);
    drop(file);
}

/// In another session the request would be another open: exclusive creation is not repeated, and a
/// repeatable one gets a GUID of its own.
#[tokio::test]
async fn with_the_session_lost_nothing_is_replayed() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    server.hub(|hub| hub.fatal = Some(Command::Create));
    let open = OpenFile::write(CreateDisposition::Create);
    let unknown = share.open(&text("file"), &open).await.unwrap_err();
    let expected = ropeway_smb_client::LostReason::OutcomeUnknown;
    assert!(matches!(unknown, ropeway_smb_client::Error::Lost(reason) if reason == expected));
    server.hub(|hub| {
        hub.seen.clear();
        hub.fatal = Some(Command::Create);
    });
    let file = share.open(&text("file"), &OpenFile::read()).await.unwrap();
    let creates: Vec<_> = server.hub(|hub| {
        let creates = hub.seen.iter().filter(|seen| seen.command == Command::Create);
        creates.cloned().collect()
    });
    assert_eq!(creates.len(), 2);
    assert!(
        creates
            .iter()
            .all(|seen| !seen.flags.contains(HeaderFlags::REPLAY_OPERATION))
    );
    assert_ne!(creates[0].guid, creates[1].guid);
    drop(file);
}

#[tokio::test]
async fn in_dfs_a_create_names_the_whole_path_and_nothing_else_does() {
    for dfs in [true, false] {
        let server = Played::start(Setup {
            dfs,
            ..Setup::default()
        })
        .await;
        let client = server.client(options()).await;
        let share = client.share("data").await.unwrap();
        share.stat(&text("folder\\file")).await.unwrap();
        share.stat(&text("")).await.unwrap();
        share.rename(&text("one"), &text("other"), true).await.unwrap();
        let file = share.open(&text("file"), &OpenFile::read()).await.unwrap();
        drop(file);
        let names: Vec<_> = server.hub(|hub| hub.seen.iter().filter_map(|seen| seen.name.clone()).collect());
        let expected = match dfs {
            true => [
                "127.0.0.1\\data\\folder\\file",
                "127.0.0.1\\data",
                "127.0.0.1\\data\\one",
                "127.0.0.1\\data\\file",
            ],
            false => ["folder\\file", "", "one", "file"],
        };
        assert_eq!(names, expected.map(text));
        server.hub(|hub| {
            for seen in &hub.seen {
                let flagged = seen.flags.contains(HeaderFlags::DFS_OPERATIONS);
                assert_eq!(flagged, dfs && seen.command == Command::Create, "{seen:?}");
            }
        });
    }
}
