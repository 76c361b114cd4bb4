//! Test beds, which hold the target of a round: small volumes on loop devices, in memory, or behind a
//! server; with power cuts, failing write-back and full devices.
//!
//! ```text
//!   memory -> host.img, an XFS volume that clones files -> one image a round -> loop device -> mounted volume -> target
//! ```
//!
//! A power cut is a clone of the image at that moment: the content of the device, without the page cache.
//! A flush fails because the image is in its own small memory file system, which is shrunk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ropeway_lab::local::volume::FileSystem;
use ropeway_peers::{Instance, RopewayServe, Share, Smbd};

use crate::process::{capture, find_program};

/// User and password of the servers.
const USER: &str = "attack";
pub(crate) const PASSWORD: &str = "attack-7!";
/// Initial size of the memory file system of an image whose write-back is to fail.
const ROOMY: &str = "size=800m";

/// A kind of test bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
    /// `ropeway serve` over ext4.
    Serve,
    /// Samba's smbd over ext4.
    Smbd,
    /// The source is on `ropeway serve`, the target on ext4.
    FromServe,
    /// The source is on smbd, the target on ext4.
    FromSmbd,
}

impl Kind {
    /// Whether both ends are local.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs | Self::Tmpfs)
    }

    /// Whether the source is a share.
    pub(crate) fn is_from_share(self) -> bool {
        matches!(self, Self::FromServe | Self::FromSmbd)
    }

    /// Whether the target is on a device.
    pub(crate) fn has_power(self) -> bool {
        self != Self::Tmpfs
    }

    /// Whether write-back can be made to fail.
    pub(crate) fn can_fail(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs)
    }

    fn file_system(self) -> FileSystem {
        match self {
            Self::Xfs => FileSystem::Xfs,
            Self::Btrfs => FileSystem::Btrfs,
            _ => FileSystem::Ext4,
        }
    }
}

/// Name of the image from which the volumes of a file system are cloned.
fn template(file_system: FileSystem) -> String {
    format!("{file_system}.img")
}

/// A folder in memory with all volumes of a session, unmounted and removed at its end.
pub(crate) struct Host {
    folder: tempfile::TempDir,
    boots: u64,
}

impl Host {
    /// Creates the folder. Needs root and a private mount namespace.
    ///
    /// # Errors
    /// A program is missing, or the system refuses.
    pub(crate) fn new() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let folder = tempfile::Builder::new()
            .prefix("ropeway-attack-")
            .tempdir_in(memory)?;
        let mut host = Self { folder, boots: 0 };
        let image = host.folder.path().join("host.img");
        make_image(&image, "10G")?;
        run("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"], &[&image])?;
        fs::create_dir(host.place())?;
        run("mount", &["-o", "loop"], &[&image, &host.place()])?;
        for file_system in FileSystem::ALL {
            let image = host.place().join(template(file_system));
            make_image(&image, "320M")?;
            let flags: &[&str] = match file_system {
                FileSystem::Ext4 => &["-q", "-F", "-m", "0"],
                FileSystem::Xfs | FileSystem::Btrfs => &["-q", "-f"],
            };
            run(&format!("mkfs.{file_system}"), flags, &[&image])?;
        }
        host.boot()?;
        let id = host.boot_file();
        run(
            "mount",
            &["--bind"],
            &[&id, Path::new("/proc/sys/kernel/random/boot_id")],
        )?;
        Ok(host)
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    fn boot_file(&self) -> PathBuf {
        self.place().join("boot_id")
    }

    /// Changes the boot id, as another boot does.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn boot(&mut self) -> Result<()> {
        self.boots += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}\n", self.boots);
        // In place, since the file is mounted over that of the kernel.
        fs::write(self.boot_file(), id).context("cannot write the boot id")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let boot_id = Path::new("/proc/sys/kernel/random/boot_id");
        // A failure is harmless: the mount namespace ends with the process.
        let _ = run("umount", &["-l"], &[boot_id]);
        let _ = run("umount", &["-l"], &[&self.place()]);
    }
}

fn mount_memory(folder: &Path) -> Result<()> {
    run("mount", &["-t", "tmpfs", "-o", ROOMY, "tmpfs"], &[folder])
}

fn make_image(path: &Path, size: &str) -> Result<()> {
    run("truncate", &["-s", size], &[path])
}

fn run(program: &str, flags: &[&str], paths: &[&Path]) -> Result<()> {
    let found = find_program(program).with_context(|| format!("{program} is missing"))?;
    capture(Command::new(found).args(flags).args(paths)).map(drop)
}

/// The test bed of one round.
pub(crate) struct Testbed {
    kind: Kind,
    folder: PathBuf,
    /// The image, and whether it is in its own memory file system.
    image: Option<(PathBuf, bool)>,
    /// Keeps its port when it is killed and started again.
    server: Option<Instance>,
}

impl Testbed {
    /// Creates the test bed. `fails`: write-back will fail.
    ///
    /// # Errors
    /// A volume or a server cannot be created.
    pub(crate) fn new(host: &Host, kind: Kind, fails: bool, program: &Path) -> Result<Self> {
        let folder = host.place().join("round");
        fs::create_dir(&folder)?;
        for name in ["volume", "outside", "share"] {
            fs::create_dir(folder.join(name))?;
        }
        let mut testbed = Self {
            kind,
            folder,
            image: None,
            server: None,
        };
        if kind == Kind::Tmpfs {
            mount_memory(&testbed.volume())?;
        } else {
            let template = host.place().join(template(kind.file_system()));
            let image = if fails {
                let small = testbed.folder.join("small");
                fs::create_dir(&small)?;
                mount_memory(&small)?;
                small.join("image")
            } else {
                testbed.folder.join("image")
            };
            clone_file(&template, &image, !fails)?;
            testbed.image = Some((image, fails));
            testbed.mount()?;
        }
        fs::create_dir(testbed.volume().join("work"))?;
        let (work, share) = (testbed.volume().join("work"), testbed.share());
        testbed.server = match kind {
            Kind::Serve => Some(serve(program, &work, &testbed.folder)?),
            Kind::Smbd => Some(smbd(&work)?),
            Kind::FromServe => Some(serve(program, &share, &testbed.folder)?),
            Kind::FromSmbd => Some(smbd(&share)?),
            _ => None,
        };
        Ok(testbed)
    }

    fn volume(&self) -> PathBuf {
        self.folder.join("volume")
    }

    fn share(&self) -> PathBuf {
        self.folder.join("share")
    }

    /// The folder that holds everything of the round.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder that no run may touch.
    pub(crate) fn outside(&self) -> PathBuf {
        self.folder.join("outside")
    }

    /// Local path of the source.
    pub(crate) fn source(&self) -> PathBuf {
        self.share().join("source")
    }

    /// Local path of the target.
    pub(crate) fn target(&self) -> PathBuf {
        self.volume().join("work/target")
    }

    /// Returns the source for the command line.
    pub(crate) fn source_word(&self) -> String {
        self.word(&self.source(), self.kind.is_from_share(), "source")
    }

    /// Returns the target for the command line.
    pub(crate) fn target_word(&self) -> String {
        let is_share = !self.kind.is_local() && !self.kind.is_from_share();
        self.word(&self.target(), is_share, "target")
    }

    fn word(&self, local: &Path, is_share: bool, name: &str) -> String {
        match &self.server {
            Some(server) if is_share => format!("smb://{USER}@{}/data/{name}", server.address()),
            _ => local.display().to_string(),
        }
    }

    fn mount(&self) -> Result<()> {
        let (image, fails) = self.image.as_ref().context("no image")?;
        let options = match self.kind.file_system() {
            FileSystem::Xfs => "loop,nouuid",
            _ => "loop",
        };
        run("mount", &["-o", options], &[image, &self.volume()])?;
        match fails {
            true => write_pages_one_by_one(image),
            false => Ok(()),
        }
    }

    fn unmount(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match run("umount", &[], &[&self.volume()]) {
                Ok(()) => return Ok(()),
                // A killed process may still be ending.
                Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes all written data durable.
    ///
    /// # Errors
    /// The volume cannot be synced.
    pub(crate) fn sync(&self) -> Result<()> {
        run("sync", &["-f"], &[&self.volume()])
    }

    /// Cuts the power: the device keeps its content, the page cache is lost.
    ///
    /// # Errors
    /// The volume cannot be mounted again.
    pub(crate) fn power_cut(&mut self, host: &mut Host) -> Result<()> {
        let Some((image, fails)) = self.image.clone() else {
            return Ok(());
        };
        if fails {
            // Images in a small memory file system are not cloned.
            return self.reboot(host);
        }
        let cut = image.with_extension("cut");
        clone_file(&image, &cut, true)?;
        self.stop_server();
        self.unmount()?;
        fs::rename(&cut, &image)?;
        self.mount()?;
        host.boot()?;
        self.restart_server()
    }

    /// Unmounts and mounts again, in another boot.
    ///
    /// # Errors
    /// The volume cannot be mounted again.
    pub(crate) fn reboot(&mut self, host: &mut Host) -> Result<()> {
        if self.image.is_none() {
            return Ok(());
        }
        self.stop_server();
        self.unmount()?;
        self.mount()?;
        host.boot()?;
        self.restart_server()
    }

    /// Kills the server and starts it again.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn restart_server(&mut self) -> Result<()> {
        match &mut self.server {
            Some(server) => Ok(server.restart()?),
            None => Ok(()),
        }
    }

    fn stop_server(&mut self) {
        if let Some(server) = &mut self.server {
            server.kill();
        }
    }

    /// Fills the volume but for `left` bytes, until [`free`](Self::free).
    ///
    /// # Errors
    /// The free space is unknown.
    pub(crate) fn fill(&self, left: u64) -> Result<()> {
        let space = rustix::fs::statvfs(self.volume())?;
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(left);
        let length = format!("{bytes}");
        // Takes the space, or as much as possible.
        let _ = run("fallocate", &["-l", &length], &[&self.volume().join("filler")]);
        Ok(())
    }

    /// Lets the device take everything again. The volume stays mounted.
    ///
    /// # Errors
    /// The memory file system cannot be changed.
    pub(crate) fn grow(&self) -> Result<()> {
        match &self.image {
            Some((_, true)) => {
                let options = format!("remount,{ROOMY}");
                run("mount", &["-o", &options], &[&self.folder.join("small")])
            }
            _ => Ok(()),
        }
    }

    /// Undoes [`fill`](Self::fill) and [`fail_flushes`](Self::fail_flushes).
    ///
    /// # Errors
    /// The volume cannot be mounted again.
    pub(crate) fn free(&mut self, host: &mut Host) -> Result<()> {
        self.grow()?;
        let filler = self.volume().join("filler");
        match fs::remove_file(&filler) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // After an error of its device a volume may refuse everything until it is mounted again.
                self.reboot(host)?;
                let _ = fs::remove_file(&filler);
            }
            _ => {}
        }
        let probe = self.volume().join("probe");
        if fs::write(&probe, "x")
            .and_then(|()| fs::remove_file(&probe))
            .is_err()
        {
            self.reboot(host)?;
        }
        // Btrfs frees space with its next commit. Earlier write errors are reported once more here.
        match self.sync() {
            Err(_) => self.reboot(host),
            synced => synced,
        }
    }

    /// Limits the device to `left` further bytes, until [`free`](Self::free).
    ///
    /// # Errors
    /// The memory file system cannot be changed.
    pub(crate) fn fail_flushes(&self, left: u64) -> Result<()> {
        let Some((image, true)) = &self.image else {
            return Ok(());
        };
        self.sync()?;
        let small = self.folder.join("small");
        let space = rustix::fs::statvfs(&small)?;
        let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
        let options = format!("remount,size={}", used + left);
        run("mount", &["-o", &options], &[&small]).with_context(|| image.display().to_string())
    }

    /// Cuts the power and reads the target by `look`.
    ///
    /// # Errors
    /// The volume cannot be mounted again, or `look` fails.
    pub(crate) fn after_a_cut<T>(
        &mut self,
        host: &mut Host,
        look: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        self.power_cut(host)?;
        look(&self.target())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.server = None;
        // A failure is harmless: the mount namespace ends with the process.
        if self.unmount().is_err() {
            let _ = run("umount", &["-l"], &[&self.volume()]);
        }
        if let Some((_, true)) = &self.image {
            let _ = run("umount", &["-l"], &[&self.folder.join("small")]);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Limits requests of the image's device to a page. The loop driver reports a request as done even
/// if its file took only a part of it, because it became full. Requests of one page succeed or fail
/// as a whole.
fn write_pages_one_by_one(image: &Path) -> Result<()> {
    let losetup = find_program("losetup").context("losetup is missing")?;
    let mut list = Command::new(losetup);
    list.args(["--noheadings", "--output", "NAME", "--associated"])
        .arg(image);
    let device = capture(&mut list)?;
    let name = device.trim().trim_start_matches("/dev/");
    let setting = format!("/sys/block/{name}/queue/max_sectors_kb");
    fs::write(&setting, "4").with_context(|| format!("cannot set {setting}"))
}

fn clone_file(from: &Path, to: &Path, by_reference: bool) -> Result<()> {
    let flags: &[&str] = match by_reference {
        true => &["--reflink=always"],
        false => &["--sparse=always"],
    };
    run("cp", flags, &[from, to])
}

fn serve(program: &Path, folder: &Path, scratch: &Path) -> Result<Instance> {
    let server = RopewayServe::new(program)
        .user(USER, PASSWORD)
        .share("data", folder)
        .below(scratch);
    Ok(server.start()?)
}

fn smbd(folder: &Path) -> Result<Instance> {
    let smbd = Smbd::builder()
        .user(USER, PASSWORD)
        .share(Share::new("data", folder));
    Ok(smbd.start()?.into())
}
