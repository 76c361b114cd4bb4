//! Programs that take part: where they are, which version, and why others are not there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::process::{clean, program};
use crate::scenario::{Client, Pair, Server};

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    paths: BTreeMap<&'static str, PathBuf>,
    /// Of all that take part.
    pub(crate) versions: BTreeMap<String, String>,
    /// Clients and servers that do not, with the reason.
    pub(crate) missing: BTreeMap<String, String>,
}

impl Tools {
    /// Looks for all that pairs need; `ropeway` is the program itself.
    pub(crate) fn find(pairs: &[Pair], ropeway: &Path, scratch: &Path) -> Self {
        let mut tools = Self::default();
        tools.paths.insert("ropeway", ropeway.to_owned());
        for pair in pairs {
            tools.look_for_client(pair.client);
            tools.look_for_server(pair.server);
        }
        for (name, path) in &tools.paths {
            let version = version(path, scratch).unwrap_or_else(|| "unknown".to_owned());
            let version = match *name {
                // Samba's programs only say "Version 4.17".
                "smbd" | "smbclient" => format!("{name} {version}"),
                "ropeway" => format!("{version} (build {})", build(path)),
                _ => version,
            };
            tools.versions.insert((*name).to_owned(), version);
        }
        tools
    }

    /// Those pairs of which both are there.
    pub(crate) fn available(&self, pairs: &[Pair]) -> Vec<Pair> {
        let is_there = |pair: &&Pair| {
            !self.missing.contains_key(pair.client.name()) && !self.missing.contains_key(pair.server.name())
        };
        pairs.iter().filter(is_there).copied().collect()
    }

    /// Where a program is; its bare name if it was not looked for.
    pub(super) fn path(&self, name: &'static str) -> PathBuf {
        self.paths
            .get(name)
            .cloned()
            .unwrap_or_else(|| PathBuf::from(name))
    }

    fn look_for_client(&mut self, client: Client) {
        match client {
            Client::Ropeway => {}
            Client::Smbclient => self.need("smbclient", "smbclient", "smbclient"),
            Client::Rclone => self.need("rclone", "rclone", "rclone"),
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
            Server::Smbd => {
                self.need("smbd", "smbd", "samba");
                self.need("smbd", "pdbedit", "samba-common-bin");
            }
            Server::Rsyncd => self.need("rsyncd", "rsync", "rsync"),
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

/// First line of `--version`.
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

/// A hash of a program, since its version is changed more rarely than the program.
fn build(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    // FNV-1a, by eight bytes: to tell builds apart, not to resist anyone.
    let hash = bytes.chunks(8).fold(0xCBF2_9CE4_8422_2325_u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word))
            .wrapping_mul(0x0100_0000_01B3)
            .rotate_left(23)
    });
    format!("{:08x}", hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ropeway");
        fs::write(&program, "not a program").unwrap();
        let pairs = ["ropeway:ropeway", "cp:smbd"].map(|pair| pair.parse::<Pair>().unwrap());
        let tools = Tools::find(&pairs, &program, folder.path());
        assert!(tools.missing["cp"].contains("mount"), "{:?}", tools.missing);
        assert_eq!(tools.available(&pairs), &pairs[..1]);
        let old = tools.versions["ropeway"].clone();
        fs::write(&program, "not a program either").unwrap();
        assert_ne!(
            Tools::find(&pairs, &program, folder.path()).versions["ropeway"],
            old
        );
    }
}
