//! Negotiation with a server: dialects, signing, encryption, addresses, and accounts without
//! permission.

use std::fs;

use crate::support::{self, Ground, content_same, one_line_and_a_hint, patterned, text};
use ropeway_peers::{Account, Dialect, Encryption, Share, Signing, SmbdBuilder, or_skip};

const DIALECTS: [&str; 5] = ["2.0.2", "2.1", "3.0", "3.0.2", "3.1.1"];

/// Copies two files, one of them longer than a block, there and back, and compares them with diff.
#[track_caller]
fn there_and_back(ground: &Ground, name: &str, flags: &[&str]) {
    let source = ground.place.join("source");
    if !source.exists() {
        fs::create_dir(&source).unwrap();
        text(&source.join("small"), "content");
        patterned(&source.join("large"), (1 << 20) + 4_096);
    }
    let back = format!("back {name}");
    for (from, to) in [
        ("source".to_owned(), ground.url(&format!("data/{name}"))),
        (ground.url(&format!("data/{name}")), back.clone()),
    ] {
        let finished = ground.copy(&from, &to).args(flags).run();
        println!("{name}: {flags:?}");
        finished.assert_code(&[0]);
        assert_eq!(finished.number("errors"), 0, "{finished}");
    }
    content_same(&source, &ground.behind(&format!("data/{name}")));
    content_same(&source, &ground.place.join(back));
}

#[test]
fn every_dialect_signing_and_encryption() {
    let ground = or_skip!(Ground::start());
    for dialect in DIALECTS {
        for sign in ["required", "offered"] {
            for encrypt in ["off", "desired", "required"] {
                let flags = ["--dialect", dialect, "--sign", sign, "--encrypt", encrypt];
                if encrypt == "required" && dialect.starts_with('2') {
                    // There is no encryption before 3.0: refused before anything is sent.
                    let ls = ground.run("ls").args(flags).arg(ground.url("data"));
                    one_line_and_a_hint(&ls.exits(1));
                    continue;
                }
                there_and_back(&ground, &format!("{dialect} {sign} {encrypt}"), &flags);
            }
        }
    }
}

fn ground_of(shape: impl FnOnce(SmbdBuilder) -> SmbdBuilder) -> Result<Ground, ropeway_peers::PeerError> {
    Ground::with(|place, builder| shape(builder.share(Share::new("data", &place.folder("data")))))
}

#[test]
fn every_cipher_and_signing_algorithm() {
    for cipher in ["AES-128-CCM", "AES-128-GCM", "AES-256-CCM", "AES-256-GCM"] {
        let ground = or_skip!(ground_of(|builder| builder
            .ciphers(&[cipher])
            .encryption(Encryption::Required)));
        there_and_back(&ground, cipher, &[]);
    }
    for algorithm in ["AES-128-GMAC", "AES-128-CMAC", "HMAC-SHA256"] {
        let ground = or_skip!(ground_of(|builder| builder
            .signing_algorithms(&[algorithm])
            .signing(Signing::Mandatory)));
        there_and_back(&ground, algorithm, &["--encrypt", "off"]);
    }
}

#[test]
fn requirements_of_the_server_are_met_or_reported() {
    for dialect in [Dialect::Smb202, Dialect::Smb300, Dialect::Smb311] {
        let ground = or_skip!(ground_of(|builder| builder
            .dialects(dialect..=dialect)
            .signing(Signing::Mandatory)));
        there_and_back(&ground, "plain", &["--sign", "offered", "--encrypt", "off"]);
        // A server with one dialect, and a client with another.
        let other = if dialect == Dialect::Smb311 {
            "3.0"
        } else {
            "3.1.1"
        };
        let ls = ground
            .run("ls")
            .args(["--dialect", other])
            .arg(ground.url("data"));
        one_line_and_a_hint(&ls.exits(6));
    }
    let ground = or_skip!(ground_of(|builder| builder.encryption(Encryption::Required)));
    there_and_back(&ground, "sealed", &["--encrypt", "desired"]);
    // The server requires a dialect that this client does not offer.
    let ls = ground
        .run("ls")
        .args(["--dialect", "..2.1"])
        .arg(ground.url("data"));
    one_line_and_a_hint(&ls.exits(5));
    // "off" does not request encryption; the server requires it anyway.
    there_and_back(&ground, "insisted", &["--encrypt", "off"]);
    let ground = or_skip!(ground_of(|builder| builder.encryption(Encryption::Off)));
    there_and_back(&ground, "plain", &[]);
    let ls = ground.run("ls").args(["--encrypt", "required"]);
    one_line_and_a_hint(&ls.arg(ground.url("data")).exits(6));
}

#[test]
fn an_address_of_version_6() {
    let ground = or_skip!(ground_of(SmbdBuilder::ipv6));
    text(&ground.place.join("file"), "content");
    let url = format!("smb://ann@[::1]:{}/data", ground.smbd.port());
    ground.copy("file", &format!("{url}/")).ok();
    assert_eq!(ground.run("ls").arg(&url).ok().out, "file\n");
    ground.copy(&format!("{url}/file"), "back").ok();
    assert_eq!(fs::read(ground.place.join("back")).unwrap(), b"content");
    // Two addresses of one server are recognised.
    let ends = [format!("{url}/file"), ground.url("data/file")];
    ground.run("copy").arg("--force").args(ends).exits(1);
    assert_eq!(fs::read(ground.behind("data/file")).unwrap(), b"content");
}

#[test]
fn refused_accounts_get_their_reason() {
    let accounts = [
        ("off", Account::Disabled),
        ("locked", Account::Locked),
        ("expired", Account::Expired),
        ("fresh", Account::PasswordMustChange),
    ];
    let ground = or_skip!(Ground::with(|place, mut builder| {
        for (user, account) in accounts {
            builder = builder.user_with(user, support::PASSWORD, account);
        }
        builder.share(Share::new("data", &place.folder("data")))
    }));
    text(&ground.place.join("file"), "content");
    text(&ground.behind("data/there"), "content");
    // Part of the message: it must name the state of the account, not only report a failure.
    let says = [
        ("off", "disabled"),
        ("locked", "locked"),
        ("expired", "expired"),
        ("fresh", "the password has to be changed"),
    ];
    for (user, word) in says {
        let url = |path: &str| ground.smbd.url_as(Some(user), path);
        for arguments in [
            vec!["ls".to_owned(), url("data")],
            vec!["stat".to_owned(), url("data/there")],
            vec!["copy".to_owned(), "file".to_owned(), url("data")],
            vec!["copy".to_owned(), url("data"), "copied".to_owned()],
            vec!["check".to_owned(), url("data"), "file".to_owned()],
            vec!["mkdir".to_owned(), url("data/new")],
        ] {
            let finished = ground.run(&arguments[0]).args(&arguments[1..]).exits(5);
            one_line_and_a_hint(&finished);
            assert!(finished.mentions(word), "{finished}");
        }
        let finished = ground.copy("file", &url("data")).exits(5);
        let last = finished.json().pop().unwrap();
        assert_eq!(
            (last["type"].as_str(), last["exit_code"].as_u64()),
            (Some("error"), Some(5))
        );
        assert!(
            last["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
            "{last}"
        );
    }
    assert!(!ground.place.join("copied").exists());
    assert_eq!(fs::read_dir(ground.behind("data")).unwrap().count(), 1);
}
