//! The target: a folder of this machine, or a folder of a share.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use ropeway_lab::bench::PREFIX;
use ropeway_lab::bench::facts;
use ropeway_lab::bench::io::{Far, Folder, FolderOptions, Ground};
use ropeway_lab::bench::result::{Conditions, Link, Target};
use ropeway_smb_client::ConnectionInfo;
use ropeway_vfs::decorate::trace::Traced;
use ropeway_vfs::trace::SharedObserver;
use ropeway_vfs::{End, Name, Tree};
use tokio::runtime::Runtime;

use crate::args::BenchArgs;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::ui::messages::print_stderr;
use crate::url::SmbUrl;

/// Entries of a folder that are looked at for what a killed run left.
const ENTRIES_MAX: usize = 10_000;

/// An opened target.
pub(super) struct Opened {
    pub(super) ground: Box<dyn Ground>,
    pub(super) target: Target,
    pub(super) conditions: Conditions,
}

/// Opens the target of the command, and makes a folder in it.
///
/// # Errors
/// It is no folder, or cannot be written.
pub(super) fn open(
    args: &BenchArgs,
    servers: &Servers,
    runtime: &Runtime,
    observer: Option<SharedObserver>,
) -> Result<Opened, Failure> {
    let link = args.how.link_rate.map(|rate| Link {
        name: "--link-rate".to_owned(),
        bits_per_s: rate.0,
    });
    match Place::parse_end(&args.paths[0])? {
        Place::Local(path) => folder(args, &path, link, observer),
        Place::Remote(url) => share(args, &url, link, servers, runtime, observer),
    }
}

fn folder(
    args: &BenchArgs,
    path: &Path,
    link: Option<Link>,
    observer: Option<SharedObserver>,
) -> Result<Opened, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let message = format!("cannot use {shown}: {}", crate::ends::cause(&error));
        Failure::of_end(message, &error, code::TARGET)
            .hint("check the spelling, and that you may write there")
    };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        return Err(Failure::new(
            code::REFUSED,
            format!("{shown} is a device, and bench would destroy what is on it"),
        )
        .hint("mount it, and give a folder on it"));
    }
    if !kind.is_dir() {
        return Err(Failure::usage(format!("{shown} is not a folder"))
            .hint("give a folder; bench makes a new one inside it"));
    }
    let path = fs::canonicalize(path).map_err(failed)?;
    leftovers(&path, args.how.json);
    let (target, conditions) = facts::of_folder(&shown.to_string(), &path);
    let options = FolderOptions {
        seed: args.how.seed,
        threads: std::env::var_os("ROPEWAY_IO").is_some_and(|engine| engine == "psync"),
        observer,
    };
    let ground = Folder::open(&path, options).map_err(failed)?;
    Ok(Opened {
        ground: Box::new(ground),
        target,
        conditions: Conditions {
            link: link.or(conditions.link),
            ..conditions
        },
    })
}

/// Names folders that a killed run has left. Another run may be using them, so they stay.
fn leftovers(folder: &Path, json: bool) {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(ENTRIES_MAX);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let owner = owner.and_then(|id| id.parse::<u32>().ok());
        let is_dead = owner.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists());
        if is_dead && !json {
            print_stderr(&format!(
                "! {} is left by a run that was killed; you may remove it",
                entry.path().display()
            ));
        }
    }
}

fn share(
    args: &BenchArgs,
    url: &SmbUrl,
    link: Option<Link>,
    servers: &Servers,
    runtime: &Runtime,
    observer: Option<SharedObserver>,
) -> Result<Opened, Failure> {
    let what = format!("cannot open {url}");
    let tree = runtime.block_on(servers.share_tree(url));
    let tree = tree.map_err(|error| error.failure(&what, End::Target))?;
    let metadata = runtime.block_on(tree.metadata(&url.path));
    let metadata = metadata.map_err(|error| Failure::of_node(&what, &error, End::Target))?;
    if !metadata.is_dir() {
        return Err(Failure::usage(format!("{url} is not a folder"))
            .hint("give a folder of the share; bench makes a new one inside it"));
    }
    let connection = runtime.block_on(servers.connection(&url.server));
    let link = link.or_else(|| {
        let host = connection.as_ref().map(|info| info.address.ip().to_string());
        facts::link_to(&host.unwrap_or_else(|| url.server.host.clone()))
    });
    let (mut target, conditions) = facts::of_share(&url.plain().to_string(), link);
    target.connection = connection.as_ref().map(described);
    let tree: Arc<dyn Tree> = match observer {
        Some(observer) => Traced::new(tree, observer, End::Target),
        None => tree,
    };
    let name = format!("{PREFIX}{}-{:06x}", std::process::id(), fastrand::u32(..1 << 24));
    let name = Name::new(name.as_bytes()).expect("it has letters, digits and dashes");
    let ground = Far::open(tree, &url.path, &name, runtime.handle().clone(), args.how.seed);
    let ground = ground
        .map_err(|error| Failure::of_node(&format!("cannot make a folder in {url}"), &error, End::Target))?;
    Ok(Opened {
        ground: Box::new(ground),
        target,
        conditions,
    })
}

fn described(info: &ConnectionInfo) -> String {
    let protection = match (&info.cipher, &info.signing) {
        (Some(cipher), _) => format!("encrypted with {cipher:?}"),
        (None, Some(signing)) => format!("signed with {signing:?}"),
        (None, None) => "neither signed nor encrypted".to_owned(),
    };
    let compression = match (info.compression.is_some(), info.compression.by_line) {
        (true, false) => ", compression negotiated",
        (true, true) => ", compression if the line is slow",
        (false, _) => "",
    };
    let connections = match info.channels {
        1 => "one connection at the start".to_owned(),
        count => format!("{count} connections at the start"),
    };
    let trip = info.round_trip.map_or(String::new(), |trip| {
        format!(", round trip {:.1} ms", trip.as_secs_f64() * 1e3)
    });
    format!(
        "SMB {}, {protection}{compression}, {connections}{trip}",
        dialect(info)
    )
}

fn dialect(info: &ConnectionInfo) -> &'static str {
    use ropeway_smb_wire::negotiate::Dialect;
    match info.dialect {
        Dialect::Smb202 => "2.0.2",
        Dialect::Smb210 => "2.1",
        Dialect::Smb300 => "3.0",
        Dialect::Smb302 => "3.0.2",
        _ => "3.1.1",
    }
}
