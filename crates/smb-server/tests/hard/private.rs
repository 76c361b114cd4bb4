//! Private controls between this client and this server, and with a server that has none.

use std::fs;
use std::net::SocketAddr;

use ropeway_peers::{Share as PeerShare, Smbd, or_skip};
use ropeway_smb_client::{
    Client, ClientOptions, Endpoint, Handle, Login, OpenFile, Share, SmbTree, SmbTreeOptions, Text,
};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::PrivateOperations;
use ropeway_vfs::chunks::{Chunk, Cutter, chunk_hash};
use ropeway_vfs::{DirEntry, HashAlgorithm, Kind, Metadata, RelPath, Tree};

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

async fn tree(address: SocketAddr) -> SmbTree {
    let share = share(address).await;
    let tree = SmbTree::open(share, "", SmbTreeOptions::default()).await.unwrap();
    // The first CREATE asks what the server has.
    tree.metadata(&path("d")).await.unwrap();
    tree
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

async fn list(tree: &SmbTree, at: &str) -> Vec<DirEntry> {
    let at = path(at);
    let mut listing = tree.list(&at).await.unwrap();
    let mut whole = Vec::new();
    loop {
        let entries = listing.next(1000).await.unwrap();
        if entries.is_empty() {
            whole.sort_by(|one: &DirEntry, other| one.name.cmp(&other.name));
            return whole;
        }
        whole.extend(entries);
    }
}

/// What is known of files without a listing.
fn covered(metadata: &Metadata) -> Metadata {
    match metadata.kind {
        Kind::File => Metadata {
            dos_attributes: metadata.dos_attributes,
            has_xattrs: metadata.has_xattrs,
            ..Metadata::bare(Kind::File, metadata.size, metadata.modified)
        },
        _ => metadata.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_leads_to_the_same_entries_as_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("d");
    fs::create_dir(&inner).unwrap();
    for name in [
        "plain",
        ".hidden",
        "ä ö",
        "a:b",
        "trailing.",
        "UPPER",
        "upper",
        "\u{1F6A0}",
        "\u{f022}",
    ] {
        fs::write(inner.join(name), name).unwrap();
        fs::create_dir(inner.join(format!("folder {name}"))).unwrap();
    }
    let serve = Serve::start(folder.path());
    let tree = tree(serve.address).await;
    let listed = list(&tree, "d").await;
    assert_eq!(listed.len(), 18);
    let digest = tree.folder_digest(&path("d")).await.unwrap().unwrap();
    let mut told = digest.entries(&listed).unwrap();
    told.sort_by(|one, other| one.name.cmp(&other.name));
    for (told, listed) in told.iter().zip(&listed) {
        assert_eq!(told.name, listed.name);
        let (told, listed) = (told.metadata.as_ref().unwrap(), listed.metadata.as_ref().unwrap());
        // Asking opens the folder, which some file systems note.
        let accessed = told.accessed;
        assert_eq!(
            told,
            &Metadata {
                accessed,
                ..covered(listed)
            }
        );
    }
    let mut listing = tree.list(&path("d")).await.unwrap();
    listing.next(1000).await.unwrap();
    assert_eq!(digest.origin(), listing.origin());
    // A change shows, and so does a link, which has no digest.
    fs::write(inner.join("plain"), "longer than before").unwrap();
    let digest = tree.folder_digest(&path("d")).await.unwrap().unwrap();
    assert!(digest.entries(&listed).is_none());
    std::os::unix::fs::symlink("plain", inner.join("link")).unwrap();
    assert!(tree.folder_digest(&path("d")).await.unwrap().is_none());
    assert!(tree.folder_digest(&path("missing")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn samba_has_no_digests() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    let smbd = Smbd::builder()
        .user("alice", "secret")
        .share(PeerShare::new("data", folder.path()));
    let smbd = or_skip!(smbd.start());
    let tree = tree(smbd.address()).await;
    list(&tree, "d").await;
    assert!(tree.folder_digest(&path("d")).await.unwrap().is_none());
}
