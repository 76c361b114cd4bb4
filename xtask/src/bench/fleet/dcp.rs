//! dcp (mpifileutils) on the same lines. It copies between mounted folders, so each of its ranks has a mount of the
//! share in the namespace of a worker, and a mount namespace in which that lies at the path that all ranks are told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ropeway_peers::procfs;

use super::{COPY, Ground, PASSWORD, Running, SHARE, netns, write_program};
use crate::process::{find_program, run as run_command, tail};

/// How long a mount may take to appear.
const MOUNTED_WITHIN: Duration = Duration::from_secs(20);

/// A rank binds its own mount to the path of all, and becomes dcp. Processes of one machine talk through memory.
const RANK: &str = "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind \"$1/$OMPI_COMM_WORLD_RANK\" \"$1/all\" && shift && exec \"$@\"' rank \"$@\"\n";

/// The mounts, one for each rank; they are unmounted when dropped.
struct Mounts {
    /// Holds a folder for each, by its number, and `all`.
    folder: PathBuf,
    processes: Running,
}

impl Mounts {
    fn at(&self, number: u8) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Unmounts all. What was written is durable then.
    fn end(&mut self, limit: Duration, ground: &Ground) -> Result<()> {
        let count = u8::try_from(self.processes.0.len())?;
        for number in 0..count {
            run_command(Command::new("umount").arg(self.at(number)))?;
        }
        ground.finish(std::mem::take(&mut self.processes.0), limit)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for number in 0..u8::try_from(self.processes.0.len()).unwrap_or(u8::MAX) {
            let _ = Command::new("umount").arg("--lazy").arg(self.at(number)).status();
        }
    }
}

fn is_mounted(path: &Path) -> Result<bool> {
    let path = path.to_str().context("the folder has a name that is not UTF-8")?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(path)))
}

impl Ground {
    /// Copies with dcp. Returns the seconds from its start until the mounts have written everything.
    pub(super) fn dcp(&self, source: &Path, workers: u8, limit: Duration) -> Result<f64> {
        let dcp = find_program("dcp").context("dcp is missing (mpifileutils)")?;
        let mpirun = find_program("mpirun").context("mpirun is missing (Debian's openmpi-bin)")?;
        let mut mounts = self.mounts(workers)?;
        let rank = self.folder("bin/rank");
        write_program(&rank, RANK)?;
        let mut command = procfs::clean(&mpirun, &self.folder("home"));
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]);
        command.args(["-n", &workers.to_string()]);
        command.arg(&rank).arg(&mounts.folder);
        // Times are kept, as by the others.
        command.arg(dcp).arg("--preserve").arg(source);
        command.arg(mounts.folder.join("all").join(COPY));
        let begun = Instant::now();
        let started = self.spawn(command, "dcp")?;
        self.finish(vec![started], limit)?;
        mounts.end(limit, self)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn mounts(&self, workers: u8) -> Result<Mounts> {
        let folder = self.folder("mounts");
        fs::create_dir_all(folder.join("all"))?;
        let mut mounts = Mounts {
            folder,
            processes: Running(Vec::new()),
        };
        let home = self.folder("home");
        let url = self.remote(&home).url(SHARE);
        for number in 0..workers {
            let at = mounts.at(number);
            fs::create_dir_all(&at)?;
            let mut mount = procfs::clean(&self.ropeway, &home);
            mount.env("ROPEWAY_PASSWORD", PASSWORD);
            mount.args(["mount", "--foreground"]).arg(&url).arg(&at);
            // Not `ip netns exec`: that also makes a mount namespace, in which nobody else would see it.
            let mut wrapper = Command::new("nsenter");
            wrapper.arg(format!("--net={}", netns(&self.lines.near(number)).display()));
            let mount = crate::process::wrapped(wrapper, &mount);
            mounts
                .processes
                .0
                .push(self.spawn(mount, &format!("mount{number}"))?);
        }
        let begun = Instant::now();
        for number in 0..workers {
            while !is_mounted(&mounts.at(number))? {
                let (child, log) = &mut mounts.processes.0[usize::from(number)];
                ensure!(child.try_wait()?.is_none(), "no mount: {}", tail(log, 10));
                if begun.elapsed() > MOUNTED_WITHIN {
                    bail!("no mount after {} s: {}", MOUNTED_WITHIN.as_secs(), tail(log, 10));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(mounts)
    }
}
