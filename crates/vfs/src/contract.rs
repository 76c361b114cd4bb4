//! The test suite that every tree must pass.
//!
//! Each rule of the contract in [`crate::tree`] is a function that panics when a tree breaks the
//! rule. [`check_tree`] runs all rules, each on a fresh empty tree, and reports every broken one. A
//! rule that a tree's capabilities exclude passes without doing anything; a tree must keep what its
//! capabilities promise. The suite knows no runtime: run it on whatever the tree needs.
//!
//! ```
//! use std::sync::Arc;
//! use ropeway_vfs::{MemoryTree, VirtualClock, clock::simulate, contract};
//!
//! let pool = ropeway_block::Pool::new(64 * 1024, 8);
//! simulate(&VirtualClock::new(), contract::check_tree(|| Arc::new(MemoryTree::new()), &pool));
//! ```

mod attributes;
mod data;
mod links;
mod listing;
mod names;
mod opening;
mod small;
mod stage;
pub mod store;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use ropeway_block::Pool;

pub use self::stage::Stage;
use crate::{Pending, Tree};

/// A rule of the contract. It panics when the tree breaks it.
pub type Rule = for<'a> fn(&'a Stage) -> Pending<'a, ()>;

macro_rules! rules {
    ($($module:ident::$rule:ident,)*) => {
        &[$((stringify!($rule), |stage| Box::pin($module::$rule(stage)))),*]
    };
}

/// All rules by name.
pub const RULES: &[(&str, Rule)] = rules![
    opening::open_fails_for_missing_files,
    opening::new_refuses_a_taken_name,
    opening::truncate_empties_and_if_missing_keeps,
    opening::only_regular_files_open,
    opening::a_handle_for_reading_does_not_write,
    opening::new_files_have_the_mode_asked_for,
    opening::an_open_file_survives_rename_and_removal,
    opening::errors_name_the_node,
    data::reads_are_short_only_at_the_end,
    data::written_bytes_are_read_back,
    data::holes_read_as_zeros,
    data::far_offsets_cost_nothing,
    data::set_len_cuts_and_grows,
    data::extents_cover_the_data,
    data::a_punched_range_reads_as_zeros,
    data::allocation_keeps_the_length,
    data::writes_may_come_in_any_order,
    data::handles_share_the_file,
    data::flushing_changes_nothing_visible,
    data::dropped_operations_do_no_harm,
    data::too_large_is_refused,
    small::small_files_are_written_and_read_in_one_call,
    small::small_files_replace_only_when_whole,
    small::small_files_keep_their_attributes,
    small::small_files_are_read_whole_or_not,
    small::many_small_files_at_once,
    names::folders_are_made_once,
    names::removal_refuses_the_wrong_kind_and_full_folders,
    names::rename_moves,
    names::rename_replaces_only_when_asked,
    names::rename_refuses_what_does_not_fit,
    names::rename_in_does_each,
    names::odd_names_come_back_as_they_were,
    names::long_names_fit_to_the_limit,
    names::case_is_handled_as_the_capabilities_promise,
    names::the_root_cannot_be_removed,
    listing::lookup_answers_each_name,
    listing::listings_are_complete,
    listing::listings_survive_concurrent_removals,
    listing::listings_report_the_same_as_metadata,
    listing::watches_report_changes,
    links::symbolic_links_keep_their_text,
    links::symbolic_links_are_never_followed,
    links::paths_do_not_lead_through_symbolic_links,
    links::hard_links_share_everything,
    links::special_nodes_are_kept,
    attributes::times_are_kept,
    attributes::modes_are_kept,
    attributes::owners_are_kept_or_reported_as_lost,
    attributes::xattrs_are_replaced_whole,
    attributes::other_attributes_are_not_changed,
    attributes::writing_changes_the_modification_time,
    attributes::identities_are_stable,
    attributes::space_and_capabilities_are_sane,
];

/// Runs every rule on a fresh tree from `make` (empty, writable). `pool` needs at least two slots
/// of 64 KiB.
///
/// # Panics
/// After the last rule, with the names and messages of all broken rules.
pub async fn check_tree(make: impl Fn() -> Arc<dyn Tree>, pool: &Pool) {
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        let stage = Stage::new(make(), pool.clone());
        if let Err(panic) = AssertUnwindSafe(rule(&stage)).catch_unwind().await {
            broken.push(format!("{name}: {}", said(&*panic)));
        }
    }
    assert!(
        broken.is_empty(),
        "{} of {} rules are broken:\n{}",
        broken.len(),
        RULES.len(),
        broken.join("\n")
    );
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
}

#[cfg(test)]
#[path = "contract/tests.rs"]
mod tests;
