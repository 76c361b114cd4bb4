//! `ropeway check`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ropeway_copy::{CheckOutcome, CheckSpec, ManifestError, check, check_manifest};
use ropeway_vfs::End;
use ropeway_vfs::RelPath;
use ropeway_vfs::event::Event;

use super::transfer::preserve;
use crate::args::CheckArgs;
use crate::ends::{self, Node};
use crate::failure::{Failure, code};
use crate::filters;
use crate::job::{self, Signals};
use crate::place::Place;
use crate::servers::Servers;
use crate::trace_file::TraceWriter;
use crate::trees::Opener;
use crate::ui::{CheckSummary, Reporter};

/// Runs the command and returns its exit code.
///
/// # Errors
/// Nothing could be compared.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, Failure> {
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
    let reporter = Arc::new(Reporter::new(&args.output, true)?);
    let start = Instant::now();
    let result = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let opener = Opener::plain(&servers, trace.as_ref().map(TraceWriter::observer));
        let sink = {
            let reporter = Arc::clone(&reporter);
            Arc::new(move |event: Event| reporter.event(&event))
        };
        match job::until_stopped(&mut signals, compare(args, plan, &opener, sink)).await {
            Some(result) => result,
            None => Err(Failure::new(
                code::INTERRUPTED,
                "interrupted before everything was compared",
            )),
        }
    });
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
        files: outcome.files,
        bytes: outcome.bytes,
        differences: outcome.differences,
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

impl Plan {
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

async fn compare(
    args: &CheckArgs,
    plan: Plan,
    opener: &Opener<'_>,
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
            check_manifest(&manifest, tree, &RelPath::root(), sink)
                .await
                .map_err(|error| {
                    let message = format!("{}: {error}", manifest.display());
                    match &error {
                        ManifestError::Io(cause) => Failure::of_end(message, cause, code::SOURCE)
                            .hint("give the file that `copy --manifest` wrote"),
                        _ => Failure::usage(message).hint("give the file that `copy --manifest` wrote"),
                    }
                })
        }
    }
}
