//! Gives finished nodes their names after the flush of a checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use ropeway_vfs::{End, Error, ErrorKind, Name, Verdict};

use crate::durable::control::WaitingName;
use crate::job::context::Context;
use crate::name::folder::{name_folder, record_named};
use crate::place::folder::Folder;

/// Gives the waiting nodes their names, folder by folder. Returns the bytes of those that got none.
pub(crate) async fn give_names(context: &Arc<Context>, names: Vec<WaitingName>) -> u64 {
    let failed = AtomicU64::new(0);
    let mut groups: Vec<(Arc<Folder>, Vec<WaitingName>)> = Vec::new();
    for name in names {
        match groups.last_mut() {
            Some((folder, group)) if Arc::ptr_eq(folder, &name.folder) => group.push(name),
            _ => groups.push((Arc::clone(&name.folder), vec![name])),
        }
    }
    for (folder, group) in groups {
        let dir = folder.path();
        let named = group.iter().filter(|name| !name.replace).map(|name| async {
            let (from, to) = (dir.join(&name.from), dir.join(&name.to));
            let mut result = context.config.target.rename(&from, &to, false).await;
            if result
                .as_ref()
                .is_err_and(|error| error.kind == ErrorKind::AlreadyExists)
            {
                result = name_folder(context, folder.root(), &from, &to).await;
            }
            failed.fetch_add(account(context, name, result).await, Ordering::Relaxed);
        });
        // Together where each is a round trip.
        let at_once = context.config.target.capabilities().small_in_flight.max(1);
        futures_util::stream::iter(named)
            .for_each_concurrent(at_once, |naming| naming)
            .await;
        let replacing: Vec<&WaitingName> = group.iter().filter(|name| name.replace).collect();
        let pairs: Vec<(Name, Name)> = replacing
            .iter()
            .map(|name| (name.from.clone(), name.to.clone()))
            .collect();
        if !pairs.is_empty() {
            let results = context.config.target.rename_in(&dir, &pairs).await;
            for (name, result) in replacing.into_iter().zip(results) {
                failed.fetch_add(account(context, name, result).await, Ordering::Relaxed);
            }
        }
    }
    failed.into_inner()
}

/// Records what came of a name. Returns the bytes that count no more.
async fn account(context: &Context, name: &WaitingName, result: Result<(), Error>) -> u64 {
    context.durability.touch();
    match result {
        Ok(()) => match (&context.journal, name.token) {
            (Some(journal), Some(token)) => context.report.journal_result(Some(journal.closed(token))),
            (Some(_), None) => record_named(
                &context.config,
                &context.report,
                context.journal.as_ref(),
                &name.from,
            ),
            (None, _) => {}
        },
        Err(error) => {
            let landed = &context.report.live.bytes_landed;
            landed.fetch_sub(name.size, Ordering::AcqRel);
            if let Some(token) = name.token {
                context.copied_nodes.remove(token);
                if matches!(error.verdict(), Verdict::Skip) {
                    // Best effort: the failure itself is reported.
                    let temporary = name.folder.path().join(&name.from);
                    let _ = context.config.target.remove_file(&temporary).await;
                }
            }
            context
                .report
                .live
                .files_done
                .fetch_sub(u64::from(name.token.is_some()), Ordering::AcqRel);
            context
                .report
                .live
                .bytes_done
                .fetch_sub(name.size, Ordering::AcqRel);
            context.report.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&name.shown, error, End::Target).await;
            return name.size;
        }
    }
    0
}
