//! Finds the nodes that SRC and DST name, on this machine and on shares.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use ropeway_vfs::{self as vfs, End, ErrorKind, Kind};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::{ServerError, Servers};
use crate::url::SmbUrl;

/// Identity of a node.
#[derive(Clone, Debug)]
struct Id {
    /// The server; empty for this machine.
    whose: String,
    number: u64,
    /// Marks that tell nodes of one number on different volumes apart. One mark that both nodes
    /// have and that is equal suffices.
    marks: [Option<i128>; 2],
    /// Times of the last change of attributes and of contents, in units of 100 ns. Together with
    /// the number they recognise one node that is seen in two ways: a share of this machine, or a
    /// server under two names.
    times: Option<[i128; 2]>,
}

/// Converts nanoseconds to SMB's unit of 100 ns.
fn to_100ns(nanoseconds: i128) -> i128 {
    nanoseconds.div_euclid(100)
}

/// What is known about a node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) is_dir: bool,
    pub(super) kind: Kind,
    /// Device number, of a device node on this machine.
    device: u64,
    pub(super) links: u64,
    /// Number of the volume: of the device, or of the share.
    pub(super) volume: Option<u64>,
    id: Option<Id>,
}

impl Node {
    fn local(metadata: &Metadata) -> Self {
        Self {
            is_dir: metadata.is_dir(),
            kind: kind_of(metadata.file_type()),
            device: metadata.rdev(),
            links: metadata.nlink(),
            volume: Some(metadata.dev()),
            id: Some(Id {
                whose: String::new(),
                number: metadata.ino(),
                marks: [Some(i128::from(metadata.dev())), None],
                times: Some(
                    [
                        (metadata.ctime(), metadata.ctime_nsec()),
                        (metadata.mtime(), metadata.mtime_nsec()),
                    ]
                    .map(|(seconds, rest)| to_100ns(i128::from(seconds) * 1_000_000_000 + i128::from(rest))),
                ),
            }),
        }
    }

    fn remote(url: &SmbUrl, metadata: &vfs::Metadata) -> Self {
        // A node and its version in a snapshot may have the same number and creation time, but are
        // two nodes.
        let then = url.snapshot().unwrap_or_default();
        let server = format!("{}:{}/{then}", url.server.host, url.server.port);
        // Samba gives each share its own serial number, so two shares of one volume look like two
        // volumes. Nodes of one server are therefore the same if their numbers are equal and they
        // were created, or last changed, in the same 100 ns. Both times are needed: Samba 4.17
        // reports the oldest of a node's times as its creation time, which is the last access until
        // someone lists a new folder; and work in a folder changes its change time.
        let id = metadata.id.filter(|id| !matches!(id.index, 0 | u64::MAX));
        let id = id.map(|id| Id {
            whose: server,
            number: id.index,
            marks: [metadata.created, metadata.changed].map(|time| time.map(|time| time.0)),
            times: metadata
                .changed
                .map(|changed| [changed, metadata.modified].map(|time| to_100ns(time.0))),
        });
        Self {
            is_dir: metadata.is_dir(),
            kind: metadata.kind,
            device: 0,
            links: metadata.links,
            volume: metadata.id.map(|id| id.volume),
            id,
        }
    }

    /// Returns whether both are one node, as far as this can be told.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (&self.id, &other.id) else {
            return false;
        };
        if one.whose != other.whose {
            // Servers may put the volume into the upper bits.
            let same_number = (one.number ^ other.number) << 16 == 0;
            return same_number && one.times.is_some() && one.times == other.times;
        }
        let mut marks = one.marks.iter().zip(&other.marks);
        one.number == other.number && marks.any(|(one, other)| one.is_some() && one == other)
    }
}

fn kind_of(kind: fs::FileType) -> Kind {
    match () {
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_symlink() => Kind::Symlink,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_char_device() => Kind::CharDevice,
        () if kind.is_block_device() => Kind::BlockDevice,
        () => Kind::File,
    }
}

/// Returns the node at an absolute place if it exists and can be examined. Without `follow`, a link
/// is not followed.
pub(super) async fn node_at(place: &Place, follow: bool, servers: &Servers) -> Option<Node> {
    match place {
        Place::Local(path) => {
            let metadata = if follow {
                fs::metadata(path)
            } else {
                fs::symlink_metadata(path)
            };
            metadata.ok().as_ref().map(Node::local)
        }
        Place::Remote(url) => servers
            .metadata(url)
            .await
            .ok()
            .map(|metadata| Node::remote(url, &metadata)),
    }
}

/// A source that exists.
pub(super) struct Found {
    pub(super) given: String,
    /// Absolute path without links above the last component.
    pub(super) absolute: Place,
    pub(super) node: Node,
    /// The path is `.`, `..`, `x/.` or `/`: it stands for the folder's contents and has no name.
    pub(super) nameless: bool,
}

/// Finds an end that is read: a source, or the target of a check.
pub(super) async fn find(given: &Path, end: End, servers: &Servers) -> Result<Found, Failure> {
    if given.as_os_str().is_empty() {
        return Err(Failure::usage("a path is empty")
            .hint("quote your variables: an unset variable gives an empty name"));
    }
    match Place::parse_end(given)? {
        Place::Local(path) => find_local(&path, end),
        Place::Remote(url) => find_remote(url, end, servers).await,
    }
}

async fn find_remote(url: SmbUrl, end: End, servers: &Servers) -> Result<Found, Failure> {
    let metadata = servers
        .metadata_of_source(&url)
        .await
        .map_err(|error| error.failure(&format!("cannot read the {end} {url}"), End::Source))?;
    if url.must_be_folder && !metadata.is_dir() {
        return Err(Failure::new(
            code::SOURCE,
            format!("cannot read the {end} {url}/: not a folder"),
        )
        .hint("remove the slash at the end"));
    }
    Ok(Found {
        given: url.to_string(),
        node: Node::remote(&url, &metadata),
        nameless: url.nameless,
        absolute: Place::Remote(url.plain()),
    })
}

fn find_local(given: &Path, end: End) -> Result<Found, Failure> {
    let missing = |error: &io::Error| {
        let failure = Failure::of_end(
            format!("cannot read the {end} {}: {}", given.display(), cause(error)),
            error,
            code::SOURCE,
        );
        match failure.code {
            code::PERMISSION => failure.hint("run ropeway as a user who can read it"),
            _ => failure.hint("check the spelling, and that the volume is mounted"),
        }
    };
    let metadata = fs::symlink_metadata(given).map_err(|error| missing(&error))?;
    // `link/` and `link/.` name the folder behind the link; lstat has already followed the link.
    let nameless = is_nameless(given);
    let absolute = absolute(given, metadata.is_dir()).map_err(|error| missing(&error))?;
    if metadata.is_dir() {
        fs::read_dir(given).map_err(|error| missing(&error))?;
    } else if metadata.is_file() {
        may(given, Access::READ_OK).map_err(|error| missing(&error))?;
    }
    Ok(Found {
        given: given.display().to_string(),
        absolute: Place::Local(absolute),
        node: Node::local(&metadata),
        nameless,
    })
}

/// Returns whether the last component is `.` or `..`, or the path has none. (`Path` hides a `.` at
/// the end.)
pub(crate) fn is_nameless(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let trimmed = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&b""[..], |last| &bytes[..=last]);
    let last = trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

/// Returns the absolute path. Links are resolved above the last component; in a folder's path the
/// last one is resolved too.
fn absolute(path: &Path, is_dir: bool) -> io::Result<std::path::PathBuf> {
    if is_dir {
        return fs::canonicalize(path);
    }
    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
    Ok(fs::canonicalize(parent_of(path))?.join(name))
}

/// Returns the parent folder of `path`; `.` for a bare name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// DST as found.
pub(super) struct Target {
    pub(super) given: String,
    pub(super) absolute: Place,
    pub(super) node: Option<Node>,
    /// Target of the link, if DST is a link that does not lead to a folder.
    pub(super) link_target: Option<LinkTarget>,
    /// DST ends with a slash, so it can only be a folder.
    pub(super) must_be_folder: bool,
}

/// Target of a link that is not a folder.
pub(super) enum LinkTarget {
    /// A node other than a folder.
    Exists(Box<(Place, Node)>),
    /// Nothing: the link dangles.
    Missing,
}

impl Target {
    pub(super) async fn find(given: &Path, servers: &Servers) -> Result<Self, Failure> {
        if given.as_os_str().is_empty() {
            return Err(Failure::usage("the target is empty")
                .hint("quote your variables: an unset variable gives an empty name"));
        }
        match Place::parse_end(given)? {
            Place::Local(path) => Self::find_local(&path),
            Place::Remote(url) => Self::find_remote(url, servers).await,
        }
    }

    /// Returns the target for a regular file, as `cp` chooses it: the file behind a link is
    /// replaced, and the link stays.
    pub(super) fn through_link(self) -> Result<Self, Failure> {
        match self.link_target {
            None => Ok(self),
            Some(LinkTarget::Exists(end)) => {
                let (absolute, node) = *end;
                Ok(Self {
                    absolute,
                    node: Some(node),
                    link_target: None,
                    ..self
                })
            }
            Some(LinkTarget::Missing) => Err(Failure::usage(format!(
                "not writing through the dangling link {}",
                self.given
            ))
            .hint("remove the link, or give the name it points to")),
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_dir)
    }

    async fn find_remote(url: SmbUrl, servers: &Servers) -> Result<Self, Failure> {
        let of = |url: &SmbUrl, error: &ServerError| {
            error.failure(&format!("cannot use the target {url}"), End::Target)
        };
        let node = match servers.metadata(&url).await {
            Ok(metadata) => Some(Node::remote(&url, &metadata)),
            Err(error) if error.is_missing() => None,
            Err(error) if error.kind() == Some(ErrorKind::NotADirectory) => {
                return Err(file_in_the_way(&url.to_string()));
            }
            Err(error) => return Err(of(&url, &error)),
        };
        if node.is_none()
            && let Some(parent) = url.parent()
        {
            match servers.metadata(&parent).await {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => return Err(file_where_folder(&parent.to_string())),
                Err(error) if error.is_missing() => {
                    return Err(Failure::new(code::TARGET, format!("there is no folder {parent}"))
                        .hint(format!("create it first: ropeway mkdir -p {parent}")));
                }
                Err(error) => return Err(of(&parent, &error)),
            }
        }
        Ok(Self {
            given: url.to_string(),
            node,
            link_target: None,
            must_be_folder: url.must_be_folder,
            absolute: Place::Remote(url.plain()),
        })
    }

    fn find_local(given: &Path) -> Result<Self, Failure> {
        let fault = |what: &str, error: &io::Error| {
            let message = format!("cannot use the target {}: {what}", given.display());
            let failure = Failure::of_end(message, error, code::TARGET);
            match failure.code {
                code::PERMISSION => failure.hint("run ropeway as a user who can write there"),
                _ => failure.hint("check the spelling, and that the volume is mounted"),
            }
        };
        let must_be_folder = given.as_os_str().as_bytes().ends_with(b"/") || is_nameless(given);
        let followed = fs::metadata(given);
        let found = |absolute, node, link_target| Self {
            given: given.display().to_string(),
            absolute: Place::Local(absolute),
            node,
            link_target,
            must_be_folder,
        };
        if let Ok(metadata) = &followed
            && metadata.is_dir()
        {
            let absolute = fs::canonicalize(given).map_err(|error| fault(&cause(&error), &error))?;
            return Ok(found(absolute, Some(Node::local(metadata)), None));
        }
        let metadata = match fs::symlink_metadata(given) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(file_in_the_way(&given.display().to_string()));
            }
            Err(error) => return Err(fault(&cause(&error), &error)),
        };
        let parent = parent_of(given);
        let parent = match fs::canonicalize(parent) {
            Ok(absolute) if absolute.is_dir() => absolute,
            Ok(_) => return Err(file_where_folder(&parent.display().to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(fault(&format!("there is no folder {}", parent.display()), &error)
                    .hint(format!("create it first: mkdir -p {}", parent.display())));
            }
            Err(error) => return Err(fault(&cause(&error), &error)),
        };
        let name = given
            .file_name()
            .ok_or_else(|| Failure::new(code::TARGET, format!("there is no folder {}", given.display())))?;
        let is_link = metadata.as_ref().is_some_and(Metadata::is_symlink);
        let link_target = match (is_link, &followed) {
            (false, _) => None,
            (true, Ok(end)) => {
                let absolute = fs::canonicalize(given).map_err(|error| fault(&cause(&error), &error))?;
                Some(LinkTarget::Exists(Box::new((
                    Place::Local(absolute),
                    Node::local(end),
                ))))
            }
            (true, Err(error)) if error.kind() == io::ErrorKind::NotFound => Some(LinkTarget::Missing),
            (true, Err(error)) => return Err(fault(&cause(error), error)),
        };
        Ok(found(
            parent.join(name),
            metadata.as_ref().map(Node::local),
            link_target,
        ))
    }
}

fn file_in_the_way(given: &str) -> Failure {
    Failure::usage(format!(
        "{given}: a component of the path is a file, not a folder"
    ))
    .hint("choose another target, or move that file away")
}

pub(super) fn file_where_folder(given: &str) -> Failure {
    Failure::usage(format!("{given} is a file, but a folder is needed"))
        .hint("choose another target, or move that file away")
}

/// Refuses a source that would replace a FIFO, socket or device by a node of another kind, or a
/// device by another device.
pub(super) fn refuse_special(source: &Node, existing: Option<&Node>, given: &str) -> Result<(), Failure> {
    let Some(existing) =
        existing.filter(|existing| (existing.kind, existing.device) != (source.kind, source.device))
    else {
        return Ok(());
    };
    let (what, hint) = match existing.kind {
        Kind::BlockDevice => (
            "a block device",
            "to write an image onto the device itself, use --write-device",
        ),
        Kind::CharDevice => ("a character device", "choose a file or a folder"),
        Kind::Fifo => (
            "a FIFO",
            "choose a file or a folder; to write into a FIFO use a redirection: cat SRC > FIFO",
        ),
        Kind::Socket => ("a socket", "choose a file or a folder"),
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("{given} is {what}; the copy would replace it")).hint(hint))
}

/// Checks that a local folder is writable; a server reports this itself.
pub(super) fn writable(folder: &Place) -> Result<(), Failure> {
    let Some(path) = folder.local() else {
        return Ok(());
    };
    may(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let failure = Failure::of_end(
            format!("cannot write to {folder}: {}", cause(&error)),
            &error,
            code::TARGET,
        );
        match failure.code {
            code::PERMISSION => failure.hint("run ropeway as a user who can write there"),
            _ => failure.hint("check whether the volume is mounted read-only"),
        }
    })
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Returns the cause of an error without the number that std appends.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
