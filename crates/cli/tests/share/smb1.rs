//! `smb1://` with the real binary: copies, the helpers and their warnings against a private smbd
//! that speaks SMB 1, and everything that must not speak it.

use crate::support::{Place, one_line_and_a_hint, text};

/// What a program without the feature says. With it these URLs are tested below.
#[cfg(not(feature = "smb1"))]
#[test]
fn a_program_without_smb1_says_so() {
    let place = Place::new();
    text(&place.join("file"), "content");
    for arguments in [
        &["copy", "file", "smb1://ann@old/share"][..],
        &["check", "smb1://ann@old/share", "file"],
        &["ls", "smb1://ann@old/"],
        &["login", "smb1://ann@old"],
    ] {
        let finished = place.ropeway(arguments[0]).args(&arguments[1..]).exits(1);
        one_line_and_a_hint(&finished);
        assert!(finished.mentions("built without SMB 1"), "{finished}");
    }
    let help = place.ropeway("copy").arg("--help").ok();
    assert!(!help.mentions("--smb1"), "{help}");
}

#[cfg(feature = "smb1")]
mod with_smb1 {
    use std::fs::{self, File, Permissions};
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use ropeway_peers::{ClosedPort, PeerError, Share, or_skip};

    use super::{Place, one_line_and_a_hint, text};
    use crate::support::{
        Finished, Ground, Run, can_mount, content_same, detach, file, is_root, mixed, no_secret,
        no_temporaries, patterned,
    };

    const MIB: u64 = 1 << 20;

    /// A server that speaks SMB 1 as well.
    fn old_server() -> Result<Ground, PeerError> {
        Ground::with(|place, builder| builder.smb1().share(Share::new("data", &place.folder("data"))))
    }

    /// Returns the URL with `smb1://`.
    fn url(ground: &Ground, path: &str) -> String {
        ground.url(path).replacen("smb://", "smb1://", 1)
    }

    /// Prepares `copy --json -T SOURCE TARGET`.
    fn copy(ground: &Ground, from: &str, to: &str) -> Run {
        ground.copy(from, to).arg("-T")
    }

    #[track_caller]
    fn warned_once(finished: &Finished) {
        let count = finished
            .err
            .matches("SMB 1 is neither encrypted nor safe")
            .count();
        assert_eq!(count, 1, "{finished}");
        no_secret(finished);
    }

    #[test]
    fn what_needs_more_than_a_tree_is_refused() {
        let place = Place::new();
        text(&place.join("file"), "content");
        place.folder("point");
        for arguments in [
            &[
                "mount",
                "--foreground",
                "--boost",
                "cache",
                "smb1://ann@old/share",
                "point",
            ][..],
            &["serve", "--listen", "127.0.0.1:0", "smb1://ann@old/share"],
            &["copy", "--smb1-auth", "md5", "file", "smb1://ann@old/share"],
            &["copy", "--smb1-code-page", "12", "file", "smb1://ann@old/share"],
            &["copy", "file", "smb1://ann:hunter2@old/share"],
            &["copy", "--encrypt", "required", "file", "smb1://ann@old/share"],
            &["ls", "--auth", "kerberos", "smb1://ann@old/share"],
            &["ls", "smb1://"],
        ] {
            let run = place.ropeway(arguments[0]).args(&arguments[1..]);
            one_line_and_a_hint(&run.env("ROPEWAY_PASSWORD", "x").exits(1));
        }
    }

    #[test]
    fn an_unreachable_server_is_reported() {
        let place = Place::new();
        let port = ClosedPort::new().unwrap();
        let url = format!("smb1://ann@{}/share", port.address());
        let finished = place
            .ropeway("ls")
            .arg(&url)
            .env("ROPEWAY_PASSWORD", "hunter2")
            .exits(6);
        warned_once(&finished);
        assert!(finished.mentions("smb1://host:port/"), "{finished}");
    }

    /// A server of today has SMB 1 switched off; one that speaks nothing else is not spoken to by
    /// `smb://`.
    #[test]
    fn each_url_speaks_its_own_protocol_only() {
        let new = or_skip!(Ground::start());
        let finished = new.run("ls").arg(url(&new, "data")).exits(6);
        assert!(finished.mentions("does not speak SMB 1"), "{finished}");
        let old = or_skip!(old_server());
        let only = [("server max protocol", "NT1")];
        old.smbd.reconfigure("global", &only).unwrap();
        text(&old.behind("data/there"), "there");
        let finished = old.run("ls").arg(old.url("data")).exits(6);
        assert!(!finished.mentions("SMB 1 is neither"), "{finished}");
        assert_eq!(old.run("ls").arg(url(&old, "data")).ok().out, "there\n");
    }

    /// Reads a message with its length in front; `None` at the end of the connection.
    fn frame(socket: &mut TcpStream) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        socket.read_exact(&mut head).ok()?;
        let mut message = vec![0; u32::from_be_bytes(head) as usize & 0x00FF_FFFF];
        socket.read_exact(&mut message).ok()?;
        Some(message)
    }

    /// Sits between a client and a server that speaks SMB 1: offers the server nothing but that, and
    /// passes its answer on. Returns the messages of each of the client's connections.
    fn man_in_the_middle(
        listener: &TcpListener,
        server: SocketAddr,
        ended: &AtomicBool,
    ) -> Vec<Vec<Vec<u8>>> {
        let dialect = b"\x02NT LM 0.12\0";
        let mut offer = b"\xFFSMB\x72\0\0\0\0\x18\x53\xC8".to_vec();
        offer.resize(32, 0);
        offer.extend([0, dialect.len() as u8, 0]);
        offer.extend(dialect);
        listener.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        while !ended.load(Ordering::Acquire) {
            let Ok((mut client, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            client.set_nonblocking(false).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut heard = Vec::from_iter(frame(&mut client));
            let mut server = TcpStream::connect(server).unwrap();
            server.write_all(&(offer.len() as u32).to_be_bytes()).unwrap();
            server.write_all(&offer).unwrap();
            let answer = frame(&mut server).unwrap();
            assert!(
                answer.starts_with(b"\xFFSMB\x72\0\0\0\0"),
                "the server speaks SMB 1"
            );
            // The client may be gone.
            let _ = client.write_all(&(answer.len() as u32).to_be_bytes());
            let _ = client.write_all(&answer);
            heard.extend(std::iter::from_fn(|| frame(&mut client)));
            all.push(heard);
        }
        all
    }

    #[test]
    fn a_changed_negotiation_leads_nobody_to_smb_1() {
        let old = or_skip!(old_server());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = listener.local_addr().unwrap();
        let (server, ended) = (old.smbd.address(), AtomicBool::new(false));
        let (finished, heard) = std::thread::scope(|scope| {
            let middle = scope.spawn(|| man_in_the_middle(&listener, server, &ended));
            let url = old
                .url("data")
                .replacen(&server.to_string(), &between.to_string(), 1);
            let finished = old.run("ls").arg(url).run();
            ended.store(true, Ordering::Release);
            (finished, middle.join().unwrap())
        });
        finished.assert_code(&[6]);
        assert!(!finished.mentions("SMB 1 is neither"), "{finished}");
        assert!(!heard.is_empty());
        for messages in heard {
            assert_eq!(messages.len(), 1, "nothing follows the answer: {messages:?}");
            assert!(messages[0].starts_with(b"\xFESMB"), "{messages:?}");
        }
    }

    #[test]
    fn trees_are_copied_both_ways() {
        let ground = or_skip!(old_server());
        let tree = ground.place.join("tree");
        mixed(&tree);
        // A hole of 5 GiB: offsets have 64 bits.
        let large = File::create(ground.behind("data/large")).unwrap();
        large.set_len(5 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&large, b"the end", (5 << 30) - 7).unwrap();
        let up = copy(&ground, "tree", &url(&ground, "data/tree")).run();
        warned_once(&up);
        let down = copy(&ground, &url(&ground, "data/tree"), "back").ok();
        warned_once(&down);
        content_same(&ground.behind("data/tree"), &ground.place.join("back"));
        no_temporaries(&ground.behind("data"));
        let check = ground.run("check").arg("--checksum");
        let check = check.args([&url(&ground, "data/tree"), "back"]).ok();
        warned_once(&check);
        fs::write(ground.place.join("back/added"), "x").unwrap();
        let check = ground.run("check").args([&url(&ground, "data/tree"), "back"]);
        check.exits(7);
        let large = ground.run("ls").arg("-l").arg(url(&ground, "data")).ok();
        assert!(large.out.contains(" 5368709120 "), "{large}");
    }

    #[test]
    fn the_helpers_work() {
        let ground = or_skip!(old_server());
        let at = |path: &str| url(&ground, path);
        let shares = ground.run("ls").arg(at("")).ok();
        assert!(shares.out.lines().any(|line| line == "data"), "{shares}");
        ground.run("mkdir").arg("-p").arg(at("data/a/b")).ok();
        patterned(&ground.behind("data/a/b/größe"), 5000);
        let stat = ground.run("stat").arg("--json").arg(at("data/a/b/größe")).ok();
        assert_eq!(stat.of_type("node")[0]["size"], 5000, "{stat}");
        ground.run("mv").args([at("data/a/b/größe"), at("data/a/c")]).ok();
        let all = ground.run("ls").arg("-R").arg(at("data")).ok();
        assert_eq!(all.out, "a\na/b\na/c\n", "{all}");
        ground.run("rm").args(["-r", "--yes"]).arg(at("data/a")).ok();
        assert!(!ground.behind("data/a").exists());
        let wrong = ground.place.ropeway("ls").env("ROPEWAY_PASSWORD", "wrong");
        assert!(wrong.arg(at("data")).exits(5).mentions("hint:"));
    }

    /// Read-only, so that nothing on the old machine changes by accident.
    #[test]
    fn a_share_is_mounted_to_look_around() {
        crate::support::or_skip!(can_mount());
        let ground = or_skip!(old_server());
        fs::create_dir(ground.behind("data/folder")).unwrap();
        patterned(&ground.behind("data/folder/file"), 3_000_000);
        for number in 0..600 {
            text(&ground.behind(&format!("data/many {number}")), "x");
        }
        let point = ground.place.folder("mnt");
        let run = ground
            .run("mount")
            .args(["--foreground", &url(&ground, "data"), "mnt"]);
        let mut running = run.start();
        assert!(running.until(|running| running.stdout().contains("is mounted on")));
        assert_eq!(fs::read_dir(&point).unwrap().count(), 601);
        let read = || fs::read(point.join("folder/file")).unwrap();
        assert_eq!(read(), fs::read(ground.behind("data/folder/file")).unwrap());
        // The connection is made again, also for a file that is open.
        let mut file = File::open(point.join("many 7")).unwrap();
        ground.smbd.kill_connections();
        let mut content = String::new();
        std::io::Read::read_to_string(&mut file, &mut content).unwrap();
        assert_eq!(content, "x");
        let refused = fs::write(point.join("new"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert!(fs::metadata(point.join("missing")).is_err());
        drop(file);
        detach(&point);
        let finished = running.wait();
        finished.assert_code(&[0]);
        warned_once(&finished);
    }

    /// What they send is tested in `crates/smb1-client/tests/client.rs`.
    #[test]
    fn weaker_flags_print_warnings_of_their_own() {
        let ground = or_skip!(old_server());
        let flags = ["--smb1-auth", "ntlm,lm", "--sign", "offered"];
        let finished = ground.run("ls").args(flags).arg(url(&ground, "data")).ok();
        warned_once(&finished);
        for flag in ["--smb1-auth ntlm:", "--smb1-auth lm:", "--sign offered:"] {
            assert!(finished.mentions(flag), "{finished}");
        }
    }

    /// A rescue: the connection is lost several times, then the program is killed and goes on.
    #[test]
    fn a_copy_survives_a_server_that_crashes() {
        let ground = or_skip!(old_server());
        let total = 24 * MIB;
        fs::create_dir(ground.behind("data/disk")).unwrap();
        for number in 0..3 {
            file(
                &ground.behind(&format!("data/disk/large {number}")),
                total / 3,
                number,
            );
        }
        let from = url(&ground, "data/disk");
        let begin = |rate: &str| copy(&ground, &from, "saved").args(["--bwlimit", rate]).start();
        let mut running = begin("8M");
        for reached in [2, 5] {
            running.reach("bytes_sent", reached * MIB);
            ground.smbd.kill_connections();
        }
        running.reach("bytes_sent", 10 * MIB);
        running.kill();
        let again = copy(&ground, &from, "saved").ok();
        assert_eq!(again.summary()["resumed"], true, "{again}");
        content_same(&ground.behind("data/disk"), &saved(&ground));
        no_temporaries(ground.place.path());
    }

    fn saved(ground: &Ground) -> PathBuf {
        ground.place.join("saved")
    }

    /// What cannot be read is listed, the rest is there, and a later run fetches only what is
    /// missing.
    #[test]
    fn what_cannot_be_read_is_listed() {
        let ground = or_skip!(Ground::sharing(|share| match is_root() {
            true => share.option("force user", "nobody"),
            false => share,
        }));
        let smb1 = [("server min protocol", "NT1")];
        ground.smbd.reconfigure("global", &smb1).unwrap();
        for name in ["one", "spoilt", "two"] {
            patterned(&ground.behind(&format!("data/{name}")), 300_000);
        }
        let readable = |mode| {
            let spoilt = ground.behind("data/spoilt");
            fs::set_permissions(spoilt, Permissions::from_mode(mode)).unwrap();
        };
        readable(0o000);
        let from = url(&ground, "data");
        let rescue = || copy(&ground, &from, "saved").args(["--gentle", "--timeout", "20s"]);
        let finished = rescue().exits(2);
        assert_eq!(finished.number("errors"), 1, "{finished}");
        let errors = finished.of_type("item_error");
        assert!(
            errors[0]["path"].as_str().unwrap().contains("spoilt"),
            "{finished}"
        );
        assert!(saved(&ground).join("two").exists() && !saved(&ground).join("spoilt").exists());
        readable(0o644);
        let finished = rescue().ok();
        assert_eq!(finished.number("bytes_sent"), 300_000, "{finished}");
        content_same(&ground.behind("data"), &saved(&ground));
    }
}
