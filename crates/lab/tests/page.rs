//! The page in headless Chromium: no error on the console, plots with a size, nothing wider than the window.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ropeway_lab::report::{Document, html};

/// Where Debian and others have it.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Measures the page, and writes what it found as the title.
const PROBE: &str = "<script>addEventListener('load',()=>{const wrong=window.wrong||[];\
    const all=[...document.querySelectorAll('svg.rp')];const seen=all.filter(s=>{const b=s.getBoundingClientRect();\
    return b.width>100&&b.height>100});const small=seen.filter(s=>{const t=s.querySelector('text');\
    return t&&t.getBoundingClientRect().height<9});const over=seen.filter(s=>[...s.querySelectorAll('text')].some(t=>{\
    const a=t.getBoundingClientRect(),b=s.getBoundingClientRect();return a.left<b.left-1||a.right>b.right+1}));\
    const root=document.documentElement;document.title=JSON.stringify({all:all.length,seen:seen.length,\
    small:small.length,over:over.length,width:innerWidth,scroll:root.scrollWidth,tips:document.querySelectorAll('[data-tip]').length,\
    evil:window.evil||0,wrong})})</script>";

/// Before all else: collects errors.
const COLLECTOR: &str = "<script>window.wrong=[];addEventListener('error',e=>wrong.push(String(e.message||e.target)),true)</script>";

fn chromium() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    found.expect("no Chromium: run `cargo xtask tools`, or `apt-get install chromium`")
}

struct Seen {
    dom: String,
    console: Vec<String>,
}

/// Opens a page in a window of that size; gives the document and what was on the console.
fn open(page: &Path, (width, height): (u32, u32), rest: &[String]) -> Seen {
    let profile = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(chromium());
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--v=0",
    ]);
    command
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
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

fn dump() -> [String; 1] {
    ["--dump-dom".to_owned()]
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

/// What the probe found.
fn measured(page: &Path, width: u32) -> serde_json::Value {
    let seen = open(page, (width, 900), &dump());
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    let (_, rest) = seen.dom.split_once("<title>").expect("a title");
    let (found, _) = rest.split_once("</title>").expect("its end");
    serde_json::from_str(&found.replace("&amp;", "&"))
        .unwrap_or_else(|_| panic!("the probe did not run: {found}"))
}

#[test]
fn the_page_has_no_error_and_its_plots_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, html(&common::sample())).unwrap();
    // As it is: its own script is the one that its policy allows.
    let seen = open(&page, (1280, 900), &dump());
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert!(seen.dom.contains("data-tip="), "the script ran");
}

#[test]
fn the_page_fits_wide_and_narrow_windows() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("probed.html");
    std::fs::write(&page, probed(&common::sample())).unwrap();
    for width in [1280, 390] {
        let found = measured(&page, width);
        let number = |name: &str| found[name].as_u64().unwrap_or(u64::MAX);
        assert_eq!(number("width"), u64::from(width), "{found}");
        assert_eq!((number("all"), number("seen")), (16, 8), "{found}");
        assert_eq!((number("small"), number("over")), (0, 0), "{found}");
        assert!(number("scroll") <= u64::from(width), "{found}");
        assert!(
            number("tips") > 100 && found["wrong"].as_array().is_some_and(Vec::is_empty),
            "{found}"
        );
    }
}

#[test]
fn hostile_names_do_nothing_in_a_browser() {
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
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("evil.html");
    std::fs::write(&page, probed(&document)).unwrap();
    let found = measured(&page, 390);
    assert_eq!(found["evil"], 0, "{found}");
    assert!(found["wrong"].as_array().is_some_and(Vec::is_empty), "{found}");
    assert!(found["scroll"].as_u64() <= Some(390), "{found}");
}

/// `ROPEWAY_PAGE_PICTURES=FOLDER cargo test -p ropeway-lab --test page -- --ignored`: what it looks like.
#[test]
#[ignore = "for people: takes pictures of the page"]
fn pictures() {
    let folder = PathBuf::from(std::env::var_os("ROPEWAY_PAGE_PICTURES").expect("a folder to write to"));
    std::fs::create_dir_all(&folder).unwrap();
    let page = folder.join("report.html");
    std::fs::write(&page, html(&common::sample())).unwrap();
    for (width, height) in [(1280, 9000), (390, 15000)] {
        for dark in [false, true] {
            let name = format!("page-{width}-{}.png", if dark { "dark" } else { "light" });
            let mut rest = vec![format!("--screenshot={}", folder.join(name).display())];
            if dark {
                rest.push("--force-dark-mode".to_owned());
                rest.push("--blink-settings=preferredColorScheme=0".to_owned());
            }
            open(&page, (width, height), &rest);
        }
    }
    ropeway_lab::report::write_all(&common::sample(), &folder).unwrap();
}
