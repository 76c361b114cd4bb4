//! A private smbd, and a place for runs of the binary against it.

use std::fs;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ropeway_peers::{PeerError, Share, Smbd, SmbdBuilder};
use serde_json::Value;

use super::{Finished, Place, Run};

/// Password of the first user, and default password of all others.
pub(crate) const PASSWORD: &str = "correct horse";

/// A private smbd with its shares in a private place. The server ends before its folders are
/// removed.
pub(crate) struct Ground {
    pub(crate) smbd: Smbd,
    pub(crate) place: Place,
    /// Address at which it answers on port 445, for smbcacls; created on first use.
    usual: OnceLock<IpAddr>,
}

impl Ground {
    /// Starts it with `data`, `more` and `fixed` (read-only).
    pub(crate) fn start() -> Result<Self, PeerError> {
        Self::with(|place, builder| {
            let share = |name: &str| Share::new(name, &place.folder(name));
            builder
                .share(share("data"))
                .share(share("more"))
                .share(share("fixed").read_only())
        })
    }

    /// Starts it with the one share `data`, which `shape` makes of its folder.
    pub(crate) fn sharing(shape: impl FnOnce(Share) -> Share) -> Result<Self, PeerError> {
        Self::with(|place, builder| builder.share(shape(Share::new("data", &place.folder("data")))))
    }

    /// Starts it with the user `ann` and what `shape` adds.
    pub(crate) fn with(shape: impl FnOnce(&Place, SmbdBuilder) -> SmbdBuilder) -> Result<Self, PeerError> {
        Self::at(Place::new(), shape)
    }

    /// Like [`with`](Self::with), in a given place.
    pub(crate) fn at(
        place: Place,
        shape: impl FnOnce(&Place, SmbdBuilder) -> SmbdBuilder,
    ) -> Result<Self, PeerError> {
        let smbd = shape(&place, Smbd::builder().user("ann", PASSWORD)).start()?;
        Ok(Self {
            smbd,
            place,
            usual: OnceLock::new(),
        })
    }

    /// Starts it with shares of these names, adjusted by `change`, and a second user `bob`, who has
    /// no special rights on shares where users act as themselves.
    pub(crate) fn with_shares(
        names: &[&str],
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        Self::with(|place, builder| shares(builder, names, place.path(), change))
    }

    /// The same with the shares' folders in this folder.
    pub(crate) fn with_shares_at(
        names: &[&str],
        folder: &Path,
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        Self::with(|_, builder| shares(builder, names, folder, change))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.smbd.url(path)
    }

    /// Returns the local path behind a path on a share.
    pub(crate) fn behind(&self, path: &str) -> PathBuf {
        self.place.join(path)
    }

    /// Prepares the binary with a command and the password.
    pub(crate) fn run(&self, command: &str) -> Run {
        self.place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD)
    }

    /// Prepares `copy --json SOURCE TARGET` with the password.
    pub(crate) fn copy(&self, source: &str, target: &str) -> Run {
        self.run("copy").args(["--json", source, target])
    }

    /// Runs `copy --json -T FLAGS SOURCE TARGET`, which must succeed.
    #[track_caller]
    pub(crate) fn copied(&self, flags: &[&str], from: &str, to: &str) -> Finished {
        let run = self.run("copy").args(["--json", "-T"]).args(flags);
        let finished = run.args([from, to]).ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
        finished
    }

    pub(crate) fn stat(&self, place: &str) -> Value {
        let finished = self.run("stat").arg("--json").arg(place).ok();
        finished.of_type("node").remove(0)
    }

    /// Returns the output of Samba's own tool for a node's security descriptor, after an action.
    pub(crate) fn smbcacls(&self, share: &str, path: &str, action: &[&str]) -> String {
        let address = self.smbd.address();
        let usual = self.usual.get_or_init(|| at_the_usual_port(address).unwrap());
        let output = Command::new("timeout")
            .args(["60", "smbcacls"])
            .args(["--configfile", "/dev/null", "--sddl", "--authentication-file"])
            .arg(self.smbd.credentials().unwrap())
            .args([format!("//{}/{share}", usual), path.to_owned()])
            .args(action)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "smbcacls {share}/{path}: {said}{complaint}"
        );
        said.trim().to_owned()
    }
}

/// Asserts one line with the error, one that begins with `hint:`, and nothing secret.
#[track_caller]
pub(crate) fn one_line_and_a_hint(finished: &Finished) {
    let lines: Vec<&str> = finished
        .err
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert!(
        lines.len() == 2 && lines[1].trim_start().starts_with("hint:"),
        "{finished}"
    );
    assert!(finished.out.is_empty(), "{finished}");
    no_secret(finished);
}

/// Asserts that no password was printed.
#[track_caller]
pub(crate) fn no_secret(finished: &Finished) {
    for secret in ["hunter2", PASSWORD] {
        assert!(!finished.mentions(secret), "{finished}");
    }
}

fn shares(
    builder: SmbdBuilder,
    names: &[&str],
    folder: &Path,
    change: impl Fn(&str, Share) -> Share,
) -> SmbdBuilder {
    names.iter().fold(builder.user("bob", PASSWORD), |builder, name| {
        fs::create_dir_all(folder.join(name)).unwrap();
        builder.share(change(name, Share::new(name, &folder.join(name))))
    })
}

/// Returns an address whose port 445 forwards to a server on another port (as root): smbcacls and
/// `net` know only that port.
pub(crate) fn at_the_usual_port(server: SocketAddr) -> std::io::Result<IpAddr> {
    let [high, low] = server.port().to_be_bytes();
    let address = IpAddr::from([127, high, low, 9]);
    let listener = TcpListener::bind((address, 445))?;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                return;
            };
            for (mut from, mut to) in [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
            {
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut from, &mut to);
                    _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    Ok(address)
}

/// Returns a loss of a copy by name; 0 if it is not reported.
#[track_caller]
pub(crate) fn lost(finished: &Finished, name: &str) -> u64 {
    finished.summary()["losses"][name].as_u64().unwrap_or(0)
}

pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

pub(crate) fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::lgetxattr(path, name, &mut buffer[..]).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

/// Returns whether files in the folder for temporary files may have extended attributes.
pub(crate) fn has_xattrs(place: &Place) -> bool {
    let path = place.join("probe");
    super::text(&path, "");
    rustix::fs::setxattr(&path, "user.probe", b"x", rustix::fs::XattrFlags::empty()).is_ok()
}
