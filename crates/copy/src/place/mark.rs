//! Tells the journal in which folders there are temporary names.

use crate::job::report::Report;
use crate::journal::open::Journal;
use crate::place::folder::Folder;

/// Tells the journal that there are temporary names in a folder. Call it before the first one is
/// made.
pub(crate) fn mark_folder(report: &Report, journal: Option<&Journal>, folder: &Folder) {
    if folder.begins_to_have_temporaries() {
        report.journalled(journal.map(|journal| journal.place(&folder.inner().path)));
    }
}
