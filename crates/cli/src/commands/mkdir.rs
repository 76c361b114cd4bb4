//! `ropeway mkdir`.

use std::path::Path;

use ropeway_vfs::{ErrorKind, RelPath, Tree};
use rustix::fs::Mode;
use rustix::process::umask;
use serde_json::{Map, json};

use super::nodes::{self, Spot, Voice};
use crate::args::MkdirArgs;
use crate::ends::parent_of;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;

/// Runs the command; gives its exit code.
///
/// # Errors
/// The only folder cannot be made.
pub(crate) fn run(args: &MkdirArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    // What mkdir(2) would take off; the tree sets modes as they are.
    let mask = umask(Mode::empty());
    umask(mask);
    let mode = 0o777 & !mask.bits();
    nodes::run(&servers, async {
        let mut voice = Voice::new(args.json);
        for path in &args.paths {
            let result = make(path, args.parents, mode, &servers, &mut voice).await;
            voice.take(result, args.paths.len() == 1)?;
        }
        Ok(voice.finish())
    })
}

async fn make(
    path: &Path,
    parents: bool,
    mode: u32,
    servers: &Servers,
    voice: &mut Voice,
) -> Result<(), Failure> {
    let spot = match Place::parse_target(path)? {
        Place::Local(path) if parents => below_existing(&path)?,
        Place::Local(_) | Place::Remote(_) => {
            nodes::find(path, true, servers)
                .await
                .map_err(|failure| match failure.code {
                    code::SOURCE => Failure {
                        code: code::TARGET,
                        ..failure
                    },
                    _ => failure,
                })?
        }
    };
    let made = if spot.path.is_root() && parents {
        Vec::new()
    } else if spot.path.is_root() {
        let message = format!("cannot make folder {}: the name is taken", spot.shown);
        return Err(Failure::new(code::TARGET, message).hint("-p takes it as it is"));
    } else if parents {
        make_all(&*spot.tree, &spot.path, mode)
            .await
            .map_err(|error| spot.fault("make folder", &error, false))?
    } else {
        make_one(&spot, mode).await?;
        vec![spot.path.clone()]
    };
    for path in made {
        voice.done();
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(spot.place_of(&path).to_string()));
        fields.insert("action".to_owned(), json!("mkdir"));
        voice.object("item", fields);
    }
    Ok(())
}

async fn make_one(spot: &Spot, mode: u32) -> Result<(), Failure> {
    spot.tree.make_dir(&spot.path, mode).await.map_err(|error| {
        let failure = spot.fault("make folder", &error, false);
        match error.kind {
            ErrorKind::NotFound => failure.hint("-p makes the folders above it too"),
            ErrorKind::AlreadyExists => failure.hint("-p takes a folder that is there as it is"),
            _ => failure,
        }
    })
}

/// Makes a folder and those above it; gives those that were made, in order. Tries the last one first: mostly the others
/// are there, and each question costs a round trip.
async fn make_all(tree: &dyn Tree, path: &RelPath, mode: u32) -> ropeway_vfs::Result<Vec<RelPath>> {
    let mut wanted = vec![path.clone()];
    let mut made = Vec::new();
    while let Some(next) = wanted.last().cloned() {
        match tree.make_dir(&next, mode).await {
            Ok(()) => {
                made.push(next);
                wanted.pop();
            }
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                if !tree.metadata(&next).await?.is_dir() {
                    return Err(error);
                }
                wanted.pop();
            }
            Err(error) if error.kind == ErrorKind::NotFound => match next.parent() {
                Some(parent) if !parent.is_root() && !made.contains(&parent) => wanted.push(parent),
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// A path of this machine, seen from the deepest folder above it that exists.
fn below_existing(path: &Path) -> Result<Spot, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let mut existing = path;
    while !existing.exists() && existing != Path::new(".") && existing != Path::new("/") {
        existing = parent_of(existing);
    }
    let fault = |error: std::io::Error| {
        let message = format!(
            "cannot make folder {}: {}",
            path.display(),
            crate::ends::cause(&error)
        );
        Failure::of_end(message, &error, code::TARGET).hint("check the spelling")
    };
    let root = std::fs::canonicalize(existing).map_err(fault)?;
    if !root.is_dir() {
        let message = format!(
            "cannot make folder {}: {} is a file",
            path.display(),
            existing.display()
        );
        return Err(Failure::new(code::TARGET, message).hint("give another name, or move that file away"));
    }
    let rest = path.strip_prefix(existing).unwrap_or(path);
    let plain: std::path::PathBuf = rest
        .components()
        .filter(|part| !matches!(part, std::path::Component::CurDir))
        .collect();
    let rest = RelPath::parse(plain.as_os_str().as_bytes()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: `..` after a folder that does not exist",
            path.display()
        ))
        .hint("give the path without `..`")
    })?;
    Ok(Spot {
        tree: nodes::open(&root)?,
        place: Place::Local(root).join(&rest),
        path: rest,
        shown: path.display().to_string(),
    })
}
