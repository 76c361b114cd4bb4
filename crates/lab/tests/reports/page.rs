//! The page in headless Chromium: no error on the console, plots with a size, nothing wider than the window.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ropeway_lab::report::{Document, html, load, write_all};
use ropeway_peers::chromium;

use super::common;

/// Measures the page, and tells the window that holds it.
const PROBE: &str = "<script>addEventListener('load',()=>{\
    const all=[...document.querySelectorAll('svg.rp')],box=e=>e.getBoundingClientRect();\
    const seen=all.filter(s=>box(s).width>100&&box(s).height>100);\
    const small=seen.filter(s=>box(s.querySelector('text')).height<9);\
    const over=seen.filter(s=>[...s.querySelectorAll('text')].some(t=>box(t).left<box(s).left-1||box(t).right>box(s).right+1));\
    parent.postMessage({name:window.name,all:all.length,seen:seen.length,small:small.length,over:over.length,\
    width:innerWidth,scroll:document.documentElement.scrollWidth,tips:document.querySelectorAll('[data-tip]').length,\
    evil:window.evil||0,wrong:window.wrong},'*')})</script>";

/// Before all else: collects errors.
const COLLECTOR: &str = "<script>window.wrong=[];addEventListener('error',e=>wrong.push(String(e.message||e.target)),true)</script>";

/// Holds pages in windows of given widths, and writes what their probes find. (A window itself is never narrower than
/// 500 pixels.)
const HOLDER: &str = "<!doctype html><title>-</title><pre id=found></pre><script>\
    addEventListener('message',e=>{document.getElementById('found').append(JSON.stringify(e.data)+'\\n')})</script>";

struct Seen {
    dom: String,
    console: Vec<String>,
}

/// Opens a page in a window of that size; gives the document and what was on the console.
fn open(page: &Path, (width, height): (u32, u32), rest: &[String]) -> Seen {
    let profile = tempfile::tempdir().expect("a folder");
    let mut command = chromium(profile.path())
        .expect("no Chromium: run `cargo xtask tools`, or `apt-get install chromium`");
    command
        .args(["--enable-logging=stderr", "--v=0"])
        .arg(format!("--window-size={width},{height}"))
        .args(rest)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null());
    let output = command.output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    Seen {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: stderr
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
    }
}

/// The page with our probe; its policy would not run it.
fn probed(document: &Document) -> String {
    let page = html(document);
    let (head, rest) = page.split_once("script-src 'sha256-").expect("a policy");
    let (_, rest) = rest.split_once('\'').expect("a hash");
    let page = format!("{head}script-src 'unsafe-inline'{rest}");
    let page = page.replacen("<title>", &format!("{COLLECTOR}<title>"), 1);
    page.replacen("</body>", &format!("{PROBE}</body>"), 1)
}

/// A document whose names would do something if they were not escaped.
fn hostile() -> Document {
    let mut document = common::sample();
    let evil = "</script><script>window.evil=1</script><img src=x onerror=\"window.evil=2\">'\"<svg onload=window.evil=3>";
    document.title = evil.to_owned();
    document.lab = evil.to_owned();
    for cell in &mut document.cells {
        cell.key.client = format!("{evil}{}", cell.key.client);
        cell.key.link = format!("{evil}{}", cell.key.link);
    }
    for curve in &mut document.curves {
        curve.id = evil.to_owned();
        curve.y.unit = evil.to_owned();
        curve.series[0].name = evil.to_owned();
    }
    document.settings[0].value = evil.to_owned();
    document
}

/// One start of the browser for all, since that is what takes time.
#[test]
fn the_page_has_no_error_its_plots_are_there_and_it_fits_wide_and_narrow_windows() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    // As it is, for its console: its own script must be the one that its policy allows.
    write("plain.html", &html(&common::sample()));
    write("probed.html", &probed(&common::sample()));
    write("hostile.html", &probed(&hostile()));
    write("empty.html", &probed(&Document::default()));
    let frames = [
        ("plain", "plain", 1280),
        ("wide", "probed", 1280),
        ("narrow", "probed", 390),
        ("hostile", "hostile", 390),
        ("empty", "empty", 390),
    ];
    let mut holder = HOLDER.to_owned();
    for (name, page, width) in frames {
        let frame = format!("<iframe name={name} src={page}.html width={width} height=900></iframe>");
        holder.push_str(&frame);
    }
    let rest = ["--dump-dom", "--virtual-time-budget=4000"].map(str::to_owned);
    let seen = open(&write("holder.html", &holder), (1400, 1000), &rest);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    let (_, found) = seen.dom.split_once("<pre id=\"found\">").expect("a holder");
    let (found, _) = found.split_once("</pre>").expect("its end");
    let found: Vec<serde_json::Value> = found
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON of the probe"))
        .collect();
    assert_eq!(found.len(), 4, "{found:?}");
    for one in &found {
        let number = |name: &str| one[name].as_u64().unwrap_or(u64::MAX);
        let width = if one["name"] == "wide" { 1280 } else { 390 };
        assert_eq!(
            (number("width"), number("evil"), number("small"), number("over")),
            (width, 0, 0, 0),
            "{one}"
        );
        assert!(number("scroll") <= width, "wider than its window: {one}");
        assert!(one["wrong"].as_array().is_some_and(Vec::is_empty), "{one}");
        // Each plot is there twice, and one of both is seen.
        let plots = if one["name"] == "empty" { 0 } else { 8 };
        assert_eq!((number("all"), number("seen")), (2 * plots, plots), "{one}");
        assert!(
            plots == 0 || number("tips") > 100,
            "the script did not run: {one}"
        );
    }
}

/// `ROPEWAY_PAGE_PICTURES=FOLDER cargo test -p ropeway-lab --test lab_tests reports:: -- --ignored`: draws the page.
#[test]
#[ignore = "for people: takes pictures of the page"]
fn pictures() {
    let folder = PathBuf::from(std::env::var_os("ROPEWAY_PAGE_PICTURES").expect("a folder to write to"));
    // Of this report, if one is named.
    let document = std::env::var_os("ROPEWAY_PAGE_REPORT").map_or_else(common::sample, |path| {
        load(Path::new(&path)).expect("a report.json")
    });
    write_all(&document, &folder).unwrap();
    for width in [1280, 390] {
        let holder = folder.join(format!("holder-{width}.html"));
        let frame = format!(
            "<!doctype html><style>body{{margin:0}}iframe{{border:0;display:block}}</style>\
             <iframe src=report.html width={width} height=9000></iframe>"
        );
        std::fs::write(&holder, frame).unwrap();
        for (name, dark) in [("light", 1), ("dark", 0)] {
            let picture = folder.join(format!("page-{width}-{name}.png"));
            let rest = [
                format!("--screenshot={}", picture.display()),
                format!("--blink-settings=preferredColorScheme={dark}"),
            ];
            open(&holder, (width.max(500), 9000), &rest);
        }
        std::fs::remove_file(holder).unwrap();
    }
}
