//! Shared parts of copy and mirror: builds a job from the flags and runs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_copy::{
    Backup, Delete, Environment, JobSpec, JournalFolder, JournalSpec, KeptBlocks, Options, Outcome, Root,
    Status, Verification, pool_for, unfinished,
};
use ropeway_live::Part;
use ropeway_plan::retry::Backoff;
use ropeway_vfs::{Preserve, Tree};

use super::deletions::confirm;
use super::jobs::kept::kept;
use super::jobs::recorded::CommandRecord;
use crate::args::{AttributeArgs, ExistingArgs, ShareArgs, TransferArgs};
use crate::ends::{self, Ends, ResolveOptions, SourceEnd, TargetMode};
use crate::failure::{Failure, code};
use crate::job::{self, Signals};
use crate::live::{self, JobPart};
use crate::on_end::{self, Ended};
use crate::place::Place;
use crate::servers::Servers;
use crate::trace_file::TraceWriter;
use crate::trees::Opener;
use crate::ui::places::{Places, RootPlace};
use crate::ui::{Begin, Reporter, RunInfo};
use crate::{boot, eject, filters, page, told, unplug};

/// A copy or mirror to run.
pub(super) struct Request<'a> {
    pub(super) sources: &'a [PathBuf],
    pub(super) target: &'a Path,
    pub(super) target_mode: TargetMode,
    pub(super) move_source: bool,
    /// Deletions that make the target equal to the source.
    pub(super) delete: Option<Delete>,
    /// Whether deletions need no confirmation.
    pub(super) confirmed: bool,
    pub(super) args: &'a TransferArgs,
}

/// Runs a copy or mirror and returns its exit code.
///
/// # Errors
/// The job could not be started: the ends or the flags are wrong, or a file of the run cannot be
/// written.
pub(super) fn transfer(request: &Request<'_>) -> Result<u8, Failure> {
    let result = run(request);
    let ended = Ended {
        command: kind(request),
        target: request.target,
        result: &result,
    };
    on_end::run(&request.args.end, &ended);
    result
}

fn run(request: &Request<'_>) -> Result<u8, Failure> {
    let args = request.args;
    args.check(request.move_source)?;
    let live = live::start(kind(request));
    let page = page::start(&args.output.http, &live)?;
    let share = ShareArgs {
        engine: args.speed.engine,
        ..args.share.clone()
    };
    let servers = Servers::new(&share)?.with_channels_at_start();
    let state_dir = boot::jobs_folder();
    let runtime = job::runtime()?;
    // Signals are not caught yet, so the user can interrupt a password prompt or a slow connection.
    let ends = runtime.block_on(ends::resolve(
        request.sources,
        request.target,
        &ResolveOptions {
            target_mode: request.target_mode,
            writes: !args.dry_run,
            own_tree: args.existing.backup_dir.is_some(),
            unfinished: &|key| state_dir.as_deref().is_some_and(|folder| unfinished(folder, key)),
            engine: args.speed.engine,
            servers: &servers,
        },
    ))?;
    if args.eject {
        eject::check(&ends.target_tree)?;
    }
    let options = options(request, &ends)?;
    let part = part(request, &ends);
    let _registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let reporter = Reporter::new(&args.output, args.dry_run)?.with_lines(args.progress);
    let reporter = Arc::new(reporter.with_live(&part));
    let trace = args.output.trace.as_deref();
    let trace = trace.map(|path| open_trace(path, &options)).transpose()?;
    let has_journal = state_dir.is_some() && !args.dry_run;
    reporter.begin(Begin {
        command: kind(request),
        job: has_journal.then(|| ends.key.id()),
        places: places(&ends),
    });
    reporter.listening(page.as_ref());
    let journal = journal(state_dir.as_deref(), request, &ends, &reporter);
    let _record = CommandRecord::of(journal.as_ref().and(state_dir.as_deref()), &ends);
    let prepared = Prepared {
        request,
        servers: &servers,
        ends: &ends,
        reporter: &reporter,
        trace: trace.as_ref(),
        journals: state_dir.as_deref().filter(|_| has_journal),
    };
    let outcome = runtime.block_on(prepared.run(options, journal));
    drop(page);
    // Operations on a vanished volume may never return; they must not delay the end.
    job::shut_down(runtime, &servers);
    let outcome: Outcome = outcome?;
    trace.map_or(Ok(()), finish_trace)?;
    Ok(outcome.status.exit_code())
}

/// A job whose ends are known.
struct Prepared<'a> {
    request: &'a Request<'a>,
    servers: &'a Servers,
    ends: &'a Ends,
    reporter: &'a Arc<Reporter>,
    trace: Option<&'a TraceWriter>,
    /// The folder of the journals, if the job has one.
    journals: Option<&'a Path>,
}

impl Prepared<'_> {
    async fn run(&self, options: Options, journal: Option<JournalSpec>) -> Result<Outcome, Failure> {
        let (args, ends, reporter) = (self.request.args, self.ends, self.reporter);
        let mut signals = Signals::catch()?;
        let observer = self.trace.map(TraceWriter::observer);
        let pool = pool_for(options.engine, ends.any_remote());
        let mut opener = Opener::new(&args.speed, &args.models, self.servers, observer, !args.dry_run);
        if !ends.any_remote() {
            opener = opener.with_pool(&pool).with_raw_xattrs();
        }
        if options.gentle && !ends.any_remote() {
            opener = opener.gently();
        }
        let (roots, target) = open(&opener, ends).await?;
        let mut info = RunInfo {
            durability: options.durability,
            dry_run: options.dry_run,
            engine: options.engine.as_str(),
            io: opener.io(),
            verdict: None,
            kept: None,
            line: None,
            ejected: None,
            told: BTreeSet::new(),
        };
        let mut spec = JobSpec {
            roots,
            target,
            options,
            environment: environment(&ends.target_tree),
            journal,
        };
        if !self.request.confirmed {
            let agreed = match ends.target_exists {
                true => confirm(&spec, self.request.target, reporter, &mut signals).await?,
                false => 0,
            };
            // Never deletes more than the user confirmed, whatever changes in between.
            if let Some(delete) = &mut spec.options.delete {
                delete.agreed = Some(agreed);
            }
        }
        let run = job::Run {
            spec,
            pool,
            limit: opener.limit(),
            servers: self.servers,
        };
        let outcome = job::drive(run, reporter, &mut signals).await;
        info.line = self.servers.line();
        info.verdict = unplug::verdict_on(&ends.target_tree, &outcome);
        if let Some(folder) = self.journals {
            info.kept = kept(folder, ends).await;
        }
        if !args.dry_run && !args.output.quiet && !args.output.json && !args.output.verbose {
            info.told = told::told_before(&ends.target_tree, &outcome.summary.losses);
        }
        let ejected = match args.eject && outcome.status == Status::Done {
            true => eject::eject(&ends.target_tree).map(Some),
            false => Ok(None),
        };
        info.ejected = ejected.as_ref().ok().cloned().flatten();
        reporter.finish(&outcome, &info);
        ejected.map(|_| outcome)
    }
}

fn finish_trace(trace: TraceWriter) -> Result<(), Failure> {
    trace.finish().map_err(|error| {
        Failure::new(code::SOME_FAILED, format!("the trace is incomplete: {error}"))
            .hint("the copy itself ended as reported above")
    })
}

/// Returns where the roots lie at both ends.
fn places(ends: &Ends) -> Places {
    let root = |source: &SourceEnd| RootPlace {
        source: source.tree.below(&source.path),
        // As messages name it.
        source_path: source.tree.shown_name().join_path(&source.path).to_string(),
        target: Some(ends.target_tree.below(&source.target_path)),
        target_path: source.target_path.to_string(),
    };
    Places(ends.sources.iter().map(root).collect())
}

/// Returns what the job is called.
fn kind(request: &Request<'_>) -> &'static str {
    match request.delete {
        Some(_) => "mirror",
        None => "copy",
    }
}

/// Returns what other processes see of the job.
fn part(request: &Request<'_>, ends: &Ends) -> Arc<JobPart> {
    let sources = ends.sources.iter().map(|source| source.tree.below(&source.path));
    let target = match ends.sources.as_slice() {
        [one] => ends.target_tree.below(&one.target_path),
        _ => ends.target_tree.below(&ends.target_base),
    };
    let bwlimit = request.args.speed.bwlimit.as_ref();
    let bwlimit = bwlimit.filter(|schedule| schedule.limits());
    let bwlimit = bwlimit.map(ToString::to_string);
    JobPart::new(
        kind(request),
        &sources.collect::<Vec<_>>(),
        &target,
        bwlimit.as_deref(),
    )
}

fn options(request: &Request<'_>, ends: &Ends) -> Result<Options, Failure> {
    let args = request.args;
    let existing = &args.existing;
    let mut retry = Backoff::default();
    if let Some(retries) = args.speed.retries {
        retry.tries_max = retries.saturating_add(1);
    }
    Ok(Options {
        engine: args.speed.engine,
        durability: args.durability,
        cache: args.speed.cache,
        verify: Verification {
            read_back: args.verify,
            algorithm: args.hash.unwrap_or_default(),
            manifest: args.manifest.clone(),
        },
        update: existing.update,
        ignore_existing: existing.ignore_existing,
        checksum: existing.checksum,
        force: existing.force,
        modify_window: existing.modify_window.unwrap_or_default(),
        backup: backup(existing, ends),
        inplace: existing.inplace,
        delta: existing.delta,
        move_source: request.move_source,
        changing: args.changing,
        one_file_system: args.select.one_file_system,
        preserve: preserve(&args.attributes),
        hard_links: !args.links.no_hard_links,
        devices: args.select.devices,
        filter: filters::build(&args.select)?,
        delete: request.delete.clone(),
        dry_run: args.dry_run,
        only_deletions: false,
        preflight: args.speed.preflight || request.target_mode == TargetMode::Mirror,
        names: args.speed.names,
        retry,
        watch: args.watch,
        count: true,
        report_items: args.output.verbose || args.output.log.is_some() || args.dry_run,
        dirty_max: args.speed.dirty_max,
        timeout: args.share.timeout,
        gentle: args.share.gentle,
        kept_blocks: kept_blocks(existing, ends),
    })
}

/// Returns the attributes to keep or compare.
pub(super) fn preserve(args: &AttributeArgs) -> Preserve {
    Preserve {
        owner: !args.no_owner,
        mode: !args.no_mode,
        times: !args.no_times,
        xattrs: !args.no_xattrs,
    }
}

/// Returns where hashes of what is written in place are kept.
fn kept_blocks(args: &ExistingArgs, ends: &Ends) -> Option<KeptBlocks> {
    let folder = boot::blocks_folder().filter(|_| args.inplace)?;
    let target = match &ends.target_tree {
        // Another user reaches the same files.
        Place::Remote(url) => {
            let mut url = url.clone();
            (url.server.domain, url.server.user) = (None, None);
            url.to_string()
        }
        Place::Local(path) => path.display().to_string(),
    };
    Some(KeptBlocks::new(folder, target))
}

fn backup(args: &ExistingArgs, ends: &Ends) -> Option<Backup> {
    if let Some(suffix) = &args.backup {
        return Some(Backup::Suffix(suffix.clone().into_bytes()));
    }
    let folder = args.backup_dir.as_ref()?;
    Some(Backup::Directory {
        base: ends.target_base.join_path(folder),
        top: ends.target_base.clone(),
    })
}

fn open_trace(path: &Path, options: &Options) -> Result<TraceWriter, Failure> {
    TraceWriter::create(path, options.engine.as_str()).map_err(|error| {
        Failure::usage(format!("cannot write the trace {}: {error}", path.display()))
            .hint("give a file in a folder that exists and is writable")
    })
}

fn journal(
    state_dir: Option<&Path>,
    request: &Request<'_>,
    ends: &Ends,
    reporter: &Reporter,
) -> Option<JournalSpec> {
    if request.args.dry_run {
        return None;
    }
    let Some(state_dir) = state_dir else {
        reporter
            .say("note: neither XDG_STATE_HOME nor HOME is set; this copy cannot be resumed inside files");
        return None;
    };
    Some(JournalSpec {
        store: Arc::new(JournalFolder::new(state_dir)),
        key: ends.key.clone(),
        sources: ends
            .sources
            .iter()
            .map(|source| source.tree.below(&source.path))
            .collect(),
        target: ends.target_tree.below(&ends.target_base),
    })
}

/// This machine, as a job on these ends sees it. Without the identities of boot and mount nothing counts as written in this
/// boot. A server does not say when it was started, so only what it has flushed counts there.
pub(super) fn environment(target: &Place) -> Environment {
    let boot_id = match target {
        Place::Local(path) => match (ropeway_local::boot_id(), ropeway_local::mount_identity(path)) {
            (Ok(boot), Ok(mount)) => format!("{boot}/{mount:x}"),
            _ => String::new(),
        },
        Place::Remote(_) => String::new(),
    };
    Environment {
        boot_id,
        ..Environment::default()
    }
}

type Opened = (Vec<Root>, Arc<dyn Tree>);

async fn open(opener: &Opener<'_>, ends: &Ends) -> Result<Opened, Failure> {
    let mut roots: Vec<Root> = Vec::with_capacity(ends.sources.len());
    let mut last: Option<(&Place, Arc<dyn Tree>)> = None;
    for end in &ends.sources {
        // Sources in one folder share a tree.
        let source = match &last {
            Some((place, tree)) if **place == end.tree => Arc::clone(tree),
            _ => opener.source(&end.tree).await?,
        };
        last = Some((&end.tree, Arc::clone(&source)));
        roots.push(Root {
            source,
            source_name: end.tree.shown_name(),
            source_path: end.path.clone(),
            target_path: end.target_path.clone(),
        });
    }
    Ok((roots, opener.target(&ends.target_tree).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use ropeway_vfs::RelPath;

    fn args(flags: &[&str]) -> TransferArgs {
        let line = ["ropeway", "copy", "a", "b"].iter().chain(flags);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Copy(args) => args.transfer,
            other => panic!("{other:?}"),
        }
    }

    fn ends() -> Ends {
        Ends {
            sources: Vec::new(),
            target_tree: Place::Local("/t".into()),
            target_base: RelPath::parse(b"b").unwrap(),
            key: ropeway_copy::JobKey::new(&[], ""),
            target_exists: false,
        }
    }

    fn job_options(flags: &[&str]) -> Result<Options, Failure> {
        let args = args(flags);
        args.check(false)?;
        let request = Request {
            sources: &[],
            target: Path::new("b"),
            target_mode: TargetMode::Into,
            move_source: false,
            delete: None,
            confirmed: true,
            args: &args,
        };
        options(&request, &ends())
    }

    #[test]
    fn without_flags_the_job_has_its_defaults() {
        let ours = job_options(&[]).unwrap();
        assert_eq!(format!("{ours:?}"), format!("{:?}", Options::default()));
    }

    #[test]
    fn flags_reach_the_job() {
        let flags = [
            "--retries",
            "0",
            "--no-owner",
            "--dirty-max=8M",
            "--backup-dir",
            "./old//x/",
            "--no-hard-links",
        ];
        let options = job_options(&flags).unwrap();
        assert_eq!(options.retry.tries_max, 1);
        assert!(!options.preserve.owner && options.preserve.mode && !options.hard_links);
        assert_eq!(options.dirty_max, Some(8 << 20));
        assert_eq!(
            options.backup,
            Some(Backup::Directory {
                base: RelPath::parse(b"b/old/x").unwrap(),
                top: RelPath::parse(b"b").unwrap(),
            })
        );
        assert_eq!(
            job_options(&["--backup"]).unwrap().backup,
            Some(Backup::Suffix(b"~".to_vec()))
        );
    }

    #[test]
    fn contradicting_flags_are_refused() {
        let bad: [&[&str]; 4] = [
            &["--backup", "--backup-dir", "x"],
            &["--update", "--ignore-existing"],
            &["--watch", "-n"],
            &["--min-size", "2K", "--max-size", "1K"],
        ];
        for flags in bad {
            assert_eq!(job_options(flags).unwrap_err().code, code::USAGE, "{flags:?}");
        }
    }

    #[test]
    fn invalid_backups_are_refused() {
        let bad: [&[&str]; 4] = [
            &["--backup-dir", "/abs"],
            &["--backup-dir", "../x"],
            &["--backup-dir", "."],
            &["--backup=a/b"],
        ];
        for flags in bad {
            let line = ["ropeway", "copy", "a", "b"].iter().chain(flags);
            assert!(Cli::try_parse_from(line).is_err(), "{flags:?}");
        }
    }
}
