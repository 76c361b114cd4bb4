//! The page in a browser: one start of Chromium for everything.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::page::chromium::Chromium;
use crate::page::{Copying, MIB};
use crate::support::{Place, Served, file, or_skip};

/// A name that would do something if it were not shown as text.
const EVIL: &str = "\"><img src=x onerror=window.evil=1>";

/// Asserts that nothing is wider than the window.
#[track_caller]
fn fits(browser: &mut Chromium, width: u64) {
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(width), "{wide} of {width} pixels");
}

#[test]
fn the_page_in_a_browser() {
    let profile = Place::new();
    let mut browser = or_skip!(Chromium::start(&profile));
    a_copy(&mut browser);
    a_server(&mut browser);
    let wrong: Vec<&String> = browser
        .console
        .iter()
        .filter(|line| !line.starts_with("dialog: "))
        // The browser itself reports a connection that is gone, and the refused limit.
        .filter(|line| !line.contains("net::ERR_") && !line.contains("status of 409"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn a_copy(browser: &mut Chromium) {
    let place = Place::new();
    let source = place.folder("source");
    file(&source.join("film.mkv"), 160 * MIB, 1);
    file(&source.join(EVIL.replace('/', "_")), 4096, 2);
    for number in 0..200 {
        file(&source.join(format!("img-{number:03}.jpg")), 60_000, number);
    }
    let fault = "source:read:contains=onerror,errno=EIO";
    let copying = Copying::start(&place, &["--retries", "0", "--fault", fault]);
    browser.window(1280, 900, false);
    browser.open(&copying.url);
    browser.until("document.body.dataset.state === 'live'");
    assert_eq!(browser.value("location.search"), "", "the token left the address");
    browser.until("document.querySelector('.messages li')");
    assert!(
        browser
            .value("document.querySelector('.messages').textContent")
            .as_str()
            .unwrap()
            .contains("<img src=x")
    );
    assert_eq!(
        browser.value("[window.evil ?? 0, document.images.length]"),
        json!([0, 0])
    );

    // The figures change by themselves, in the same elements.
    browser.value("void (window.first = document.querySelector('.bars .value'))");
    browser.value("void (window.before = first.textContent)");
    browser.until("first.isConnected && first.textContent !== before");
    browser.until("document.querySelector('.graphs .line').getAttribute('d').length > 10");
    fits(browser, 1280);
    browser.shot("page-copy.png");
    browser.window(1280, 900, true);
    browser.shot("page-copy-dark.png");
    browser.window(390, 1300, false);
    fits(browser, 390);
    browser.shot("page-copy-narrow.png");

    a_night(browser);
    forms(browser);

    // Without scripts the page is complete.
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(&format!("http://{}/", copying.address));
    browser.until("document.querySelector('.bars .value') && !document.body.dataset.state");
    browser.until("document.querySelector('noscript meta')");
    fits(browser, 390);
    browser.shot("page-plain.png");
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": false}));

    // A loss without a word.
    browser.open(&format!("http://{}/", copying.address));
    browser.until("document.body.dataset.state === 'live'");
    copying.running.kill();
    browser.until(
        "/^connection lost [1-9]\\d* s ago, trying again$/.test(document.getElementById('said').textContent)",
    );
    assert!(
        browser
            .value("document.querySelectorAll('.bars .value').length")
            .as_u64()
            > Some(0)
    );
    browser.shot("page-lost.png");
}

/// Shows as much as a night has: no element more.
fn a_night(browser: &mut Chromium) {
    let night = "(async () => {
        const view = await new Promise(done => {
            const events = new EventSource('/events');
            events.addEventListener('view', e => { events.close(); done(JSON.parse(e.data)) });
        });
        const count = () => document.getElementsByTagName('*').length;
        show(view);
        const before = count();
        for (let n = 0; n < 2000; n++) {
            view.facts = [String(n)];
            for (const tile of view.sections[0].tiles) tile.value = String(n);
            view.sections[0].messages.unshift({ at: String(n), text: 'x', tone: 'plain' });
            view.sections[0].messages.splice(20);
            show(view);
        }
        return [before, count(), view.sections[0].messages.length];
    })()";
    let counts = browser.value(night);
    let grown = counts[1].as_u64().unwrap() - counts[0].as_u64().unwrap();
    // Three elements for each of at most 20 messages.
    assert!(grown <= 60, "{counts}");
}

/// What can be done, by the form of the page.
fn forms(browser: &mut Chromium) {
    let press = |label: &str| {
        format!(
            "[...document.querySelectorAll('section button')].find(b => b.textContent === '{label}').click()"
        )
    };
    browser.value(&press("pause"));
    browser.until("document.querySelector('.state').textContent === 'PAUSED'");
    browser.until("document.getElementById('reply').textContent.startsWith('Paused')");
    browser.value(&press("resume"));
    browser.until("document.querySelector('.state').textContent === 'copying'");
    browser.value("document.querySelector('input[name=value]').value = 'fast'");
    browser.value(&press("set limit"));
    browser.until("document.getElementById('reply').className === 'bad'");
}

fn a_server(browser: &mut Chromium) {
    let served = Served::start(&["--http", "0"]);
    let place = Place::new();
    fs::create_dir(served.behind("photos")).unwrap();
    file(&served.behind("photos/film.mkv"), 48 * MIB, 1);
    let copying = served
        .run("copy")
        .args(["--json", "--bwlimit", "2M", &served.url("photos")])
        .arg(place.join("copy"))
        .start();
    browser.window(1280, 900, false);
    browser.open(&served.page());
    let rows = "document.querySelectorAll('table[data-key=sessions] tbody tr').length";
    browser.until(&format!("{rows} > 0"));
    browser.until("document.body.innerText.includes('film.mkv')");
    browser.until("document.querySelector('.graphs .line').getAttribute('d').length > 10");
    fits(browser, 1280);
    browser.shot("page-serve.png");
    browser.window(390, 1300, true);
    fits(browser, 390);
    browser.shot("page-serve-narrow.png");
    let end = "const row = document.querySelector('table[data-key=sessions] tbody tr');
        window.gone = row.dataset.key; row.querySelector('button').click()";
    browser.value(end);
    browser.until("document.getElementById('reply').textContent === 'The session was ended.'");
    browser.until(
        "![...document.querySelectorAll('table[data-key=sessions] tr')].some(r => r.dataset.key === gone)",
    );
    let asked = browser
        .console
        .iter()
        .any(|line| line.contains("End the session of ann"));
    assert!(asked, "{:?}", browser.console);
    // The client logs in again, and the copy goes on.
    copying.signal(Signal::INT);
    copying.wait().assert_code(&[130, 0]);
    served.stop();
    browser.until("document.body.dataset.state === 'ended'");
}
