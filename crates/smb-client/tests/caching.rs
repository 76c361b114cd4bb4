//! Tests oplocks and leases against Samba: the effect of another client's opens on ours, and of
//! ours on theirs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Way, block, log, options, server, text};
use ropeway_block::Pool;
use ropeway_peers::{Smbd, or_skip};
use ropeway_smb_client::{Client, ClientOptions, Login, OpenFile};
use ropeway_smb_wire::create::{AccessMask, CreateDisposition};
use ropeway_smb_wire::negotiate::Dialect;

/// Shorter than the 35 s that smbd waits for an acknowledgment before it revokes the right.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Runs another client, which must not have to wait for ours.
async fn smbclient(smbd: &Smbd, what: String) {
    let mut command = Command::new("smbclient");
    command
        .args([
            "//127.0.0.1/data",
            "-U",
            "alice",
            "-p",
            &smbd.port().to_string(),
            "-c",
            &what,
        ])
        .env("PASSWD", "secret")
        .stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let done = tokio::time::timeout(UNACKNOWLEDGED, run).await;
    let done = done
        .expect("the other client waits for an acknowledgment")
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && !said.contains("NT_STATUS"),
        "{what}: {said}"
    );
}

async fn with_dialect(way: &Way, dialect: Dialect) -> Client {
    let options = ClientOptions {
        dialects: dialect..=dialect,
        ..options()
    };
    let login = Login::password("", "alice", "secret");
    Client::connect(&way.endpoint, login, options).await.unwrap()
}

fn durable_server(folder: &Path) -> Result<Smbd, ropeway_peers::PeerError> {
    server(folder).durable_handles(true).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_clients_opens_break_our_rights() {
    log();
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let smbd = or_skip!(durable_server(folder.path()));
    let way = Way::to(&smbd).await;
    let (theirs, got) = (elsewhere.path().join("theirs"), elsewhere.path().join("got"));
    std::fs::write(&theirs, b"by another client").unwrap();
    for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb311] {
        let client = with_dialect(&way, dialect).await;
        let share = client.share("data").await.unwrap();
        let pool = Pool::new(4096, 4);
        let name = format!("{dialect:?}");
        let open = OpenFile {
            // Without DELETE, which smbclient does not share.
            access: AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE,
            ..OpenFile::write(CreateDisposition::Create)
        };
        let file = share.open(&text(&name), &open).await.unwrap();
        assert!(file.created().durable, "{dialect:?}");
        file.write_at(0, block(&pool, b"ours").await).await.unwrap();
        // A reader: a lease stays complete; an oplock is broken.
        smbclient(&smbd, format!("get {name} {}", got.display())).await;
        assert_eq!(std::fs::read(&got).unwrap(), b"ours");
        file.write_at(4, block(&pool, b", still").await).await.unwrap();
        if dialect != Dialect::Smb202 {
            // So the handle is reclaimed, not opened again: no write is in doubt.
            way.cut();
            file.flush().await.unwrap();
        }
        // A writer, twice: the second one breaks what the first left.
        for _ in 0..2 {
            smbclient(&smbd, format!("put {} {name}", theirs.display())).await;
            assert_eq!(
                std::fs::read(folder.path().join(&name)).unwrap(),
                b"by another client"
            );
        }
        // Renamed and deleted by the other client: handle caching is broken too.
        smbclient(&smbd, format!("rename {name} {name}.old")).await;
        let (read, outcome) = file.read_at(0, pool.get().await, 4096).await;
        outcome.unwrap();
        assert_eq!(&read[..], b"by another client");
        file.close().await.unwrap();
        client.close().await;
    }
}

/// A second open and a rename by path of the same client do not wait for its own lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_opens_do_not_wait_for_each_other() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(durable_server(folder.path()));
    let way = Way::to(&smbd).await;
    for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb311] {
        let client = with_dialect(&way, dialect).await;
        let share = client.share("data").await.unwrap();
        let all = async {
            let open = OpenFile::write(CreateDisposition::OpenIf);
            let first = share.open(&text("file"), &open).await.unwrap();
            let second = share.open(&text("file"), &open).await.unwrap();
            let pool = Pool::new(4096, 4);
            first.write_at(0, block(&pool, b"one").await).await.unwrap();
            second.write_at(3, block(&pool, b"two").await).await.unwrap();
            share.rename(&text("file"), &text("moved"), true).await.unwrap();
            first.close().await.unwrap();
            second.close().await.unwrap();
            share.remove(&text("moved")).await.unwrap();
        };
        tokio::time::timeout(UNACKNOWLEDGED, all).await.unwrap();
        client.close().await;
    }
}

/// A lease key names one file for ever: the server would treat a file of another name as an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_name_gets_another_lease() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(durable_server(folder.path()));
    let way = Way::to(&smbd).await;
    let client = with_dialect(&way, Dialect::Smb311).await;
    let share = client.share("data").await.unwrap();
    let open = OpenFile::write(CreateDisposition::Create);
    let mut held = Vec::new();
    for index in 0..5 {
        let file = share.open(&text("temporary"), &open).await.unwrap();
        assert!(file.created().durable);
        share
            .rename(&text("temporary"), &text(&format!("final{index}")), false)
            .await
            .unwrap();
        held.push(file);
    }
    drop(held);
    client.close().await;
}
