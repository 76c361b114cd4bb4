//! Kerberos tickets instead of passwords, with the real binary, MIT's KDC and a private smbd.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{self, Place, Run, content_same, mixed};
use ropeway_peers::{Kdc, PeerError, Share, Smbd, or_skip};

const HOUR: Duration = Duration::from_secs(3600);

struct Realm {
    place: Place,
    kdc: Kdc,
    smbd: Smbd,
}

impl Realm {
    fn start() -> Result<Self, PeerError> {
        let place = Place::new();
        let kdc = Kdc::builder()
            .user("ann", "of the realm")
            .user("bob", "of the realm too")
            .service("cifs/localhost")
            .clock_skew(Duration::from_secs(1))
            .start()?;
        let smbd = Smbd::builder()
            .user("ann", "of samba")
            .share(Share::new("data", &place.folder("data")))
            .kerberos(&kdc)
            .start()?;
        Ok(Self { place, kdc, smbd })
    }

    fn cache(&self) -> PathBuf {
        self.place.join("cache")
    }

    fn ticket(&self, user: &str, password: &str, lifetime: Duration) {
        self.kdc.ticket(user, password, lifetime, &self.cache()).unwrap();
    }

    /// Returns a URL with the host name that the realm knows.
    fn url(&self, user: &str, path: &str) -> String {
        format!("smb://{user}localhost:{}/{path}", self.smbd.port())
    }

    fn run(&self, command: &str) -> Run {
        let run = self.place.ropeway(command).env("KRB5CCNAME", self.cache());
        self.kdc
            .environment()
            .into_iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }
}

#[test]
fn a_ticket_suffices_to_log_in() {
    let realm = or_skip!(Realm::start());
    realm.ticket("ann", "of the realm", HOUR);
    let source = realm.place.join("tree");
    mixed(&source);
    // Samba 4.17 accepts no symbolic links from SMB clients.
    for link in ["link", "dangling"] {
        std::fs::remove_file(source.join(link)).unwrap();
    }
    let copy = |how: &[&str], from: &str, to: &str| {
        let run = realm
            .run("copy")
            .args(how)
            .args(["--json", "--verify", "-T", from, to]);
        assert_eq!(run.ok().number("errors"), 0);
    };
    let back = realm.place.join("back");
    // By --auth, encrypted; and by default, since there is a ticket and no password.
    copy(
        &["--auth", "kerberos", "--encrypt", "required"],
        source.to_str().unwrap(),
        &realm.url("ann@", "data/tree"),
    );
    copy(&[], &realm.url("", "data/tree"), back.to_str().unwrap());
    content_same(&source, &back);
    realm.run("ls").arg(realm.url("ann@ROPEWAY.TEST@", "")).ok();
    realm.run("ls").arg(realm.url("ropeway.test;ann@", "data")).ok();
    assert!(realm.kdc.log().contains("for cifs/localhost"));
}

/// Starts `ropeway serve` with the realm's keytab.
fn served(realm: &Realm, flags: &[&str]) -> (support::Running, String) {
    let keytab = realm.place.join("keytab");
    std::fs::copy(realm.kdc.keytab(), &keytab).unwrap();
    std::fs::set_permissions(&keytab, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = realm
        .run("serve")
        .args(["--listen", "127.0.0.1:0", "--service-principal", "cifs/localhost"])
        .arg("--keytab")
        .arg(&keytab)
        .args(flags)
        .arg(realm.place.join("data"))
        .hang_after(Duration::from_secs(60))
        .start();
    let port = |text: &str| {
        let place = text.split("127.0.0.1:").nth(1)?;
        place.split_once('/').map(|(port, _)| port.to_owned())
    };
    let listens = server.until(|server| port(&server.stdout()).is_some());
    assert!(listens, "{}{}", server.stdout(), server.stderr());
    let port = port(&server.stdout()).unwrap();
    (server, format!("smb://localhost:{port}"))
}

#[test]
fn our_server_accepts_tickets_of_its_users_or_of_all() {
    let realm = or_skip!(Realm::start());
    let secret = realm.place.join(".password");
    std::fs::write(&secret, "here").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let flags = ["--user", "ann", "--password-file", secret.to_str().unwrap()];
    let (server, url) = served(&realm, &flags);
    let file = realm.place.join("file");
    std::fs::write(&file, "by ticket").unwrap();
    realm.ticket("ann", "of the realm", HOUR);
    let copy = || {
        realm
            .run("copy")
            .args(["--auth=kerberos", "--encrypt=required"])
            .arg(&file)
    };
    copy().arg(format!("{url}/data/")).ok();
    assert_eq!(
        std::fs::read(realm.place.join("data/file")).unwrap(),
        b"by ticket"
    );
    realm.ticket("bob", "of the realm too", HOUR);
    let refused = copy().arg(format!("{url}/data/")).exits(5);
    assert!(
        refused.mentions("does not accept the Kerberos ticket"),
        "{refused}"
    );
    drop(server);
    let (_server, url) = served(&realm, &["--kerberos-users", "any"]);
    realm
        .run("ls")
        .args(["--auth=kerberos"])
        .arg(format!("{url}/data"))
        .ok();
}

#[test]
fn a_keytab_must_be_private_and_have_the_key() {
    let realm = or_skip!(Realm::start());
    let keytab = realm.place.join("keytab");
    std::fs::copy(realm.kdc.keytab(), &keytab).unwrap();
    let serve = |mode: u32, principal: &str| {
        std::fs::set_permissions(&keytab, std::fs::Permissions::from_mode(mode)).unwrap();
        let serve = realm.run("serve").args(["--listen", "127.0.0.1:0", "--keytab"]);
        let serve = serve.arg(&keytab).args(["--service-principal", principal]);
        serve.arg(realm.place.join("data")).exits(5)
    };
    let said = serve(0o644, "cifs/localhost");
    assert!(said.mentions("other users can read the keytab"), "{said}");
    let said = serve(0o600, "cifs/elsewhere");
    assert!(said.mentions("no key of the service cifs/elsewhere"), "{said}");
    let missing = realm.run("serve").args(["--kerberos-users", "any"]);
    missing.arg(realm.place.join("data")).exits(1);
}

#[test]
fn a_copy_continues_when_the_ticket_is_renewed_meanwhile() {
    let realm = or_skip!(Realm::start());
    let life = Duration::from_secs(8);
    support::patterned(&realm.place.join("big"), 24 << 20);
    realm.ticket("ann", "of the realm", life);
    let run = realm
        .run("copy")
        .args(["--json", "--verify", "--bwlimit", "1500K", "--auth", "kerberos"]);
    let run = run
        .arg(realm.place.join("big"))
        .arg(realm.url("ann@", "data/big"));
    let running = run.start();
    // Before the end of the first one, after which the session needs another.
    std::thread::sleep(life / 2);
    realm.ticket("ann", "of the realm", HOUR);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert_eq!(finished.number("errors"), 0, "{finished}");
    assert!(
        realm.kdc.log().matches("for cifs/localhost").count() >= 2,
        "{}",
        realm.kdc.log()
    );
}

#[test]
fn error_messages_name_what_is_missing() {
    let realm = or_skip!(Realm::start());
    let kerberos = |url: String| realm.run("ls").args(["--auth=kerberos"]).arg(url);
    let finished = kerberos(realm.url("ann@", "data")).exits(5);
    assert!(
        finished.mentions("no Kerberos ticket") && finished.mentions("kinit"),
        "{finished}"
    );
    realm.ticket("bob", "of the realm too", HOUR);
    let finished = kerberos(realm.url("ann@", "data")).exits(5);
    assert!(finished.mentions("of ann"), "{finished}");
    // A valid ticket of a user that the server does not know.
    let finished = kerberos(realm.url("", "data")).exits(5);
    assert!(
        finished.mentions("does not accept the Kerberos ticket"),
        "{finished}"
    );
    // The realm does not know this host name.
    let finished = kerberos(realm.smbd.url_as(None, "data")).exits(5);
    assert!(finished.mentions("cifs/127.0.0.1"), "{finished}");
    // By default the password still works.
    let run = realm.run("ls").arg(realm.smbd.url("data"));
    run.env("ROPEWAY_PASSWORD", "of samba").ok();
    let run = realm.run("ls").arg(realm.url("ann@", "data"));
    run.env("ROPEWAY_PASSWORD", "of samba").ok();
    realm.ticket("ann", "of the realm", Duration::from_secs(1));
    std::thread::sleep(Duration::from_secs(3));
    let finished = kerberos(realm.url("ann@", "data")).exits(5);
    assert!(finished.mentions("expired"), "{finished}");
}
