//! Tests FSCTL_DUPLICATE_EXTENTS_TO_FILE against smbd on btrfs: what is cloned, and the errors for
//! what cannot be.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::{bytes, connect, log, text};
use ropeway_peers as peers;
use ropeway_peers::or_skip;
use ropeway_smb_client::{NtStatus, OpenFile, SmbTree, SmbTreeOptions};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::info::FileEndOfFileInformation;
use ropeway_vfs::{CacheMode, Create, File, OpenOptions, RelPath, Tree};

/// A btrfs on a loop device; unmounted when dropped.
struct Btrfs(tempfile::TempDir);

impl Btrfs {
    fn mount() -> Result<Self, String> {
        let this = Self(tempfile::tempdir().map_err(|error| error.to_string())?);
        let image = this.0.path().join("image");
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20));
        made.and_then(|()| std::fs::create_dir(this.root()))
            .map_err(|error| error.to_string())?;
        run("mkfs.btrfs", &["-q".as_ref(), "-f".as_ref(), &image])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &this.root()])?;
        Ok(this)
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // It is not mounted if mounting failed. smbd may keep its last files open for a moment.
        for _ in 0..50 {
            if run("umount", &[&self.root()]).is_ok() || !self.root().join("data").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{program}: {said}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn extents_are_shared_to_the_end_of_the_file() {
    log();
    let btrfs = match Btrfs::mount() {
        Ok(btrfs) => btrfs,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let root = btrfs.root().join("data");
    std::fs::create_dir(&root).unwrap();
    let content = bytes((3 << 20) + 1234, 5);
    std::fs::write(root.join("from"), &content).unwrap();
    let share = |name| peers::Share::new(name, &root);
    let builder = peers::Smbd::builder()
        .user("alice", "secret")
        .share(share("data").module("btrfs"))
        .share(share("plain"));
    let smbd = or_skip!(builder.start());
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();

    // The request itself: set the length first, then clone everything, up to an end inside a
    // cluster.
    let size = content.len() as u64;
    let from = share.open(&text("from"), &OpenFile::read()).await.unwrap();
    let open = OpenFile::write(CreateDisposition::Create);
    let to = share.open(&text("to"), &open).await.unwrap();
    to.set(&FileEndOfFileInformation { end_of_file: size })
        .await
        .unwrap();
    to.duplicate_extents(&from, 0, 0, size).await.unwrap();
    to.flush().await.unwrap();
    assert_eq!(std::fs::read(root.join("to")).unwrap(), content);
    let beyond = to.duplicate_extents(&from, 4096, 0, size).await;
    assert!(beyond.is_err(), "the source ends earlier");
    let other = connect(&smbd).await.share("data").await.unwrap();
    let foreign = other.open(&text("from"), &OpenFile::read()).await.unwrap();
    let error = to.duplicate_extents(&foreign, 0, 0, 4096).await.unwrap_err();
    assert_eq!(
        error.status(),
        Some(NtStatus::NOT_SAME_DEVICE),
        "the source belongs to another client"
    );

    // The request as trees send it.
    for (name, is_shared) in [("data", true), ("plain", false)] {
        let share = client.share(name).await.unwrap();
        let tree = SmbTree::open(share, "", SmbTreeOptions::default()).await.unwrap();
        let at = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        let read = OpenOptions::read(CacheMode::Auto);
        let write = OpenOptions::write(Create::New, CacheMode::Auto);
        let source: Arc<dyn File> = tree.open(&at("from"), read).await.unwrap();
        let target = tree.open(&at(&format!("clone-{name}")), write).await.unwrap();
        assert_eq!(target.reflink_from(&*source).await.unwrap(), is_shared, "{name}");
        if is_shared {
            assert_eq!(std::fs::read(root.join("clone-data")).unwrap(), content);
        }
        assert!(tree.copies_inside(&tree));
    }
    client.close().await;
    drop(smbd);
}
