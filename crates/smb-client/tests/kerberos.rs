//! Tests logins by Kerberos, against MIT's KDC and Samba.
//!
//! The library reads `KRB5_CONFIG` and `KRB5CCNAME` from the environment, which a process cannot
//! safely change while it has threads. So each test runs itself again in a process that has them
//! from the start ([`in_realm`]).

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{block, bytes, log, options, text};
use crate::serve::Serve;
use ropeway_block::Pool;
use ropeway_peers::{Kdc, KdcBuilder, Share as PeerShare, Smbd, SmbdBuilder, or_skip, run_again};
use ropeway_smb_client::{
    Client, ClientOptions, Encryption, Endpoint, Error, KerberosError, Login, OpenFile, Share, Signing,
};
use ropeway_smb_gss::{KerberosService, kerberos_ticket};
use ropeway_smb_proto::crypto::Cipher;
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::negotiate::Dialect;

const HOUR: Duration = Duration::from_secs(3600);
/// Names the folder in which the inner process keeps its Kerberos files.
const HOME: &str = "ROPEWAY_TEST_REALM";

/// Runs the test `name` again in a process whose Kerberos files are in a folder of its own, and
/// runs `inside` there.
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
    run_again(&format!("kerberos::{name}"), |command| {
        let cache = format!("FILE:{}", home.path().join("cache").display());
        command
            .env(HOME, home.path())
            .env("KRB5_CONFIG", home.path().join("krb5.conf"))
            .env("KRB5CCNAME", cache);
    });
}

/// The folder of the inner process.
struct Home(std::path::PathBuf);

impl Home {
    fn cache(&self) -> std::path::PathBuf {
        self.0.join("cache")
    }

    /// Makes this the realm of the process.
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

/// Returns the endpoint under the name that the realm knows.
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
        // The key of a ticket has 32 or 16 bytes. Ciphers with 256 bits use all of it, all others
        // use 16 bytes.
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
fn a_session_outlives_its_ticket_if_there_is_a_new_one() {
    in_realm(
        "a_session_outlives_its_ticket_if_there_is_a_new_one",
        async |home| {
            let folder = tempfile::tempdir().unwrap();
            let life = Duration::from_secs(5);
            // The shortest possible: a ticket stays valid for this long after its end.
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
            // Several requests meet the expired session at the same time.
            let all = ["a", "b", "c", "d"].map(|path| round_trip(&share, path));
            futures_util::future::join_all(all).await;
            assert_eq!(
                client.info().reconnects,
                0,
                "the session was renewed, not replaced"
            );
            let tickets = kdc.log().matches("for cifs/localhost").count();
            assert_eq!(tickets, 2, "{}", kdc.log());

            // The same without a new ticket.
            tokio::time::sleep(over).await;
            let error = share.open(&text("a"), &OpenFile::read()).await.unwrap_err();
            assert!(
                matches!(error, Error::Kerberos(KerberosError::Expired)),
                "{error:?}"
            );
            assert!(error.hint().unwrap().contains("kinit"));
        },
    );
}

/// Starts our server with the realm's keytab: alice may log in, by ticket or by password; no other
/// ticket is accepted.
fn our_server(kdc: &Kdc, service: &str, folder: &Path) -> Serve {
    let service = KerberosService::open(&kdc.keytab(), service).unwrap();
    assert_eq!(service.realm(), kdc.realm());
    let realm = kdc.realm();
    let admits = Arc::new(move |user: &str, of: &str| (user == "alice" && of == realm).then(|| text(user)));
    Serve::with(folder, |options| {
        options.config.mechanisms = Some(service.mechanisms(admits));
    })
}

#[test]
fn our_server_takes_tickets() {
    in_realm("our_server_takes_tickets", async |home| {
        let folder = tempfile::tempdir().unwrap();
        let kdc = or_skip!(realm().start());
        home.enter(&kdc);
        let serve = our_server(&kdc, "cifs/localhost", folder.path());
        let at = Endpoint::new("localhost", serve.address.port());
        kdc.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        for dialect in [Dialect::Smb202, Dialect::Smb210, Dialect::Smb302, Dialect::Smb311] {
            for encryption in [Encryption::Off, Encryption::Required] {
                if encryption == Encryption::Required && dialect < Dialect::Smb300 {
                    continue;
                }
                let options = ClientOptions {
                    dialects: dialect..=dialect,
                    encryption,
                    ..options()
                };
                let client = Client::connect(&at, login(), options).await.unwrap();
                assert!(!client.info().guest);
                let share = client.share("data").await.unwrap();
                round_trip(&share, "file").await;
                if dialect >= Dialect::Smb300 {
                    client.open_channel().await.unwrap();
                    round_trip(&share, "of two channels").await;
                }
                client.close().await;
            }
        }
        // Logins by password still work.
        let by_password = Login::Password {
            domain: String::new(),
            user: "alice".to_owned(),
            password: ropeway_smb_client::Password::from("secret"),
        };
        let client = Client::connect(&at, by_password, options()).await.unwrap();
        round_trip(&client.share("data").await.unwrap(), "file").await;
        client.close().await;
        // A valid ticket without an account is refused.
        kdc.ticket("bob", "other", HOUR, &home.cache()).unwrap();
        let error = Client::connect(&at, login(), options()).await.unwrap_err();
        assert!(
            matches!(error, Error::Kerberos(KerberosError::NotAccepted { .. })),
            "{error:?}"
        );
        // A ticket with the key of another realm is refused.
        let other = or_skip!(realm().start());
        home.enter(&other);
        other.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        let error = Client::connect(&at, login(), options()).await.unwrap_err();
        assert!(
            matches!(error, Error::Kerberos(KerberosError::NotAccepted { .. })),
            "{error:?}"
        );
    });
}

#[test]
fn smbclient_logs_in_to_our_server_with_a_ticket() {
    in_realm("smbclient_logs_in_to_our_server_with_a_ticket", async |home| {
        let folder = tempfile::tempdir().unwrap();
        // smbclient requests no ticket for "localhost" or an address.
        let kdc = or_skip!(realm().service("cifs/filer.test").start());
        home.enter(&kdc);
        let serve = our_server(&kdc, "cifs/filer.test", folder.path());
        std::fs::write(folder.path().join("hello"), "of the server").unwrap();
        let smbclient = |command: &str| {
            let output = Command::new("smbclient")
                .args(["//filer.test/data", "-I", "127.0.0.1", "-p"])
                .arg(serve.address.port().to_string())
                .args(["--use-kerberos=required", "-N", "-s", "/dev/null", "-c", command])
                .arg(format!("--use-krb5-ccache=FILE:{}", home.cache().display()))
                .current_dir(&home.0)
                .output();
            output.map(|output| {
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                (output.status.success(), said)
            })
        };
        kdc.ticket("alice", "secret", HOUR, &home.cache()).unwrap();
        let Ok((is_good, said)) = smbclient("get hello here; put here there; ls") else {
            eprintln!("skipped: no smbclient");
            return;
        };
        assert!(is_good && said.contains("there"), "{said}");
        assert_eq!(
            std::fs::read(folder.path().join("there")).unwrap(),
            b"of the server"
        );
        kdc.ticket("bob", "other", HOUR, &home.cache()).unwrap();
        let (is_good, said) = smbclient("ls").unwrap();
        assert!(!is_good && said.contains("LOGON_FAILURE"), "{said}");
    });
}

#[test]
fn failures_name_their_cause() {
    in_realm("failures_name_their_cause", async |home| {
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
                Error::Kerberos(KerberosError::NoTicket { principal: None })
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
            matches!(&error, Error::Kerberos(KerberosError::NoTicket { principal: Some(who) }) if who == "alice"),
            "{error:?}"
        );
        // The realm has no such service: an address is not a host name.
        let error = refused("127.0.0.1", None).await;
        assert!(
            matches!(&error, Error::Kerberos(KerberosError::UnknownService { service }) if service == "cifs/127.0.0.1"),
            "{error:?}"
        );
        // A valid ticket without an account is refused.
        let error = refused("localhost", None).await;
        let not_accepted =
            |error: &Error| matches!(error, Error::Kerberos(KerberosError::NotAccepted { .. }));
        assert!(not_accepted(&error), "{error:?}");
        // Another key: the server cannot decrypt the ticket.
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
            matches!(error, Error::Kerberos(KerberosError::NoKdc { .. })),
            "{error:?}"
        );
    });
}
