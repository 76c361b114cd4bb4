//! Real links between real TCP stacks. Needs root, or a user namespace and a TUN device open to all.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_lab::link::{
    Cut, FAR, Flow, Link, LinkError, LinkSpec, NEAR, Rate, Side, Stats, floor, line_time, loss, ping,
};

/// Starts a link, or says why the test is skipped.
fn link(spec: LinkSpec) -> Option<Link> {
    match Link::start(spec) {
        Ok(link) => Some(link),
        Err(error @ (LinkError::Forbidden { .. } | LinkError::Missing { .. })) => {
            println!("skipped: no link: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn spec(rtt_ms: u64, mbit: u64) -> LinkSpec {
    let mut spec = LinkSpec::new(Duration::from_millis(rtt_ms), Some(Rate(mbit * 1_000_000)));
    spec.tcp.congestion = Some("reno".parse().unwrap());
    spec
}

/// Sends a pattern from near to far and checks it there.
fn send_pattern(link: &Link, bytes: usize) -> Duration {
    let listener = link
        .run(Side::Far, || TcpListener::bind((FAR, 0)))
        .unwrap()
        .unwrap();
    let to = listener.local_addr().unwrap();
    let pattern: Vec<u8> = (0..bytes).map(|n| (n * 31 / 7 % 256) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert!(got == pattern, "{} of {} bytes, or others", got.len(), bytes);
            stream.write_all(b"!").unwrap();
        });
        let begun = Instant::now();
        let mut stream = link.run(Side::Near, || TcpStream::connect(to)).unwrap().unwrap();
        stream.write_all(&pattern).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        begun.elapsed()
    })
}

fn balanced(stats: &Stats) {
    for way in [stats.up, stats.down] {
        assert!(way.segments >= way.delivered + way.dropped + way.lost + way.cut);
        assert_eq!(way.refused, 0, "{way:?}");
    }
}

#[test]
fn small_packets_take_a_round_trip() {
    let Some(link) = link(spec(40, 100)) else { return };
    let mut trips = ping(&link, 9).unwrap();
    trips.sort();
    assert!(trips[0] >= Duration::from_millis(40), "{trips:?}");
    assert!(trips[4] < Duration::from_millis(45), "{trips:?}");
    balanced(&link.stats());
}

#[test]
fn bytes_arrive_whole_at_the_rate_of_the_line() {
    let Some(link) = link(spec(10, 200)) else { return };
    let bytes = 8_000_000;
    let taken = send_pattern(&link, bytes);
    let least = line_time(bytes as u64, Some(Rate(200_000_000)), 1500).unwrap();
    assert!(taken > least && taken < least * 3, "{taken:?}, line {least:?}");
    balanced(&link.stats());
    for flow in [Flow::Up, Flow::Down] {
        let taken = floor(&link, 3_000_001, 4, flow, &|| false).unwrap();
        assert!(taken > line_time(3_000_001, Some(Rate(200_000_000)), 1500).unwrap());
    }
}

/// A line that loses a packet in a hundred, with a small queue.
fn lossy() -> LinkSpec {
    let mut lossy = spec(4, 200);
    lossy.loss = 0.01;
    lossy.jitter = Duration::from_millis(1);
    lossy.queue = Some(20_000);
    lossy
}

#[test]
fn bytes_survive_losses_and_small_queues() {
    let Some(link) = link(lossy()) else { return };
    send_pattern(&link, 3_000_000);
    let stats = link.stats();
    balanced(&stats);
    assert!(stats.up.lost > 5 && stats.up.dropped > 0, "{stats:?}");
    assert!(stats.up.queue_max_bytes <= 20_000);
}

#[test]
fn every_lost_packet_is_counted() {
    // A link of its own: the last segments of an earlier connection would be counted too.
    let Some(link) = link(lossy()) else { return };
    let (sent, arrived) = loss(&link, 2000).unwrap();
    let up = link.stats().up;
    // On a busy machine packets meant to be spread out leave at once, and the small queue drops some.
    assert_eq!(sent - arrived, up.lost + up.dropped, "{up:?}");
    assert!(up.lost > 0, "{up:?}");
}

#[test]
fn a_cut_link_is_silent_and_comes_back() {
    let Some(link) = link(spec(10, 100)) else { return };
    link.cut(true);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send_pattern(&link, 100_000));
        thread::sleep(Duration::from_millis(300));
        assert!(!sending.is_finished());
        assert!(link.stats().up.cut > 0);
        link.cut(false);
        assert!(sending.join().unwrap() > Duration::from_millis(300));
    });
}

#[test]
fn planned_cuts_are_counted_from_where_they_are_told_to() {
    let mut cut = spec(10, 100);
    cut.cuts = vec![Cut {
        at: Duration::from_millis(1),
        length: Cut::FOR_EVER,
    }];
    let Some(link) = link(cut) else { return };
    // Time in which the threads of the link hear of it; plenty.
    let heard = Duration::from_millis(50);
    for _ in 0..2 {
        link.suspend_cuts();
        thread::sleep(heard);
        ping(&link, 1).unwrap();
        link.begin_cuts();
        thread::sleep(heard);
        assert!(ping(&link, 1).is_err());
    }
    assert!(link.stats().up.cut >= 2);
}

#[test]
fn each_way_has_its_own_delay() {
    let mut odd = spec(60, 100);
    odd.up_delay = Some(Duration::from_millis(5));
    let Some(link) = link(odd) else { return };
    let far = link
        .run(Side::Far, || UdpSocket::bind((FAR, 0)))
        .unwrap()
        .unwrap();
    let near = link
        .run(Side::Near, || UdpSocket::bind((NEAR, 0)))
        .unwrap()
        .unwrap();
    let way = |from: &UdpSocket, to: &UdpSocket| {
        let begun = Instant::now();
        from.send_to(b"!", to.local_addr().unwrap()).unwrap();
        to.recv(&mut [0; 8]).unwrap();
        begun.elapsed()
    };
    // Timers that are late let packets out a little earlier; a busy machine may delay one.
    let ups = (0..5).map(|_| way(&near, &far));
    let up = ups
        .inspect(|up| assert!(up.as_millis() >= 4, "{up:?}"))
        .min()
        .unwrap();
    assert!(up.as_millis() < 40, "{up:?}");
    let down = way(&far, &near);
    assert!(down >= Duration::from_millis(54), "{down:?}");
}

/// Processes of which we know only the namespace.
fn members(path: &std::path::Path) -> usize {
    let wanted = fs::metadata(path).unwrap().ino();
    let inside = |entry: &fs::DirEntry| {
        fs::metadata(entry.path().join("ns/net")).is_ok_and(|metadata| metadata.ino() == wanted)
    };
    fs::read_dir("/proc").unwrap().flatten().filter(inside).count()
}

#[test]
fn processes_run_where_they_should_and_none_is_left() {
    let Some(link) = link(spec(2, 100)) else { return };
    let mut sleeper = link
        .spawn(Side::Far, Command::new("sleep").arg("1000").stdout(Stdio::null()))
        .unwrap();
    // A daemon that nobody knows, and that does not hear SIGTERM.
    let output = link
        .spawn(
            Side::Near,
            Command::new("sh")
                .args([
                    "-c",
                    "(trap '' TERM; nsenter --net=$ROPEWAY_FAR_NETNS sleep 1000 >/dev/null 2>&1) & echo $ROPEWAY_FAR; cat /proc/net/dev",
                ])
                .stdout(Stdio::piped()),
        )
        .unwrap()
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("198.18.0.2\n") && said.contains("ropeway0"),
        "{said}"
    );
    let far = fs::File::open(link.far_netns_path()).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&far));
    for _ in 0..100 {
        if members(path.as_ref()) == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(members(path.as_ref()), 2);
    drop(link);
    assert_eq!(members(path.as_ref()), 0);
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn a_congestion_control_that_does_not_exist_is_named() {
    let mut odd = spec(2, 100);
    odd.tcp.congestion = Some("nosuch".parse().unwrap());
    match Link::start(odd) {
        Err(LinkError::Spec(text)) => assert!(text.contains("reno"), "{text}"),
        Err(LinkError::Forbidden { .. } | LinkError::Missing { .. }) => println!("skipped: no link"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_window_holds_however_long_a_connection_is_busy() {
    let mut small = spec(20, 200);
    small.tcp.window_max_bytes = Some(17_520);
    let Some(link) = link(small) else { return };
    for flow in [Flow::Up, Flow::Down] {
        let taken = floor(&link, 1_000_000, 1, flow, &|| false).unwrap();
        // One window in each round trip: 57 of them.
        assert!(taken > Duration::from_millis(1000), "{flow:?}: {taken:?}");
    }
}

#[test]
fn settings_of_tcp_hold_inside() {
    let mut tuned = spec(2, 100);
    tuned.tcp.buffer_max_bytes = Some(64 << 20);
    tuned.tcp.window_max_bytes = Some(17_520);
    tuned.tcp.initial_window = Some(4);
    tuned.tcp.congestion = Some("cubic".parse().unwrap());
    tuned.tcp.ecn = true;
    let Some(link) = link(tuned) else { return };
    assert_eq!(link.congestion(), "cubic");
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    link.run(Side::Near, || {
        assert_eq!(read("tcp_no_metrics_save").trim(), "1");
        assert_eq!(read("tcp_ecn").trim(), "1");
        for name in ["tcp_rmem", "tcp_wmem"] {
            assert_eq!(read(name).split_whitespace().last(), Some("67108864"));
        }
    })
    .unwrap();
}
