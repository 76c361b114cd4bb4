//! `ropeway jobs`: unfinished copies and their leftovers.

pub(crate) mod kept;
pub(crate) mod recorded;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ropeway_copy::{JobLeftovers, UnfinishedJob, forget_job, leftovers_of, sweep_below, unfinished_jobs};
use serde_json::{Map, Value, json};

use self::recorded::RecordedCommand;
use super::nodes::{self, Printer};
use crate::args::{JobsArgs, JobsCommand, JobsListArgs, JobsResumeArgs, JobsRmArgs, JobsSweepArgs};
use crate::boot;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::trees::Opener;
use crate::ui::format;
use ropeway_vfs::End;

/// Runs the command and returns its exit code.
///
/// # Errors
/// There is no such job, it is running, or every action failed.
pub(crate) fn run(args: &JobsArgs) -> Result<u8, Failure> {
    match &args.command {
        None => list(&args.list),
        Some(JobsCommand::List(list_args)) => list(list_args),
        Some(JobsCommand::Rm(args)) => remove(args),
        Some(JobsCommand::Resume(args)) => resume(args),
        Some(JobsCommand::Sweep(args)) => sweep(args),
    }
}

fn state_dir() -> Result<PathBuf, Failure> {
    boot::jobs_folder().ok_or_else(|| {
        Failure::usage("neither XDG_STATE_HOME nor HOME is set, so there are no journals")
            .hint("set XDG_STATE_HOME as it was for the copies")
    })
}

fn jobs_in(state_dir: &Path) -> Result<Vec<UnfinishedJob>, Failure> {
    unfinished_jobs(state_dir).map_err(|error| {
        let message = format!("cannot read the journals in {}: {error}", state_dir.display());
        Failure::of_end(message, &error, code::SOURCE)
    })
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn list(args: &JobsListArgs) -> Result<u8, Failure> {
    let state_dir = state_dir()?;
    let jobs = jobs_in(&state_dir)?;
    let servers = Servers::none();
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        if jobs.is_empty() {
            printer.line("there are no unfinished jobs");
        }
        for job in &jobs {
            let left = match RecordedCommand::load(&state_dir, &job.id) {
                Some(recorded) if is_near(&recorded) => leftovers(job, &recorded, &servers, false).await.ok(),
                _ => None,
            };
            let bytes = left.map(|left| left.swept.bytes);
            let shown = bytes.map_or_else(|| "-".to_owned(), format::bytes);
            let state = if job.running { "running" } else { "stopped" };
            let time = nodes::local_time(job.last, false);
            let what = match job.sources.is_empty() {
                true => "(its journal cannot be read)".to_owned(),
                false => format!("{} -> {}", job.sources.join(" "), job.target),
            };
            printer.line(&format!("{}  {time}  {state}  {shown:>10}  {what}", job.id));
            printer.object(
                "job",
                fields(json!({
                    "id": job.id, "sources": job.sources, "target": job.target, "running": job.running,
                    "last": job.last.0 as f64 / 1e9, "bytes_left": bytes,
                })),
            );
            printer.done();
        }
        Ok(printer.finish())
    })
}

/// Returns whether the target can be examined without a server, and so without a password.
fn is_near(recorded: &RecordedCommand) -> bool {
    matches!(recorded.target_tree(), Ok(Place::Local(path)) if path.is_dir())
}

/// Returns a job's leftovers on its target; removes them if `removes` is set.
async fn leftovers(
    job: &UnfinishedJob,
    recorded: &RecordedCommand,
    servers: &Servers,
    removes: bool,
) -> Result<JobLeftovers, Failure> {
    let Some(nonce) = job.nonce else {
        return Ok(JobLeftovers::default());
    };
    let tree = Opener::plain(servers, None)
        .target(&recorded.target_tree()?)
        .await?;
    let folders = recorded.claim_folders();
    Ok(leftovers_of(&*tree, (&folders, &job.places), nonce, removes).await)
}

/// Returns the only job whose id begins with `id`.
fn find<'a>(jobs: &'a [UnfinishedJob], id: &str) -> Result<&'a UnfinishedJob, Failure> {
    let mut found = jobs.iter().filter(|job| !id.is_empty() && job.id.starts_with(id));
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job),
        (None, _) => Err(Failure::usage(format!("there is no unfinished job {id}"))
            .hint("`ropeway jobs` lists the unfinished jobs; a finished job has no journal")),
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("several jobs begin with {id}"))
                .hint("give more characters of the id"))
        }
    }
}

fn is_running(job: &UnfinishedJob) -> Failure {
    Failure::new(code::REFUSED, format!("job {} is running", job.id)).hint("stop it first")
}

fn remove(args: &JobsRmArgs) -> Result<u8, Failure> {
    let state_dir = state_dir()?;
    let jobs = jobs_in(&state_dir)?;
    let chosen: Vec<&UnfinishedJob> = match args.all {
        true => jobs.iter().filter(|job| !job.running).collect(),
        false => args
            .ids
            .iter()
            .map(|id| find(&jobs, id))
            .collect::<Result<_, _>>()?,
    };
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        for job in &chosen {
            let removed = remove_one(&state_dir, job, args.keep_leftovers, &servers, &mut printer).await;
            printer.finish_argument(removed, chosen.len() == 1)?;
        }
        Ok(printer.finish())
    })
}

async fn remove_one(
    state_dir: &Path,
    job: &UnfinishedJob,
    keep_leftovers: bool,
    servers: &Servers,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if job.running {
        return Err(is_running(job));
    }
    let mut left = JobLeftovers::default();
    if !keep_leftovers {
        let recorded = RecordedCommand::load(state_dir, &job.id).ok_or_else(|| {
            Failure::new(
                code::SOURCE,
                format!("the target of job {} is not recorded", job.id),
            )
            .hint("--keep-leftovers forgets the job; `jobs sweep DIR` removes its leftovers")
        })?;
        left = leftovers(job, &recorded, servers, true)
            .await
            .map_err(|failure| {
                failure.hint("make the target available, or use --keep-leftovers to leave its leftovers")
            })?;
    }
    if left.alive {
        return Err(is_running(job));
    }
    if let Some(error) = left.swept.failed.first() {
        let what = format!("cannot remove {} of job {}", error.path, job.id);
        return Err(Failure::of_node(&what, error, End::Target));
    }
    forget_job(state_dir, &job.id).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => is_running(job),
        _ => Failure::of_end(
            format!("cannot remove the journal of {}: {error}", job.id),
            &error,
            code::TARGET,
        ),
    })?;
    printer.done();
    let (names, bytes) = (left.swept.names, left.swept.bytes);
    let counted = format::counted(names, "temporary name", "temporary names");
    printer.line(&format!(
        "forgot {}: removed {counted}, {}",
        job.id,
        format::bytes(bytes)
    ));
    let removed = json!({"id": job.id, "action": "rm", "names": names, "bytes": bytes});
    printer.object("item", fields(removed));
    Ok(())
}

fn resume(args: &JobsResumeArgs) -> Result<u8, Failure> {
    let state_dir = state_dir()?;
    let jobs = jobs_in(&state_dir)?;
    let job = find(&jobs, &args.id)?;
    if job.running {
        return Err(is_running(job));
    }
    let recorded = RecordedCommand::load(&state_dir, &job.id).ok_or_else(|| {
        Failure::usage(format!("the command of job {} is not recorded", job.id))
            .hint("run the same command line again, which also resumes it")
    })?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(code::SOURCE, format!("cannot find this program: {error}")))?;
    let error = Command::new(program)
        .args(&recorded.arguments)
        .current_dir(&recorded.folder)
        .exec();
    let folder = recorded.folder.display();
    Err(Failure::new(
        code::SOURCE,
        format!("cannot run the command again in {folder}: {error}"),
    ))
}

fn sweep(args: &JobsSweepArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        for path in &args.paths {
            let swept = sweep_one(path, args, &servers, &mut printer).await;
            printer.finish_argument(swept, args.paths.len() == 1)?;
        }
        Ok(printer.finish())
    })
}

async fn sweep_one(
    path: &Path,
    args: &JobsSweepArgs,
    servers: &Servers,
    printer: &mut Printer,
) -> Result<(), Failure> {
    Place::parse_target(path)?;
    let located = nodes::find(path, true, servers).await?;
    let report = sweep_below(&*located.tree, &located.path, args.all, args.dry_run).await;
    let report = report.map_err(|error| located.fault("sweep", &error, End::Target))?;
    printer.done();
    let (names, bytes) = (report.swept.names, report.swept.bytes);
    let counted = format::counted(names, "temporary name", "temporary names");
    let done = if args.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    printer.line(&format!(
        "{}: {counted} {done}, {}",
        located.shown,
        format::bytes(bytes)
    ));
    if report.alive > 0 {
        printer.line(&format!(
            "  {} of running copies were left alone",
            format::count(report.alive)
        ));
    }
    if report.unknown > 0 {
        let unknown = format::count(report.unknown);
        printer.line(&format!(
            "  {unknown} were left alone: their copies may still be running (--all removes them)"
        ));
    }
    let swept = json!({
        "path": located.place.to_string(), "action": "sweep", "names": names, "bytes": bytes,
        "running": report.alive, "unknown": report.unknown,
    });
    printer.object("item", fields(swept));
    for error in &report.swept.failed {
        let what = format!("cannot sweep {}", located.place_of(&error.path));
        printer.fail(&Failure::of_node(&what, error, End::Target));
    }
    Ok(())
}
