//! `copy --write-device`: images written onto a block device.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use crate::support::{Place, Volume, file, needs, or_skip, tool};

/// A loop device over a file; it is detached on drop.
struct Loop {
    device: String,
    backing: PathBuf,
}

impl Loop {
    fn over(place: &Place, name: &str, mib: u64) -> Result<Self, String> {
        needs(true, &["losetup"])?;
        let backing = place.join(name);
        file(&backing, mib << 20, 77);
        let device = tool(
            "losetup",
            &["--find".as_ref(), "--show".as_ref(), backing.as_os_str()],
        )?;
        Ok(Self {
            device: device.trim().to_owned(),
            backing,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tool("losetup", &["-d", &self.device]);
    }
}

/// The device has the whole image, with holes as zeroes, and keeps its contents beyond the image.
#[test]
fn an_image_is_written_onto_a_device_and_read_back() {
    let place = Place::new();
    let device = or_skip!(Loop::over(&place, "backing", 24));
    let before = fs::read(&device.backing).unwrap();
    let image = place.join("image");
    file(&image, (9 << 20) + 512, 5);
    let holes = File::options().write(true).open(&image).unwrap();
    rustix::fs::fallocate(
        &holes,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        2 << 20,
        3 << 20,
    )
    .unwrap();
    let finished = place
        .copy("image", &device.device)
        .args(["--write-device", "--verify"])
        .ok();
    assert_eq!(finished.number("bytes_durable"), (9 << 20) + 512);
    assert_eq!(finished.summary()["verified"], true);
    let content = fs::read(&image).unwrap();
    let mut seen = Vec::new();
    File::open(&device.device)
        .unwrap()
        .read_to_end(&mut seen)
        .unwrap();
    assert!(
        seen[..content.len()] == content[..],
        "the device does not have the image"
    );
    assert!(
        fs::read(&device.backing).unwrap()[content.len()..] == before[content.len()..],
        "beyond the image"
    );
    // Through a link, as in /dev/disk/by-id; and from a device.
    std::os::unix::fs::symlink(&device.device, place.join("by-id")).unwrap();
    let second = or_skip!(Loop::over(&place, "second", 24));
    place.copy("image", "by-id").arg("--write-device").ok();
    place
        .copy(&device.device, &second.device)
        .args(["--write-device", "--verify"])
        .ok();
    assert!(fs::read(&device.backing).unwrap() == fs::read(&second.backing).unwrap());
}

/// An image that does not fit, or a device in use, is refused before anything is written.
#[test]
fn devices_in_use_and_images_that_do_not_fit_are_refused() {
    let place = Place::new();
    let device = or_skip!(Loop::over(&place, "backing", 4));
    let before = fs::read(&device.backing).unwrap();
    file(&place.join("large"), (4 << 20) + 1, 5);
    file(&place.join("image"), 1 << 20, 6);
    fs::create_dir(place.join("tree")).unwrap();
    let run = |source: &str, flags: &[&str]| {
        place
            .ropeway("copy")
            .arg("--write-device")
            .args(flags)
            .args([source, &device.device])
    };
    run("large", &[]).exits(4);
    run("tree", &[]).exits(1);
    for flags in [&["--move"][..], &["--watch"], &["--backup"], &["--update"]] {
        run("image", flags).exits(1);
    }
    run("image", &["--dry-run"]).ok();
    assert!(fs::read(&device.backing).unwrap() == before);

    let volume = or_skip!(Volume::ext4(16));
    fs::write(volume.join("kept"), "kept").unwrap();
    let mounted = tool(
        "findmnt",
        &["-no".as_ref(), "SOURCE".as_ref(), volume.root().as_os_str()],
    );
    let mounted = or_skip!(mounted).trim().to_owned();
    let finished = place
        .ropeway("copy")
        .args(["--write-device", "image", &mounted])
        .exits(8);
    assert!(finished.mentions("mounted"), "{finished}");
    assert_eq!(fs::read_to_string(volume.join("kept")).unwrap(), "kept");
}
