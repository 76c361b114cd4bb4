//! A private smbd with shares, and runs of the real binary against it.

use std::fs;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use ropeway_peers::{PeerError, Share, Smbd};
use serde_json::Value;

use super::{Finished, Place, Run};

const PASSWORD: &str = "correct horse";

/// A private smbd with some shares, and a place for the runs.
pub(crate) struct Ground {
    pub(crate) place: Place,
    pub(crate) smbd: Smbd,
    /// Where it answers at the usual port, for smbcacls.
    usual: String,
}

impl Ground {
    /// `change` makes a share of each of these names what it is to be.
    pub(crate) fn start(names: &[&str], change: impl Fn(&str, Share) -> Share) -> Result<Self, PeerError> {
        let place = Place::new();
        let folder = place.path().to_owned();
        Self::start_in(place, names, &folder, change)
    }

    /// With the shares' folders in this one.
    pub(crate) fn start_at(
        names: &[&str],
        folder: &Path,
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        Self::start_in(Place::new(), names, folder, change)
    }

    fn start_in(
        place: Place,
        names: &[&str],
        folder: &Path,
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        let share = |name: &&str| {
            fs::create_dir_all(folder.join(name)).unwrap();
            change(name, Share::new(name, &folder.join(name)))
        };
        // The second is nobody in particular on shares where users act as themselves.
        let builder = Smbd::builder().user("ann", PASSWORD).user("bob", PASSWORD);
        let builder = names
            .iter()
            .map(share)
            .fold(builder, |builder, share| builder.share(share));
        let smbd = builder.start()?;
        let usual = at_the_usual_port(smbd.address()).map_or_else(|_| String::new(), |ip| ip.to_string());
        Ok(Self { place, smbd, usual })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.smbd.url(path)
    }

    /// Where a path of a share lies on this machine.
    pub(crate) fn behind(&self, path: &str) -> PathBuf {
        self.place.join(path)
    }

    pub(crate) fn run(&self, command: &str) -> Run {
        self.place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD)
    }

    pub(crate) fn copy(&self, flags: &[&str], from: &str, to: &str) -> Finished {
        let run = self.run("copy").args(["--json", "-T"]).args(flags);
        let finished = run.args([from, to]).ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
        finished
    }

    pub(crate) fn stat(&self, place: &str) -> Value {
        let finished = self.run("stat").arg("--json").arg(place).ok();
        finished.of_type("node").remove(0)
    }

    /// What Samba's own tool says of a node's security descriptor, after an action.
    pub(crate) fn smbcacls(&self, share: &str, path: &str, action: &[&str]) -> String {
        let output = Command::new("timeout")
            .args(["60", "smbcacls"])
            .args(["--configfile", "/dev/null", "--sddl", "--authentication-file"])
            .arg(self.smbd.credentials().unwrap())
            .args([format!("//{}/{share}", self.usual), path.to_owned()])
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

/// An address at whose port 445, the only one that smbcacls knows, a server answers that listens elsewhere (as root).
fn at_the_usual_port(server: SocketAddr) -> std::io::Result<IpAddr> {
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

/// Losses of a copy by name; 0 where none is told.
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

/// Whether files may have extended attributes in the folder for temporary files.
pub(crate) fn has_xattrs(place: &Place) -> bool {
    let path = place.join("probe");
    super::text(&path, "");
    rustix::fs::setxattr(&path, "user.probe", b"x", rustix::fs::XattrFlags::empty()).is_ok()
}
