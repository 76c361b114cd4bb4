//! Tests DFS, sealed shares, further channels and guest sessions.

use crate::common::{self, block, bytes, connect, connect_with, log, options, server, text};
use ropeway_block::Pool;
use ropeway_peers as peers;
use ropeway_peers::or_skip;
use ropeway_smb_client::{Client, ClientOptions, Login, NtStatus, OpenFile};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_vfs::trace::Carried;

#[tokio::test]
async fn dfs_refers_to_another_share() {
    log();
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(other.path().join("inner")).unwrap();
    std::fs::write(other.path().join("inner/file"), b"found").unwrap();
    let builder = peers::Smbd::builder()
        .user("alice", "secret")
        .option("host msdfs", "yes")
        .share(peers::Share::new("data", folder.path()).dfs_root())
        .share(peers::Share::new("other", other.path()));
    let smbd = or_skip!(builder.start());
    smbd.dfs_link("data", "link", "127.0.0.1\\other").unwrap();
    let share = connect(&smbd).await.share("data").await.unwrap();
    let pool = Pool::new(4096, 2);
    for _ in 0..2 {
        let (got, outcome) = share
            .get_small(&text("link\\inner\\file"), usize::MAX, pool.get().await)
            .await;
        outcome.unwrap();
        assert_eq!(&got[..], b"found");
        let mut directory = share.list(&text("link"), "*").await.unwrap();
        let records = directory.next().await.unwrap().unwrap();
        assert_eq!(records[0].name, text("inner"));
        let file = share
            .open(&text("LINK\\inner\\file"), &OpenFile::read())
            .await
            .unwrap();
        assert_eq!(file.created().end_of_file, 5);
        assert_eq!(file.path(), &text("inner\\file"));
    }
    let put = ropeway_smb_client::PutSmall {
        path: text("link\\new"),
        temporary: Some(text("link\\new.part")),
        disposition: CreateDisposition::Create,
        content: Some(block(&pool, b"put").await),
        attributes: ropeway_smb_client::FileAttributes::NORMAL,
        basic: None,
        flush: false,
        replace: false,
    };
    share.put_small(put).await.unwrap();
    share
        .rename(&text("link\\new"), &text("link\\newer"), false)
        .await
        .unwrap();
    assert_eq!(std::fs::read(other.path().join("newer")).unwrap(), b"put");
    let missing = share.stat(&text("link\\nothing")).await.unwrap_err();
    assert_eq!(missing.status(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_may_demand_encryption() {
    let folder = tempfile::tempdir().unwrap();
    let builder = peers::Smbd::builder()
        .user("alice", "secret")
        .share(peers::Share::new("data", folder.path()).encryption(peers::Encryption::Required));
    let smbd = or_skip!(builder.start());
    let share = connect(&smbd).await.share("data").await.unwrap();
    let pool = Pool::new(64 << 10, 4);
    let content = bytes(60_000, 1);
    let open = OpenFile::write(CreateDisposition::Create);
    let file = share.open(&text("f"), &open).await.unwrap();
    file.write_at(0, block(&pool, &content).await).await.unwrap();
    let (got, outcome) = file.read_at(0, pool.get().await, 64 << 10).await;
    outcome.unwrap();
    assert!(got[..] == content[..]);
    drop(file);
    assert!(share.stat(&text("f")).await.is_ok());
}

#[tokio::test]
async fn guest_sessions_need_the_guest_login() {
    let folder = tempfile::tempdir().unwrap();
    let builder = peers::Smbd::builder()
        .user("alice", "secret")
        .guest()
        .share(peers::Share::new("data", folder.path()).guest());
    let smbd = or_skip!(builder.start());
    let endpoint = common::endpoint(&smbd);
    let unknown = Client::connect(&endpoint, Login::password("", "nobody-known", "x"), options()).await;
    assert!(
        unknown.is_err(),
        "an unknown user does not silently become a guest"
    );
    let guest = Client::connect(&endpoint, Login::Guest, options()).await.unwrap();
    assert!(guest.info().guest);
    assert!(guest.info().signing.is_none());
    let share = guest.share("data").await.unwrap();
    assert!(share.stat(&text("")).await.is_ok());
}

#[tokio::test]
async fn addresses_of_version_6() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(server(folder.path()).ipv6().start());
    let endpoint = ropeway_smb_client::Endpoint::new("::1", smbd.port());
    let client = Client::connect(&endpoint, Login::password("", "alice", "secret"), options()).await;
    client.unwrap().share("data").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_channels_carry_data() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(server(folder.path()).multichannel(true).start());
    for encryption in [
        ropeway_smb_client::Encryption::Off,
        ropeway_smb_client::Encryption::Required,
    ] {
        let options = ClientOptions {
            encryption,
            ..options()
        };
        let client = connect_with(&smbd, options).await.unwrap();
        let share = client.share("data").await.unwrap();
        client.open_channel().await.unwrap();
        client.open_channel().await.unwrap();
        assert_eq!(client.info().channels, 3);
        let pool = Pool::new(256 << 10, 16);
        let content = bytes(16 << 20, 5);
        let open = OpenFile::write(CreateDisposition::OverwriteIf);
        let file = share.open(&text("f"), &open).await.unwrap();
        let writes = content.chunks(256 << 10).enumerate().map(|(index, chunk)| {
            let (pool, file) = (&pool, &file);
            async move {
                let block = block(pool, chunk).await;
                file.write_at((index * (256 << 10)) as u64, block).await.unwrap();
            }
        });
        futures_util::future::join_all(writes).await;
        file.close().await.unwrap();
        assert!(std::fs::read(folder.path().join("f")).unwrap() == content);
        client.close().await;
    }
}

/// The first connection is for requests without data, which would wait behind whole files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_files_leave_the_first_connection_free() {
    log();
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(server(folder.path()).multichannel(true).start());
    let client = connect_with(&smbd, options()).await.unwrap();
    let share = client.share("data").await.unwrap();
    let stat = Carried::new(Box::pin(async { share.stat(&text("")).await }));
    let first = connection_of(stat).await;
    client.open_channel().await.unwrap();
    client.open_channel().await.unwrap();
    let (pool, content) = (Pool::new(1 << 20, 6), bytes(1 << 20, 3));
    let puts = (0..6).map(|number| {
        let (share, pool, content) = (&share, &pool, &content);
        let put = async move {
            let put = ropeway_smb_client::PutSmall {
                path: text(&format!("f{number}")),
                temporary: None,
                disposition: CreateDisposition::Create,
                content: Some(block(pool, content).await),
                attributes: ropeway_smb_client::FileAttributes::NORMAL,
                basic: None,
                flush: false,
                replace: false,
            };
            share.put_small(put).await
        };
        connection_of(Carried::new(Box::pin(put)))
    });
    let used = futures_util::future::join_all(puts).await;
    assert!(used.iter().all(|connection| *connection != first), "{used:?}");
    assert!(used.iter().any(|connection| *connection != used[0]), "{used:?}");
    for number in 0..6 {
        assert!(std::fs::read(folder.path().join(format!("f{number}"))).unwrap() == content);
    }
    client.close().await;
}

/// Returns the number of the connection that carried an operation.
async fn connection_of<T: std::fmt::Debug, E: std::fmt::Debug>(
    mut carried: Carried<impl Future<Output = Result<T, E>> + Unpin>,
) -> u64 {
    (&mut carried).await.unwrap();
    carried.connection().unwrap()
}
