//! A terminal of any size, that of a private tmux server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Place, binary, needs, wait_until};

/// How long something may take to appear. Generous: two cores may be shared with a whole build.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal; its server ends on drop.
pub(crate) struct Tmux {
    folder: PathBuf,
    environment: Vec<(String, String)>,
    /// The server, which outlives its socket.
    server: Option<rustix::process::Pid>,
}

impl Tmux {
    /// Opens a terminal with a shell, in a place.
    ///
    /// # Errors
    /// There is no tmux.
    pub(crate) fn open(place: &Place, columns: u16, rows: u16) -> Result<Self, String> {
        needs(false, &["tmux", "sh"])?;
        let folder = place.folder(&format!(".tmux-{columns}x{rows}"));
        let text = |name: &str| place.join(name).display().to_string();
        let environment = [
            ("HOME", place.path().display().to_string()),
            ("XDG_STATE_HOME", text(".state")),
            ("XDG_CONFIG_HOME", text(".config")),
            ("XDG_RUNTIME_DIR", text(".run")),
            ("LC_ALL", "C.UTF-8".to_owned()),
            ("TERM", "screen-256color".to_owned()),
            ("SHELL", "/bin/sh".to_owned()),
            ("TZ", "UTC".to_owned()),
            ("PS1", "PROMPT> ".to_owned()),
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("TMUX_TMPDIR", folder.display().to_string()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let mut tmux = Self {
            folder,
            environment,
            server: None,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let place = place.path().display().to_string();
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "-c",
            &place,
            "sh",
        ])?;
        let pid = tmux.run(&["display-message", "-p", "#{pid}"])?;
        tmux.server = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        tmux.run(&["set-option", "-g", "status", "off"])?;
        tmux.run(&["resize-window", "-x", &columns, "-y", &rows])?;
        assert!(tmux.shows("PROMPT>"), "{}", tmux.text());
        Ok(tmux)
    }

    /// Types a command line for the program under test.
    pub(crate) fn ropeway(&self, arguments: &str) {
        self.types(&format!("{} {arguments}", binary()));
        self.key("Enter");
    }

    /// Types text.
    pub(crate) fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", text]).unwrap();
    }

    /// Presses a key by the name that tmux has for it.
    pub(crate) fn key(&self, key: &str) {
        self.run(&["send-keys", key]).unwrap();
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.run(&["resize-window", "-x", &columns, "-y", &rows]).unwrap();
    }

    /// Returns what the terminal shows.
    pub(crate) fn text(&self) -> String {
        self.run(&["capture-pane", "-p"]).unwrap()
    }

    /// Returns what the terminal shows, with its colours.
    pub(crate) fn colored(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"]).unwrap()
    }

    /// Waits until the terminal shows a text; returns whether it did.
    pub(crate) fn shows(&self, text: &str) -> bool {
        wait_until(PATIENCE, || self.text().contains(text))
    }

    /// Waits until the terminal does not show a text any more; returns whether it was so.
    pub(crate) fn hides(&self, text: &str) -> bool {
        wait_until(PATIENCE, || !self.text().contains(text))
    }

    /// Closes the terminal under whatever runs in it.
    pub(crate) fn close(&self) {
        self.run(&["kill-server"]).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("tmux")
            .args(["-L", "test"])
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("tmux: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!(
                "tmux {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It has ended by itself if its shell has.
        _ = self.run(&["kill-server"]);
        // The place may have gone before, with the socket in it.
        if let Some(server) = self.server {
            _ = rustix::process::kill_process(server, rustix::process::Signal::KILL);
        }
    }
}
