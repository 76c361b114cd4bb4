//! The test suite that every [`Store`] must pass.
//!
//! Each rule of the contract in [`crate::store`] is a function that panics when a store breaks it.
//! [`check_store`] runs all rules, each on a fresh empty store, and reports every broken one. What
//! only some stores can do is said in [`Abilities`]; a store without an ability must refuse with
//! [`ErrorKind::Unsupported`], or is not asked. [`model::run`] compares a store with a plain model
//! of a folder over random operations.

#![allow(clippy::unwrap_used, reason = "a broken rule is a panic")]

mod content;
pub mod model;
mod names;
mod watching;
mod windows;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::store::{Access, NewNode, Node, NodeOpen, NodeStat, Opened, Store};
use crate::{Error, ErrorKind, Name, RelPath};

/// What a store can do beyond the common contract.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Whether names that differ only in case are different nodes.
    pub case_sensitive: bool,
    /// Whether it keeps symbolic links.
    pub symlinks: bool,
    /// Whether it keeps hard links.
    pub hard_links: bool,
    /// Whether it keeps named streams.
    pub streams: bool,
    /// Whether it keeps extended attributes of OS/2 kind.
    pub eas: bool,
    /// Whether ranges written as holes are found as such.
    pub holes: bool,
    /// Whether byte-range locks exist.
    pub locks: bool,
    /// Whether it keeps DOS attributes.
    pub dos_attributes: bool,
    /// For [`model::run`]: whether a removed file that is still open survives a disturbance.
    pub removed_files_survive: bool,
}

impl Abilities {
    /// All of them.
    pub const ALL: Self = Self {
        case_sensitive: true,
        symlinks: true,
        hard_links: true,
        streams: true,
        eas: true,
        holes: true,
        locks: true,
        dos_attributes: true,
        removed_files_survive: true,
    };
}

/// A rule: panics when the store, empty at first, breaks it.
pub type Rule = fn(&dyn Store, Abilities);

/// All rules by name.
pub const RULES: &[(&str, Rule)] = &[
    (
        "opening_makes_finds_and_refuses",
        names::opening_makes_finds_and_refuses,
    ),
    ("access_is_as_asked", names::access_is_as_asked),
    ("folders_are_listed", names::folders_are_listed),
    ("names_are_removed", names::names_are_removed),
    ("names_are_changed", names::names_are_changed),
    (
        "open_nodes_follow_their_names",
        names::open_nodes_follow_their_names,
    ),
    ("nodes_are_known_by_their_id", names::nodes_are_known_by_their_id),
    ("hard_links_share_everything", names::hard_links_share_everything),
    ("symbolic_links_stay_inside", names::symbolic_links_stay_inside),
    (
        "case_means_nothing_to_resolve",
        names::case_means_nothing_to_resolve,
    ),
    ("content_is_kept", content::content_is_kept),
    (
        "nodes_of_a_file_share_its_content",
        content::nodes_of_a_file_share_its_content,
    ),
    ("removed_files_stay_usable", content::removed_files_stay_usable),
    ("holes_and_zeros", content::holes_and_zeros),
    ("ranges_are_copied", content::ranges_are_copied),
    ("locks_exclude_each_other", content::locks_exclude_each_other),
    (
        "own_changes_are_not_reported",
        watching::own_changes_are_not_reported,
    ),
    (
        "times_and_attributes_are_kept",
        windows::times_and_attributes_are_kept,
    ),
    ("streams_are_kept", windows::streams_are_kept),
    ("eas_are_kept", windows::eas_are_kept),
    (
        "volumes_describe_themselves",
        windows::volumes_describe_themselves,
    ),
];

/// Runs every rule on a fresh store from `make` (empty, writable).
///
/// # Panics
/// After the last rule, with the names and messages of all broken rules.
pub fn check_store(make: impl Fn() -> Arc<dyn Store>, can: Abilities) {
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        let store = make();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| rule(&*store, can))) {
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

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

const READ: NodeOpen = NodeOpen {
    access: Access::Read,
    allow_less_access: false,
    create: None,
    exclusive: false,
    link_itself: false,
};

const WRITE: NodeOpen = NodeOpen {
    access: Access::Write,
    ..READ
};

const LOOK: NodeOpen = NodeOpen {
    access: Access::Attributes,
    ..READ
};

const CREATE: NodeOpen = NodeOpen {
    create: Some(NewNode {
        directory: false,
        dos_attributes: None,
    }),
    ..WRITE
};

const MAKE_DIR: NodeOpen = NodeOpen {
    create: Some(NewNode {
        directory: true,
        dos_attributes: None,
    }),
    exclusive: true,
    ..READ
};

fn open(store: &dyn Store, at: &str, how: &NodeOpen) -> Arc<dyn Node> {
    match store.open(&path(at), how) {
        Ok(opened) => opened.node,
        Err(error) => panic!("{at} is not opened: {error}"),
    }
}

fn put(store: &dyn Store, at: &str, content: &[u8]) -> Arc<dyn Node> {
    let node = open(store, at, &CREATE);
    node.set_len(0).expect("it becomes empty");
    node.write_at(content, 0).expect("it is written");
    node
}

fn content(node: &dyn Node) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let count = node.read_at(&mut buffer, 0).expect("it is read");
    buffer.truncate(count);
    buffer
}

fn list(node: &dyn Node) -> Vec<(String, NodeStat)> {
    let mut entries = node.entries().expect("it is listed");
    let mut found = Vec::new();
    while let Some((name, stat)) = entries.next().expect("the listing goes on") {
        found.push((name.to_string(), stat));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

#[track_caller]
fn kind_of<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("it succeeded").kind
}

#[track_caller]
fn refused(result: Result<Opened, Error>) -> ErrorKind {
    kind_of(result)
}
