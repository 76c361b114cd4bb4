//! Why two nodes differ. Pure.

use ropeway_plan::decide::{AttributesDiffer, Rules, differing_attributes};
use ropeway_vfs::event::{Reason, Sides};
use ropeway_vfs::{Capabilities, Kind, Metadata, Preserve};

/// Returns the reasons that metadata show.
pub(super) fn of_metadata(
    source: &Metadata,
    target: &Metadata,
    (rules, preserve, target_caps): (&Rules, &Preserve, &Capabilities),
) -> Vec<Reason> {
    if source.kind != target.kind {
        let kinds = Sides {
            source: source.kind,
            target: target.kind,
        };
        return vec![Reason::Kind(kinds)];
    }
    let mut reasons = Vec::new();
    if source.kind == Kind::File && source.size != target.size && !rules.sizes_unknown {
        reasons.push(Reason::Size(Sides {
            source: source.size,
            target: target.size,
        }));
    }
    let differ = differing_attributes(source, target, rules, preserve, target_caps);
    reasons.extend(attributes(source, target, differ));
    reasons
}

fn attributes(source: &Metadata, target: &Metadata, differ: AttributesDiffer) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if differ.time {
        reasons.push(Reason::Time(Sides {
            source: source.modified,
            target: target.modified,
        }));
    }
    if let (true, Some(source), Some(target)) = (differ.mode, source.mode, target.mode) {
        reasons.push(Reason::Mode(Sides { source, target }));
    }
    if let (true, Some(source), Some(target)) = (differ.owner, source.owner, target.owner) {
        reasons.push(Reason::Owner(Sides { source, target }));
    }
    if differ.dos_attributes {
        reasons.push(Reason::DosAttributes);
    }
    reasons
}
