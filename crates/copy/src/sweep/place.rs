//! Notes the folders in which this job makes temporary names.

use ropeway_plan::Visibility;
use ropeway_vfs::{Error, RelPath};

use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::place::folder::Folder;
use crate::place::mark::mark_folder;
use crate::sweep::removal;

/// Notes that temporary names are made in a folder. Call it before one is made, looked at or used
/// there.
pub(crate) async fn note_place(context: &Context, folder: &Folder) {
    if folder.visibility() == Visibility::Hidden || context.config.options.dry_run {
        return;
    }
    // The claim is made in this folder or above it.
    folder.note_change_above();
    // The next run looks for a claim there as well.
    mark_folder(&context.report, context.journal.as_ref(), folder);
    let (place, target) = (folder.path(), &folder.root().root.target_path);
    let is_inside = context.temporaries.single.is_some() && place.strip_prefix(target).is_some();
    let top = match target.parent() {
        Some(parent) if !is_inside && place.strip_prefix(&parent).is_some() => parent,
        _ if is_inside => target.clone(),
        _ => place.clone(),
    };
    if let Err(error) = context.temporaries.own.note(&top, &place).await {
        refuse(context, &error);
    }
}

pub(crate) fn refuse(context: &Context, error: &Error) {
    let message =
        format!("another run of this very copy, or one that removes what it left, is under way ({error})");
    context.fatal(Fatal::new(Status::Refused, message).hint("wait until it has ended, then run this again"));
}

pub(crate) fn is_resumed(context: &Context) -> bool {
    let journal = context.journal.as_ref();
    journal.is_some_and(|journal| journal.memory().resumed())
}

/// Returns the folders in which this job has made temporary names, in all its runs.
pub(crate) async fn known_places(context: &Context) -> Vec<RelPath> {
    let mut places = context.temporaries.own.places().await;
    let journalled = context.journal.as_ref().and_then(|journal| journal.places().ok());
    places.extend(journalled.unwrap_or_default());
    removal::each_once(places)
}
