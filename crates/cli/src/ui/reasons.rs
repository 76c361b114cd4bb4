//! Says why two nodes differ, for people. Pure.

use ropeway_copy::Tally;
use ropeway_vfs::Timestamp;
use ropeway_vfs::event::{Reason, Sides};

use super::format;

/// Returns the reasons in one line, with what both sides have: `size 5 B -> 7 B, mode 644 -> 600`.
pub(super) fn text(reasons: &[Reason]) -> String {
    let each: Vec<String> = reasons.iter().map(one).collect();
    each.join(", ")
}

fn one(reason: &Reason) -> String {
    let name = reason.name();
    match reason {
        Reason::Kind(sides) => both(name, sides, |kind| format!("{kind:?}").to_lowercase()),
        Reason::Size(sides) => both(name, sides, |size| size_text(size, sides)),
        Reason::Time(sides) => {
            let whole = |time: Timestamp| time.0.div_euclid(1_000_000_000);
            let fraction = whole(sides.source) == whole(sides.target);
            both(name, sides, |time| time_text(time, fraction))
        }
        Reason::Mode(sides) => both(name, sides, |mode| format!("{mode:03o}")),
        Reason::Owner(sides) => both(name, sides, |owner| format!("{}:{}", owner.user, owner.group)),
        Reason::DosAttributes => "DOS attributes".to_owned(),
        _ => name.to_owned(),
    }
}

fn both<T: Copy>(name: &str, sides: &Sides<T>, text: impl Fn(T) -> String) -> String {
    format!("{name} {} -> {}", text(sides.source), text(sides.target))
}

/// Returns a size, in bytes where a shorter form would look the same on both sides.
fn size_text(size: u64, sides: &Sides<u64>) -> String {
    match format::bytes(sides.source) == format::bytes(sides.target) {
        true => format!("{} B", format::count(size)),
        false => format::bytes(size),
    }
}

/// Returns a local time; with `fraction` to the nanosecond.
fn time_text(time: Timestamp, fraction: bool) -> String {
    let form = match fraction {
        true => "%Y-%m-%d %H:%M:%S.%9f",
        false => "%Y-%m-%d %H:%M:%S",
    };
    let local = jiff::Timestamp::from_nanosecond(time.0).ok();
    local.map_or_else(
        || "unknown".to_owned(),
        |time| {
            time.to_zoned(jiff::tz::TimeZone::system())
                .strftime(form)
                .to_string()
        },
    )
}

/// Returns the counts of differences in one line; `None` without differences.
pub(super) fn tally(tally: &Tally) -> Option<String> {
    let counts = [
        (tally.missing, "missing"),
        (tally.extra, "extra"),
        (tally.kind, "of another kind"),
        (tally.content, "with other content"),
        (tally.size, "with another size"),
        (tally.time, "with another time"),
        (tally.mode, "with another mode"),
        (tally.owner, "with another owner only"),
        (tally.other, "with other attributes"),
    ];
    let named = counts.iter().filter(|(count, _)| *count > 0);
    let named: Vec<String> = named
        .map(|(count, words)| format!("{} {words}", format::count(*count)))
        .collect();
    (!named.is_empty()).then(|| named.join(" · "))
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::Owner;

    use super::*;

    #[test]
    fn reasons_show_both_sides() {
        let owner = |user| Owner { user, group: 7 };
        let reasons = [
            Reason::Content,
            Reason::Size(Sides {
                source: 5,
                target: 7 << 20,
            }),
            Reason::Mode(Sides {
                source: 0o644,
                target: 0o4755,
            }),
            Reason::Owner(Sides {
                source: owner(1000),
                target: owner(0),
            }),
        ];
        assert_eq!(
            text(&reasons),
            "content, size 5 B -> 7.0 MiB, mode 644 -> 4755, owner 1000:7 -> 0:7"
        );
        // Sizes that would be shown alike are shown to the byte.
        let near = Reason::Size(Sides {
            source: 5_000_000,
            target: 5_000_001,
        });
        assert_eq!(text(&[near]), "size 5,000,000 B -> 5,000,001 B");
    }

    #[test]
    fn times_in_one_second_are_shown_with_their_fraction() {
        let time = |source, target| {
            text(&[Reason::Time(Sides {
                source: Timestamp(source),
                target: Timestamp(target),
            })])
        };
        assert!(time(1_500_000_000, 1_600_000_000).contains("01.500000000 -> "));
        assert!(!time(1_500_000_000, 2_600_000_000).contains(".5"));
        assert!(time(i128::MAX, 0).contains("unknown -> "));
    }

    #[test]
    fn the_tally_counts_owners_apart() {
        let counts = Tally {
            missing: 2,
            content: 1,
            owner: 1200,
            ..Tally::default()
        };
        assert_eq!(
            tally(&counts).unwrap(),
            "2 missing · 1 with other content · 1,200 with another owner only"
        );
        assert_eq!(tally(&Tally::default()), None);
    }
}
