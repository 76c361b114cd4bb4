//! Private controls between this client and this server, and with a server that has none.

use std::fs;
use std::net::SocketAddr;

use ropeway_peers::{Share as PeerShare, Smbd, or_skip};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Handle, Login, OpenFile, Share, Text};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::PrivateOperations;
use ropeway_vfs::HashAlgorithm;
use ropeway_vfs::chunks::{Chunk, Cutter, chunk_hash};

use crate::serve::Serve;

async fn share(address: SocketAddr) -> Share {
    let endpoint = Endpoint::new("127.0.0.1", address.port());
    let login = Login::password("", "alice", "secret");
    let client = Client::connect(&endpoint, login, ClientOptions::default()).await;
    client.unwrap().share("data").await.unwrap()
}

async fn open(share: &Share, name: &str) -> Handle {
    share.open(&Text::from(name), &OpenFile::read()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_and_hashes_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(3 << 20).collect();
    fs::write(folder.path().join("file"), &content).unwrap();
    let serve = Serve::start(folder.path());
    let share = share(serve.address).await;
    let file = open(&share, "file").await;
    assert!(file.has_private(PrivateOperations::CHUNKS | PrivateOperations::RANGE_HASH));
    let size = content.len() as u64;
    let mut wanted = Vec::new();
    Cutter::new(8192).cut(&content[100..], true, |chunk| {
        wanted.push(Chunk {
            length: chunk.len() as u32,
            hash: chunk_hash(chunk),
        });
    });
    assert_eq!(file.chunks(100..u64::MAX >> 1, 8192).await.unwrap(), wanted);
    let (length, hash) = file.range_hash(5..size * 2).await.unwrap();
    assert_eq!(length, size - 5);
    assert_eq!(hash, HashAlgorithm::Blake3.hash(&content[5..]));
    let blind = OpenFile {
        access: AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES,
        ..OpenFile::read()
    };
    let blind = share.open(&Text::from("file"), &blind).await.unwrap();
    let refused = blind.range_hash(0..10).await.unwrap_err();
    assert_eq!(refused.status(), Some(NtStatus::ACCESS_DENIED));
    let malformed = file.ioctl(CtlCode::PRIVATE, &[1, 0, 1], 100).await.unwrap_err();
    assert_eq!(malformed.status(), Some(NtStatus::INVALID_PARAMETER));
}

#[tokio::test(flavor = "multi_thread")]
async fn samba_has_no_private_controls_and_does_not_mind_the_question() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "content").unwrap();
    let smbd = Smbd::builder()
        .user("alice", "secret")
        .share(PeerShare::new("data", folder.path()));
    let smbd = or_skip!(smbd.start());
    let file = open(&share(smbd.address()).await, "file").await;
    assert!(!file.has_private(PrivateOperations::CHUNKS));
    assert!(file.chunks(0..7, 4096).await.is_err());
    assert_eq!(file.created().end_of_file, 7);
}
