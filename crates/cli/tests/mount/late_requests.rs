//! Requests of a killed run that reach the server after the next run.

use std::fs;
use std::time::Duration;

use crate::line::Line;
use crate::support::{Served, content_same, patterned, wait_until};

const MIB: u64 = 1 << 20;
/// Far longer than anything below takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of the first run would change what the second one has written and called done. As long as the
/// session of the first one lives, so does its lock at the far end.
#[test]
fn a_run_is_refused_while_requests_of_a_killed_one_are_on_the_line() {
    let server = Served::start(&[]);
    let line = Line::long_queue_to(server.address());
    let (source, target) = (server.place.join("big"), server.behind("big"));
    let url = format!("smb://ann@{}/data/big", line.address());
    patterned(&target, 8 * MIB);
    patterned(&source, 16 * MIB);
    line.limit(2 * MIB);
    let copy = || {
        server
            .run("copy")
            .args(["--delta=off", "--compress=off", "big", &url])
    };
    let first = copy().start();
    // In the middle of a request: the depth at a slow server is one.
    assert!(wait_until(PATIENCE, || line.bytes() > 2 * MIB + MIB / 2));
    line.hold();
    first.kill();
    line.limit(0);
    let newer: Vec<u8> = fs::read(&source).unwrap().iter().map(|byte| !byte).collect();
    fs::write(&source, newer).unwrap();
    let second = copy().run();
    second.assert_code(&[8]);
    assert!(second.err.contains("another run of this very copy"), "{second}");
    assert_eq!(fs::metadata(&target).unwrap().len(), 8 * MIB);

    line.mend();
    assert!(wait_until(PATIENCE, || copy().run().code() == Some(0)));
    content_same(&source, &target);
    server.stop();
}
