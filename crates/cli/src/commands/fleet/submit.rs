//! `ropeway fleet submit`.

use ropeway_fleet::job::JobFile;
use ropeway_fleet::status::{Progress, Reader};
use ropeway_fleet::store::{Runs, Store};
use ropeway_vfs::{End, ErrorKind, Kind, RelPath};
use serde_json::json;

use super::failure;
use super::place::{Target, absolute};
use crate::args::FleetSubmitArgs;
use crate::commands::nodes::{self, Printer};
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::trees::Opener;

/// Runs the command and returns its exit code.
///
/// # Errors
/// An end cannot be used, or there is a job that is not complete.
pub(super) fn run(args: &FleetSubmitArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, submit(args, &servers))
}

async fn submit(args: &FleetSubmitArgs, servers: &Servers) -> Result<u8, Failure> {
    let source = match Place::parse_end(&args.source)? {
        Place::Local(path) if path.is_dir() => Place::Local(absolute(&path)?),
        place => place,
    };
    let target = Target::find(&args.target)?;
    if target.place.starts_with(&source) || source.starts_with(&target.place) {
        let message = format!("{source} and {} lie one in the other", target.shown);
        return Err(Failure::usage(message).hint("choose a DST outside of SRC"));
    }
    // Fails if it is no folder.
    let tree = Opener::plain(servers, None).source(&source).await?;
    let listed = tree.list(&RelPath::root()).await;
    listed.map_err(|error| Failure::of_node(&format!("cannot list {source}"), &error, End::Source))?;
    let (tree, runs) = target.open(servers).await?;
    match tree.metadata(&target.path).await {
        Ok(metadata) if metadata.kind != Kind::Directory => {
            let message = format!("{} exists and is no folder", target.shown);
            return Err(Failure::new(code::TARGET, message).hint("choose another DST"));
        }
        Err(error) if error.kind != ErrorKind::NotFound => {
            let what = format!("cannot examine {}", target.shown);
            return Err(Failure::of_node(&what, &error, End::Target));
        }
        _ => {}
    }
    let what = format!("cannot make a job for {}", target.shown);
    let fail = |error| failure(&what, &error);
    let before = runs.newest().await.map_err(fail)?;
    if let Some(run) = before {
        refuse_open(&runs.store(run), &runs, &target).await?;
    }
    let job = JobFile::new(source.to_string(), target.shown.clone());
    let token = fastrand::Rng::new().u64(..);
    let submitted = runs.submit(before, token, &job).await.map_err(fail)?;
    if submitted.is_none() {
        let message = format!("another process has just made a job for {}", target.shown);
        return Err(Failure::new(code::REFUSED, message).hint("`ropeway fleet status DST` shows it"));
    }
    let mut printer = Printer::new(args.json);
    printer.line(&format!("job {source} -> {}", target.shown));
    printer.line(&format!(
        "start workers with: ropeway fleet work {}",
        target.shown
    ));
    if let serde_json::Value::Object(fields) = json!({"source": job.source, "target": job.target}) {
        printer.object("fleet_job", fields);
    }
    printer.done();
    Ok(printer.finish())
}

/// Refuses a new job while the last one is not complete. A complete one made the copy that the new
/// one brings up to date. Without a job file it is one whose folder somebody removed.
async fn refuse_open(store: &Store, runs: &Runs, target: &Target) -> Result<(), Failure> {
    let what = format!("cannot make a job for {}", target.shown);
    let found = Reader::default().status(store).await;
    match found.map_err(|error| failure(&what, &error))? {
        Some(status) if status.state == Progress::Open => {
            let message = format!(
                "{} has a job that is not complete (from {})",
                target.shown, status.source
            );
            Err(Failure::new(code::REFUSED, message).hint(format!(
                "`ropeway fleet work {}` goes on with it; to give it up, remove its folder {}",
                target.shown,
                runs.root()
            )))
        }
        Some(_) | None => Ok(()),
    }
}
