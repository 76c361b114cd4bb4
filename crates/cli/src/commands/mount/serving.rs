//! The process that serves a mount.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_boost::Session;
use ropeway_live::{Live, PartHandle};
use ropeway_mount::{MountError, MountOptions, Mounted, Unmounter, mountpoint};
use ropeway_page::Page;
use ropeway_vfs::End;
use ropeway_vfs::decorate::traced_store::TracedStore;
use ropeway_vfs::store::Store;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getegid, geteuid, getrlimit, setrlimit, umask};
use tokio::runtime::Builder;

use super::record::{self, Recorder, Target};
use super::report::{Reporter, notify};
use super::source::{Source, open_store};
use super::{background, guard, options};
use crate::args::MountArgs;
use crate::boot;
use crate::commands::boost::open;
use crate::failure::{Failure, code};
use crate::job::Signals;
use crate::live::{self, CachePart, MountPart};
use crate::page;
use crate::trace_file::TraceWriter;
use crate::ui::{format, messages};

/// Tries to unmount before the mount counts as in use, and the time between them.
const UNMOUNT_TRIES: u32 = 3;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// Starts a guard. Without one, a killed process leaves a mount that `umount` removes.
fn guarded(mounted: &Mounted) -> io::Result<guard::Guarded> {
    let guarded = guard::start(mounted.path(), mounted.device());
    if let Err(error) = &guarded {
        let path = mounted.path().display();
        tracing::warn!(%error, "no guard: if this process is killed, unmount {path} by hand");
    }
    guarded
}

/// Mounts, and serves until the mount ends.
///
/// # Errors
/// SRC cannot be opened, MNT cannot be mounted on, or written data cannot be made durable.
pub(super) fn run(args: &MountArgs, given: MountOptions) -> Result<u8, Failure> {
    boot::start_warnings();
    // First: a mistake here shall not cost a login or make a cache.
    mountpoint::check(&args.mountpoint, given.nonempty).map_err(|error| refused(&error))?;
    let target = recording(args)?;
    let trace = trace(args)?;
    let Source { store, name, share } = open_store(args)?;
    let reporter = Reporter {
        foreground: args.foreground,
    };
    let live = live::start("mount");
    let page = page::start(&args.http, &live)?;
    let recorder = target.map(|target| start_recording(target, &*store, &name, reporter));
    let recorder = recorder.transpose()?;
    let (store, boosted) = boost(args, store, &name, share.is_none(), reporter)?;
    let share_id = open::share_of(&*store, &name);
    // The programs' own umask applies to what they make.
    umask(Mode::empty());
    raise_descriptors();
    let options = seen(given, &name, share.is_some());
    let observer = recorder.as_ref().map(Recorder::observer);
    let store = match &trace {
        Some(trace) => TracedStore::wrap(store, trace.observer(), ""),
        None => store,
    };
    let mounted = Mounted::observed(store, &args.mountpoint, &options, observer);
    let mounted = mounted.map_err(|error| refused(&error))?;
    let unmounter = mounted.unmounter();
    bring_back(boosted.as_ref(), &mounted, share_id);
    let path = mounted.path().display().to_string();
    let part = MountPart::new(unmounter.clone(), &name, &path, options.read_only);
    let parts = register(&live, part, boosted.as_ref());
    let guarded = guarded(&mounted);
    catch_signals(unmounter.clone(), reporter, path.clone())?;
    let serving = std::thread::Builder::new()
        .name("ropeway-mount".into())
        .spawn(move || mounted.run())
        .map_err(|error| Failure::new(code::TARGET, format!("cannot start a thread: {error}")))?;
    live.wait();
    announce(page.as_ref());
    reporter.say(&format!("{name} is mounted on {path}"));
    notify("READY=1");
    if !args.foreground {
        background::detach();
    }
    let panicked = |_| Err(io::Error::other("a thread panicked"));
    let ended = serving.join().unwrap_or_else(panicked);
    if ended.is_err() {
        unmounter.detach();
    }
    let flushed = flush(&unmounter, reporter, &path);
    drop((page, parts));
    if let Some(session) = boosted {
        session.close();
    }
    if let Some(recorder) = recorder {
        recorder.finish();
    }
    let traced = trace.map_or(Ok(()), TraceWriter::finish_run);
    flushed?;
    if let Some(share) = share {
        share.log_off();
    }
    drop(guarded);
    match ended {
        Ok(()) => traced.map(|()| code::DONE),
        Err(error) => Err(Failure::new(
            code::TARGET,
            format!("the mount on {path} ended: {error}"),
        )),
    }
}

/// Says where the page is, also in the background: whoever mounts must know the token, and the
/// system's log must not.
fn announce(page: Option<&Page>) {
    if let Some(page) = page {
        messages::print_line(&format!("page: {}", page.url()));
    }
}

/// Lets the cache bring back what memory pressure throws out of memory.
fn bring_back(boosted: Option<&Session>, mounted: &Mounted, share: [u8; 16]) {
    let Some(session) = boosted else { return };
    let pages = mounted.pages(Path::new(background::SELF));
    if let Err(error) = session.boost().bring_back(share, Arc::new(pages)) {
        tracing::warn!(%error, "what memory pressure throws out of memory is not brought back");
    }
}

/// Begins the trace, if one is wanted.
fn trace(args: &MountArgs) -> Result<Option<TraceWriter>, Failure> {
    if let Some(path) = &args.trace {
        outside(path, args, "trace")?;
    }
    args.trace.as_deref().map(TraceWriter::start_run).transpose()
}

/// Returns the options for a source with this name.
fn seen(given: MountOptions, name: &str, is_share: bool) -> MountOptions {
    let mut options = MountOptions {
        source: name.to_owned(),
        ..given
    };
    if is_share {
        // A share tells no owners: everything belongs to the user who logged in.
        options.view.user.get_or_insert(geteuid().as_raw());
        options.view.group.get_or_insert(getegid().as_raw());
    }
    options
}

/// Registers what other processes see.
fn register(live: &Live, mount: MountPart, boosted: Option<&Session>) -> Vec<PartHandle> {
    let mut parts = vec![live.add(Arc::new(mount))];
    let status = boosted.map(Session::status);
    parts.extend(status.map(|status| live.add(Arc::new(CachePart(status)))));
    parts
}

/// Begins to record what programs do with a source.
fn start_recording(
    target: Target,
    store: &dyn Store,
    name: &str,
    reporter: Reporter,
) -> Result<Recorder, Failure> {
    let session = record::session(store, open::share_of(store, name), name);
    let session = session.map_err(|error| Failure::of_tree(name, &error, End::Source))?;
    target.start(session, reporter)
}

/// Opens the file to record in, if the flags name one.
fn recording(args: &MountArgs) -> Result<Option<Target>, Failure> {
    let Some(path) = options::record(args) else {
        return Ok(None);
    };
    outside(&path, args, "recording")?;
    Target::open(&path).map(Some)
}

/// Checks that a file that the mount writes is not inside of it.
fn outside(path: &Path, args: &MountArgs, what: &str) -> Result<(), Failure> {
    let there = path.parent().and_then(|folder| match folder.as_os_str() {
        folder if folder.is_empty() => std::env::current_dir().ok(),
        _ => folder.canonicalize().ok(),
    });
    if let (Some(there), Ok(mountpoint)) = (there, args.mountpoint.canonicalize())
        && there.starts_with(&mountpoint)
    {
        let message = format!("the {what} {} is inside the mount", path.display());
        return Err(Failure::new(code::REFUSED, message).hint("choose a file elsewhere"));
    }
    Ok(())
}

/// Puts the cache that the flags name in front of the store.
fn boost(
    args: &MountArgs,
    store: Arc<dyn Store>,
    name: &str,
    is_folder: bool,
    reporter: Reporter,
) -> Result<(Arc<dyn Store>, Option<Session>), Failure> {
    let flags = options::boost(args)?;
    open::refuse_inside(&flags, &args.mountpoint)?;
    if is_folder {
        open::refuse_inside(&flags, Path::new(name))?;
    }
    let used_by = format!("{name} on {}", args.mountpoint.display());
    let say = Arc::new(move |line: &str| reporter.say(line));
    let Some(session) = open::session(&flags, &used_by, |line| reporter.say(line), say)? else {
        return Ok((store, None));
    };
    let store = open::boosted(&flags, &session, store, name)?;
    Ok((store, Some(session)))
}

fn refused(error: &MountError) -> Failure {
    let code = match error {
        MountError::NotEmpty(_) | MountError::Busy(_) => code::REFUSED,
        MountError::OthersRefused => code::PERMISSION,
        MountError::Store(_) => code::SOURCE,
        MountError::Failed(_, error) if error.kind() == io::ErrorKind::PermissionDenied => code::PERMISSION,
        _ => code::TARGET,
    };
    let failure = Failure::new(code, error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Makes everything durable and says how much that was.
fn flush(unmounter: &Unmounter, reporter: Reporter, path: &str) -> Result<(), Failure> {
    let start = Instant::now();
    let flushed = unmounter.flush().map_err(|error| {
        let message = format!("{path}: not all written data is durable: {error}");
        reporter.say(&message);
        Failure::new(code::TARGET, message).hint("check the source; data that programs flushed is durable")
    })?;
    let seconds = start.elapsed().as_secs_f64();
    reporter.say(&format!(
        "unmounted {path}: flushed {} in {seconds:.1} s",
        format::bytes(flushed)
    ));
    Ok(())
}

/// Ends the mount at SIGTERM or SIGINT; a second signal ends the process at once.
fn catch_signals(unmounter: Unmounter, reporter: Reporter, path: String) -> Result<(), Failure> {
    let fault = |error: io::Error| Failure::new(code::TARGET, format!("cannot catch signals: {error}"));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(fault)?;
    let mut signals = runtime.block_on(async { Signals::catch() })?;
    let work = move || {
        runtime.block_on(signals.stop());
        notify("STOPPING=1");
        std::thread::scope(|scope| {
            scope.spawn(|| stop(&unmounter, reporter, &path));
            runtime.block_on(signals.stop());
            std::process::exit(i32::from(code::INTERRUPTED));
        });
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(work).map(|_| ()).map_err(fault)
}

fn stop(unmounter: &Unmounter, reporter: Reporter, path: &str) {
    for _ in 0..UNMOUNT_TRIES {
        if unmounter.unmount().is_ok() {
            // The main thread sees the end.
            return;
        }
        // What brings blocks back has a file open for a moment.
        std::thread::sleep(UNMOUNT_PAUSE);
    }
    // Programs use it. They get errors from now on.
    let files = unmounter.counters().open_files;
    reporter.say(&format!("{path} is in use (open files: {files}): detached"));
    unmounter.detach();
    let code = match flush(unmounter, reporter, path) {
        Ok(()) => code::DONE,
        Err(failure) => failure.code,
    };
    std::process::exit(i32::from(code));
}

/// Allows as many open files as the system does: each open file takes a descriptor.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // The store closes idle descriptors where the limit stays.
    let _ = setrlimit(Resource::Nofile, all);
}
