//! `ropeway jobs`: unfinished copies, and what they left on their targets.

pub(crate) mod recorded;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ropeway_copy::{JobLeftovers, UnfinishedJob, forget_job, leftovers_of, sweep_below, unfinished_jobs};
use serde_json::{Map, Value, json};

use self::recorded::Recorded;
use super::nodes::{self, Voice};
use crate::args::{JobsArgs, JobsCommand, JobsListArgs, JobsResumeArgs, JobsRmArgs, JobsSweepArgs};
use crate::boot;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::trees::Opener;
use crate::ui::format;

/// Runs the command; gives its exit code.
///
/// # Errors
/// There is no such job, it runs, or nothing could be done.
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
        Failure::usage("neither XDG_STATE_HOME nor HOME is set: there are no journals")
            .hint("set XDG_STATE_HOME to the folder that the copies had")
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
        let mut voice = Voice::new(args.json);
        if jobs.is_empty() {
            voice.line("nothing is unfinished");
        }
        for job in &jobs {
            let left = match Recorded::load(&state_dir, &job.id) {
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
            voice.line(&format!("{}  {time}  {state}  {shown:>10}  {what}", job.id));
            voice.object(
                "job",
                fields(json!({
                    "id": job.id, "sources": job.sources, "target": job.target, "running": job.running,
                    "last": job.last.0 as f64 / 1e9, "bytes_left": bytes,
                })),
            );
            voice.done();
        }
        Ok(voice.finish())
    })
}

/// A target that can be looked at without a server, and so without a password.
fn is_near(recorded: &Recorded) -> bool {
    matches!(recorded.target_tree(), Ok(Place::Local(path)) if path.is_dir())
}

/// What a job has on its target; removed if told to.
async fn leftovers(
    job: &UnfinishedJob,
    recorded: &Recorded,
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

/// The one job whose id begins so.
fn find<'a>(jobs: &'a [UnfinishedJob], id: &str) -> Result<&'a UnfinishedJob, Failure> {
    let mut found = jobs.iter().filter(|job| !id.is_empty() && job.id.starts_with(id));
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job),
        (None, _) => Err(Failure::usage(format!("there is no unfinished job {id}"))
            .hint("`ropeway jobs` lists them; a finished job has no journal")),
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("several jobs begin with {id}")).hint("give more of the id"))
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
        let mut voice = Voice::new(args.json);
        for job in &chosen {
            let removed = remove_one(&state_dir, job, args.keep_leftovers, &servers, &mut voice).await;
            voice.take(removed, chosen.len() == 1)?;
        }
        Ok(voice.finish())
    })
}

async fn remove_one(
    state_dir: &Path,
    job: &UnfinishedJob,
    keep_leftovers: bool,
    servers: &Servers,
    voice: &mut Voice,
) -> Result<(), Failure> {
    if job.running {
        return Err(is_running(job));
    }
    let mut left = JobLeftovers::default();
    if !keep_leftovers {
        let recorded = Recorded::load(state_dir, &job.id).ok_or_else(|| {
            Failure::new(
                code::SOURCE,
                format!("where the target of job {} lies is not recorded", job.id),
            )
            .hint("--keep-leftovers forgets it all the same; `jobs sweep DIR` removes what it left")
        })?;
        left = leftovers(job, &recorded, servers, true)
            .await
            .map_err(|failure| {
                failure.hint("bring the target back; or --keep-leftovers leaves what is there")
            })?;
    }
    if left.alive {
        return Err(is_running(job));
    }
    if let Some(error) = left.swept.failed.first() {
        let what = format!("cannot remove {} of job {}", error.path, job.id);
        return Err(Failure::of_node(&what, error, false));
    }
    forget_job(state_dir, &job.id).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => is_running(job),
        _ => Failure::of_end(
            format!("cannot remove the journal of {}: {error}", job.id),
            &error,
            code::TARGET,
        ),
    })?;
    voice.done();
    let (names, bytes) = (left.swept.names, left.swept.bytes);
    let counted = format::counted(names, "temporary name", "temporary names");
    voice.line(&format!(
        "{} forgotten: {counted} removed, {} free",
        job.id,
        format::bytes(bytes)
    ));
    let removed = json!({"id": job.id, "action": "rm", "names": names, "bytes": bytes});
    voice.object("item", fields(removed));
    Ok(())
}

fn resume(args: &JobsResumeArgs) -> Result<u8, Failure> {
    let state_dir = state_dir()?;
    let jobs = jobs_in(&state_dir)?;
    let job = find(&jobs, &args.id)?;
    if job.running {
        return Err(is_running(job));
    }
    let recorded = Recorded::load(&state_dir, &job.id).ok_or_else(|| {
        Failure::usage(format!("the command of job {} is not recorded", job.id))
            .hint("run the same command line again; that resumes it as well")
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
        let mut voice = Voice::new(args.json);
        for path in &args.paths {
            let swept = sweep_one(path, args, &servers, &mut voice).await;
            voice.take(swept, args.paths.len() == 1)?;
        }
        Ok(voice.finish())
    })
}

async fn sweep_one(
    path: &Path,
    args: &JobsSweepArgs,
    servers: &Servers,
    voice: &mut Voice,
) -> Result<(), Failure> {
    Place::parse_target(path)?;
    let spot = nodes::find(path, true, servers).await?;
    let report = sweep_below(&*spot.tree, &spot.path, args.all, args.dry_run).await;
    let report = report.map_err(|error| spot.fault("sweep", &error, false))?;
    voice.done();
    let (names, bytes) = (report.swept.names, report.swept.bytes);
    let counted = format::counted(names, "temporary name", "temporary names");
    let done = if args.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    voice.line(&format!(
        "{}: {counted} {done}, {}",
        spot.shown,
        format::bytes(bytes)
    ));
    if report.alive > 0 {
        voice.line(&format!(
            "  {} of running copies left alone",
            format::count(report.alive)
        ));
    }
    if report.unknown > 0 {
        let unknown = format::count(report.unknown);
        voice.line(&format!(
            "  {unknown} left alone: nobody here can tell whether their copies run (--all)"
        ));
    }
    let swept = json!({
        "path": spot.place.to_string(), "action": "sweep", "names": names, "bytes": bytes,
        "running": report.alive, "unknown": report.unknown,
    });
    voice.object("item", fields(swept));
    for error in &report.swept.failed {
        let what = format!("cannot sweep {}", spot.place_of(&error.path));
        voice.fail(&Failure::of_node(&what, error, false));
    }
    Ok(())
}
