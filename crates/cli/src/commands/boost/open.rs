//! A cache folder for the commands that put it in front of a source.

use std::path::Path;
use std::sync::Arc;

use ropeway_boost::{BoostStore, Matcher, Pins, Say, Session, SessionOptions, folder, share_id};
use ropeway_plan::filter::{Filter, FilterSpec};
use ropeway_vfs::store::Store;

use super::failure;
use crate::args::{BoostArgs, Prefetch};
use crate::failure::{Failure, code};
use crate::ui::format;

/// Opens the cache that the flags name, and makes it if the folder is empty or new. `None` without
/// one. `used_by` says what it is for; `made` hears of a new cache, `say` of a device that fails.
///
/// # Errors
/// The folder cannot be used, or a pattern is wrong.
pub(crate) fn session(
    args: &BoostArgs,
    used_by: &str,
    made: impl FnOnce(&str),
    say: Say,
) -> Result<Option<Session>, Failure> {
    let Some(path) = &args.boost else {
        return Ok(None);
    };
    let fault = |error| failure(&error);
    // Wrong patterns are refused before a cache is made.
    drop(matcher(&args.pin)?);
    drop(matcher(&args.pin_metadata)?);
    if folder::is_vacant(path).map_err(fault)? {
        let size = folder::create(path, None).map_err(fault)?;
        let size = format::bytes(size);
        made(&format!("made a cache of {size} in {}", path.display()));
    }
    let opened = folder::open(path).map_err(fault)?;
    let how = SessionOptions {
        sequential: args.boost_sequential.unwrap_or_default(),
        offline_reads: args.offline_reads.unwrap_or_default().bound(),
        is_predicting: args.prefetch.unwrap_or_default() == Prefetch::Auto,
    };
    let session = Session::start(opened, how, used_by, say);
    session.map(Some).map_err(|error| no_thread(&error))
}

/// Puts the cache in front of a store. `name` tells the sources on one cache apart.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn boosted(
    args: &BoostArgs,
    session: &Session,
    store: Arc<dyn Store>,
    name: &str,
) -> Result<Arc<dyn Store>, Failure> {
    let share = share_of(&*store, name);
    let store = Arc::new(BoostStore::named(store, session.boost().clone(), share, name));
    if !args.pin.is_empty() || !args.pin_metadata.is_empty() {
        let pins = Pins {
            content: matcher(&args.pin)?,
            metadata: matcher(&args.pin_metadata)?,
            bytes_max: u64::MAX,
        };
        let pinned = session.pin(Arc::clone(&store), pins);
        pinned.map_err(|error| no_thread(&error))?;
    }
    Ok(store)
}

/// Returns what a source is known by in a cache.
pub(crate) fn share_of(store: &dyn Store, name: &str) -> [u8; 16] {
    let volume = store.features().volume;
    share_id(&format!("{name}\n{volume:016x}"))
}

/// Refuses a cache folder inside another folder.
///
/// # Errors
/// It is inside.
pub(crate) fn refuse_inside(args: &BoostArgs, other: &Path) -> Result<(), Failure> {
    let Some(path) = &args.boost else {
        return Ok(());
    };
    let there = path.ancestors().find_map(|part| part.canonicalize().ok());
    let (Some(there), Ok(other_path)) = (there, other.canonicalize()) else {
        return Ok(());
    };
    if there.starts_with(&other_path) {
        let message = format!("the cache {} is inside {}", path.display(), other.display());
        return Err(Failure::new(code::REFUSED, message).hint("choose a folder elsewhere"));
    }
    Ok(())
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(code::TARGET, format!("cannot start a thread: {error}"))
}

fn matcher(patterns: &[String]) -> Result<Matcher, Failure> {
    let spec = FilterSpec {
        exclude: patterns.to_vec(),
        ..FilterSpec::default()
    };
    let filter = Filter::new(&spec).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Box::new(move |path, is_dir| filter.excluded(path, is_dir)))
}
