//! Records in the journal which folders have temporary names.

use crate::job::report::Report;
use crate::journal::open::Journal;
use crate::place::folder::Folder;

/// Records in the journal that a folder has temporary names. Call it before the first one is made.
pub(crate) fn mark_folder(report: &Report, journal: Option<&Journal>, folder: &Folder) {
    if folder.begins_to_have_temporaries() {
        report.journal_result(journal.map(|journal| journal.place(&folder.inner().path)));
    }
}
