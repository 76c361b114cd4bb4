//! `ropeway check`.

mod tui;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ropeway_copy::{CheckOutcome, CheckSpec, CheckWatch, ManifestError, check, check_manifest};
use ropeway_live::Part;
use ropeway_vfs::event::{Counters, Event};
use ropeway_vfs::{End, HashAlgorithm, RelPath};

use super::transfer::preserve;
use crate::args::CheckArgs;
use crate::ends::{self, Node};
use crate::failure::{Failure, code};
use crate::filters;
use crate::job::{self, Signals};
use crate::live::{self, JobPart, Watched};
use crate::page;
use crate::place::Place;
use crate::servers::Servers;
use crate::trace_file::TraceWriter;
use crate::trees::Opener;
use crate::ui::places::{Places, RootPlace};
use crate::ui::{Begin, CheckSummary, Reporter, VERSION};

/// Runs the command and returns its exit code.
///
/// # Errors
/// Nothing could be compared.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, Failure> {
    if args.tui {
        return tui::run(args);
    }
    let live = live::start("check");
    let page = page::start(&args.output.http, &live)?;
    let servers = Servers::new(&args.share)?;
    let runtime = job::runtime()?;
    let plan = runtime.block_on(Plan::new(args, &servers))?;
    let trace = match &args.output.trace {
        Some(path) => Some(TraceWriter::create(path, "none").map_err(|error| {
            Failure::usage(format!("cannot write the trace {}: {error}", path.display()))
        })?),
        None => None,
    };
    // A check lists differences even without --verbose, since they are its result.
    let part = JobPart::new("check", &[plan.source()], &plan.target(), None);
    let _registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let reporter = Arc::new(Reporter::new(&args.output, true)?.with_live(&part));
    reporter.begin(Begin {
        command: "check",
        job: None,
        places: Places(vec![plan.places()]),
    });
    reporter.listening(page.as_ref());
    let watch = CheckWatch::new();
    reporter.attach(watched(&watch));
    let start = Instant::now();
    let result = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut opener = Opener::plain(&servers, trace.as_ref().map(TraceWriter::observer));
        if args.share.gentle && plan.is_local() {
            opener = opener.gently();
        }
        let sink = {
            let reporter = Arc::clone(&reporter);
            Arc::new(move |event: Event| reporter.event(&event))
        };
        match job::until_stopped(&mut signals, compare(args, plan, &opener, &watch, sink)).await {
            Some(result) => result,
            None => Err(Failure::new(
                code::INTERRUPTED,
                "interrupted before everything was compared",
            )),
        }
    });
    drop(page);
    job::shut_down(runtime, &servers);
    if let Some(trace) = trace {
        trace
            .finish()
            .map_err(|error| Failure::new(code::SOME_FAILED, format!("the trace is incomplete: {error}")))?;
    }
    let outcome = result?;
    let exit_code = outcome.status().exit_code();
    reporter.finish_check(&CheckSummary {
        r#type: "summary",
        version: VERSION,
        files: outcome.files,
        directories: outcome.folders,
        bytes: outcome.bytes,
        differences: outcome.differences,
        tally: outcome.tally,
        errors: outcome.errors,
        seconds: start.elapsed().as_secs_f64(),
        checksum: args.checksum || args.manifest.is_some(),
        exit_code,
    });
    Ok(exit_code)
}

/// The two sides of the comparison.
enum Plan {
    Trees { source: Node, target: Node },
    Manifest { manifest: PathBuf, folder: Place },
}

/// Returns the comparison as other processes see it.
fn watched(watch: &CheckWatch) -> Watched {
    let seen = watch.clone();
    let counters = move || {
        let outcome = seen.outcome();
        Counters {
            files_done: outcome.files,
            directories: outcome.folders,
            bytes_done: outcome.bytes,
            files_failed: outcome.errors,
            operations: outcome.files + outcome.folders,
            ..Counters::default()
        }
    };
    Watched {
        counters: Box::new(counters),
        limit: Arc::clone(watch.limit()),
        takes_rates: false,
    }
}

impl Plan {
    /// Returns what is compared, for people.
    fn source(&self) -> String {
        match self {
            Self::Trees { source, .. } => source.0.below(&source.1),
            Self::Manifest { manifest, .. } => manifest.display().to_string(),
        }
    }

    /// Returns where both roots lie. Paths in events are below them.
    fn places(&self) -> RootPlace {
        let (source, target) = match self {
            Self::Trees { .. } => (self.source(), Some(self.target())),
            // Errors are about the folder.
            Self::Manifest { .. } => (self.target(), None),
        };
        RootPlace {
            source,
            source_path: String::new(),
            target,
            target_path: String::new(),
        }
    }

    /// Whether everything lies on this machine.
    fn is_local(&self) -> bool {
        match self {
            Self::Trees { source, target } => source.0.url().is_none() && target.0.url().is_none(),
            Self::Manifest { folder, .. } => folder.url().is_none(),
        }
    }

    /// Returns with what it is compared.
    fn target(&self) -> String {
        match self {
            Self::Trees { target, .. } => target.0.below(&target.1),
            Self::Manifest { folder, .. } => folder.to_string(),
        }
    }

    async fn new(args: &CheckArgs, servers: &Servers) -> Result<Self, Failure> {
        match (&args.manifest, args.paths.as_slice()) {
            (None, [source, target]) => {
                let (source, target) = ends::resolve_check(source, target, servers).await?;
                Ok(Self::Trees { source, target })
            }
            (None, _) => Err(Failure::usage("check needs SRC and DST, or --manifest FILE")
                .hint("ropeway check SRC DST; ropeway check --manifest FILE [FOLDER]")),
            (Some(manifest), []) => {
                let folder = manifest.parent().filter(|parent| !parent.as_os_str().is_empty());
                Self::manifest(manifest, folder.unwrap_or(Path::new(".")), servers).await
            }
            (Some(manifest), [folder]) => Self::manifest(manifest, folder, servers).await,
            (Some(_), _) => Err(Failure::usage("--manifest takes one folder only")
                .hint("ropeway check --manifest FILE [FOLDER]")),
        }
    }

    async fn manifest(manifest: &Path, folder: &Path, servers: &Servers) -> Result<Self, Failure> {
        let place = Place::parse_end(folder)?;
        let is_folder = match &place {
            Place::Local(path) => std::fs::metadata(path)
                .map(|metadata| metadata.is_dir())
                .map_err(|error| {
                    let message = format!("cannot read {place}: {error}");
                    Failure::of_end(message, &error, code::SOURCE).hint("check the spelling")
                })?,
            Place::Remote(url) => servers
                .metadata(url)
                .await
                .map(|metadata| metadata.is_dir())
                .map_err(|error| error.failure(&format!("cannot read {url}"), End::Source))?,
        };
        let folder = match place.parent() {
            // The manifest of a single file has the file's name; its folder is the tree to compare.
            Some(Place::Local(parent)) if !is_folder && parent.as_os_str().is_empty() => {
                Place::Local(".".into())
            }
            Some(parent) if !is_folder => parent,
            _ => place,
        };
        Ok(Self::Manifest {
            manifest: manifest.to_path_buf(),
            folder,
        })
    }
}

/// Returns the hash that the name of a manifest speaks of.
fn named(manifest: &Path) -> HashAlgorithm {
    let name = manifest.file_name().unwrap_or_default();
    let name = name.to_string_lossy().to_lowercase();
    match () {
        () if name.contains("sha256") => HashAlgorithm::Sha256,
        () if name.contains("xxh") => HashAlgorithm::Xxh3,
        () => HashAlgorithm::Blake3,
    }
}

async fn compare(
    args: &CheckArgs,
    plan: Plan,
    opener: &Opener<'_>,
    watch: &CheckWatch,
    sink: ropeway_copy::EventSink,
) -> Result<CheckOutcome, Failure> {
    match plan {
        Plan::Trees { source, target } => {
            let (source_place, target_place) = (source.0.to_string(), target.0.to_string());
            let spec = CheckSpec {
                source: opener.source(&source.0).await?,
                source_path: source.1,
                target: opener.target(&target.0).await?,
                target_path: target.1,
                checksum: args.checksum,
                modify_window: args.modify_window.unwrap_or_default(),
                preserve: preserve(&args.attributes),
                devices: args.select.devices,
                filter: filters::build(&args.select)?,
                watch: watch.clone(),
            };
            check(spec, sink).await.map_err(|failed| {
                let place = match failed.end {
                    End::Source => &source_place,
                    End::Target => &target_place,
                };
                Failure::of_tree(place, &failed.error, failed.end)
            })
        }
        Plan::Manifest { manifest, folder } => {
            let tree = opener.source(&folder).await?;
            let algorithm = args.hash.unwrap_or_else(|| named(&manifest));
            check_manifest((&manifest, algorithm), tree, &RelPath::root(), watch, sink)
                .await
                .map_err(|error| {
                    let message = format!("{}: {error}", manifest.display());
                    match &error {
                        ManifestError::Io(cause) => Failure::of_end(message, cause, code::SOURCE)
                            .hint("give the file that `copy --manifest` wrote"),
                        _ => Failure::usage(message)
                            .hint("give the file that `copy --manifest` wrote, and the --hash that it was written with"),
                    }
                })
        }
    }
}
