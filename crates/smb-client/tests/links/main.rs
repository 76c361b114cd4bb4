//! Tests symbolic links as reparse points, against a server in memory: clients cannot create
//! Samba's.

pub(crate) mod server;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ropeway_copy::{Job, JobSpec, Options, Root, Status};
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_smb_client::{
    Client, ClientOptions, Encryption, Endpoint, Login, Signing, SmbTree, SmbTreeOptions,
};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_vfs::{CacheMode, ErrorKind, Kind, OpenOptions, RelPath, Tree};

async fn tree() -> Arc<SmbTree> {
    let address = server::start();
    let options = ClientOptions {
        signing: Signing::Offered,
        encryption: Encryption::Off,
        channels_max: 1,
        // Below 3.0 the negotiation is not validated by a signed request.
        dialects: Dialect::Smb210..=Dialect::Smb210,
        timeout: std::time::Duration::from_secs(10),
        ..ClientOptions::default()
    };
    let endpoint = Endpoint::new("127.0.0.1", address.port());
    let login = Login::password("", "anna", "secret");
    let client = Client::connect(&endpoint, login, options).await.unwrap();
    let share = client.share("data").await.unwrap();
    Arc::new(SmbTree::open(share, "", SmbTreeOptions::default()).await.unwrap())
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn links_are_made_read_listed_renamed_and_removed() {
    let tree = tree().await;
    assert!(tree.capabilities().symlinks);
    tree.make_dir(&path("dir"), 0o755).await.unwrap();
    let texts = ["file", "../dir/ä b", "dangling/deep", "/absolute/place", "."];
    for (at, text) in texts.iter().enumerate() {
        let link = path(&format!("dir/link{at}"));
        tree.make_symlink(&link, text.as_bytes()).await.unwrap();
        assert_eq!(tree.read_link(&link).await.unwrap(), text.as_bytes());
        let metadata = tree.metadata(&link).await.unwrap();
        assert_eq!(
            (metadata.kind, metadata.size),
            (Kind::Symlink, text.len() as u64),
            "{text}"
        );
        let again = tree.make_symlink(&link, b"other").await.unwrap_err();
        assert_eq!(again.kind, ErrorKind::AlreadyExists);
        assert_eq!(
            tree.read_link(&link).await.unwrap(),
            text.as_bytes(),
            "it is unchanged"
        );
    }
    let mut listing = tree.list(&path("dir")).await.unwrap();
    let entries = listing.next(100).await.unwrap();
    assert_eq!(entries.len(), texts.len());
    for (entry, text) in entries.iter().zip(texts) {
        let metadata = entry.metadata.as_ref().unwrap();
        assert_eq!((metadata.kind, metadata.size), (Kind::Symlink, text.len() as u64));
    }
    tree.rename(&path("dir/link0"), &path("moved"), false)
        .await
        .unwrap();
    assert_eq!(tree.read_link(&path("moved")).await.unwrap(), b"file");
    tree.remove_file(&path("moved")).await.unwrap();
    assert_eq!(
        tree.read_link(&path("moved")).await.unwrap_err().kind,
        ErrorKind::NotFound
    );
    let folder = tree.read_link(&path("dir")).await.unwrap_err();
    assert_eq!(folder.kind, ErrorKind::Misuse, "{folder}");
}

#[tokio::test]
async fn links_are_not_followed_and_the_error_names_them() {
    let tree = tree().await;
    tree.make_dir(&path("real"), 0o755).await.unwrap();
    tree.make_symlink(&path("link"), b"real").await.unwrap();
    let read = OpenOptions::read(CacheMode::Auto);
    let opened = tree.open(&path("link"), read).await.err().unwrap();
    assert_eq!(opened.kind, ErrorKind::SymbolicLink, "{opened}");
    let below = path("link/deep/file");
    for error in [
        tree.metadata(&below).await.unwrap_err(),
        tree.open(&below, read).await.err().unwrap(),
        tree.make_dir(&below, 0o755).await.unwrap_err(),
        tree.remove_file(&below).await.unwrap_err(),
        tree.list(&path("link/deep")).await.err().unwrap(),
    ] {
        assert_eq!(error.kind, ErrorKind::SymbolicLink, "{error}");
        let said = error.to_string();
        assert!(said.contains("link is a symbolic link to \"real\""), "{said}");
    }
}

/// Collects the nodes below a folder: text of links, content of files, nothing for folders.
fn snapshot(at: &Path, base: &Path, into: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(base).unwrap().to_owned();
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        let content = if kind.is_symlink() {
            Some([b"-> ", std::fs::read_link(&path).unwrap().as_os_str().as_bytes()].concat())
        } else if kind.is_dir() {
            snapshot(&path, base, into);
            None
        } else {
            Some(std::fs::read(&path).unwrap())
        };
        into.insert(name, content);
    }
}

async fn copy(source: Arc<dyn Tree>, target: Arc<dyn Tree>, from: &str, to: &str) {
    let root = Root {
        source,
        source_name: RelPath::root(),
        source_path: path(from),
        target_path: path(to),
    };
    let spec = JobSpec {
        roots: vec![root],
        target,
        options: Options::default(),
        journal: None,
        environment: Default::default(),
    };
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let job = Job::new(spec).run(Arc::new(move |event| sink.lock().unwrap().push(event)));
    assert_eq!(job.await.status, Status::Done, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_with_links_go_both_ways() {
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::create_dir_all(source.join("sub/deep")).unwrap();
    std::fs::write(source.join("sub/file"), "content").unwrap();
    std::fs::write(source.join("large"), vec![7; 6 << 20]).unwrap();
    for (name, text) in [
        ("to file", "sub/file"),
        ("to folder", "sub/deep"),
        ("sub/deep/up", "../../large"),
        ("dangling", "nowhere"),
        ("absolute", "/etc/hostname"),
    ] {
        std::os::unix::fs::symlink(text, source.join(name)).unwrap();
    }
    let local: Arc<dyn Tree> = LocalTree::open(here.path(), LocalOptions::default()).unwrap();
    let share: Arc<dyn Tree> = tree().await;
    copy(Arc::clone(&local), Arc::clone(&share), "source", "up").await;
    // The second copy leaves equal links unchanged.
    copy(Arc::clone(&local), Arc::clone(&share), "source", "up").await;
    copy(Arc::clone(&share), local, "up", "back").await;
    let mut trees = [BTreeMap::new(), BTreeMap::new()];
    for (tree, name) in trees.iter_mut().zip(["source", "back"]) {
        let at = here.path().join(name);
        snapshot(&at, &at, tree);
    }
    assert_eq!(trees[0].len(), 9);
    assert_eq!(trees[0], trees[1]);
}
