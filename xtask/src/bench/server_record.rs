//! What `bench server` measured, kept in `target/bench/server.json` from one call to the next.
//!
//! A row is forgotten when the machine or the work are others than before, a cell when its client or server is another
//! build.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::far::Server;
use super::record::{Program, Visit};
use super::remote_client::Client;
use crate::worksets::Content;

/// All rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Store {
    rows: BTreeMap<String, Row>,
    #[serde(skip)]
    path: PathBuf,
}

/// One work, one way, one protection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Row {
    /// The machine and the client's flags.
    pub(super) conditions: String,
    /// What there was to move: files and bytes; of a listing its entries.
    pub(super) content: Content,
    /// When it was measured.
    pub(super) visits: Vec<Visit>,
    /// Clients with servers.
    pub(super) cells: Vec<Cell>,
}

/// One client with one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    /// The client.
    pub(super) client: Client,
    /// The server.
    pub(super) server: Server,
    /// Which builds.
    pub(super) programs: [Program; 2],
    /// Whether a run came before that is not among the samples.
    pub(super) warmed: bool,
    /// The counted runs.
    pub(super) samples: Vec<Sample>,
    /// Why there are no more of them.
    pub(super) failed: Option<String>,
}

/// One measured run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Until the client ended.
    pub(super) seconds: f64,
    /// User and system time of the client.
    pub(super) client_cpu: f64,
    /// The same of the server, meanwhile.
    pub(super) server_cpu: f64,
    /// The most memory of the server, meanwhile.
    pub(super) server_mib: f64,
    /// Processors that none of these kept busy, on average.
    pub(super) others: f64,
}

impl Store {
    /// Reads what is kept, or begins.
    ///
    /// # Errors
    /// If the file is there and cannot be read or understood.
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.json"));
        let store: Self = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not understood; move it away", path.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { path, ..store })
    }

    /// Writes it; whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn save(&self) -> Result<()> {
        let part = self.path.with_extension("json.part");
        let write = || -> Result<()> {
            fs::write(&part, serde_json::to_vec_pretty(self)?)?;
            Ok(fs::rename(&part, &self.path)?)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// A row that is there.
    pub(super) fn get(&self, key: &str) -> Option<&Row> {
        self.rows.get(key)
    }

    /// A row, made if need be.
    pub(super) fn row(&mut self, key: &str) -> &mut Row {
        self.rows.entry(key.to_owned()).or_default()
    }
}

impl Row {
    /// Forgets what is not true any more.
    pub(super) fn prepare(&mut self, conditions: &str, content: Content) {
        if self.conditions != conditions || self.content != content {
            *self = Self {
                conditions: conditions.to_owned(),
                content,
                ..Self::default()
            };
        }
    }

    /// The cell of a pair, made if need be, emptied if one of them is another build or it is to be measured again.
    pub(super) fn cell(
        &mut self,
        client: Client,
        server: Server,
        programs: [&Program; 2],
        fresh: bool,
    ) -> &mut Cell {
        let new = Cell {
            client,
            server,
            programs: programs.map(Clone::clone),
            warmed: false,
            samples: Vec::new(),
            failed: None,
        };
        let found = self
            .cells
            .iter()
            .position(|cell| cell.client == client && cell.server == server);
        let index = found.unwrap_or_else(|| {
            self.cells.push(new.clone());
            self.cells.len() - 1
        });
        let cell = &mut self.cells[index];
        if fresh || cell.programs != new.programs {
            *cell = new;
        }
        cell
    }

    /// The cell of a pair.
    pub(super) fn get(&self, client: Client, server: Server) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.client == client && cell.server == server)
    }
}

impl Cell {
    /// One value of all counted runs.
    pub(super) fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_is_measured_again() {
        let program = |build: &str| Program {
            version: "1".into(),
            build: build.into(),
        };
        let (one, two) = (program("a"), program("b"));
        let sample = Sample {
            seconds: 1.0,
            client_cpu: 0.0,
            server_cpu: 0.0,
            server_mib: 0.0,
            others: 0.0,
        };
        let mut row = Row::default();
        let content = Content { files: 1, bytes: 2 };
        row.prepare("here", content);
        row.cell(Client::Ropeway, Server::Smbd, [&one, &two], false)
            .samples
            .push(sample);
        assert_eq!(
            row.cell(Client::Ropeway, Server::Smbd, [&one, &two], false)
                .samples
                .len(),
            1
        );
        row.prepare("here", content);
        assert_eq!(row.cells.len(), 1);
        assert!(
            row.cell(Client::Ropeway, Server::Smbd, [&one, &one], false)
                .samples
                .is_empty()
        );
        row.prepare("there", content);
        assert!(row.cells.is_empty());
    }

    #[test]
    fn it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), "server").unwrap();
        store.row("x").prepare("here", Content { files: 1, bytes: 2 });
        store.save().unwrap();
        let again = Store::open(folder.path(), "server").unwrap();
        assert_eq!(again.get("x").unwrap().conditions, "here");
    }
}
