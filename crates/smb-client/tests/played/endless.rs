//! Servers that never come to an end.

use std::time::Duration;

use crate::peer::{Hub, Setup};
use crate::{Played, options, text};
use ropeway_smb_client::{ClientOptions, Error, LostReason, Share};
use ropeway_smb_wire::header::Command;

async fn share_of(server: &Played, options: ClientOptions) -> Share {
    server.client(options).await.share("data").await.unwrap()
}

/// How many names came before the error.
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

/// The same page again and again: the listing fails, and nothing else does.
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

/// Fresh names without end.
#[tokio::test]
async fn a_folder_has_as_many_names_as_can_be_remembered() {
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

/// A request ends in its time, whatever the server says meanwhile.
async fn ends_by_itself(silence: impl FnOnce(&mut Hub)) {
    let server = Played::start(Setup::default()).await;
    let options = ClientOptions {
        timeout: Duration::from_millis(400),
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
        // Nor are logins answered.
        let is_silence = matches!(
            error,
            Error::Lost(LostReason::TimedOut | LostReason::OutcomeUnknown | LostReason::NotBack)
        );
        assert!(is_silence, "{error}");
    }
}

#[tokio::test]
async fn what_is_never_answered_ends_by_itself() {
    ends_by_itself(|hub| hub.mute = true).await;
}

/// An interim answer need not be signed ([MS-SMB2] 3.2.5.1.3): anybody on the line can make one.
#[tokio::test]
async fn what_is_announced_for_ever_ends_by_itself() {
    ends_by_itself(|hub| {
        hub.mute = true;
        hub.announces = true;
    })
    .await;
}
