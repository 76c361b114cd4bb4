//! Contract rules for attributes.

use std::collections::BTreeSet;

use super::stage::{Stage, path, works};
use crate::{Create, Loss, Metadata, MetadataChange, Owner, RelPath, Timestamp, Xattr};

pub(super) async fn times_are_kept(stage: &Stage) {
    let granularity = stage.can().time_granularity_ns;
    stage.write("file", b"x").await;
    stage.make_dir("dir").await;
    let mut times = vec![
        Timestamp::from_unix(1_000_000_000, 0),
        Timestamp::from_unix(1_234_567_891, 123_456_789),
        Timestamp::from_unix(1_900_000_001, 999_999_999),
    ];
    // Coarse volumes often start late, e.g. FAT in 1980.
    if granularity <= 100 {
        times.push(Timestamp::from_unix(-2, 500_000_000));
    }
    for time in times {
        let change = MetadataChange {
            modified: Some(time),
            accessed: Some(time),
            ..MetadataChange::default()
        };
        for at in ["dir", "file"] {
            stage.set(at, change.clone()).await;
            let found = stage.metadata(at).await.modified;
            assert!(
                found.equal_within(time, granularity),
                "{at}: {found:?} instead of {time:?}"
            );
        }
    }
    let time = Timestamp::from_unix(1_111_111_111, 111_111_111);
    let file = stage.open_to_write("file", Create::No).await;
    stage.write_at(&*file, b"y", 0).await;
    let change = MetadataChange {
        modified: Some(time),
        ..MetadataChange::default()
    };
    works("through the handle", file.set_metadata(&change).await);
    drop(file);
    let found = stage.metadata("file").await.modified;
    assert!(
        found.equal_within(time, granularity),
        "a time set on an open file stays: {found:?}"
    );
}

pub(super) async fn modes_are_kept(stage: &Stage) {
    stage.write("file", b"x").await;
    stage.make_dir("dir").await;
    for mode in [0o600, 0o755, 0o640, 0o1777, 0o400] {
        for at in ["file", "dir"] {
            let change = MetadataChange {
                mode: Some(mode),
                ..MetadataChange::default()
            };
            let losses = stage.set(at, change).await;
            let found = stage.metadata(at).await.mode;
            if stage.can().modes {
                assert_eq!(found, Some(mode), "{at}");
            }
            assert!(
                found == Some(mode) || losses.contains(&Loss::Mode),
                "{at}: a lost mode is reported"
            );
        }
        let back = MetadataChange {
            mode: Some(0o700),
            ..MetadataChange::default()
        };
        stage.set("dir", back).await;
    }
}

pub(super) async fn owners_are_kept_or_reported_as_lost(stage: &Stage) {
    stage.write("file", b"x").await;
    let own = stage.metadata("file").await.owner;
    let change = |owner| MetadataChange {
        owner,
        mode: Some(0o4755),
        ..MetadataChange::default()
    };
    if stage.can().owners {
        let losses = stage.set("file", change(own)).await;
        assert!(!losses.contains(&Loss::Owner), "its own owner can always be set");
        assert_eq!(
            stage.metadata("file").await.mode,
            Some(0o4755),
            "the mode comes after the owner"
        );
    }
    let other = Owner {
        user: 12_345,
        group: 23_456,
    };
    let losses = stage.set("file", change(Some(other))).await;
    let found = stage.metadata("file").await;
    let kept = found.owner == Some(other);
    assert!(kept || losses.contains(&Loss::Owner), "a lost owner is reported");
    if kept && stage.can().modes {
        assert_eq!(found.mode, Some(0o4755), "the mode comes after the owner");
    }
}

fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr {
        name: name.as_bytes().to_vec(),
        value: value.to_vec(),
    }
}

async fn user_xattrs(stage: &Stage, at: &str) -> Vec<Xattr> {
    let all = works(at, stage.tree.xattrs(&path(at)).await);
    assert!(
        all.is_sorted_by(|one, two| one.name < two.name),
        "sorted by name: {all:?}"
    );
    all.into_iter()
        .filter(|xattr| xattr.name.starts_with(b"user.") && xattr.name != crate::SDDL_XATTR)
        .collect()
}

pub(super) async fn xattrs_are_replaced_whole(stage: &Stage) {
    stage.write("file", b"x").await;
    stage.make_dir("dir").await;
    let sets = [
        vec![xattr("user.a", b"1"), xattr("user.b", b"")],
        vec![
            xattr("user.b", b"2"),
            xattr("user.c", &[7; 1000]),
            xattr("user.d", b"\0\xff"),
        ],
        vec![],
        vec![xattr("user.last", b"x")],
    ];
    for set in sets {
        let change = MetadataChange {
            xattrs: Some(set.clone()),
            ..MetadataChange::default()
        };
        for at in ["file", "dir"] {
            let losses = stage.set(at, change.clone()).await;
            if stage.can().short_xattrs && !stage.can().xattrs {
                let fits = |xattr: &&Xattr| !xattr.value.is_empty();
                let kept: Vec<Xattr> = set.iter().filter(fits).cloned().collect();
                assert_eq!(user_xattrs(stage, at).await, kept, "{at}: what fits is kept");
                let lost = losses.contains(&Loss::Xattr);
                assert_eq!(lost, kept.len() < set.len(), "{at}: the others are reported");
                continue;
            }
            if !stage.can().xattrs {
                assert!(
                    set.is_empty() || losses.contains(&Loss::Xattr),
                    "lost xattrs are reported"
                );
                continue;
            }
            assert_eq!(losses, [], "{at}");
            assert_eq!(user_xattrs(stage, at).await, set, "{at}");
        }
        if stage.can().xattrs || stage.can().short_xattrs {
            let file = stage.open_to_read("file").await;
            let found = works("xattrs", file.xattrs().await);
            assert_eq!(found, works("xattrs", stage.tree.xattrs(&path("file")).await));
        }
    }
    if stage.can().xattrs || stage.can().short_xattrs {
        let keep = MetadataChange {
            mode: Some(0o600),
            ..MetadataChange::default()
        };
        stage.set("file", keep).await;
        assert_eq!(user_xattrs(stage, "file").await, [xattr("user.last", b"x")]);
    }
}

pub(super) async fn other_attributes_are_not_changed(stage: &Stage) {
    stage.write("file", b"x").await;
    let old = MetadataChange {
        modified: Some(Timestamp::from_unix(1_000_000_000, 0)),
        mode: Some(0o640),
        ..MetadataChange::default()
    };
    stage.set("file", old).await;
    let view = |one: Metadata| (one.kind, one.size, one.mode, one.owner, one.modified, one.links);
    let before = view(stage.metadata("file").await);
    stage.set("file", MetadataChange::default()).await;
    assert_eq!(view(stage.metadata("file").await), before);
    stage
        .rename("file", "other", false)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        view(stage.metadata("other").await),
        before,
        "a rename keeps attributes"
    );
    stage.read("other").await;
    assert_eq!(
        view(stage.metadata("other").await),
        before,
        "reading keeps attributes"
    );
    let mode = MetadataChange {
        mode: Some(0o600),
        ..MetadataChange::default()
    };
    stage.set("other", mode).await;
    assert_eq!(
        stage.metadata("other").await.modified,
        before.4,
        "a change of mode is not a change of content"
    );
}

pub(super) async fn writing_changes_the_modification_time(stage: &Stage) {
    stage.write("file", b"x").await;
    let old = Timestamp::from_unix(1_000_000_000, 0);
    let change = MetadataChange {
        modified: Some(old),
        ..MetadataChange::default()
    };
    stage.set("file", change).await;
    let file = stage.open_to_write("file", Create::No).await;
    stage.write_at(&*file, b"y", 0).await;
    drop(file);
    assert!(stage.metadata("file").await.modified > old);
}

pub(super) async fn identities_are_stable(stage: &Stage) {
    if !stage.can().stable_ids {
        return;
    }
    stage.write("one", b"x").await;
    stage.write("two", b"x").await;
    stage.make_dir("dir").await;
    let mut ids = BTreeSet::new();
    for entry in stage.list(&RelPath::root(), 10).await {
        let listed = works("listed", entry.metadata).id;
        let own = works(
            "own",
            stage.tree.metadata(&RelPath::root().join(&entry.name)).await,
        )
        .id;
        assert!(
            own.is_some() && own == listed,
            "{}: {own:?} {listed:?}",
            entry.name
        );
        ids.extend(own);
    }
    assert_eq!(ids.len(), 3, "each node has its own");
    assert_eq!(
        ids.iter().map(|id| id.volume).collect::<BTreeSet<_>>().len(),
        1,
        "one volume"
    );
    let before = stage.metadata("one").await.id;
    let file = stage.open_to_read("one").await;
    assert_eq!(works("handle", file.metadata().await).id, before);
    drop(file);
    works("rename", stage.rename("one", "dir/moved", false).await);
    assert_eq!(
        stage.metadata("dir/moved").await.id,
        before,
        "a rename keeps the identity"
    );
}

pub(super) async fn space_and_capabilities_are_sane(stage: &Stage) {
    let space = works("space", stage.tree.space().await);
    assert!(space.total > 0 && space.available <= space.total, "{space:?}");
    let can = stage.can();
    assert!(
        can.time_granularity_ns > 0 && can.name_max > 0 && can.batches_in_flight > 0,
        "{can:?}"
    );
    assert!(can.file_size_max > 1 << 20, "{can:?}");
    assert!(!stage.tree.describe().is_empty());
}
