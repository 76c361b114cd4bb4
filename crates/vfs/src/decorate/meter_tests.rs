use std::sync::Mutex;
use std::time::Duration;

use ropeway_block::Pool;

use super::*;
use crate::VirtualClock;
use crate::clock::simulate;
use crate::decorate::test_kit::{create, path, read, reader, source, write};
use crate::decorate::trace::Traced;
use crate::trace::{End, Observer, Record};

struct Seen {
    clock: VirtualClock,
    lines: Mutex<Vec<String>>,
}

impl Observer for Seen {
    fn now(&self) -> Duration {
        crate::Clock::now(&self.clock)
    }

    fn record(&self, record: Record<'_>) {
        let Record {
            kind,
            path,
            offset,
            length,
            result,
            ..
        } = record;
        self.lines
            .lock()
            .unwrap()
            .push(format!("{kind} {path} {offset}+{length} {result}"));
    }
}

#[test]
fn each_operation_is_counted_and_recorded() {
    let clock = VirtualClock::new();
    let seen = Arc::new(Seen {
        clock: clock.clone(),
        lines: Mutex::default(),
    });
    let meter = Meter::new(source(10_000));
    let tree = Traced::new(meter.clone(), seen.clone(), End::Source);
    let pool = Pool::new(8192, 1);
    simulate(&clock, async {
        let file = reader(&*tree).await;
        read(&*file, &pool, 8192, 8192).await.unwrap();
        let file = create(&*tree, "new").await.unwrap();
        write(&*file, &pool, 0, 100).await.unwrap();
        file.drop_cache(0, 100).await.unwrap();
        file.start_writeback(0, 100).await.unwrap();
        tree.rename(&path("missing"), &path("other"), true)
            .await
            .unwrap_err();
    });
    let lines = seen.lines.lock().unwrap();
    assert_eq!(
        *lines,
        [
            "open file 0+0 0",
            "read file 8192+8192 1808",
            "create new 0+0 0",
            "write new 0+100 100",
            "drop_cache new 0+100 0",
            "writeback new 0+100 0",
            "rename other 0+0 -5",
        ]
    );
    let counts = meter.snapshot();
    assert_eq!(
        (counts.bytes_read, counts.bytes_written, counts.errors),
        (1808, 100, 1)
    );
    assert_eq!(
        (
            counts.count(Op::Read),
            counts.count(Op::Sync),
            counts.count(Op::List)
        ),
        (1, 2, 0)
    );
    assert_eq!(meter.inner().describe(), tree.describe());
}
