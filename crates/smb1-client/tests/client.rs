//! Tests the client against a private smbd: logins and what they refuse, lists of shares, lost
//! connections, and a server that speaks no SMB 1.

use std::fs::{self, File, FileTimes};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ropeway_block::Pool;
use ropeway_peers::{Share, Smbd, or_skip};
use ropeway_smb_client::{Error, Login, NtStatus, Signing, Unprotected};
use ropeway_smb1_client::{Smb1Client, Smb1Options, Smb1Tree, Smb1TreeOptions, WeakAuth};
use ropeway_vfs::{Create, OpenOptions, RelPath, Tree};

use crate::common::{connect_with, endpoint, smb1_server};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

async fn tree(client: &Smb1Client) -> Arc<Smb1Tree> {
    let share = client.share("data").await.unwrap();
    let tree = Smb1Tree::open(share, "", Smb1TreeOptions::default()).await;
    Arc::new(tree.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smb1_server(folder.path()).start());
    let client = connect_with(&smbd, Smb1Options::default()).await.unwrap();
    let names: Vec<String> = client
        .shares()
        .await
        .unwrap()
        .iter()
        .map(|share| share.name.to_string_lossy())
        .collect();
    assert!(names.contains(&"data".to_owned()), "{names:?}");
    assert!(names.contains(&"IPC$".to_owned()), "{names:?}");
    client.close().await;
    assert!(
        client.share("data").await.is_err(),
        "a closed client stays closed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_logins_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smb1_server(folder.path()).start());
    for (user, password) in [("alice", "wrong"), ("nobody at all", "secret")] {
        let login = Login::password("", user, password);
        let refused = Smb1Client::connect(&endpoint(&smbd), &login, Smb1Options::default()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.status(), Some(NtStatus::LOGON_FAILURE), "{refused}");
    }
}

/// Samba without SPNEGO takes NTLMv1 here, which is not sent unless it is allowed. It announces
/// signatures and then has none: smbclient refuses that, too.
#[tokio::test(flavor = "multi_thread")]
async fn weak_proofs_are_sent_only_if_they_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let builder = smb1_server(folder.path())
        .option("ntlm auth", "ntlmv1-permitted")
        .option("lanman auth", "no");
    let smbd = or_skip!(builder.start());
    let old = |weak_auth: WeakAuth| Smb1Options {
        extended_security: false,
        weak_auth,
        signing: Signing::Offered,
        ..Smb1Options::default()
    };
    // Samba's own settings refuse NTLMv2 outside of SPNEGO.
    let refused = connect_with(&smbd, old(WeakAuth::default())).await.unwrap_err();
    assert!(refused.status().is_some(), "{refused}");
    let ntlm = WeakAuth {
        ntlm: true,
        ..WeakAuth::default()
    };
    let client = connect_with(&smbd, old(ntlm)).await.unwrap();
    tree(&client).await.metadata(&RelPath::root()).await.unwrap();
    let signed = Smb1Options {
        signing: Signing::Required,
        ..old(ntlm)
    };
    let client = connect_with(&smbd, signed).await.unwrap();
    let refused = client.share("data").await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::Tampered(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_sign_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let builder = smb1_server(folder.path()).option("server signing", "disabled");
    let smbd = or_skip!(builder.start());
    let refused = connect_with(&smbd, Smb1Options::default()).await.unwrap_err();
    assert!(
        matches!(refused, Error::Unprotected(Unprotected::NoSigning)),
        "{refused}"
    );
    let accepting = Smb1Options {
        signing: Signing::Offered,
        ..Smb1Options::default()
    };
    let client = connect_with(&smbd, accepting).await.unwrap();
    assert!(!client.is_signing().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_today_is_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Smbd::builder()
        .user("alice", "secret")
        .share(Share::new("data", folder.path()));
    let smbd = or_skip!(builder.start());
    let refused = connect_with(&smbd, Smb1Options::default()).await.unwrap_err();
    assert!(matches!(refused, Error::NoSmb1), "{refused}");
}

/// Files and listings go on after the server's processes were killed, with the same FIDs renewed.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..500 {
        fs::write(folder.path().join(format!("file {number:03}")), b"small").unwrap();
    }
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let large = folder.path().join("large");
    fs::write(&large, &content).unwrap();
    // The oldest time is smbd's time of creation. Reading replaces a time of access that is older than
    // the content.
    let accessed = SystemTime::now() - Duration::from_secs(3600);
    let times = FileTimes::new().set_accessed(accessed);
    File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_times(times)
        .unwrap();
    let smbd = or_skip!(smb1_server(folder.path()).start());
    let client = connect_with(&smbd, Smb1Options::default()).await.unwrap();
    let tree = tree(&client).await;
    let pool = Pool::new(1 << 20, 4);

    let file = tree.open(&path("large"), OpenOptions::default()).await.unwrap();
    let mut listing = tree.list(&RelPath::root()).await.unwrap();
    let mut names: Vec<_> = listing.next(10).await.unwrap();
    for at in (0..content.len()).step_by(1 << 20) {
        smbd.kill_connections();
        let wanted = (content.len() - at).min(1 << 20);
        let (block, outcome) = file.read_at(pool.get().await, at as u64, wanted).await;
        outcome.unwrap();
        assert_eq!(block[..], content[at..at + wanted]);
    }
    assert!(client.reconnects() >= 3);
    loop {
        let batch = listing.next(100).await.unwrap();
        if batch.is_empty() {
            break;
        }
        names.extend(batch);
    }
    let mut names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!((names.len(), count), (501, 501));

    // A write that a lost connection may have taken along is in doubt until it was flushed.
    let options = OpenOptions {
        write: true,
        create: Create::New,
        ..OpenOptions::default()
    };
    let new = tree.open(&path("new"), options).await.unwrap();
    let mut block = pool.get().await;
    block.set_len(0);
    block.capacity_mut()[..5].copy_from_slice(b"hello");
    block.set_len(5);
    let block = block.freeze();
    new.write_at(block.clone(), 0).await.unwrap();
    smbd.kill_connections();
    assert!(new.sync(false).await.is_err(), "the write may be lost");
    new.write_at(block, 0).await.unwrap();
    new.sync(false).await.unwrap();
    assert_eq!(fs::read(folder.path().join("new")).unwrap(), b"hello");
}

/// A path of more than 65,535 bytes fits no request of SMB 1, whatever the server says it receives.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_fit_no_request_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smb1_server(folder.path()).start());
    let client = connect_with(&smbd, Smb1Options::default()).await.unwrap();
    let tree = tree(&client).await;
    let long = path(&vec!["a name of a folder"; 3_000].join("/"));
    assert!(tree.metadata(&long).await.is_err());
    let write = OpenOptions::write(Create::New, ropeway_vfs::CacheMode::Keep);
    assert!(tree.open(&long, write).await.is_err());
    assert!(tree.remove_file(&long).await.is_err());
    assert!(tree.rename(&long, &path("short"), false).await.is_err());
    assert!(client.share(&"x".repeat(40_000)).await.is_err());
    // The connection goes on.
    assert!(tree.metadata(&RelPath::root()).await.is_ok());
}
