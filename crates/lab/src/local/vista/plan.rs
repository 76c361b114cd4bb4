//! The copies of the lab: targets, works, directions and their order. Pure.

use std::time::Duration;

use ropeway_plan::Engine;

use crate::named::named;
use crate::report::CellKey;
use crate::work::Work;

/// The works: one big file, and many files.
pub const WORKS: [Work; 2] = [Work::File2500mb, Work::Mp3set];
/// Rate of a disk or network in estimates, bytes a second (a guess).
const USUAL_BPS: f64 = 60e6;
/// Write rate of the modelled stick (facts file, D), bytes a second.
const STICK_WRITE_BPS: f64 = 7e6;
/// See [`STICK_WRITE_BPS`].
const STICK_READ_BPS: f64 = 20e6;
/// Time limit of a run as a multiple of its estimate (a guess).
const LIMIT_TIMES: f64 = 12.0;
/// Addition to that limit, for the time that does not depend on bytes.
const LIMIT_MORE: Duration = Duration::from_secs(60);

named! {
    /// The other end of a copy.
    pub enum Target: "target" {
        /// A second folder, best on a second disk.
        Local = "local",
        /// A modelled USB stick.
        Stick = "stick",
        /// A machine with Windows XP: a server of SMB 1 over an emulated network of 1 Gbit/s.
        RemoteXp = "remote-xp",
        /// A machine with Windows Vista: a server of SMB 2.0.2 over the same network.
        RemoteVista = "remote-vista",
    }
}

impl Target {
    /// Whether it is behind the network.
    pub fn is_remote(self) -> bool {
        matches!(self, Self::RemoteXp | Self::RemoteVista)
    }

    /// Returns the scheme of the URLs with which an engine reaches it; `None` if it is a folder. XP
    /// spoke SMB 1 to everybody.
    pub fn scheme(self, engine: Engine) -> Option<&'static str> {
        match self {
            Self::Local | Self::Stick => None,
            Self::RemoteXp => Some("smb1"),
            Self::RemoteVista if engine == Engine::Xp => Some("smb1"),
            Self::RemoteVista => Some("smb"),
        }
    }

    /// Returns its weight in the score: a guess at how often people copy there. Disks at home come
    /// first; sticks and either kind of machine are alike.
    pub fn weight(self) -> f64 {
        match self {
            Self::Local => 3.0,
            Self::Stick | Self::RemoteXp | Self::RemoteVista => 2.0,
        }
    }
}

/// One kind of copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The other end.
    pub target: Target,
    /// Index in [`WORKS`].
    pub work: usize,
    /// Whether the copy goes back from there.
    pub back: bool,
}

impl Job {
    /// Returns the key of the cell for an engine.
    pub fn key(self, engine: Engine) -> CellKey {
        let (link, server) = match self.target {
            Target::Local => ("none", "disk"),
            Target::Stick => ("none", "stick"),
            Target::RemoteXp | Target::RemoteVista => ("lan", self.target.name()),
        };
        let direction = if self.back { "read" } else { "write" };
        CellKey::new([link, WORKS[self.work].name(), direction, "ropeway", server])
            .with_variant(engine.as_str())
    }

    /// Returns a name for people.
    pub fn name(self) -> String {
        let direction = if self.back { "write-back" } else { "write" };
        format!("{} {} {direction}", self.target, WORKS[self.work].name())
    }

    /// Returns the estimated time.
    pub fn estimate(self, bytes: u64) -> Duration {
        let bps = match (self.target, self.back) {
            (Target::Stick, false) => STICK_WRITE_BPS,
            (Target::Stick, true) => STICK_READ_BPS,
            _ => USUAL_BPS,
        };
        Duration::from_secs_f64(1.0 + bytes as f64 / bps)
    }

    /// Returns the time limit.
    pub fn limit(self, bytes: u64) -> Duration {
        self.estimate(bytes).mul_f64(LIMIT_TIMES) + LIMIT_MORE
    }
}

/// Returns all kinds of copies to these targets.
pub fn jobs(targets: &[Target]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for target in Target::ALL.into_iter().filter(|target| targets.contains(target)) {
        for work in 0..WORKS.len() {
            jobs.extend([false, true].map(|back| Job { target, work, back }));
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_make_sixteen_kinds_with_cells_of_their_own() {
        let jobs = jobs(&Target::ALL);
        assert_eq!(jobs.len(), 16);
        let mut keys: Vec<CellKey> = jobs
            .iter()
            .flat_map(|job| Engine::LOCAL.map(|engine| job.key(engine)))
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 64);
        assert_eq!("stick".parse(), Ok(Target::Stick));
        assert!("disk".parse::<Target>().is_err());
    }

    #[test]
    fn xp_speaks_smb_1_to_every_machine() {
        let scheme = |engine| [Target::RemoteXp, Target::RemoteVista].map(|target| target.scheme(engine));
        assert_eq!(scheme(Engine::Xp), [Some("smb1"); 2]);
        assert_eq!(scheme(Engine::VistaSp1), [Some("smb1"), Some("smb")]);
        assert!(
            Target::ALL
                .iter()
                .all(|target| target.is_remote() == target.scheme(Engine::Auto).is_some())
        );
    }

    #[test]
    fn the_default_takes_about_a_quarter_of_an_hour() {
        let total: Duration = jobs(&Target::ALL)
            .iter()
            .map(|job| job.estimate(125_000_000) * 4 * 3)
            .sum();
        assert!((500..1100).contains(&total.as_secs()), "{total:?}");
    }
}
