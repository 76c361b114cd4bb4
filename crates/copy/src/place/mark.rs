//! Tells the journal in which folders there are temporary names.

use crate::job::context::Context;
use crate::place::folder::Folder;

/// Tells the journal that there are temporary names in a folder. Call it before the first one is
/// made.
pub(crate) fn mark_folder(context: &Context, folder: &Folder) {
    if folder.begins_to_have_temporaries() {
        let journal = context.journal.as_ref();
        context.journalled(journal.map(|journal| journal.place(&folder.inner().path)));
    }
}
