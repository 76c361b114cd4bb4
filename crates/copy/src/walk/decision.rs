//! Decides what happens to one node that is no folder: the rule of [`ropeway_plan::decide`], and
//! what the journal knows of earlier runs.

use ropeway_plan::decide::{Decision, decide};
use ropeway_plan::{Rules, Visibility, attributes_differ, changed_since_copy};
use ropeway_vfs::{Kind, Metadata, Timestamp};

use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::job::root::JobRoot;
use crate::journal::open::Journal;
use crate::place::foreign_links::{has_foreign_links, learn_links};
use crate::place::task::FileTask;

/// Decides on the nodes of one root.
pub(super) struct Decider<'a> {
    config: &'a JobConfig,
    report: &'a Report,
    journal: Option<&'a Journal>,
    root: &'a JobRoot,
    /// The rules of the root, with what was learned from the current nodes.
    rules: Rules,
}

impl<'a> Decider<'a> {
    /// Begins with the rules of the root.
    pub(super) fn new(
        config: &'a JobConfig,
        report: &'a Report,
        journal: Option<&'a Journal>,
        root: &'a JobRoot,
    ) -> Self {
        Self {
            config,
            report,
            journal,
            root,
            rules: root.rules,
        }
    }

    /// Learns from the modification times of the next nodes, and of what stands in their places,
    /// how fine times are.
    pub(super) fn learn_times(
        &mut self,
        sources: impl Iterator<Item = Timestamp>,
        existing: impl Iterator<Item = Timestamp>,
    ) {
        self.rules.granularity = self.root.rules.granularity.learned(sources, existing);
    }

    /// Returns the rules for a folder. A hidden folder holds only what earlier runs of this job
    /// left, perhaps half written. So `--update` and `--ignore-existing` protect nothing in it.
    fn rules_in(&self, visibility: Visibility) -> Rules {
        match visibility {
            Visibility::Visible => self.rules,
            Visibility::Hidden => Rules {
                update: false,
                ignore_existing: false,
                replace_special: true,
                ..self.rules
            },
        }
    }

    /// Decides on a node that is no folder, from the metadata of both ends and the journal.
    pub(super) async fn decide(&self, task: &mut FileTask) -> Decision {
        let has_links = |node: &Metadata| node.kind == Kind::File && node.links > 1;
        if has_links(&task.metadata) || task.existing.as_ref().is_some_and(has_links) {
            self.report.journal_result(self.journal.map(Journal::links));
        }
        let mut decision = decide(
            &task.metadata,
            task.existing.as_ref(),
            &self.rules_in(task.folder.visibility()),
            &self.config.options.preserve,
            self.config.target.capabilities(),
        );
        let looks_equal = matches!(
            decision,
            Decision::Skip | Decision::AttributesOnly | Decision::CompareContent
        );
        // A copy that looks equal is no other version, even if a hard link replaces it.
        task.existing_is_own = matches!(decision, Decision::Skip | Decision::AttributesOnly);
        // The same holds for what a repair replaces, and for what a run with --force replaces if it
        // continues an earlier one.
        let resumes = self.journal.is_some_and(|journal| journal.memory().resumed());
        let is_repeated = self.root.is_repair || (self.config.options.force && resumes);
        task.existing_is_own |= is_repeated && self.has_same_time(task);
        // A comparison would read the page cache, not the device.
        let is_unseen = task.folder.visibility() == Visibility::Hidden;
        if looks_equal && !self.is_trusted(task) {
            // It may lack data, and it may have replaced the version that a backup keeps.
            task.existing_is_own = self.has_same_time(task);
            decision = Decision::Replace;
        } else if looks_equal && self.may_be_unfinished(task) {
            task.existing_is_own = true;
            decision = Decision::Replace;
        } else if looks_equal && is_unseen && self.changed_since(task) {
            decision = Decision::Replace;
        } else if looks_equal
            && self.config.options.move_source
            && task.metadata.kind == Kind::File
            && self.changed_since(task)
        {
            // A move must not remove a file that only looks equal.
            decision = Decision::CompareContent;
        } else if !looks_equal && self.has_same_time(task) && !self.is_trusted(task) {
            // A power cut took a part of an earlier copy.
            task.existing_is_own = true;
        }
        if decision == Decision::AttributesOnly {
            learn_links(self.config, task).await;
        }
        if decision == Decision::AttributesOnly && has_foreign_links(self.config, task).await {
            decision = Decision::Replace;
        }
        if decision == Decision::Skip && self.attributes_outdated(task) {
            decision = Decision::AttributesOnly;
        }
        let is_staged = task.folder.visibility() == Visibility::Visible && !self.config.options.dry_run;
        if decision == Decision::Conflict && self.config.options.delete.is_some() && is_staged {
            // The folder in the way is removed when the copy is complete.
            decision = Decision::Replace;
        }
        decision
    }

    /// Whether a folder of the target has the attributes of the source's, as far as listings show them.
    pub(super) fn is_equal_folder(&self, source: &Metadata, existing: &Metadata) -> bool {
        let (options, target) = (&self.config.options, self.config.target.capabilities());
        let are_known = source.modified.is_known() && existing.modified.is_known();
        let differs_in_age = match (source.created, existing.created) {
            (Some(made), Some(copied)) if target.creation_times && options.preserve.times => {
                !self.rules.granularity.equal(made, copied)
            }
            _ => false,
        };
        are_known
            && !differs_in_age
            && !options.force
            && !options.move_source
            && !self.root.is_repair
            && !attributes_differ(source, existing, &self.rules, &options.preserve, target)
    }

    /// Whether a file that looks equal surely has all its data. A power cut may have left holes in
    /// it if the run that wrote it was interrupted.
    fn is_trusted(&self, task: &FileTask) -> bool {
        let Some(journal) = self.journal else {
            return true;
        };
        let Some(existing) = task
            .existing
            .as_ref()
            .filter(|_| task.metadata.kind == Kind::File)
        else {
            return true;
        };
        let changed = self.config.change_time(existing);
        // A server flushes each file before the file gets its attributes.
        let unseen =
            task.folder.visibility() == Visibility::Hidden && self.config.target.capabilities().page_cache;
        match self.config.durability.wants_durable() {
            true => journal.trusts_device(changed, unseen),
            false => journal.trusts(changed, unseen),
        }
    }

    /// Whether the node of the target has the modification time of the source.
    fn has_same_time(&self, task: &FileTask) -> bool {
        let existing = task.existing.as_ref();
        existing.is_some_and(|existing| {
            self.rules
                .granularity
                .equal(task.metadata.modified, existing.modified)
        })
    }

    /// Whether a file with the source's size and time may be unfinished: an earlier run wrote it in
    /// place or in a hidden folder, at about the time at which the source changed. Elsewhere files
    /// get their names when they are complete.
    fn may_be_unfinished(&self, task: &FileTask) -> bool {
        let is_written_there = task.folder.visibility() == Visibility::Hidden || self.config.options.inplace;
        let (Some(journal), Some(existing)) = (self.journal, &task.existing) else {
            return false;
        };
        task.metadata.kind == Kind::File
            && is_written_there
            && self.has_same_time(task)
            && journal.may_be_unfinished(existing, self.rules.granularity.granularity_ns)
    }

    /// Whether the source was changed after the file of the target. Size and time may then be those
    /// of another version.
    fn changed_since(&self, task: &FileTask) -> bool {
        let source = task.folder.root().root.source.capabilities();
        let target = self.config.target.capabilities();
        let existing = task.existing.as_ref();
        existing.is_some_and(|existing| changed_since_copy((&task.metadata, source), (existing, target)))
    }

    /// Whether the source's attributes changed after the copy was made. Extended attributes and
    /// ACLs show in no other field, and reading them for every equal file would cost a call on each
    /// side.
    fn attributes_outdated(&self, task: &FileTask) -> bool {
        let target = self.config.target.capabilities();
        target.xattrs && self.config.options.preserve.xattrs && self.changed_since(task)
    }
}
