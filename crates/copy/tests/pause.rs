//! Pauses and rates that a running job gets, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_copy::{Handle, Job, JobSpec, Options, RuntimeClock, Status};
use ropeway_vfs::decorate::slow::{DeviceModel, Slow};
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{RelPath, Tree};
use tokio::time::{Instant, sleep};

const MIB: u64 = 1 << 20;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// A job of a minute: small files and a large one, from a disk of 2 MB/s. It gives up after 30 s
/// without an answer, since many requests wait for the disk.
fn job(source: &Arc<MemoryTree>) -> Job {
    for number in 0..200 {
        let name = path(&format!("small/{number}"));
        source.insert_synthetic(&name, 50_000, number).unwrap();
    }
    source.insert_synthetic(&path("large"), 100 * MIB, 7).unwrap();
    let model = DeviceModel::parse("disk,read=2M").unwrap();
    let slow = Slow::new(source.clone(), model, Arc::new(RuntimeClock::new()));
    let options = Options {
        timeout: Some(Duration::from_secs(30)),
        ..Options::default()
    };
    let target: Arc<dyn Tree> = Arc::new(MemoryTree::new());
    Job::new(JobSpec::whole(slow, target, path("copy"), options))
}

fn moved(handle: &Handle) -> u64 {
    handle.counters().bytes_read
}

/// Runs a job beside what `act` does with its handle. Returns the seconds it took.
async fn seconds<F: Future<Output = ()>>(job: Job, act: impl FnOnce(Handle) -> F) -> f64 {
    let (handle, begin) = (job.handle(), Instant::now());
    let failures = Arc::new(Mutex::new(Vec::new()));
    let failed = Arc::clone(&failures);
    let sink = move |event| {
        if let Event::ItemError { message, .. } = event {
            failed.lock().unwrap().push(message);
        }
    };
    let (outcome, ()) = tokio::join!(job.run(Arc::new(sink)), act(handle));
    assert_eq!(outcome.status, Status::Done, "{:?} {failures:?}", outcome.fatal);
    begin.elapsed().as_secs_f64()
}

/// A pause lets nothing through however long it is, is no stall, and the job goes on where it was.
#[tokio::test(start_paused = true)]
async fn a_paused_job_waits_and_goes_on() {
    let plain = seconds(job(&Arc::new(MemoryTree::new())), |_| async {}).await;
    let paused = seconds(job(&Arc::new(MemoryTree::new())), |handle| async move {
        for _ in 0..3 {
            sleep(Duration::from_secs(5)).await;
            assert!(handle.limit().pause());
            let Event::Progress { paused: true, .. } = handle.progress() else {
                panic!("{:?}", handle.progress());
            };
            // Reads under way end; the disk has a queue of them.
            sleep(Duration::from_secs(30)).await;
            let before = handle.counters();
            sleep(Duration::from_secs(600)).await;
            assert_eq!(handle.counters().bytes_read, before.bytes_read);
            assert!(handle.limit().resume());
        }
    })
    .await;
    let longer = paused - plain;
    assert!((1860.0..1895.0).contains(&longer), "{plain} {paused}");
}

/// A job that is cancelled during a pause ends at once.
#[tokio::test(start_paused = true)]
async fn a_paused_job_can_be_cancelled() {
    let job = job(&Arc::new(MemoryTree::new()));
    let (handle, begin) = (job.handle(), Instant::now());
    let act = async {
        sleep(Duration::from_secs(10)).await;
        handle.limit().pause();
        sleep(Duration::from_secs(100)).await;
        handle.cancel();
    };
    let (outcome, ()) = tokio::join!(job.run(Arc::new(|_| {})), act);
    assert_eq!(outcome.status, Status::Interrupted);
    assert!(
        begin.elapsed() < Duration::from_secs(115),
        "{:?}",
        begin.elapsed()
    );
}

/// A rate that a running job gets is kept, and may be taken away again.
#[tokio::test(start_paused = true)]
async fn a_running_job_gets_a_rate() {
    let took = seconds(job(&Arc::new(MemoryTree::new())), |handle| async move {
        sleep(Duration::from_secs(10)).await;
        handle.limit().set_rate(Some(Box::new(|| Some(500_000))));
        // Reads under way, which asked for more, end first.
        sleep(Duration::from_secs(30)).await;
        let before = moved(&handle);
        sleep(Duration::from_secs(60)).await;
        let rate = (moved(&handle) - before) as f64 / 60.0;
        assert!((490_000.0..510_000.0).contains(&rate), "{rate} bytes a second");
        handle.limit().set_rate(None);
        sleep(Duration::from_secs(2)).await;
        let before = moved(&handle);
        sleep(Duration::from_secs(5)).await;
        assert!(moved(&handle) - before > 8_000_000);
    })
    .await;
    assert!(took > 90.0, "{took}");
}

/// A rate below one block a time-out is no stall either: the wait for the rate is no silence.
#[tokio::test(start_paused = true)]
async fn a_low_rate_is_no_time_out() {
    let source = Arc::new(MemoryTree::new());
    source.insert_synthetic(&path("one"), 3 * MIB, 7).unwrap();
    let options = Options {
        timeout: Some(Duration::from_secs(2)),
        ..Options::default()
    };
    let job = Job::new(JobSpec::whole(
        source,
        Arc::new(MemoryTree::new()),
        path("copy"),
        options,
    ));
    job.handle().limit().set_rate(Some(Box::new(|| Some(10_000))));
    let took = seconds(job, |_| async {}).await;
    assert!((290.0..340.0).contains(&took), "{took}");
}
