//! Tests the shutdown of clients and shares.

use super::{Played, options, text};
use crate::peer::Setup;
use ropeway_smb_client::{ClientOptions, OpenFile};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::header::Command;

fn last(server: &Played, count: usize) -> Vec<Command> {
    server.hub(|hub| {
        let first = hub.seen.len().saturating_sub(count);
        hub.seen[first..].iter().map(|seen| seen.command).collect()
    })
}

#[tokio::test]
async fn a_closed_client_leaves_its_shares_and_logs_off() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    let file = share.open(&text("file"), &OpenFile::read()).await.unwrap();
    drop(file);
    client.close().await;
    let said = last(&server, 3);
    assert_eq!(said, [Command::Close, Command::TreeDisconnect, Command::Logoff]);
}

/// Bytes handed to the kernel arrive, although the client does not wait for the reply.
#[tokio::test]
async fn close_now_logs_off_without_waiting() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    share.stat(&text("file")).await.unwrap();
    client.close_now().await;
    await_logoff(&server).await;
    assert_eq!(last(&server, 2), [Command::TreeDisconnect, Command::Logoff]);
    let refused = share.stat(&text("file")).await.unwrap_err();
    assert!(matches!(
        refused,
        ropeway_smb_client::Error::Lost(ropeway_smb_client::LostReason::ClientClosed)
    ));
}

/// A server that no longer answers does not delay a shutdown for long.
#[tokio::test]
async fn a_silent_server_does_not_delay_a_close() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    server.hub(|hub| hub.fatal = Some(Command::TreeDisconnect));
    drop(share);
    client.close().await;
    assert_eq!(server.hub(|hub| hub.count(Command::Logoff)), 0);
}

async fn await_logoff(server: &Played) {
    for _ in 0..500 {
        if last(server, 1) == [Command::Logoff] {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_dropped_client_logs_off_in_the_background() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    share.stat(&text("file")).await.unwrap();
    drop((share, client));
    await_logoff(&server).await;
    assert_eq!(last(&server, 2), [Command::TreeDisconnect, Command::Logoff]);
}

#[tokio::test]
async fn an_unused_share_is_disconnected() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    for _ in 0..3 {
        let share = client.share("data").await.unwrap();
        share.stat(&text("file")).await.unwrap();
    }
    client
        .share("data")
        .await
        .unwrap()
        .stat(&text("file"))
        .await
        .unwrap();
    client.close().await;
    let (entered, left) = server.hub(|hub| {
        (
            hub.count(Command::TreeConnect),
            hub.count(Command::TreeDisconnect),
        )
    });
    assert_eq!((entered, left), (4, 4));
    assert_eq!(server.hub(|hub| hub.count(Command::Logoff)), 1);
}

/// The session is logged off once, by the last of its connections.
#[tokio::test]
async fn one_of_several_connections_logs_off() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(ClientOptions::default()).await;
    client.open_channel().await.unwrap();
    client.open_channel().await.unwrap();
    let share = client.share("data").await.unwrap();
    share.stat(&text("file")).await.unwrap();
    client.close().await;
    assert_eq!(server.hub(|hub| hub.count(Command::Logoff)), 1);
    assert_eq!(last(&server, 1), [Command::Logoff]);
}

/// A server that has just started may lack memory for a moment.
#[tokio::test]
async fn a_tree_connection_refused_for_want_of_memory_after_a_loss_is_asked_for_again() {
    let server = Played::start(Setup::default()).await;
    let client = server.client(options()).await;
    let share = client.share("data").await.unwrap();
    share.stat(&text("file")).await.unwrap();
    server.hub(|hub| {
        hub.fatal = Some(Command::Create);
        hub.refused = Some((Command::TreeConnect, NtStatus::NO_MEMORY));
    });
    share.stat(&text("file")).await.unwrap();
    assert_eq!(server.hub(|hub| hub.count(Command::TreeConnect)), 3);
    // Another refusal is final.
    server.hub(|hub| {
        hub.fatal = Some(Command::Create);
        hub.refused = Some((Command::TreeConnect, NtStatus::BAD_NETWORK_NAME));
    });
    let refused = share.stat(&text("file")).await.unwrap_err();
    assert_eq!(refused.status(), Some(NtStatus::BAD_NETWORK_NAME));
}
