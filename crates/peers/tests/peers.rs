//! The peers do what tests rely on; judged by smbclient and rsync.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ropeway_peers::{
    Account, Dialect, Encryption, Kdc, PeerError, Rsyncd, Share, Signing, Smbd, or_skip, program,
};

/// What smbclient said to some commands, and whether it was content.
fn smbclient(smbd: &Smbd, share: &str, commands: &str) -> (bool, String) {
    let mut command = smbd.smbclient(share).unwrap();
    run(command.args(["-c", commands]))
}

fn run(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Starts an smbd with the user alice, and a folder as the share `data`.
fn smbd_of_alice(folder: &Path, password: &str) -> Result<Smbd, PeerError> {
    let builder = Smbd::builder().user("alice", password);
    builder.share(Share::new("data", folder)).start()
}

/// An smbclient on the share `data`, without a login.
fn plain_smbclient(smbd: &Smbd) -> Command {
    let mut command = Command::new(program("smbclient").unwrap());
    command.args(["--configfile", "/dev/null", "-p", &smbd.port().to_string()]);
    command.args(["//127.0.0.1/data", "-c", "ls"]);
    command
}

fn has_smbclient() -> bool {
    let there = program("smbclient").is_some();
    if !there {
        println!("skipped: smbclient is not installed (apt-get install smbclient)");
    }
    there
}

#[test]
fn a_share_is_written_and_read_killed_and_restarted_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut smbd = or_skip!(smbd_of_alice(folder.path(), "secret %$ word"));
    if !has_smbclient() {
        return;
    }
    let source = folder.path().join("source");
    fs::write(&source, "content").unwrap();
    let put = format!("put {} put.txt; ls", source.display());
    let (ok, said) = smbclient(&smbd, "data", &put);
    assert!(ok && said.contains("put.txt"), "{said}\n{}", smbd.log());
    assert_eq!(fs::read(folder.path().join("put.txt")).unwrap(), b"content");
    assert!(smbd.cpu() > Duration::ZERO);
    let (own, port) = (smbd.folder().to_owned(), smbd.port());
    smbd.kill();
    assert!(smbd.pids().is_empty());
    assert!(!smbclient(&smbd, "data", "ls").0);
    smbd.restart().unwrap();
    assert_eq!(smbd.port(), port);
    smbd.set_password("alice", "other").unwrap();
    let (ok, said) = smbclient(&smbd, "data", "ls");
    assert!(ok && said.contains("put.txt"), "{said}\n{}", smbd.log());
    smbd.close_share("data").unwrap();
    assert!(!smbclient(&smbd, "data", "ls").0);
    // Listing shares starts the daemons that leave the session.
    let (_, said) = run(smbd.smbclient("").unwrap().args(["-L", "127.0.0.1"]));
    assert!(said.contains("IPC$"), "{said}");
    let pids = smbd.pids();
    drop(smbd);
    assert!(!own.exists());
    for id in pids {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "lives: {state}");
    }
}

#[test]
fn options_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(
        Smbd::builder()
            .dialects(Dialect::Smb311..=Dialect::Smb311)
            .signing(Signing::Mandatory)
            .encryption(Encryption::Required)
            .user("alice", "secret")
            .share(Share::new("fixed", folder.path()).read_only().hidden())
            .share(
                Share::new("rich", folder.path())
                    .streams()
                    .dos_attributes(true)
                    .case_sensitive(true)
            )
            .share(Share::new("old", folder.path()).snapshots())
            .share(Share::new("root", folder.path()).dfs_root())
            .start()
    );
    if !has_smbclient() {
        return;
    }
    let then = folder.path().join(".snapshots/@GMT-2020.01.02-03.04.05");
    fs::create_dir_all(&then).unwrap();
    fs::write(then.join("relic"), "old").unwrap();
    fs::write(folder.path().join("relic"), "newer").unwrap();
    let (ok, said) = smbclient(&smbd, "fixed", "mkdir x");
    assert!(
        said.contains("NT_STATUS_MEDIA_WRITE_PROTECTED") || said.contains("ACCESS_DENIED"),
        "{ok} {said}"
    );
    let (ok, said) = smbclient(&smbd, "old", "allinfo relic");
    assert!(ok && said.contains("@GMT-2020.01.02-03.04.05"), "{said}");
    let (_, said) = run(smbd
        .smbclient("rich")
        .unwrap()
        .args(["-m", "SMB3_02", "-c", "ls"]));
    assert!(said.contains("NT_STATUS"), "an older dialect is taken: {said}");
    smbd.dfs_link("root", "away", r"127.0.0.1\rich").unwrap();
    let (_, said) = smbclient(&smbd, "root", "ls");
    assert!(said.contains("away"), "{said}");
}

#[test]
fn accounts_have_their_states() {
    let folder = tempfile::tempdir().unwrap();
    let states = [
        ("good", Account::Good, None),
        ("disabled", Account::Disabled, Some("NT_STATUS_ACCOUNT_DISABLED")),
        ("locked", Account::Locked, Some("NT_STATUS_ACCOUNT_LOCKED_OUT")),
        ("expired", Account::Expired, Some("NT_STATUS_ACCOUNT_EXPIRED")),
        (
            "change",
            Account::PasswordMustChange,
            Some("NT_STATUS_PASSWORD_MUST_CHANGE"),
        ),
    ];
    let mut builder = Smbd::builder()
        .guest()
        .share(Share::new("data", folder.path()).guest());
    for (user, account, _) in states {
        builder = builder.user_with(user, &format!("secret of {user}"), account);
    }
    let smbd = or_skip!(builder.start());
    if !has_smbclient() {
        return;
    }
    for (user, _, status) in states {
        let login = format!("{user}%secret of {user}");
        let (ok, said) = run(plain_smbclient(&smbd).args(["-U", &login]));
        match status {
            None => assert!(ok, "{user}: {said}"),
            Some(status) => assert!(!ok && said.contains(status), "{user}: {said}"),
        }
    }
    let (ok, said) = run(plain_smbclient(&smbd).arg("-N"));
    assert!(ok, "a guest is refused: {said}");
}

#[test]
fn the_server_outlives_its_connections() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smbd_of_alice(folder.path(), "secret"));
    if !has_smbclient() {
        return;
    }
    let mut command = smbd.smbclient("data").unwrap();
    command.args(["-c", "ls; !sleep 60; ls"]);
    let mut client = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..1000 {
        if smbd.connections() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    smbd.kill_connections();
    assert!(smbclient(&smbd, "data", "ls").0);
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn an_rsync_daemon_serves_its_module() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rsyncd = or_skip!(Rsyncd::new().module("data", target.path()).start());
    fs::write(source.path().join("file"), "content").unwrap();
    let mut command = Command::new(program("rsync").unwrap());
    let (ok, said) = run(command
        .arg("-a")
        .arg(slashed(source.path()))
        .arg(format!("rsync://{}/data/", rsyncd.address())));
    assert!(ok, "{said}\n{}", rsyncd.log());
    assert_eq!(fs::read(target.path().join("file")).unwrap(), b"content");
}

fn slashed(path: &Path) -> String {
    format!("{}/", path.display())
}

#[test]
fn tickets_of_a_private_realm_open_a_share() {
    let folder = tempfile::tempdir().unwrap();
    let kdc = or_skip!(
        Kdc::builder()
            .user("alice", "secret")
            .user("bob", "other")
            .service("cifs/peer.ropeway.test")
            .start()
    );
    let smbd = or_skip!(
        Smbd::builder()
            .user("alice", "of samba")
            .share(Share::new("data", folder.path()))
            .kerberos(&kdc)
            .start()
    );
    let cache = folder.path().join("cache");
    let hour = Duration::from_secs(3600);
    assert!(kdc.ticket("alice", "wrong", hour, &cache).is_err());
    kdc.ticket("alice", "secret", hour, &cache).unwrap();
    if !has_smbclient() {
        return;
    }
    // smbclient does not try Kerberos at hosts called localhost, nor at addresses.
    let smbclient = |user: &str, cache: &Path| {
        let mut command = Command::new(program("smbclient").unwrap());
        command
            .envs(kdc.environment())
            .env("KRB5CCNAME", format!("FILE:{}", cache.display()));
        command.args([
            "--configfile",
            "/dev/null",
            "--use-kerberos=required",
            "-I",
            "127.0.0.1",
        ]);
        command.args(["-U", &format!("{user}@{}", kdc.realm())]);
        command.args(["-p", &smbd.port().to_string(), "//peer.ropeway.test/data"]);
        run(command.args(["-c", "mkdir made"]))
    };
    let (ok, said) = smbclient("alice", &cache);
    assert!(ok, "{said}\n{}\n{}", smbd.log(), kdc.log());
    assert!(folder.path().join("made").is_dir());
    assert!(kdc.log().contains("cifs/peer.ropeway.test"), "{}", kdc.log());
    // Of the realm, but nobody here.
    let other = folder.path().join("other");
    kdc.ticket("bob", "other", hour, &other).unwrap();
    assert!(!smbclient("bob", &other).0);
}
