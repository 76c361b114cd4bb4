//! Logins by Kerberos, against MIT's KDC and Samba.
//!
//! The library reads `KRB5_CONFIG` and `KRB5CCNAME` from the environment, which a process cannot safely change while it
//! has threads. So each test runs itself again in a process that has them from the start ([`in_realm`]).
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{block, bytes, log, options, text};
use ropeway_block::Pool;
use ropeway_peers::{Kdc, KdcBuilder, Share as PeerShare, Smbd, SmbdBuilder, or_skip};
use ropeway_smb::{
    Client, ClientOptions, Encryption, Endpoint, Error, KerberosFault, Login, OpenFile, Share, Signing,
    kerberos_ticket,
};
use ropeway_smb_proto::crypto::Cipher;
use ropeway_smb_proto::wire::create::CreateDisposition;
use ropeway_smb_proto::wire::negotiate::Dialect;

const HOUR: Duration = Duration::from_secs(3600);
/// Where the inner process keeps what the environment names.
const HOME: &str = "ROPEWAY_TEST_REALM";

/// Runs the test `name` again in a process whose Kerberos looks into a folder of its own; there, `inside` runs.
fn in_realm<F: Future<Output = ()>>(name: &str, inside: impl FnOnce(Home) -> F) {
    if let Some(home) = std::env::var_os(HOME) {
        log();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(inside(Home(home.into())));
    }
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(HOME, home.path())
        .env("KRB5_CONFIG", home.path().join("krb5.conf"))
        .env(
            "KRB5CCNAME",
            format!("FILE:{}", home.path().join("cache").display()),
        )
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"));
}

/// Of the inner process.
struct Home(std::path::PathBuf);

impl Home {
    fn cache(&self) -> std::path::PathBuf {
        self.0.join("cache")
    }

    /// From now on this is the realm.
    fn enter(&self, kdc: &Kdc) {
        let configuration = kdc.environment()[0].1.clone();
        std::fs::copy(configuration, self.0.join("krb5.conf")).unwrap();
    }
}

fn realm() -> KdcBuilder {
    Kdc::builder()
        .user("alice", "secret")
        .user("bob", "other")
        .service("cifs/localhost")
}

fn server(kdc: &Kdc, folder: &Path) -> SmbdBuilder {
    Smbd::builder()
        .user("alice", "of samba")
        .share(PeerShare::new("data", folder))
        .kerberos(kdc)
}

fn login() -> Login {
    Login::Kerberos { principal: None }
}

/// The realm knows the server by this name.
fn endpoint(smbd: &Smbd) -> Endpoint {
    Endpoint::new("localhost", smbd.port())
}

async fn connect(smbd: &Smbd, options: ClientOptions) -> Client {
    let connected = Client::connect(&endpoint(smbd), login(), options).await;
    connected.unwrap_or_else(|error| panic!("{error}\n{}", smbd.log()))
}

/// Writes a file and reads it back.
async fn round_trip(share: &Share, path: &str) {
    let pool = Pool::new(256 << 10, 8);
    let content = bytes(60_001, 5);
    let open = OpenFile::write(CreateDisposition::OverwriteIf);
    let file = share.open(&text(path), &open).await.unwrap();
    file.write_at(0, block(&pool, &content).await).await.unwrap();
    file.close().await.unwrap();
    let file = share.open(&text(path), &OpenFile::read()).await.unwrap();
    let (back, outcome) = file.read_at(0, pool.get().await, 64 << 10).await;
    outcome.unwrap();
    assert!(back[..] == content);
    file.close().await.unwrap();
}

#[test]
fn tickets_open_shares_in_every_dialect() {
    in_realm("tickets_open_shares_in_every_dialect", async |home| {
        // The key of a ticket has 32 or 16 bytes; ciphers with 256 bits use all of it, everything else 16.
        for enctype in [
            "aes256-cts-hmac-sha1-96",
            "aes128-cts-hmac-sha1-96",
            "aes256-cts-hmac-sha384-192",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let kdc = or_skip!(realm().enctype(enctype).start());
            home.enter(&kdc);
            kdc.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
            for cipher in ["AES-256-GCM", "AES-128-GCM"] {
                let smbd = or_skip!(
                    server(&kdc, folder.path())
                        .ciphers(&[cipher, "AES-128-CCM"])
                        .start()
                );
                dialects(&smbd, cipher, enctype).await;
            }
        }
    });
}

async fn dialects(smbd: &Smbd, cipher: &str, enctype: &str) {
    for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb302, Dialect::Smb311] {
        for encryption in [Encryption::Off, Encryption::Required] {
            if encryption == Encryption::Required && dialect < Dialect::Smb300 {
                continue;
            }
            println!("{enctype} {cipher} {dialect:?} {encryption:?}");
            let options = ClientOptions {
                dialects: dialect..=dialect,
                signing: Signing::Required,
                encryption,
                ..options()
            };
            let client = connect(smbd, options).await;
            let info = client.info();
            assert!(!info.guest);
            if encryption == Encryption::Required && dialect == Dialect::Smb311 {
                let is_long = matches!(info.cipher, Some(Cipher::Aes256Gcm));
                assert_eq!(is_long, cipher == "AES-256-GCM");
            }
            round_trip(&client.share("data").await.unwrap(), "file").await;
            client.close().await;
        }
    }
}

#[test]
fn further_channels_and_lost_connections() {
    in_realm("further_channels_and_lost_connections", async |home| {
        let folder = tempfile::tempdir().unwrap();
        let kdc = or_skip!(realm().start());
        home.enter(&kdc);
        kdc.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        let mut smbd = or_skip!(server(&kdc, folder.path()).start());
        for encryption in [Encryption::Off, Encryption::Required] {
            let options = ClientOptions {
                encryption,
                ..options()
            };
            let client = connect(&smbd, options).await;
            let share = client.share("data").await.unwrap();
            client.open_channel().await.unwrap();
            client.open_channel().await.unwrap();
            assert_eq!(client.info().channels, 3);
            for index in 0..6 {
                round_trip(&share, &format!("of channel {index}")).await;
            }
            smbd.kill();
            smbd.restart().unwrap();
            round_trip(&share, "after").await;
            assert_eq!(client.info().reconnects, 1);
            client.close().await;
        }
        assert!(kdc.log().contains("cifs/localhost"), "{}", kdc.log());
    });
}

#[test]
fn a_session_outlives_its_ticket_when_there_is_a_new_one() {
    in_realm(
        "a_session_outlives_its_ticket_when_there_is_a_new_one",
        async |home| {
            let folder = tempfile::tempdir().unwrap();
            let life = Duration::from_secs(3);
            // As little as there can be: a ticket is good for so much longer than it says.
            let skew = Duration::from_secs(1);
            let kdc = or_skip!(realm().clock_skew(skew).start());
            home.enter(&kdc);
            let smbd = or_skip!(server(&kdc, folder.path()).start());
            kdc.ticket("alice", "secret", life, &home.cache()).unwrap();
            let client = connect(&smbd, options()).await;
            let share = client.share("data").await.unwrap();
            round_trip(&share, "before").await;
            let over = life + skew + Duration::from_secs(2);
            tokio::time::sleep(over).await;
            kdc.ticket("alice", "secret", life, &home.cache()).unwrap();
            // Several requests meet the end of the session at once.
            let all = ["a", "b", "c", "d"].map(|path| round_trip(&share, path));
            futures_util::future::join_all(all).await;
            assert_eq!(
                client.info().reconnects,
                0,
                "the session was renewed, not replaced"
            );
            let tickets = kdc.log().matches("for cifs/localhost").count();
            assert_eq!(tickets, 2, "{}", kdc.log());

            // And when there is none.
            tokio::time::sleep(over).await;
            let error = share.open(&text("a"), &OpenFile::read()).await.unwrap_err();
            assert!(
                matches!(error, Error::Kerberos(KerberosFault::Expired)),
                "{error:?}"
            );
            assert!(error.hint().unwrap().contains("kinit"));
        },
    );
}

#[test]
fn what_is_missing_is_named() {
    in_realm("what_is_missing_is_named", async |home| {
        let folder = tempfile::tempdir().unwrap();
        let kdc = or_skip!(realm().start());
        home.enter(&kdc);
        let smbd = or_skip!(server(&kdc, folder.path()).start());
        let refused = async |host: &str, principal: Option<&str>| {
            let login = Login::Kerberos {
                principal: principal.map(str::to_owned),
            };
            let at = Endpoint::new(host, smbd.port());
            let error = Client::connect(&at, login, options()).await.unwrap_err();
            println!("{error} ({:?})", error.hint());
            assert!(error.hint().is_some());
            error
        };
        let error = refused("localhost", None).await;
        assert!(
            matches!(
                &error,
                Error::Kerberos(KerberosFault::NoTicket { principal: None })
            ),
            "{error:?}"
        );
        assert!(kerberos_ticket(None, "localhost").is_err());
        kdc.ticket("bob", "other", HOUR, &home.cache()).unwrap();
        kerberos_ticket(None, "localhost").unwrap();
        kerberos_ticket(Some("bob"), "localhost").unwrap();
        kerberos_ticket(Some("bob@ROPEWAY.TEST"), "localhost").unwrap();
        let error = refused("localhost", Some("alice")).await;
        assert!(
            matches!(&error, Error::Kerberos(KerberosFault::NoTicket { principal: Some(who) }) if who == "alice"),
            "{error:?}"
        );
        // The realm has no such service: an address is no host name.
        let error = refused("127.0.0.1", None).await;
        assert!(
            matches!(&error, Error::Kerberos(KerberosFault::UnknownService { service }) if service == "cifs/127.0.0.1"),
            "{error:?}"
        );
        // A ticket is no account.
        let error = refused("localhost", None).await;
        let not_accepted =
            |error: &Error| matches!(error, Error::Kerberos(KerberosFault::NotAccepted { .. }));
        assert!(not_accepted(&error), "{error:?}");
        // Somebody else's key: the server cannot read the ticket.
        let other = or_skip!(realm().start());
        home.enter(&other);
        other.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        let error = refused("localhost", None).await;
        assert!(not_accepted(&error), "{error:?}");
        drop(other);
        kdc.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        drop(kdc);
        let error = refused("localhost", None).await;
        assert!(
            matches!(error, Error::Kerberos(KerberosFault::NoKdc { .. })),
            "{error:?}"
        );
    });
}
