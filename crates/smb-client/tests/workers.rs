//! Slow algorithms, computed by workers, against Samba: what is written is what is read, also when the line is lost.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{Way, block, bytes, connect_with, options, start, text};
use futures_util::{StreamExt, TryStreamExt, stream};
use ropeway_block::Pool;
use ropeway_peers::or_skip;
use ropeway_smb_client::{Client, ClientOptions, Encryption, Login, OpenFile, Share, Signing};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::negotiate::Dialect;

const BLOCK: usize = 1 << 20;
const AT_ONCE: usize = 8;

/// AES-GMAC, which is no work (of old servers AES-CMAC), HMAC-SHA256, AES-CMAC, AES-CCM.
const WAYS: [(Dialect, Encryption); 4] = [
    (Dialect::Smb311, Encryption::Off),
    (Dialect::Smb210, Encryption::Off),
    (Dialect::Smb300, Encryption::Off),
    (Dialect::Smb300, Encryption::Required),
];

fn asking(dialect: Dialect, encryption: Encryption) -> ClientOptions {
    ClientOptions {
        dialects: dialect..=dialect,
        signing: Signing::Required,
        encryption,
        ..options()
    }
}

async fn write_all(share: &Share, path: &str, content: &[u8]) {
    let pool = Pool::new(BLOCK, 2 * AT_ONCE);
    let open = OpenFile::write(CreateDisposition::OverwriteIf);
    let file = share.open(&text(path), &open).await.unwrap();
    stream::iter(
        content
            .chunks(BLOCK)
            .enumerate()
            .map(Ok::<_, ropeway_smb_client::Error>),
    )
    .try_for_each_concurrent(AT_ONCE, |(index, chunk)| {
        let (pool, file) = (&pool, &file);
        async move {
            let block = block(pool, chunk).await;
            file.write_at((index * BLOCK) as u64, block).await
        }
    })
    .await
    .unwrap();
    file.close().await.unwrap();
    assert_eq!(pool.available(), pool.slots(), "every block is back");
}

async fn read_all(share: &Share, path: &str, len: usize) -> Vec<u8> {
    let pool = Pool::new(BLOCK, 2 * AT_ONCE);
    let file = share.open(&text(path), &OpenFile::read()).await.unwrap();
    let blocks: Vec<Vec<u8>> = stream::iter(0..len.div_ceil(BLOCK))
        .map(|index| {
            let (pool, file) = (&pool, &file);
            async move {
                let block = pool.get().await;
                let (block, outcome) = file.read_at((index * BLOCK) as u64, block, BLOCK).await;
                outcome.unwrap();
                block.to_vec()
            }
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    file.close().await.unwrap();
    assert_eq!(pool.available(), pool.slots(), "every block is back");
    blocks.concat()
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn there_and_back(dialect: Dialect, encryption: Encryption) {
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let smbd = or_skip!(start(folder.path()));
        let client = connect_with(&smbd, asking(dialect, encryption)).await.unwrap();
        let info = client.info();
        let is_slow = match (info.cipher, info.signing) {
            (Some(cipher), _) => cipher.is_slow(),
            (None, signing) => signing.is_some_and(|signing| signing.is_slow()),
        };
        assert!(is_slow || dialect == Dialect::Smb311);
        let share = client.share("data").await.unwrap();
        let before = threads();
        // Not of whole blocks.
        let content = bytes((24 << 20) + 12_345, 3);
        write_all(&share, "f", &content).await;
        assert!(
            std::fs::read(folder.path().join("f")).unwrap() == content,
            "{dialect:?} {encryption:?}"
        );
        assert!(
            read_all(&share, "f", content.len()).await == content,
            "{dialect:?} {encryption:?}"
        );
        let has_cores = std::thread::available_parallelism().unwrap().get() > 1;
        assert_eq!(
            threads() > before,
            is_slow && has_cores,
            "{dialect:?} {encryption:?}"
        );
        client.close().await;
    });
}

/// One after the other: the threads of the process are counted.
#[test]
fn slow_algorithms_are_computed_by_workers() {
    for (dialect, encryption) in WAYS {
        there_and_back(dialect, encryption);
    }
    lines_are_lost();
}

/// With jobs under way each time.
fn lines_are_lost() {
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let smbd = or_skip!(start(folder.path()));
        for encryption in [Encryption::Off, Encryption::Required] {
            let way = Way::to(&smbd).await;
            let login = Login::password("", "alice", "secret");
            let asked = asking(Dialect::Smb300, encryption);
            let client = Client::connect(&way.endpoint, login, asked).await.unwrap();
            let share = client.share("data").await.unwrap();
            let content = bytes(12 << 20, 4);
            let cuts = async {
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    way.cut();
                }
                // No more of them.
                std::future::pending::<()>().await;
            };
            let copies = async {
                write_all(&share, "lost", &content).await;
                assert!(read_all(&share, "lost", content.len()).await == content);
            };
            tokio::select! {
                () = cuts => {}
                () = copies => {}
            }
            client.close().await;
        }
    });
}
