use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dirty::unplug::removable;
use crate::dirty::{MIB, dirty_file, look_while_dirty, owes};
use crate::support::{Place, Volume, needs, or_skip, skip, tool, wait_until};

/// Two partitions on one loop device, each mounted.
struct Partitions {
    device: String,
    roots: [PathBuf; 2],
    _folder: tempfile::TempDir,
}

impl Partitions {
    fn new() -> Result<Self, String> {
        needs(true, &["losetup", "addpart", "mkfs.ext4", "mount"])?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        File::create(&image)
            .and_then(|file| file.set_len(128 * MIB))
            .unwrap();
        let device = tool("losetup", &["-P", "--find", "--show", image.to_str().unwrap()])?;
        let roots = ["one", "two"].map(|name| folder.path().join(name));
        let partitions = Self {
            device: device.trim().to_owned(),
            roots,
            _folder: folder,
        };
        for (index, root) in partitions.roots.iter().enumerate() {
            fs::create_dir(root).unwrap();
            let (number, start) = ((index + 1).to_string(), (2048 + index * 131_072).to_string());
            tool("addpart", &[&*partitions.device, &number, &start, "126976"])?;
            let node = format!("{}p{number}", partitions.device);
            if !wait_until(Duration::from_secs(5), || Path::new(&node).exists()) {
                return Err("no node for a partition".to_owned());
            }
            tool(
                "mkfs.ext4",
                &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &node],
            )?;
            tool("mount", &[&*node, root.to_str().unwrap()])?;
        }
        for root in &partitions.roots {
            tool("sync", &[Path::new("-f"), root.as_path()])?;
        }
        Ok(partitions)
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        for root in &self.roots {
            let _ = tool("umount", &[root]);
        }
        let _ = tool("losetup", &["-d", &*self.device]);
    }
}

#[test]
fn partitions_share_their_disks_pages_and_whole_drains_all() {
    or_skip!(needs(true, &["unshare"]));
    let partitions = or_skip!(Partitions::new());
    let [one, two] = &partitions.roots;
    let place = Place::new();
    let disk = partitions.device.trim_start_matches("/dev/");
    let look = || place.ropeway("dirty").arg("--json").arg(one).ok();
    let shown = look_while_dirty(&two.join("file"), 8, look, |seen| owes(seen, 8));
    let own = &shown.summary()["devices"][0];
    assert_eq!(
        (&own["name"], own["mounts"].as_array().unwrap().len()),
        (&disk.into(), 2),
        "{shown}"
    );
    let file = place.join("removable");
    let drain = |flags: &[&str]| removable(&place, one, &file).arg("drain").args(flags).arg(one);
    let refuse = || drain(&["--no-wait"]).run();
    let refused = look_while_dirty(&two.join("file"), 8, refuse, |end| end.code() == Some(2));
    assert!(
        refused.mentions("NOT SAFE") && refused.out.contains("--whole"),
        "{refused}"
    );
    assert!(refused.out.contains(two.to_str().unwrap()), "{refused}");
    let safe = drain(&["--whole"]).ok();
    assert!(safe.out.contains("SAFE TO UNPLUG"), "{safe}");
    // The disk itself is the same as --whole.
    dirty_file(&two.join("file"), 4);
    place
        .ropeway("dirty")
        .args(["drain", "--json"])
        .arg(&partitions.device)
        .ok();
    let clean = place.ropeway("dirty").arg("--json").arg(&partitions.device).ok();
    assert_eq!(clean.summary()["devices"][0]["state"], "clean", "{clean}");
}

#[test]
fn btrfs_and_overlays_are_found_by_their_own_ways() {
    let volume = or_skip!(Volume::btrfs());
    let place = Place::new();
    tool(
        "btrfs",
        &["subvolume", "create", volume.join("sub").to_str().unwrap()],
    )
    .ok();
    let folder = volume.join("sub");
    fs::create_dir_all(&folder).unwrap();
    let look = || {
        let run = place.ropeway("dirty").args(["--json", "--by", "file"]);
        run.arg(&folder).ok()
    };
    let shown = look_while_dirty(&folder.join("file"), 8, look, |seen| owes(seen, 8));
    let own = &shown.summary()["devices"][0];
    assert!(own["bdi"].as_str().unwrap().starts_with("btrfs-"), "{shown}");
    assert!(own["name"].as_str().unwrap().starts_with("loop"), "{shown}");
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(volume.join(name)).unwrap();
    }
    let at = |name: &str| volume.join(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower"),
        at("upper"),
        at("work")
    );
    let mounted = tool(
        "mount",
        &["-t", "overlay", "-o", &options, "overlay", &at("merged")],
    );
    if let Err(why) = mounted {
        skip!("{why}");
    }
    let upper = place
        .ropeway("dirty")
        .arg("--json")
        .arg(volume.join("merged"))
        .run();
    let drained = place
        .ropeway("dirty")
        .args(["drain", "--json"])
        .arg(volume.join("merged"))
        .run();
    tool("umount", &[at("merged")]).unwrap();
    upper.assert_code(&[0]);
    assert_eq!(upper.summary()["devices"][0]["bdi"], own["bdi"], "{upper}");
    drained.assert_code(&[0]);
}
