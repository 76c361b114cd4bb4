//! Opens the trees of a job and wraps limits and models around them.
//!
//! ```text
//!   source:  Limit( Faults( Gentle( Slow( local or share ) ) ) )
//!   target:  Faults( Gentle( Slow( local or share ) ) )
//! ```
//!
//! Models are innermost, so every other layer sees the device that they simulate. Without such
//! flags the trees are not wrapped and use every fast path.

use std::sync::{Arc, OnceLock};

use ropeway_block::Pool;
use ropeway_copy::RuntimeClock;
use ropeway_local::{IoEngine, LocalOptions, LocalTree};
use ropeway_plan::Schedule;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::gentle::{Gentle, Pace};
use ropeway_vfs::decorate::limit::{Limit, RateLimit};
use ropeway_vfs::decorate::slow::{DeviceModel, Slow};
use ropeway_vfs::decorate::trace::Traced;
use ropeway_vfs::trace::SharedObserver;
use ropeway_vfs::{Clock, End, Tree};

use crate::args::{ModelArgs, SpeedArgs};
use crate::failure::Failure;
use crate::place::Place;
use crate::servers::Servers;

/// Opens trees for one job.
pub(crate) struct Opener<'a> {
    servers: &'a Servers,
    clock: Arc<dyn Clock>,
    observer: Option<SharedObserver>,
    slow_source: Option<DeviceModel>,
    slow_target: Option<DeviceModel>,
    faults: Vec<FaultRule>,
    /// The pace of all trees, if devices are to be spared.
    pace: Option<Arc<Pace>>,
    limit: Arc<RateLimit>,
    /// Whether the sources keep to the limit from the beginning.
    limits_sources: bool,
    /// The job's buffer pool, for registration with the kernel.
    pool: Option<Pool>,
    /// Whether the target may be written to, to find out what an unknown volume can hold.
    writes: bool,
    /// Whether trees of this machine show Windows metadata as the attributes that store it.
    raw_xattrs: bool,
    /// Name of the engine, once a tree is open.
    io: OnceLock<&'static str>,
}

impl<'a> Opener<'a> {
    /// Makes an opener without limits or models.
    pub(crate) fn plain(servers: &'a Servers, observer: Option<SharedObserver>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
        Self {
            servers,
            limit: RateLimit::unlimited(Arc::clone(&clock)),
            limits_sources: false,
            clock,
            observer,
            slow_source: None,
            slow_target: None,
            faults: Vec::new(),
            pace: None,
            pool: None,
            writes: false,
            raw_xattrs: false,
            io: OnceLock::new(),
        }
    }

    /// Makes an opener with the limits and models of the flags; `writes`: the target may be written
    /// to.
    pub(crate) fn new(
        speed: &SpeedArgs,
        models: &ModelArgs,
        servers: &'a Servers,
        observer: Option<SharedObserver>,
        writes: bool,
    ) -> Self {
        let opener = Self::plain(servers, observer);
        let limit = speed.bwlimit.clone().filter(Schedule::limits).map(|schedule| {
            let rate = move || schedule.rate_at(jiff::Zoned::now().datetime());
            RateLimit::new(rate, Arc::clone(&opener.clock))
        });
        Self {
            writes,
            slow_source: models.slow_source.clone(),
            slow_target: models.slow_target.clone(),
            faults: models
                .fault
                .iter()
                .flat_map(|rules| rules.0.iter().cloned())
                .collect(),
            limits_sources: limit.is_some(),
            limit: limit.unwrap_or_else(|| Arc::clone(&opener.limit)),
            ..opener
        }
    }

    /// Returns the opener with the job's buffer pool. The kernel pins registered buffers at once:
    /// 26 MiB take about 60 ms, while the line waits, and stay pinned for the whole job. Only
    /// direct I/O gains by it.
    pub(crate) fn with_pool(mut self, pool: &Pool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Opens trees of this machine so that Windows metadata is copied without being translated: for jobs without a share.
    pub(crate) fn with_raw_xattrs(mut self) -> Self {
        self.raw_xattrs = true;
        self
    }

    /// Makes the trees spare devices that others use: one operation at a time, with rests.
    pub(crate) fn gently(mut self) -> Self {
        self.pace = Some(Pace::new(Arc::clone(&self.clock)));
        self
    }

    /// Lets the target be written to.
    pub(crate) fn writing(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Returns the limit of the job, which may get a rate while it runs.
    pub(crate) fn limit(&self) -> &Arc<RateLimit> {
        &self.limit
    }

    /// Opens a tree to read from.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(crate) async fn source(&self, place: &Place) -> Result<Arc<dyn Tree>, Failure> {
        let tree = self.open(place, End::Source).await?;
        let tree = self.model(tree, self.slow_source.as_ref(), End::Source);
        Ok(match self.limits_sources {
            true => Limit::new(tree, Arc::clone(&self.limit)),
            false => tree,
        })
    }

    /// Opens a tree to write to.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(crate) async fn target(&self, place: &Place) -> Result<Arc<dyn Tree>, Failure> {
        let tree = self.open(place, End::Target).await?;
        Ok(self.model(tree, self.slow_target.as_ref(), End::Target))
    }

    /// Returns how the opened trees do their I/O; `smb` if all of them are shares.
    pub(crate) fn io(&self) -> &'static str {
        self.io.get().copied().unwrap_or("smb")
    }

    async fn open(&self, place: &Place, end: End) -> Result<Arc<dyn Tree>, Failure> {
        let path = match place {
            Place::Local(path) => path,
            Place::Remote(url) => {
                let tree = self.servers.tree(url).await;
                let tree = tree.map_err(|error| error.failure(&format!("cannot open {url}"), end))?;
                return Ok(match self.observer.clone() {
                    Some(observer) => Traced::new(tree, observer, end),
                    None => tree,
                });
            }
        };
        let options = LocalOptions {
            observer: self.observer.clone().map(|observer| (observer, end)),
            pool: self.pool.clone(),
            probe: self.writes && end == End::Target,
            raw_xattrs: self.raw_xattrs,
            ..LocalOptions::default()
        };
        match LocalTree::open(path, options) {
            Ok(tree) => {
                self.io.get_or_init(|| match tree.engine() {
                    IoEngine::Uring => "uring",
                    IoEngine::Psync => "psync",
                });
                Ok(tree)
            }
            Err(error) => Err(Failure::of_tree(&place.to_string(), &error, end)),
        }
    }

    fn model(&self, tree: Arc<dyn Tree>, slow: Option<&DeviceModel>, end: End) -> Arc<dyn Tree> {
        let tree: Arc<dyn Tree> = match slow {
            Some(model) => Slow::new(tree, model.clone(), Arc::clone(&self.clock)),
            None => tree,
        };
        let tree = match &self.pace {
            Some(pace) => Gentle::new(tree, Arc::clone(pace)),
            None => tree,
        };
        let rules: Vec<FaultRule> = self
            .faults
            .iter()
            .filter(|rule| rule.applies_to(end))
            .cloned()
            .collect();
        if rules.is_empty() {
            tree
        } else {
            Faults::new(tree, rules, Arc::clone(&self.clock))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::values;

    #[test]
    fn trees_are_wrapped_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Local(folder.path().to_path_buf());
        let servers = Servers::none();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut opener = Opener::plain(&servers, None);
        let source = |opener: &Opener<'_>| runtime.block_on(opener.source(&place)).unwrap();
        assert!(source(&opener).as_any().is::<LocalTree>());
        opener.faults = values::fault("target:write:errno=EIO").unwrap().0;
        assert!(source(&opener).as_any().is::<LocalTree>());
        let target = runtime.block_on(opener.target(&place)).unwrap();
        assert!(target.as_any().is::<Faults>());
        let gentle = Opener::plain(&servers, None).gently();
        assert!(source(&gentle).as_any().is::<Gentle>());
        opener.limit = RateLimit::new(|| Some(1), Arc::clone(&opener.clock));
        opener.limits_sources = true;
        assert!(source(&opener).as_any().is::<Limit>());
        let none = Place::Local(folder.path().join("none"));
        let failure = runtime.block_on(opener.source(&none)).err().unwrap();
        assert_eq!(failure.code, crate::failure::code::SOURCE);
    }
}
