//! `--compress` with the real server, with Samba, and over an emulated line.

use std::fs;
use std::path::Path;

use crate::support::{Finished, Ground, Place, Served, beside_far_server, or_skip};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Makes a file of noise and text by turns, or of noise alone.
fn content(path: &Path, length: usize, has_text: bool) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = vec![0; length];
    for (index, piece) in bytes.chunks_mut(32 << 10).enumerate() {
        if has_text && index % 2 == 1 {
            let text = b"GET /one/of/many/paths HTTP/1.1 200\n".iter().cycle();
            piece.iter_mut().zip(text).for_each(|(byte, text)| *byte = *text);
            continue;
        }
        for byte in piece {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
    }
    fs::write(path, bytes).unwrap();
}

fn same(one: &Path, other: &Path) {
    assert!(
        fs::read(one).unwrap() == fs::read(other).unwrap(),
        "{other:?} differs"
    );
}

fn compressed(summary: &Value) -> &Value {
    assert!(summary["line"].is_object(), "{summary}");
    &summary["line"]["compressed"]
}

fn copy(served: &Served, from: &str, to: &str, flags: &[&str]) -> Finished {
    let finished = served
        .run("copy")
        .args(["-T", "--json"])
        .args(flags)
        .args([from, to])
        .run();
    finished.assert_code(&[0]);
    finished
}

/// The loopback is faster than any compression, so only `on` compresses there, both ways, signed and
/// sealed.
#[test]
fn only_on_compresses_on_a_fast_line() {
    let served = Served::start(&[]);
    let near = served.place.join("near");
    content(&near, 24 * MIB, true);
    for (number, (flags, expected)) in [
        (&["--compress"][..], Some("lz4")),
        (&["--compress=on", "--encrypt=off"], Some("lz4")),
        (&["--compress=auto"], None),
        (&[], None),
        (&["--compress=off"], None),
    ]
    .into_iter()
    .enumerate()
    {
        let url = served.url(&format!("far{number}"));
        let back = served.place.join(format!("back{number}"));
        let up = copy(&served, near.to_str().unwrap(), &url, flags);
        same(&near, &served.behind(&format!("far{number}")));
        let down = copy(&served, &url, back.to_str().unwrap(), flags);
        same(&near, &back);
        for run in [up, down] {
            let found = compressed(&run.summary())["algorithm"]
                .as_str()
                .map(str::to_owned);
            assert_eq!(found.as_deref(), expected, "{flags:?}");
        }
    }
    served.stop();
}

/// Samba has no compression, and what own ends offer each other is nothing to it.
#[test]
fn samba_is_asked_and_nothing_changes() {
    let ground = or_skip!(Ground::start());
    let near = ground.place.join("near");
    let back = ground.place.join("back");
    content(&near, 4 * MIB, true);
    for flags in [&[][..], &["--compress=on"], &["--compress=off"]] {
        let url = ground.url("data/far");
        let copy = |from: &str, to: &str| {
            let run = ground.run("copy").args(["-T", "--json", "--force"]);
            run.args(flags).args([from, to]).ok()
        };
        let up = copy(near.to_str().unwrap(), &url);
        same(&near, &ground.behind("data/far"));
        let down = copy(&url, back.to_str().unwrap());
        same(&near, &back);
        assert!(compressed(&up.summary()).is_null() && compressed(&down.summary()).is_null());
    }
}

/// `compress = true` and `false` are what they were when it was a switch.
#[test]
fn the_words_of_a_switch_stay_valid() {
    let served = Served::start(&[]);
    let near = served.place.join("near");
    content(&near, 24 * MIB, true);
    for (number, (setting, expected)) in [
        ("true", true),
        ("\"on\"", true),
        ("false", false),
        ("\"off\"", false),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(served.place.config_file(), format!("compress = {setting}\n")).unwrap();
        let url = served.url(&format!("by-file-{number}"));
        let up = copy(&served, near.to_str().unwrap(), &url, &[]);
        assert_eq!(compressed(&up.summary()).is_object(), expected, "{setting}");
    }
    fs::remove_file(served.place.config_file()).unwrap();
    for (value, expected) in [("1", true), ("yes", true), ("0", false), ("auto", false)] {
        let run = served.run("copy").env("ROPEWAY_COMPRESS", value);
        let url = served.url(&format!("by-variable-{value}"));
        let up = run.args(["-T", "--json"]).arg(&near).arg(url).ok();
        assert_eq!(compressed(&up.summary()).is_object(), expected, "{value}");
    }
    let wrong = served.run("copy").args(["--compress=much", "a", "b"]).exits(1);
    assert!(
        wrong.mentions("auto, on, off") || wrong.mentions("auto"),
        "{wrong}"
    );
    served.stop();
}

/// Copies over a line of 100 Mbit/s, up and down, and leaves the summaries in files.
const SCRIPT: &str = r#"
for flags in --compress=auto --compress=off; do
    for name in half noise; do
        [ $name$flags != half--compress=off ] || continue
        "$1" copy -T --json $flags $name $far/$name$flags > up-$name$flags
        "$1" copy -T --json $flags $far/$name$flags back-$name$flags > down-$name$flags
    done
done
"#;

#[test]
fn a_slow_line_is_compressed_for_without_a_flag() {
    let place = Place::in_memory();
    // What is asked for before the server knows its line comes as it is: some 40 MiB here.
    content(&place.join("half"), 96 * MIB, true);
    content(&place.join("noise"), 6 * MIB, false);
    or_skip!(beside_far_server(&place, SCRIPT));
    for way in ["up", "down"] {
        for (name, flag) in [("half", "auto"), ("noise", "auto"), ("noise", "off")] {
            same(
                &place.join(name),
                &place.join(format!("data/{name}--compress={flag}")),
            );
            same(
                &place.join(name),
                &place.join(format!("back-{name}--compress={flag}")),
            );
            let text = fs::read_to_string(place.join(format!("{way}-{name}--compress={flag}"))).unwrap();
            let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            let found = compressed(&summary);
            if (name, flag) == ("half", "auto") {
                assert_eq!(found["algorithm"], "zstd", "{way}: {summary}");
                // Half of it is noise, and what goes before the decision.
                let ratio = found["ratio"].as_f64().unwrap();
                assert!((0.4..0.95).contains(&ratio), "{way}: {ratio}");
            } else {
                assert!(found.is_null(), "{way} {name} {flag}: {found}");
            }
        }
    }
}
