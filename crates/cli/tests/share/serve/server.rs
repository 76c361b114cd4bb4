//! A running server, and smbclient for it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Finished, Place, Running, text};

pub(crate) const PASSWORD: &str = "correct horse";

/// A running server.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) port: u16,
    pub(crate) listening: Value,
    pub(crate) folder: PathBuf,
}

impl Served {
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Self {
        let run = place.ropeway("serve").args(["--json", "--listen", "127.0.0.1:0"]);
        let mut running = run.args(arguments).start();
        let listens = running.until(|running| running.stdout().contains("\"listening\""));
        assert!(listens, "{}\n{}", running.stdout(), running.stderr());
        let out = running.stdout();
        let line = out.lines().find(|line| line.contains("\"listening\"")).unwrap();
        let listening: Value = serde_json::from_str(line).unwrap();
        let address = listening["addresses"][0].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self {
            running,
            port,
            listening,
            folder: place.path().to_owned(),
        }
    }

    pub(crate) fn stop(self) -> Finished {
        self.running.signal(Signal::TERM);
        let finished = self.running.wait();
        finished.assert_code(&[0]);
        finished
    }

    /// Sends SIGHUP and returns the lines printed after it.
    pub(crate) fn reload(&mut self) -> Vec<Value> {
        let before = self.running.stdout().lines().count();
        self.running.signal(Signal::HUP);
        let told = |running: &Running| {
            let out = running.stdout();
            out.lines().skip(before).any(|line| line.contains("\"reloaded\""))
        };
        assert!(self.running.until(told), "{}", self.running.stderr());
        let out = self.running.stdout();
        out.lines()
            .skip(before)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn smbclient(
        &self,
        share: &str,
        user: &str,
        password: &str,
        command: &str,
        more: &[&str],
    ) -> Output {
        let mut process = Command::new("smbclient");
        process
            .arg(format!("//127.0.0.1/{share}"))
            .args(["-p", &self.port.to_string(), "-s", "/dev/null", "-m", "SMB3"])
            .args(more)
            .args(["-c", command])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null());
        if user.is_empty() {
            process.arg("-U%");
        } else {
            process.arg("-U").arg(format!("{user}%{password}"));
        }
        process.output().unwrap()
    }

    #[track_caller]
    pub(crate) fn works(&self, share: &str, user: &str, password: &str, command: &str) -> String {
        let output = self.smbclient(share, user, password, command, &[]);
        let shown = shown(&output);
        assert!(output.status.success(), "{shown}\n{}", self.running.stderr());
        shown
    }

    #[track_caller]
    pub(crate) fn fails(&self, share: &str, user: &str, password: &str, command: &str, why: &str) {
        let output = self.smbclient(share, user, password, command, &[]);
        let shown = shown(&output);
        assert!(shown.contains(why), "{why} expected: {shown}");
    }
}

pub(crate) fn shown(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

pub(crate) fn private(place: &Place, name: &str, content: &str) -> PathBuf {
    let path = place.join(name);
    text(&path, content);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// Makes a folder `data` with `file` in it, and a password file.
pub(crate) fn ground() -> (Place, String) {
    let place = Place::new();
    text(&place.folder("data").join("file"), "content");
    let password = private(&place, "password", &format!("{PASSWORD}\n"));
    (place, password.display().to_string())
}

pub(crate) fn add_user(place: &Place, name: &str, password: &str) {
    let run = place.ropeway("serve").args(["user", "add", name]);
    run.env("ROPEWAY_PASSWORD", password).ok();
}
