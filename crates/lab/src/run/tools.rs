//! Programs of clients and servers: paths, versions, and why some are missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ropeway_peers::procfs::{clean, program};

use crate::scenario::{Client, Pair, Server};

/// The programs that were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    paths: BTreeMap<&'static str, PathBuf>,
    /// Version of each program.
    pub(crate) versions: BTreeMap<String, String>,
    /// Clients and servers that are missing, with the reason.
    pub(crate) missing: BTreeMap<String, String>,
}

impl Tools {
    /// Looks for everything that `pairs` need. `ropeway` is this program; `smb_server` is the
    /// program of [`Server::SmbServer`], where it was built.
    pub(crate) fn find(pairs: &[Pair], ropeway: &Path, smb_server: Option<&Path>, scratch: &Path) -> Self {
        let mut tools = Self::default();
        tools.paths.insert("ropeway", ropeway.to_owned());
        if let Some(path) = smb_server {
            tools.paths.insert(Server::SmbServer.name(), path.to_owned());
        }
        for pair in pairs {
            tools.look_for_client(pair.client);
            tools.look_for_server(pair.server);
        }
        for (name, path) in &tools.paths {
            let version = version(path, scratch).unwrap_or_else(|| "unknown".to_owned());
            let version = match *name {
                "smb-server" => "crate smb-server 0.8.0".to_owned(),
                // Samba's programs only say "Version 4.17".
                "smbd" | "smbclient" | "pdbedit" => format!("{name} {version}"),
                "ropeway" => format!("{version} (build {})", build(path)),
                _ => version,
            };
            tools.versions.insert((*name).to_owned(), version);
        }
        tools
    }

    /// Returns the pairs whose client and server are available.
    pub(crate) fn available(&self, pairs: &[Pair]) -> Vec<Pair> {
        let is_there = |pair: &&Pair| {
            !self.missing.contains_key(pair.client.name()) && !self.missing.contains_key(pair.server.name())
        };
        pairs.iter().filter(is_there).copied().collect()
    }

    /// Path of a program; its bare name if it was not looked up.
    pub(super) fn path(&self, name: &'static str) -> PathBuf {
        self.paths
            .get(name)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(name))
    }

    fn look_for_client(&mut self, client: Client) {
        match client {
            Client::Ropeway | Client::Mount | Client::MountLater => {}
            Client::XpSmb1 | Client::Win7Smb1 | Client::Win7Smb2 => {}
            Client::MountBoost | Client::MountBoostAgain | Client::MountBoostRestart => {}
            Client::Smbclient => self.need("smbclient", "smbclient", "smbclient"),
            Client::Rclone | Client::Rclone32 | Client::RcloneMount | Client::RcloneMountAgain => {
                self.need(client.name(), "rclone", "rclone")
            }
            Client::Rsync => self.need("rsync", "rsync", "rsync"),
            Client::Cp => {
                let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
                let reason = if known
                    .lines()
                    .any(|line| line.split_whitespace().last() == Some("cifs"))
                {
                    "it needs a mounted share, and this version does not mount any"
                } else {
                    "it needs a mounted share, and this kernel has no cifs"
                };
                self.missing.insert("cp".to_owned(), reason.to_owned());
            }
        }
    }

    fn look_for_server(&mut self, server: Server) {
        match server {
            Server::Ropeway => {}
            Server::Smbd | Server::SmbdSmb1 => {
                self.need(server.name(), "smbd", "samba");
                self.need(server.name(), "pdbedit", "samba-common-bin");
            }
            Server::Rsyncd => self.need("rsyncd", "rsync", "rsync"),
            Server::SmbServer => {
                if !self.paths.contains_key(server.name()) {
                    let reason = "it is not built; `cargo xtask bench server` builds it";
                    self.missing.insert(server.name().to_owned(), reason.to_owned());
                }
            }
        }
    }

    fn need(&mut self, whose: &str, name: &'static str, package: &str) {
        match program(name) {
            Some(path) => _ = self.paths.insert(name, path),
            None => {
                let reason = format!("{name} is not installed (apt install {package})");
                self.missing.insert(whose.to_owned(), reason);
            }
        }
    }
}

/// Returns the first line of `--version`.
fn version(path: &Path, scratch: &Path) -> Option<String> {
    let output = clean(path, scratch)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim();
    // `rsync  version 3.5.0  protocol version 32`
    let words: Vec<&str> = line.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns a hash of a program, since its version changes more rarely than the program.
fn build(path: &Path) -> String {
    let hash = blake3::hash(&fs::read(path).unwrap_or_default());
    hash.to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_listed_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ropeway");
        fs::write(&program, "not a program").unwrap();
        let pairs = ["ropeway:ropeway", "cp:smbd"].map(|pair| pair.parse::<Pair>().unwrap());
        let tools = Tools::find(&pairs, &program, None, folder.path());
        assert!(tools.missing["cp"].contains("mount"), "{:?}", tools.missing);
        assert_eq!(tools.available(&pairs), &pairs[..1]);
        let old = tools.versions["ropeway"].clone();
        fs::write(&program, "not a program either").unwrap();
        assert_ne!(
            Tools::find(&pairs, &program, None, folder.path()).versions["ropeway"],
            old
        );
    }
}
