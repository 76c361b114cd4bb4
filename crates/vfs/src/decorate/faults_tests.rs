use std::task::{Context, Waker};

use ropeway_block::Pool;

use super::*;
use crate::clock::simulate;
use crate::decorate::test_kit::{clock, create, path, read, reader, source, write};
use crate::{MemoryTree, Name};

fn rules(text: &str) -> Vec<FaultRule> {
    FaultRule::parse(text).unwrap()
}

#[test]
fn rules_are_parsed() {
    let parsed =
        rules("read:path=a/b,offset=64K..,errno=EIO,times=1; target.any:contains=tmp,delay=forever;");
    assert_eq!(
        parsed,
        [
            FaultRule {
                op: Some(Op::Read),
                path: Some(PathMatch::Exact(path("a/b"))),
                offset: Some(65_536..u64::MAX),
                fault: Some(Fault::Errno(5)),
                times: Some(1),
                ..FaultRule::default()
            },
            FaultRule {
                end: Some(End::Target),
                path: Some(PathMatch::Contains(b"tmp".to_vec())),
                delay: Some(Delay::Forever),
                ..FaultRule::default()
            },
        ]
    );
    assert!(parsed[0].applies_to(End::Source) && !parsed[1].applies_to(End::Source));
    for (bad, said) in [
        ("fly:errno=EIO", "no operation"),
        ("read:errno=EWHAT", "no errno"),
        ("read:errno=0", "no errno"),
        ("read:path=a", "neither"),
        ("read:path=../a,errno=5", "not a path"),
        ("read:size=3,errno=5", "no \"size\""),
        ("read:errno", "key=value"),
        ("read:probability=2,errno=5", "0..1"),
        ("read:offset=9..3,errno=5", "empty range"),
        ("read:kind=sad", "kind of error"),
        ("both.read:errno=5", "neither source nor target"),
        ("read:delay=5x", "not a time"),
        ("read:errno=5,late=maybe", "only be yes"),
    ] {
        let error = FaultRule::parse(bad).unwrap_err().to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn a_read_error_occurs_at_its_offset() {
    let (clock, time) = clock();
    let pool = Pool::new(1 << 16, 2);
    let faults = Faults::new(
        source(200_000),
        rules("read:path=file,offset=100000..100001,errno=EIO"),
        time,
    );
    simulate(&clock, async {
        let file = reader(&*faults).await;
        assert_eq!(read(&*file, &pool, 0, 65_536).await.unwrap(), 65_536);
        let error = read(&*file, &pool, 65_536, 65_536).await.unwrap_err();
        assert_eq!((error.kind, error.op), (ErrorKind::DeviceError, Op::Read));
        assert_eq!(error.source.unwrap().raw_os_error(), Some(5));
        assert_eq!(read(&*file, &pool, 131_072, 65_536).await.unwrap(), 65_536);
    });
    assert_eq!(faults.fired(), [1]);
}

#[test]
fn rules_fire_by_count_and_by_bytes() {
    let (clock, time) = clock();
    let pool = Pool::new(1 << 16, 2);
    let text =
        "write:after_bytes=100000,kind=gone;create:nth=2,errno=ENOSPC;stat:contains=odd,times=1,errno=EIO";
    let faults = Faults::new(Arc::new(MemoryTree::new()), rules(text), time);
    simulate(&clock, async {
        let file = create(&*faults, "one").await.unwrap();
        assert_eq!(
            create(&*faults, "two").await.err().unwrap().kind,
            ErrorKind::NoSpace
        );
        create(&*faults, "odd").await.unwrap();
        for at in [0, 50_000] {
            write(&*file, &pool, at, 50_000).await.unwrap();
        }
        for _ in 0..3 {
            assert_eq!(
                write(&*file, &pool, 0, 1).await.unwrap_err().kind,
                ErrorKind::Gone
            );
        }
        let root = RelPath::root();
        let names = [b"one".as_slice(), b"odd"].map(|name| Name::new(name).unwrap());
        let found = faults.lookup(&root, &names).await.unwrap();
        assert!(
            found[0].is_ok() && found[1].is_err(),
            "a lookup fails for one name only"
        );
        let mut listing = faults.list(&root).await.unwrap();
        let entries = listing.next(10).await.unwrap();
        assert!(
            entries.iter().all(|entry| entry.metadata.is_ok()),
            "it fired once"
        );
    });
    assert_eq!(faults.fired(), [3, 1, 1]);
}

#[test]
fn the_same_seed_fires_the_same_way() {
    let fired = |seed: u64| {
        let (clock, time) = clock();
        let pool = Pool::new(4096, 1);
        let faults = Faults::new(
            source(4096),
            rules(&format!("read:probability=0.25,seed={seed},errno=EIO")),
            time,
        );
        simulate(&clock, async {
            let file = reader(&*faults).await;
            let mut failed = Vec::new();
            for _ in 0..1000 {
                failed.push(read(&*file, &pool, 0, 1).await.is_err());
            }
            failed
        })
    };
    assert_eq!(fired(1), fired(1));
    assert_ne!(fired(1), fired(2));
    let count = fired(3).into_iter().filter(|failed| *failed).count();
    assert!((200..300).contains(&count), "{count} of 1000 at 1 in 4");
}

#[test]
fn delays_take_time_and_forever_never_completes() {
    let (clock, time) = clock();
    let pool = Pool::new(4096, 2);
    let faults = Faults::new(
        source(10),
        rules("read:nth=1,delay=200ms;read:delay=forever"),
        time,
    );
    simulate(&clock, async {
        let file = reader(&*faults).await;
        assert_eq!(read(&*file, &pool, 0, 10).await.unwrap(), 10);
        assert_eq!(clock.now(), Duration::from_millis(200));
        let block = pool.get().await;
        let mut hung = file.read_at(block, 0, 10);
        assert!(
            hung.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert_eq!(pool.available(), 1);
        drop(hung);
        assert_eq!(pool.available(), 2);
    });
}
