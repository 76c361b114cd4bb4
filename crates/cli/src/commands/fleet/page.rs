//! `ropeway fleet page`: a job as a web page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::Store;
use ropeway_live::history::Totals;
use ropeway_live::model::{Fleet, Snapshot};
use ropeway_live::{Part, View};

use super::place::Target;
use super::{failure, figures, no_job};
use crate::args::{FleetPageArgs, HttpArgs};
use crate::commands::nodes;
use crate::failure::{Failure, code};
use crate::job::{Signals, until_stopped};
use crate::servers::Servers;
use crate::ui::messages;
use crate::{live, page};

/// Time between two looks at the job.
const INTERVAL: Duration = Duration::from_secs(2);

/// A job that is shown.
struct FleetPart(Mutex<Shown>);

struct Shown {
    fleet: Fleet,
    /// Amounts since the page was opened, from the rates of the workers, and when they were added up.
    sums: [f64; 3],
    summed: Instant,
}

impl FleetPart {
    fn new(fleet: Fleet) -> Self {
        Self(Mutex::new(Shown {
            fleet,
            sums: [0.0; 3],
            summed: Instant::now(),
        }))
    }

    fn show(&self, fleet: Fleet) {
        self.0.lock().fleet = fleet;
    }

    /// Keeps the last figures, with the reason.
    fn fail(&self, why: &Failure) {
        let mut shown = self.0.lock();
        shown.fleet.error.clone_from(&why.message);
        shown.fleet.rates = Default::default();
    }
}

impl Part for FleetPart {
    fn totals(&self) -> Totals {
        let mut shown = self.0.lock();
        let elapsed = shown.summed.elapsed().as_secs_f64();
        shown.summed = Instant::now();
        let rates = shown.fleet.rates;
        for (sum, rate) in shown
            .sums
            .iter_mut()
            .zip([rates.read, rates.written, rates.files])
        {
            *sum += rate * elapsed;
        }
        let [read, written, files] = shown.sums.map(|sum| sum as u64);
        Totals {
            read,
            written,
            files,
            ..Totals::default()
        }
    }

    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        snapshot.fleets.push(Fleet {
            id: view.id,
            history: view.history,
            ..self.0.lock().fleet.clone()
        });
    }
}

/// Serves the page until Ctrl-C.
///
/// # Errors
/// There is no job, its catalog cannot be read, or the address cannot be used.
pub(super) fn run(args: &FleetPageArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, serve(args, &servers))
}

async fn serve(args: &FleetPageArgs, servers: &Servers) -> Result<u8, Failure> {
    let mut signals = Signals::catch()?;
    let target = Target::find(&args.target)?;
    let mut job = Job::open(&target, servers).await?;
    let live = live::start("fleet page");
    let part = Arc::new(FleetPart::new(job.look(&target).await?));
    let registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let http = HttpArgs {
        http: Some(args.listen),
        http_token_file: args.http_token_file.clone(),
    };
    let page = page::start(&http, &live)?;
    if let Some(page) = &page {
        match args.json {
            true => messages::print_line(&page::listening(page).to_string()),
            false => messages::print_line(&format!("page: {} (Ctrl-C ends it)", page.url())),
        }
    }
    while until_stopped(&mut signals, tokio::time::sleep(INTERVAL))
        .await
        .is_some()
    {
        let looked = async {
            // After a complete job, a later one may have begun.
            if part.0.lock().fleet.phase == "complete" || job.is_gone {
                job.renew(&target, servers).await?;
            }
            job.look(&target).await
        };
        match until_stopped(&mut signals, looked).await {
            Some(Ok(fleet)) => part.show(fleet),
            Some(Err(why)) => part.fail(&why),
            None => break,
        }
    }
    // Open pages get the last figures.
    drop(page);
    drop(registered);
    Ok(code::DONE)
}

/// The job that is shown.
struct Job {
    store: Store,
    reader: Reader,
    is_gone: bool,
}

impl Job {
    async fn open(target: &Target, servers: &Servers) -> Result<Self, Failure> {
        let store = target.job(servers).await?;
        Ok(Self {
            store,
            reader: Reader::default(),
            is_gone: false,
        })
    }

    /// Looks for a later job.
    async fn renew(&mut self, target: &Target, servers: &Servers) -> Result<(), Failure> {
        let store = target.job(servers).await?;
        if store.root() != self.store.root() || self.is_gone {
            *self = Self {
                store,
                reader: Reader::default(),
                is_gone: false,
            };
        }
        Ok(())
    }

    async fn look(&mut self, target: &Target) -> Result<Fleet, Failure> {
        let what = format!("cannot read the job of {}", target.shown);
        let status = self.reader.overview(&self.store, figures::now()).await;
        let status = status.map_err(|error| failure(&what, &error))?;
        self.is_gone = status.is_none();
        let status = status.ok_or_else(|| no_job(&target.shown))?;
        Ok(figures::of(&status))
    }
}
