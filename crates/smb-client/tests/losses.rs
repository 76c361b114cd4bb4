//! Tests lost connections, restarted servers and dropped futures.

use std::time::Duration;

use crate::common::{self, block, bytes, connect, connect_with, log, options, start, text};
use ropeway_block::Pool;
use ropeway_peers::or_skip;
use ropeway_smb_client::{
    Client, ClientOptions, Encryption, Error, FileAttributes, Login, LostReason, OpenFile, PutSmall,
};
use ropeway_smb_wire::create::CreateDisposition;

/// Writes a file while the server is killed or its connections are cut, and checks the outcome.
async fn written_through(encryption: Encryption, kill: bool) {
    log();
    let folder = tempfile::tempdir().unwrap();
    let mut smbd = or_skip!(start(folder.path()));
    let options = ClientOptions {
        encryption,
        ..options()
    };
    let client = connect_with(&smbd, options).await.unwrap();
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(256 << 10, 32);
    let content = bytes(64 << 20, 3);
    let open = OpenFile::write(CreateDisposition::Create);
    let file = share.open(&text("big"), &open).await.unwrap();
    let disturb = tokio::task::spawn_blocking(move || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(60));
            match kill {
                true => {
                    smbd.kill();
                    smbd.restart().unwrap();
                }
                false => smbd.kill_connections(),
            }
        }
        smbd
    });
    let mut passes = 0;
    while !disturb.is_finished() || passes == 0 {
        passes += 1;
        let writes = content.chunks(256 << 10).enumerate().map(|(index, chunk)| {
            let (pool, file) = (&pool, &file);
            async move {
                let block = block(pool, chunk).await;
                file.write_at((index * (256 << 10)) as u64, block).await
            }
        });
        for outcome in futures_util::future::join_all(writes).await {
            outcome.unwrap();
        }
    }
    let _smbd = disturb.await.unwrap();
    file.close().await.unwrap();
    let on_disk = std::fs::read(folder.path().join("big")).unwrap();
    assert!(on_disk == content, "the received data differs");
    println!("reconnects: {}", client.info().reconnects);
    assert!(client.info().reconnects > 0);

    // Reads it back through similar disturbances.
    let file = share.open(&text("big"), &OpenFile::read()).await.unwrap();
    let (first, outcome) = file.read_at(0, pool.get().await, 256 << 10).await;
    outcome.unwrap();
    assert!(first[..] == content[..256 << 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_survive_a_restarted_server() {
    written_through(Encryption::Off, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_survive_cut_connections() {
    written_through(Encryption::Off, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_writes_survive_cut_connections() {
    written_through(Encryption::Required, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_listings_survive_cut_connections() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(32 << 20, 9);
    std::fs::write(folder.path().join("big"), &content).unwrap();
    std::fs::create_dir(folder.path().join("many")).unwrap();
    for index in 0..12_000 {
        std::fs::write(folder.path().join(format!("many/file number {index}")), b"").unwrap();
    }
    let smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(256 << 10, 16);
    let file = share.open(&text("big"), &OpenFile::read()).await.unwrap();
    let disturb = tokio::task::spawn_blocking(move || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(30));
            smbd.kill_connections();
        }
        smbd
    });
    let reads = (0..128).map(|index| {
        let (pool, file, content) = (&pool, &file, &content);
        async move {
            let at = index * (256 << 10);
            let (block, outcome) = file.read_at(at as u64, pool.get().await, 256 << 10).await;
            outcome.unwrap();
            assert!(block[..] == content[at..at + (256 << 10)]);
        }
    });
    let listing = async {
        let mut directory = share.list(&text("many"), "*").await.unwrap();
        let mut names = std::collections::HashSet::new();
        while let Some(records) = directory.next().await.unwrap() {
            for record in records {
                assert!(
                    names.insert(record.name.to_string_lossy()),
                    "a name was listed twice"
                );
            }
        }
        assert_eq!(names.len(), 12_000);
    };
    tokio::join!(futures_util::future::join_all(reads), listing);
    let _smbd = disturb.await.unwrap();
    assert_eq!(pool.available(), 16);
}

#[tokio::test]
async fn a_server_that_stays_away_is_an_error_in_time() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let mut smbd = or_skip!(start(folder.path()));
    let options = ClientOptions {
        timeout: Duration::from_secs(3),
        ..options()
    };
    let client = connect_with(&smbd, options).await.unwrap();
    let share = client.share("data").await.unwrap();
    smbd.kill();
    let started = std::time::Instant::now();
    let path = text("x");
    let stats = (0..50).map(|_| share.stat(&path));
    for outcome in futures_util::future::join_all(stats).await {
        assert!(
            matches!(outcome, Err(Error::Lost(LostReason::NotBack))),
            "{outcome:?}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    smbd.restart().unwrap();
    assert!(share.stat(&text("")).await.is_ok(), "the client reconnects");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_leave_nothing_behind() {
    log();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("big"), bytes(8 << 20, 1)).unwrap();
    let smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(1 << 20, 8);
    let file = share.open(&text("big"), &OpenFile::read()).await.unwrap();
    for round in 0..200_u64 {
        let pause = Duration::from_micros(round * 10);
        let read = async { file.read_at((round % 8) << 20, pool.get().await, 1 << 20).await };
        let _ = tokio::time::timeout(pause, read).await;
        let write = async {
            let content = block(&pool, &bytes(1000, round)).await;
            let put = PutSmall {
                path: text(&format!("dropped{round}")),
                temporary: None,
                disposition: CreateDisposition::OverwriteIf,
                content: Some(content),
                attributes: FileAttributes::NORMAL,
                basic: None,
                flush: false,
                replace: false,
            };
            share.put_small(put).await
        };
        let _ = tokio::time::timeout(pause, write).await;
        let _ = tokio::time::timeout(pause, share.open(&text("big"), &OpenFile::read())).await;
    }
    let (block, outcome) = file.read_at(0, pool.get().await, 1 << 20).await;
    outcome.unwrap();
    assert!(block[..] == bytes(8 << 20, 1)[..1 << 20]);
    drop(block);
    for _ in 0..100 {
        if pool.available() == 8 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pool.available(), 8, "every block came back");
    file.close().await.unwrap();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_handles_are_reclaimed() {
    use ropeway_smb_wire::negotiate::Dialect;
    log();
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(common::server(folder.path()).durable_handles(true).start());
    let way = common::Way::to(&smbd).await;
    for dialect in [Dialect::Smb210, Dialect::Smb302, Dialect::Smb311] {
        let options = ClientOptions {
            dialects: dialect..=dialect,
            ..options()
        };
        let login = Login::password("", "alice", "secret");
        let client = Client::connect(&way.endpoint, login, options).await.unwrap();
        let share = client.share("data").await.unwrap();
        let pool = Pool::new(4096, 4);
        let path = text(&format!("durable {dialect:?}"));
        let open = OpenFile::write(CreateDisposition::Create);
        let file = share.open(&path, &open).await.unwrap();
        assert!(file.created().durable, "{dialect:?}");
        file.write_at(0, block(&pool, b"before").await).await.unwrap();
        way.cut();
        file.write_at(6, block(&pool, b" and after").await).await.unwrap();
        // Only a reclaimed handle is sure of earlier writes.
        file.flush().await.unwrap();
        file.close().await.unwrap();
        let (got, outcome) = share.get_small(&path, usize::MAX, pool.get().await).await;
        outcome.unwrap();
        assert_eq!(&got[..], b"before and after");
        // A second open of the same file breaks the first one's oplock, and the client acknowledges
        // at once.
        let first = share.open(&path, &OpenFile::read()).await.unwrap();
        let began = std::time::Instant::now();
        let second = share
            .open(&path, &OpenFile::write(CreateDisposition::Open))
            .await
            .unwrap();
        // Without an acknowledgment smbd waits 35 s.
        assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
        drop((first, second));
        client.close().await;
    }
}

#[tokio::test]
async fn writes_in_doubt_are_reported() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let mut smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(4096, 4);
    let open = OpenFile::write(CreateDisposition::Create);
    let file = share.open(&text("f"), &open).await.unwrap();
    file.write_at(0, block(&pool, b"x").await).await.unwrap();
    smbd.kill();
    smbd.restart().unwrap();
    let error = file.flush().await.unwrap_err();
    assert!(matches!(error, Error::Lost(LostReason::WritesInDoubt)), "{error}");
    let error = file.flush().await.unwrap_err();
    assert!(
        matches!(error, Error::Lost(LostReason::WritesInDoubt)),
        "the handle stays in doubt: {error}"
    );
    // Another file of the same name is not taken for it.
    smbd.kill();
    std::fs::rename(folder.path().join("f"), folder.path().join("g")).unwrap();
    std::fs::write(folder.path().join("f"), b"another").unwrap();
    smbd.restart().unwrap();
    let gone = file.write_at(0, block(&pool, b"y").await).await.unwrap_err();
    assert!(matches!(gone, Error::Lost(LostReason::HandleGone)), "{gone}");
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"another");
}
