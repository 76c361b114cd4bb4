//! Servers to which DFS may lead a login, with the real binary against a private smbd.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Ground, one_line_and_a_hint};
use ropeway_peers::{Share, or_skip};

/// A server may name any host in its referrals: no login goes there without permission.
#[test]
fn a_login_is_not_sent_to_any_host_that_a_server_names() {
    let ground = or_skip!(Ground::with(|place, builder| {
        builder.share(Share::new("root", &place.folder("root")).dfs_root())
    }));
    ground.smbd.dfs_link("root", "away", "127.0.0.2\\data").unwrap();
    let listener = TcpListener::bind(("127.0.0.2", ground.smbd.port())).unwrap();
    let callers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&callers);
    std::thread::spawn(move || {
        while let Ok((caller, _)) = listener.accept() {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(caller);
        }
    });
    let refused = ground.run("ls").arg(ground.url("root/away")).exits(5);
    one_line_and_a_hint(&refused);
    assert!(
        refused.mentions("127.0.0.2") && refused.mentions("--dfs any"),
        "{refused}"
    );
    assert_eq!(callers.load(Ordering::SeqCst), 0);
    let run = ground.run("ls").args(["--timeout", "2s", "--dfs", "any"]);
    run.arg(ground.url("root/away")).exits(6);
    assert!(callers.load(Ordering::SeqCst) > 0);
}
