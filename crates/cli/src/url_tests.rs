//! Tests of URLs.

use super::*;
use proptest::prelude::*;

fn url(text: &str) -> SmbUrl {
    SmbUrl::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

fn fault(text: &str) -> UrlError {
    match SmbUrl::parse(text.as_bytes()) {
        Ok(url) => panic!("{text}: {url:?}"),
        Err(fault) => fault,
    }
}

/// Returns domain, user, host, port, share and path.
fn parts(text: &str) -> (String, String, String, u16, String, String) {
    let SmbUrl {
        server, share, path, ..
    } = url(text);
    (
        server.domain.unwrap_or_default(),
        server.user.unwrap_or_default(),
        server.host,
        server.port,
        share.unwrap_or_default(),
        String::from_utf8_lossy(path.as_bytes()).into_owned(),
    )
}

fn expect(text: &str, expected: (&str, &str, &str, u16, &str, &str)) {
    let (domain, user, host, port, share, path) = expected;
    let expected = (
        domain.into(),
        user.into(),
        host.into(),
        port,
        share.into(),
        path.into(),
    );
    assert_eq!(parts(text), expected, "{text}");
}

#[test]
fn all_parts_of_a_url_are_parsed() {
    expect("smb://host", ("", "", "host", 445, "", ""));
    expect("smb://host/", ("", "", "host", 445, "", ""));
    expect("smb://NAS.Local/Share", ("", "", "nas.local", 445, "Share", ""));
    expect("smb://ann@nas/s/a/b", ("", "ann", "nas", 445, "s", "a/b"));
    expect(
        "smb://WORK;ann@nas:1445/s/a//b/",
        ("WORK", "ann", "nas", 1445, "s", "a/b"),
    );
    expect("smb://;ann@nas:/s", ("", "ann", "nas", 445, "s", ""));
    expect(
        "smb://ann@example.org@nas/s",
        ("", "ann@example.org", "nas", 445, "s", ""),
    );
    expect("smb://a%3Ab%40c%3b@nas/s", ("", "a:b@c;", "nas", 445, "s", ""));
    expect(
        "smb://ann@nas/s/a@b:c;d?e#f",
        ("", "ann", "nas", 445, "s", "a@b:c;d?e#f"),
    );
    expect(
        "smb://nas/my%20share/100%25 é",
        ("", "", "nas", 445, "my share", "100% é"),
    );
    expect("smb://nas/s/a/./b/../c", ("", "", "nas", 445, "s", "a/c"));
    expect(
        "smb://nas/s/@GMT-2026.01.31-12.00.00/f",
        ("", "", "nas", 445, "s", "@GMT-2026.01.31-12.00.00/f"),
    );
}

#[test]
fn host_and_port_are_parsed_or_refused() {
    expect("smb://10.0.0.7:139/s", ("", "", "10.0.0.7", 139, "s", ""));
    expect("smb://u@[::1]/s", ("", "u", "::1", 445, "s", ""));
    expect("smb://u@[FD00::7]:1445/s", ("", "u", "fd00::7", 1445, "s", ""));
    expect("smb://[fe80::1%25eth0]/s", ("", "", "fe80::1%eth0", 445, "s", ""));
    expect("smb://[fe80::1%eth0]/s", ("", "", "fe80::1%eth0", 445, "s", ""));
    assert_eq!(
        url("smb://[fd00:0::7]:1445/s").to_string(),
        "smb://[fd00::7]:1445/s"
    );
    for (text, part) in [
        ("smb://", "no host"),
        ("smb:///share", "no host"),
        ("smb://u@/share", "no host"),
        ("smb://[::1/s", "not closed"),
        ("smb://[host]/s", "not an IPv6"),
        ("smb://[fe80::1%]/s", "not an IPv6"),
        ("smb://fd00::7/s", "needs brackets"),
        ("smb://host:0/s", "port"),
        ("smb://host:65536/s", "port"),
        ("smb://host:+1/s", "port"),
        ("smb://[::1]x/s", "between host and port"),
        ("smb://a b/s", "neither a name"),
        ("smb://a%00b/s", "neither a name"),
    ] {
        assert!(fault(text).message.contains(part), "{text}: {:?}", fault(text));
    }
}

#[test]
fn a_password_is_refused_and_not_repeated() {
    for text in [
        "smb://ann:hunter2@nas/s",
        "smb://w;ann:hunter2@nas/s",
        "smb://ann:@nas/s",
        "smb://ann:hun@ter2@nas",
    ] {
        let fault = fault(text);
        assert!(
            fault.message.contains("no password") && !fault.is_quotable,
            "{text}"
        );
        assert!(!format!("{fault:?}").contains("hun"), "{fault:?}");
    }
    assert!(fault("smb://@nas/s").message.contains("empty"));
}

#[test]
fn impossible_names_are_refused() {
    for (text, part) in [
        ("smb://nas/s/../x", "out of the share"),
        ("smb://nas/s/a/../../x", "out of the share"),
        ("smb://nas/../s", "cannot be the name"),
        ("smb://nas/a%2Fb", "cannot be the name"),
        ("smb://nas/a%5Cb", "cannot be the name"),
        ("smb://nas/s/a%2Fb", "slash or a NUL"),
        ("smb://nas/s/a%00", "slash or a NUL"),
        ("smb://nas/s/a\\b", "backslash"),
        ("smb://nas/s/100%", "percent"),
        ("smb://nas/s/%zz", "percent"),
        ("smb://nas/s/%4", "percent"),
        ("smb://nas/%ff", "not UTF-8"),
    ] {
        assert!(fault(text).message.contains(part), "{text}: {:?}", fault(text));
    }
    assert!(
        fault(&format!("smb://nas/{}", "x".repeat(81)))
            .message
            .contains("too long")
    );
    assert_eq!(url("smb://nas/s/a%5Cb").path.as_bytes(), b"a\\b");
    assert_eq!(url("smb://nas/s/%ff").path.as_bytes(), b"\xff");
}

#[test]
fn the_last_component_decides_on_folder_and_name() {
    let end = |text: &str| {
        let url = url(text);
        (
            url.must_be_folder,
            url.nameless,
            url.file_name().map(|name| name.to_string()),
        )
    };
    assert_eq!(end("smb://nas/s/a"), (false, false, Some("a".into())));
    assert_eq!(end("smb://nas/s/a/"), (true, false, Some("a".into())));
    assert_eq!(end("smb://nas/s/a/."), (true, true, Some("a".into())));
    assert_eq!(end("smb://nas/s/a/b/.."), (true, true, Some("a".into())));
    assert_eq!(end("smb://nas/s"), (false, false, Some("s".into())));
    assert_eq!(end("smb://nas/s/."), (true, true, Some("s".into())));
    assert_eq!(end("smb://nas"), (true, false, None));
    assert_eq!(url("smb://nas/s/a/b").parent(), Some(url("smb://nas/s/a")));
    assert_eq!(url("smb://nas/s").parent(), None);
}

#[test]
fn share_names_are_case_insensitive() {
    assert!(url("smb://u@nas/Share/x").same_share(&url("smb://u@NAS:445/sHARE")));
    assert!(!url("smb://u@nas/share").same_share(&url("smb://v@nas/share")));
    assert!(!url("smb://nas/a").same_share(&url("smb://nas/b")));
    assert!(!url("smb://nas").same_share(&url("smb://nas")));
}

proptest! {
    #[test]
    fn a_displayed_url_parses_to_the_same_url(
        user in proptest::option::of("[^\0/]{1,6}"), domain in proptest::option::of("[a-z;@:%]{1,4}"),
        share in "[a-zA-Z$ %#?é]{1,8}", names in prop::collection::vec(prop::collection::vec(1_u8.., 1..6), 0..4),
        port in 1_u16..,
    ) {
        let names: Vec<Name> = names.iter().filter_map(|bytes| Name::new(bytes)).collect();
        let url = SmbUrl {
            server: Server {
                scheme: Scheme::Smb,
                domain: domain.filter(|_| user.is_some()), user, host: "nas".into(), port },
            share: Some(share),
            path: names.iter().fold(RelPath::root(), |path, name| path.join(name)),
            must_be_folder: false,
            nameless: false,
        };
        prop_assert_eq!(SmbUrl::parse(url.to_string().as_bytes()), Ok(url));
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(prop_oneof![
        Just(b'/'), Just(b'@'), Just(b':'), Just(b'%'), Just(b'['), Just(b']'), Just(b'.'), Just(b';'), any::<u8>()
    ], 0..40)) {
        let mut text = b"smb://".to_vec();
        text.extend(bytes);
        let _ = SmbUrl::parse(&text);
    }
}
