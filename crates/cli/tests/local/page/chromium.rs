//! Chromium without a window, over the pipe of its DevTools protocol.
//!
//! Messages are JSON with a zero at the end, on the descriptors 3 and 4 of Chromium, which are named
//! pipes here.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::page::PATIENCE;
use crate::support::{self, Place};

/// A browser with one tab; killed on drop.
pub(crate) struct Chromium {
    child: Child,
    requests: File,
    replies: Receiver<Value>,
    last: u64,
    session: String,
    /// What was written to the console, and errors of scripts.
    pub(crate) console: Vec<String>,
}

impl Chromium {
    /// Starts it with a profile of its own.
    ///
    /// # Errors
    /// It is not installed.
    pub(crate) fn start(place: &Place) -> Result<Self, String> {
        let chromium =
            ropeway_peers::chromium(&place.folder("profile")).ok_or("chromium is not installed")?;
        let (requests, replies) = (place.join("requests"), place.join("replies"));
        for path in [&requests, &replies] {
            support::tool("mkfifo", &[path])?;
        }
        let child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$REQUESTS\" 4>\"$REPLIES\"", "sh"])
            .arg(chromium.get_program())
            .args(chromium.get_args())
            .args(["--remote-debugging-pipe"])
            .arg("about:blank")
            .envs([("REQUESTS", &requests), ("REPLIES", &replies)])
            .env("HOME", place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let requests = OpenOptions::new().write(true).open(&requests).unwrap();
        let replies = BufReader::new(File::open(&replies).unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in replies.split(0) {
                let parsed = message
                    .ok()
                    .and_then(|message| serde_json::from_slice(&message).ok());
                if parsed.is_none_or(|message| sender.send(message).is_err()) {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            requests,
            replies: receiver,
            last: 0,
            session: String::new(),
            console: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Ok(browser)
    }

    /// Calls a method, and returns its result. Notes what the console says meanwhile, and answers
    /// questions of the page with yes.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.send(method, parameters);
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.replies.recv_timeout(left);
            let mut message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.hear(&message);
        }
    }

    fn send(&mut self, method: &str, parameters: Value) -> u64 {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.requests
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        self.last
    }

    fn hear(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("Page.javascriptDialogOpening") => {
                self.console
                    .push(format!("dialog: {}", message["params"]["message"]));
                self.send("Page.handleJavaScriptDialog", json!({"accept": true}));
            }
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.console.push(message["params"].to_string());
            }
            _ => {}
        }
    }

    /// Opens an address.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// Returns the value of an expression.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let wanted = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = self.call("Runtime.evaluate", wanted);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true. While a page is being loaded it may fail.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        let guarded = format!("(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()");
        while self.value(&guarded) != true {
            let text = self.value("document.body?.innerText ?? ''");
            assert!(Instant::now() < end, "never: {expression}\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sets the size of the window, and whether the user likes it dark.
    pub(crate) fn window(&mut self, width: u32, height: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes a picture of the whole page, if `ROPEWAY_SHOTS` names a folder.
    pub(crate) fn shot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("ROPEWAY_SHOTS") else {
            return;
        };
        let taken = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let png = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(name), png).unwrap();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It ends its helpers itself.
        self.session.clear();
        self.send("Browser.close", json!({}));
        let end = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
