//! Decides what to do with one node, from the metadata of both ends.
//!
//! Two nodes are equal if they have the same kind, the same size, and modification times equal
//! within the coarser end's granularity. (FAT keeps 2 s; an exact comparison would copy everything
//! again on every run.) Nodes that differ only in attributes which the target can hold get these
//! attributes and no data.
//!
//! Where an end does not know a file's time, size and content decide. An unknown time equals no
//! time, and copying again on every run would never end. `--update` then keeps the target, since
//! nothing shows that the source is newer.

use ropeway_vfs::{Capabilities, Kind, Metadata, Preserve};

use crate::granularity::TimeGranularity;

/// The options that decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `--update`: keep a target that is newer than the source.
    pub update: bool,
    /// `--ignore-existing`: keep whatever exists on the target.
    pub ignore_existing: bool,
    /// `--checksum`: compare content, whatever the times are.
    pub checksum: bool,
    /// Copy even equal nodes.
    pub force: bool,
    /// Mirror: replace FIFOs, sockets and devices of the target by the source's nodes of the same
    /// name.
    pub replace_special: bool,
    /// `--devices`: copy block and character devices.
    pub devices: bool,
    /// An end generates its files on reading, so their sizes mean nothing.
    pub sizes_unknown: bool,
    /// When modification times count as equal.
    pub granularity: TimeGranularity,
}

impl Rules {
    /// Makes rules without options for these two trees.
    pub fn between(source: &Capabilities, target: &Capabilities) -> Self {
        Self {
            sizes_unknown: !source.sizes_known || !target.sizes_known,
            granularity: TimeGranularity::between(source, target),
            ..Self::default()
        }
    }
}

/// Why a node of the target is kept although it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// It exists, and `--ignore-existing` is set.
    Exists,
    /// It is newer than the source, and `--update` is set.
    Newer,
    /// The target cannot hold nodes of the source's kind (no tree can hold sockets).
    Unsupported,
    /// It is a device, and `--devices` is not set. Otherwise anyone who may write the source could
    /// have root make a device node for any disk.
    Device,
}

/// What to do with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is there: create it.
    Create,
    /// Another node is there, of a kind that a rename replaces: create it anew.
    Replace,
    /// Compare the content (of a link: the target text). If it is equal, [`attributes_differ`]
    /// decides the rest.
    CompareContent,
    /// Equal.
    Skip,
    /// Equal except for attributes.
    AttributesOnly,
    /// The target is kept.
    Keep(KeepReason),
    /// A folder where something else must be, or the reverse; or a FIFO, socket or device where a
    /// node of another kind must be. It is not replaced unless asked, since a program may wait at
    /// the other end of it. (A link is replaced, as by `rsync`, and never written through.)
    Conflict,
}

/// Decides on one node. `target` is `None` where nothing exists.
pub fn decide(
    source: &Metadata,
    target: Option<&Metadata>,
    rules: &Rules,
    preserve: &Preserve,
    target_caps: &Capabilities,
) -> Decision {
    if source.kind.is_device() && !rules.devices {
        return Decision::Keep(KeepReason::Device);
    }
    if !can_hold(source.kind, target_caps) {
        return Decision::Keep(KeepReason::Unsupported);
    }
    let Some(target) = target else {
        return Decision::Create;
    };
    let is_special = matches!(
        target.kind,
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice
    );
    if source.is_dir() != target.is_dir()
        || (is_special && source.kind != target.kind && !rules.replace_special)
    {
        return match rules.ignore_existing {
            true => Decision::Keep(KeepReason::Exists),
            false => Decision::Conflict,
        };
    }
    let by_attributes = || match attributes_differ(source, target, rules, preserve, target_caps) {
        true => Decision::AttributesOnly,
        false => Decision::Skip,
    };
    if source.is_dir() {
        // An existing folder is entered in any case; `--ignore-existing` leaves its attributes
        // alone.
        return match rules.ignore_existing {
            true => Decision::Skip,
            false => by_attributes(),
        };
    }
    if rules.ignore_existing {
        return Decision::Keep(KeepReason::Exists);
    }
    let same_time = rules.granularity.equal(source.modified, target.modified);
    let times_known = source.modified.is_known() && target.modified.is_known();
    if rules.update && !same_time && (target.modified > source.modified || !times_known) {
        return Decision::Keep(KeepReason::Newer);
    }
    if rules.force || source.kind != target.kind {
        return Decision::Replace;
    }
    match source.kind {
        Kind::File if rules.sizes_unknown => Decision::CompareContent,
        Kind::File if source.size != target.size => Decision::Replace,
        Kind::File if rules.checksum => Decision::CompareContent,
        Kind::File if !times_known => Decision::CompareContent,
        Kind::File if !same_time => Decision::Replace,
        Kind::Symlink if source.size != target.size => Decision::Replace,
        Kind::Symlink => Decision::CompareContent,
        Kind::CharDevice | Kind::BlockDevice if source.device != target.device => Decision::Replace,
        _ => by_attributes(),
    }
}

/// Whether attributes differ that `preserve` names and the target can hold: permission bits (not of
/// links), owner, modification time, DOS attributes. An attribute that one end does not know counts
/// as equal. Extended attributes are not part of the metadata; the caller compares them separately.
pub fn attributes_differ(
    source: &Metadata,
    target: &Metadata,
    rules: &Rules,
    preserve: &Preserve,
    target_caps: &Capabilities,
) -> bool {
    differing_attributes(source, target, rules, preserve, target_caps) != AttributesDiffer::default()
}

/// Whether the source was changed after its copy was made, by the change times of both. Size and
/// modification time may then be those of another version, and extended attributes and ACLs, which
/// show in no other field, may differ. Only what this machine's kernel changed can be compared: the
/// clocks of two machines cannot tell.
pub fn changed_since_copy(
    (source, source_caps): (&Metadata, &Capabilities),
    (copy, target_caps): (&Metadata, &Capabilities),
) -> bool {
    let comparable = source_caps.page_cache && target_caps.page_cache;
    comparable && copy.changed.is_some() && source.changed > copy.changed
}

/// Attributes that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributesDiffer {
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// Modification time.
    pub time: bool,
    /// DOS attributes.
    pub dos_attributes: bool,
}

/// Returns which attributes differ, by the rules of [`attributes_differ`].
pub fn differing_attributes(
    source: &Metadata,
    target: &Metadata,
    rules: &Rules,
    preserve: &Preserve,
    target_caps: &Capabilities,
) -> AttributesDiffer {
    fn differ<T: PartialEq>(source: Option<T>, target: Option<T>) -> bool {
        matches!((source, target), (Some(source), Some(target)) if source != target)
    }
    let mode = preserve.mode
        && target_caps.modes
        && source.kind != Kind::Symlink
        && differ(source.mode, target.mode);
    let owner = preserve.owner && target_caps.owners && differ(source.owner, target.owner);
    let times_known = source.modified.is_known() && target.modified.is_known();
    let time = preserve.times && times_known && !rules.granularity.equal(source.modified, target.modified);
    AttributesDiffer {
        mode,
        owner,
        time,
        dos_attributes: differ(source.dos_attributes, target.dos_attributes),
    }
}

fn can_hold(kind: Kind, target_caps: &Capabilities) -> bool {
    match kind {
        Kind::File | Kind::Directory => true,
        Kind::Symlink => target_caps.symlinks,
        Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => target_caps.special_files,
        Kind::Socket => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::capabilities;
    use ropeway_vfs::{Owner, Timestamp};

    const SECOND: i128 = 1_000_000_000;

    fn node(kind: Kind, size: u64, seconds: i128) -> Metadata {
        Metadata {
            mode: Some(0o644),
            owner: Some(Owner { user: 1, group: 1 }),
            ..Metadata::bare(kind, size, Timestamp(seconds * SECOND))
        }
    }

    fn file(size: u64, seconds: i128) -> Metadata {
        node(Kind::File, size, seconds)
    }

    fn by(rules: Rules, source: &Metadata, target: &Metadata) -> Decision {
        decide(
            source,
            Some(target),
            &rules,
            &Preserve::default(),
            &capabilities(),
        )
    }

    fn plain(source: &Metadata, target: &Metadata) -> Decision {
        by(Rules::default(), source, target)
    }

    #[test]
    fn files_by_size_and_time() {
        assert_eq!(
            decide(
                &file(1, 1),
                None,
                &Rules::default(),
                &Preserve::default(),
                &capabilities()
            ),
            Decision::Create
        );
        assert_eq!(plain(&file(1, 1), &file(1, 1)), Decision::Skip);
        assert_eq!(plain(&file(1, 1), &file(2, 1)), Decision::Replace);
        assert_eq!(plain(&file(1, 1), &file(1, 2)), Decision::Replace);
        let force = Rules {
            force: true,
            ..Rules::default()
        };
        assert_eq!(by(force, &file(1, 1), &file(1, 1)), Decision::Replace);
        let checksum = Rules {
            checksum: true,
            ..Rules::default()
        };
        assert_eq!(by(checksum, &file(1, 1), &file(1, 1)), Decision::CompareContent);
        assert_eq!(by(checksum, &file(1, 1), &file(1, 5)), Decision::CompareContent);
        assert_eq!(by(checksum, &file(1, 1), &file(2, 1)), Decision::Replace);
    }

    #[test]
    fn times_compare_at_the_coarser_granularity() {
        let fat = Capabilities {
            time_granularity_ns: 2_000_000_000,
            ..capabilities()
        };
        let rules = Rules::between(&capabilities(), &fat);
        let exact = Metadata {
            modified: Timestamp(7 * SECOND + 123),
            ..file(1, 0)
        };
        assert_eq!(by(rules, &exact, &file(1, 6)), Decision::Skip);
        assert_eq!(by(rules, &exact, &file(1, 8)), Decision::Skip);
        assert_eq!(by(rules, &exact, &file(1, 10)), Decision::Replace);
        let update = Rules {
            update: true,
            ..rules
        };
        assert_eq!(
            by(update, &exact, &file(2, 8)),
            Decision::Replace,
            "not newer, only rounded"
        );
    }

    #[test]
    fn update_and_ignore_existing_keep() {
        let update = Rules {
            update: true,
            ..Rules::default()
        };
        assert_eq!(
            by(update, &file(1, 1), &file(2, 2)),
            Decision::Keep(KeepReason::Newer)
        );
        assert_eq!(by(update, &file(1, 3), &file(2, 2)), Decision::Replace);
        let ignore = Rules {
            ignore_existing: true,
            force: true,
            ..Rules::default()
        };
        let kept = Decision::Keep(KeepReason::Exists);
        assert_eq!(by(ignore, &file(1, 3), &file(2, 2)), kept);
        assert_eq!(by(ignore, &file(1, 3), &node(Kind::Directory, 0, 1)), kept);
        let folders = (node(Kind::Directory, 0, 1), node(Kind::Directory, 0, 2));
        assert_eq!(by(ignore, &folders.0, &folders.1), Decision::Skip);
    }

    #[test]
    fn an_unknown_time_equals_no_time() {
        let unknown = Metadata {
            modified: Timestamp::UNKNOWN,
            ..file(1, 1)
        };
        let update = Rules {
            update: true,
            ..Rules::default()
        };
        for (source, target) in [
            (&unknown, &file(1, 1)),
            (&file(1, 1), &unknown),
            (&unknown, &unknown),
        ] {
            assert_eq!(plain(source, target), Decision::CompareContent);
            assert_eq!(by(update, source, target), Decision::Keep(KeepReason::Newer));
            let preserve = Preserve::default();
            let differ = attributes_differ(source, target, &Rules::default(), &preserve, &capabilities());
            assert!(!differ, "what is not known differs from nothing");
        }
        assert_eq!(plain(&unknown, &file(2, 1)), Decision::Replace);
    }

    #[test]
    fn kinds_that_differ() {
        let folder = node(Kind::Directory, 0, 1);
        assert_eq!(plain(&folder, &file(0, 1)), Decision::Conflict);
        assert_eq!(plain(&file(0, 1), &folder), Decision::Conflict);
        assert_eq!(plain(&file(0, 1), &node(Kind::Symlink, 0, 1)), Decision::Replace);
    }

    #[test]
    fn devices_are_copied_only_on_request() {
        let devices = Rules {
            devices: true,
            ..Rules::default()
        };
        for kind in [Kind::CharDevice, Kind::BlockDevice] {
            let device = node(kind, 0, 1);
            let kept = Decision::Keep(KeepReason::Device);
            assert_eq!(plain(&device, &device), kept);
            assert_eq!(plain(&device, &file(1, 1)), kept);
            assert_eq!(by(devices, &device, &device), Decision::Skip);
        }
        let without = Capabilities {
            special_files: false,
            ..capabilities()
        };
        let decision = decide(
            &node(Kind::BlockDevice, 0, 1),
            None,
            &Rules::default(),
            &Preserve::default(),
            &without,
        );
        assert_eq!(decision, Decision::Keep(KeepReason::Device), "no failure");
        let fifo = node(Kind::Fifo, 0, 1);
        assert_eq!(plain(&fifo, &fifo), Decision::Skip);
    }

    #[test]
    fn only_a_mirror_replaces_pipes_sockets_and_devices() {
        let mirror = Rules {
            replace_special: true,
            ..Rules::default()
        };
        let force = Rules {
            force: true,
            ..Rules::default()
        };
        for kind in [Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice] {
            let there = node(kind, 0, 1);
            for source in [file(0, 1), node(Kind::Symlink, 0, 1)] {
                assert_eq!(plain(&source, &there), Decision::Conflict, "{kind:?}");
                assert_eq!(by(force, &source, &there), Decision::Conflict, "{kind:?}");
                assert_eq!(by(mirror, &source, &there), Decision::Replace, "{kind:?}");
            }
        }
        let fifo = node(Kind::Fifo, 0, 1);
        assert_eq!(plain(&fifo, &fifo), Decision::Skip);
    }

    #[test]
    fn links_and_devices() {
        let link = |size| node(Kind::Symlink, size, 1);
        assert_eq!(plain(&link(3), &link(3)), Decision::CompareContent);
        assert_eq!(plain(&link(3), &link(4)), Decision::Replace);
        let device = |minor| Metadata {
            device: Some((1, minor)),
            ..node(Kind::CharDevice, 0, 1)
        };
        let devices = Rules {
            devices: true,
            ..Rules::default()
        };
        assert_eq!(by(devices, &device(3), &device(3)), Decision::Skip);
        assert_eq!(by(devices, &device(3), &device(5)), Decision::Replace);
        let socket = node(Kind::Socket, 0, 1);
        assert_eq!(plain(&socket, &socket), Decision::Keep(KeepReason::Unsupported));
    }

    #[test]
    fn attributes_count_only_where_they_can_be_kept() {
        let other = Metadata {
            mode: Some(0o600),
            ..file(1, 1)
        };
        assert_eq!(plain(&file(1, 1), &other), Decision::AttributesOnly);
        let with = |preserve: Preserve, caps: Capabilities, target: &Metadata| {
            decide(&file(1, 1), Some(target), &Rules::default(), &preserve, &caps)
        };
        let modeless = Capabilities {
            modes: false,
            owners: false,
            ..capabilities()
        };
        assert_eq!(
            with(Preserve::default(), modeless.clone(), &other),
            Decision::Skip
        );
        let careless = Preserve {
            mode: false,
            owner: false,
            ..Preserve::default()
        };
        assert_eq!(with(careless, capabilities(), &other), Decision::Skip);
        let foreign = Metadata {
            owner: Some(Owner { user: 2, group: 1 }),
            ..file(1, 1)
        };
        assert_eq!(
            with(Preserve::default(), capabilities(), &foreign),
            Decision::AttributesOnly
        );
        assert_eq!(with(Preserve::default(), modeless, &foreign), Decision::Skip);
        let unknown = Metadata::bare(Kind::File, 1, Timestamp(SECOND));
        assert_eq!(
            with(Preserve::default(), capabilities(), &unknown),
            Decision::Skip
        );
        let folders = (node(Kind::Directory, 0, 1), node(Kind::Directory, 4096, 2));
        assert_eq!(plain(&folders.0, &folders.1), Decision::AttributesOnly);
        assert_eq!(plain(&folders.0, &folders.0), Decision::Skip);
    }
}
