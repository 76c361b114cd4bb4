//! Where the target of a round lies: small volumes on loop devices, in memory, or behind a server; with power cuts, failing
//! write-back and full devices.
//!
//! ```text
//!   memory -> host.img, an XFS volume that clones files -> one image a round -> loop device -> mounted volume -> target
//! ```
//!
//! A power cut is a clone of the image at that moment: what the device has, without the page cache above it. A flush fails
//! because the image lies in a small memory file system of its own, which is made smaller.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ropeway_lab::local::volume::FileSystem;
use ropeway_peers::{RopewayServe, Share, Smbd};

use crate::process::{capture, find_program};

/// User and password of the servers.
const USER: &str = "attack";
pub(crate) const PASSWORD: &str = "attack-7!";
/// Size of the small memory file system of an image whose write-back is to fail, when it does not.
const ROOMY: &str = "size=800m";

/// A kind of ground.
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
    /// The source lies on `ropeway serve`, the target on ext4.
    FromServe,
    /// The source lies on smbd, the target on ext4.
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

    /// Whether the target lies on a device.
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

/// A folder in memory with everything of a session, unmounted and removed at its end.
pub(crate) struct Host {
    folder: tempfile::TempDir,
    boots: u64,
}

impl Host {
    /// Needs root and a mount namespace of its own.
    ///
    /// # Errors
    /// If something is missing or refused.
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

    /// Another boot, as far as the boot id tells.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn boot(&mut self) -> Result<()> {
        self.boots += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}\n", self.boots);
        // In place: the file is mounted over the kernel's.
        fs::write(self.boot_file(), id).context("cannot write the boot id")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let boot_id = Path::new("/proc/sys/kernel/random/boot_id");
        // Best effort: the mount namespace ends with the process.
        let _ = run("umount", &["-l"], &[boot_id]);
        let _ = run("umount", &["-l"], &[&self.place()]);
    }
}

fn make_image(path: &Path, size: &str) -> Result<()> {
    run("truncate", &["-s", size], &[path])
}

fn run(program: &str, flags: &[&str], paths: &[&Path]) -> Result<()> {
    let found = find_program(program).with_context(|| format!("{program} is missing"))?;
    capture(Command::new(found).args(flags).args(paths)).map(drop)
}

/// The ground of one round.
pub(crate) struct Ground {
    kind: Kind,
    folder: PathBuf,
    /// The image, and whether it lies in a memory file system of its own.
    image: Option<(PathBuf, bool)>,
    server: Option<Server>,
}

impl Ground {
    /// Makes it. `fails`: write-back is going to.
    ///
    /// # Errors
    /// If a volume or a server cannot be had.
    pub(crate) fn new(host: &Host, kind: Kind, fails: bool, program: &Path) -> Result<Self> {
        let folder = host.place().join("round");
        fs::create_dir(&folder)?;
        for name in ["volume", "outside", "share"] {
            fs::create_dir(folder.join(name))?;
        }
        let mut ground = Self {
            kind,
            folder,
            image: None,
            server: None,
        };
        if kind == Kind::Tmpfs {
            run(
                "mount",
                &["-t", "tmpfs", "-o", ROOMY, "tmpfs"],
                &[&ground.volume()],
            )?;
        } else {
            let template = host.place().join(template(kind.file_system()));
            let image = if fails {
                let small = ground.folder.join("small");
                fs::create_dir(&small)?;
                run("mount", &["-t", "tmpfs", "-o", ROOMY, "tmpfs"], &[&small])?;
                small.join("image")
            } else {
                ground.folder.join("image")
            };
            clone_file(&template, &image, !fails)?;
            ground.image = Some((image, fails));
            ground.mount()?;
        }
        fs::create_dir(ground.volume().join("work"))?;
        ground.server = match kind {
            Kind::Serve => Some(Server::serve(
                program,
                &ground.volume().join("work"),
                &ground.folder,
            )?),
            Kind::Smbd => Some(Server::smbd(&ground.volume().join("work"))?),
            Kind::FromServe => Some(Server::serve(program, &ground.share(), &ground.folder)?),
            Kind::FromSmbd => Some(Server::smbd(&ground.share())?),
            _ => None,
        };
        Ok(ground)
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

    /// What nobody may touch.
    pub(crate) fn outside(&self) -> PathBuf {
        self.folder.join("outside")
    }

    /// The source as the file system here has it.
    pub(crate) fn source(&self) -> PathBuf {
        self.share().join("source")
    }

    /// The target as the file system here has it.
    pub(crate) fn target(&self) -> PathBuf {
        self.volume().join("work/target")
    }

    /// How the source is named on the command line.
    pub(crate) fn source_word(&self) -> String {
        self.word(&self.source(), self.kind.is_from_share(), "source")
    }

    /// How the target is named on the command line.
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
            true => super::device::write_pages_one_by_one(image),
            false => Ok(()),
        }
    }

    fn unmount(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match run("umount", &[], &[&self.volume()]) {
                Ok(()) => return Ok(()),
                // A process that was killed may still be on its way out.
                Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes what others wrote durable.
    ///
    /// # Errors
    /// If the volume cannot be synced.
    pub(crate) fn sync(&self) -> Result<()> {
        run("sync", &["-f"], &[&self.volume()])
    }

    /// The device keeps what it has; everything in memory is gone.
    ///
    /// # Errors
    /// If the volume does not come back.
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
    /// If the volume does not come back.
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
    /// If it does not start.
    pub(crate) fn restart_server(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::restart)
    }

    fn stop_server(&mut self) {
        if let Some(server) = &mut self.server {
            server.kill();
        }
    }

    /// Fills the volume but for `left` bytes, until [`free`](Self::free).
    ///
    /// # Errors
    /// If the volume cannot be asked.
    pub(crate) fn fill(&self, left: u64) -> Result<()> {
        let space = rustix::fs::statvfs(self.volume())?;
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(left);
        let length = format!("{bytes}");
        // Takes the room, or as much as there is.
        let _ = run("fallocate", &["-l", &length], &[&self.volume().join("filler")]);
        Ok(())
    }

    /// The device can take all again; the volume stays mounted.
    ///
    /// # Errors
    /// If that cannot be arranged.
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
    /// If the volume does not come back.
    pub(crate) fn free(&mut self, host: &mut Host) -> Result<()> {
        self.grow()?;
        let filler = self.volume().join("filler");
        match fs::remove_file(&filler) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // A volume that met an error of its device may refuse everything until it is mounted again.
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
        // Btrfs gives room back with its next commit. What could not be written is told once more here.
        match self.sync() {
            Err(_) => self.reboot(host),
            synced => synced,
        }
    }

    /// The device cannot take more than `left` further bytes, until [`free`](Self::free).
    ///
    /// # Errors
    /// If that cannot be arranged.
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

    /// What a reader finds after the power was cut in this moment: looks at it by `look`.
    ///
    /// # Errors
    /// If the volume does not come back, or what `look` says.
    pub(crate) fn after_a_cut<T>(
        &mut self,
        host: &mut Host,
        look: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        self.power_cut(host)?;
        look(&self.target())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.server = None;
        // Best effort: what stays mounted goes with the mount namespace.
        if self.unmount().is_err() {
            let _ = run("umount", &["-l"], &[&self.volume()]);
        }
        if let Some((_, true)) = &self.image {
            let _ = run("umount", &["-l"], &[&self.folder.join("small")]);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn clone_file(from: &Path, to: &Path, by_reference: bool) -> Result<()> {
    let flags: &[&str] = match by_reference {
        true => &["--reflink=always"],
        false => &["--sparse=always"],
    };
    run("cp", flags, &[from, to])
}

/// A server of the round, which keeps its port when it is killed and started again.
enum Server {
    Serve(RopewayServe),
    Smbd(Box<Smbd>),
}

impl Server {
    fn serve(program: &Path, folder: &Path, scratch: &Path) -> Result<Self> {
        let server = RopewayServe::builder(program)
            .user(USER, PASSWORD)
            .share("data", folder)
            .below(scratch);
        Ok(Self::Serve(server.start()?))
    }

    fn smbd(folder: &Path) -> Result<Self> {
        let smbd = Smbd::builder()
            .user(USER, PASSWORD)
            .share(Share::new("data", folder))
            .start()?;
        Ok(Self::Smbd(Box::new(smbd)))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Serve(serve) => serve.address(),
            Self::Smbd(smbd) => smbd.address(),
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Serve(serve) => serve.kill(),
            Self::Smbd(smbd) => smbd.kill(),
        }
    }

    fn restart(&mut self) -> Result<()> {
        match self {
            Self::Serve(serve) => Ok(serve.restart()?),
            Self::Smbd(smbd) => Ok(smbd.restart()?),
        }
    }
}
