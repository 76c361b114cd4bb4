//! Shared parts of the small commands (`ls`, `stat`, `mkdir`, `rm`, `mv`): finding a node, printing
//! it, reporting failures.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::{End, Error, Kind, Listing, Metadata, Name, Origin, RelPath, Timestamp, Tree};
use serde_json::{Map, Value, json};

use crate::ends::{is_nameless, parent_of};
use crate::failure::{Failure, code};
use crate::job;
use crate::place::Place;
use crate::servers::Servers;
use crate::ui::messages;
use crate::url::SmbUrl;

/// Number of entries requested at once.
pub(super) const ENTRIES_AT_ONCE: usize = 1024;

/// Runs a command's future on its own runtime.
pub(super) fn run<T>(
    servers: &Servers,
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = job::runtime()?;
    let result = runtime.block_on(future);
    job::shut_down(runtime, servers);
    result
}

/// A node in a tree.
#[derive(Clone)]
pub(super) struct Located {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) path: RelPath,
    /// Absolute place of the node.
    pub(super) place: Place,
    /// The argument as given.
    pub(super) shown: String,
}

impl Located {
    /// Returns the node's metadata.
    pub(super) async fn metadata(&self, end: End) -> Result<Metadata, Failure> {
        let metadata = self.tree.metadata(&self.path).await;
        metadata.map_err(|error| self.fault("examine", &error, end))
    }

    /// Returns the place of another node in the same tree.
    pub(super) fn place_of(&self, path: &RelPath) -> Place {
        match &self.place {
            Place::Remote(url) => Place::Remote(url.with_path(path.clone())),
            // The tree's root is as many folders up as the path has names.
            Place::Local(own) => {
                let root = own.ancestors().nth(self.path.components().count()).unwrap_or(own);
                Place::Local(root.to_path_buf()).join(path)
            }
        }
    }

    /// Makes a failure of an operation on the node.
    pub(super) fn fault(&self, verb: &str, error: &Error, end: End) -> Failure {
        Failure::of_node(&format!("cannot {verb} {}", self.shown), error, end)
    }
}

/// Finds the node that an argument names. The node need not exist, but its parent folder must. With
/// `follow`, a link to a folder stands for the folder.
pub(super) async fn find(argument: &Path, follow: bool, servers: &Servers) -> Result<Located, Failure> {
    if argument.as_os_str().is_empty() {
        return Err(Failure::usage("a path is empty")
            .hint("quote your variables: an unset variable gives an empty name"));
    }
    match Place::parse_end(argument)? {
        Place::Remote(url) => {
            let top = servers.share_tree(&url).await;
            let tree = top.map_err(|error| error.failure(&format!("cannot open {url}"), End::Source))?;
            Ok(of_url(&url, tree))
        }
        Place::Local(path) => local(&path, follow),
    }
}

fn of_url(url: &SmbUrl, tree: Arc<dyn Tree>) -> Located {
    Located {
        tree,
        path: url.path.clone(),
        shown: url.to_string(),
        place: Place::Remote(url.plain()),
    }
}

fn local(argument: &Path, follow: bool) -> Result<Located, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let fault = |error: io::Error| {
        let message = format!(
            "cannot examine {}: {}",
            argument.display(),
            crate::ends::cause(&error)
        );
        Failure::of_end(message, &error, code::SOURCE)
            .hint("check the spelling, and that the volume is mounted")
    };
    let is_folder = is_nameless(argument)
        || argument.as_os_str().as_bytes().ends_with(b"/")
        || (follow && fs::metadata(argument).is_ok_and(|metadata| metadata.is_dir()));
    let (root, path) = match (is_folder && argument.exists(), argument.file_name()) {
        (false, Some(name)) => {
            let name = Name::new(name.as_bytes())
                .ok_or_else(|| Failure::usage(format!("{} is not a valid name", argument.display())))?;
            let root = fs::canonicalize(parent_of(argument)).map_err(fault)?;
            (root, RelPath::root().join(&name))
        }
        _ => (fs::canonicalize(argument).map_err(fault)?, RelPath::root()),
    };
    Ok(Located {
        tree: open(&root)?,
        place: Place::Local(root).join(&path),
        path,
        shown: argument.display().to_string(),
    })
}

/// Opens a folder on this machine.
pub(super) fn open(root: &Path) -> Result<Arc<dyn Tree>, Failure> {
    match LocalTree::open(root, LocalOptions::default()) {
        Ok(tree) => Ok(tree),
        Err(error) => Err(Failure::of_tree(&root.display().to_string(), &error, End::Source)),
    }
}

/// Maximum size in bytes of a folder's entries that are kept for sorting: about 700,000 entries. A
/// guess.
pub(super) const SORTED_MAX: usize = 256 << 20;

/// An entry of a folder.
pub(super) type Entry = (Name, Result<Metadata, Error>);

/// The entries of a folder: sorted by name, or unsorted if there are too many to keep.
pub(super) struct Entries {
    first: Vec<Entry>,
    bytes: usize,
    /// Reads the entries after `first`.
    listing: Box<dyn Listing>,
    is_whole: bool,
    origin: Option<Origin>,
}

impl Entries {
    /// Lists a folder until its end, or until `bytes_max` bytes of entries are kept.
    pub(super) async fn of(tree: &dyn Tree, folder: &RelPath, bytes_max: usize) -> Result<Self, Error> {
        let mut entries = Self {
            first: Vec::new(),
            bytes: 0,
            listing: tree.list(folder).await?,
            is_whole: false,
            origin: None,
        };
        entries.keep(bytes_max).await?;
        Ok(entries)
    }

    /// Continues until the end, or until `bytes_max` bytes of entries are kept.
    pub(super) async fn keep(&mut self, bytes_max: usize) -> Result<(), Error> {
        while !self.is_whole && self.bytes < bytes_max {
            let batch = self.batch().await?;
            // The name is shared and has two counters.
            let bytes = |(name, _): &Entry| size_of::<Entry>() + 16 + name.as_bytes().len();
            self.bytes += batch.iter().map(bytes).sum::<usize>();
            self.first.extend(batch);
            if self.is_whole {
                self.first.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
        }
        Ok(())
    }

    /// Returns whether all entries are kept and sorted.
    pub(super) fn is_sorted(&self) -> bool {
        self.is_whole
    }

    /// Returns where the folder is, if the listing reported it.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Returns the next entries; empty at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Entry>, Error> {
        if !self.first.is_empty() {
            return Ok(std::mem::take(&mut self.first));
        }
        self.batch().await
    }

    async fn batch(&mut self) -> Result<Vec<Entry>, Error> {
        if self.is_whole {
            return Ok(Vec::new());
        }
        let batch = self.listing.next(ENTRIES_AT_ONCE).await?;
        self.is_whole = batch.is_empty();
        self.origin = self.listing.origin();
        Ok(batch
            .into_iter()
            .map(|entry| (entry.name, entry.metadata))
            .collect())
    }
}

/// Output of a small command: lines for people, or JSON Lines with a summary at the end.
pub(super) struct Printer {
    json: bool,
    out: BufWriter<io::Stdout>,
    /// Whether the reader has closed the pipe, so no more output is needed.
    closed: bool,
    done: u64,
    failed: u64,
    codes: BTreeSet<u8>,
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            out: BufWriter::new(io::stdout()),
            closed: false,
            done: 0,
            failed: 0,
            codes: BTreeSet::new(),
        }
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether the reader has closed the pipe.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints a line for people.
    pub(super) fn line(&mut self, text: &str) {
        if !self.json {
            self.write(text);
        }
    }

    /// Prints a line for programs.
    pub(super) fn object(&mut self, kind: &str, fields: Map<String, Value>) {
        if self.json {
            let mut line = Map::new();
            line.insert("type".to_owned(), json!(kind));
            line.extend(fields);
            self.write(&Value::Object(line).to_string());
        }
    }

    /// Prints a note on stderr, after the output so far.
    pub(super) fn note(&mut self, text: &str) {
        _ = self.out.flush();
        messages::print_stderr(text);
    }

    /// Returns whether nothing was done and nothing failed so far.
    pub(super) fn is_empty(&self) -> bool {
        self.done == 0 && self.failed == 0
    }

    /// Counts one completed node.
    pub(super) fn done(&mut self) {
        self.done += 1;
    }

    /// Reports a failure; the command continues with other nodes.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.failed += 1;
        self.codes.insert(failure.code);
        if self.json {
            let fields = json!({"message": failure.message, "hint": failure.hint, "exit_code": failure.code});
            if let Value::Object(fields) = fields {
                self.object("item_error", fields);
            }
            return;
        }
        // Keeps the order of stdout and stderr.
        _ = self.out.flush();
        messages::report_failure(failure, false);
    }

    /// Handles the result of one argument. If it is the only argument, its failure is the
    /// command's.
    pub(super) fn finish_argument(
        &mut self,
        result: Result<(), Failure>,
        is_only: bool,
    ) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(failure) if (is_only && self.done == 0) || failure.code == code::INTERRUPTED => {
                _ = self.out.flush();
                Err(failure)
            }
            Err(failure) => {
                self.fail(&failure);
                Ok(())
            }
        }
    }

    /// Prints the summary and returns the exit code.
    pub(super) fn finish(mut self) -> u8 {
        let exit_code = match (self.failed, self.done, self.codes.first()) {
            (0, ..) => code::DONE,
            (_, 0, Some(only)) if self.codes.len() == 1 => *only,
            _ => code::SOME_FAILED,
        };
        let fields = json!({"nodes": self.done, "errors": self.failed, "exit_code": exit_code});
        if let Value::Object(fields) = fields {
            self.object("summary", fields);
        }
        _ = self.out.flush();
        exit_code
    }

    fn write(&mut self, text: &str) {
        if !self.closed && writeln!(self.out, "{text}").is_err() {
            self.closed = true;
        }
    }
}

/// Returns the metadata of a node for programs; unknown fields are left out.
pub(super) fn fields(path: &str, metadata: &Metadata, link: Option<&str>) -> Map<String, Value> {
    let time = |time: Option<Timestamp>| time.map(moment);
    let known = [
        ("path", Some(json!(path))),
        ("kind", Some(json!(metadata.kind))),
        ("size", Some(json!(metadata.size))),
        ("allocated", metadata.allocated.map(Value::from)),
        ("modified", time(metadata.modified.known()).map(Value::from)),
        ("accessed", time(metadata.accessed).map(Value::from)),
        ("changed", time(metadata.changed).map(Value::from)),
        ("created", time(metadata.created).map(Value::from)),
        ("mode", metadata.mode.map(|mode| json!(format!("{mode:04o}")))),
        ("user", metadata.owner.map(|owner| json!(owner.user))),
        ("group", metadata.owner.map(|owner| json!(owner.group))),
        ("links", Some(json!(metadata.links))),
        ("volume", metadata.id.map(|id| json!(id.volume))),
        ("index", metadata.id.map(|id| json!(id.index))),
        (
            "device",
            metadata.device.map(|(major, minor)| json!([major, minor])),
        ),
        ("dos_attributes", metadata.dos_attributes.map(Value::from)),
        ("target", link.map(Value::from)),
    ];
    known
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Formats a time in UTC (RFC 3339).
fn moment(time: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(time.0) {
        Ok(moment) => moment.to_string(),
        Err(_) => format!("{}ns", time.0),
    }
}

/// Formats a time in the local time zone.
pub(super) fn local_time(time: Timestamp, precise: bool) -> String {
    let format = if precise {
        "%Y-%m-%d %H:%M:%S%.f %:z"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    match jiff::Timestamp::from_nanosecond(time.0) {
        Ok(moment) => moment
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime(format)
            .to_string(),
        Err(_) => format!("{}ns", time.0),
    }
}

/// Formats permissions as `drwxr-xr-x`; without permission bits, the DOS attributes as `drhsa`.
pub(super) fn marks(metadata: &Metadata) -> String {
    let kind = match metadata.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    if let Some(mode) = metadata.mode {
        let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
        for (position, (bit, with_x, without)) in special.into_iter().enumerate() {
            let bits = mode >> (6 - 3 * position);
            text.push(if bits & 4 != 0 { 'r' } else { '-' });
            text.push(if bits & 2 != 0 { 'w' } else { '-' });
            text.push(match (mode & bit != 0, bits & 1 != 0) {
                (true, true) => with_x,
                (true, false) => without,
                (false, true) => 'x',
                (false, false) => '-',
            });
        }
    } else if let Some(attributes) = metadata.dos_attributes {
        for (bit, _, letter) in DOS_ATTRIBUTES {
            if let Some(letter) = letter {
                text.push(if attributes & bit != 0 { letter } else { '-' });
            }
        }
    }
    text
}

/// DOS attributes ([MS-FSCC] 2.6): bit, name, and a letter for common ones.
pub(super) const DOS_ATTRIBUTES: [(u32, &str, Option<char>); 13] = [
    (0x0001, "read-only", Some('r')),
    (0x0002, "hidden", Some('h')),
    (0x0004, "system", Some('s')),
    (0x0020, "archive", Some('a')),
    (0x0010, "directory", None),
    (0x0080, "normal", None),
    (0x0100, "temporary", None),
    (0x0200, "sparse", None),
    (0x0400, "reparse point", None),
    (0x0800, "compressed", None),
    (0x1000, "offline", None),
    (0x2000, "not indexed", None),
    (0x4000, "encrypted", None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_look_as_in_ls() {
        let mut metadata = Metadata::bare(Kind::Directory, 0, Timestamp(0));
        assert_eq!(marks(&metadata), "d");
        metadata.mode = Some(0o755);
        assert_eq!(marks(&metadata), "drwxr-xr-x");
        metadata.mode = Some(0o1777);
        assert_eq!(marks(&metadata), "drwxrwxrwt");
        metadata.kind = Kind::File;
        metadata.mode = Some(0o6640);
        assert_eq!(marks(&metadata), "-rwSr-S---");
        metadata.mode = None;
        metadata.dos_attributes = Some(0x23);
        assert_eq!(marks(&metadata), "-rh-a");
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let metadata = Metadata::bare(Kind::File, 7, Timestamp(1_500_000_000));
        let fields = fields("a/b", &metadata, None);
        assert_eq!(fields["modified"], "1970-01-01T00:00:01.5Z");
        assert_eq!(
            (fields["kind"].as_str(), fields["size"].as_u64()),
            (Some("file"), Some(7))
        );
        assert!(!fields.contains_key("mode") && !fields.contains_key("target"));
    }
}
