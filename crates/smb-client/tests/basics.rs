//! Tests the client against Samba: every dialect, signing and encryption; files, directories, small
//! files.

use crate::common::{self, block, bytes, connect, connect_with, log, options, server, start, text};
use ropeway_block::Pool;
use ropeway_peers as peers;
use ropeway_peers::or_skip;
use ropeway_smb_client::{
    Client, ClientOptions, Encryption, Error, FileAttributes, FileTime, Login, NtStatus, OpenFile, PutSmall,
    Share, Signing, Verdict,
};
use ropeway_smb_wire::create::{AccessMask, CreateDisposition};
use ropeway_smb_wire::info::{FileBasicInformation, FileEndOfFileInformation, FileStandardInformation};
use ropeway_smb_wire::negotiate::Dialect;

/// Writes a file in blocks, all in flight at the same time, and reads it back the same way.
async fn round_trip(share: &Share, path: &str, len: usize) {
    let pool = Pool::new(1 << 20, 16);
    let content = bytes(len, len as u64);
    let file = share
        .open(&text(path), &OpenFile::write(CreateDisposition::OverwriteIf))
        .await
        .unwrap();
    let step = (share.limits().write_max as usize).min(1 << 20);
    let writes = content.chunks(step).enumerate().map(|(index, chunk)| {
        let (pool, file) = (&pool, &file);
        async move {
            let block = block(pool, chunk).await;
            file.write_at((index * step) as u64, block).await
        }
    });
    for outcome in futures_util::future::join_all(writes).await {
        outcome.unwrap();
    }
    file.flush().await.unwrap();
    assert_eq!(
        file.query::<FileStandardInformation>().await.unwrap().end_of_file,
        len as u64
    );
    file.close().await.unwrap();

    let file = share.open(&text(path), &OpenFile::read()).await.unwrap();
    assert_eq!(file.created().end_of_file, len as u64);
    let step = (share.limits().read_max as usize).min(1 << 20);
    let reads = (0..len.div_ceil(step)).map(|index| {
        let (pool, file) = (&pool, &file);
        async move {
            let (block, outcome) = file.read_at((index * step) as u64, pool.get().await, step).await;
            outcome.unwrap();
            block.to_vec()
        }
    });
    let back: Vec<u8> = futures_util::future::join_all(reads).await.concat();
    assert!(back == content, "{path}: what was read differs");
    let (end, outcome) = file.read_at(len as u64 + 5, pool.get().await, 100).await;
    outcome.unwrap();
    assert!(end.is_empty());
    file.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dialect_signing_and_encryption() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    for dialect in Dialect::ALL {
        for signing in [Signing::Required, Signing::Offered] {
            for encryption in [Encryption::Off, Encryption::Required] {
                if encryption == Encryption::Required && dialect < Dialect::Smb300 {
                    continue;
                }
                println!("{dialect:?} {signing:?} {encryption:?}");
                let options = ClientOptions {
                    dialects: dialect..=dialect,
                    signing,
                    encryption,
                    ..options()
                };
                let client = connect_with(&smbd, options).await.unwrap();
                let info = client.info();
                assert_eq!(info.dialect, dialect);
                assert_eq!(info.cipher.is_some(), encryption == Encryption::Required);
                let share = client.share("data").await.unwrap();
                round_trip(&share, "file.bin", 3_500_001).await;
                assert_eq!(
                    std::fs::read(folder.path().join("file.bin")).unwrap().len(),
                    3_500_001
                );
                small_files(&share).await;
                names(&share).await;
                client.close().await;
            }
        }
    }
}

/// Writes small files and reads them back.
async fn small_files(share: &Share) {
    let pool = Pool::new(64 << 10, 16);
    share.make_directory(&text("small")).await.unwrap();
    for len in [0_usize, 1, 1000, 65_536] {
        let content = bytes(len, 7);
        let basic = FileBasicInformation {
            last_write_time: FileTime::from_unix(1_000_000_000, 500),
            attributes: FileAttributes::ARCHIVE,
            ..FileBasicInformation::default()
        };
        let put = PutSmall {
            path: text("small\\a"),
            temporary: Some(text("small\\a.part")),
            disposition: CreateDisposition::OverwriteIf,
            content: match len {
                0 => None,
                _ => Some(block(&pool, &content).await),
            },
            attributes: FileAttributes::NORMAL,
            basic: Some(basic),
            flush: true,
            replace: true,
        };
        let done = share.put_small(put).await.unwrap();
        done.basic.unwrap();
        let (got, outcome) = share
            .get_small(&text("small\\a"), usize::MAX, pool.get().await)
            .await;
        let got_info = outcome.unwrap().created;
        assert_eq!(got_info.end_of_file, len as u64);
        assert_eq!(got_info.basic.last_write_time.to_unix().0, 1_000_000_000);
        assert!(got[..] == content[..]);
    }
    let (_, missing) = share
        .get_small(&text("small\\none"), usize::MAX, pool.get().await)
        .await;
    assert_eq!(
        missing.unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
    let refused = share
        .put_small(PutSmall {
            path: text("small\\a"),
            temporary: None,
            disposition: CreateDisposition::Create,
            content: None,
            attributes: FileAttributes::NORMAL,
            basic: None,
            flush: false,
            replace: false,
        })
        .await;
    assert_eq!(
        refused.unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_COLLISION)
    );
    assert_eq!(pool.available(), 16, "every block came back");
}

/// Renames, queries and removes.
async fn names(share: &Share) {
    share
        .rename(&text("small\\a"), &text("small\\b"), false)
        .await
        .unwrap();
    let all = share.stat(&text("small\\b")).await.unwrap();
    assert_eq!(all.standard.end_of_file, 65_536);
    assert_eq!(
        share.stat(&text("small\\a")).await.unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
    assert_eq!(
        share.remove(&text("small")).await.unwrap_err().status(),
        Some(NtStatus::DIRECTORY_NOT_EMPTY)
    );
    share.remove(&text("small\\b")).await.unwrap();
    share.remove(&text("small")).await.unwrap();
    share.remove(&text("file.bin")).await.unwrap();
    assert!(share.volume().await.unwrap().size.unit_bytes().unwrap() > 0);
}

#[tokio::test]
async fn listings_of_any_size() {
    let folder = tempfile::tempdir().unwrap();
    for count in [0, 1, 450, 5000] {
        let inner = folder.path().join(format!("n{count}"));
        std::fs::create_dir(&inner).unwrap();
        for index in 0..count {
            std::fs::write(inner.join(format!("a file with a longer name {index:05}")), b"x").unwrap();
        }
    }
    let smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    for count in [0, 1, 450, 5000] {
        let mut directory = share.list(&text(&format!("n{count}")), "*").await.unwrap();
        let mut names = Vec::new();
        while let Some(records) = directory.next().await.unwrap() {
            names.extend(records.into_iter().map(|record| record.name.to_string_lossy()));
        }
        assert!(directory.next().await.unwrap().is_none(), "the end is final");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
    let mut none = share.list(&text("n5000"), "*.nothing").await.unwrap();
    assert!(none.next().await.unwrap().is_none());
    let missing = share.list(&text("nowhere"), "*").await.unwrap_err();
    assert_eq!(missing.status(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(16 << 10, 64);
    let puts = (0..1000).map(|index| {
        let (share, pool) = (share.clone(), pool.clone());
        async move {
            let content = block(&pool, &bytes(1 + index * 16, index as u64)).await;
            share
                .put_small(PutSmall {
                    path: text(&format!("f{index}")),
                    temporary: None,
                    disposition: CreateDisposition::Create,
                    content: Some(content),
                    attributes: FileAttributes::NORMAL,
                    basic: None,
                    flush: false,
                    replace: false,
                })
                .await
                .unwrap();
        }
    });
    futures_util::future::join_all(puts).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1000);
    let gets = (0..1000).map(|index| {
        let (share, pool) = (share.clone(), pool.clone());
        async move {
            let (block, outcome) = share
                .get_small(&text(&format!("f{index}")), usize::MAX, pool.get().await)
                .await;
            outcome.unwrap();
            assert!(block[..] == bytes(1 + index * 16, index as u64)[..]);
        }
    });
    futures_util::future::join_all(gets).await;
    assert_eq!(pool.available(), 64);
}

#[tokio::test]
async fn refusals_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    let endpoint = common::endpoint(&smbd);
    let wrong = Client::connect(&endpoint, Login::password("", "alice", "wrong"), options()).await;
    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.status(), Some(NtStatus::LOGON_FAILURE), "{wrong}");
    assert_eq!(wrong.verdict(), Verdict::Abort);
    assert!(wrong.hint().is_some());

    let client = connect(&smbd).await;
    let missing = client.share("nothing").await.unwrap_err();
    assert_eq!(missing.status(), Some(NtStatus::BAD_NETWORK_NAME), "{missing}");

    let closed = peers::ClosedPort::new().unwrap();
    let nobody = ropeway_smb_client::Endpoint::new("127.0.0.1", closed.address().port());
    let error = Client::connect(&nobody, Login::Anonymous, options())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Local { .. }), "{error}");
}

#[tokio::test]
async fn shares_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = server(folder.path());
    for index in 0..200 {
        let name = format!("share{index:03}");
        builder = builder.share(peers::Share::new(&name, folder.path()));
    }
    let smbd = or_skip!(builder.start());
    let shares = connect(&smbd).await.shares().await.unwrap();
    let names: Vec<_> = shares.iter().map(|share| share.name.to_string_lossy()).collect();
    assert!(names.iter().any(|name| name == "data"), "{names:?}");
    assert!(names.iter().any(|name| name == "IPC$"), "{names:?}");
    assert!(names.len() >= 202);
}

#[tokio::test]
async fn a_directory_is_watched() {
    use ropeway_smb_wire::change_notify::CompletionFilter;
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    let share = connect(&smbd).await.share("data").await.unwrap();
    let root = share.open(&text(""), &OpenFile::directory()).await.unwrap();
    let watch = root.watch(CompletionFilter::FILE_NAME | CompletionFilter::DIR_NAME, true);
    let change = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        share.make_directory(&text("new")).await.unwrap();
    };
    let (changes, ()) = tokio::join!(watch, change);
    assert_eq!(changes.unwrap()[0].file_name, text("new"));
}

#[tokio::test]
async fn lengths_and_attributes_are_set() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    let share = connect(&smbd).await.share("data").await.unwrap();
    let open = OpenFile::write(CreateDisposition::Create);
    let file = share.open(&text("f"), &open).await.unwrap();
    file.set(&FileEndOfFileInformation { end_of_file: 12_345 })
        .await
        .unwrap();
    file.close().await.unwrap();
    let metadata = OpenFile::metadata(
        AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::READ_CONTROL,
    );
    let file = share.open(&text("f"), &metadata).await.unwrap();
    assert_eq!(file.created().end_of_file, 12_345);
    let owner = ropeway_smb_wire::query_info::SecurityInformation::OWNER;
    assert!(!file.query_security(owner).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_is_copied_on_a_server_and_to_another_one() {
    log();
    let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = or_skip!(start(near.path()));
    let other = or_skip!(start(far.path()));
    let content = bytes((20 << 20) + 12_345, 3);
    std::fs::create_dir(near.path().join("sub")).unwrap();
    std::fs::write(near.path().join("sub/from"), &content).unwrap();
    let (here, there) = (connect(&one).await, connect(&other).await);
    let (share, elsewhere) = (
        here.share("data").await.unwrap(),
        there.share("data").await.unwrap(),
    );
    let from = text("sub\\from");
    let before = share.stat(&from).await.unwrap().basic;
    for (target, folder, to) in [(&share, &near, "sub\\to"), (&elsewhere, &far, "to")] {
        let to = text(to);
        let copied = share.copy(&from, target, &to, false).await.unwrap();
        assert_eq!(copied, content.len() as u64);
        let path = folder.path().join(to.to_string_lossy().replace('\\', "/"));
        assert!(std::fs::read(&path).unwrap() == content);
        let basic = target.stat(&to).await.unwrap().basic;
        assert_eq!(basic.last_write_time, before.last_write_time);
        // An existing file stays unless `replace` is set.
        std::fs::write(&path, b"mine").unwrap();
        let refused = share.copy(&from, target, &to, false).await.unwrap_err();
        assert_eq!(refused.status(), Some(NtStatus::OBJECT_NAME_COLLISION));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        share.copy(&from, target, &to, true).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content);
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
        let part = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(
            part.filter(|name| name.starts_with('.')).count(),
            0,
            "nothing is left"
        );
    }
    let missing = share.copy(&text("none"), &share, &text("x"), true).await;
    assert_eq!(
        missing.unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND)
    );
    here.close().await;
    there.close().await;
}
