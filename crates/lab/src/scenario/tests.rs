use super::*;
use crate::link::Cut;

const SMALL: &str = r#"
name = "mine"
title = "my own"
works = ["small3000"]
pairs = ["ropeway:smbd"]

[[link]]
name = "one"
rtt = "10ms"
rate = "100mbit"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("mine.toml", text)
}

#[test]
fn shipped_scenarios_are_right() {
    for (name, _) in SHIPPED {
        let scenario = Scenario::shipped(name).unwrap().unwrap();
        assert_eq!(scenario.name, name);
        assert!(scenario.runs >= 3 || name == "demo", "{name}");
        assert!(scenario.budget <= Duration::from_secs(3 * 3600), "{name}");
        for link in &scenario.links {
            assert!(
                link.loopback || link.spec.tcp.congestion.is_some(),
                "{name}: pinned and the same for all"
            );
        }
    }
    assert!(Scenario::shipped("nothing").is_none());
    let published = Scenario::shipped("tr3869").unwrap().unwrap();
    assert_eq!(published.cells(), 8 * 2 * 2 * 6);
    let small = Scenario::shipped("tr3869-small-window").unwrap().unwrap();
    let windows: Vec<_> = small
        .links
        .iter()
        .filter_map(|link| link.spec.tcp.window_max_bytes)
        .collect();
    assert!(windows.contains(&17_520) && windows.contains(&65_535));
}

#[test]
fn a_work_can_have_a_scale_of_its_own() {
    let text = SMALL.replace(
        "\n[[link]]",
        "scale = 0.5\n\n[scales]\nsmall3000 = 0.1\n\n[[link]]",
    );
    let scenario = parse(&text).unwrap();
    assert!((scenario.scale_of(Work::Small3000) - 0.05).abs() < 1e-12);
    assert!((scenario.scale_of(Work::Mp3set) - 0.5).abs() < 1e-12);
    for wrong in ["small30 = 0.1", "small3000 = 0.0", "small3000 = \"1\""] {
        let error = parse(&text.replace("small3000 = 0.1", wrong)).unwrap_err();
        assert_eq!(error.place.as_deref(), Some("mine.toml:9"), "{wrong}: {error}");
    }
}

#[test]
fn what_is_not_said_has_a_default() {
    let scenario = parse(SMALL).unwrap();
    assert_eq!(scenario.directions, Direction::ALL);
    assert_eq!(
        (scenario.runs, scenario.side_by_side, scenario.published),
        (3, None, false)
    );
    assert_eq!(scenario.links[0].spec.down, Some(Rate(100_000_000)));
    assert_eq!(scenario.cells(), 2);
}

#[test]
fn tcp_of_all_links_gives_way_to_that_of_one() {
    let text = format!("{SMALL}window = 17520\n[tcp]\ncongestion = \"reno\"\nwindow = 65535\necn = true\n");
    let tcp = &parse(&text).unwrap().links[0].spec.tcp;
    assert_eq!(tcp.window_max_bytes, Some(17_520));
    assert_eq!(tcp.congestion.as_ref().map(|name| name.name()), Some("reno"));
    assert!(tcp.ecn);
}

#[test]
fn a_link_has_the_delays_and_cuts_that_are_written() {
    let ms = Duration::from_millis;
    let text = SMALL.replace(
        "rtt = \"10ms\"\nrate = \"100mbit\"\n",
        "up_delay = \"20ms\"\ndown_delay = \"55ms\"\nrate = \"10mbit\"\ndown_rate = \"100mbit\"\n\
         cuts = [\n  { at = \"500ms\", for = \"2s\" },\n  { at = \"1m\" },\n]\n",
    );
    let spec = &parse(&text).unwrap().links[0].spec;
    let wanted = LinkSpec {
        up_delay: Some(ms(20)),
        down: Some(Rate(100_000_000)),
        cuts: vec![
            Cut {
                at: ms(500),
                length: ms(2000),
            },
            Cut {
                at: ms(60_000),
                length: Cut::FOR_EVER,
            },
        ],
        ..LinkSpec::new(ms(75), Some(Rate(10_000_000)))
    };
    assert_eq!(*spec, wanted);
    assert_eq!(spec.delays(), [ms(20), ms(55)]);
    // What is not said is as it was.
    let plain = &parse(SMALL).unwrap().links[0].spec;
    assert_eq!(*plain, LinkSpec::new(ms(10), Some(Rate(100_000_000))));
}

/// Each case: what is replaced, by what, the line that is named, and a word of what is said of it.
fn all_refused(cases: &[(&str, &str, u32, &str)]) {
    for &(old, new, line, word) in cases {
        let text = SMALL.replacen(old, new, 1);
        assert_ne!(text, SMALL, "{old}");
        let error = parse(&text).expect_err(new);
        assert_eq!(
            error.place.as_deref(),
            Some(format!("mine.toml:{line}").as_str()),
            "{error}"
        );
        assert!(
            error.message.contains(word) && !error.message.contains('\n'),
            "{error}"
        );
        assert!(!error.hint.is_empty());
    }
}

#[test]
fn delays_and_cuts_that_make_no_sense_are_named_by_their_line() {
    all_refused(&[
        (
            "rate =",
            "up_delay = \"2ms\"\nrate =",
            7,
            "as rtt, or as up_delay",
        ),
        ("rtt", "up_delay", 7, "as rtt, or as up_delay"),
        ("rtt = \"10ms\"", "", 7, "as rtt, or as up_delay"),
        ("rate =", "down_delay = \"0ms\"\nrate =", 10, "not a time"),
        ("rate =", "cuts = \"1s\"\nrate =", 10, ""),
        (
            "rate =",
            "cuts = [{ for = \"1s\" }]\nrate =",
            10,
            "missing field `at`",
        ),
        ("rate =", "cuts = [{ at = \"soon\" }]\nrate =", 10, "not a time"),
        (
            "rate =",
            "cuts = [{ at = \"1s\", until = \"2s\" }]\nrate =",
            10,
            "unknown field `until`",
        ),
        (
            "rate =",
            "cuts = [{ at = \"1s\" }, { at = \"2s\" }]\nrate =",
            7,
            "begins before",
        ),
    ]);
}

#[test]
fn what_is_wrong_is_named_by_its_line() {
    all_refused(&[
        ("title", "titel", 3, "unknown field `titel`"),
        ("\"mine\"", "\"a b\"", 2, "no name"),
        ("\"mine\"", "\"../x\"", 2, "no name"),
        ("\"mine\"", "7", 2, "text in quotes"),
        ("\"my own\"", "\"\"", 3, "title"),
        ("\"small3000\"", "\"small\"", 4, "there are file100mb"),
        ("[\"small3000\"]", "[]", 4, "one at least"),
        ("\"small3000\"", "\"small3000\", \"small3000\"", 4, "twice"),
        ("\"ropeway:smbd\"", "\"rsync:smbd\"", 5, "only with each other"),
        ("\"ropeway:smbd\"", "\"ropeway\"", 5, "not a client and a server"),
        ("\"ropeway:smbd\"", "\"wget:smbd\"", 5, "no client"),
        ("\"10ms\"", "\"ten\"", 9, "not a time"),
        ("\"10ms\"", "\"2h\"", 7, "more than a minute"),
        ("\"100mbit\"", "\"100M\"", 10, "not a rate"),
        ("rate =", "mtu = 5\nrate =", 7, "MTU"),
        ("rate =", "mtu = 70000\nrate =", 10, "u16"),
        ("rate =", "loss = \"150%\"\nrate =", 10, "not a loss"),
        ("rate =", "window = 5\nrate =", 7, "window"),
        ("rate =", "buffer = \"1\"\nrate =", 7, "buffer"),
        ("rate =", "initcwnd = 0\nrate =", 7, "initcwnd"),
        (
            "rate =",
            "congestion = \"rm -rf\"\nrate =",
            10,
            "not a congestion control",
        ),
        ("works", "runs = 0\nworks", 4, "0 runs"),
        ("works", "runs = -1\nworks", 4, ""),
        ("works", "scale = 0.0\nworks", 4, "scale"),
        ("works", "scale = nan\nworks", 4, "scale"),
        ("works", "budget = \"1000h\"\nworks", 4, "week"),
        ("works", "side_by_side = \"many\"\nworks", 4, "not a rate"),
        ("works", "published = \"mine\"\nworks", 4, "tr3869"),
        ("works", "works = ", 4, ""),
        ("[[link]]", "[link]", 7, ""),
    ]);
}

#[test]
fn hostile_files_are_errors() {
    for text in [
        "",
        "\0",
        "name",
        "[[link]]\n[[link]]\n",
        &"[".repeat(100_000),
        &"a = 1\n".repeat(100_000),
    ] {
        assert!(parse(text).is_err());
    }
    let twice = format!("{SMALL}{}", &SMALL[SMALL.find("[[link]]").unwrap()..]);
    assert!(parse(&twice).unwrap_err().message.contains("two links"));
    let mut many = SMALL.to_owned();
    for number in 0..CELLS_MAX {
        many.push_str(&format!(
            "[[link]]\nname = \"n{number}\"\nrtt = \"1ms\"\nrate = \"1mbit\"\n"
        ));
    }
    assert!(parse(&many).unwrap_err().message.contains("more than 4096"));
}

#[test]
fn flags_narrow_a_scenario() {
    let full = || Scenario::shipped("tr3869").unwrap().unwrap();
    let changes = Changes {
        scale: Some(0.1),
        runs: Some(5),
        clients: vec![Client::Ropeway],
        servers: vec![Server::Smbd],
        links: vec!["75ms-622mbit".to_owned()],
        works: vec![Work::Small3000, Work::Small3000],
        directions: vec![Direction::Write],
        side_by_side: Some(None),
        ..Changes::default()
    };
    let narrow = full().with(&changes).unwrap();
    assert_eq!((narrow.cells(), narrow.runs, narrow.side_by_side), (1, 5, None));
    assert_eq!(narrow.works, [Work::Small3000]);
    let refused = |changes: Changes| full().with(&changes).unwrap_err().to_string();
    let odd = refused(Changes {
        links: vec!["moon".to_owned()],
        ..Changes::default()
    });
    assert!(odd.contains("32ms-52mbit"), "{odd}");
    let odd = refused(Changes {
        clients: vec![Client::Rsync],
        servers: vec![Server::Smbd],
        ..Changes::default()
    });
    assert!(odd.contains("nothing is left"), "{odd}");
    for changes in [
        Changes {
            scale: Some(f64::NAN),
            ..Changes::default()
        },
        Changes {
            runs: Some(0),
            ..Changes::default()
        },
        Changes {
            budget: Some(Duration::MAX),
            ..Changes::default()
        },
    ] {
        assert!(full().with(&changes).is_err());
    }
}
