//! Tests servers whose replies never end.

use std::time::Duration;

use super::{Played, options, text};
use crate::peer::{Hub, Setup};
use ropeway_smb_client::{ClientOptions, Error, LostReason, Share};
use ropeway_smb_wire::header::Command;

async fn share_of(server: &Played, options: ClientOptions) -> Share {
    server.client(options).await.share("data").await.unwrap()
}

/// Returns the number of names before the error, and the error.
async fn names_before(share: &Share) -> (usize, Error) {
    let mut listing = share.list(&text("folder"), "*").await.unwrap();
    let mut names = 0;
    loop {
        match listing.next().await {
            Ok(Some(records)) => names += records.len(),
            Ok(None) => panic!("it ended after {names}"),
            Err(error) => return (names, error),
        }
    }
}

/// The server repeats the same page: the listing fails, and nothing else does.
#[tokio::test]
async fn a_listing_that_repeats_itself_is_an_error() {
    let server = Played::start(Setup::default()).await;
    let share = share_of(&server, options()).await;
    server.hub(|hub| {
        hub.names = 5;
        hub.repeats = true;
    });
    let (names, error) = names_before(&share).await;
    assert_eq!(names, 5);
    assert!(matches!(error, Error::PeerMisbehaved(_)), "{error}");
    assert!(server.hub(|hub| hub.count(Command::QueryDirectory)) < 40);
    share.stat(&text("file")).await.unwrap();
    assert_eq!(share.client().info().reconnects, 0);
}

/// The server sends new names without end.
#[tokio::test]
async fn a_folder_with_too_many_names_is_an_error() {
    let server = Played::start(Setup::default()).await;
    let options = ClientOptions {
        names_max: 300,
        ..options()
    };
    let share = share_of(&server, options).await;
    server.hub(|hub| hub.names = 300);
    let mut listing = share.list(&text("folder"), "*").await.unwrap();
    while listing.next().await.unwrap().is_some() {}
    server.hub(|hub| hub.names = u32::MAX);
    let (names, error) = names_before(&share).await;
    assert!((300..=301).contains(&names), "{names}");
    assert!(error.to_string().contains("more than 300 names"), "{error}");
    share.stat(&text("file")).await.unwrap();
}

/// Checks that a request times out, whatever else the server sends.
async fn times_out(silence: impl FnOnce(&mut Hub)) {
    let server = Played::start(Setup::default()).await;
    let options = ClientOptions {
        timeout: Duration::from_millis(1500),
        ..options()
    };
    let share = share_of(&server, options).await;
    server.hub(silence);
    let path = text("file");
    let (stat, list, rename) = tokio::join!(
        share.stat(&path),
        share.list(&path, "*"),
        share.rename(&path, &path, true)
    );
    for error in [stat.map(drop), list.map(drop), rename.map(drop)] {
        let error = error.unwrap_err();
        // Logins are not answered either.
        let is_silence = matches!(
            error,
            Error::Lost(LostReason::TimedOut | LostReason::OutcomeUnknown | LostReason::NotBack)
        );
        assert!(is_silence, "{error}");
    }
}

#[tokio::test]
async fn an_unanswered_request_times_out() {
    times_out(|hub| hub.mute = true).await;
}

/// An interim reply need not be signed ([MS-SMB2] 3.2.5.1.3), so anyone on the line can forge one.
#[tokio::test]
async fn endless_interim_replies_time_out() {
    times_out(|hub| {
        hub.mute = true;
        hub.announces = true;
    })
    .await;
}
